"""Subscribers that are too far behind."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from onehop.transport import (
    ConfigurationError,
    Disconnected,
    Event,
    Lag,
    Lagging,
    Loss,
    Publisher,
    Subscriber,
    open_publisher,
    open_subscriber,
)
from onehop.transport.lag import LagOptions, LagWatch

MAX_AGE_S = 0.05


def url_of(kind: str) -> str:
    return {"memory": "memory://lag", "zmq": "zmq+tcp://127.0.0.1:0"}[kind]


@pytest.fixture(params=["memory", "zmq"])
def publisher(request: pytest.FixtureRequest) -> Iterator[Publisher]:
    with open_publisher(url_of(str(request.param)), "me", linger_s=0.0) as publisher:
        yield publisher


def opened(publisher: Publisher, **options: Any) -> Subscriber:
    subscriber = open_subscriber(publisher.url, **options)
    publisher.ready(timeout_s=5)
    return subscriber


def wait_until_known(subscriber: Subscriber, count: int) -> None:
    give_up_at = time.monotonic() + 5
    while subscriber.ledger.expected < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def test_each_time_it_gets_old_is_one_occasion() -> None:
    watch = LagWatch(LagOptions(max_age_s=1.0))
    ages_s = [0.5, 1.0, 1.1, 5.0, 0.9, 2.0]

    assert [watch.is_stale(int(age_s * 1e9)) for age_s in ages_s] == [
        False, False, True, True, False, True,
    ]  # fmt: skip
    assert watch.occasions == 2
    assert watch.take() == Lag(1, 2.0)
    assert watch.take() is None


def test_each_time_it_falls_behind_is_one_occasion() -> None:
    watch = LagWatch(LagOptions(max_lag=10))
    seen = []
    for pending in (10, 11, 50, 6, 11, 5, 10, 12):
        watch.look(pending)
        seen.append(watch.take())

    assert seen == [None, Lag(11), None, None, None, None, None, Lag(12)]
    assert watch.occasions == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_age_s": 0}, "max_age_s is 0, expected above 0"),
        ({"max_age_s": float("nan")}, "max_age_s is nan"),
        ({"max_lag": 0}, "max_lag is 0, expected 1 or more"),
        ({"on_lag": "panic"}, "on_lag is 'panic', expected count, raise, disconnect or"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        open_subscriber("memory://lag", **options)


def test_what_is_too_old_is_lost_as_stale_and_told_at_its_place(publisher: Publisher) -> None:
    with opened(publisher, max_age_s=MAX_AGE_S) as subscriber:
        publisher.publish("q.x", "old")
        publisher.publish("q.x", "old too")
        wait_until_known(subscriber, 2)
        time.sleep(2 * MAX_AGE_S)  # the age is the point
        publisher.publish("q.x", "young")
        items = [next(subscriber.with_losses(5)) for _ in range(3)]
        ledger = subscriber.ledger

    assert [(item.first, item.count) for item in items if isinstance(item, Loss)] == [
        (1, 1), (2, 1),
    ]  # fmt: skip
    assert isinstance(items[2], Event)
    assert items[2].value == "young"
    assert ledger.lost == {"stale": 2}
    assert (ledger.lagged, ledger.delivered, ledger.is_balanced) == (1, 1, True)


def test_raise_says_so_and_the_subscriber_goes_on(publisher: Publisher) -> None:
    with opened(publisher, max_lag=10, on_lag="raise") as subscriber:
        publisher.publish_many(("q.x", number) for number in range(20))
        wait_until_known(subscriber, 20)
        with pytest.raises(Lagging, match="20 messages behind"):
            subscriber.receive(5)
        found = [subscriber.receive(5) for _ in range(20)]

    assert [event.value for event in found if event is not None] == list(range(20))
    assert subscriber.ledger.lagged == 1


def test_raising_costs_no_event_of_a_batch(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(publisher, max_age_s=30.0, on_lag="raise") as events:
        late_ns = time.time_ns() - 60 * 10**9
        for number in range(7):
            with monkeypatch.context() as patch:
                if number == 3:  # from a machine whose clock is a minute late
                    patch.setattr("onehop.transport.publisher.time.time_ns", lambda: late_ns)
                publisher.publish("t", number)
        wait_until_known(events, 7)
        received: list[Any] = []
        raised = 0
        while len(received) < 6:
            try:
                received += [event.value for event in events.receive_many(timeout_s=5)]
            except Lagging:
                raised += 1
        ledger = events.ledger

    assert received == [0, 1, 2, 4, 5, 6]
    assert (raised, ledger.delivered, dict(ledger.lost)) == (1, 6, {"stale": 1})


def test_a_function_is_called_and_may_look_at_the_ledger(publisher: Publisher) -> None:
    seen: list[tuple[Lag, int]] = []

    def note(lag: Lag) -> None:
        seen.append((lag, subscriber.ledger.pending))

    subscriber = opened(publisher, max_lag=10, on_lag=note)
    with subscriber:
        publisher.publish_many(("q.x", number) for number in range(20))
        wait_until_known(subscriber, 20)
        assert subscriber.receive(5) is not None

    assert seen == [(Lag(20), 20)]


def test_disconnect_ends_it_behind_what_waits(publisher: Publisher) -> None:
    with opened(publisher, max_lag=10, on_lag="disconnect") as subscriber:
        publisher.publish_many(("q.x", number) for number in range(20))
        wait_until_known(subscriber, 20)
        found: list[Any] = []
        with pytest.raises(Disconnected, match="20 messages behind and on_lag is 'disconnect'"):
            found.extend(event.value for event in subscriber)

    assert found == list(range(20))
