"""What an application holds to receive: one object for `for` and for `async for`.

The application's own thread reads the network while it waits for the next event: no hand-over
between threads, so a blocking `for` is as fast as the socket.

    application in next()          reads, pumps, takes          caretaker sleeps
    nobody has read for 20 ms      works on what it has taken   caretaker reads and pumps
    asyncio                        the loop reads and pumps     caretaker watches the loop

`reception.py` is what all of them share, `loop_face.py` the way of asyncio.
"""

import asyncio
import select
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from .errors import LocalError
from .event import Event, Loss, LossReason
from .forks import stays_with_parent
from .handover import HandoverQueue
from .intake import Intake
from .lag import LagWatch
from .lane import SLEEPING, SPINNING
from .ledger import Ledger
from .loop_face import LoopFace
from .reception import Item

LONGEST_WAIT_S = 0.05
"""How long one wait lasts at most, and so how long `close` may wait for another thread's."""


class Subscriber(LoopFace):
    """Receives events; made by `open_subscriber`."""

    def __init__(
        self,
        intake: Intake,
        queue: HandoverQueue,
        ledger: Ledger,
        *,
        is_direct: bool = True,
        spin: bool = False,
        watch: LagWatch | None = None,
    ) -> None:
        super().__init__(intake, queue, ledger, is_direct=is_direct and not spin, watch=watch)
        self._spin = spin
        self._poll = select.poll()
        self._request_fd = intake.ports[-1].fileno()
        for port in intake.ports:
            self._poll.register(port.fileno(), select.POLLIN)
        self._caretaker.start()
        stays_with_parent(self)

    # -- what the application reads ------------------------------------------------------------

    def receive(self, timeout_s: float | None = None) -> Event | None:
        """The next event, waiting for it up to `timeout_s`; None when none came."""
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        if self._is_direct and not self._intake.is_mixed:
            with self._lock:
                event = self._lane.take()
                is_calm = self._lane.is_calm
            if event is not None:
                return event
            if is_calm:
                event = self._read_lane(give_up_at)
                if event is not None:
                    return event
        while True:
            item = self._next_item(give_up_at)
            if not isinstance(item, Loss):
                return item

    def receive_many(self, limit: int = 1024, timeout_s: float | None = None) -> list[Event]:
        """What has come, at most `limit` events, waiting for the first up to `timeout_s`.

        Half the cost of taking them one by one; empty when none came.
        """
        events = self._take_from_lane(limit)
        if not events:
            event = self.receive(timeout_s)
            if event is None:
                return []
            events.append(event)
            events += self._take_from_lane(limit - 1)
        while len(events) < limit and len(self._queue) and not self._has_news():
            item = self._take()
            if isinstance(item, Event):
                events.append(item)
        return events

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.receive()
        if event is None:
            raise StopIteration
        return event

    def with_losses(self, timeout_s: float | None = None) -> "WithLosses":
        """Events and losses in order; ends when nothing came for `timeout_s`."""
        return WithLosses(self, timeout_s)

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stops receiving and settles the account: what is still under repair is lost as `ended`.

        Events that wait in the queue can still be taken. Closing again does nothing.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._left.set()
        self._stop_watching()
        self._caretaker.join()
        for port in self._intake.ports:
            port.wake()
        while self._waiting not in (None, threading.get_ident()):  # it has been woken
            time.sleep(0.0001)
        with self._shield, self._lock:
            self._intake.pump()
            self._intake.end()
            self._intake.close()
        self._wake()

    def leave_to_parent(self) -> None:
        """In a forked child: it is closed, and nobody hears of it."""
        self._lock = threading.Lock()  # a thread that is not here may have it
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        with self._shield, self._lock:
            self._queue.give_up(LossReason.ENDED, time.time_ns())
        self._queue.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    # -- waiting ---------------------------------------------------------------------------------

    def _take_from_lane(self, limit: int) -> list[Event]:
        if self._intake.is_mixed:  # not more than its turn
            return []
        with self._lock:
            return self._lane.take_many(limit)

    def _read_lane(self, give_up_at: float | None) -> Event | None:
        """Waits for what the lane can read: the usual case, in which nothing else is to be done."""
        wait_s = LONGEST_WAIT_S
        if give_up_at is not None:
            wait_s = min(wait_s, max(0.0, give_up_at - time.monotonic()))
        is_waiting = False
        try:
            with self._lock:
                if self._waiting is not None or self._is_closed or not self._lane.is_calm:
                    return None
                is_waiting = True
                self._waiting = threading.get_ident()
            received = self._lane.read(SLEEPING, wait_s)
        finally:
            if is_waiting:
                self._attended = True  # first: the caretaker must not read between what was read
                self._waiting = None  # and what is done with it
        if not received:
            with self._lock:
                return self._lane.take()
        with self._shield, self._lock:
            if not self._is_closed:
                self._intake.pump(received)
        return None

    def _next_item(self, give_up_at: float | None) -> Item | None:
        if self._is_worth_a_look():
            item = self._take()
            if item is not None:
                return item
        while not self._is_closed:
            item = self._wait_and_pump(give_up_at) or self._take()
            if item is not None:
                return item
            if give_up_at is not None and time.monotonic() >= give_up_at:
                return None
        return self._take()

    def _wait_and_pump(self, give_up_at: float | None) -> Event | None:
        """Waits for whatever comes or is due; returns an event that came the short way."""
        received = None
        if self._waiting is not None:
            raise LocalError("another thread waits for this subscriber already")
        try:
            with self._lock:
                if not self._intake.is_calm:
                    with self._shield:
                        self._intake.before_wait()
                is_in_lane = self._lane.may_read
                timeout = None if is_in_lane else self._intake.next_timeout()
                if self._is_closed:
                    return None
                self._waiting = threading.get_ident()
            wait_s = LONGEST_WAIT_S
            if give_up_at is not None or timeout is not None:
                until = min(at for at in (give_up_at, timeout) if at is not None)
                wait_s = min(wait_s, max(0.0, until - time.monotonic()))
            if is_in_lane:
                received = self._lane.read(SPINNING if self._spin else SLEEPING, wait_s)
                if not received:
                    with self._lock:
                        return self._lane.take()
            elif not self._spin and not self._intake.has_more():
                ready = self._poll.poll(wait_s * 1e3)
                if len(ready) == 1 and ready[0][0] == self._request_fd:
                    received = []  # a reply, and nothing else
        finally:
            self._attended = True  # first: the caretaker must not read between what was read
            self._waiting = None  # and what is done with it
        with self._shield, self._lock:
            if not self._is_closed:
                self._intake.pump(received)
        return None


class WithLosses:
    """Iterates a subscriber's events and losses, blocking or async."""

    def __init__(self, subscriber: Subscriber, timeout_s: float | None) -> None:
        self._subscriber = subscriber
        self._timeout_s = timeout_s

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        timeout_s = self._timeout_s
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        item = self._subscriber._next_item(give_up_at)
        if item is None:
            raise StopIteration
        return item

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        wait = self._subscriber._next_item_async()
        try:
            item = await asyncio.wait_for(wait, self._timeout_s)
        except TimeoutError:
            item = None
        if item is None:
            raise StopAsyncIteration
        return item
