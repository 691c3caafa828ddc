"""An application that is away or too slow: the caretaker reads, and the policy decides."""

import threading
import time
from functools import partial
from pathlib import Path

import pytest
from loopback import PATIENCE_S, drops_at, meanwhile, new_url, take, until, values

from onehop.transport import (
    Disconnected,
    Event,
    LogError,
    Loss,
    LossReason,
    Overflow,
    Subscriber,
    open_publisher,
    open_subscriber,
)

open_quick = partial(open_publisher, linger_s=0.0)


def items_of(subscriber: Subscriber, count: int) -> list[Event | Loss]:
    """The next events and losses, until they stand for `count` messages."""
    items: list[Event | Loss] = []
    for item in subscriber.with_losses(PATIENCE_S):
        items.append(item)
        count -= item.count if isinstance(item, Loss) else 1
        if count == 0:
            return items
    raise AssertionError(f"{count} messages more were expected")


@pytest.mark.twin
def test_an_application_that_sleeps_a_second_loses_nothing() -> None:
    url = new_url()
    with open_subscriber(url) as events, open_quick(url) as publisher:
        publisher.publish("t", 0)
        take(events, 1)
        started = time.monotonic()
        count = 1
        while time.monotonic() < started + 1.0:  # nobody calls `events` meanwhile
            if count <= 60_000:  # what the queue holds, however fast the machine is
                publisher.publish("t", count)
                count += 1
        received = take(events, count - 1)
        ledger = events.ledger
        assert drops_at(url) == ledger.kernel_drops == 0

    assert values(received) == list(range(1, count))
    assert (ledger.delivered, ledger.recovered, ledger.lost_total) == (count, 0, 0)


def test_an_application_slow_with_every_event_does_not_overflow_the_kernel() -> None:
    """It comes back for the next event all the time, and has no time to read the network."""
    url = new_url()
    taken: list[Event] = []

    def consume(is_over: threading.Event) -> None:
        while not is_over.wait(0.008):
            event = events.receive(0)
            if event is not None:
                taken.append(event)

    with open_subscriber(url) as events, open_quick(url) as publisher:
        with meanwhile(consume):
            for _ in range(60):  # 12 MB: three times the buffer
                publisher.publish_many([("t", bytes(1000))] * 200)
                time.sleep(0.01)
            until(lambda: events.ledger.expected == 12_000)
        ledger = events.ledger
        assert drops_at(url) == ledger.kernel_drops == 0

    assert (ledger.recovered, ledger.lost_total) == (0, 0)
    assert ledger.delivered == len(taken)
    assert ledger.delivered + ledger.pending == 12_000


# -- each policy through a real subscriber ---------------------------------------------------------


def overflow(url: str, events: Subscriber, count: int = 100) -> None:
    """Sends `count` events while the application is away, until all have been dealt with."""
    with open_quick(url, "source") as publisher:
        for n in range(1, count + 1):
            publisher.publish("t", n, key=str(n % 5))
        until(lambda: events.ledger.expected == count)


@pytest.mark.parametrize(
    ("policy", "kept", "lost"),
    [
        ("drop_oldest", range(91, 101), (1, 90)),
        ("drop_newest", range(1, 11), (11, 90)),
        ("latest", range(96, 101), (1, 95)),
    ],
)
def test_the_policy_says_what_is_dropped_and_the_ledger_counts_it(
    policy: Overflow, kept: range, lost: tuple[int, int]
) -> None:
    url = new_url()
    with open_subscriber(url, on_overflow=policy, queue_events=10) as events:
        overflow(url, events)
        items = items_of(events, 100)
        ledger = events.ledger

    assert [item.value for item in items if isinstance(item, Event)] == list(kept)
    losses = [item for item in items if isinstance(item, Loss)]
    assert {loss.reason for loss in losses} == {LossReason.OVERFLOW}
    first, count = lost
    assert sum(loss.count for loss in losses) == count
    assert min(loss.first for loss in losses) == first
    assert dict(ledger.lost) == {"overflow": count}
    assert (ledger.expected, ledger.delivered, ledger.pending) == (100, 100 - count, 0)


def test_a_queue_bounded_by_bytes_overflows_too() -> None:
    url = new_url()
    with open_subscriber(url, queue_bytes=10_000) as events:
        with open_quick(url) as publisher:
            for _ in range(100):
                publisher.publish("t", bytes(1000))
            until(lambda: events.ledger.expected == 100)
        delivered = sum(isinstance(item, Event) for item in items_of(events, 100))

    assert 5 <= delivered <= 10


