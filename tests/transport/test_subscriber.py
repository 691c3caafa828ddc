"""What an application does with a subscriber: take events, read the account, close."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest
from loopback import PATIENCE_S, Stranger, meanwhile, new_url, take, until, values

from onehop.transport import (
    Event,
    LedgerSnapshot,
    LimitError,
    Loss,
    LossReason,
    Subscriber,
    open_publisher,
    open_subscriber,
)
from onehop.transport.envelope import MAX_EVENT_BYTES
from onehop.transport.memory import Faults, MemoryNetwork

pytestmark = pytest.mark.twin

AT_ONCE_S = 0.1
open_quick = partial(open_publisher, linger_s=0.0)


@pytest.fixture
def network() -> Iterator[MemoryNetwork]:
    with MemoryNetwork() as network:
        yield network


# -- taking events ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spin", [False, True])
def test_a_for_loop_takes_events_until_another_thread_closes_the_subscriber(spin: bool) -> None:
    url = new_url()
    taken: list[object] = []

    def consume() -> None:
        for event in events:
            taken.append(event.value)  # noqa: PERF401, seen while it grows

    with open_subscriber(url, spin=spin) as events, open_quick(url) as publisher:
        consumer = threading.Thread(target=consume)
        consumer.start()
        for n in range(200):
            publisher.publish("t", n)
        until(lambda: len(taken) == 200)
        events.close()
        consumer.join(PATIENCE_S)

    assert taken == list(range(200))
    assert events.ledger.delivered == 200
    assert events.ledger.latency_ns.count == 200


def test_receive_gives_up_after_its_timeout_and_not_before() -> None:
    with open_subscriber(new_url()) as events:
        started = time.monotonic()
        assert events.receive(timeout_s=0.12) is None
        assert 0.12 <= time.monotonic() - started < 1.0
        started = time.monotonic()
        assert events.receive(timeout_s=0) is None
        assert time.monotonic() - started < AT_ONCE_S


def test_receive_without_waiting_takes_what_has_come() -> None:
    url = new_url()
    with open_subscriber(url) as events, open_quick(url) as publisher:
        publisher.publish("t", 1)  # on loopback it is in the buffer when `publish` returns
        event = events.receive(timeout_s=0)
        assert event is not None
        assert event.value == 1


def test_losses_do_not_prolong_the_timeout_of_receive(network: MemoryNetwork) -> None:
    with open_subscriber(network.url, attempts=0) as events, open_quick(network.url) as publisher:
        publisher.publish("wanted", 0)
        take(events, 1)

        def lose(is_over: threading.Event) -> None:
            while not is_over.wait(0.02):  # each heartbeat that follows tells of one more loss
                network.faults = Faults(loss=1.0)
                publisher.publish("unheard", 0)
                network.faults = Faults()

        with meanwhile(lose):
            started = time.monotonic()
            assert events.receive(timeout_s=0.2) is None
            elapsed_s = time.monotonic() - started
        assert events.ledger.lost_total > 0

    assert elapsed_s < 5


def test_receive_many_takes_what_has_come_up_to_its_limit() -> None:
    url = new_url()
    with open_subscriber(url) as events, open_quick(url) as publisher:
        assert events.receive_many(timeout_s=0) == []
        publisher.publish_many(("t", n) for n in range(100))
        first = events.receive_many(limit=30, timeout_s=PATIENCE_S)
        rest = events.receive_many(timeout_s=PATIENCE_S)
        assert events.receive(timeout_s=0) is None
        publisher.publish_many(("t", n) for n in range(100))
        again = events.receive_many(limit=30, timeout_s=PATIENCE_S)

    assert values(first) == values(again) == list(range(30))
    assert values(rest) == list(range(30, 100))


def test_receive_many_goes_on_from_the_queue_in_order() -> None:
    url = new_url()
    with open_subscriber(url) as events, open_quick(url) as publisher:
        publisher.publish_many(("t", n) for n in range(100))
        until(lambda: events.ledger.pending == 100)  # the caretaker has put them there
        publisher.publish_many(("t", n) for n in range(100, 150))
        received: list[Event] = []
        while len(received) < 150:
            received += events.receive_many(limit=40, timeout_s=PATIENCE_S)

    assert values(received) == list(range(150))


def test_losses_come_in_their_place_between_events(network: MemoryNetwork) -> None:
    with open_subscriber(network.url, attempts=0) as events, open_quick(network.url) as publisher:
        publisher.publish("t", "one")
        assert values(take(events, 1)) == ["one"]
        network.partition()
        publisher.publish("t", "two")
        publisher.publish("t", "three")
        network.heal()
        publisher.publish("t", "four")
        items = list(events.with_losses(timeout_s=0.1))

    loss, event = items
    assert isinstance(loss, Loss)
    assert (loss.first, loss.count, loss.last) == (2, 2, 3)
    assert loss.reason is LossReason.DEADLINE
    assert (loss.source, loss.epoch, loss.stream) == (publisher.source, publisher.epoch, "")
    assert isinstance(event, Event)
    assert event.value == "four"
    ledger = events.ledger
    assert (ledger.expected, ledger.delivered, dict(ledger.lost)) == (4, 2, {"deadline": 2})


@pytest.mark.parametrize("spin", [False, True])
def test_lost_datagrams_are_recovered_and_nothing_is_missing(spin: bool) -> None:
    url = new_url()
    lossy = f"{url}?loss=0.1&seed=3"
    with (
        open_subscriber(lossy, start="first", spin=spin) as events,
        open_quick(url) as publisher,
    ):
        for n in range(500):
            publisher.publish("t", n)
        received = take(events, 500)
        ledger = events.ledger

    assert values(received) == list(range(500))
    assert ledger.recovered > 10
    assert ledger.ignored["lost_on_purpose"] > 10
    assert ledger.repair_ns.count > 0
    assert publisher.stats.retransmitted >= ledger.recovered


def test_unordered_hands_out_what_comes_behind_a_gap(network: MemoryNetwork) -> None:
    with (
        open_subscriber(network.url, ordered=False, deadline_s=5.0) as events,
        open_quick(network.url) as publisher,
    ):
        publisher.publish("t", 1)
        take(events, 1)
        network.partition()
        publisher.publish("t", 2)
        network.faults = Faults(delay_s=0.05)  # repairs come late
        network.heal()
        publisher.publish("t", 3)
        assert values(take(events, 2)) == [3, 2]


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1300, 1340, 1378, 1400, 65_536, MAX_EVENT_BYTES - 80])
def test_an_event_of_any_size_up_to_a_mebibyte_arrives_whole(size: int) -> None:
    url = new_url()
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    with open_subscriber(url) as events, open_quick(url, "s") as publisher:
        number = publisher.publish("t", value)
        publisher.publish("t", "behind")
        received = take(events, 2)
        ledger = events.ledger

    assert received[0].value == value
    assert received[0].sequence == number == publisher.stats.sent - 1
    assert ledger.expected == ledger.delivered == number + 1, "the sum is over messages"


def test_a_mebibyte_is_the_largest_event_and_a_byte_more_is_refused() -> None:
    url = new_url()
    with open_subscriber(url) as events, open_quick(url, "s") as publisher:
        with pytest.raises(LimitError) as refusal:
            publisher.publish("t", bytes(MAX_EVENT_BYTES))
        overhead = int(str(refusal.value).split(" has ")[1].split()[0]) - MAX_EVENT_BYTES
        largest = bytes(MAX_EVENT_BYTES - overhead)
        with pytest.raises(LimitError):
            publisher.publish("t", largest + b"\0")
        publisher.publish("t", largest)
        assert take(events, 1)[0].value == largest


# -- the account -----------------------------------------------------------------------------------


def test_the_ledger_balances_at_each_look_from_another_thread() -> None:
    url = new_url()
    looks: list[LedgerSnapshot] = []

    def look(is_over: threading.Event) -> None:
        while not is_over.is_set():
            looks.append(events.ledger)

    with (
        open_subscriber(f"{url}?loss=0.05&seed=5", ["a"], start="first") as events,
        open_quick(url) as publisher,
        meanwhile(look),
    ):
        for n in range(1000):
            publisher.publish("a" if n % 3 else "b", n)
        received = take(events, 666)
        until(lambda: events.receive(0) is None and events.ledger.filtered == 334)

    assert values(received) == [n for n in range(1000) if n % 3]
    assert len(looks) > 10
    assert all(ledger.is_balanced for ledger in looks)
    assert all(a.expected <= b.expected for a, b in pairwise(looks))
    assert (events.ledger.delivered, events.ledger.filtered) == (666, 334)


# -- closing ---------------------------------------------------------------------------------------

Waiting = Callable[[Subscriber], object]


@pytest.mark.parametrize("spin", [False, True])
@pytest.mark.parametrize("has_heard", [False, True], ids=["silent", "after-an-event"])
@pytest.mark.parametrize("wait", [Subscriber.receive, Subscriber.receive_many, list])
def test_close_ends_a_wait_in_another_thread_at_once(
    wait: Waiting, has_heard: bool, spin: bool
) -> None:
    url = new_url(payload="raw")
    with open_subscriber(url, spin=spin) as events, Stranger(url) as stranger:
        if has_heard:  # and then nothing more: no heartbeat ends the wait
            stranger.send_packet(b"SESSION001", 1, b"one")
            take(events, 1)
        results: list[object] = []
        waiter = threading.Thread(target=lambda: results.append(wait(events)))
        waiter.start()
        until(lambda: events._waiting is not None or spin)
        started = time.monotonic()
        events.close()
        waiter.join(PATIENCE_S)
        elapsed_s = time.monotonic() - started

    assert elapsed_s < AT_ONCE_S
    assert results in ([None], [[]])


def test_a_subscriber_can_be_closed_twice_and_from_two_threads() -> None:
    events = open_subscriber(new_url())
    closers = [threading.Thread(target=events.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(PATIENCE_S)
    events.close()

    assert events.receive() is None
    assert list(events) == []


def test_what_has_come_can_still_be_taken_after_close() -> None:
    url = new_url()
    events = open_subscriber(url)
    with open_quick(url) as publisher:
        for n in range(50):
            publisher.publish("t", n)
        events.close()

    assert values(events.receive_many()) == list(range(50))
    assert events.receive() is None
    assert events.ledger.delivered == events.ledger.expected == 50
    assert events.ledger.is_balanced


def test_close_settles_what_is_under_repair_as_ended() -> None:
    url = new_url(payload="raw")
    with open_subscriber(url, deadline_s=60.0) as events, Stranger(url) as stranger:
        stranger.send_packet(b"SESSION001", 1, b"one")
        take(events, 1)
        stranger.send_packet(b"SESSION001", 4)  # a heartbeat: 2 and 3 exist
        until(lambda: events.ledger.pending == 2)
        events.close()
        losses = list(events.with_losses())

    assert [(loss.first, loss.count) for loss in losses if isinstance(loss, Loss)] == [(2, 2)]
    ledger = events.ledger
    assert (ledger.pending, dict(ledger.lost), ledger.delivered) == (0, {"ended": 2}, 1)
