"""Publishers and subscribers over ZeroMQ, on real sockets of this machine."""

import asyncio
import contextlib
import enum
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onehop.transport import (
    Closed,
    Disconnected,
    Event,
    LimitError,
    LocalError,
    Loss,
    Publisher,
    RingOptions,
    Subscriber,
    open_publisher,
    open_subscriber,
)

TCP = "zmq+tcp://127.0.0.1:0"
WAIT_S = 10.0


@contextlib.contextmanager
def pair(
    url: str = TCP,
    topics: tuple[str, ...] = (),
    ring: RingOptions | None = None,
    options: str = "",
    **how: Any,
) -> Iterator[tuple[Publisher, Subscriber]]:
    with (
        open_publisher(url + options, "me", linger_s=0.0, ring=ring) as publisher,
        open_subscriber(publisher.url, topics, **how) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        yield publisher, subscriber


def values(subscriber: Subscriber, count: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(count):
        event = subscriber.receive(WAIT_S)
        assert event is not None, f"{len(found)} of {count} came: {subscriber.ledger}"
        found.append(event.value)
    return found


@pytest.fixture(params=["tcp", "ipc", "ipv6"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "tcp": TCP,
        "ipc": f"zmq+ipc://{tmp_path}/s",
        "ipv6": "zmq+tcp://[::1]:0",
    }[str(request.param)]


def test_the_very_first_event_after_ready_arrives(url: str) -> None:
    with pair(url) as (publisher, subscriber):
        number = publisher.publish("quotes.AAPL", {"price": 101.5}, key="AAPL", headers={"a": "b"})
        event = subscriber.receive(WAIT_S)

    assert event is not None
    assert event[:7] == (
        "quotes.AAPL", {"price": 101.5}, "AAPL", "me", publisher.epoch, "quotes", number,
    )  # fmt: skip
    assert event.headers == {"a": "b"}
    assert event.occurred_at_ns == event.sent_at_ns <= event.received_at_ns
    assert number == 1


class Topic(enum.StrEnum):
    QUOTE = "quotes.AAPL"


def test_a_topic_may_be_an_enumeration_of_texts() -> None:
    with pair(topics=("quotes.",)) as (publisher, subscriber):
        for _ in range(2):
            publisher.publish(Topic.QUOTE, "x", key=Topic.QUOTE)
        found = [subscriber.receive(WAIT_S) for _ in range(2)]

    assert [(e.topic, e.key, e.stream) for e in found if e] == [
        ("quotes.AAPL", "quotes.AAPL", "quotes")
    ] * 2


@pytest.mark.parametrize("topic", [5, None, b"q.x"])
def test_a_topic_that_is_no_text_is_refused_with_a_word(topic: Any) -> None:
    with (
        open_publisher(TCP, linger_s=0.0) as publisher,
        pytest.raises(LimitError, match=r"topic is a .*, expected text"),
    ):
        publisher.publish(topic, 1)


def test_a_spinning_subscriber_lets_other_threads_run() -> None:
    turns = 0
    with pair(spin=True) as (publisher, subscriber):
        is_over = threading.Event()
        publisher.publish("q.x", 0)
        assert values(subscriber, 1) == [0]

        def spin() -> None:
            while not is_over.is_set():
                subscriber.receive(0.05)

        thread = threading.Thread(target=spin)
        thread.start()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            time.sleep(0.0005)
            turns += 1
        is_over.set()
        thread.join()
    assert turns > 100


def test_events_of_many_streams_come_in_order_and_are_numbered_per_stream() -> None:
    with pair() as (publisher, subscriber):
        for number in range(3000):
            publisher.publish(f"s{number % 30}.x", number)
        values(subscriber, 0)
        events = [subscriber.receive(WAIT_S) for _ in range(3000)]
        ledger = subscriber.ledger

    by_stream: dict[str, list[Event]] = {}
    for event in events:
        assert event is not None
        by_stream.setdefault(event.stream, []).append(event)
    assert set(by_stream) == {f"s{number}" for number in range(30)}
    for name, found in by_stream.items():
        assert [event.sequence for event in found] == list(range(1, 101))
        assert [event.value for event in found] == list(range(int(name[1:]), 3000, 30))
    assert ledger.is_balanced
    assert (ledger.expected, ledger.delivered, ledger.duplicates) == (3000, 3000, 0)


def test_streams_are_filtered_at_the_sender_and_topics_here() -> None:
    with pair(topics=("quotes.A", "ord")) as (publisher, subscriber):
        for topic in ("quotes.A1", "quotes.B", "trades.A", "orders.X", "quotes.A2"):
            publisher.publish(topic, topic)
        assert sorted(values(subscriber, 3)) == ["orders.X", "quotes.A1", "quotes.A2"]
        ledger = subscriber.ledger

    assert (ledger.expected, ledger.delivered, ledger.filtered) == (4, 3, 1)
    assert {stream.stream for stream in ledger.streams} == {"quotes", "orders"}


def test_batches_and_large_events_go_together() -> None:
    with pair() as (publisher, subscriber):
        with publisher.batch():
            for number in range(2000):
                publisher.publish("quotes.A", number)
        publisher.publish("quotes.A", b"x" * 1_000_000)
        publisher.publish_many(("quotes.B", number) for number in range(500))
        found = values(subscriber, 2501)
        ledger, sent = subscriber.ledger, publisher.stats

    assert found == [*range(2000), b"x" * 1_000_000, *range(500)]
    assert sent.events == 2501
    assert ledger.delivered == sent.sent > 2501


def test_a_late_joiner_chooses_where_to_begin() -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        publisher.publish_many(("quotes.A", number) for number in range(1, 5001))
        publisher.publish("trades.A", "only")
        with (
            open_subscriber(publisher.url, ["quotes."], start="first") as first,
            open_subscriber(publisher.url, ["quotes."], start=4000) as numbered,
            open_subscriber(publisher.url, ["quotes."]) as live,
        ):
            publisher.ready(3, timeout_s=WAIT_S)
            publisher.publish("quotes.A", 5001)
            assert values(first, 5001) == list(range(1, 5002))
            assert values(numbered, 1002) == list(range(4000, 5002))
            assert values(live, 1) == [5001]
            ledgers = [subscriber.ledger for subscriber in (first, numbered, live)]

    assert [ledger.expected for ledger in ledgers] == [5001, 1002, 1]
    assert [ledger.delivered for ledger in ledgers] == [5001, 1002, 1]
    assert [ledger.recovered for ledger in ledgers] == [5000, 1001, 0]


def test_what_the_ring_has_let_go_is_told_as_one_loss() -> None:
    ring = RingOptions(max_messages=100)
    with open_publisher(TCP, "me", linger_s=0.0, ring=ring) as publisher:
        publisher.publish_many(("quotes.A", number) for number in range(1, 1001))
        with open_subscriber(publisher.url, start="first") as subscriber:
            items = subscriber.with_losses(WAIT_S)
            loss = next(items)
            found = [next(items) for _ in range(100)]
            ledger = subscriber.ledger

    assert isinstance(loss, Loss)
    assert (loss.source, loss.stream, loss.first, loss.count, loss.reason) == (
        "me", "quotes", 1, 900, "evicted",
    )  # fmt: skip
    assert [item.value for item in found if isinstance(item, Event)] == list(range(901, 1001))
    assert (ledger.expected, ledger.delivered, ledger.lost) == (1000, 100, {"evicted": 900})


def test_a_stream_that_begins_later_is_followed_from_its_first_event() -> None:
    with pair() as (publisher, subscriber):
        publisher.publish("a.x", 1)
        values(subscriber, 1)
        publisher.publish("b.x", 2)
        publisher.publish("b.x", 3)
        assert values(subscriber, 2) == [2, 3]
        assert [stream.first for stream in subscriber.ledger.streams] == [1, 1]


def test_a_publisher_that_restarts_is_a_new_epoch_from_its_first_event() -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        url = publisher.url
        publisher.publish_many(("q.x", number) for number in range(1000))
        with open_subscriber(url) as subscriber:
            publisher.ready(timeout_s=WAIT_S)
            publisher.publish("q.x", "before")
            assert values(subscriber, 1) == ["before"]
            publisher.close()
            with open_publisher(url, "me", linger_s=0.0) as again:
                again.publish("q.x", "at once")  # nobody is there yet
                again.ready(timeout_s=WAIT_S)
                again.publish("q.x", "after")
                assert values(subscriber, 2) == ["at once", "after"]
                ledger = subscriber.ledger

    assert again.epoch != publisher.epoch
    assert [(s.epoch, s.first, s.expected, s.delivered) for s in ledger.streams] == [
        (publisher.epoch, 1001, 1, 1),
        (again.epoch, 1, 2, 2),
    ]
    assert ledger.lost_total == 0


def test_a_subscriber_may_be_there_first() -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        url = publisher.url
    with open_subscriber(url) as subscriber:
        assert subscriber.receive(0.1) is None
        with open_publisher(url, "me", linger_s=0.0) as publisher:
            publisher.publish("q.x", 1)
            assert values(subscriber, 1) == [1]


def test_one_subscriber_hears_several_publishers() -> None:
    with contextlib.ExitStack() as stack:
        publishers = [
            stack.enter_context(open_publisher(TCP, f"p{number}", linger_s=0.0))
            for number in range(3)
        ]
        where = ",".join(publisher.url.removeprefix("zmq+tcp://") for publisher in publishers)
        subscriber = stack.enter_context(open_subscriber(f"zmq+tcp://{where}"))
        for publisher in publishers:
            publisher.ready(timeout_s=WAIT_S)
            publisher.publish_many(("q.x", (publisher.source, number)) for number in range(100))
        found = values(subscriber, 300)
        ledger = subscriber.ledger

    for publisher in publishers:
        assert [number for source, number in found if source == publisher.source] == list(
            range(100)
        )
    assert {stream.source for stream in ledger.streams} == {"p0", "p1", "p2"}
    assert ledger.is_balanced


def test_the_subscriber_binds_when_told_so(tmp_path: Path) -> None:
    url = f"zmq+ipc://{tmp_path}/in?bind=subscriber"
    with (
        open_subscriber(url) as subscriber,
        open_publisher(url, "p1", linger_s=0.0) as one,
    ):
        one.publish("q.x", "before anybody listened")
        one.ready(timeout_s=WAIT_S)
        assert values(subscriber, 1) == ["before anybody listened"]
        with open_publisher(url.replace("ipc", "ipc"), "p2", linger_s=0.0) as two:
            two.ready(timeout_s=WAIT_S)
            two.publish("q.x", 2)
            one.publish("q.x", 3)
            assert sorted(values(subscriber, 2)) == [2, 3]


def test_what_zeromq_drops_at_its_high_water_mark_is_repaired() -> None:
    with pair(options="?hwm=1") as (publisher, subscriber):
        for number in range(20_000):
            publisher.publish("q.x", number)
        found = values(subscriber, 20_000)
        ledger = subscriber.ledger

    assert found == list(range(20_000))
    assert ledger.recovered > 0
    assert ledger.lost_total == 0


def test_async_for_sees_the_same() -> None:
    async def follow(url: str, publisher: Publisher) -> list[Any]:
        found: list[Any] = []
        async with open_subscriber(url) as events:
            await asyncio.to_thread(publisher.ready, timeout_s=WAIT_S)
            publisher.publish_many(("q.x", number) for number in range(5000))
            for number in range(5000, 5100):
                publisher.publish("q.x", number)
            async for event in events:
                found.append(event.value)
                if len(found) == 5100:
                    break
            publisher.publish("q.x", "after a pause")
            found.append((await anext(aiter(events))).value)
        return found

    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        found = asyncio.run(asyncio.wait_for(follow(publisher.url, publisher), 30))
    assert found == [*range(5100), "after a pause"]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("drop_newest", list(range(10))),
        ("drop_oldest", list(range(990, 1000))),
        ("latest", [999]),
        ("spill", list(range(1000))),
        ("disconnect", list(range(10))),
    ],
)
def test_overflow_is_by_policy_and_in_the_ledger(policy: Any, kept: list[int]) -> None:
    with pair(on_overflow=policy, queue_events=10) as (publisher, subscriber):
        publisher.publish_many(("q.x", number) for number in range(1000))
        while subscriber.ledger.expected < 1000:  # the caretaker reads
            threading.Event().wait(0.001)
        found: list[Any] = []
        with contextlib.suppress(Disconnected):
            while (event := subscriber.receive(0.2)) is not None:
                found.append(event.value)
        ledger = subscriber.ledger

    assert found == kept
    assert ledger.lost == ({"overflow": 1000 - len(kept)} if len(kept) < 1000 else {})
    assert ledger.is_balanced


def test_threads_may_publish_at_once() -> None:
    with pair() as (publisher, subscriber):
        threads = [
            threading.Thread(
                target=lambda name=name: [publisher.publish("q.x", (name, n)) for n in range(500)]
            )
            for name in range(4)
        ]
        for thread in threads:
            thread.start()
        found = values(subscriber, 2000)
        for thread in threads:
            thread.join()

    for name in range(4):
        assert [number for who, number in found if who == name] == list(range(500))


def test_ready_says_how_many_came() -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        with pytest.raises(LocalError, match=r"0 of 1 subscribers after 0\.05 s"):
            publisher.ready(timeout_s=0.05)
        with open_subscriber(publisher.url):
            publisher.ready(timeout_s=WAIT_S)
            with pytest.raises(LocalError, match="1 of 2 subscribers"):
                publisher.ready(2, timeout_s=0.05)
        gone = threading.Event()
        while publisher._count_subscribers():
            assert not gone.wait(0.001)


def test_a_port_in_use_is_one_clear_sentence() -> None:
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        pytest.raises(LocalError, match=r"cannot bind to tcp://127\.0\.0\.1:\d+: Address already"),
    ):
        open_publisher(publisher.url, "me")


