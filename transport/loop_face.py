"""Reading in an event loop: `async for`.

The loop watches the descriptors of the ports. What becomes readable is read in a callback, and the
task that waits goes on inside it; many messages come with one wake-up. What has come is taken
without giving up the loop, for `TURN_S` at a time.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator

from .arrival import Arrival
from .datagrams import Received
from .errors import Closed, LocalError
from .event import Event, Loss
from .handover import HandoverQueue
from .intake import Intake
from .lag import LagWatch
from .lane import NOW
from .ledger import Ledger
from .reception import Item, Reception

LEAVE_LOOP_S = 1.0
"""How long `close` in another thread waits for a busy event loop to let go of the sockets."""
TURN_S = 0.005
"""How long `async for` goes on with what has come before the other tasks of the loop run."""


class LoopFace(Reception):
    """What a subscriber is to a task."""

    def __init__(
        self,
        intake: Intake,
        queue: HandoverQueue,
        ledger: Ledger,
        *,
        is_direct: bool,
        watch: LagWatch | None,
    ) -> None:
        super().__init__(intake, queue, ledger, is_direct=is_direct, watch=watch)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: Arrival | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn_ends_at = 0.0

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while (
            self._is_direct and not self._intake.is_mixed and time.monotonic() < self._turn_ends_at
        ):
            with self._lock:
                event = self._lane.take()
            if event is not None:
                return event
            loop = self._loop
            if loop is None or not self._may_just_wait(loop):
                break
            event = await self._news(loop)
            if event is not None:
                return event
        while True:
            item = await self._next_item_async()
            if item is None:
                raise StopAsyncIteration
            if not isinstance(item, Loss):
                return item

    async def _next_item_async(self) -> Item | None:
        now = time.monotonic()
        if now >= self._turn_ends_at:
            self._turn_ends_at = now + TURN_S  # before the pause: it may be cancelled
            await asyncio.sleep(0)
        if self._is_worth_a_look():
            item = self._take()
            if item is not None:
                return item
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._watch(loop)
        elif self._loop is not loop:
            raise Closed("this subscriber belongs to another event loop")
        if self._waiter is not None:
            raise LocalError("another task waits for this subscriber already")
        while not self._is_closed:
            with self._lock:
                if not self._intake.is_calm:
                    self._intake.before_wait()
            if self._intake.has_more():
                self._pump_in_loop(True)
            item = await self._news(loop) or self._take()
            if item is not None:
                return item
        return self._take()

    def _may_just_wait(self, loop: asyncio.AbstractEventLoop) -> bool:
        """True in the usual case: nothing is to be done but to wait for what the lane can read."""
        if self._waiter is not None or self._fault is not None:
            return False
        if loop is not asyncio.get_running_loop() or self._timer is not None:
            return False
        with self._lock:
            if self._is_closed or not self._lane.is_calm:
                return False
            rest = self._lane.read(NOW, 0.0) if self._intake.has_more() else None
            if rest:
                self._intake.pump(rest)
                return False
        return not self._intake.has_more()

    async def _news(self, loop: asyncio.AbstractEventLoop) -> Event | None:
        """Waits until something has come, while other tasks run; returns it where it is known."""
        self._waiter = Arrival(loop)
        try:
            if self._has_items() or self._fault is not None:  # by the caretaker, before it knew
                return None
            event = await self._waiter
            self._turn_ends_at = time.monotonic() + TURN_S
            return event
        finally:
            self._waiter = None

    # -- in the loop -----------------------------------------------------------------------------

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._is_closed:
            return
        self._loop = loop
        *data, requests = self._intake.ports
        for port in data:
            loop.add_reader(port.fileno(), self._read_in_loop)
        loop.add_reader(requests.fileno(), self._pump_in_loop, True)
        loop.call_soon(self._pump_in_loop, True)  # what a descriptor has told before

    def _stop_watching(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if not loop.is_running() or _running_loop() is loop:
            self._leave_loop()
            return
        has_left = threading.Event()  # readers may only be removed in the loop's own thread
        loop.call_soon_threadsafe(self._leave_loop)
        loop.call_soon_threadsafe(has_left.set)
        has_left.wait(LEAVE_LOOP_S)

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        for port in self._intake.ports:
            loop.remove_reader(port.fileno())

    def _read_in_loop(self) -> None:
        """Reads what has come for the lane, the usual case; there, and after it, nothing is due."""
        lane, waiter, event = self._lane, self._waiter, None
        with self._lock:
            if self._is_closed or self._timer is not None or len(lane) or not lane.is_calm:
                received = None
            else:
                self._attended = True
                received = lane.read(NOW, 0.0)
                if not received and self._is_direct and waiter is not None and waiter.is_waiting:
                    event = lane.take()
        if event is None or waiter is None:
            self._pump_in_loop(received=received)
        else:
            waiter.tell(event)  # the task looks whether more has come before it waits again

    def _pump_in_loop(
        self, has_reply: bool = False, received: list[Received] | None = None
    ) -> None:
        """Reads, unless that was done, and does what is due."""
        loop = self._loop
        if self._is_closed or loop is None:
            return
        self._attended = True
        with self._lock:
            may_read = self._lane.may_read and self._intake.has_room_in_lane()
            if may_read and not has_reply and received is None:
                received = self._lane.read(NOW, 0.0)
            if received is None or received:
                self._intake.pump(received)
            timeout = None if self._lane.may_read else self._intake.next_timeout()
            has_items = self._has_items()
            has_more = self._intake.has_more()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if has_more:
            self._timer = loop.call_later(0.0, self._pump_in_loop, True)
        elif timeout is not None:
            after_s = max(0.0, timeout - time.monotonic())
            self._timer = loop.call_later(after_s, self._pump_in_loop)
        if has_items:
            self._finish_wait()

    def _finish_wait(self) -> None:
        if self._waiter is not None:
            self._waiter.tell()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.get_loop().is_closed():
            waiter.get_loop().call_soon_threadsafe(self._finish_wait)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
