"""The segment being written: created, appended to, synced, sealed, and repaired after a crash.

The one rule: whatever happens, the file is whole frames up to `index.end_offset`, or is cut back
to that when it is next opened. A batch becomes visible at once: all of it is written but the
header of its first frame, then that header. So a reader never sees a frame of a batch that fails.
"""

import os
from typing import Self

from onehop.transport.segment_log.directory import segment_path, sync_directory
from onehop.transport.segment_log.frames import FRAME_HEADER_BYTES, encode_file_header
from onehop.transport.segment_log.index import SegmentIndex
from onehop.transport.segment_log.segment import Segment, has_whole_header


class ActiveSegment:
    """The last file of a log, open for writing.

    Methods raise `OSError` as the system gave it. `is_torn` means that a failed write could not
    be cut away, so that nothing may be written after it.
    """

    def __init__(self, fd: int, path: str, index: SegmentIndex) -> None:
        self._fd = fd
        self.path = path
        self.index = index
        self.is_torn = False

    @classmethod
    def create(cls, directory: str, first: int) -> Self:
        """Begin the segment of frame `first`; its header and name are on disk on return.

        Raises `FileExistsError` if it is there already; after any other error it may have been
        left behind without a whole header.
        """
        path = segment_path(directory, first)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        active = cls(os.open(path, flags, 0o644), path, SegmentIndex(first))
        try:
            active._begin()
            sync_directory(directory)
        except BaseException:
            active.close()
            raise
        return active

    @classmethod
    def recover(cls, directory: str, first: int) -> tuple[Self, int]:
        """Open the last segment, cut what is not whole frames, and return how many bytes that was.

        What remains is on disk on return. Raises `LogError` for a file of another format version
        and `LogCorrupt` for a bad header before frames: both are left as they are.
        """
        path = segment_path(directory, first)
        active = cls(os.open(path, os.O_RDWR | os.O_CLOEXEC), path, SegmentIndex(first))
        try:
            cut_bytes = active._repair(directory)
            sync_directory(directory)
        except BaseException:
            active.close()
            raise
        return active, cut_bytes

    @property
    def has_frames(self) -> bool:
        """Whether anything was appended yet."""
        return self.index.end_number > self.index.first

    def append(self, data: bytes, sizes: list[int]) -> None:
        """Write frames of these `sizes` at the end, all or nothing."""
        start = self.index.end_offset
        view = memoryview(data)
        try:
            if len(sizes) == 1:
                self._write(view, start)
            else:
                self._write(view[FRAME_HEADER_BYTES:], start + FRAME_HEADER_BYTES)
                self._write(view[:FRAME_HEADER_BYTES], start)
            for size in sizes:
                self.index.advance(size)
        except BaseException:
            self._cut_back()
            raise

    def sync(self) -> None:
        """Wait until every frame is on disk."""
        os.fdatasync(self._fd)

    def modified_at_s(self) -> float:
        """When the file was last written, in seconds since 1970."""
        return os.fstat(self._fd).st_mtime

    def close(self) -> None:
        """Close the file without syncing it. Harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin(self) -> None:
        self._write(memoryview(encode_file_header(self.index.first)), 0)
        os.fsync(self._fd)

    def _write(self, data: memoryview, offset: int) -> None:
        while data:
            # A full disk takes a part first; the error comes with the rest.
            written = os.pwrite(self._fd, data, offset)
            data = data[written:]
            offset += written

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self.index.end_offset)
        except OSError:
            self.is_torn = True

    def _repair(self, directory: str) -> int:
        size = os.fstat(self._fd).st_size
        if not has_whole_header(self._fd, self.path, self.index.first):
            os.ftruncate(self._fd, 0)
            self._begin()
            return size
        segment = Segment(directory, self.index)
        for _ in segment.scan(self.index.first):
            pass  # the scan takes the index to the end of the whole frames
        segment.close()
        if size > self.index.end_offset:
            os.ftruncate(self._fd, self.index.end_offset)
        self.sync()
        return size - self.index.end_offset
