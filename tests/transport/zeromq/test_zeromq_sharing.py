"""Groups and last values over real sockets."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import until

from onehop.transport import (
    ConfigurationError,
    Disconnected,
    Event,
    LocalError,
    Publisher,
    Subscriber,
    open_publisher,
    open_subscriber,
)
from onehop.transport.zeromq.member import GroupMember

TCP = "zmq+tcp://127.0.0.1:0"
WAIT_S = 20.0


@pytest.fixture(params=["tcp", "ipc"])
def publisher(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Publisher]:
    url = TCP if request.param == "tcp" else f"zmq+ipc://{tmp_path}/s"
    with open_publisher(url, "me", linger_s=0.0) as publisher:
        yield publisher


def member(publisher: Publisher, group: str = "workers", **options: Any) -> GroupMember:
    subscriber = open_subscriber(publisher.url, group=group, **options)
    assert isinstance(subscriber, GroupMember)
    return subscriber


def take(subscriber: Subscriber, count: int) -> list[Event]:
    found: list[Event] = []
    while len(found) < count:
        event = subscriber.receive(WAIT_S)
        assert event is not None, f"{len(found)} of {count} came: {subscriber.ledger}"
        found.append(event)
    return found


class Worker(threading.Thread):
    """Works on what it gets until it is told to stop."""

    def __init__(self, publisher: Publisher, **options: Any) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.is_over = threading.Event()
        self.subscriber = member(publisher, **options)

    def run(self) -> None:
        with self.subscriber as events:
            while not self.is_over.is_set():
                event = events.receive(0.05)
                if event is not None:
                    self.events.append(event)
        self.ledger = events.ledger

    def finish(self) -> None:
        self.is_over.set()
        self.join()


def test_members_share_the_events_and_every_group_gets_all(publisher: Publisher) -> None:
    workers = [Worker(publisher) for _ in range(3)]
    auditor = Worker(publisher, group="audit")
    for worker in (*workers, auditor):
        worker.start()
    publisher.ready(4, timeout_s=WAIT_S)
    for number in range(3000):
        publisher.publish(f"jobs.{number % 5}", number)
    publisher.settle(WAIT_S)
    groups = publisher.groups
    for worker in (*workers, auditor):
        worker.finish()

    shares = [[event.value for event in worker.events] for worker in workers]
    assert sorted(value for share in shares for value in share) == list(range(3000))
    assert all(shares), "nobody was left out"
    assert [event.value for event in auditor.events] == list(range(3000))
    for group, members in (("workers", workers), ("audit", [auditor])):
        account = groups[group]
        assert account.is_balanced
        assert (account.accepted, account.acknowledged, account.lost) == (3000, 3000, {})
        assert sum(worker.ledger.delivered for worker in members) == account.handed_out == 3000
        for worker in members:
            assert [e.sequence for e in worker.events] == list(range(1, len(worker.events) + 1))
            assert (worker.ledger.pending, worker.ledger.lost_total) == (0, 0)


def test_an_event_says_where_it_comes_from_and_how_often_it_was_tried(publisher: Publisher) -> None:
    with member(publisher) as first:
        publisher.ready(timeout_s=WAIT_S)
        number = publisher.publish("jobs.a", "x", key="k", headers={"own": "header"})
        (event,) = take(first, 1)
        assert event.headers == {
            "own": "header",
            "onehop-stream": "jobs",
            "onehop-sequence": str(number),
            "onehop-attempt": "1",
        }
        assert event.stream.startswith("group.workers.")
        assert (event.source, event.epoch, event.sequence) == ("me", publisher.epoch, 1)


def test_what_is_in_work_when_a_block_fails_goes_to_another(publisher: Publisher) -> None:
    def fail() -> None:
        with member(publisher) as first:
            publisher.ready(timeout_s=WAIT_S)
            publisher.publish("jobs.a", "x")
            publisher.publish("jobs.a", "y")
            take(first, 2)  # the first one is done
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with member(publisher) as second:
        (event,) = take(second, 1)
        assert (event.value, event.headers["onehop-attempt"]) == ("y", "2")
    publisher.settle(WAIT_S)
    assert publisher.groups["workers"].taken_back == 1


def test_what_was_not_taken_goes_back_when_a_member_closes(publisher: Publisher) -> None:
    first = member(publisher)
    publisher.ready(timeout_s=WAIT_S)
    for number in range(10):
        publisher.publish("jobs.a", number)
    assert [event.value for event in take(first, 3)] == [0, 1, 2]
    first.close()
    ledger = first.ledger
    assert first.receive(0.0) is None
    assert (ledger.delivered, ledger.pending) == (3, 0)
    assert set(ledger.lost) <= {"ended"}
    with member(publisher) as second:
        assert [event.value for event in take(second, 7)] == list(range(3, 10))
    publisher.settle(WAIT_S)


WORKER = """
import sys, time
from onehop.transport import open_subscriber
with open_subscriber(sys.argv[1], group="workers") as events:
    for event in events:
        print(event.value, flush=True)
        time.sleep(float(sys.argv[2]))
