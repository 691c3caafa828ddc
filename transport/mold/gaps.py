"""The gaps of a session: which numbers are missing, and when to ask for them next.

A gap is a half-open interval of missing numbers with a timer of its own. The table is sorted by
number. New gaps are always added at its end (numbers never seen are higher than all seen), and
are taken away anywhere as messages arrive:

    missing      [10 ───────────────── 20)
    arrives            [13 ── 16)
    left         [10─13)      [16 ── 20)

A gap either has a time at which it is due, or waits for its turn (due at infinity). The timers
are a heap; an entry whose gap was filled or given another time meanwhile is skipped when it is
met, so that a packet costs the same however many gaps there are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

FOREVER = float("inf")
STALE_TIMERS = 64
"""The heap is swept when it holds this many entries more than twice the gaps."""


@dataclass(slots=True)
class Gap:
    """Missing numbers `first` to `stop - 1`."""

    first: int
    stop: int
    noticed_at: float
    due_at: float
    """When to ask (again); infinity while it waits for its turn."""
    path: int = 0
    """The path on which its absence was noticed."""
    is_replay: bool = False
    """Wanted because of where the subscription starts, not because a packet was lost."""
    asked_at: float | None = None
    asked_before: float | None = None
    """When it was asked for the time before."""
    asked_of: Hashable = None
    """The server it was last asked of."""
    first_asked_at: float | None = None
    attempts: int = 0
    is_open: bool = True
    """False once it is no longer in the table."""

    @property
    def count(self) -> int:
        """How many numbers are missing here."""
        return self.stop - self.first

    def wait(self) -> None:
        """Starts anew: asked of nobody, waiting for its turn."""
        self.due_at = FOREVER
        self.attempts = 0
        self.asked_at = self.asked_before = self.asked_of = self.first_asked_at = None


class GapTable:
    """All gaps of one session, in order, and their timers."""

    __slots__ = ("_gaps", "_serial", "_timers", "missing")

    def __init__(self) -> None:
        self._gaps: list[Gap] = []
        self._timers: list[tuple[float, int, Gap]] = []
        self._serial = 0
        self.missing = 0

    def __len__(self) -> int:
        return len(self._gaps)

    def __iter__(self) -> Iterator[Gap]:
        return iter(self._gaps)

    def __getitem__(self, at: int) -> Gap:
        return self._gaps[at]

    # -- timers ----------------------------------------------------------------------------------

    def schedule(self, gap: Gap, due_at: float) -> None:
        """Sets the timer of a gap in the table."""
        gap.due_at = due_at
        self._arm(gap)

    def next_due(self) -> float:
        """When the earliest timer fires; infinity when none runs."""
        timers = self._timers
        while timers:
            due_at, _, gap = timers[0]
            if gap.is_open and gap.due_at == due_at:
                return due_at
            heappop(timers)
        return FOREVER

    def take_due(self, now: float) -> list[Gap]:
        """The gaps whose timers have fired, in order; they wait until given another time."""
        due = []
        while self.next_due() <= now:
            gap = heappop(self._timers)[2]
            gap.due_at = FOREVER
            due.append(gap)
        due.sort(key=_first)
        return due

    def _arm(self, gap: Gap) -> None:
        if gap.due_at == FOREVER:
            return
        self._serial += 1
        heappush(self._timers, (gap.due_at, self._serial, gap))
        if len(self._timers) > 2 * len(self._gaps) + STALE_TIMERS:
            self._timers = [
                entry for entry in self._timers if entry[2].is_open and entry[2].due_at == entry[0]
            ]
            heapify(self._timers)

    # -- numbers ---------------------------------------------------------------------------------

    def append(self, gap: Gap) -> None:
        """Adds a gap behind all others."""
        assert not self._gaps or self._gaps[-1].stop <= gap.first
        self._insert(len(self._gaps), gap)
        self.missing += gap.count

    def split(self, gap: Gap, at: int) -> Gap:
        """Cuts `gap` in two at number `at`; returns the new one behind it."""
        rest = replace(gap, first=at)
        gap.stop = at
        self._insert(self._index_of(gap) + 1, rest)
        return rest

    def put_back(self, gap: Gap) -> None:
        """Adds a gap at its place between the others; waiting neighbours become one."""
        at = bisect_right(self._gaps, gap.first, key=_first)
        self.missing += gap.count
        if at and _are_one(self._gaps[at - 1], gap):
            self._gaps[at - 1].stop = gap.stop
            gap = self._gaps[at - 1]
        else:
            self._insert(at, gap)
            at += 1
        if at < len(self._gaps) and _are_one(gap, self._gaps[at]):
            gap.stop = self._gaps[at].stop
            self._delete(at)

    def starting_at(self, first: int) -> Gap | None:
        """The gap whose first missing number is `first`, if there is one."""
        at = bisect_right(self._gaps, first, key=_first) - 1
        return self._gaps[at] if at >= 0 and self._gaps[at].first == first else None

    def starting_in(self, first: int, stop: int) -> list[Gap]:
        """The gaps whose first missing number is in `[first, stop)`."""
        gaps = self._gaps
        return gaps[bisect_left(gaps, first, key=_first) : bisect_left(gaps, stop, key=_first)]

    def missing_in(self, first: int, stop: int) -> list[tuple[int, int]]:
        """What of `[first, stop)` is missing, as intervals in order."""
        gaps = self._gaps
        found = []
        at = self._first_reaching(first)
        while at < len(gaps) and gaps[at].first < stop:
            found.append((max(first, gaps[at].first), min(stop, gaps[at].stop)))
            at += 1
        return found

    def remove(self, gap: Gap) -> None:
        """Takes a whole gap out."""
        self._delete(self._index_of(gap))
        self.missing -= gap.count

    def fill(self, first: int, stop: int) -> list[tuple[int, int, Gap]]:
        """Takes `[first, stop)` out of the gaps.

        Returns what was missing of it as `(first, stop, gap)`, in order, where `gap` is as it was
        before; what is left of a gap stays in the table, its timers untouched.
        """
        gaps = self._gaps
        at = self._first_reaching(first)
        filled: list[tuple[int, int, Gap]] = []
        while at < len(gaps) and gaps[at].first < stop:
            gap = gaps[at]
            low, high = max(first, gap.first), min(stop, gap.stop)
            filled.append((low, high, replace(gap)))
            self.missing -= high - low
            if low == gap.first and high == gap.stop:
                self._delete(at)
            elif low == gap.first:
                gap.first = high
                at += 1
            elif high == gap.stop:
                gap.stop = low
                at += 1
            else:
                self._insert(at + 1, replace(gap, first=high))
                gap.stop = low
                at += 2
        return filled

    def _first_reaching(self, number: int) -> int:
        at = bisect_right(self._gaps, number, key=_first) - 1
        return at if at >= 0 and self._gaps[at].stop > number else at + 1

    def _index_of(self, gap: Gap) -> int:
        at = bisect_right(self._gaps, gap.first, key=_first) - 1
        assert self._gaps[at] is gap
        return at

    def _insert(self, at: int, gap: Gap) -> None:
        self._gaps.insert(at, gap)
        self._arm(gap)

    def _delete(self, at: int) -> None:
        self._gaps[at].is_open = False
        del self._gaps[at]


def _first(gap: Gap) -> int:
    return gap.first


def _are_one(gap: Gap, behind: Gap) -> bool:
    return (
        gap.stop == behind.first
        and gap.due_at == behind.due_at == FOREVER
        and gap.is_replay == behind.is_replay
    )
