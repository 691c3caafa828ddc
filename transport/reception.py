"""What a subscriber is inside, whichever way its application reads: taking, and the caretaker.

While the application is busy with an event a caretaker thread reads in its place, so that buffers
do not overflow, gaps are asked for in time and the overflow policy decides what is dropped, not the
kernel. One lock is over everything, except while a thread waits for the network.
"""

import threading
import time

from .errors import Disconnected, Lagging
from .event import Event, Loss
from .handover import HandoverQueue
from .intake import Intake, PathSnapshot
from .lag import LagWatch
from .ledger import Ledger, LedgerSnapshot
from .shield import Shield

CARETAKER_S = 0.02
"""How long the network may go unread before the caretaker reads in the application's place: the
default receive buffer of 4 MiB overflows after about 30 ms at 300,000 small packets a second."""
CARETAKER_PAUSE_S = 0.0002
"""Between two reads of a flood, so that the application gets at what has come."""

Item = Event | Loss


class Reception:
    """An intake, what it has brought, and the thread that minds it."""

    def __init__(
        self,
        intake: Intake,
        queue: HandoverQueue,
        ledger: Ledger,
        *,
        is_direct: bool,
        watch: LagWatch | None,
    ) -> None:
        """`is_direct`: events may be taken out of the lane with nothing else to be done."""
        self._intake = intake
        self._lane = intake.lane
        self._queue = queue
        self._ledger = ledger
        self._is_direct = is_direct and intake.is_direct
        self._queue_is_next = False
        self._lag_watch = watch
        self._lock = threading.Lock()  # over everything above, except while `_waiting` reads
        self._shield = Shield()  # around whatever writes accounts
        self._is_closed = False
        self._attended = True  # the application has read since the caretaker looked
        self._waiting: int | None = None  # the thread that waits inside the ports right now
        self._fault: BaseException | None = None  # what the caretaker met
        self._left = threading.Event()  # set once, at close
        self._caretaker = threading.Thread(
            target=self._take_care, name="onehop-caretaker", daemon=True
        )

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

    # -- taking ----------------------------------------------------------------------------------

    def _is_worth_a_look(self) -> bool:
        """False when `_take` has nothing for certain: while all is calm the queue is empty."""
        return self._fault is not None or not self._intake.is_calm or len(self._lane) > 0

    def _has_news(self) -> bool:
        """True when the next `_take` is to raise or call: not while it would cost events."""
        return self._fault is not None or (
            self._lag_watch is not None and self._lag_watch.has_noticed
        )

    def _has_items(self) -> bool:
        return len(self._lane) > 0 or len(self._queue) > 0 or bool(self._queue.disconnected)

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

    def _wake(self) -> None:
        """Has an application that waits elsewhere look at what has come."""
        raise NotImplementedError
