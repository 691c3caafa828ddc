"""What a subscriber wants beside streams, by hand."""

import pytest

from onehop.transport.datagrams import Address
from onehop.transport.mold.wire import HEARTBEAT_COUNT, Header, decode_header
from onehop.transport.zeromq.claims import CLAIM_AGAIN_S, FETCH_S, Claims
from onehop.transport.zeromq.side import (
    RANGES_PER_MESSAGE,
    Ask,
    Done,
    Join,
    Leave,
    Opened,
    decode_upstream,
)

NAME = b"0123456789abcdef"
OURS = b"SESSION001"
A, B = ("epoch00a", 0), ("epoch00b", 0)
JOIN = Join(NAME, "workers", (), "", True, 30.0, 64, "live")
ASK = Ask(NAME, ())


class Wishing:
    """Claims, and what they noted."""

    def __init__(self, wish: Ask | Join) -> None:
        self.sessions: list[tuple[bytes, Address, str]] = []
        self.claims = Claims(wish, lambda *session: self.sessions.append(session))
        self.message = self.claims.attached(A, 0.0)

    def open(self, next_number: int, session: bytes = OURS, now: float = 0.0) -> bytes | None:
        kind = "group" if isinstance(decode_upstream(self.message[1:]), Join) else "last"
        return self.claims.opened(Opened(session, kind, next_number), A, now)  # type: ignore[arg-type]


def test_a_share_of_a_group_is_ours_when_it_is_opened() -> None:
    wishing = Wishing(JOIN)
    assert decode_upstream(wishing.message[1:]) == JOIN
    packet = wishing.open(1)
    assert packet is not None
    assert decode_header(packet) == Header(OURS, 1, HEARTBEAT_COUNT)
    assert wishing.sessions == [(OURS, A, "group.workers.SESSION001")]
    assert wishing.claims.met == [A]


def test_the_last_values_are_there_when_the_last_of_them_has_come() -> None:
    wishing = Wishing(ASK)
    wishing.open(11)
    assert wishing.sessions == [(OURS, A, "history.last")]
    wishing.claims.replied(Header(OURS, 6, 5), A, 0.1)
    wishing.claims.replied(Header(b"ANOTHER001", 1, 5), A, 0.1)
    wishing.claims.replied(Header(OURS, 1, 5), B, 0.1)
    assert wishing.claims.met == []
    wishing.claims.replied(Header(OURS, 1, 5), A, 0.1)
    assert wishing.claims.met == [A]


def test_where_there_are_none_nothing_is_waited_for() -> None:
    wishing = Wishing(ASK)
    wishing.open(1)
    assert wishing.claims.met == [A]


def test_an_answer_that_does_not_come_is_asked_for_again() -> None:
    wishing = Wishing(ASK)
    assert wishing.claims.due(CLAIM_AGAIN_S) == []
    assert wishing.claims.due(CLAIM_AGAIN_S + 0.01) == [(wishing.message, A)]
    assert wishing.claims.due(CLAIM_AGAIN_S + 0.02) == []
    wishing.open(1)
    assert wishing.claims.due(100.0) == []


def test_last_values_that_do_not_come_hold_nothing_up_for_ever() -> None:
    wishing = Wishing(ASK)
    wishing.open(11)
    wishing.claims.replied(Header(OURS, 1, 5), A, 1.0)
    assert wishing.claims.due(FETCH_S + 0.9) == []
    assert wishing.claims.met == []
    wishing.claims.due(FETCH_S + 1.1)
    assert wishing.claims.met == [A]


def test_a_publisher_that_opens_anew_is_followed_there() -> None:
    wishing = Wishing(JOIN)
    wishing.open(1)
    wishing.claims.attached(A, 5.0)  # it was away
    wishing.open(1, b"SESSION002")
    assert [session for session, *_ in wishing.sessions] == [OURS, b"SESSION002"]


def test_a_session_of_one_who_was_not_asked_is_not_taken() -> None:
    wishing = Wishing(JOIN)
    wishing.claims.forget(A)
    assert wishing.open(1) is None
    assert wishing.sessions == []


@pytest.mark.parametrize("count", [1, RANGES_PER_MESSAGE])
def test_what_is_done_is_told_in_ranges(count: int) -> None:
    wishing = Wishing(JOIN)
    wishing.open(1)
    for number in range(count):
        for done in (3 * number + 2, 3 * number + 1):
            wishing.claims.done(OURS, done)
    wishing.claims.done(b"ANOTHER001", 7)  # of a life before
    reports = [decode_upstream(message[1:]) for message, _ in wishing.claims.reports()]
    assert wishing.claims.reports() == []
    ranges = [pair for report in reports if isinstance(report, Done) for pair in report.ranges]
    assert ranges == [(3 * number + 1, 3 * number + 2) for number in range(count)]
    assert len(reports) == 1


def told(wishing: Wishing) -> list[tuple[tuple[int, int], ...]]:
    reports = [decode_upstream(message[1:]) for message, _ in wishing.claims.reports()]
    return [report.ranges for report in reports if isinstance(report, Done)]


def test_each_report_says_what_the_ones_before_said() -> None:
    wishing = Wishing(JOIN)
    wishing.open(1)
    wishing.claims.done(OURS, 1)
    assert told(wishing) == [((1, 1),)]
    wishing.claims.done(OURS, 2)
    assert told(wishing) == [((1, 2),)]


def test_what_was_done_is_told_again_after_a_while_and_to_one_that_was_away() -> None:
    wishing = Wishing(JOIN)
    wishing.open(1)
    wishing.claims.done(OURS, 1)
    assert told(wishing) == [((1, 1),)]
    wishing.claims.due(CLAIM_AGAIN_S + 0.1)
    assert told(wishing) == [((1, 1),)]
    wishing.claims.due(3 * CLAIM_AGAIN_S)
    assert told(wishing) == [], "once is enough"
    wishing.claims.attached(A, 4.0)
    wishing.open(1)
    assert told(wishing) == [((1, 1),)], "it may have missed it"
    wishing.claims.attached(A, 5.0)
    wishing.claims.done(OURS, 2)
    assert told(wishing) == [], "it is not ours at the moment"
    wishing.open(1)
    assert told(wishing) == [((1, 2),)]


def test_only_members_say_that_they_go() -> None:
    wishing = Wishing(JOIN)
    assert wishing.claims.farewells() == [], "it has nothing to give back"
    wishing.open(1)
    ((message, origin),) = wishing.claims.farewells()
    assert (decode_upstream(message[1:]), origin) == (Leave(NAME), A)
    asking = Wishing(ASK)
    asking.open(1)
    assert asking.claims.farewells() == []
