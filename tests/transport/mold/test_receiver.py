"""One session as it is received: gaps, requests, replies and order."""

from itertools import pairwise

import pytest
from mold_hearer import Hearer

from onehop.transport.errors import ConfigurationError
from onehop.transport.event import LossReason
from onehop.transport.mold import ReceiverOptions
from onehop.transport.mold.receiver import HELD_OVERHEAD_BYTES, REQUEST_WINDOW

UNORDERED = ReceiverOptions(ordered=False)


# -- in order, late, twice -----------------------------------------------------------------------


def test_packets_in_order_are_handed_out_as_they_come() -> None:
    hearer = Hearer()
    hearer.hear(1, 3)
    hearer.hear(4, 1)
    assert hearer.handed == [1, 2, 3, 4]
    assert hearer.receiver.next_timeout() is None
    assert hearer.requests() == []


def test_what_comes_behind_a_gap_is_held_until_the_gap_is_filled() -> None:
    hearer = Hearer()
    hearer.hear(1)
    hearer.hear(4, 2)
    assert hearer.handed == [1]
    assert hearer.receiver.held_bytes == 16 + HELD_OVERHEAD_BYTES
    hearer.reply(2, 2)
    assert hearer.handed == [1, 2, 3, 4, 5]
    assert hearer.recovered == [2, 3]
    assert hearer.receiver.held_bytes == 0


def test_unordered_nothing_is_held_back() -> None:
    hearer = Hearer(UNORDERED)
    hearer.hear(1)
    hearer.hear(4, 2)
    hearer.reply(2, 2)
    assert hearer.handed == [1, 4, 5, 2, 3]
    assert hearer.recovered == [2, 3]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_late_duplicate_is_counted_and_not_handed_out(ordered: bool) -> None:
    hearer = Hearer(ReceiverOptions(ordered=ordered))
    hearer.hear(1, 4)
    hearer.hear(2, 2)
    hearer.hear(6)
    hearer.reply(5, 2)
    hearer.reply(5)
    assert sorted(hearer.handed) == [1, 2, 3, 4, 5, 6]
    assert hearer.receiver.counts.duplicates == 2 + 1 + 1
    assert hearer.receiver.counts.recovered == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_a_packet_half_old_and_half_new_brings_what_is_new(ordered: bool) -> None:
    hearer = Hearer(ReceiverOptions(ordered=ordered))
    hearer.hear(1, 4)
    hearer.hear(3, 4)
    assert hearer.handed == [1, 2, 3, 4, 5, 6]


def test_a_packet_that_is_only_late_fills_its_gap_and_is_counted_as_reordered() -> None:
    hearer = Hearer()
    hearer.hear(1)
    hearer.hear(3)
    hearer.hear(2)
    assert hearer.handed == [1, 2, 3]
    assert hearer.requests() == []
    assert hearer.receiver.counts.reordered == 1
    assert hearer.recovered == []


def test_a_heartbeat_tells_that_the_last_packet_was_lost() -> None:
    hearer = Hearer()
    hearer.hear(1)
    hearer.beat(2)
    assert hearer.requests() == []
    hearer.beat(4)
    assert hearer.requests() == [(2, 2, "server")]


def test_an_end_of_session_ends_it_and_tells_what_was_lost() -> None:
    hearer = Hearer()
    hearer.hear(1)
    hearer.beat(2)
    before = hearer.receiver.is_ended
    hearer.end(3)
    assert (before, hearer.receiver.is_ended) == (False, True)
    assert hearer.requests() == [(2, 1, "server")]
    hearer.reply(2)
    assert hearer.handed == [1, 2]


# -- asking --------------------------------------------------------------------------------------


def test_a_gap_is_asked_for_at_once_and_exactly() -> None:
    hearer = Hearer()
    hearer.hear(1)
    hearer.hear(5)
    assert hearer.requests() == [(2, 3, "server")]
    assert hearer.requests() == []


def test_all_gaps_are_asked_for_at_once() -> None:
    hearer = Hearer()
    for number in (1, 3, 6, 10):
        hearer.hear(number)
    assert hearer.requests() == [(2, 1, "server"), (4, 2, "server"), (7, 3, "server")]


def test_neighbouring_gaps_share_a_request() -> None:
    hearer = Hearer()
    hearer.beat(3)
    hearer.beat(6)
    assert hearer.requests() == [(1, 5, "server")]


def test_what_came_before_the_request_went_out_is_not_asked_for() -> None:
    hearer = Hearer()
    hearer.hear(10)
    hearer.hear(4, 2)
    assert hearer.requests() == [(1, 3, "server"), (6, 4, "server")]


def test_once_reordering_was_seen_a_gap_gets_time_to_fill_by_itself() -> None:
    hearer = Hearer()
    hearer.hear(1)
    hearer.hear(3)
    hearer.now += 0.004
    hearer.hear(2)
    hearer.requests()
    hearer.hear(5)
    assert hearer.requests() == []
    (when, first, count, _), *_ = hearer.wait(0.1)
    assert (first, count) == (4, 1)
    assert when == pytest.approx(0.005)