def test_a_directory_that_is_not_there_is_one_clear_sentence() -> None:
    with pytest.raises(LocalError, match=r"cannot bind to ipc:///no/such/place/s: No such file"):
        open_publisher("zmq+ipc:///no/such/place/s", "me")


def test_bad_calls_raise_and_harm_nothing() -> None:
    with pair() as (publisher, subscriber):
        with pytest.raises(LimitError, match="NUL"):
            publisher.publish("a\0b.x", 1)
        with pytest.raises(LimitError, match="topic has 0 bytes"):
            publisher.publish("", 1)
        publisher.publish("q.x", 1)
        assert values(subscriber, 1) == [1]
        publisher.close()
        publisher.close()
        with pytest.raises(Closed):
            publisher.publish("q.x", 2)
        subscriber.close()
        assert subscriber.receive() is None


def test_closing_wakes_a_thread_that_waits() -> None:
    with pair() as (_, subscriber):
        got: list[Event | None] = []
        thread = threading.Thread(target=lambda: got.append(subscriber.receive()))
        thread.start()
        subscriber.close()
        thread.join(WAIT_S)

    assert got == [None]


def test_stats_and_requesters_say_what_was_done() -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        publisher.publish_many(("q.x", number) for number in range(100))
        with open_subscriber(publisher.url, start="first") as subscriber:
            values(subscriber, 100)
        stats = publisher.stats
        (counts,) = publisher.requesters.values()

    assert (stats.source, stats.sent, stats.events) == ("me", 100, 100)
    assert stats.requests == stats.requests_served == counts.requests >= 1
    assert stats.retransmitted == counts.messages == 100
    assert stats.ring_first == 1
