"""When a receiver gives up, what it says then, and how much it holds meanwhile."""

import pytest
from mold_hearer import Hearer

from onehop.transport.event import LossReason
from onehop.transport.mold import ReceiverOptions
from onehop.transport.mold.receiver import HELD_OVERHEAD_BYTES, REPAIR_SHARE

DEADLINE, ENDED, EVICTED, OVERFLOW = (
    LossReason.DEADLINE,
    LossReason.ENDED,
    LossReason.EVICTED,
    LossReason.OVERFLOW,
)


# -- deadline and attempts -----------------------------------------------------------------------


def test_a_gap_is_given_up_at_its_deadline_with_an_explicit_loss() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=0.5))
    hearer.hear(4)
    hearer.wait(0.499)
    assert hearer.lost == []
    hearer.wait(0.002)
    assert hearer.lost == [(1, 3, DEADLINE)]
    assert hearer.handed == [4]
    assert hearer.receiver.next_timeout() is None


def test_unordered_a_gap_is_given_up_at_its_deadline_too() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=0.5, ordered=False))
    hearer.hear(4)
    hearer.wait(0.6)
    assert (hearer.handed, hearer.lost) == ([4], [(1, 3, DEADLINE)])


def test_a_gap_is_given_up_after_its_attempts() -> None:
    hearer = Hearer(ReceiverOptions(attempts=3))
    hearer.hear(2)
    assert len(hearer.requests()) == 1
    assert len(hearer.wait(0.9)) == 2
    assert hearer.lost == [(1, 1, DEADLINE)]
    assert hearer.now == pytest.approx(100.9)


def test_with_no_attempts_nothing_is_asked_for() -> None:
    hearer = Hearer(ReceiverOptions(attempts=0))
    hearer.hear(1)
    hearer.hear(3)
    assert hearer.wait(0.1) == []
    assert (hearer.handed, hearer.lost) == ([1, 3], [(2, 1, DEADLINE)])


def test_with_no_attempts_what_is_only_late_still_comes() -> None:
    hearer = Hearer(ReceiverOptions(attempts=0))
    for first, second in ((2, 1), (4, 3)):
        hearer.hear(first)
        hearer.now += 0.001
        hearer.hear(second)
    assert hearer.handed == [1, 2, 3, 4]
    assert hearer.lost == []


def test_a_loss_waits_for_its_turn_like_a_message() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=0.5))
    hearer.hear(3)
    hearer.wait(0.3)
    hearer.hear(5)
    hearer.absence(3)
    assert (hearer.handed, hearer.lost) == ([3], [(1, 2, EVICTED)])
    hearer.wait(0.6)
    assert (hearer.handed, hearer.lost) == ([3, 5], [(1, 2, EVICTED), (4, 1, DEADLINE)])


def test_what_comes_after_it_was_given_up_is_a_duplicate() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=0.5))
    hearer.hear(2)
    hearer.wait(0.6)
    hearer.reply(1)
    hearer.hear(1)
    assert (hearer.handed, hearer.lost) == ([2], [(1, 1, DEADLINE)])
    assert hearer.receiver.counts.duplicates == 2


def test_only_what_is_left_of_a_gap_is_given_up() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=0.5))
    hearer.hear(10)
    hearer.reply(4, 2)
    hearer.wait(0.6)
    assert hearer.lost_numbers == [1, 2, 3, 6, 7, 8, 9]
    assert hearer.handed == [4, 5, 10]


def test_after_the_end_of_session_a_loss_says_so() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=0.5))
    hearer.hear(2)
    hearer.end(4)
    hearer.wait(0.6)
    assert hearer.lost == [(1, 1, ENDED), (3, 1, ENDED)]


def test_replay_goes_on_as_long_as_replies_come() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=0.5, replay_deadline_s=1.0), start=1, heard=11)
    for number in range(1, 6):
        hearer.wait(0.8)
        hearer.reply(number)
    assert hearer.lost == []
    hearer.wait(1.1)
    assert hearer.lost_numbers == [6, 7, 8, 9, 10]


