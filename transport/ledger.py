"""The ledger: what became of every message, from sequence numbers alone.

For each stream, at any moment and exactly:

    expected = delivered + filtered + pending + lost

`expected` counts the numbers known to exist since the subscription began. A number is settled
once: by being delivered (handed to the application), filtered (not among the wanted topics) or
lost (with one reason). What is known and not settled is `pending`: a gap under repair, or a
message that waits for its turn. Settling a number twice, or one that was never expected, is a
fault in this package and raises `AccountingError` at once: wrong sums are never shown.

There is no clock in here and no lock; whoever owns a ledger calls it from one thread at a time
and hands out `snapshot()`, which is frozen. The sum is over messages: an event that travelled in
several pieces settles as many numbers as it had pieces.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .errors import OnehopError
from .event import LossReason
from .histogram import Histogram
from .intervals import IntervalSet

MAX_STREAMS = 1024
"""Streams kept one by one; the oldest finished ones beyond it are summed into one row. A stream
that is not finished stays, whatever their number: its sums would go wrong."""


class AccountingError(OnehopError, AssertionError):
    """A number was settled twice, or before it was expected. Always a fault of this package."""


class StreamAccount:
    """The account of one stream of one epoch of one source."""

    __slots__ = (
        "_islands", "_settled_to", "delivered", "duplicates", "epoch", "filtered", "first",
        "is_finished", "lost", "next", "recovered", "reordered", "source", "stream",
    )  # fmt: skip

    def __init__(self, source: str, epoch: int, stream: str, first: int) -> None:
        self.source = source
        self.epoch = epoch
        self.stream = stream
        self.first = first
        self.next = first  # one past the highest number known to exist
        self.delivered = 0
        self.filtered = 0
        self.lost: Counter[LossReason] = Counter()
        self.recovered = 0
        self.duplicates = 0
        self.reordered = 0
        self.is_finished = False  # set by the owner once it will not touch the account again
        self._settled_to = first  # every number below is settled
        self._islands = IntervalSet()  # settled numbers above it

    def expect(self, next_number: int) -> None:
        """Notes that every number below `next_number` exists."""
        if next_number > self.next:
            self.next = next_number

    def deliver(self, first: int, count: int = 1) -> None:
        """Settles numbers as handed to the application."""
        self._settle(first, count)
        self.delivered += count

    def filter(self, first: int, count: int = 1) -> None:
        """Settles numbers as received but not wanted."""
        self._settle(first, count)
        self.filtered += count

    def lose(self, first: int, count: int, reason: LossReason) -> None:
        """Settles numbers as given up."""
        self._settle(first, count)
        self.lost[reason] += count

    @property
    def expected(self) -> int:
        """How many numbers are known to exist since the subscription began."""
        return self.next - self.first

    @property
    def pending(self) -> int:
        """How many of them are not settled yet."""
        return self.expected - self.delivered - self.filtered - self.lost.total()

    def is_settled(self, number: int) -> bool:
        """True when `number` has been delivered, filtered or lost."""
        return number < self._settled_to or number in self._islands

    def are_settled(self, first: int, stop: int) -> bool:
        """True when every number of `[first, stop)` is settled."""
        first = max(first, self._settled_to)
        return first >= stop or self._islands.holds(first, stop)

    def unsettled(self, first: int, stop: int) -> list[tuple[int, int]]:
        """The parts of `[first, stop)` that are not settled, in order."""
        return self._islands.missing(max(first, self._settled_to), stop)

    def _settle(self, first: int, count: int) -> None:
        stop = first + count
        if count < 1 or stop > self.next:
            raise AccountingError(f"settling {first}..{stop - 1}, expected up to {self.next - 1}")
        if first == self._settled_to and not self._islands:  # in order: the usual case
            self._settled_to = stop
            return
        if first < self._settled_to or self._islands.overlaps(first, stop):
            raise AccountingError(f"settling {first}..{stop - 1} of {self.stream!r} a second time")
        self._islands.add(first, stop)
        self._settled_to = self._islands.pop_run_at(self._settled_to)

    def snapshot(self) -> "StreamSnapshot":
        """A frozen copy."""
        return StreamSnapshot(
            source=self.source,
            epoch=self.epoch,
            stream=self.stream,
            first=self.first,
            expected=self.expected,
            delivered=self.delivered,
            filtered=self.filtered,
            pending=self.pending,
            lost=_frozen(self.lost),
            recovered=self.recovered,
            duplicates=self.duplicates,
            reordered=self.reordered,
        )


def _frozen(counts: Mapping[LossReason, int]) -> Mapping[str, int]:
    return MappingProxyType({reason.value: n for reason, n in sorted(counts.items()) if n})


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """One stream's account at one moment; `expected = delivered + filtered + pending + lost`."""

    source: str
    epoch: int
    stream: str
    first: int
    expected: int
    delivered: int
    filtered: int
    pending: int
    lost: Mapping[str, int]
    recovered: int
    duplicates: int
    reordered: int

    @property
    def lost_total(self) -> int:
        """Lost for any reason."""
        return sum(self.lost.values())


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The whole ledger at one moment: the sums over all streams, and each stream.

    `latency_ns` is hand-over to the application minus `sent_at`; `repair_ns` is gap noticed to
    gap filled. `kernel_drops` counts datagrams the kernel dropped at our sockets (each may hold
    many messages, so it is not part of the sum). `lagged` is how often the subscriber fell behind
    `max_age_s` or `max_lag`. `ignored` counts what came and was no message of
    a stream we follow, by reason.
    """

    streams: tuple[StreamSnapshot, ...]
    expected: int
    delivered: int
    filtered: int
    pending: int
    lost: Mapping[str, int]
    recovered: int
    duplicates: int
    reordered: int
    kernel_drops: int
    lagged: int
    ignored: Mapping[str, int]
    latency_ns: Histogram = field(repr=False)
    repair_ns: Histogram = field(repr=False)

    @property
    def lost_total(self) -> int:
        """Lost for any reason."""
        return sum(self.lost.values())

    @property
    def is_balanced(self) -> bool:
        """True when the sum holds, in all and in each stream. Anything else is a fault."""
        rows: list[LedgerSnapshot | StreamSnapshot] = [self, *self.streams]
        return all(
            row.pending >= 0
            and row.expected == row.delivered + row.filtered + row.pending + row.lost_total
            for row in rows
        )

    def __str__(self) -> str:
        lost = ", ".join(f"{reason} {n:,}" for reason, n in self.lost.items()) or "none"
        lines = [
            f"expected {self.expected:,} = delivered {self.delivered:,}"
            f" + filtered {self.filtered:,} + pending {self.pending:,} + lost {self.lost_total:,}",
            f"lost: {lost}; recovered {self.recovered:,}, duplicates {self.duplicates:,},"
            f" reordered {self.reordered:,}, kernel drops {self.kernel_drops:,}",
        ]
        if self.latency_ns.count:
            p50, p99 = (self.latency_ns.quantile(q) or 0.0 for q in (0.5, 0.99))
            lines.append(f"latency: p50 {p50 / 1e3:,.1f} µs, p99 {p99 / 1e3:,.1f} µs")
        return "\n".join(lines)


class Ledger:
    """Every stream's account, and what is counted beside them."""

    def __init__(self) -> None:
        self.latency_ns = Histogram()
        self.repair_ns = Histogram()
        self.kernel_drops = 0
        self.lagged = 0
        self.ignored: Counter[str] = Counter()
        self._accounts: list[StreamAccount] = []
        self._folded: list[StreamSnapshot] = []

    def open(self, source: str, epoch: int, stream: str, first: int) -> StreamAccount:
        """Starts the account of a stream whose first expected number is `first`."""
        account = StreamAccount(source, epoch, stream, first)
        self._accounts.append(account)
        if len(self._accounts) > MAX_STREAMS:
            self._fold_oldest_finished()
        return account

    def _fold_oldest_finished(self) -> None:
        for at, account in enumerate(self._accounts):
            if account.is_finished and account.pending == 0:
                done = account.snapshot()
                self._folded = [_sum([*self._folded, done], "finished")]
                del self._accounts[at]
                return

    def snapshot(self) -> LedgerSnapshot:
        """A frozen copy of everything, with the sums."""
        streams = (*self._folded, *(account.snapshot() for account in self._accounts))
        total = _sum(streams, "")
        return LedgerSnapshot(
            streams=streams,
            expected=total.expected,
            delivered=total.delivered,
            filtered=total.filtered,
            pending=total.pending,
            lost=total.lost,
            recovered=total.recovered,
            duplicates=total.duplicates,
            reordered=total.reordered,
            kernel_drops=self.kernel_drops,
            lagged=self.lagged,
            ignored=MappingProxyType(dict(self.ignored)),
            latency_ns=self.latency_ns.copy(),
            repair_ns=self.repair_ns.copy(),
        )


def _sum(rows: "tuple[StreamSnapshot, ...] | list[StreamSnapshot]", stream: str) -> StreamSnapshot:
    lost: Counter[str] = Counter()
    for row in rows:
        lost.update(row.lost)
    return StreamSnapshot(
        source="",
        epoch=0,
        stream=stream,
        first=0,
        expected=sum(row.expected for row in rows),
        delivered=sum(row.delivered for row in rows),
        filtered=sum(row.filtered for row in rows),
        pending=sum(row.pending for row in rows),
        lost=MappingProxyType(dict(sorted(lost.items()))),
        recovered=sum(row.recovered for row in rows),
        duplicates=sum(row.duplicates for row in rows),
        reordered=sum(row.reordered for row in rows),
    )
