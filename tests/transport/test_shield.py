"""Ctrl-C in the middle of something that must be done whole."""

import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from loopback import new_url, take, values

from onehop.transport import Event, open_publisher, open_subscriber
from onehop.transport.shield import Shield


def test_ctrl_c_is_raised_when_the_block_is_left() -> None:
    shield, done = Shield(), []

    def work() -> None:
        with shield:
            signal.raise_signal(signal.SIGINT)
            with shield:
                signal.raise_signal(signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_the_users_own_handler_is_called_and_stays() -> None:
    heard: list[int] = []

    def handler(number: int, _frame: Any) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with Shield():
            signal.raise_signal(signal.SIGINT)
            assert heard == []
        assert heard == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_needs_no_shield_and_changes_nothing() -> None:
    shield, seen = Shield(), []

    def run() -> None:
        with shield:
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_ctrl_c_while_the_network_is_read_leaves_the_account_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = new_url(loss=0.2, seed=3)
    with open_subscriber(url) as events, open_publisher(url, linger_s=0.0) as publisher:
        feed = events._intake.feed
        read, calls = feed.receive_datagram, []
        is_reading = False  # only then is it caught below; the caretaker reads at any time

        def interrupted(*arguments: Any, **options: Any) -> Sequence[Any]:
            outputs = read(*arguments, **options)
            if is_reading and threading.current_thread() is threading.main_thread():
                calls.append(arguments)
            if len(calls) % 7 == 6:
                calls.clear()
                signal.raise_signal(signal.SIGINT)
            return outputs

        monkeypatch.setattr(feed, "receive_datagram", interrupted)
        received: list[Event] = []
        sent = interruptions = 0
        while sent < 200 or (interruptions == 0 and sent < 20_000):
            for _ in range(20):
                publisher.publish("t", sent)
                sent += 1
            while len(received) < sent:
                try:
                    is_reading = True
                    received += take(events, 1)
                    is_reading = False
                except KeyboardInterrupt:
                    is_reading = False
                    interruptions += 1
        ledger = events.ledger

    assert values(received) == list(range(sent))
    assert interruptions > 0
    assert (ledger.delivered, ledger.pending, ledger.lost_total) == (sent, 0, 0)