def test_time_in_which_we_were_stopped_does_not_count() -> None:
    hearer = Hearer(ReceiverOptions(deadline_s=1.0))
    hearer.hear(2)
    hearer.requests()
    hearer.oversleep(5.0)
    assert hearer.lost == []
    assert hearer.requests() == [(1, 1, "server")]
    hearer.wait(1.1)
    assert hearer.lost == [(1, 1, DEADLINE)]


# -- servers that have it no more ----------------------------------------------------------------


def test_what_the_only_server_has_no_more_is_lost_at_once() -> None:
    hearer = Hearer()
    hearer.hear(10)
    hearer.requests()
    hearer.absence(6)
    assert hearer.lost == [(1, 5, EVICTED)]
    assert hearer.requests() == [(6, 4, "server")]
    hearer.reply(6, 4)
    assert hearer.handed == [6, 7, 8, 9, 10]


def test_what_one_server_has_no_more_is_asked_of_the_next_at_once() -> None:
    hearer = Hearer(servers=("x", "y"))
    hearer.hear(3)
    assert hearer.requests() == [(1, 2, "x")]
    hearer.absence(9, "x")
    assert hearer.requests() == [(1, 2, "y")]
    assert hearer.lost == []
    hearer.absence(9, "y")
    assert hearer.lost == [(1, 2, EVICTED)]


def test_the_server_with_the_oldest_message_decides_what_is_lost() -> None:
    hearer = Hearer(servers=("x", "y"))
    hearer.hear(10)
    hearer.absence(8, "x")
    hearer.requests()
    hearer.absence(5, "y")
    assert hearer.lost == [(1, 4, EVICTED)]
    assert hearer.requests() == [(5, 5, "y")]


def test_a_server_is_not_asked_for_what_it_said_it_has_no_more() -> None:
    hearer = Hearer(servers=("x", "y"))
    hearer.hear(10)
    hearer.absence(8, "x")
    hearer.requests()
    assert {server for *_, server in hearer.wait(0.5)} == {"y"}


# -- bounds --------------------------------------------------------------------------------------

RUN = 100 + HELD_OVERHEAD_BYTES
"""What a held packet of one message costs below."""


def holding(bytes_: int, *, max_gaps: int = 1000) -> Hearer:
    options = ReceiverOptions(hold_bytes=bytes_, max_gaps=max_gaps, deadline_s=60.0)
    return Hearer(options, size=100)


@pytest.mark.parametrize(("behind", "refused"), [(2, 0), (3, 0), (4, 1), (9, 6)])
def test_three_quarters_of_what_may_be_held_are_for_new_packets(behind: int, refused: int) -> None:
    assert REPAIR_SHARE == 4
    hearer = holding(4 * RUN)
    hearer.hear(2, 1)
    for number in range(3, 2 + behind):
        hearer.hear(number)
    assert hearer.receiver.held_bytes == min(behind, 3) * RUN
    assert hearer.receiver.counts.refused_to_hold == refused


def test_what_could_not_be_held_is_asked_for_later_and_not_lost() -> None:
    hearer = holding(8 * RUN)
    for number in range(2, 60):
        hearer.hear(number)
    waiting = hearer.requests()
    assert waiting == [(1, 1, "server")]
    most = 0
    while waiting:
        first, count, _ = waiting.pop(0)
        hearer.reply(first, min(count, 4))
        waiting += hearer.requests()
        most = max(most, hearer.receiver.held_bytes)
    assert hearer.handed == list(range(1, 60))
    assert hearer.lost == []
    assert most <= 8 * RUN


def test_repairs_are_held_when_new_packets_are_not() -> None:
    hearer = holding(8 * RUN)
    for number in (2, 4, 5, 6, 7, 8, 9, 10):
        hearer.hear(number)
    assert hearer.receiver.counts.refused_to_hold == 2
    hearer.reply(3)
    assert hearer.receiver.counts.refused_to_hold == 2
    hearer.reply(1)
    assert hearer.handed == list(range(1, 9))


