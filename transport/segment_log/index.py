"""Where the frames of one segment begin, without remembering every one.

One place is kept for about every `INDEX_EVERY_BYTES` bytes, so finding a frame means a bisection
and then a walk over at most that many bytes (or one frame, where frames are larger). The index
grows only at its end, over frames that were checked, or written by the one who asks.
"""

from array import array
from bisect import bisect_right

from onehop.transport.segment_log.frames import FILE_HEADER_BYTES

INDEX_EVERY_BYTES = 16 * 1024
"""16 bytes of index for 16 KiB of log: 64 KiB of memory for a segment of 64 MiB."""


class SegmentIndex:
    """The known places of the segment that begins with frame `first`.

    `end_number` and `end_offset` are the first frame not yet known and the byte it begins at.
    """

    __slots__ = ("_numbers", "_offsets", "end_number", "end_offset", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self.end_number = first
        self.end_offset = FILE_HEADER_BYTES
        self._numbers = array("Q", [first])
        self._offsets = array("Q", [FILE_HEADER_BYTES])

    def advance(self, size_bytes: int) -> None:
        """Take in the frame at the end, `size_bytes` long with its header."""
        if self.end_offset - self._offsets[-1] >= INDEX_EVERY_BYTES:
            self._numbers.append(self.end_number)
            self._offsets.append(self.end_offset)
        self.end_number += 1
        self.end_offset += size_bytes

    def nearest(self, number: int) -> tuple[int, int]:
        """Return the last known frame not after `number`, and the byte it begins at."""
        if number >= self.end_number:
            return self.end_number, self.end_offset
        place = bisect_right(self._numbers, number) - 1
        return self._numbers[place], self._offsets[place]
