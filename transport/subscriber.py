"""What an application holds to receive: one object for `for` and for `async for`.

The application's own thread reads the network while it waits for the next event: no hand-over
between threads, so a blocking `for` is as fast as the socket. While the application is busy with
an event a caretaker thread reads in its place, so that buffers do not overflow, gaps are asked for
in time and the overflow policy decides what is dropped, not the kernel.

    application in next()          reads, pumps, takes          caretaker sleeps
    nobody has read for 20 ms      works on what it has taken   caretaker reads and pumps
    asyncio                        the loop reads and pumps     caretaker watches the loop
"""

import asyncio
import select
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from .arrival import Arrival
from .datagrams import Received
from .errors import Closed, Disconnected, Lagging, LocalError
from .event import Event, Loss, LossReason
from .forks import stays_with_parent
from .handover import HandoverQueue
from .intake import Intake, PathSnapshot
from .lag import LagWatch
from .lane import NOW, SLEEPING, SPINNING
from .ledger import Ledger, LedgerSnapshot
from .shield import Shield

CARETAKER_S = 0.02
"""How long the network may go unread before the caretaker reads in the application's place: the
default receive buffer of 4 MiB overflows after about 30 ms at 300,000 small packets a second."""
CARETAKER_PAUSE_S = 0.0002
"""Between two reads of a flood, so that the application gets at what has come."""
LONGEST_WAIT_S = 0.05
"""How long one wait lasts at most, and so how long `close` may wait for another thread's."""
LEAVE_LOOP_S = 1.0
"""How long `close` in another thread waits for a busy event loop to let go of the sockets."""
TURN_S = 0.005
"""How long `async for` goes on with what has come before the other tasks of the loop run."""

Item = Event | Loss


