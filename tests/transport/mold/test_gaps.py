"""The gap table: intervals and timers, against a plain set of numbers."""

from random import Random

import pytest

from onehop.transport.mold.gaps import FOREVER, STALE_TIMERS, Gap, GapTable


def table_of(*intervals: tuple[int, int], due_at: float = FOREVER) -> GapTable:
    table = GapTable()
    for first, stop in intervals:
        table.append(Gap(first, stop, 0.0, due_at))
    return table


def intervals(table: GapTable) -> list[tuple[int, int]]:
    return [(gap.first, gap.stop) for gap in table]


@pytest.mark.parametrize(
    ("first", "stop", "left", "taken"),
    [
        (5, 10, [(10, 20), (30, 40)], []),  # before
        (20, 30, [(10, 20), (30, 40)], []),  # between
        (10, 20, [(30, 40)], [(10, 20)]),  # all of one
        (10, 13, [(13, 20), (30, 40)], [(10, 13)]),  # its front
        (16, 20, [(10, 16), (30, 40)], [(16, 20)]),  # its end
        (13, 16, [(10, 13), (16, 20), (30, 40)], [(13, 16)]),  # its middle
        (15, 35, [(10, 15), (35, 40)], [(15, 20), (30, 35)]),  # end of one, front of the next
        (5, 50, [], [(10, 20), (30, 40)]),  # everything
        (19, 20, [(10, 19), (30, 40)], [(19, 20)]),  # the last number
        (10, 11, [(11, 20), (30, 40)], [(10, 11)]),  # the first number
    ],
)
def test_what_arrives_is_taken_out(
    first: int, stop: int, left: list[tuple[int, int]], taken: list[tuple[int, int]]
) -> None:
    table = table_of((10, 20), (30, 40))
    assert [(low, high) for low, high, _ in table.fill(first, stop)] == taken
    assert intervals(table) == left
    assert table.missing == sum(high - low for low, high in left)


def test_what_is_taken_out_comes_with_the_gap_as_it_was() -> None:
    table = table_of((10, 20))
    _, _, gap = table.fill(12, 15)[0]
    assert (gap.first, gap.stop) == (10, 20)


def test_what_is_left_of_a_gap_keeps_its_timer() -> None:
    table = table_of((10, 20), due_at=5.0)
    table.fill(13, 16)
    assert [(gap.first, gap.stop) for gap in table.take_due(5.0)] == [(10, 13), (16, 20)]


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_a_set_of_numbers(seed: int) -> None:
    random = Random(seed)
    table, numbers, end = GapTable(), set[int](), 1
    for _ in range(2000):
        first = random.randint(max(1, end - 60), end)
        stop = first + random.randint(1, 12)
        match random.randrange(5):
            case 0 | 1:
                first, stop = end + random.randint(0, 3), end + random.randint(4, 12)
                table.append(Gap(first, stop, 0.0, FOREVER))
                numbers |= set(range(first, stop))
                end = stop
            case 2:
                taken = {n for low, high, _ in table.fill(first, stop) for n in range(low, high)}
                assert taken == numbers & set(range(first, stop))
                numbers -= taken
            case 3:
                if (absent := set(range(first, stop)) - numbers) == set(range(first, stop)):
                    table.put_back(Gap(first, stop, 0.0, FOREVER))
                    numbers |= absent
                    end = max(end, stop)
            case 4:
                if len(table):
                    gap = table[random.randrange(len(table))]
                    if gap.count > 1:
                        table.split(gap, random.randint(gap.first + 1, gap.stop - 1))
        found = [n for gap in table for n in range(gap.first, gap.stop)]
        assert found == sorted(numbers)
        assert table.missing == len(numbers)
        low, high = first - 5, stop + 5
        wanted = [n for a, b in table.missing_in(low, high) for n in range(a, b)]
        assert wanted == [n for n in sorted(numbers) if low <= n < high]


def test_a_gap_is_found_by_its_first_number_only() -> None:
    table = table_of((10, 20), (30, 40))
    assert table.starting_at(10) is table[0]
    assert table.starting_at(11) is None
    assert table.starting_at(9) is None
    assert [gap.first for gap in table.starting_in(10, 30)] == [10]
    assert [gap.first for gap in table.starting_in(11, 31)] == [30]


def test_waiting_neighbours_become_one() -> None:
    table = table_of((10, 20), (30, 40))
    table.put_back(Gap(20, 30, 0.0, FOREVER))
    assert intervals(table) == [(10, 40)]
    assert table.missing == 30


def test_a_gap_that_is_under_way_is_not_joined_to_a_waiting_one() -> None:
    table = table_of((10, 20), due_at=5.0)
    table.put_back(Gap(20, 30, 0.0, FOREVER))
    assert intervals(table) == [(10, 20), (20, 30)]


def test_replay_is_not_joined_to_a_repair() -> None:
    table = table_of((10, 20))
    table.put_back(Gap(20, 30, 0.0, FOREVER, is_replay=True))
    assert intervals(table) == [(10, 20), (20, 30)]


def test_a_gap_can_be_cut_in_two() -> None:
    table = table_of((10, 20), (30, 40), due_at=5.0)
    rest = table.split(table[0], 13)
    assert intervals(table) == [(10, 13), (13, 20), (30, 40)]
    assert table[1] is rest
    assert table.missing == 20


def test_timers_fire_when_they_are_due_and_in_the_order_of_numbers() -> None:
    table = table_of((10, 20), (30, 40), (50, 60))
    for gap, due_at in zip(table, (3.0, 1.0, 2.0), strict=True):
        table.schedule(gap, due_at)
    assert table.next_due() == 1.0
    assert table.take_due(0.9) == []
    assert [gap.first for gap in table.take_due(2.5)] == [30, 50]
    assert table.next_due() == 3.0
    assert table.take_due(2.5) == []


def test_a_gap_given_another_time_fires_only_then() -> None:
    table = table_of((10, 20))
    table.schedule(table[0], 1.0)
    table.schedule(table[0], 5.0)
    assert table.next_due() == 5.0
    assert table.take_due(4.9) == []
    assert len(table.take_due(5.0)) == 1


def test_a_gap_that_is_gone_does_not_fire() -> None:
    table = table_of((10, 20), (30, 40), due_at=1.0)
    table.fill(10, 20)
    table.remove(table[0])
    assert table.next_due() == FOREVER
    assert table.take_due(9.0) == []
    assert table.missing == 0


def test_a_gap_that_waits_has_no_timer_and_starts_anew() -> None:
    table = table_of((10, 20), due_at=1.0)
    gap = table[0]
    gap.attempts, gap.asked_at, gap.first_asked_at, gap.asked_of = 3, 0.5, 0.1, "server"
    gap.wait()
    assert table.next_due() == FOREVER
    assert gap == Gap(10, 20, 0.0, FOREVER)


def test_timers_of_the_past_do_not_pile_up() -> None:
    table = table_of((10, 20), (30, 40))
    for step in range(10_000):
        table.schedule(table[step % 2], 1000.0 + step)
    assert len(table._timers) <= 2 * len(table) + STALE_TIMERS
    assert table.next_due() == 1000.0 + 9998
