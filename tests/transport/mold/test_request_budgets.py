"""What answering requests may cost: budgets, and the bounds of the desk."""

import pytest
from mold_clerk import BLOCK_BYTES, NOW, OLD, ONE, Clerk

from onehop.transport.errors import ConfigurationError
from onehop.transport.mold import RequestOptions, RingOptions
from onehop.transport.mold.requests import LOOKS_PER_CALL
from onehop.transport.mold.wire import HEADER_BYTES


def test_one_requester_gets_no_more_than_its_budget() -> None:
    clerk = Clerk(requester_bytes_per_s=10 * ONE, burst_bytes=5 * ONE, packet_bytes=ONE)
    for first in range(1, 101):
        clerk.ask(first)
    assert clerk.served_over(2.0, "a") == pytest.approx(25, abs=1)
    assert clerk.desk.counts["delayed"] == 95
    assert clerk.desk.requesters["a"].bytes == pytest.approx(25 * ONE, abs=ONE)


def test_a_greedy_requester_does_not_starve_another() -> None:
    clerk = Clerk(requester_bytes_per_s=10 * ONE, burst_bytes=5 * ONE, packet_bytes=ONE)
    for first in range(1, 101):
        clerk.ask(first, by="greedy")
    clerk.ask(50, by="modest")
    served = clerk.replies() + clerk.replies(NOW + 0.001)
    assert [address for address, _, _ in served] == ["greedy"] * 5 + ["modest"]


def test_a_greedy_requester_does_not_take_every_place_in_the_queue() -> None:
    clerk = Clerk(requester_bytes_per_s=ONE, burst_bytes=ONE, packet_bytes=ONE, max_waiting_each=10)
    for first in range(1, 101):
        clerk.ask(first, by="greedy")
    assert clerk.desk.counts["refused"] == 90
    clerk.ask(50, by="modest")
    served = clerk.replies() + clerk.replies(NOW + 0.001)
    assert served == [("greedy", 1, 1), ("modest", 50, 1)]
    clerk.ask(99, by="greedy")
    assert clerk.desk.counts["refused"] == 90


def test_a_place_in_the_queue_is_free_again_after_the_answer() -> None:
    clerk = Clerk(max_waiting_each=2, coalesce_s=0.0)
    for first in range(1, 21, 2):
        clerk.ask(first)
        clerk.ask(first + 1)
        assert len(clerk.replies()) == 2
    assert clerk.desk.counts["refused"] == 0


def test_forged_addresses_get_no_more_in_all_than_the_budget_for_repairs() -> None:
    clerk = Clerk(
        repair_bytes_per_s=10 * ONE, burst_bytes=5 * ONE, packet_bytes=ONE, replay_age_s=60.0
    )
    for number in range(1000):
        clerk.ask(1 + number % 100, by=f"forged{number}")
    sent, now = 0, NOW
    while now < NOW + 10.0:
        sent += sum(len(data) for data, _ in clerk.desk.replies(now))
        now += 0.05
    assert 100 * ONE <= sent <= (5 + 10 * 10 + 1) * ONE


def test_more_requesters_than_are_looked_at_in_one_call_all_get_their_turn() -> None:
    clerk = Clerk(
        requester_bytes_per_s=ONE // 10, repair_bytes_per_s=1000 * ONE, burst_bytes=ONE,
        packet_bytes=ONE, coalesce_s=0.0, replay_age_s=60.0,
    )  # fmt: skip
    asking = 3 * LOOKS_PER_CALL
    for number in range(asking):
        clerk.ask(1, by=f"address{number}")
        clerk.ask(2, by=f"address{number}")  # waits ten seconds for its budget
    answered = [
        (address, first)
        for millisecond in range(asking * 2)
        for address, first, _ in clerk.replies(NOW + millisecond / 1e3)
    ]
    assert sorted(answered) == sorted((f"address{number}", 1) for number in range(asking))


def test_a_call_makes_no_more_replies_than_asked_for() -> None:
    clerk = Clerk(messages=20, coalesce_s=0.0)
    for first in range(1, 11):
        clerk.ask(first)
    assert [len(clerk.desk.replies(NOW, 4)) for _ in range(4)] == [4, 4, 2, 0]
    assert clerk.desk.next_timeout() is None


def test_asking_for_the_evicted_is_paid_for_too() -> None:
    clerk = Clerk(messages=20, ring=RingOptions(max_messages=5), burst_bytes=10 * HEADER_BYTES)
    for first in range(1, 16):
        clerk.ask(first)
    assert len(clerk.replies()) == 10


def test_replay_does_not_starve_repairs() -> None:
    clerk = Clerk(replay_bytes_per_s=ONE, burst_bytes=ONE, packet_bytes=ONE, sent_at=OLD)
    clerk.add(1, NOW)
    for number in range(50):
        clerk.ask(1 + number, by=f"late{number}")
    clerk.ask(101, by="live")
    assert sorted(clerk.replies()) == [("late0", 1, 1), ("live", 101, 1)]


def test_repairs_do_not_starve_replay() -> None:
    clerk = Clerk(repair_bytes_per_s=ONE, burst_bytes=ONE, packet_bytes=ONE, sent_at=OLD)
    clerk.add(50, NOW)
    for number in range(50):
        clerk.ask(101 + number, by=f"live{number}")
    clerk.ask(1, by="late")
    assert clerk.replies() == [("live0", 101, 1), ("late", 1, 1)]


@pytest.mark.parametrize(("age_s", "is_replay"), [(0.9, False), (1.0, False), (1.1, True)])
def test_messages_older_than_a_second_are_replay(age_s: float, is_replay: bool) -> None:
    clerk = Clerk(replay_bytes_per_s=ONE, burst_bytes=ONE, packet_bytes=ONE, sent_at=NOW - age_s)
    clerk.ask(1, by="a")
    clerk.ask(2, by="b")
    clerk.add(1, NOW)
    clerk.ask(101, by="c")
    served = {address for address, _, _ in clerk.replies()}
    assert served == ({"a", "c"} if is_replay else {"a"})


@pytest.mark.parametrize(("asked", "refused"), [(3, 0), (4, 0), (5, 1)])
def test_the_queue_is_bounded(asked: int, refused: int) -> None:
    clerk = Clerk(max_waiting=4)
    for number in range(asked):
        clerk.ask(1, by=f"address{number}")
    assert clerk.desk.counts["refused"] == refused
    assert len(clerk.replies()) == min(asked, 4)


@pytest.mark.parametrize(("known", "remembered"), [(2, 2), (3, 3), (4, 3)])
def test_the_memory_of_requesters_is_bounded(known: int, remembered: int) -> None:
    clerk = Clerk(max_requesters=3)
    for number in range(known):
        clerk.ask(1, by=f"address{number}")
    assert len(clerk.desk.requesters) == remembered
    assert f"address{known - 1}" in clerk.desk.requesters


def test_it_is_known_who_asked_for_how_much() -> None:
    clerk = Clerk(coalesce_s=0.0)
    clerk.ask(1, 2, by="a")
    clerk.ask(5, 1, by="a")
    clerk.ask(5, 1, by="b")
    clerk.replies()
    counts = clerk.desk.requesters["a"]
    assert (counts.requests, counts.messages, counts.bytes) == (
        2,
        3,
        2 * HEADER_BYTES + 3 * BLOCK_BYTES,
    )


@pytest.mark.parametrize("name", ["repair_bytes_per_s", "burst_bytes", "max_waiting"])
def test_a_budget_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"requests {name} is 0"):
        RequestOptions(**{name: 0})