class Subscriber:
    """Receives events; made by `open_subscriber`."""

    def __init__(
        self,
        intake: Intake,
        queue: HandoverQueue,
        ledger: Ledger,
        *,
        spin: bool = False,
        watch: LagWatch | None = None,
    ) -> None:
        self._intake = intake
        self._lane = intake.lane
        self._queue = queue
        self._ledger = ledger
        self._spin = spin
        self._is_direct = intake.is_direct and not spin  # the short way may be taken
        self._queue_is_next = False
        self._lag_watch = watch
        self._lock = threading.Lock()  # over everything above, except while `_waiting` reads
        self._shield = Shield()  # around whatever writes accounts
        self._is_closed = False
        self._attended = True  # the application has read since the caretaker looked
        self._waiting: int | None = None  # the thread that waits inside the ports right now
        self._poll = select.poll()
        self._request_fd = intake.ports[-1].fileno()
        for port in intake.ports:
            self._poll.register(port.fileno(), select.POLLIN)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: Arrival | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn_ends_at = 0.0
        self._fault: BaseException | None = None  # what the caretaker met
        self._left = threading.Event()  # set once, at close
        self._caretaker = threading.Thread(
            target=self._take_care, name="onehop-caretaker", daemon=True
        )
        self._caretaker.start()
        stays_with_parent(self)

    # -- what the application reads ------------------------------------------------------------

    @property
    def ledger(self) -> LedgerSnapshot:
        """The account of everything up to now, frozen; cheap enough to ask every second."""
        with self._shield, self._lock:
            self._intake.update_ledger()
            return self._ledger.snapshot()

    @property
    def paths(self) -> tuple[PathSnapshot, ...]:
        """What each path has carried: which of A and B loses more, and which is first."""
        with self._shield, self._lock:
            self._intake.settle()
            return self._intake.paths()

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

    def _has_news(self) -> bool:
        """True when the next `_take` is to raise or call: not while it would cost events."""
        return self._fault is not None or (
            self._lag_watch is not None and self._lag_watch.has_noticed
        )

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.receive()
        if event is None:
            raise StopIteration
        return event

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
            self._waiter = Arrival(loop)
            try:
                if not len(self._lane):  # the caretaker may have been there
                    await self._waiter
            finally:
                self._waiter = None
            self._turn_ends_at = time.monotonic() + TURN_S
        while True:
            item = await self._next_item_async()
            if item is None:
                raise StopAsyncIteration
            if not isinstance(item, Loss):
                return item

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

    # -- blocking --------------------------------------------------------------------------------

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

    def _is_worth_a_look(self) -> bool:
        """False when `_take` has nothing for certain: while all is calm the queue is empty."""
        return self._fault is not None or not self._intake.is_calm or len(self._lane) > 0

    def _take(self) -> Item | None:
        lane, queue = self._lane, self._queue
        if self._fault is not None:
            raise self._fault
        if self._lag_watch is not None:
            self._react(self._lag_watch)
        with self._lock:
            while True:
                if not self._is_turn_of_queue():
                    event = lane.take()
                    if event is not None:
                        return event
                item = queue.take() if self._lag_watch is None else queue.take(time.time_ns())
                if item is not None:
                    break
                self._intake.is_mixed = False
                if self._queue_is_next:
                    continue  # the lane may have something
                if not lane.is_stuck:
                    if self._intake.unstick():
                        continue
                    if queue.disconnected:
                        raise Disconnected(f"{queue.disconnected}; open a new subscriber")
                    return None
                loss = self._intake.take_stuck()
                if loss is not None:
                    return loss
            if isinstance(item, Event) and item.sent_at_ns:
                self._ledger.latency_ns.record(time.time_ns() - item.sent_at_ns)
            return item

    def _is_turn_of_queue(self) -> bool:
        """True every other time while both the lane and the queue have something, and always for
        a loss that comes before what is in the lane."""
        self._queue_is_next = self._intake.is_mixed and (
            self._queue.has_to_tell_first or not self._queue_is_next
        )
        return self._queue_is_next

    def _react(self, watch: LagWatch) -> None:
        """Does what the user wants when the subscriber has fallen behind."""
        with self._lock:
            lag = watch.take()
        if lag is None:
            return
        on_lag = watch.options.on_lag
        if callable(on_lag):
            on_lag(lag)
        elif on_lag == "raise":
            raise Lagging(str(lag))
        elif on_lag == "disconnect":
            with self._lock:
                self._queue.disconnect(f"{lag} and on_lag is 'disconnect'")

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

    # -- asyncio ---------------------------------------------------------------------------------

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
            await self._news(loop)
            item = self._take()
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

    async def _news(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits until something has come; other tasks run meanwhile."""
        self._waiter = Arrival(loop)
        try:
            if not self._has_items() and self._fault is None:  # from the caretaker, before it knew
                await self._waiter
                self._turn_ends_at = time.monotonic() + TURN_S
        finally:
            self._waiter = None

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
        lane = self._lane
        with self._lock:
            if self._is_closed or self._timer is not None or len(lane) or not lane.is_calm:
                received = None
            else:
                self._attended = True
                received = lane.read(NOW, 0.0)
        if received or not len(lane) or self._waiter is None:
            self._pump_in_loop(received=received)
        else:
            self._waiter.tell()  # it looks whether more has come before it waits again

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

    def _has_items(self) -> bool:
        return len(self._lane) > 0 or len(self._queue) > 0 or bool(self._queue.disconnected)

    def _finish_wait(self) -> None:
        if self._waiter is not None:
            self._waiter.tell()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.get_loop().is_closed():
            waiter.get_loop().call_soon_threadsafe(self._finish_wait)

    # -- the caretaker ---------------------------------------------------------------------------

    def _take_care(self) -> None:
        while not self._left.wait(CARETAKER_S):
            if self._attended:
                self._attended = False
                continue
            try:
                while not (self._read_for_application() or self._left.wait(CARETAKER_PAUSE_S)):
                    pass
            except BaseException as fault:  # raised where the application can see it
                self._fault = fault
                self._wake()
                return

    def _read_for_application(self) -> bool:
        """Reads once; True when there is nothing more to do for now."""
        with self._lock:
            if self._is_closed or self._waiting is not None or self._attended:
                return True
            is_drained = self._intake.pump()
            has_items = self._has_items()
        if has_items:
            self._wake()
        return is_drained


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
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