def test_spilled_events_come_back_in_order_and_nothing_is_lost(tmp_path: Path) -> None:
    url = new_url()
    with open_subscriber(url, on_overflow="spill", queue_events=10, spill_path=tmp_path) as events:
        overflow(url, events, 5000)
        assert any(tmp_path.rglob("*")), "it is on disk"
        assert values(take(events, 5000)) == list(range(1, 5001))
        assert events.ledger.lost_total == 0
        assert events.ledger.delivered == 5000

    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "and leaves nothing there"


def test_a_directory_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError):
        open_subscriber(new_url(), on_overflow="spill", spill_path=tmp_path / "file")


@pytest.mark.twin
def test_disconnect_gives_what_waits_then_raises_and_keeps_counting() -> None:
    url = new_url()
    with open_subscriber(url, on_overflow="disconnect", queue_events=10) as events:
        overflow(url, events)
        assert values(take(events, 10)) == list(range(1, 11))
        with pytest.raises(Disconnected, match="open a new subscriber"):
            events.receive()
        with pytest.raises(Disconnected):
            events.receive_many()
        ledger = events.ledger

    assert (ledger.delivered, dict(ledger.lost)) == (10, {"overflow": 90})


def test_events_taken_before_the_overflow_are_not_taken_again() -> None:
    url = new_url()
    with open_subscriber(url, queue_events=10) as events, open_quick(url) as publisher:
        publisher.publish_many(("t", n) for n in range(5))
        assert values(take(events, 3)) == [0, 1, 2]
        publisher.publish_many(("t", n) for n in range(5, 50))
        until(lambda: events.ledger.lost_total > 0)
        rest = [item.value for item in items_of(events, 47) if isinstance(item, Event)]

    assert rest == list(range(40, 50))


# -- what waits in the lane ------------------------------------------------------------------------


def test_what_is_too_much_for_the_lane_is_dropped_at_its_front_and_told_first() -> None:
    with (
        open_quick("zmq+tcp://127.0.0.1:0", "source") as publisher,
        open_subscriber(publisher.url, queue_events=500) as events,
    ):
        publisher.ready()
        for n in range(1, 11):
            publisher.publish("t", n)
            take(events, 1)  # by now it comes the short way
        publisher.publish_many(("t", n) for n in range(11, 20_001))
        until(lambda: events.ledger.expected == 20_000)
        items = items_of(events, 19_990)
        ledger = events.ledger

    delivered = [item for item in items if isinstance(item, Event)]
    lost = [item for item in items if isinstance(item, Loss)]
    assert [event.value for event in delivered] == list(range(20_001 - len(delivered), 20_001))
    assert [loss.first for loss in lost] == [11]  # one record, in front of all
    assert items[0] is lost[0]
    assert lost[0].count + len(delivered) == 19_990
    assert dict(ledger.lost) == {"overflow": lost[0].count}
    assert (ledger.delivered, ledger.pending) == (10 + len(delivered), 0)
    assert len(delivered) <= 1000  # the bound, and what one read brings


def test_a_loss_is_told_before_the_events_behind_it_whoever_has_had_a_turn() -> None:
    with (
        open_quick("zmq+tcp://127.0.0.1:0", "source") as publisher,
        open_subscriber(publisher.url, queue_events=500) as events,
    ):
        publisher.ready()
        for n in range(1, 11):
            publisher.publish("t", n)
            take(events, 1)
        items: list[Event | Loss] = []
        losses = events.with_losses(PATIENCE_S)
        for last in (5000, 10_000):
            publisher.publish_many(("t", n) for n in range(last - 4999, last + 1))
            until(lambda last=last: events.ledger.expected == last + 10)  # type: ignore[misc]
            items.append(next(losses))
        items += items_of(events, 10_000 - sum(getattr(item, "count", 1) for item in items))

    numbers = [item.first if isinstance(item, Loss) else item.sequence for item in items]
    assert all(isinstance(item, Loss) for item in items[:2])
    assert numbers == sorted(numbers)


def test_a_flood_from_one_source_does_not_keep_another_waiting() -> None:
    url = new_url()
    with (
        open_subscriber(url) as events,
        open_quick(url, "flood") as flood,
        open_quick(url, "trickle") as trickle,
    ):
        for n in range(10):
            flood.publish("t", n)
            take(events, 1)
        flood.publish_many(("t", n) for n in range(10, 20_010))
        until(lambda: events.ledger.expected == 20_010)
        trickle.publish("t", "me too")
        until(lambda: events.ledger.expected == 20_011)
        assert any(event.source == "trickle" for event in take(events, 10))
        rest = [event.value for event in take(events, 20_001 - 10)]
        assert rest == sorted(rest)
        assert events.ledger.delivered == 20_011
