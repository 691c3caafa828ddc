"""The codec: what is a whole frame, and what is not."""

import struct
import zlib

import pytest

from onehop.transport.errors import LimitError
from onehop.transport.segment_log import frames
from onehop.transport.segment_log.frames import (
    FILE_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    MAX_FRAME_BYTES,
    FrameScan,
    decode_file_header,
    encode_file_header,
    encode_frames,
)


def whole_frames(data: bytes, first: int) -> FrameScan:
    scan = FrameScan(data, first)
    while scan.step():
        pass
    return scan


def test_frame_is_what_struct_and_zlib_say() -> None:
    fields = struct.pack(">4sIQ", b"1HFR", 5, 7)
    expected = fields + struct.pack(">I", zlib.crc32(fields + b"hello")) + b"hello"
    assert encode_frames(7, [b"hello"]) == (expected, [25])


def test_file_header_round_trips_and_every_flipped_bit_is_seen() -> None:
    header = encode_file_header(42)
    assert len(header) == FILE_HEADER_BYTES
    assert decode_file_header(header) == (1, 42)
    for bit in range(8 * len(header)):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_file_header(bytes(damaged)) is None
    assert all(decode_file_header(header[:size]) is None for size in range(len(header)))


def test_every_flipped_bit_of_a_frame_is_seen() -> None:
    data, sizes = encode_frames(3, [b"one", b"two"])
    for bit in range(8 * sizes[0], 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        scan = whole_frames(bytes(damaged), 3)
        assert (scan.number, scan.position) == (4, sizes[0])


def test_scan_says_how_many_bytes_it_needs() -> None:
    data, _ = encode_frames(1, [b"payload"])
    assert whole_frames(data[: FRAME_HEADER_BYTES - 1], 1).needs == FRAME_HEADER_BYTES
    assert whole_frames(data[:-1], 1).needs == len(data)
    assert whole_frames(data[:-1], 1).fault == ""


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (bytes(40), "magic"),
        (encode_frames(9, [b"x"])[0], "numbered 9, expected 1"),
        (struct.pack(">4sIQI", b"1HFR", MAX_FRAME_BYTES + 1, 1, 0), "length 16777217"),
        (struct.pack(">4sIQI", b"1HFR", 0, 1, 0), "CRC"),
    ],
)
def test_fault_says_what_was_seen(data: bytes, fault: str) -> None:
    assert fault in whole_frames(data, 1).fault


def test_bytes_like_payloads_make_the_same_frame() -> None:
    expected = encode_frames(1, [b"acde"])
    assert encode_frames(1, [bytearray(b"acde")]) == expected
    assert encode_frames(1, [memoryview(b"a-c-d-e-")[::2]]) == expected


def test_frame_limit_holds_at_the_bound() -> None:
    for size in (MAX_FRAME_BYTES - 1, MAX_FRAME_BYTES):
        assert encode_frames(1, [bytes(size)])[1] == [size + FRAME_HEADER_BYTES]
    with pytest.raises(LimitError, match="16777217 bytes"):
        encode_frames(1, [bytes(MAX_FRAME_BYTES + 1)])


def test_batch_limit_holds_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_BATCH_BYTES", 100)
    for size in (59, 60):
        assert len(encode_frames(1, [b"", bytes(size)])[0]) == size + 2 * FRAME_HEADER_BYTES
    with pytest.raises(LimitError, match="at payload 2"):
        encode_frames(1, [b"", bytes(61)])
