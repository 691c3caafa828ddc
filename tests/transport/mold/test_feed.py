"""Everything heard on a group: sessions, origins, servers, and where each begins."""

from random import Random

import pytest

from onehop.transport.errors import ConfigurationError
from onehop.transport.event import LossReason
from onehop.transport.mold import Feed, FeedOptions, ReceiverOptions, Run
from onehop.transport.mold.feed import (
    FORGET_AFTER_S,
    MAX_FORGOTTEN,
    MAX_ORIGINS,
    PLAUSIBLE_PER_S,
    SETTLING_S,
    Outputs,
    Start,
)
from onehop.transport.mold.wire import (
    END_OF_SESSION_COUNT,
    HEARTBEAT_COUNT,
    decode_header,
    encode_header,
    encode_packet,
)

A, B, C = b"SESSION00A", b"SESSION00B", b"SESSION00C"


class Ear:
    """A feed opened at time 0, and what it handed out of each session."""

    def __init__(self, options: FeedOptions | None = None) -> None:
        self.now = 0.0
        self.feed = Feed(options or FeedOptions(), random=Random(0), now=0.0)
        self.handed: dict[bytes, list[int]] = {}
        self.lost: dict[bytes, list[tuple[int, int, LossReason]]] = {}

    def hear(
        self, session: bytes, first: int, count: int = 1, *, origin: str = "origin", path: int = 0
    ) -> None:
        data = encode_packet(session, first, [b"%d" % n for n in range(first, first + count)])
        self.hear_raw(data, origin=origin, path=path)

    def hear_raw(self, data: bytes, *, origin: str = "origin", path: int = 0) -> None:
        self.take(self.feed.receive_datagram(data, self.now, origin=origin, path=path))

    def beat(self, session: bytes, number: int) -> None:
        self.hear_raw(encode_header(session, number, HEARTBEAT_COUNT))

    def end(self, session: bytes, number: int) -> None:
        self.hear_raw(encode_header(session, number, END_OF_SESSION_COUNT))

    def reply(self, session: bytes, first: int, count: int = 1, *, server: str = "origin") -> None:
        data = encode_packet(session, first, [b"%d" % n for n in range(first, first + count)])
        self.reply_raw(data, server=server)

    def reply_raw(self, data: bytes, *, server: str = "origin") -> None:
        self.take(self.feed.receive_reply(data, self.now, server=server))

    def requests(self) -> list[tuple[bytes, int, int, object]]:
        return [(*decode_header(data), server) for data, server in self.feed.requests_to_send()]

    def take(self, outputs: Outputs) -> None:
        for followed, output in outputs:
            followed.is_identified = True
            session = followed.receiver.session
            if isinstance(output, Run):
                numbers = [int(message) for message in output.messages]
                assert numbers == list(range(output.first, output.first + len(numbers)))
                self.handed.setdefault(session, []).extend(numbers)
            else:
                lost = (output.first, output.count, output.reason)
                self.lost.setdefault(session, []).append(lost)


@pytest.mark.parametrize(
    ("start", "is_good"), [(1, True), (2**64 - 1, True), (0, False), (2**64, False)]
)
def test_a_start_is_a_number_that_a_message_can_have(start: int, is_good: bool) -> None:
    if is_good:
        assert FeedOptions(start=start).start == start
    else:
        with pytest.raises(ConfigurationError, match="a number from 1 to"):
            FeedOptions(start=start)


def test_a_number_that_nobody_can_have_reached_is_not_believed() -> None:
    ear = Ear()
    ear.hear(A, 1)
    ear.now = 1.0
    ear.beat(A, 2**63)
    ear.hear(A, 2 + 2 * PLAUSIBLE_PER_S + 1)
    ear.hear(A, 2)
    assert (ear.handed[A], ear.feed.ignored) == ([1, 2], {"implausible": 2})
    assert ear.requests() == []
    ear.beat(A, 3 + PLAUSIBLE_PER_S)
    assert ear.feed.sessions[A].receiver.gaps.missing == PLAUSIBLE_PER_S


def test_a_stream_whose_messages_came_is_not_asked_who_it_is() -> None:
    ear = Ear()
    ear.beat(A, 5)
    assert ear.requests() == [(A, 4, 1, "origin")], "nothing has come: an old one tells"
    data = encode_packet(A, 5, [b"what nobody can read"])
    ear.feed.receive_datagram(data, 0.0, origin="origin")
    ear.beat(A, 6)
    assert ear.requests() == []


# -- sessions ------------------------------------------------------------------------------------


def test_several_sessions_on_one_group_are_followed_side_by_side() -> None:
    ear = Ear()
    for number in range(1, 4):
        ear.hear(A, number)
        ear.hear(B, number + 100)
    assert ear.handed == {A: [1, 2, 3], B: [101, 102, 103]}
    assert ear.requests() == []


