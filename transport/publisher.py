"""What an application holds to publish, whatever the transport.

`publish` encodes, numbers and sends in the caller's thread: nothing is queued, nothing waits. A
service thread does what is due meanwhile (heartbeats, requests, newcomers), off the send path; the
two share the state under a lock that is held for microseconds. A transport says how to number,
send and serve; the rest is here.
"""

import asyncio
import contextlib
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from .datagrams import Address
from .errors import Closed, LocalError
from .forks import stays_with_parent
from .group_account import GroupSnapshot
from .mold.requests import RequesterCounts

_monotonic = time.monotonic

IDLE_S = 0.004
"""Sleeping longer than this, the service thread is woken by the next message."""
READY_POLL_S = 0.001
"""How often `ready` looks; newcomers are noticed by the service thread."""


Number = Callable[[str, Any, str | None, Mapping[str, str] | None, int | None, float], int]
"""Topic, value, key, headers, when it occurred, and the time now, to the number of the event."""


@dataclass(frozen=True, slots=True)
class PublisherSnapshot:
    """What a publisher has done up to now."""

    source: str
    epoch: int
    session: str
    sent: int
    """Messages: what the ledgers of subscribers count."""
    events: int
    """Events: fewer than `sent` when some were split into pieces."""
    requests: int
    requests_served: int
    retransmitted: int
    evicted: int
    """Requests for messages that were no longer there."""
    ignored_requests: Mapping[str, int]
    send_errors: int
    """Packets the network refused to take; subscribers repair them from the ring."""
    ring_first: int
    """The lowest number that can be sent again, of any stream."""
    ring_bytes: int
    subscribers: int | None = None
    """Those that listen, where the transport can know."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Peers that were not let in, and how often: by key and address where they showed one."""
    disconnected: int = 0
    """Subscribers with `on_overflow="block"` that were waited for long enough."""


