"""What an application does with a publisher, on loopback multicast and in memory."""

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from loopback import PATIENCE_S, Stranger, new_url, take, until, values

from onehop.transport import (
    Closed,
    ConfigurationError,
    LimitError,
    LocalError,
    RingOptions,
    UnsupportedValue,
    open_publisher,
    open_subscriber,
)
from onehop.transport.envelope import MAX_EVENT_BYTES
from onehop.transport.memory import MemoryNetwork

_names = itertools.count(1)
open_quick = partial(open_publisher, linger_s=0.0)


@pytest.fixture(params=["multicast", "memory"])
def url(request: pytest.FixtureRequest, memory_url: str) -> str:
    return new_url() if request.param == "multicast" else memory_url


@pytest.fixture
def memory_url() -> str:
    return f"memory://publisher-{next(_names)}"


# -- publishing ------------------------------------------------------------------------------------


@pytest.mark.twin
def test_events_arrive_whole_and_in_order(url: str) -> None:
    with open_subscriber(url) as events, open_quick(url, "quotes") as publisher:
        numbers = [
            publisher.publish("a.b", {"n": n}, key=f"k{n}", headers={"h": "1"}, occurred_at_ns=n)
            for n in range(100)
        ]
        received = take(events, 100)

    assert numbers == list(range(1, 101))
    assert [event.sequence for event in received] == numbers
    assert values(received) == [{"n": n} for n in range(100)]
    last = received[-1]
    assert (last.topic, last.key, last.headers) == ("a.b", "k99", {"h": "1"})
    assert (last.source, last.epoch, last.occurred_at_ns) == ("quotes", publisher.epoch, 99)
    assert 0 < last.sent_at_ns <= last.received_at_ns <= time.time_ns()


def test_publish_many_sends_everything_and_says_how_many(url: str) -> None:
    with open_subscriber(url) as events, open_quick(url) as publisher:
        assert publisher.publish_many((f"t.{n}", n) for n in range(1000)) == 1000
        received = take(events, 1000)

    assert values(received) == list(range(1000))
    assert [event.topic for event in received] == [f"t.{n}" for n in range(1000)]


def test_a_batch_packs_many_events_into_one_datagram() -> None:
    url = new_url()
    with Stranger(url) as stranger:
        stranger.listen()
        with open_quick(url) as publisher:
            with publisher.batch():
                for n in range(10):
                    publisher.publish("t", n)
            sequence, messages = stranger.hear_message()

    assert (sequence, len(messages)) == (1, 10)


def test_full_datagrams_leave_before_the_batch_ends() -> None:
    url = new_url()
    with open_subscriber(url) as events, open_quick(url) as publisher:
        with publisher.batch():
            for _ in range(100):
                publisher.publish("t", bytes(100))
            early = take(events, 50)
        late = take(events, 100 - len(early))

    assert [event.sequence for event in early + late] == list(range(1, 101))


def test_a_batch_that_takes_its_time_keeps_nobody_waiting() -> None:
    url = new_url()
    with open_subscriber(url) as early, open_quick(url, "me") as publisher, publisher.batch():
        publisher.publish("t", 1)
        assert values(take(early, 1)) == [1]
        with open_subscriber(url) as late:
            until(lambda: bool(late.ledger.streams) and late.ledger.streams[0].source == "me")
            assert late.ledger.expected == 0


def test_a_batch_inside_a_batch_leaves_the_outer_one_packing() -> None:
    url = new_url()
    with Stranger(url) as stranger:
        stranger.listen()
        with open_quick(url) as publisher, publisher.batch():
            publisher.publish_many([("t", 1), ("t", 2)])
            publisher.publish("t", 3)
            publisher.publish("t", 4)
        packed = [len(stranger.hear_message()[1]) for _ in range(2)]

    assert packed == [2, 2]


def test_a_batch_that_fails_in_the_middle_sends_what_came_before(url: str) -> None:
    with open_subscriber(url) as events, open_quick(url) as publisher:
        with pytest.raises(UnsupportedValue):
            publisher.publish_many([("t", 1), ("t", object()), ("t", 3)])
        assert values(take(events, 1)) == [1]
        assert publisher.stats.sent == 1


def test_an_event_larger_than_a_packet_travels_in_a_batch_too() -> None:
    url = new_url()
    big = bytes(5000)
    with open_subscriber(url) as events, open_quick(url) as publisher:
        with publisher.batch():
            publisher.publish("t", "before")
            number = publisher.publish("t", big)
            publisher.publish("t", "behind")
        received = take(events, 3)

    assert values(received) == ["before", big, "behind"]
    assert [event.sequence for event in received] == [1, number, number + 1]
    assert number > 2, "it has several pieces, and the number of the last"


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns a thousand times as often, so that what needs a lock shows it."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(usual_s / 1000)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_publish_at_once_get_every_number_once(url: str) -> None:
    def publish(thread: int) -> list[int]:
        return [publisher.publish(f"t.{thread}", n) for n in range(2000)]

    with open_subscriber(url) as events, open_quick(url) as publisher:
        with ThreadPoolExecutor(4) as threads:
            numbers = list(threads.map(publish, range(4)))
        received = take(events, 8000)

    assert sorted(number for of_one in numbers for number in of_one) == list(range(1, 8001))
    assert all(a < b for of_one in numbers for a, b in itertools.pairwise(of_one))
    assert [event.sequence for event in received] == list(range(1, 8001))
    for thread, of_one in enumerate(numbers):
        assert [e.sequence for e in received if e.topic == f"t.{thread}"] == of_one


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "value", "error"),
    [
        ("", 1, LimitError),
        ("t" * 256, 1, LimitError),
        ("t", object(), UnsupportedValue),
        ("t", 2**64, UnsupportedValue),
        ("t", bytes(MAX_EVENT_BYTES), LimitError),
    ],
)
def test_a_value_that_cannot_be_sent_raises_and_uses_no_number(
    memory_url: str, topic: str, value: object, error: type[LocalError]
) -> None:
    with open_quick(memory_url) as publisher:
        with pytest.raises(error):
            publisher.publish(topic, value)
        assert publisher.publish("t", "next") == 1
        assert publisher.stats.events == 1


