"""The publisher's streams, by hand: messages and the time in, messages out."""

import pytest

from onehop.transport import LimitError, RequestOptions, RingOptions
from onehop.transport.mold.wire import decode_header, decode_messages, encode_header
from onehop.transport.zeromq.streams import (
    MAX_SUBSCRIBERS,
    ROUND_S,
    TICK_S,
    Streams,
    StreamsOptions,
)
from onehop.transport.zeromq.wire import (
    EVERYONE,
    MAX_STREAMS,
    Announcement,
    decode_announcement,
    session_of,
)

NAME = b"0123456789abcdef"
HELLO = b"\x01\xff" + NAME
BYE = b"\x00\xff" + NAME


def streams_at(now: float = 0.0, **ring: int) -> Streams:
    streams = Streams("me", StreamsOptions(RingOptions(**ring), RequestOptions()), now, b"clock")
    streams.side = "tcp://*:5"
    return streams


def read(message: bytes) -> tuple[str, int, list[bytes]]:
    """Stream, first number and messages; heartbeats have none."""
    prefix, _, packet = message.partition(b"\0")
    header = decode_header(packet)
    return prefix.decode(), header.sequence, decode_messages(packet, header)


def data(messages: list[bytes]) -> list[tuple[str, int, list[bytes]]]:
    return [found for found in map(read, messages) if found[2]]


def told(messages: list[bytes]) -> list[tuple[bytes, Announcement]]:
    """Whom the announcements are for, and what they say."""
    return [
        (message[1:17], decode_announcement(message[17:]))
        for message in messages
        if message.startswith(b"\xff")
    ]


def test_each_stream_is_numbered_from_one() -> None:
    streams = streams_at()
    numbers = [streams.publish(name, None, b"x", 0.0) for name in ("a", "b", "a", "a", "b")]

    assert numbers == [1, 1, 2, 3, 2]
    assert streams.sent == 5
    assert data(streams.outlet.take_all()) == [("a", 1, [b"x"] * 3), ("b", 1, [b"x"] * 2)]
    assert streams.outlet.take_all() == []


def test_only_full_packets_leave_while_a_batch_is_made() -> None:
    streams = streams_at()
    streams.publish("a", None, b"x" * 20_000, 0.0)
    assert data(streams.outlet.take_full()) == []
    streams.publish("a", None, b"y" * 20_000, 0.0)
    assert [found[1] for found in data(streams.outlet.take_full())] == [1]
    assert [found[1] for found in data(streams.outlet.take_all())] == [2]


def test_a_newcomer_is_told_what_there_is_behind_all_that_was_numbered_before() -> None:
    streams = streams_at(100.0)
    streams.publish("a", None, b"1", 100.0)
    streams.publish("b", None, b"1", 100.0)
    streams.publish("a", None, b"2", 100.0)
    streams.receive_subscription(HELLO, 103.5)
    *before, last = streams.outlet.take_all()
    ((name, announcement),) = told([last])

    assert data(before) == [("a", 1, [b"1", b"2"]), ("b", 1, [b"1"])]
    assert name == NAME
    assert announcement.source == "me"
    assert announcement.epoch == streams.epoch
    assert (announcement.clock, announcement.opened_at) == (b"clock", 100.0)
    assert announcement.age_s == 3.5
    assert announcement.side == "tcp://*:5"
    assert announcement.streams == (("a", 0, 3), ("b", 1, 2))


def test_subscribers_count_when_they_have_been_told_all() -> None:
    streams = streams_at()
    streams.receive_subscription(b"\x01quotes\0", 0.0)
    streams.receive_subscription(HELLO, 0.0)
    streams.receive_subscription(HELLO, 0.0)  # it has come back
    assert len(streams.outlet.take_all()) == 2
    assert streams.subscribers == set()
    streams.receive_subscription(HELLO + b"otherone", 0.0)  # attached to somebody else
    assert streams.subscribers == set()
    streams.receive_subscription(HELLO + streams.epoch, 0.0)
    assert streams.subscribers == {NAME}
    streams.receive_subscription(BYE, 0.0)  # it says hello anew
    assert streams.subscribers == {NAME}
    streams.receive_subscription(BYE + streams.epoch, 0.0)
    assert streams.subscribers == set()
    assert streams.outlet.take_all() == []


@pytest.mark.parametrize("rubbish", [b"", b"\x02", b"hello", b"\x01\xff", b"\x01\xffshort"])
def test_rubbish_in_place_of_a_subscription_is_counted(rubbish: bytes) -> None:
    streams = streams_at()
    streams.receive_subscription(rubbish, 0.0)

    assert streams.ignored == {"malformed": 1}
    assert streams.outlet.take_all() == []


def test_subscribers_beyond_the_bound_are_counted_apart() -> None:
    streams = streams_at()
    for number in range(MAX_SUBSCRIBERS + 1):
        streams.receive_subscription(b"\x01\xff%016d" % number + streams.epoch, 0.0)

    assert len(streams.subscribers) == MAX_SUBSCRIBERS
    assert streams.ignored == {"too_many_subscribers": 1}


