"""A subscriber that reports when asked: `python listener.py URL OPTIONS`, both of them texts.

OPTIONS is a JSON object for `open_subscriber`, and `is_async` to take the items in an event loop.
It says so when it listens; then each line on standard input, {"do": "report"} or {"do": "close"},
is answered by one line: the summary of `onehop subscribe`, and beside it

    is_balanced   the ledger's sum holds, in all and for each stream
    faults        what was not delivered in order, exactly once, or covered by exactly one loss
    losses        [epoch, first, count, reason] as the application saw them
    requests      request datagrams sent
    ended         the epochs whose end of session was heard
    paths         received, first_arrivals and missing of each path of the last session
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from typing import Any

from onehop.commands.subscribe import summarise
from onehop.transport import Event, Loss, Subscriber, open_subscriber
from onehop.transport.mold.sessions import epoch_of


class Listener:
    """Takes every item and checks that none is out of turn."""

    def __init__(self, subscriber: Subscriber, is_async: bool) -> None:
        self._subscriber = subscriber
        self._loop = asyncio.new_event_loop() if is_async else None
        self._takes = threading.Thread(target=self._take_all)
        self._next: dict[int, int] = {}
        self._losses: list[tuple[int, int, int, str]] = []
        self._faults: list[str] = []

    def start(self) -> None:
        self._takes.start()

    def close(self) -> None:
        if self._loop is None:
            self._subscriber.close()
        else:
            self._loop.call_soon_threadsafe(self._subscriber.close)
        self._takes.join()

    def _take_all(self) -> None:
        if self._loop is None:
            for item in self._subscriber.with_losses():
                self._take(item)
        else:
            with contextlib.closing(self._loop) as loop:
                loop.run_until_complete(self._take_all_async())

    async def _take_all_async(self) -> None:
        async for item in self._subscriber.with_losses():
            self._take(item)

    def _take(self, item: Event | Loss) -> None:
        if isinstance(item, Loss):
            self._check(item.epoch, item.first, item.count)
            self._losses.append((item.epoch, item.first, item.count, item.reason.value))
            return
        self._check(item.epoch, item.sequence, 1)
        if isinstance(item.value, int) and item.value != item.sequence:
            self._faults.append(f"message {item.sequence} says {item.value}")

    def _check(self, epoch: int, first: int, count: int) -> None:
        expected = self._next.get(epoch, first)
        if first != expected:
            self._faults.append(f"epoch {epoch}: {first} came, {expected} was next")
        self._next[epoch] = first + count

    def report(self) -> dict[str, Any]:
        ledger = self._subscriber.ledger
        # Not on the public face: what one session's receiver counts.
        receivers = [f.receiver for f in self._subscriber._intake.feed.sessions.values()]
        return {
            **summarise(ledger),
            "is_balanced": ledger.is_balanced,
            "faults": self._faults,
            "losses": self._losses,
            "requests": sum(receiver.counts.requests for receiver in receivers),
            "ended": [epoch_of(receiver.session) for receiver in receivers if receiver.is_ended],
            "paths": [
                {name: getattr(path, name) for name in ("received", "first_arrivals", "missing")}
                for receiver in receivers[-1:]
                for path in receiver.paths
            ],
        }


def main(url: str, is_async: bool = False, **options: Any) -> None:
    with open_subscriber(url, **options) as subscriber:
        listener = Listener(subscriber, is_async)
        listener.start()
        print(json.dumps({"listens": True}), flush=True)
        for line in sys.stdin:
            if json.loads(line)["do"] == "close":
                break
            print(json.dumps(listener.report()), flush=True)
        listener.close()
        print(json.dumps(listener.report()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
