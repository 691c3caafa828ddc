"""The segments no longer written to, oldest first, and how they go.

Files go from the oldest on, so that a crash in between leaves a log without a hole.
"""

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from onehop.transport.segment_log.directory import segment_path, sync_directory


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A file with frames `first` to `end - 1`."""

    first: int
    end: int
    size_bytes: int


class SealedSegments:
    """All segments of a log but the one being written.

    The methods that drop raise `OSError` as the system gave it; what went before stays gone, and
    `first` tells.
    """

    def __init__(self, directory: str, firsts: list[int]) -> None:
        """Take the segments in `firsts` but the last, which is the one being written."""
        self._directory = directory
        self._segments: deque[SealedSegment] = deque()
        self.size_bytes = 0
        for first, end in pairwise(firsts):
            self.add(first, end, os.stat(segment_path(directory, first)).st_size)

    @property
    def first(self) -> int | None:
        """The oldest frame, or None without segments."""
        return self._segments[0].first if self._segments else None

    def add(self, first: int, end: int, size_bytes: int) -> None:
        """Take in the segment that was sealed last."""
        self._segments.append(SealedSegment(first, end, size_bytes))
        self.size_bytes += size_bytes

    def drop_to_size(self, size_bytes: int) -> None:
        """Drop until no more than `size_bytes` are left."""
        count = 0
        left = self.size_bytes
        for segment in self._segments:
            if left <= size_bytes:
                break
            left -= segment.size_bytes
            count += 1
        self._drop(count)

    def drop_before(self, number: int) -> None:
        """Drop the segments that hold nothing but frames before `number`."""
        count = 0
        for segment in self._segments:
            if segment.end > number:
                break
            count += 1
        self._drop(count)

    def drop_older(self, written_before_s: float) -> None:
        """Drop from the oldest on while the file was last written before that time."""
        count = 0
        for segment in self._segments:
            path = segment_path(self._directory, segment.first)
            if os.stat(path).st_mtime >= written_before_s:
                break
            count += 1
        self._drop(count)

    def _drop(self, count: int) -> None:
        for _ in range(count):
            segment = self._segments[0]
            with suppress(FileNotFoundError):
                os.unlink(segment_path(self._directory, segment.first))
            self._segments.popleft()
            self.size_bytes -= segment.size_bytes
        if count:
            sync_directory(self._directory)
