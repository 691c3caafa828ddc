"""The lane: messages of one session on the short way from the socket to the application.

Nearly every packet of a healthy session is the next one. Such packets need no gap table and no
timers: the lane reads them from the socket itself, cuts them into messages and makes an event of
each when the application takes it. What is not the next packet comes out of `read` untouched, with
everything behind it, and goes the long way; what comes out of there in turn is pushed back in here.

    read(…)    datagrams in, in order from `next_number` on; returns those that are not the lane's
    push(…)    messages that came the long way
    take()     the next event that is wanted, or None: there is none, or what is next is no plain
               event: then `is_stuck`, and `pop` gives it as it is
    pop()      what is next, as it is: (number, message, received_at_ns)
    drop(most) the first messages are too old: lets them go
    settle()   what became of the numbers since the last time, and the latencies of the taken

This file is the specification in plain Python, `_lane.pyx` the same over the compiled reader's
buffers (`Lane`), and over packets that a reader in Python has (`MessageLane`); one that reads a
socket of ZeroMQ is in `zeromq/_frames.pyx`. A lane is used by one thread at a time, except that
others may use it while one waits in `read`, which they must not do too.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from .datagrams import COMPILED, Address, Received
from .envelope import WHOLE_MARK, Whole, decode
from .errors import Malformed
from .event import NO_HEADERS, Event
from .mold.wire import (
    END_OF_SESSION_COUNT,
    HEADER,
    HEADER_BYTES,
    HEARTBEAT_COUNT,
    LENGTH_BYTES,
    MAX_SEQUENCE,
)

How = Literal[0, 1, 2]
NOW: How = 0
SLEEPING: How = 1
SPINNING: How = 2

Message = tuple[int, object, int]
"""Number, message, when it came."""
Runs = list[tuple[int, int, bool]]
"""Numbers `[first, stop)`, and whether they were filtered; otherwise they were taken."""

_new = tuple.__new__

MAX_UNSETTLED = 256
"""Events taken whose accounts may wait, at least; filtered ones count too. A look at the ledger has
them written."""


class Reader(Protocol):
    """What a plain lane reads from."""

    def receive(self) -> list[Received]:
        """What has come; never waits."""

    def receive_wait(self, timeout_s: float | None) -> list[Received]:
        """What has come, sleeping until something has."""

    def spin(self, timeout_s: float) -> list[Received]:
        """The same without sleeping."""


class PythonLane:
    """The lane in plain Python."""

    def __init__(
        self,
        reader: Reader,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> None:
        self._receive = reader.receive
        self._receive_wait = reader.receive_wait
        self._spin = reader.spin
        self._is_raw = is_raw
        self._topics = topics
        self._is_lost = is_lost  # for faults on purpose
        self._session, self._source, self._epoch, self._stream = b"", "", 0, ""
        self._origin: Address | None = None
        self.may_read = False
        """Set by the owner while everything that comes can be read here, until its next pump."""
        self.is_stuck = False
        self.next_number = 0
        self.size_bytes = 0
        self._waiting: deque[Message] = deque()
        self._run_first = self._run_stop = 0  # taken and not settled
        self._runs: Runs = []
        self._latencies_ns: list[int] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_calm(self) -> bool:
        """True while there is nothing else to do than to read: the accounts can wait a little."""
        unsettled = len(self._latencies_ns) + len(self._runs) + self._run_stop - self._run_first
        return self.may_read and not self.is_stuck and unsettled < MAX_UNSETTLED

    def open(
        self, session: bytes, origin: Address, source: str, epoch: int, stream: str = ""
    ) -> None:
        """Begins with a session whose packets come from `origin`; nothing of another one waits."""
        self._session, self._origin = session, origin
        self._source, self._epoch, self._stream = source, epoch, stream
        self.next_number = 0  # nothing can be read until `expect` is called

    def expect(self, next_number: int) -> None:
        """Says which packet is the next to be read."""
        self.next_number = next_number

    def read(self, how: How, timeout_s: float) -> list[Received]:
        """Reads what is there, waiting for it as told; returns what is not the lane's."""
        if how == NOW:
            received = self._receive()
        else:
            received = (self._receive_wait if how == SLEEPING else self._spin)(timeout_s)
        if self._is_lost is not None:
            received = [datagram for datagram in received if not self._is_lost()]
        for index, (data, origin, at_ns) in enumerate(received):
            if origin != self._origin or not self._append(data, at_ns):
                return received[index:]
        return []

    def _append(self, data: bytes, at_ns: int) -> bool:
        """Takes a packet if it is the next one and whole."""
        if len(data) < HEADER_BYTES:
            return False
        session, sequence, count = HEADER.unpack_from(data)
        if sequence != self.next_number or session != self._session:
            return False
        if count in (HEARTBEAT_COUNT, END_OF_SESSION_COUNT):
            return False
        if not 0 < sequence <= MAX_SEQUENCE - count + 1:
            return False
        messages = []
        at, end = HEADER_BYTES, len(data)
        for _ in range(count):
            start = at + LENGTH_BYTES
            if start > end:
                return False
            at = start + ((data[start - 2] << 8) | data[start - 1])
            messages.append(data[start:at])
        if at != end:
            return False
        if count == 1:
            self._waiting.append((sequence, messages[0], at_ns))
        else:
            self._waiting.extend([(n, m, at_ns) for n, m in enumerate(messages, sequence)])
        self.size_bytes += end - HEADER_BYTES - count * LENGTH_BYTES
        self.next_number += count
        return True

    def push(self, first: int, messages: Sequence[object], at_ns: int) -> None:
        """Takes messages in, numbered from `first` on; one that is not bytes is for `pop`."""
        for number, message in enumerate(messages, first):
            self._waiting.append((number, message, at_ns))
            self.size_bytes += len(message) if isinstance(message, bytes) else 0

    def take(self) -> Event | None:
        """The next event."""
        while self._waiting and not self.is_stuck:
            number, message, at_ns = self._waiting[0]
            if not isinstance(message, bytes):
                self.is_stuck = True
                return None
            if self._is_raw:
                fields: tuple[object, ...] = (
                    "", message, None, self._source, self._epoch, self._stream, number,
                    0, 0, at_ns, NO_HEADERS,
                )  # fmt: skip
                self._pass(number, message)
                return _new(Event, fields)
            try:
                whole = decode(message)
            except Malformed:
                whole = None
            if not isinstance(whole, Whole):
                self.is_stuck = True
                return None
            topic, value, key, source, occurred_at_ns, sent_at_ns, headers = whole
            if self._topics and not topic.startswith(self._topics):
                self._filter(number, message)
                continue
            self._pass(number, message)
            self._latencies_ns.append(time.time_ns() - sent_at_ns)
            fields = (
                topic, value, key, source, self._epoch, self._stream, number,
                occurred_at_ns, sent_at_ns, at_ns, headers,
            )  # fmt: skip
            return _new(Event, fields)
        return None

    def take_many(self, limit: int) -> list[Event]:
        """At most `limit` events, as many as `take` would give."""
        events: list[Event] = []
        if self._is_raw:
            self._take_raw(events, limit)
        while len(events) < limit and (event := self.take()) is not None:
            events.append(event)
        return events

    def _take_raw(self, events: list[Event], limit: int) -> None:
        """The same as `take` again and again, up to the first obstacle, at half the cost."""
        waiting, source, epoch, stream = self._waiting, self._source, self._epoch, self._stream
        size_bytes = 0
        while waiting and len(events) < limit and not self.is_stuck:
            number, message, at_ns = waiting[0]
            if not isinstance(message, bytes):
                break
            waiting.popleft()
            size_bytes += len(message)
            if number != self._run_stop:
                self._end_run()
                self._run_first = number
            self._run_stop = number + 1
            fields = ("", message, None, source, epoch, stream, number, 0, 0, at_ns, NO_HEADERS)
            events.append(_new(Event, fields))
        self.size_bytes -= size_bytes

    def _pass(self, number: int, message: bytes) -> None:
        self._waiting.popleft()
        self.size_bytes -= len(message)
        if number != self._run_stop:
            self._end_run()
            self._run_first = number
        self._run_stop = number + 1

    def _filter(self, number: int, message: bytes) -> None:
        self._waiting.popleft()
        self.size_bytes -= len(message)
        self._end_run()
        self._runs.append((number, number + 1, True))

    def _end_run(self) -> None:
        if self._run_first < self._run_stop:
            self._runs.append((self._run_first, self._run_stop, False))
        self._run_first = self._run_stop

    def pop(self) -> Message | None:
        """What is next, as it is; the caller settles it."""
        if not self._waiting:
            return None
        number, message, at_ns = self._waiting.popleft()
        self.size_bytes -= len(message) if isinstance(message, bytes) else 0
        self.is_stuck = False
        return number, message, at_ns

    def drop(self, most: int) -> tuple[int, int]:
        """Lets go of `most` messages at the most, numbered without a hole, that are no pieces of
        events; returns the first number, and how many."""
        first = stop = 0
        while stop - first < most and self._waiting:
            number, message, _ = self._waiting[0]
            if not isinstance(message, bytes) or (stop and number != stop):
                break
            if not self._is_raw and message[:1] != WHOLE_MARK:
                break
            self._waiting.popleft()
            self.size_bytes -= len(message)
            first, stop = first or number, number + 1
        self.is_stuck = False
        return first, stop - first

    def settle(self) -> tuple[Runs, list[int]]:
        """What became of the numbers since the last time, and the latencies in nanoseconds."""
        self._end_run()
        runs, self._runs = self._runs, []
        latencies_ns, self._latencies_ns = self._latencies_ns, []
        return runs, latencies_ns


if TYPE_CHECKING:
    Lane = PythonLane
    MessageLane = PythonLane
elif COMPILED:
    from onehop.transport._lane import Lane, MessageLane
else:
    Lane = MessageLane = PythonLane
