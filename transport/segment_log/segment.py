"""One segment file, read.

A scan hands out whole frames and stops at the first place that is not one. It does not decide
what that place means: in the last segment it is the tail, which is still being written or was
torn by a crash; anywhere else the log is corrupt. It decides in two cases only, as no crash
explains them: frames that were whole before are not any more, and frames follow a bad header.
"""

import os
from collections.abc import Generator
from dataclasses import dataclass

from onehop.transport.errors import Closed, LogError
from onehop.transport.segment_log.directory import segment_path
from onehop.transport.segment_log.errors import LogCorrupt
from onehop.transport.segment_log.frames import (
    FILE_HEADER_BYTES,
    FORMAT_VERSION,
    FRAME_HEADER_BYTES,
    FrameScan,
    decode_file_header,
)
from onehop.transport.segment_log.index import SegmentIndex

READ_BYTES = 64 * 1024
"""What one read takes in; more only where a single frame is larger."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a scan ended: frame `number` is not whole at byte `offset`.

    `fault` says why, and is empty where the file simply ends after a whole frame.
    """

    number: int
    offset: int
    fault: str


def has_whole_header(fd: int, path: str, first: int) -> bool:
    """Say whether the file has its header, or is one whose creation was cut short.

    Raises `LogCorrupt` for a bad header before frames: the header is on disk before the first
    frame is written, so no crash leaves that. Raises `LogError` for another format version.
    """
    size = os.fstat(fd).st_size  # before the read, as a writer may be adding to the file
    header = decode_file_header(os.pread(fd, FILE_HEADER_BYTES, 0))
    if header is None:
        if size > FILE_HEADER_BYTES:
            raise LogCorrupt(path, 0, "bad file header before frames")
        return False
    version, number = header
    if version != FORMAT_VERSION:
        raise LogError(f"{path}: format version is {version}, expected {FORMAT_VERSION}")
    if number != first:
        raise LogCorrupt(path, 0, f"file header says frame {number}, the name says {first}")
    return True


class Segment:
    """The file that begins with frame `index.first`, open until `close` or until nobody has it.

    Raises `FileNotFoundError` if it is not there.
    """

    _fd = -1

    def __init__(self, directory: str, index: SegmentIndex) -> None:
        self.index = index
        self.path = segment_path(directory, index.first)
        self._has_header = False
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LogError(error.errno, f"{self.path}: cannot open: {error.strerror}") from error

    def scan(self, number: int) -> Generator[tuple[int, bytes], None, Stop]:
        """Yield the whole frames from `number` on; return where and why they end."""
        if not self._has_header:
            self._has_header = self._find_header()
        if not self._has_header:
            return Stop(self.index.first, 0, "no whole file header")
        at, offset = self.index.nearest(number)
        size = READ_BYTES
        while True:
            data = self._read(size, offset)
            frames = FrameScan(data, at)
            start = 0
            while frames.step():
                end = frames.position
                if at == self.index.end_number:
                    self.index.advance(end - start)
                if at >= number:
                    yield at, data[start + FRAME_HEADER_BYTES : end]
                at, start = frames.number, end
            offset += start
            if not frames.fault and len(data) == size:
                size = max(READ_BYTES, frames.needs)
            elif at >= self.index.end_number:
                return Stop(at, offset, frames.fault or _end_fault(frames, len(data) - start))
            elif start == 0:
                fault = frames.fault or f"file ends within frame {at}"
                raise LogCorrupt(self.path, offset, f"{fault}; it was whole before")
            # Otherwise `data` is older than the index: frames came while the caller had control.

    def close(self) -> None:
        """Close the file. Harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # A reader lets go of a segment while an iteration may still be in it.
        self.close()

    def _find_header(self) -> bool:
        try:
            return has_whole_header(self._fd, self.path, self.index.first)
        except LogError:
            raise
        except OSError as error:
            raise LogError(error.errno, f"{self.path}: cannot read: {error.strerror}") from error

    def _read(self, size: int, offset: int) -> bytes:
        if self._fd < 0:
            raise Closed(f"{self.path}: the log was closed while it was read")
        try:
            return os.pread(self._fd, size, offset)
        except OSError as error:
            raise LogError(
                error.errno, f"{self.path}: cannot read at byte {offset}: {error.strerror}"
            ) from error


def _end_fault(frames: FrameScan, rest: int) -> str:
    if rest == 0:
        return ""
    return f"frame {frames.number} has {rest} bytes, expected {frames.needs} or more"
