import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onehop.transport.intervals import IntervalSet

LARGEST = 40
ranges = st.tuples(st.integers(0, LARGEST), st.integers(1, 8)).map(lambda r: (r[0], r[0] + r[1]))
unhurried = settings(max_examples=100, deadline=None, database=None, derandomize=True)


def intervals(*pairs: tuple[int, int]) -> IntervalSet:
    numbers = IntervalSet()
    for start, stop in pairs:
        numbers.add(start, stop)
    return numbers


def runs_of(numbers: set[int]) -> list[tuple[int, int]]:
    starts = sorted(number for number in numbers if number - 1 not in numbers)
    stops = sorted(number + 1 for number in numbers if number + 1 not in numbers)
    return list(zip(starts, stops, strict=True))


class IntervalsAgainstASet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.intervals = IntervalSet()
        self.model: set[int] = set()

    @rule(interval=ranges)
    def add(self, interval: tuple[int, int]) -> None:
        self.intervals.add(*interval)
        self.model |= set(range(*interval))

    @rule(number=st.integers(0, LARGEST))
    def pop_run(self, number: int) -> None:
        first_run = runs_of(self.model)[:1]
        if first_run and first_run[0][0] == number:
            assert self.intervals.pop_run_at(number) == first_run[0][1]
            self.model -= set(range(*first_run[0]))
        else:
            assert self.intervals.pop_run_at(number) == number

    @rule(interval=ranges)
    def ask(self, interval: tuple[int, int]) -> None:
        asked = set(range(*interval))
        assert self.intervals.overlaps(*interval) == bool(asked & self.model)
        assert self.intervals.holds(*interval) == (asked <= self.model)

    @rule(number=st.integers(0, LARGEST + 10))
    def ask_for_the_next(self, number: int) -> None:
        following = [held for held in self.model if held >= number]
        assert self.intervals.first_from(number) == min(following, default=None)

    @rule(interval=ranges)
    def ask_for_the_missing(self, interval: tuple[int, int]) -> None:
        absent = set(range(*interval)) - self.model
        assert self.intervals.missing(*interval) == runs_of(absent)

    @rule(number=st.integers(0, LARGEST + 10))
    def drop_below(self, number: int) -> None:
        self.intervals.drop_below(number)
        self.model -= set(range(number))

    @invariant()
    def they_hold_the_same_numbers_in_the_fewest_intervals(self) -> None:
        assert list(self.intervals) == runs_of(self.model)
        assert len(self.intervals) == len(runs_of(self.model))

    @invariant()
    def each_number_is_in_both_or_in_none(self) -> None:
        for number in range(-1, LARGEST + 10):
            assert (number in self.intervals) == (number in self.model)


TestIntervalsAgainstASet = IntervalsAgainstASet.TestCase
TestIntervalsAgainstASet.settings = unhurried


@pytest.mark.parametrize(
    ("added", "merged"),
    [
        ((0, 2), [(0, 2), (10, 20), (30, 40)]),  # before all
        ((0, 10), [(0, 20), (30, 40)]),  # touches the start
        ((5, 15), [(5, 20), (30, 40)]),  # overlaps the start
        ((12, 18), [(10, 20), (30, 40)]),  # inside
        ((10, 20), [(10, 20), (30, 40)]),  # the same
        ((20, 25), [(10, 25), (30, 40)]),  # touches the end
        ((22, 28), [(10, 20), (22, 28), (30, 40)]),  # between
        ((20, 30), [(10, 40)]),  # joins two
        ((0, 50), [(0, 50)]),  # swallows both
        ((41, 50), [(10, 20), (30, 40), (41, 50)]),  # after all
    ],
)
def test_an_interval_merges_with_what_it_meets(
    added: tuple[int, int], merged: list[tuple[int, int]]
) -> None:
    numbers = intervals((10, 20), (30, 40))

    numbers.add(*added)

    assert list(numbers) == merged


def test_a_new_set_is_empty() -> None:
    numbers = IntervalSet()

    assert not numbers
    assert list(numbers) == []
    assert 0 not in numbers
    assert not numbers.overlaps(0, 100)
    assert not numbers.holds(0, 1)


def test_an_interval_ends_before_its_stop() -> None:
    numbers = intervals((10, 20))

    assert 10 in numbers
    assert 19 in numbers
    assert 20 not in numbers
    assert not numbers.overlaps(20, 30)
    assert not numbers.overlaps(0, 10)
    assert numbers.overlaps(0, 11)
    assert not numbers.holds(10, 21)


def test_an_empty_interval_adds_nothing() -> None:
    numbers = intervals((10, 20))

    numbers.add(5, 5)
    numbers.add(15, 15)
    numbers.add(30, 20)

    assert list(numbers) == [(10, 20)]


def test_only_the_first_run_is_popped() -> None:
    numbers = intervals((10, 20), (30, 40))

    assert numbers.pop_run_at(30) == 30
    assert numbers.pop_run_at(10) == 20
    assert list(numbers) == [(30, 40)]


def test_what_is_missing_comes_in_order() -> None:
    numbers = intervals((10, 20), (30, 40))

    assert numbers.missing(5, 45) == [(5, 10), (20, 30), (40, 45)]
    assert numbers.missing(10, 20) == []
    assert numbers.missing(12, 31) == [(20, 30)]
    assert numbers.missing(50, 60) == [(50, 60)]
    assert numbers.missing(25, 25) == []


def test_numbers_below_one_are_dropped_even_inside_an_interval() -> None:
    numbers = intervals((10, 20), (30, 40), (50, 60))

    numbers.drop_below(35)
    assert list(numbers) == [(35, 40), (50, 60)]
    numbers.drop_below(40)
    assert list(numbers) == [(50, 60)]
    numbers.drop_below(40)
    assert list(numbers) == [(50, 60)]


def test_the_first_number_from_another_on() -> None:
    numbers = intervals((10, 20), (30, 40))

    assert [numbers.first_from(at) for at in (0, 10, 15, 19, 20, 39, 40)] == [
        10, 10, 15, 19, 30, 39, None,
    ]  # fmt: skip


@unhurried
@given(st.permutations(range(60)))
def test_numbers_in_any_order_end_as_one_interval(order: list[int]) -> None:
    numbers = intervals(*((number, number + 1) for number in order))

    assert list(numbers) == [(0, 60)]


def test_a_long_run_costs_one_interval() -> None:
    numbers = intervals(*((number, number + 1) for number in range(100_000)))

    assert len(numbers) == 1
