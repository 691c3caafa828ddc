"""Speaking for silent publishers, on a clock of our own."""

import pytest

from onehop.transport.mold.feed import SETTLING_S
from onehop.transport.mold.standin import ANNOUNCE_S, MAX_ANNOUNCED, SILENT_S, StandIn
from onehop.transport.mold.store import MemoryStore
from onehop.transport.mold.wire import END_OF_SESSION_COUNT, Header, decode_header

SESSION = b"SESSION001"


class Server:
    """A store and its stand-in."""

    def __init__(self, messages: int = 9) -> None:
        self.store = MemoryStore(1_000_000)
        self.stand_in = StandIn()
        if messages:
            self.store.keep(SESSION, 1, [b""] * messages, 0.0)

    def hear(self, next_number: int, now: float, session: bytes = SESSION) -> None:
        self.stand_in.heard(session, next_number, self.store.shelf(session), now)

    def say(self, now: float) -> list[Header]:
        shelves = dict(self.store.shelves())
        return [decode_header(data) for data in self.stand_in.announcements(shelves, now)]


def test_a_publisher_that_is_heard_is_not_spoken_for() -> None:
    server = Server()
    for second in range(10):
        server.hear(10, float(second))
        assert server.say(second + 0.99) == []


def test_a_silent_publisher_is_spoken_for_every_second() -> None:
    server = Server()
    server.hear(10, 0.0)
    assert server.stand_in.next_timeout() == SILENT_S
    assert server.say(SILENT_S - 0.01) == []
    assert server.say(SILENT_S) == [(SESSION, 10, 0)]
    assert server.say(SILENT_S + ANNOUNCE_S - 0.01) == []
    assert server.say(SILENT_S + ANNOUNCE_S) == [(SESSION, 10, 0)]


def test_a_joiner_hears_of_an_old_session_before_it_has_settled() -> None:
    assert max(SILENT_S, ANNOUNCE_S) < SETTLING_S


def test_an_ended_session_is_announced_as_ended() -> None:
    server = Server()
    server.hear(10, 0.0)
    server.store.expect(SESSION, 10, is_ended=True)
    assert server.say(5.0) == [(SESSION, 10, END_OF_SESSION_COUNT)]


def test_a_publisher_that_speaks_again_is_not_spoken_for() -> None:
    server = Server()
    server.hear(10, 0.0)
    assert server.say(5.0)
    server.hear(10, 5.5)
    assert server.say(6.9) == []


def test_a_server_that_knows_as_much_keeps_the_other_silent() -> None:
    first, second = Server(), Server()
    first.hear(10, 0.0)
    second.hear(10, 0.2)
    spoken = 0
    for step in range(15, 200):
        now = step / 10
        for _, number, _ in first.say(now):
            second.hear(number, now)
        said = second.say(now)
        spoken += len(said)
        for _, number, _ in said:
            first.hear(number, now)
    assert spoken == 0


def test_a_server_that_knows_less_does_not_keep_another_silent() -> None:
    server = Server()
    server.hear(10, 0.0)
    server.hear(7, 1.4)
    assert server.say(SILENT_S) == [(SESSION, 10, 0)]


def test_a_server_that_knows_less_makes_another_speak() -> None:
    server = Server()
    server.hear(7, 0.0)
    assert server.say(SILENT_S) == [(SESSION, 10, 0)]


def test_nothing_kept_is_not_announced() -> None:
    server = Server(messages=0)
    server.store.expect(SESSION, 10, is_ended=False)
    server.hear(10, 0.0)
    assert server.say(5.0) == []
    assert server.stand_in.next_timeout() is None


def test_sessions_of_an_earlier_life_are_announced() -> None:
    server = Server()
    server.stand_in.remember([SESSION], 0.0)
    assert server.say(SILENT_S) == [(SESSION, 10, 0)]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_only_the_sessions_heard_last_are_announced(more: int) -> None:
    server = Server(messages=0)
    names = [b"SESSION%03d" % number for number in range(MAX_ANNOUNCED + more)]
    for at, name in enumerate(names):
        server.store.keep(name, 1, [b""], 0.0)
        server.hear(2, at * 0.001, name)
    assert [session for session, _, _ in server.say(5.0)] == names[-MAX_ANNOUNCED:]