class Publisher(ABC):
    """Sends events; made by `open_publisher`."""

    def __init__(
        self, url: str, source: str, epoch: int, linger_s: float, *, number: Number
    ) -> None:
        """`number` encodes and numbers an event; it leaves with the next `_send_…`."""
        self.url = url
        """What subscribers open; with the port that was given where it was left to the system."""
        self.source = source
        self.epoch = epoch
        self._number = number
        self._waited_for: Sized = ()  # subscribers with on_overflow="block"
        self._linger_s = linger_s
        self._events = 0
        self._send_errors = 0
        self._lock = threading.Lock()
        self._batches = 0  # blocks of `batch()` that are open, in any thread
        self._is_closed = False
        self._wakes_at = 0.0
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ends_at: float | None = None
        self._service = threading.Thread(target=self._serve, name="onehop-publisher", daemon=True)
        stays_with_parent(self)

    # -- publishing ------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        occurred_at_ns: int | None = None,
    ) -> int:
        """Sends one event at once and returns its number.

        Waits for nobody, except for subscribers with `on_overflow="block"` where the transport
        has such; then at most their `block_timeout_s`, and never inside an event loop: there
        `drain` waits.
        """
        with self._lock:
            if self._is_closed:
                raise Closed("the publisher is closed")
            if self._waited_for:
                self._wait_for_room(topic)
            now = _monotonic()
            number = self._number(topic, value, key, headers, occurred_at_ns, now)
            self._events += 1
            if self._batches:
                self._send_full()
            else:
                self._send_soon(now)
                if self._wakes_at > now + IDLE_S:
                    self._wake()
        return number

    def publish_many(self, events: Iterable[tuple[str, Any]]) -> int:
        """Sends `(topic, value)` pairs in as few packets as they fit; returns how many."""
        count = 0
        with self.batch():
            for topic, value in events:
                self.publish(topic, value)
                count += 1
        return count

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Packs what is published inside the block: ten times the rate for small events.

        Full packets leave at once, the last one at the end of the block; in a block that takes
        its time, what is packed leaves with the next heartbeat, within milliseconds.
        """
        with self._lock:
            self._batches += 1
        try:
            yield
        finally:
            with self._lock:
                self._batches -= 1
            self.flush()

    def flush(self) -> None:
        """Sends what is packed and not sent. Without `batch()` there is never anything."""
        with self._lock:
            if self._is_closed:
                return
            now = time.monotonic()
            self._send_all(now)
            if self._wakes_at > now + IDLE_S:
                self._wake()

    async def drain(self) -> None:
        """The same for asyncio, giving the loop a turn."""
        self.flush()
        await asyncio.sleep(0)

    def ready(self, subscribers: int = 1, *, timeout_s: float = 5.0) -> None:
        """Waits until that many subscribers listen; raises `LocalError` when they do not come.

        Not over multicast: nobody there tells a publisher that it listens.
        """
        give_up_at = time.monotonic() + timeout_s
        while (listening := self._count_subscribers()) < subscribers:
            if time.monotonic() >= give_up_at:
                raise LocalError(f"{listening} of {subscribers} subscribers after {timeout_s} s")
            time.sleep(READY_POLL_S)

    @property
    @abstractmethod
    def stats(self) -> PublisherSnapshot:
        """What has been done up to now."""

    @property
    def groups(self) -> "Mapping[str, GroupSnapshot]":
        """The account of each group of subscribers that share the events, by name."""
        return {}

    def settle(self, timeout_s: float) -> None:
        """Waits until every group has done all its work; raises `LocalError` when it does not."""
        give_up_at = time.monotonic() + timeout_s
        while any(group.waiting or group.outstanding for group in self.groups.values()):
            if time.monotonic() >= give_up_at:
                left = ", ".join(
                    f"{name!r} has {group.waiting:,} waiting and {group.outstanding:,} in work"
                    for name, group in self.groups.items()
                )
                raise LocalError(f"not done after {timeout_s:g} s: group {left}")
            time.sleep(READY_POLL_S)

    @property
    @abstractmethod
    def requesters(self) -> dict[Address, RequesterCounts]:
        """Who asked for how much: the receiver that loses most stands out."""

    @property
    @abstractmethod
    def address(self) -> Address:
        """Where requests for this publisher's messages go."""

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the session, answers requests for `linger_s` more and frees everything."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            now = time.monotonic()
            self._end(now)
            self._ends_at = now + (self._linger_s if self._events else 0.0)
            self._wake()
        self._service.join()
        self._free()
        os.close(self._wake_fd)

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    # -- what a transport says -------------------------------------------------------------------

    def _wait_for_room(self, topic: str) -> None:
        """Waits, with the lock given back meanwhile, for those who asked to be waited for."""
        raise NotImplementedError(f"{type(self).__name__} waits for nobody")

    @abstractmethod
    def _send_full(self) -> None:
        """Sends the packets that are full."""

    @abstractmethod
    def _send_all(self, now: float) -> None:
        """Sends everything that is numbered and not sent."""

    def _send_soon(self, now: float) -> None:
        """Sends it as soon as is good for all: at once, where nothing is gained by waiting."""
        self._send_all(now)

    @abstractmethod
    def _count_subscribers(self) -> int:
        """How many listen; raises `ConfigurationError` where nobody can know."""

    @abstractmethod
    def _fds(self) -> list[int]:
        """Descriptors that call for `_answer`."""

    @abstractmethod
    def _next_timeout(self) -> float:
        """When `_answer` is to be called at the latest."""

    @abstractmethod
    def _answer(self) -> None:
        """Does what is due; called by the service thread without the lock."""

    @abstractmethod
    def _end(self, now: float) -> None:
        """Tells everyone that nothing more will come."""

    @abstractmethod
    def _free(self) -> None:
        """Closes what is open."""

    # -- inside ----------------------------------------------------------------------------------

    def _sleep(self, poll: "select.poll", timeout_s: float) -> list[tuple[int, int]]:
        """Waits until a descriptor has something, or it is time."""
        return poll.poll(timeout_s * 1e3)

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _serve(self) -> None:
        poll = select.poll()
        for fd in (*self._fds(), self._wake_fd):
            poll.register(fd, select.POLLIN)
        while True:
            with self._lock:
                now = time.monotonic()
                if self._ends_at is not None and now >= self._ends_at:
                    return
                wakes_at = self._next_timeout()
                if self._ends_at is not None:
                    wakes_at = min(wakes_at, self._ends_at)
                self._wakes_at = wakes_at
            ready = self._sleep(poll, max(0.0, wakes_at - now))
            self._wakes_at = 0.0
            for fd, _ in ready:
                if fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
            self._answer()