"""


@contextlib.contextmanager
def worker_process(publisher: Publisher, work_s: float) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", WORKER, publisher.url, str(work_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_work_of_a_member_that_dies_or_stands_still_is_done_by_another(
    number: int, publisher: Publisher
) -> None:
    with worker_process(publisher, 3600) as process, member(publisher) as other:
        publisher.ready(2, timeout_s=WAIT_S)
        for value in range(20):
            publisher.publish("jobs.a", value)
        assert process.stdout is not None
        stuck = int(process.stdout.readline())
        os.kill(process.pid, number)
        values = [event.value for event in take(other, 20)]
        assert other.receive(0.0) is None  # the last one is done
        publisher.settle(WAIT_S)

    assert sorted(values) == list(range(20))
    assert values.index(stuck) > 0
    assert publisher.groups["workers"].taken_back >= 1


def test_one_that_takes_too_long_is_not_waited_for(publisher: Publisher) -> None:
    slow, quick = (member(publisher, ack_timeout_s=0.3) for _ in range(2))
    with slow, quick:
        publisher.ready(2, timeout_s=WAIT_S)
        publisher.publish("jobs.a", 1)
        publisher.publish("jobs.a", 2)
        (kept,) = take(slow, 1)
        values = [event.value for event in take(quick, 2)]
        assert values[1] == kept.value
        assert quick.receive(0.0) is None
        publisher.settle(WAIT_S)
        account = publisher.groups["workers"]
        assert (account.acknowledged, account.taken_back, account.handed_out) == (2, 1, 3)


def test_events_are_done_when_they_are_said_to_be_from_any_thread(publisher: Publisher) -> None:
    with member(publisher, ack="manual") as events:
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("jobs.a", 1)
        (first,) = take(events, 1)
        waiting = threading.Thread(target=take, args=(events, 1))
        waiting.start()
        until(lambda: events._waiting is not None, WAIT_S)
        assert publisher.groups["workers"].outstanding == 1
        events.ack(first)
        until(lambda: publisher.groups["workers"].acknowledged == 1, WAIT_S)
        publisher.publish("jobs.a", 2)
        waiting.join()
        assert publisher.groups["workers"].outstanding == 1
    assert publisher.groups["workers"].waiting == 1, "nobody said that it was done"


def test_saying_so_where_nobody_asked_for_it_is_an_error(publisher: Publisher) -> None:
    with member(publisher) as events:
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("jobs.a", 1)
        (event,) = take(events, 1)
        with pytest.raises(LocalError, match="ack is 'auto'"):
            events.ack(event)


def test_without_acknowledgement_an_event_is_done_when_it_is_handed_over(
    publisher: Publisher,
) -> None:
    with member(publisher, ack="none") as events:
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("jobs.a", 1)
        take(events, 1)
        publisher.settle(WAIT_S)


def test_each_key_is_done_in_order_though_many_work(publisher: Publisher) -> None:
    workers = [Worker(publisher, order_by="key") for _ in range(3)]
    for worker in workers:
        worker.start()
    publisher.ready(3, timeout_s=WAIT_S)
    for number in range(1500):
        publisher.publish("jobs.a", number, key=f"k{number % 7}")
    publisher.settle(WAIT_S)
    for worker in workers:
        worker.finish()

    done = sorted((e.received_at_ns, e.value, e.key) for w in workers for e in w.events)
    assert sorted(value for _, value, _ in done) == list(range(1500))
    for key in {key for *_, key in done}:
        values = [value for _, value, its in done if its == key]
        assert values == sorted(values)


def test_asyncio_members_share_too(publisher: Publisher) -> None:
    async def work(events: GroupMember, found: list[int]) -> None:
        async with events:
            async for event in events:
                found += [event.value]

    async def main() -> list[list[int]]:
        found: list[list[int]] = [[], []]
        members = [member(publisher), member(publisher)]
        tasks = [asyncio.create_task(work(m, f)) for m, f in zip(members, found, strict=True)]
        await asyncio.to_thread(publisher.ready, 2, timeout_s=WAIT_S)
        for number in range(500):
            publisher.publish("jobs.a", number)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.to_thread(publisher.settle, WAIT_S)
        for each in members:
            each.close()
        await asyncio.gather(*tasks)
        return found

    found = asyncio.run(main())
    assert sorted(found[0] + found[1]) == list(range(500))
    assert publisher.groups["workers"].acknowledged == 500


def test_a_group_that_wants_it_gets_what_was_published_before(publisher: Publisher) -> None:
    publisher.publish("jobs.a", "small")
    publisher.publish("jobs.b", b"x" * 100_000)
    publisher.publish("other.a", "last")
    with member(publisher, start="first") as events:
        assert [event.topic for event in take(events, 3)] == ["jobs.a", "jobs.b", "other.a"]
    until(lambda: publisher.stats.subscribers == 0, WAIT_S)
    with member(publisher, "late") as events:
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("jobs.a", "new")
        assert take(events, 1)[0].value == "new"


def test_work_waits_for_the_next_member_when_there_is_none(publisher: Publisher) -> None:
    with member(publisher):
        publisher.ready(timeout_s=WAIT_S)
    until(lambda: publisher.stats.subscribers == 0, WAIT_S)
    publisher.publish("jobs.a", 1)
    with pytest.raises(LocalError, match="'workers' has 1 waiting"):
        publisher.settle(0.05)
    with member(publisher) as events:
        assert take(events, 1)[0].value == 1


def test_a_member_on_other_terms_is_refused_with_the_reason(publisher: Publisher) -> None:
    with member(publisher):
        publisher.ready(timeout_s=WAIT_S)
        odd = member(publisher, order_by="key")
        with odd, pytest.raises(Disconnected, match="all members of a group must agree"):
            odd.receive(WAIT_S)


def test_many_publishers_and_one_group_that_binds(tmp_path: Path) -> None:
    url = f"zmq+ipc://{tmp_path}/in?bind=subscriber"
    with (
        open_subscriber(url, group="g") as events,
        open_publisher(url, "a", linger_s=0.0) as a,
        open_publisher(url, "b", linger_s=0.0) as b,
    ):
        for publisher in (a, b):
            publisher.ready(timeout_s=WAIT_S)
            publisher.publish("jobs.x", publisher.source)
        assert sorted(event.value for event in take(events, 2)) == ["a", "b"]
        assert events.receive(0.0) is None
        a.settle(WAIT_S)
        b.settle(WAIT_S)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": ""}, "expected 1 to 64 bytes"),
        ({"group": "x" * 65}, "expected 1 to 64 bytes"),
        ({"group": "g", "order_by": "topic"}, "expected 'key' or None"),
        ({"group": "g", "ack": "yes"}, "expected auto, manual or none"),
        ({"group": "g", "ack_timeout_s": 0}, "ack_timeout_s is 0"),
        ({"group": "g", "prefetch": 0}, "prefetch is 0, expected 1 to 1024"),
        ({"group": "g", "prefetch": 1025}, "prefetch is 1025, expected 1 to 1024"),
        ({"group": "g", "start": 5}, "a group begins 'live'"),
        ({"group": "g", "on_overflow": "spill"}, "what is not done waits at the publisher"),
        ({"group": "g", "history": "last"}, "not with a group"),
        ({"group": "g", "topics": ["x" * 200] * 30}, "30 topics are more than"),
        ({"order_by": "key"}, "give group= too"),
        ({"ack": "manual"}, "give group= too"),
        ({"history": "first"}, "history is 'first'"),
        ({"history": "last", "start": "first"}, "goes with start='live'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        open_subscriber("zmq+tcp://127.0.0.1:1", **options)


@pytest.mark.parametrize("options", [{"group": "g"}, {"history": "last"}])
def test_over_multicast_nobody_can_be_spoken_to_alone(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="nobody there can be spoken to alone"):
        open_subscriber("multicast://239.1.1.1:7400", **options)


# -- the last value of each topic ------------------------------------------------------------------


def test_one_that_comes_later_begins_with_the_last_value_of_each_topic(
    publisher: Publisher,
) -> None:
    for number in range(100):
        publisher.publish(f"q.{number % 3}", number)
    publisher.publish("q.large", b"x" * 100_000)
    publisher.publish("other.x", "unwanted")
    with open_subscriber(publisher.url, ["q."], history="last") as events:
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("q.0", "new")
        found = {event.topic: event.value for event in take(events, 4)}
        new = take(events, 1)[0]
        ledger = events.ledger

    assert found == {"q.0": 99, "q.1": 97, "q.2": 98, "q.large": b"x" * 100_000}
    assert (new.value, new.stream) == ("new", "q")
    assert (ledger.pending, ledger.lost_total, ledger.is_balanced) == (0, 0, True)


def test_where_nothing_was_published_there_is_nothing_to_wait_for(publisher: Publisher) -> None:
    with open_subscriber(publisher.url, history="last") as events:
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("q.x", 1)
        assert take(events, 1)[0].value == 1


def test_in_a_flood_no_topic_is_missed_and_none_goes_back_in_time(publisher: Publisher) -> None:
    is_over = threading.Event()
    topics = [f"s{number % 4}.{number}" for number in range(20)]
    for topic in topics:
        publisher.publish(topic, 0)

    def flood() -> None:
        value = 0
        while not is_over.is_set():
            value += 1
            for topic in topics[:10]:  # the others stay as they are
                publisher.publish(topic, value)
            time.sleep(0.0005)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for _ in range(5):
            seen: dict[str, int] = {}
            with open_subscriber(publisher.url, history="last", queue_events=10**6) as events:
                while len(seen) < len(topics):
                    event = events.receive(WAIT_S)
                    assert event is not None, set(topics) - set(seen)
                    assert event.value > seen.get(event.topic, -1)
                    seen[event.topic] = event.value
                assert events.ledger.is_balanced
    finally:
        is_over.set()
        thread.join()
