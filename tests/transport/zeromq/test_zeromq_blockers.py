"""Back-pressure by hand: credits, and whom a publisher waits for."""

import pytest

from onehop.transport.zeromq.blockers import (
    FAREWELL,
    MAX_BLOCKERS,
    MAX_WANTED_BYTES,
    SESSIONS_PER_CREDIT,
    Blockers,
    encode_credits,
)
from onehop.transport.zeromq.side import Credit, decode_upstream
from onehop.transport.zeromq.wire import MAX_UPSTREAM_BYTES

NAME = b"0123456789abcdef"
A, B = b"epoch00000", b"epoch00001"
ME = ("me", 0)


def credit(window: int = 10, name: bytes = NAME, **taken: int) -> Credit:
    sessions = {"a": A, "b": B}
    numbers = {sessions[key]: number for key, number in taken.items()}
    return Credit(name, window, 1.0, (), numbers)


@pytest.mark.parametrize("count", [0, 1, SESSIONS_PER_CREDIT, SESSIONS_PER_CREDIT + 1, 1000])
def test_credits_are_read_as_they_were_written_and_short_enough_to_be_taken(count: int) -> None:
    taken = {b"%010d" % number: 2**64 - 1 - number for number in range(count)}
    messages = encode_credits(Credit(NAME, 5, 0.5, (b"x" * MAX_WANTED_BYTES,), taken))
    read = [decode_upstream(message[1:]) for message in messages]

    assert all(
        message[:1] == b"\xff" and len(message) <= MAX_UPSTREAM_BYTES for message in messages
    )
    assert all(isinstance(one, Credit) for one in read)
    credits_read = [one for one in read if isinstance(one, Credit)]
    assert {session: n for one in credits_read for session, n in one.taken.items()} == taken
    assert {(one.name, one.window, one.timeout_s) for one in credits_read} <= {(NAME, 5, 0.5)}


def test_one_is_waited_for_while_its_window_is_full() -> None:
    blockers = Blockers()
    blockers.receive(credit(3, a=5, b=0), ME, {A: 5, B: 0})
    blockers.sent(A)
    blockers.sent(B)
    assert blockers.to_wait_for(A) == []
    blockers.sent(A)
    assert [blocker.name for blocker in blockers.to_wait_for(B)] == [NAME]
    assert blockers.to_wait_for(b"other00000") == []
    blockers.receive(credit(3, a=6), ME, {A: 7, B: 1})
    assert blockers.to_wait_for(A) == []
    blockers.receive(credit(3, a=1), ME, {A: 7, B: 1})  # an old one, overtaken
    assert blockers.to_wait_for(A) == []


def test_one_that_is_gone_is_not_waited_for() -> None:
    blockers = Blockers()
    blockers.receive(credit(1, a=0), ME, {A: 1})
    assert blockers.full()
    blockers.forget(NAME)
    assert not blockers
    assert blockers.full() == blockers.to_wait_for(A) == []


def test_one_that_was_given_up_is_told_and_not_taken_back() -> None:
    blockers = Blockers()
    blockers.receive(credit(1, a=0), ME, {A: 1})
    assert blockers.give_up(blockers.full()) == [(FAREWELL, ME)]
    assert blockers.disconnected == 1
    blockers.receive(credit(1, a=0), ME, {A: 1})
    assert not blockers
    blockers.forget(NAME)  # it has left; the same name is another one
    blockers.receive(credit(1, a=0), ME, {A: 1})
    assert blockers.full()


def test_no_more_are_waited_for_than_the_bound() -> None:
    blockers = Blockers()
    for number in range(MAX_BLOCKERS + 1):
        blockers.receive(credit(1, b"%016d" % number, a=0), ME, {A: 1})

    assert len(blockers.full()) == MAX_BLOCKERS
    assert blockers.refused == 1


def test_credit_for_sessions_nobody_has_is_nothing() -> None:
    blockers = Blockers()
    blockers.receive(credit(1, a=0, b=0), ME, {B: 0})
    blockers.sent(A)

    assert blockers.full() == []


def test_a_stream_that_begins_later_counts_from_its_first_message() -> None:
    blockers = Blockers()
    wants = Credit(NAME, 2, 1.0, (b"q",), {A: 0})
    blockers.receive(wants, ME, {A: 0})
    blockers.opened(B, b"quotes\0")
    blockers.opened(b"other00000", b"other\0")
    for session in (B, B, b"other00000", b"other00000"):
        blockers.sent(session)

    assert blockers.to_wait_for(b"other00000") == []
    assert [blocker.name for blocker in blockers.to_wait_for(B)] == [NAME]


def test_nobody_is_waited_for_who_is_not_subscribed() -> None:
    blockers = Blockers()
    blockers.receive(credit(1, a=0), ME, {A: 5}, is_subscribed=False)
    assert blockers.full() == blockers.to_wait_for(A) == []
    blockers.subscribed(NAME)  # its credit was the faster one
    assert len(blockers.full()) == len(blockers.to_wait_for(A)) == 1


def test_strangers_take_no_place_from_subscribers() -> None:
    blockers = Blockers()
    for number in range(MAX_BLOCKERS + 10):
        blockers.receive(credit(1, b"%016d" % number, a=0), ME, {A: 1}, is_subscribed=False)
    blockers.receive(credit(1, a=0), ME, {A: 1})

    assert [blocker.name for blocker in blockers.full()] == [NAME]
    assert blockers.refused == 0
