"""`on_overflow="block"`: a publisher waits for a subscriber, and for how long."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from loopback import until

from onehop.transport import (
    ConfigurationError,
    Disconnected,
    Event,
    Publisher,
    Subscriber,
    open_publisher,
    open_subscriber,
)

TCP = "zmq+tcp://127.0.0.1:0"
WAIT_S = 20.0


@contextlib.contextmanager
def pair(**options: Any) -> Iterator[tuple[Publisher, Subscriber]]:
    options.setdefault("block_timeout_s", WAIT_S)
    options |= {"on_overflow": "block", "queue_events": 100}
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        open_subscriber(publisher.url, **options) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("q.x", "hello")
        first = subscriber.receive(WAIT_S)
        assert first is not None
        assert subscriber.receive(0.01) is None  # its credit is on its way
        wait_for_credit(publisher)
        yield publisher, subscriber


def wait_for_credit(publisher: Publisher) -> None:
    until(lambda: bool(publisher._streams.blockers), WAIT_S)  # type: ignore[attr-defined]


def publish_all(publisher: Publisher, count: int) -> threading.Thread:
    def run() -> None:
        for number in range(count):
            publisher.publish("q.x", number)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_slow_subscriber_loses_nothing_and_holds_little() -> None:
    with pair() as (publisher, subscriber):
        thread = publish_all(publisher, 5000)
        found: list[Any] = []
        most = 0
        while len(found) < 5000:
            event = subscriber.receive(WAIT_S)
            assert event is not None
            found.append(event.value)
            if len(found) % 500 == 0:
                time.sleep(0.01)  # slow
            most = max(most, publisher.stats.sent - len(found))
        thread.join(WAIT_S)
        ledger, stats = subscriber.ledger, publisher.stats

    assert found == list(range(5000))
    assert (ledger.lost_total, stats.disconnected) == (0, 0)
    assert most <= 250  # the window, and what passed before the wait


def test_publish_waits_until_the_application_goes_on() -> None:
    with pair() as (publisher, subscriber):
        thread = publish_all(publisher, 500)
        thread.join(0.3)
        assert thread.is_alive()
        assert publisher.stats.sent <= 250
        found = [subscriber.receive(WAIT_S) for _ in range(500)]
        thread.join(WAIT_S)

    assert [event.value for event in found if event is not None] == list(range(500))


def test_others_get_everything_meanwhile() -> None:
    with (
        pair() as (publisher, subscriber),
        open_subscriber(publisher.url) as other,
    ):
        publisher.ready(2, timeout_s=WAIT_S)
        thread = publish_all(publisher, 1000)
        for number in range(1000):
            mine, theirs = subscriber.receive(WAIT_S), other.receive(WAIT_S)
            assert mine is not None
            assert theirs is not None
            assert mine.value == theirs.value == number
        thread.join(WAIT_S)


def test_one_that_does_not_go_on_is_disconnected_and_all_is_accounted_for() -> None:
    with pair(block_timeout_s=0.3) as (publisher, subscriber):
        started = time.monotonic()
        for number in range(3000):
            publisher.publish("q.x", number)
        took_s = time.monotonic() - started
        until(lambda: subscriber.ledger.expected == 3001, WAIT_S)
        found: list[Any] = []
        with pytest.raises(Disconnected, match="waited block_timeout_s"):
            found.extend(event.value for event in subscriber)
        ledger, stats = subscriber.ledger, publisher.stats

    assert 0.3 <= took_s < 10
    assert stats.disconnected == 1
    assert found == list(range(len(found)))
    assert 100 <= len(found) < 3000
    assert ledger.lost == {"overflow": 3000 - len(found)}
    assert (ledger.expected, ledger.pending, ledger.is_balanced) == (3001, 0, True)


def test_one_that_leaves_is_waited_for_no_more() -> None:
    with pair() as (publisher, subscriber):
        thread = publish_all(publisher, 1000)
        thread.join(0.2)
        assert thread.is_alive()
        subscriber.close()
        thread.join(5.0)
        assert not thread.is_alive()
        assert publisher.stats.disconnected == 0


def test_in_an_event_loop_drain_waits() -> None:
    async def follow(subscriber: Subscriber, count: int) -> list[Any]:
        found: list[Any] = []
        async for event in subscriber:
            found.append(event.value)
            if len(found) == count:
                break
        return found

    async def speak(publisher: Publisher) -> int:
        most = 0
        for number in range(2000):
            publisher.publish("q.x", number)
            await publisher.drain()
            most = max(most, publisher._streams.blockers.full() != [])  # type: ignore[attr-defined]
        return most

    async def both(publisher: Publisher, subscriber: Subscriber) -> list[Any]:
        reading = asyncio.create_task(follow(subscriber, 2000))
        assert await speak(publisher) == 0
        return await asyncio.wait_for(reading, WAIT_S)

    with pair() as (publisher, subscriber):
        assert asyncio.run(both(publisher, subscriber)) == list(range(2000))
        assert subscriber.ledger.lost_total == 0


def test_a_late_joiner_that_blocks_gets_all_of_the_past() -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        publisher.publish_many(("q.x", number) for number in range(20_000))
        options: dict[str, Any] = {"on_overflow": "block", "queue_events": 50}
        with open_subscriber(publisher.url, start="first", **options) as subscriber:
            found: list[Any] = []
            for number in range(20_000):
                event = subscriber.receive(WAIT_S)
                assert isinstance(event, Event), f"{number}: {subscriber.ledger}"
                found.append(event.value)
            ledger = subscriber.ledger

    assert found == list(range(20_000))
    assert ledger.lost_total == 0


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), 3601.0])
def test_a_wait_that_makes_no_sense_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigurationError, match="block_timeout_s is"):
        open_subscriber("zmq+tcp://127.0.0.1:1", on_overflow="block", block_timeout_s=timeout_s)
