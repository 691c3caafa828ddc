"""The bytes of a segment: a file header, then frames with nothing between them.

    file header   magic "1HOPSEGM" 8 | version u16 | zero u16 | first number u64 | CRC32 u32
    frame         magic "1HFR" 4 | length u32 | number u64 | CRC32 u32 | payload

Integers are big-endian. A CRC32 covers every byte of its header before it; that of a frame
covers the payload too. The one rule: a frame is whole when its magic, length, number and CRC
are all right, and nothing but a whole frame is ever handed on. Nothing here touches a file.
"""

import struct
import zlib
from collections.abc import Sequence

from onehop.transport.errors import LimitError

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Largest payload. A reader believes a length field up to this before it has seen the CRC."""
MAX_BATCH_BYTES = 64 * 1024 * 1024
"""Largest batch on disk. A batch is built in memory and never spans two segments."""

FORMAT_VERSION = 1
FILE_MAGIC = b"1HOPSEGM"
FRAME_MAGIC = b"1HFR"

_CRC = struct.Struct(">I")
_FILE_FIELDS = struct.Struct(">8sHHQ")
_FRAME_FIELDS = struct.Struct(">4sIQ")
_FRAME_HEADER = struct.Struct(">4sIQI")
FILE_HEADER_BYTES = _FILE_FIELDS.size + _CRC.size
FRAME_HEADER_BYTES = _FRAME_HEADER.size

Payload = bytes | bytearray | memoryview


def encode_file_header(first: int) -> bytes:
    """Return the header of the segment whose first frame is `first`."""
    fields = _FILE_FIELDS.pack(FILE_MAGIC, FORMAT_VERSION, 0, first)
    return fields + _CRC.pack(zlib.crc32(fields))


def decode_file_header(data: bytes) -> tuple[int, int] | None:
    """Return format version and first frame, or None if `data` is no whole file header."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, version, _, first = _FILE_FIELDS.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _FILE_FIELDS.size)
    if magic != FILE_MAGIC or crc != zlib.crc32(data[: _FILE_FIELDS.size]):
        return None
    return version, first


def encode_frames(first: int, payloads: Sequence[Payload]) -> tuple[bytes, list[int]]:
    """Return `payloads` as frames numbered from `first`, in one piece, and the size of each.

    Raises `LimitError` for a payload over `MAX_FRAME_BYTES` or a batch over `MAX_BATCH_BYTES`.
    """
    parts: list[bytes] = []
    sizes: list[int] = []
    total = 0
    for number, given in enumerate(payloads, first):
        # A copy of what is not bytes, so that the CRC and the frame see the same content.
        payload = given if type(given) is bytes else memoryview(given).tobytes()
        length = len(payload)
        if length > MAX_FRAME_BYTES:
            raise LimitError(f"payload has {length} bytes, a frame holds {MAX_FRAME_BYTES}")
        total += FRAME_HEADER_BYTES + length
        if total > MAX_BATCH_BYTES:
            raise LimitError(f"batch passes {MAX_BATCH_BYTES} bytes at payload {len(sizes) + 1}")
        fields = _FRAME_FIELDS.pack(FRAME_MAGIC, length, number)
        parts += (fields, _CRC.pack(zlib.crc32(payload, zlib.crc32(fields))), payload)
        sizes.append(FRAME_HEADER_BYTES + length)
    return b"".join(parts), sizes


class FrameScan:
    """Walks the frames of `data`, which begins with frame `number`.

    `step()` moves over one whole frame. When it returns False, `fault` says what is wrong with
    the bytes at `position`; if it is empty, they are too few to judge and `needs` bytes counted
    from `position` would be enough to go on.
    """

    __slots__ = ("data", "fault", "needs", "number", "position")

    def __init__(self, data: bytes, number: int) -> None:
        self.data = data
        self.number = number
        self.position = 0
        self.needs = FRAME_HEADER_BYTES
        self.fault = ""

    def step(self) -> bool:
        """Move over the frame at `position` if it is whole."""
        data, start = self.data, self.position
        payload_start = start + FRAME_HEADER_BYTES
        if payload_start > len(data):
            self.needs = FRAME_HEADER_BYTES
            return False
        magic, length, number, crc = _FRAME_HEADER.unpack_from(data, start)
        if magic != FRAME_MAGIC or number != self.number or length > MAX_FRAME_BYTES:
            self.fault = self._header_fault(magic, length, number)
            return False
        end = payload_start + length
        if end > len(data):
            self.needs = end - start
            return False
        fields = data[start : start + _FRAME_FIELDS.size]
        if zlib.crc32(data[payload_start:end], zlib.crc32(fields)) != crc:
            self.fault = f"frame {self.number} does not match its CRC"
            return False
        self.position = end
        self.number += 1
        return True

    def _header_fault(self, magic: bytes, length: int, number: int) -> str:
        if magic != FRAME_MAGIC:
            return f"frame {self.number} has magic {magic!r}, expected {FRAME_MAGIC!r}"
        if number != self.number:
            return f"frame is numbered {number}, expected {self.number}"
        return f"frame {self.number} has length {length}, expected at most {MAX_FRAME_BYTES}"