def test_gaps_noticed_before_the_hold_was_full_are_given_up_together() -> None:
    options = ReceiverOptions(hold_bytes=8 * RUN, deadline_s=0.5)
    hearer = Hearer(options, size=100)
    for number in (2, 4, 6, 8, 10, 12, 13, 14):
        hearer.hear(number)
    hearer.wait(0.51)
    assert hearer.lost_numbers == [1, 3, 5, 7, 9, 11]
    hearer.wait(0.51)
    assert hearer.lost_numbers[6:] == [13, 14]


def test_a_dead_session_is_given_up_in_a_few_deadlines_however_much_is_missing() -> None:
    options = ReceiverOptions(hold_bytes=8 * RUN, deadline_s=0.5, max_gaps=64)
    hearer = Hearer(options, size=100)
    hearer.hear(200)
    hearer.reply(1, 3)
    for number in range(202, 2000, 2):
        hearer.hear(number)
    hearer.beat(50_000)
    hearer.wait(4 * 0.5)
    assert hearer.receiver.gaps.missing == 0
    assert sorted(hearer.handed + hearer.lost_numbers) == list(range(1, 50_000))


def full_of_repairs() -> Hearer:
    """Every other number of 1 to 119 is missing; forty replies have come, too many to hold."""
    hearer = Hearer(ReceiverOptions(hold_bytes=80 * RUN, deadline_s=0.5), size=100)
    for number in range(2, 122, 2):
        hearer.hear(number)
    for number in range(119, 39, -2):
        hearer.reply(number)
    assert hearer.receiver.held_bytes == 80 * RUN
    assert hearer.receiver.counts.refused_to_hold == 20
    return hearer


def test_when_nobody_answers_any_more_all_that_waits_is_given_up_together() -> None:
    hearer = full_of_repairs()
    hearer.wait(2.1 * 0.5)
    assert hearer.lost_numbers == list(range(1, 80, 2))
    assert hearer.receiver.held_bytes == 0


def test_when_a_server_answers_but_lacks_what_waits_it_is_given_up_a_window_at_a_time() -> None:
    hearer = full_of_repairs()
    for _ in range(8):
        hearer.wait(0.2)
        hearer.absence(1)  # it is there, and has nothing to say about these
    assert hearer.lost_numbers == list(range(1, 80, 2))


@pytest.mark.parametrize("gaps", [7, 8, 9, 40])
def test_the_number_of_gaps_is_bounded_and_nothing_is_lost_by_it(gaps: int) -> None:
    hearer = holding(1_000_000, max_gaps=8)
    most = 0
    for number in range(2, 2 + 2 * gaps, 2):
        hearer.hear(number)
        most = max(most, len(hearer.receiver.gaps))
    assert most <= 8
    waiting = hearer.requests()
    while waiting:
        first, count, _ = waiting.pop(0)
        hearer.reply(first, count)
        waiting += hearer.requests()
    assert hearer.handed == list(range(1, 2 * gaps + 1))
    assert hearer.lost == []


@pytest.mark.parametrize(("gaps", "given_up"), [(7, 0), (8, 0), (9, 1), (12, 4)])
def test_unordered_the_oldest_gap_beyond_the_bound_is_given_up(gaps: int, given_up: int) -> None:
    hearer = Hearer(ReceiverOptions(ordered=False, max_gaps=8))
    for number in range(2, 2 + 2 * gaps, 2):
        hearer.hear(number)
    assert hearer.lost == [(1 + 2 * at, 1, OVERFLOW) for at in range(given_up)]
    assert len(hearer.receiver.gaps) == gaps - given_up


def test_copies_of_what_could_not_be_held_do_not_fill_the_gap_table() -> None:
    hearer = holding(8 * RUN)
    for number in range(2, 500):
        hearer.hear(number)
    for number in range(20, 500, 2):
        hearer.hear(number)
    assert len(hearer.receiver.gaps) <= 3
    assert hearer.receiver.held_bytes <= 6 * RUN