def test_a_gap_in_one_session_does_not_hold_up_another() -> None:
    ear = Ear()
    for session in (A, B):
        ear.hear(session, 1)
    ear.hear(A, 3)
    ear.hear(B, 2)
    assert ear.handed == {A: [1], B: [1, 2]}
    assert ear.requests() == [(A, 2, 1, "origin")]


def test_a_publisher_that_restarts_is_followed_from_its_first_message() -> None:
    ear = Ear()
    ear.hear(A, 500)
    ear.now = SETTLING_S + 0.1
    ear.hear(B, 3)
    assert ear.requests() == [(B, 1, 2, "origin")]
    ear.reply(B, 1, 2)
    assert ear.handed == {A: [500], B: [1, 2, 3]}


def test_only_wanted_sessions_are_followed() -> None:
    ear = Ear(FeedOptions(sessions=frozenset({A})))
    ear.hear(A, 1)
    ear.hear(B, 1)
    ear.beat(B, 2)
    assert ear.handed == {A: [1]}
    assert ear.feed.ignored == {"foreign_session": 2}


@pytest.mark.parametrize(("limit", "ignored"), [(1, 2), (2, 1), (3, 0), (4, 0)])
def test_the_number_of_sessions_is_bounded(limit: int, ignored: int) -> None:
    ear = Ear(FeedOptions(max_sessions=limit))
    for session in (A, B, C):
        ear.hear(session, 1)
    assert len(ear.feed.sessions) == 3 - ignored
    assert ear.feed.ignored["too_many_sessions"] == ignored


def test_a_session_that_ended_makes_room_for_a_new_one() -> None:
    ear = Ear(FeedOptions(max_sessions=1))
    ear.hear(A, 1)
    ear.end(A, 2)
    ear.hear(B, 1)
    assert ear.handed == {A: [1], B: [1]}


def test_a_session_unheard_for_long_makes_room_for_a_new_one() -> None:
    ear = Ear(FeedOptions(max_sessions=1))
    ear.hear(A, 1)
    ear.now = FORGET_AFTER_S - 0.1
    ear.hear(B, 1)
    assert list(ear.feed.sessions) == [A]
    ear.now = FORGET_AFTER_S + 0.1
    ear.hear(B, 1)
    assert list(ear.feed.sessions) == [B]


def test_a_session_with_something_missing_is_not_let_go() -> None:
    ear = Ear(FeedOptions(max_sessions=1))
    ear.hear(A, 1)
    ear.end(A, 3)
    ear.hear(B, 1)
    assert list(ear.feed.sessions) == [A]


def test_a_session_that_was_let_go_is_not_handed_out_a_second_time() -> None:
    ear = Ear(FeedOptions(start="first", max_sessions=1))
    ear.hear(A, 1, 5)
    ear.end(A, 6)
    ear.hear(B, 1)
    ear.end(B, 2)
    ear.end(A, 6)
    ear.reply(A, 1, 5)
    ear.hear(A, 4, 2)
    assert ear.handed == {A: [1, 2, 3, 4, 5], B: [1]}


@pytest.mark.parametrize(("later", "asked"), [(MAX_FORGOTTEN - 1, []), (MAX_FORGOTTEN, [1])])
def test_how_far_a_session_came_is_remembered_of_so_many(later: int, asked: list[int]) -> None:
    ear = Ear(FeedOptions(start="first", max_sessions=1))
    for session in (A, *(b"%010d" % number for number in range(later))):
        ear.hear(session, 1)
        ear.end(session, 2)
    ear.hear(A, 2)
    assert [first for _, first, _, _ in ear.requests()] == asked


# -- where it begins -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "asked", "handed"),
    [
        ("live", [], [50, 51]),
        ("first", [(A, 1, 49, "origin")], []),
        (1, [(A, 1, 49, "origin")], []),
        (48, [(A, 48, 2, "origin")], []),
        (51, [], [51]),
    ],
)
def test_a_session_that_is_under_way_is_picked_up_where_the_subscription_says(
    start: Start, asked: list[object], handed: list[int]
) -> None:
    ear = Ear(FeedOptions(start=start))
    ear.hear(A, 50, 2)
    assert ear.requests() == asked
    assert ear.handed.get(A, []) == handed


def test_a_heartbeat_is_enough_to_pick_up_a_session() -> None:
    ear = Ear()
    ear.beat(A, 50)
    ear.hear(A, 51)
    assert (A, 50, 1, "origin") in ear.requests()


def test_a_session_goes_on_where_an_earlier_life_stopped() -> None:
    ear = Ear(FeedOptions(start="live", resume={A: 40}))
    ear.hear(A, 50)
    ear.hear(B, 50)
    assert ear.requests() == [(A, 40, 10, "origin")]
    assert ear.handed == {B: [50]}


@pytest.mark.parametrize("start", [0, -1, "last", True, 1.5])
def test_a_beginning_that_makes_no_sense_is_refused(start: object) -> None:
    with pytest.raises(ConfigurationError, match="expected 'live', 'first' or a number"):
        FeedOptions(start=start)  # type: ignore[arg-type]