def test_streams_are_bounded_and_the_error_says_what_to_do() -> None:
    streams = streams_at()
    for number in range(MAX_STREAMS):
        streams.publish(f"s{number}", None, b"x", 0.0)
    with pytest.raises(LimitError, match=r"put what varies behind the first dot"):
        streams.publish("one more", None, b"x", 0.0)
    assert streams.publish("s0", None, b"x", 0.0) == 2


def run(streams: Streams, until: float) -> list[tuple[float, bytes, Announcement]]:
    """What is told while nothing is sent, and when."""
    found = []
    while (now := streams.next_timeout()) <= until:
        streams.handle_timeout(now)
        found += [(now, *one) for one in told(streams.outlet.take_all())]
    return found


def test_how_far_a_stream_is_follows_its_last_message_and_then_comes_once_a_second() -> None:
    streams = streams_at()
    streams.publish("a", None, b"x", 0.0)
    streams.outlet.take_all()
    found = run(streams, 5.0)

    assert [at for at, _, _ in found] == pytest.approx([TICK_S, 1, 2, 3, 4, 5])
    assert {name for _, name, _ in found} == {EVERYONE}
    assert {announcement.streams for _, _, announcement in found} == {(("a", 0, 2),)}


def test_only_the_streams_that_moved_are_told_between_the_rounds() -> None:
    streams = streams_at()
    for name in ("a", "b", "c"):
        streams.publish(name, None, b"x", 0.0)
    run(streams, 0.5)
    streams.publish("b", None, b"x", 0.6)
    ((_, _, announcement),) = run(streams, 0.9)

    assert announcement.streams == (("b", 1, 3),)


def test_while_messages_flow_it_is_told_every_tick() -> None:
    streams = streams_at()
    ticks = 0
    for step in range(100):
        now = step * TICK_S / 10
        streams.publish("a", None, b"x", now)
        streams.handle_timeout(now)
        ticks += len(told(streams.outlet.take_all()))

    assert ticks == pytest.approx(9, abs=1)


def test_very_many_streams_are_told_part_by_part() -> None:
    streams = streams_at()
    for number in range(2500):
        streams.publish(f"s{number}", None, b"x", 0.0)
    streams.outlet.take_all()
    found = run(streams, 0.9)  # those that moved
    assert [len(announcement.streams) for _, _, announcement in found] == [1024, 1024, 452]
    found = run(streams, 0.9 + 2 * ROUND_S)
    parts = [announcement.part for _, _, announcement in found]
    assert {announcement.parts for _, _, announcement in found} == {3}
    assert parts[:6] == [1, 2, 0, 1, 2, 0]
    assert sum(len(announcement.streams) for _, _, announcement in found[:3]) == 2500


def test_a_newcomer_to_very_many_streams_is_told_part_by_part() -> None:
    streams = streams_at()
    for number in range(2500):
        streams.publish(f"s{number}", None, b"x", 0.0)
    run(streams, 0.5)
    streams.receive_subscription(HELLO, 0.6)
    first = told(streams.outlet.take_all())
    assert [(name, one.part, one.parts) for name, one in first] == [(NAME, 0, 3)]
    streams.publish("s2499", None, b"y", 0.61)
    rest = [(name, one) for _, name, one in run(streams, 0.7) if name == NAME]
    assert [one.part for _, one in rest] == [1, 2]
    assert rest[1][1].streams[-1] == ("s2499", 2499, 3)


def test_each_stream_ends_with_an_end_of_session() -> None:
    streams = streams_at()
    streams.publish("a", None, b"x", 0.0)
    streams.publish("b", None, b"x", 0.0)
    streams.outlet.take_all()
    streams.end()
    ends = [message.partition(b"\0")[2] for message in streams.outlet.take_all()]

    assert [decode_header(packet)[1:] for packet in ends] == [(2, 0xFFFF), (2, 0xFFFF)]


def test_requests_of_every_stream_are_answered_from_its_ring() -> None:
    streams = streams_at()
    for number in range(3):
        streams.publish("a", None, b"a%d" % number, 0.0)
        streams.publish("b", None, b"b%d" % number, 0.0)
    streams.receive_request(encode_header(session_of(streams.epoch, 1), 2, 2), ("r", 0), 0.1)
    ((packet, requester),) = streams.replies(0.1)

    assert requester == ("r", 0)
    assert decode_messages(packet, decode_header(packet)) == [b"b1", b"b2"]
    assert streams.desk.counts["retransmitted"] == 2


def test_what_the_ring_has_let_go_is_said_to_be_gone() -> None:
    streams = streams_at(max_messages=4)
    for number in range(9):
        streams.publish("a", None, b"%d" % number, 0.0)
    session = session_of(streams.epoch, 0)
    streams.receive_request(encode_header(session, 1, 2), ("r", 0), 0.1)

    assert streams.replies(0.1) == [(encode_header(session, 6, 0), ("r", 0))]
