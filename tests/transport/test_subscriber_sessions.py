"""Several publishers, restarts, late joiners, filters: whose events a subscriber follows."""

import time
from functools import partial

import pytest
from loopback import Stranger, new_url, take, until, values

from onehop.transport import Event, LedgerSnapshot, Subscriber, open_publisher, open_subscriber
from onehop.transport.ledger import MAX_STREAMS
from onehop.transport.mold.feed import SETTLING_S

open_quick = partial(open_publisher, linger_s=0.0)


def by_source(ledger: LedgerSnapshot) -> dict[str, tuple[int, int]]:
    """First number and count of messages, for each source."""
    return {stream.source: (stream.first, stream.expected) for stream in ledger.streams}


# -- many on one group -----------------------------------------------------------------------------


@pytest.mark.twin
def test_two_publishers_on_one_group_are_told_apart() -> None:
    url = new_url()
    with (
        open_subscriber(url) as events,
        open_quick(url, "left") as left,
        open_quick(url, "right") as right,
    ):
        for n in range(200):
            left.publish("t", n)
            right.publish("t", -n)
        received = take(events, 400)
        ledger = events.ledger

    for publisher, expected in ((left, 1), (right, -1)):
        own = [event for event in received if event.source == publisher.source]
        assert [event.value for event in own] == [expected * n for n in range(200)]
        assert [event.sequence for event in own] == list(range(1, 201))
        assert {event.epoch for event in own} == {publisher.epoch}
    assert left.epoch != right.epoch
    assert by_source(ledger) == {"left": (1, 200), "right": (1, 200)}


@pytest.mark.twin
def test_two_subscribers_in_one_process_both_get_everything() -> None:
    url = new_url()
    with open_subscriber(url) as one, open_subscriber(url) as other, open_quick(url) as publisher:
        for n in range(100):
            publisher.publish("t", n)
        assert values(take(one, 100)) == values(take(other, 100)) == list(range(100))
        assert one.ledger.delivered == other.ledger.delivered == 100


def test_a_publisher_that_restarts_is_a_new_epoch_from_its_first_event() -> None:
    url = new_url()
    received: list[Event] = []
    with open_subscriber(url) as events:
        for life in range(3):
            with open_quick(url, "phoenix") as publisher:
                publisher.publish("t", (life, 1))
                publisher.publish("t", (life, 2))
                received += take(events, 2)
        ledger = events.ledger

    assert values(received) == [[life, n] for life in range(3) for n in (1, 2)]
    assert [event.sequence for event in received] == [1, 2] * 3
    assert len({event.epoch for event in received}) == 3
    assert [stream.source for stream in ledger.streams] == ["phoenix"] * 3
    assert ledger.lost_total == 0


def test_streams_that_ended_do_not_pile_up() -> None:
    url = new_url(payload="raw")
    lives = MAX_STREAMS + 300
    with open_subscriber(url) as events, Stranger(url) as stranger:
        for life in range(lives):
            stranger.send_packet(b"%010d" % life, 1, b"only")
            stranger.end_session(b"%010d" % life, 2)
            take(events, 1)
        ledger = events.ledger

    assert ledger.delivered == ledger.expected == lives
    assert len(ledger.streams) <= MAX_STREAMS + 1
    assert ledger.streams[0].stream == "finished"
    assert ledger.is_balanced


# -- where to begin --------------------------------------------------------------------------------


def heard(events: Subscriber) -> bool:
    return len(events.ledger.streams) == 1


@pytest.mark.twin
@pytest.mark.parametrize(
    ("start", "expected"), [("live", [6]), ("first", [1, 2, 3, 4, 5, 6]), (4, [4, 5, 6]), (6, [6])]
)
def test_a_late_joiner_begins_where_it_was_told(start: int, expected: list[int]) -> None:
    url = new_url()
    with open_quick(url, "s") as publisher:
        for n in range(1, 6):
            publisher.publish("t", n)
        with open_subscriber(url, start=start) as events:
            until(lambda: heard(events))
            publisher.publish("t", 6)
            received = take(events, len(expected))
            ledger = events.ledger

    assert values(received) == expected
    assert by_source(ledger) == {"s": (expected[0], len(expected))}
    assert ledger.is_balanced