def test_a_request_is_repeated_with_growing_pauses_over_all_servers() -> None:
    hearer = Hearer(servers=("x", "y", "z"))
    hearer.hear(2)
    assert hearer.requests() == [(1, 1, "x")]
    asked = hearer.wait(0.9)
    assert [server for _, _, _, server in asked[:5]] == ["y", "z", "x", "y", "z"]
    assert {(first, count) for _, first, count, _ in asked} == {(1, 1)}
    times = [0.0, *(when for when, *_ in asked)]
    pauses = [after - before for before, after in pairwise(times)]
    assert 0.002 <= pauses[0] <= 0.003
    assert all(later > earlier * 1.3 for earlier, later in pairwise(pauses[:5]))
    assert all(0.05 <= pause <= 0.075 for pause in pauses[6:])
    assert len(asked) < 25


def test_receivers_that_lost_the_same_packet_do_not_ask_in_step() -> None:
    seen = set()
    for seed in range(20):
        hearer = Hearer(seed=seed)
        hearer.hear(2)
        hearer.requests()
        seen.add(hearer.wait(0.1)[0][0])
    assert len(seen) == 20
    assert max(seen) / min(seen) > 1.3


def test_retries_wait_for_as_long_as_replies_take() -> None:
    hearer = Hearer()
    for number in range(1, 60, 2):
        hearer.hear(number + 1)
        hearer.requests()
        hearer.now += 0.001
        hearer.reply(number)
    hearer.hear(62)
    hearer.requests()
    assert 0.00125 <= hearer.wait(0.1)[0][0] <= 0.0025


def test_a_reply_after_a_retry_is_not_taken_for_a_fast_one() -> None:
    hearer = Hearer()
    for number in range(1, 101, 2):
        hearer.hear(number + 1)
        hearer.requests()
        if number < 41:
            hearer.now += 0.010
        else:  # the first request was lost
            due_at = hearer.receiver.next_timeout()
            assert due_at is not None
            assert len(hearer.wait(due_at - hearer.now)) == 1
            hearer.now += 0.006
        hearer.reply(number)
    hearer.hear(102)
    hearer.requests()
    assert hearer.wait(0.1)[0][0] >= 0.0125


def test_the_rest_of_a_partial_reply_is_asked_for_at_once() -> None:
    hearer = Hearer()
    hearer.hear(101)
    assert hearer.requests() == [(1, 100, "server")]
    hearer.reply(1, 10)
    asked = hearer.requests()
    assert asked[0][0] == 11
    assert sum(count for _, count, _ in asked) == 90


def test_requests_take_the_size_that_replies_have() -> None:
    hearer = Hearer()
    hearer.hear(1001)
    hearer.requests()
    hearer.reply(1, 10)
    asked = hearer.requests()
    assert hearer.receiver.counts.requests == 1 + len(asked)
    assert all(count <= 10 for _, count, _ in asked)
    assert len(asked) == REQUEST_WINDOW


def test_a_long_gap_is_asked_for_in_a_window_of_requests_until_it_is_filled() -> None:
    hearer = Hearer()
    hearer.hear(5001)
    waiting = hearer.requests()
    most = 0
    while waiting:
        first, count, _ = waiting.pop(0)
        hearer.now += 0.0001
        hearer.reply(first, min(count, 25))
        waiting += hearer.requests()
        most = max(most, len(waiting))
    assert hearer.handed == list(range(1, 5002))
    assert most <= REQUEST_WINDOW
    assert hearer.receiver.counts.requests < 5001 / 25 * 1.5


def test_a_reply_may_come_in_more_packets_than_asked_for() -> None:
    hearer = Hearer()
    hearer.hear(11)
    hearer.requests()
    for first in (1, 4, 7, 9):
        hearer.reply(first, 3 if first < 9 else 2)
    assert hearer.handed == list(range(1, 12))


def test_the_time_from_gap_to_repair_is_told() -> None:
    hearer = Hearer()
    hearer.hear(2)
    hearer.now += 0.25
    hearer.reply(1)
    assert hearer.repair_s == [pytest.approx(0.25)]


# -- where it begins -----------------------------------------------------------------------------


def test_what_is_older_than_the_beginning_is_neither_asked_for_nor_handed_out() -> None:
    hearer = Hearer(start=10, heard=10)
    hearer.hear(10)
    hearer.hear(8, 2)
    hearer.reply(9, 4)
    assert hearer.handed == [10, 11, 12]
    assert hearer.receiver.counts.duplicates == 1


def test_a_beginning_in_the_past_is_asked_for_as_replay() -> None:
    hearer = Hearer(start=5, heard=9)
    assert hearer.requests() == [(5, 4, "server")]
    hearer.hear(9)
    hearer.reply(5, 4)
    assert hearer.handed == [5, 6, 7, 8, 9]
    assert hearer.repair_s == []


def test_a_beginning_in_the_future_waits_for_it() -> None:
    hearer = Hearer(start=5, heard=2)
    hearer.hear(2, 2)
    hearer.hear(4, 3)
    assert hearer.handed == [5, 6]
    assert hearer.requests() == []


@pytest.mark.parametrize("name", ["deadline_s", "replay_deadline_s", "hold_bytes", "max_gaps"])
def test_an_option_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is 0"):
        ReceiverOptions(**{name: 0})  # type: ignore[arg-type]


def test_a_negative_number_of_attempts_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="attempts is -1"):
        ReceiverOptions(attempts=-1)


def test_closing_gives_up_every_repair_and_hands_out_what_was_held() -> None:
    hearer = Hearer()
    hearer.hear(2)
    hearer.hear(4)
    hearer.take(hearer.receiver.give_up_all(LossReason.ENDED))
    assert hearer.handed == [2, 4]
    assert hearer.lost == [(1, 1, LossReason.ENDED), (3, 1, LossReason.ENDED)]
    assert hearer.receiver.next_timeout() is None
