"""What a task waits for until something has come.

A task that waits for an `asyncio.Future` goes on in the next turn of the loop: between the callback
that reads a socket and the application there is another look at all the sockets. With an `Arrival`
it goes on within the callback. asyncio takes anything for a future that behaves like one
(`asyncio.isfuture`); for this one a single task waits, and it is used up when told.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

from .event import Event

Wakeup = Callable[["Arrival"], object]


class Arrival:
    """Goes on with the task that awaits it when `tell` is called, in a callback of the loop."""

    __slots__ = (
        "_asyncio_future_blocking", "_context", "_event", "_is_done", "_loop", "_wakeup",
        "_why_cancelled",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._wakeup: Wakeup | None = None
        self._context: Context | None = None
        self._is_done = False
        self._event: Event | None = None
        self._why_cancelled: asyncio.CancelledError | None = None

    @property
    def is_waiting(self) -> bool:
        """True until it is told, or the task is cancelled."""
        return not self._is_done

    def tell(self, event: Event | None = None) -> None:
        """Has the task go on, now, perhaps with an event. Not to be called from within a task."""
        if self._is_done:
            return
        self._is_done, self._event = True, event
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            assert self._context is not None
            self._context.run(wakeup, self)

    # -- what a task asks of a future ------------------------------------------------------------

    def __await__(self) -> Generator["Arrival", None, Event | None]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the task."""
        return self._loop

    def add_done_callback(self, wakeup: Wakeup, *, context: Context) -> None:
        """Notes how the task goes on."""
        self._wakeup, self._context = wakeup, context

    def cancel(self, msg: Any = None) -> bool:
        """The task is cancelled: it goes on in the next turn of the loop, with an exception."""
        if self._is_done:
            return False
        self._is_done = True
        self._why_cancelled = (
            asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        )
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            self._loop.call_soon(wakeup, self, context=self._context)
        return True

    def result(self) -> Event | None:
        """The event, if one was told; raises what ended the wait, if it was not an arrival."""
        if self._why_cancelled is not None:
            raise self._why_cancelled
        return self._event
