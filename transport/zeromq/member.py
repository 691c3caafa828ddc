"""A subscriber that is one of a group: events that were handed to it are its own until it has
done them.

    receive ──▶ the application works ──▶ receive again: done      ack="auto"
                                     └──▶ ack(event): done         ack="manual"

What is not done when it closes, or dies, goes to another member. Leaving a `with` block with an
exception is not done; the event that was being worked on goes to another member too.
"""

import time
from collections.abc import Sequence
from types import TracebackType

from ..errors import LocalError
from ..event import Event, LossReason
from ..handover import HandoverQueue
from ..intake import Intake
from ..ledger import Ledger
from ..reception import Item
from ..subscriber import Subscriber
from .request_port import RequestPort
from .sharing import Ack

REPORT_EVENTS = 16
"""Events done before the publisher is told, while more wait here; at once when none do."""


class GroupMember(Subscriber):
    """Receives its share of the events of a group; made by `open_subscriber(group=…)`."""

    def __init__(
        self,
        intake: Intake,
        queue: HandoverQueue,
        ledger: Ledger,
        requests: RequestPort,
        ack: Ack,
        *,
        spin: bool = False,
    ) -> None:
        self._requests = requests
        self._ack = ack
        self._in_hand: Sequence[Event] = ()
        self._unreported = 0
        # Not direct: what was taken before is to be told before the next.
        super().__init__(intake, queue, ledger, is_direct=False, spin=spin)

    def ack(self, event: Event) -> None:
        """Says that an event is done; for `ack="manual"`, from any thread."""
        if self._ack != "manual":
            raise LocalError(f"ack is {self._ack!r}: events are done when the next is asked for")
        self._done([event])

    # -- what the application takes ----------------------------------------------------------------

    def receive(self, timeout_s: float | None = None) -> Event | None:
        """The next event, waiting for it up to `timeout_s`; the one before it is done."""
        self._finish()
        event = super().receive(timeout_s)
        if event is not None:
            self._hand(event)
        return event

    def receive_many(self, limit: int = 1024, timeout_s: float | None = None) -> list[Event]:
        """What has come, at most `limit` events; those before them are done."""
        self._finish()
        events = super().receive_many(limit, timeout_s)
        self._hand(*events)
        return events

    def _next_item(self, give_up_at: float | None) -> Item | None:
        self._finish()
        return self._handed(super()._next_item(give_up_at))

    async def _next_item_async(self) -> Item | None:
        self._finish()
        return self._handed(await super()._next_item_async())

    def _handed(self, item: Item | None) -> Item | None:
        if isinstance(item, Event):
            self._hand(item)
        return item

    def _hand(self, *events: Event) -> None:
        if self._ack == "none":
            self._done(events)
        elif self._ack == "auto":
            self._in_hand = events

    def _finish(self) -> None:
        if self._in_hand:
            events, self._in_hand = self._in_hand, ()
            self._done(events)

    def _done(self, events: Sequence[Event]) -> None:
        for event in events:
            session = event.stream.rpartition(".")[2].encode()
            self._requests.done(session, event.sequence)
        self._unreported += len(events)
        with self._lock:
            if self._unreported < REPORT_EVENTS and self._has_items():
                return
            self._unreported = 0
            if self._is_closed:
                return
            if self._waiting is None:
                self._requests.report()
            else:
                self._requests.nudge()  # the thread that waits uses the sockets

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives back what has not been taken; what has been is done."""
        if not self._is_closed:
            self._finish()
        super().close()
        with self._shield, self._lock:  # it goes to another member, and must not be taken here
            self._queue.give_up(LossReason.ENDED, time.time_ns())

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None:
            self._in_hand = ()
        super().__exit__(exc_type, exc, traceback)