def test_a_start_in_the_future_waits_for_that_number() -> None:
    url = new_url()
    with open_quick(url) as publisher, open_subscriber(url, start=5) as events:
        for n in range(1, 8):
            publisher.publish("t", n)
        assert values(take(events, 3)) == [5, 6, 7]
        assert events.ledger.expected == 3


def test_a_session_heard_later_is_new_and_is_delivered_from_its_first_event() -> None:
    url = new_url(payload="raw")
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(b"THEREFIRST", 10, b"ten")
        assert take(events, 1)[0].sequence == 10
        assert events.receive(SETTLING_S + 0.1) is None
        stranger.send_packet(b"COMESLATER", 2, b"two")
        session, first, count, asker = stranger.take_request()
        assert (session, first, count) == (b"COMESLATER", 1, 1)
        stranger.send_packet(b"COMESLATER", 1, b"one", to=asker)
        assert values(take(events, 2)) == [b"one", b"two"]


def test_a_late_joiner_knows_source_and_epoch_within_a_second_though_nothing_is_sent() -> None:
    url = new_url()
    with open_quick(url, "quiet") as publisher:
        publisher.publish("t", "long ago")
        with Stranger(url) as stranger:  # wait until heartbeats have decayed
            stranger.listen()
            beats = [time.monotonic()]
            while len(beats) < 3 or beats[-1] - beats[-2] < 0.3:
                stranger.hear()
                beats.append(time.monotonic())
        opened_at = time.monotonic()
        with open_subscriber(url) as events:
            until(lambda: heard(events) and events.ledger.streams[0].source == "quiet")
            elapsed_s = time.monotonic() - opened_at
            (stream,) = events.ledger.streams
            assert events.receive(0) is None, "what was asked for is not delivered"

    assert elapsed_s < 1.2
    assert (stream.epoch, stream.first, stream.expected) == (publisher.epoch, 2, 0)


# -- topics ----------------------------------------------------------------------------------------


@pytest.mark.twin
def test_topics_that_are_not_wanted_are_counted_as_filtered() -> None:
    url = new_url()
    topics = ["quotes.A", "quotes.B", "trades.A", "quote"]
    with (
        open_subscriber(url, ["quotes.A", "trades."]) as events,
        open_subscriber(url) as all_events,
        open_quick(url) as publisher,
    ):
        for n in range(40):
            publisher.publish(topics[n % 4], n)
        publisher.publish("quotes.B", bytes(3000))  # in three pieces
        publisher.publish("quotes.A", "end")
        received = take(events, 21)
        take(all_events, 42)
        ledger = events.ledger

    assert [event.topic for event in received] == ["quotes.A", "trades.A"] * 10 + ["quotes.A"]
    assert (ledger.expected, ledger.delivered, ledger.filtered) == (44, 21, 23)
    assert all_events.ledger.filtered == 0


def test_a_subscriber_of_one_session_ignores_and_counts_the_others() -> None:
    url = new_url(payload="raw")
    with open_subscriber(f"{url}&session=MINE") as events, Stranger(url) as stranger:
        stranger.send_packet(b"OTHERS    ", 1, b"no")
        stranger.send_packet(b"MINE      ", 1, b"yes")
        (event,) = take(events, 1)
        ledger = events.ledger

    assert (event.value, event.source) == (b"yes", "MINE")
    assert ledger.ignored == {"foreign_session": 1}
    assert len(ledger.streams) == 1


def test_the_end_of_a_session_is_no_loss() -> None:
    url = new_url(payload="raw")
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(b"SESSION001", 1, b"one")
        stranger.end_session(b"SESSION001", 2)
        stranger.send_packet(b"SESSION002", 1, b"two")
        assert values(take(events, 2)) == [b"one", b"two"]
        assert events.receive(0) is None
        assert events.ledger.lost_total == 0