def test_until_the_source_is_known_one_old_message_is_asked_for() -> None:
    ear = Ear()
    ear.beat(A, 50)
    assert ear.requests() == [(A, 49, 1, "origin")]
    ear.reply(A, 49)
    followed = ear.feed.sessions[A]
    assert followed.identity == b"49"
    assert ear.handed == {}
    followed.is_identified = True
    ear.beat(A, 50)
    assert ear.requests() == []


# -- servers -------------------------------------------------------------------------------------


def test_requests_go_where_the_data_came_from() -> None:
    ear = Ear()
    ear.hear(A, 1, origin="x")
    ear.hear(A, 3, origin="x")
    assert ear.requests() == [(A, 2, 1, "x")]


def test_configured_servers_are_asked_first_and_the_origin_after_them() -> None:
    ear = Ear(FeedOptions(servers=("s1", "s2")))
    ear.hear(A, 1, origin="x")
    ear.hear(A, 3, origin="x")
    asked = [server for *_, server in ear.requests()]
    while len(asked) < 4:
        due_at = ear.feed.next_timeout()
        assert due_at is not None
        ear.take(ear.feed.handle_timeout(due_at))
        asked += [server for *_, server in ear.requests()]
    assert asked == ["s1", "s2", "x", "s1"]


def test_a_spoofed_reply_from_no_server_is_counted_and_dropped() -> None:
    ear = Ear(FeedOptions(servers=("s1",)))
    ear.hear(A, 1)
    ear.hear(A, 3)
    ear.reply(A, 2, server="villain")
    ear.reply_raw(encode_header(A, 1000, HEARTBEAT_COUNT), server="villain")
    assert (ear.handed, ear.lost) == ({A: [1]}, {})
    assert ear.feed.ignored == {"foreign_reply": 2}
    ear.reply(A, 2, server="s1")
    assert ear.handed == {A: [1, 2, 3]}


def test_a_reply_for_a_session_not_followed_is_counted_and_dropped() -> None:
    ear = Ear()
    ear.hear(A, 1)
    ear.reply(B, 1)
    assert ear.feed.ignored == {"foreign_session": 1}
    assert B not in ear.feed.sessions


def test_a_server_that_says_no_ends_the_repair() -> None:
    ear = Ear()
    ear.hear(A, 1)
    ear.hear(A, 5)
    ear.reply_raw(encode_header(A, 4, HEARTBEAT_COUNT))
    assert ear.lost == {A: [(2, 2, LossReason.EVICTED)]}


@pytest.mark.parametrize(("origins", "kept"), [(7, 7), (8, 8), (9, 8)])
def test_the_origins_of_a_session_are_bounded(origins: int, kept: int) -> None:
    ear = Ear()
    for number in range(origins):
        ear.hear(A, 1 + number, origin=f"origin{number}")
    assert MAX_ORIGINS == 8
    assert len(ear.feed.sessions[A].origins) == kept
    assert ear.handed == {A: list(range(1, 1 + origins))}


# -- bad input, timers, the end ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"short", "short_header"),
        (encode_packet(A, 1, [b"abc"])[:-1], "truncated_block"),
        (encode_header(A, 1, 1), "wrong_count"),
        (encode_packet(A, 1, [b"abc"]) + b"!", "trailing_bytes"),
        (encode_header(A, 0, HEARTBEAT_COUNT), "bad_sequence"),
    ],
    ids=["short", "truncated", "wrong count", "trailing", "number zero"],
)
def test_malformed_datagrams_are_counted_by_reason_and_dropped(data: bytes, reason: str) -> None:
    ear = Ear()
    ear.hear_raw(data)
    ear.reply_raw(data)
    assert ear.feed.ignored == {reason: 2}
    assert ear.feed.sessions == {}


def test_the_timers_of_all_sessions_run() -> None:
    options = FeedOptions(receiver=ReceiverOptions(deadline_s=0.5))
    ear = Ear(options)
    assert ear.feed.next_timeout() is None
    for session in (A, B):
        ear.hear(session, 1)
        ear.hear(session, 3)
        ear.now += 0.2
    while (due_at := ear.feed.next_timeout()) is not None:
        ear.take(ear.feed.handle_timeout(due_at))
    assert ear.lost == {A: [(2, 1, LossReason.DEADLINE)], B: [(2, 1, LossReason.DEADLINE)]}
    assert ear.handed == {A: [1, 3], B: [1, 3]}


def test_closing_gives_up_what_is_missing_everywhere() -> None:
    ear = Ear()
    for session in (A, B):
        ear.hear(session, 1)
        ear.hear(session, 3)
    ear.take(ear.feed.end())
    assert ear.lost == {A: [(2, 1, LossReason.ENDED)], B: [(2, 1, LossReason.ENDED)]}
    assert ear.feed.next_timeout() is None
