"""The way into the queue under `on_overflow="block"`: what finds no room waits in front of it.

    intake ──▶ gate ──▶ queue ──▶ application
                 └──▶ grants: how far the application is, for publishers that wait

While anything waits in front of the gate the intake reads nothing more, so what waits is no more
than one batch; the rest stays with ZeroMQ, or in the ring of the publisher. A publisher that has
waited long enough says so, and from then on everything is dropped, by the ledger as `overflow`.
"""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from .event import Event, Loss
from .handover import HandoverQueue
from .ledger import StreamAccount

Held = tuple[Event, StreamAccount, int, int, int, int] | tuple[Loss, StreamAccount]


class Backpressure(Protocol):
    """How a transport makes publishers wait."""

    @property
    def window(self) -> int:
        """Messages that may be under way to the application."""

    @property
    def is_given_up(self) -> bool:
        """True when a publisher has waited long enough."""

    def grant(self, taken: Mapping[bytes, int]) -> None:
        """Tells publishers how far the application is: of each session, what is behind it."""


class Gate:
    """Holds back what does not fit, and says how far the application is."""

    def __init__(self, queue: HandoverQueue, backpressure: Backpressure) -> None:
        self._queue = queue
        self._backpressure = backpressure
        self._held: deque[Held] = deque()
        self._granted: dict[bytes, int] = {}

    def __len__(self) -> int:
        """What waits in front of it."""
        return len(self._held)

    def put(
        self, event: Event, account: StreamAccount, first: int, count: int, size: int, at_ns: int
    ) -> None:
        """Lets an event in, now or in its turn."""
        held = (event, account, first, count, size, at_ns)
        if self._held or not self._let_in(held):
            self._held.append(held)

    def put_loss(self, loss: Loss, account: StreamAccount) -> None:
        """Lets a loss in, behind what waits."""
        if self._held:
            self._held.append((loss, account))
        else:
            self._queue.put_loss(loss, account)

    def release(self) -> bool:
        """Lets in what waits as far as it fits; True if something did."""
        before = len(self._held)
        while self._held and self._let_in(self._held[0]):
            self._held.popleft()
        return len(self._held) < before

    def grant(self, taken: dict[bytes, int], *, is_idle: bool) -> None:
        """Says how far the application is: a quarter of the window at a time, or when it waits."""
        before = self._granted
        ahead = sum(taken.values()) - sum(before.values())
        is_worth_it = ahead * 4 >= self._backpressure.window or (is_idle and ahead)
        if is_worth_it or taken.keys() != before.keys():
            self._granted = taken
            self._backpressure.grant(taken)
        if self._backpressure.is_given_up and not self._queue.disconnected:
            self._queue.disconnect(
                "a publisher has waited block_timeout_s for this subscriber and waits no more"
            )

    def _let_in(self, held: Held) -> bool:
        if len(held) == 2:
            self._queue.put_loss(*held)
            return True
        # Once disconnected it is dropped by the queue, which says False all the same.
        return self._queue.put(*held) or self._queue.disconnected is not None
