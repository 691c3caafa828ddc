import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onehop.transport.event import LossReason
from onehop.transport.ledger import (
    MAX_STREAMS,
    AccountingError,
    Ledger,
    LedgerSnapshot,
    StreamAccount,
)

FIRST = 11
unhurried = settings(max_examples=150, deadline=None, database=None, derandomize=True)
numbers = st.integers(FIRST - 2, FIRST + 60)
counts = st.integers(0, 6)


def account(first: int = 1, expected: int = 10) -> StreamAccount:
    opened = Ledger().open("quotes", 7, "", first)
    opened.expect(first + expected)
    return opened


def sums_of(snapshot: LedgerSnapshot) -> tuple[int, ...]:
    return (
        snapshot.expected, snapshot.delivered, snapshot.filtered, snapshot.pending,
        snapshot.lost_total, snapshot.recovered, snapshot.duplicates, snapshot.reordered,
    )  # fmt: skip


class AccountAgainstASet(RuleBasedStateMachine):
    """Every number has one fate; the account agrees with plain sets of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.account = self.ledger.open("quotes", 7, "", FIRST)
        self.known: set[int] = set()
        self.fates: dict[int, str] = {}

    @rule(upto=numbers)
    def expect(self, upto: int) -> None:
        self.account.expect(upto)
        self.known |= set(range(FIRST, upto))

    @rule(first=numbers, count=counts)
    def deliver(self, first: int, count: int) -> None:
        if self.is_allowed(first, count):
            self.account.deliver(first, count)
            self.note(first, count, "delivered")
        else:
            with pytest.raises(AccountingError):
                self.account.deliver(first, count)

    @rule(first=numbers, count=counts)
    def filter(self, first: int, count: int) -> None:
        if self.is_allowed(first, count):
            self.account.filter(first, count)
            self.note(first, count, "filtered")
        else:
            with pytest.raises(AccountingError):
                self.account.filter(first, count)

    @rule(first=numbers, count=counts, reason=st.sampled_from(LossReason))
    def lose(self, first: int, count: int, reason: LossReason) -> None:
        if self.is_allowed(first, count):
            self.account.lose(first, count, reason)
            self.note(first, count, reason.value)
        else:
            with pytest.raises(AccountingError):
                self.account.lose(first, count, reason)

    def is_allowed(self, first: int, count: int) -> bool:
        asked = set(range(first, first + count))
        return bool(asked) and asked <= self.known and not asked & self.fates.keys()

    def note(self, first: int, count: int, fate: str) -> None:
        self.fates |= dict.fromkeys(range(first, first + count), fate)

    @invariant()
    def the_sum_holds_and_every_part_is_right(self) -> None:
        fates = list(self.fates.values())
        row = self.account.snapshot()
        assert row.expected == row.delivered + row.filtered + row.pending + row.lost_total
        assert row.expected == len(self.known)
        assert row.delivered == fates.count("delivered")
        assert row.filtered == fates.count("filtered")
        assert row.pending == len(self.known) - len(fates)
        assert row.lost == {
            reason: fates.count(reason) for reason in LossReason if fates.count(reason)
        }
        assert self.ledger.snapshot().is_balanced

    @invariant()
    def a_number_is_settled_when_it_has_a_fate(self) -> None:
        for number in self.known:
            assert self.account.is_settled(number) == (number in self.fates)
        for start in range(FIRST, FIRST + 60, 7):
            asked = set(range(start, start + 5))
            assert self.account.are_settled(start, start + 5) == (asked <= self.fates.keys())


TestAccountAgainstASet = AccountAgainstASet.TestCase
TestAccountAgainstASet.settings = unhurried


# -- settling --------------------------------------------------------------------------------------


def test_a_number_cannot_be_settled_twice() -> None:
    stream = account(first=1, expected=10)
    stream.deliver(1, 2)
    stream.lose(5, 2, LossReason.DEADLINE)

    for first, count in ((1, 1), (2, 2), (5, 1), (6, 1), (4, 2), (3, 8)):
        with pytest.raises(AccountingError, match=rf"settling {first}\.\..* a second time"):
            stream.filter(first, count)
    assert (stream.delivered, stream.filtered, stream.pending) == (2, 0, 6)


@pytest.mark.parametrize(("first", "count"), [(11, 1), (10, 2), (1, 11), (4, 0), (4, -1)])
def test_only_expected_numbers_can_be_settled(first: int, count: int) -> None:
    with pytest.raises(AccountingError, match="expected up to 10"):
        account(first=1, expected=10).deliver(first, count)


def test_numbers_before_the_subscription_cannot_be_settled() -> None:
    with pytest.raises(AccountingError):
        account(first=5).deliver(4)


def test_what_was_expected_stays_expected() -> None:
    stream = account(first=1, expected=10)

    stream.expect(4)

    assert stream.expected == 10


@unhurried
@given(st.permutations(range(1, 41)))
def test_settled_in_any_order_nothing_is_pending(order: list[int]) -> None:
    stream = account(first=1, expected=40)

    for left, number in zip(range(39, -1, -1), order, strict=True):
        stream.deliver(number)
        assert stream.pending == left
    assert stream.are_settled(1, 41)
    assert not stream.is_settled(41)


# -- snapshots -------------------------------------------------------------------------------------


def busy_ledger() -> Ledger:
    ledger = Ledger()
    stream = ledger.open("quotes", 7, "", 1)
    stream.expect(5001)
    stream.deliver(1, 4000)
    stream.filter(4001, 500)
    stream.lose(4501, 3, LossReason.DEADLINE)
    stream.lose(4504, 1200 - 1000, LossReason.EVICTED)
    stream.recovered, stream.duplicates, stream.reordered = 21, 22, 23
    ledger.kernel_drops = 24
    ledger.ignored["foreign_session"] += 2
    ledger.latency_ns.record(40_000)
    return ledger


def test_a_snapshot_stays_as_it_was_while_the_ledger_goes_on() -> None:
    ledger = Ledger()
    stream = ledger.open("quotes", 7, "", 1)
    stream.expect(3)
    stream.lose(1, 1, LossReason.STALE)
    before = ledger.snapshot()

    stream.lose(2, 1, LossReason.STALE)
    ledger.ignored["foreign_session"] += 1
    ledger.latency_ns.record(5)
    ledger.repair_ns.record(5)
    ledger.kernel_drops += 1
    ledger.open("trades", 8, "", 1)

    assert (before.pending, before.lost, before.streams[0].lost) == (1, {"stale": 1}, {"stale": 1})
    assert (before.ignored, before.kernel_drops, len(before.streams)) == ({}, 0, 1)
    assert (before.latency_ns.count, before.repair_ns.count) == (0, 0)


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = busy_ledger().snapshot()

    for frozen in (snapshot, snapshot.streams[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            frozen.delivered = 0  # type: ignore[misc]
    for counts_by_reason in (snapshot.lost, snapshot.ignored, snapshot.streams[0].lost):
        with pytest.raises(TypeError):
            counts_by_reason["stale"] = 1  # type: ignore[index]


def test_recording_into_a_snapshot_leaves_the_ledger_alone() -> None:
    ledger = busy_ledger()

    ledger.snapshot().latency_ns.record(7)

    assert ledger.latency_ns.count == 1


def test_a_snapshot_sums_its_streams() -> None:
    ledger = busy_ledger()
    other = ledger.open("trades", 8, "", 100)
    other.expect(110)
    other.lose(100, 4, LossReason.DEADLINE)
    other.recovered = 4

    snapshot = ledger.snapshot()

    assert sums_of(snapshot) == (5010, 4000, 500, 303, 207, 25, 22, 23)
    assert snapshot.lost == {"deadline": 7, "evicted": 200}
    assert [(row.source, row.epoch, row.first) for row in snapshot.streams] == [
        ("quotes", 7, 1), ("trades", 8, 100),
    ]  # fmt: skip
    assert snapshot.is_balanced


@pytest.mark.parametrize("change", [{"delivered": 3999}, {"pending": 298}, {"lost": {}}])
def test_a_wrong_sum_is_not_called_balanced(change: dict[str, int]) -> None:
    snapshot = busy_ledger().snapshot()
    wrong_row = dataclasses.replace(snapshot.streams[0], **change)  # type: ignore[arg-type]

    assert not dataclasses.replace(snapshot, **change).is_balanced  # type: ignore[arg-type]
    assert not dataclasses.replace(snapshot, streams=(wrong_row,)).is_balanced


def test_less_than_nothing_pending_is_not_balanced() -> None:
    snapshot = busy_ledger().snapshot()

    assert not dataclasses.replace(snapshot, expected=4702, pending=-1).is_balanced


def test_a_ledger_reads_as_its_sum() -> None:
    lines = str(busy_ledger().snapshot()).splitlines()

    assert lines[:2] == [
        "expected 5,000 = delivered 4,000 + filtered 500 + pending 297 + lost 203",
        "lost: deadline 3, evicted 200; recovered 21, duplicates 22, reordered 23, kernel drops 24",
    ]
    assert lines[2].startswith("latency: p50 ")
    assert lines[2].endswith(" µs")


def test_an_empty_ledger_reads_as_its_sum_too() -> None:
    assert str(Ledger().snapshot()) == (
        "expected 0 = delivered 0 + filtered 0 + pending 0 + lost 0\n"
        "lost: none; recovered 0, duplicates 0, reordered 0, kernel drops 0"
    )


# -- many streams ----------------------------------------------------------------------------------


def open_finished(ledger: Ledger, epoch: int) -> None:
    stream = ledger.open("restless", epoch, "", 1)
    stream.expect(5)
    stream.deliver(1)
    stream.filter(2)
    stream.lose(3, 2, LossReason.ENDED)
    stream.recovered = 1
    stream.is_finished = True


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, 50])
def test_finished_streams_beyond_the_bound_are_summed_into_one_row(extra: int) -> None:
    ledger = Ledger()
    total = MAX_STREAMS + extra

    for epoch in range(total):
        open_finished(ledger, epoch)

    snapshot = ledger.snapshot()
    assert sums_of(snapshot) == (4 * total, total, total, 0, 2 * total, total, 0, 0)
    assert snapshot.lost == {"ended": 2 * total}
    assert snapshot.is_balanced
    assert len(snapshot.streams) == min(total, MAX_STREAMS + 1)
    assert snapshot.streams[-1].epoch == total - 1
    assert (snapshot.streams[0].stream == "finished") == (extra > 0)


def test_a_stream_that_goes_on_is_never_folded() -> None:
    ledger = Ledger()
    quiet = ledger.open("quotes", 0, "", 1)
    gap = ledger.open("trades", 0, "", 1)
    gap.expect(3)
    gap.is_finished = True
    for epoch in range(MAX_STREAMS + 10):
        open_finished(ledger, epoch)

    quiet.expect(101)
    quiet.deliver(1, 100)

    snapshot = ledger.snapshot()
    assert snapshot.delivered == MAX_STREAMS + 10 + 100
    assert snapshot.pending == 2
    assert {row.source for row in snapshot.streams} == {"", "quotes", "trades", "restless"}