def test_raw_payload_takes_bytes_that_fit_a_packet_and_nothing_else() -> None:
    with open_quick(new_url(payload="raw", packet=200)) as publisher:
        assert publisher.publish("", bytes(178)) == 1
        with pytest.raises(LimitError, match="179 bytes"):
            publisher.publish("", bytes(179))
        with pytest.raises(LimitError, match="not str"):
            publisher.publish("", "text")
        assert publisher.stats.sent == 1


def test_a_closed_publisher_raises(url: str) -> None:
    publisher = open_quick(url)
    publisher.publish("t", 1)
    publisher.close()
    publisher.close()

    with pytest.raises(Closed):
        publisher.publish("t", 2)
    with pytest.raises(Closed):
        publisher.publish_many([("t", 2)])
    publisher.flush()
    assert publisher.stats.sent == 1


# -- waiting for subscribers -----------------------------------------------------------------------


def test_in_memory_a_publisher_waits_until_its_subscribers_are_there() -> None:
    with MemoryNetwork() as network, open_quick(network.url) as publisher:
        opened = threading.Event()

        def wait() -> None:
            publisher.ready(2, timeout_s=PATIENCE_S)
            opened.set()

        thread = threading.Thread(target=wait)
        thread.start()
        with open_subscriber(network.url):
            assert not opened.wait(0.05)
            with open_subscriber(network.url):
                assert opened.wait(PATIENCE_S)
        thread.join()


def test_subscribers_that_do_not_come_are_an_error_that_counts_them() -> None:
    with (
        MemoryNetwork() as network,
        open_quick(network.url) as publisher,
        open_subscriber(network.url),
        pytest.raises(LocalError, match="1 of 2 subscribers"),
    ):
        publisher.ready(2, timeout_s=0.01)


def test_over_multicast_nobody_can_wait_for_subscribers() -> None:
    with open_quick(new_url()) as publisher, pytest.raises(ConfigurationError, match="cannot know"):
        publisher.ready()


# -- repairs, seen from the publisher --------------------------------------------------------------


def test_requests_are_answered_and_counted_for_each_requester() -> None:
    url = new_url(payload="raw", session="TENLETTERS")
    with Stranger(url) as asker, open_quick(url) as publisher:
        for n in range(5):
            publisher.publish("", b"%d" % n)
        where = publisher.address
        asker.send_packet(b"TENLETTERS", 2, to=(where[0], where[1]))  # asks for nothing: count 0
        asker.send(b"TENLETTERS" + (2).to_bytes(8, "big") + (3).to_bytes(2, "big"), where[:2])
        reply = asker.socket.recv(2048)
        until(lambda: publisher.stats.ignored_requests.get("malformed") == 1)
        stats = publisher.stats
        counts = publisher.requesters[asker.socket.getsockname()]

    assert reply[:20] == b"TENLETTERS" + (2).to_bytes(8, "big") + (3).to_bytes(2, "big")
    assert reply[20:] == b"\0\x011" + b"\0\x012" + b"\0\x013"
    assert (stats.requests, stats.requests_served, stats.retransmitted) == (1, 1, 3)
    assert (counts.requests, counts.messages, counts.bytes) == (1, 3, len(reply))


def test_stats_tell_messages_from_events_and_what_the_ring_still_has() -> None:
    with open_quick(new_url(), "me", ring=RingOptions(max_messages=10)) as publisher:
        publisher.publish("t", bytes(3000))
        publisher.publish_many(("t", n) for n in range(20))
        stats = publisher.stats

    assert (stats.source, stats.epoch) == ("me", publisher.epoch)
    assert stats.events == 21
    assert stats.sent == 23, "three pieces and twenty events"
    assert stats.ring_first == 14
    assert len(stats.session) == 10


# -- ending ----------------------------------------------------------------------------------------


def test_close_lingers_for_repairs_and_no_longer() -> None:
    url = new_url(payload="raw", session="TENLETTERS")
    publisher = open_publisher(url, linger_s=0.4)
    publisher.publish("", b"kept")
    where = publisher.address
    closing = threading.Thread(target=publisher.close)
    started = time.monotonic()
    with Stranger(url) as asker:
        asker.listen()
        closing.start()
        while asker.hear()[2] != 0xFFFF:
            pass  # heartbeats from before
        asker.send(b"TENLETTERS" + (1).to_bytes(8, "big") + (1).to_bytes(2, "big"), where[:2])
        assert asker.socket.recv(2048).endswith(b"kept")
    closing.join()

    assert 0.4 <= time.monotonic() - started < 5.0


def test_a_publisher_that_sent_nothing_does_not_linger(memory_url: str) -> None:
    publisher = open_publisher(memory_url, linger_s=60.0)
    started = time.monotonic()
    publisher.close()

    assert time.monotonic() - started < 1.0


def test_the_last_event_before_close_is_repaired_when_it_was_lost() -> None:
    with MemoryNetwork() as network, open_subscriber(network.url) as events:
        publisher = open_publisher(network.url, linger_s=0.5)
        publisher.publish("t", "first")
        take(events, 1)
        network.partition()
        publisher.publish("t", "last")
        network.heal()
        closing = threading.Thread(target=publisher.close)
        closing.start()
        assert values(take(events, 1)) == ["last"]
        assert events.ledger.recovered == 1
        closing.join()
