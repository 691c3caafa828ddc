"""Many streams, many lives, many topics, and other strains that once broke something."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from loopback import until

from onehop.transport import (
    ConfigurationError,
    LocalError,
    Subscriber,
    open_publisher,
    open_subscriber,
)
from onehop.transport.zeromq import publisher as publisher_module

TCP = "zmq+tcp://127.0.0.1:0"
WAIT_S = 20.0


def values(subscriber: Subscriber, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        event = subscriber.receive(WAIT_S)
        assert event is not None, f"{len(found)} of {count} came: {subscriber.ledger}"
        found.append(event.value)
    return found


def test_more_streams_than_zeromq_keeps_messages_are_all_whole() -> None:
    with (
        open_publisher(TCP + "?hwm=5", "me", linger_s=0.0) as publisher,
        open_subscriber(publisher.url) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        for number in range(4000):
            publisher.publish(f"s{number % 200}.x", number)
        found = values(subscriber, 4000)
        ledger = subscriber.ledger

    assert sorted(found) == list(range(4000))
    assert ledger.recovered > 0
    assert (ledger.expected, ledger.delivered, ledger.lost_total) == (4000, 4000, 0)


def test_a_newcomer_to_more_streams_than_one_announcement_names() -> None:
    with open_publisher(TCP + "?hwm=2", "me", linger_s=0.0) as publisher:
        publisher.publish_many((f"s{number}.x", "old") for number in range(2500))
        with open_subscriber(publisher.url) as subscriber:
            publisher.ready(timeout_s=WAIT_S)
            for number in (0, 1500, 2499):
                publisher.publish(f"s{number}.x", number)
            assert sorted(values(subscriber, 3)) == [0, 1500, 2499]
            assert subscriber.ledger.expected == 3


def test_each_life_of_a_publisher_with_many_streams_is_taken() -> None:
    streams = 3800  # five lives are more than are known at once
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        url = publisher.url
    with open_subscriber(url, queue_events=100_000) as subscriber:
        for life in range(6):
            with open_publisher(url, "me", linger_s=0.0) as publisher:
                publisher.ready(timeout_s=WAIT_S)
                publisher.publish_many((f"s{number}.x", life) for number in range(streams))
                assert values(subscriber, streams) == [life] * streams


def test_a_publisher_that_nothing_is_asked_of_costs_no_connection(tmp_path: Path) -> None:
    url = f"zmq+ipc://{tmp_path}/in?bind=subscriber"
    with open_subscriber(url) as subscriber:
        counts = []
        for life in range(30):
            with open_publisher(url, f"job{life}", linger_s=0.0) as publisher:
                publisher.ready(timeout_s=WAIT_S)
                publisher.publish("q.x", life)
                assert values(subscriber, 1) == [life]
            counts.append(len(os.listdir("/proc/self/fd")))

    assert max(counts[5:]) - min(counts[5:]) < 6, counts


def test_thousands_of_topics_are_all_subscribed_to() -> None:
    topics = [f"t{number}.x" for number in range(3000)]
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        open_subscriber(publisher.url, topics) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish_many((topic, topic) for topic in topics)
        assert sorted(values(subscriber, 3000)) == sorted(topics)


def test_closing_in_a_signal_handler_ends_a_wait() -> None:
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        open_subscriber(publisher.url) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("q.x", 1)
        values(subscriber, 1)
        before = signal.signal(signal.SIGALRM, lambda *_: subscriber.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert subscriber.receive(WAIT_S) is None
        finally:
            signal.signal(signal.SIGALRM, before)


def test_an_idle_publisher_sleeps() -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        publisher.publish("q.x", 1)
        time.sleep(0.1)  # the ticks after the event
        cpu_s, started = time.process_time(), time.monotonic()
        while time.monotonic() < started + 1.0:
            time.sleep(0.25)
        assert time.process_time() - cpu_s < 0.2


def test_a_unix_socket_that_somebody_has_is_not_taken_away(tmp_path: Path) -> None:
    url = f"zmq+ipc://{tmp_path}/s"
    with (
        open_publisher(url, "me", linger_s=0.0),
        pytest.raises(LocalError, match="Address already in use"),
    ):
        open_publisher(url, "other")
    with open_publisher(url, "me", linger_s=0.0):  # what a dead one left is
        pass


def test_a_star_in_a_path_is_part_of_it(tmp_path: Path) -> None:
    with open_publisher(f"zmq+ipc://{tmp_path}/a*b", "me", linger_s=0.0) as publisher:
        publisher.publish_many(("q.x", number) for number in range(5))
        with open_subscriber(publisher.url, start="first") as subscriber:
            assert values(subscriber, 5) == list(range(5))


def test_a_publisher_binds_to_every_endpoint_it_is_given() -> None:
    with open_publisher("zmq+tcp://127.0.0.1:0,127.0.0.2:0", "me", linger_s=0.0) as publisher:
        one, two = publisher.url.removeprefix("zmq+tcp://").split(",")
        assert not one.endswith(":0")
        publisher.publish("q.x", "before")
        with (
            open_subscriber(f"zmq+tcp://{one}", start="first") as first,
            open_subscriber(f"zmq+tcp://{two}", start="first") as second,
        ):
            publisher.ready(2, timeout_s=WAIT_S)
            publisher.publish("q.x", "after")
            assert values(first, 2) == values(second, 2) == ["before", "after"]


def test_what_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="cannot connect to port 0"):
        open_subscriber(TCP)
    with pytest.raises(ConfigurationError, match="at most 255 bytes"):
        open_subscriber("zmq+tcp://127.0.0.1:1", ["x" * 256])
    with pytest.raises(ConfigurationError, match="linger_s is inf"):
        open_publisher(TCP, linger_s=float("inf"))


@pytest.mark.parametrize("pause_s", [publisher_module.REST_S, 3600.0])
def test_one_that_joins_in_a_flood_misses_nothing_after_ready(
    pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "REST_S", pause_s)  # an hour: it never pauses so long
    with open_publisher(TCP + "?hwm=2", "me", linger_s=0.0) as publisher:
        is_over = threading.Event()

        def flood() -> None:
            while not is_over.is_set():
                publisher.publish("q.x", "flood")

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            for _ in range(5):
                with open_subscriber(publisher.url, queue_events=10**6) as subscriber:
                    publisher.ready(timeout_s=WAIT_S)
                    number = publisher.publish("q.x", "after ready")
                    first = subscriber.ledger.streams
                    while (event := subscriber.receive(WAIT_S)) is not None:
                        if event.value == "after ready":
                            break
                    assert event is not None
                    assert event.sequence == number
                    assert all(stream.first <= number for stream in first)
                until(lambda: not publisher._count_subscribers(), WAIT_S)
        finally:
            is_over.set()
            thread.join()
