"""A set of whole numbers kept as intervals: small as long as the numbers come in runs.

Used where sequence numbers are ticked off out of order. Intervals are half-open, `[start, stop)`,
sorted, and never touch each other: neighbours are merged as they meet.
"""

from bisect import bisect_right
from collections.abc import Iterator


class IntervalSet:
    """Numbers that have been added, as the fewest intervals that hold them."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    @property
    def last(self) -> int:
        """The highest number in the set; 0 when it is empty."""
        return self._stops[-1] - 1 if self._stops else 0

    def overlaps(self, start: int, stop: int) -> bool:
        """True when any number of `[start, stop)` is in the set."""
        at = bisect_right(self._starts, start) - 1
        if at >= 0 and start < self._stops[at]:
            return True
        after = at + 1
        return after < len(self._starts) and self._starts[after] < stop

    def holds(self, start: int, stop: int) -> bool:
        """True when every number of `[start, stop)` is in the set."""
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and stop <= self._stops[at]

    def add(self, start: int, stop: int) -> None:
        """Puts `[start, stop)` in, merging every interval it overlaps or touches."""
        if start >= stop:
            return
        low = bisect_right(self._starts, start) - 1
        if low < 0 or self._stops[low] < start:
            low += 1  # the interval before does not reach us
        high = low
        while high < len(self._starts) and self._starts[high] <= stop:
            start = min(start, self._starts[high])
            stop = max(stop, self._stops[high])
            high += 1
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def pop_run_at(self, number: int) -> int:
        """Takes out the first interval when it begins at `number`; returns where the run stops."""
        if self._starts and self._starts[0] == number:
            del self._starts[0]
            return self._stops.pop(0)
        return number

    def first_from(self, number: int) -> int | None:
        """The lowest number in the set that is not below `number`."""
        at = bisect_right(self._starts, number) - 1
        if at >= 0 and number < self._stops[at]:
            return number
        return self._starts[at + 1] if at + 1 < len(self._starts) else None

    def missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of `[start, stop)` that are not in the set, in order."""
        parts: list[tuple[int, int]] = []
        at = max(0, bisect_right(self._starts, start) - 1)
        while at < len(self._starts) and self._starts[at] < stop and start < stop:
            if start < self._starts[at]:
                parts.append((start, self._starts[at]))
            start = max(start, self._stops[at])
            at += 1
        if start < stop:
            parts.append((start, stop))
        return parts

    def drop_below(self, number: int) -> None:
        """Takes out every number below `number`."""
        gone = bisect_right(self._stops, number)
        if gone:
            del self._starts[:gone]
            del self._stops[:gone]
        if self._starts and self._starts[0] < number:
            self._starts[0] = number
