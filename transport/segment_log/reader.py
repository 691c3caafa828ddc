"""Reads a log, from the process that writes it or from any other, without a lock.

The writer only ever adds whole frames at the end and removes whole files at the beginning, so a
reader needs no agreement with it: what is not a whole frame at the end of the last segment is
not there yet. A segment with another one after it is sealed; there, anything that is not a whole
frame is corruption and is raised, never skipped.
"""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from onehop.transport.errors import Closed, LogError
from onehop.transport.segment_log.directory import list_segments
from onehop.transport.segment_log.errors import LogCorrupt, NotInLog
from onehop.transport.segment_log.index import SegmentIndex
from onehop.transport.segment_log.segment import Segment, Stop

MAX_OPEN_SEGMENTS = 8
"""Files kept open at a time; a file that was dropped holds its disk space while it is open."""
MAX_INDEXED_SEGMENTS = 256
"""Segments whose index is kept: 16 MiB of memory at most for segments of 64 MiB."""

MAX_LISTINGS = 16
"""Times a directory is listed for one frame while its files are being dropped underneath."""


class SegmentReader:
    """The frames of the log in the directory `path`.

    Use from one thread at a time. A directory without segments is a log with no frames yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._directory = os.fspath(path)
        self._indexes: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._is_closed = False
        self._firsts = list_segments(self._directory)

    @property
    def first(self) -> int:
        """The oldest frame in the log, or the one to come if it has none. Lists the directory."""
        self.refresh()
        return self._firsts[0] if self._firsts else 1

    @property
    def last(self) -> int:
        """The newest whole frame, `first - 1` if there is none. Reads what is new since before."""
        self.refresh()
        if not self._firsts:
            return 0
        newest = self._firsts[-1]
        last = self._index_of(newest).end_number - 1
        for number, _ in self.read_from(last + 1):
            last = number
        return last

    def read(self, number: int) -> bytes:
        """Return the payload of frame `number`.

        Raises `NotInLog` if it was dropped or is not written yet, `LogCorrupt` if it is damaged.
        """
        for _, payload in self.read_from(number):
            return payload
        raise NotInLog(f"{self._directory}: frame {number} is not written yet")

    def read_from(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield number and payload of every frame from `number` to the end as it is found then.

        To follow a log that grows, call again with the number after the last one that came:
        nothing is read twice. Raises, when the iteration gets there, `NotInLog` for a frame that
        was dropped or lies beyond the next one to be written, `LogCorrupt` for damage.
        """
        while True:
            segment = self._segment_of(number)
            if segment is None:
                return
            stop = yield from segment.scan(number)
            self.refresh()
            following = self._first_after(segment.index.first)
            if following is None:
                if stop.number == segment.index.first:
                    # A failed creation, perhaps: the name may come again with another file.
                    self._open.pop(stop.number, None)
                if number > stop.number:
                    raise NotInLog(
                        f"{self._directory}: frame {number} is beyond the next one, {stop.number}"
                    )
                return
            if number < following:
                # Sealed. Look again: the last frames may have come between scan and listing.
                stop = yield from segment.scan(max(number, stop.number))
                if stop.fault:
                    raise LogCorrupt(segment.path, stop.offset, stop.fault)
                if stop.number != following:
                    self._check_dropped(segment, stop, following)
                number = stop.number

    def refresh(self) -> None:
        """Look at the directory again and let go of files that were dropped."""
        if self._is_closed:
            raise Closed(f"{self._directory}: the reader is closed")
        self._firsts = list_segments(self._directory)
        for first in self._open.keys() - set(self._firsts):
            del self._open[first]
        for first in self._indexes.keys() - set(self._firsts):
            del self._indexes[first]

    def share_index(self, index: SegmentIndex) -> None:
        """Use `index`, which the writer keeps up to date, for the segment it describes."""
        self._indexes[index.first] = index
        while len(self._indexes) > MAX_INDEXED_SEGMENTS:
            self._indexes.popitem(last=False)

    def close(self) -> None:
        """Close all files. Harmless when repeated."""
        self._is_closed = True
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_dropped(self, segment: Segment, stop: Stop, following: int) -> None:
        """Raise `LogCorrupt` for a hole after `segment`, unless that was dropped with what follows.

        Files go from the oldest on: if this one is still there now, the ones after it were not
        being dropped while the directory was listed before.
        """
        self.refresh()
        if segment.index.first in self._firsts:
            raise LogCorrupt(
                segment.path,
                stop.offset,
                f"ends before frame {stop.number}, the next segment begins at {following}",
            )

    def _segment_of(self, number: int) -> Segment | None:
        if self._is_listed(number):
            with suppress(FileNotFoundError):
                return self._opened(self._first_not_after(number))
        for _ in range(MAX_LISTINGS):
            self.refresh()
            if not self._firsts and number == 1:
                return None
            if not self._firsts or number < self._firsts[0]:
                first = self._firsts[0] if self._firsts else 1
                raise NotInLog(f"{self._directory}: no frame {number}, the first is {first}")
            # A file that was dropped since it was listed is not in the next listing.
            with suppress(FileNotFoundError):
                return self._opened(self._first_not_after(number))
        raise LogError(f"{self._directory}: the segment of frame {number} is listed, not there")

    def _is_listed(self, number: int) -> bool:
        """Whether the listing at hand is good enough to find `number`."""
        if self._is_closed or not self._firsts or number < self._firsts[0]:
            return False
        newest = self._firsts[-1]
        return number < newest or number < self._index_of(newest).end_number

    def _first_not_after(self, number: int) -> int:
        return self._firsts[bisect_right(self._firsts, number) - 1]

    def _first_after(self, first: int) -> int | None:
        place = bisect_right(self._firsts, first)
        return self._firsts[place] if place < len(self._firsts) else None

    def _index_of(self, first: int) -> SegmentIndex:
        index = self._indexes.get(first)
        if index is None:
            index = SegmentIndex(first)
        self.share_index(index)
        self._indexes.move_to_end(first)
        return index

    def _opened(self, first: int) -> Segment:
        segment = self._open.get(first)
        if segment is None:
            segment = self._open[first] = Segment(self._directory, self._index_of(first))
            if len(self._open) > MAX_OPEN_SEGMENTS:
                self._open.popitem(last=False)
        self._open.move_to_end(first)
        return segment
