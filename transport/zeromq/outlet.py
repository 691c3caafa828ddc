"""From encoded events to messages of ZeroMQ: numbers, keeps and packs. The hot path of a publisher.

    open(name, …)                   a stream, from then on known by its name
    number(topic, value, …, now)    an event: encoded, then published
    publish(topic, key, data, now)  an encoded one: put into its stream, remembered as a last value
    put(name, message, now)         any message: numbered, kept in the ring, packed
    add(message)                    something else that goes out, behind all that came before
    take_full(), take_all()         what goes out, in order; without or with the packets that are
                                    being filled

Packets are as large as allowed while a batch is made, and as small as one event otherwise. Which
streams have moved since somebody asked is kept here too, as it is noted with each message.

This file is the specification in plain Python, `_outlet.pyx` the same compiled.
"""

import time
from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Any

from ..datagrams import COMPILED
from ..errors import LimitError
from ..mold.ring import RingOptions
from ..mold.wire import (
    END_OF_SESSION_COUNT,
    HEADER_BYTES,
    LENGTH_BYTES,
    encode_block,
    encode_header,
)
from .last_values import LastValues
from .rings import RingSpace, StreamRing
from .wire import prefix_of, stream_of


class PythonStream(StreamRing):
    """One stream: its ring, its session, and the packet that is being filled."""

    __slots__ = ("has_moved", "has_unsent", "index", "name", "pending", "pending_bytes", "prefix",
                 "session")  # fmt: skip

    def __init__(self, space: RingSpace, name: str, index: int, session: bytes) -> None:
        super().__init__(space)
        self.name = name
        self.index = index
        self.session = session
        self.prefix = prefix_of(name)
        self.pending: list[bytes] = []
        self.pending_bytes = HEADER_BYTES
        self.has_unsent = self.has_moved = False

    def close_packet(self) -> bytes:
        """The packet that was being filled."""
        count = len(self.pending)
        header = encode_header(self.session, self.next - count, count)
        packet = b"".join((self.prefix, header, *self.pending))
        self.pending.clear()
        self.pending_bytes = HEADER_BYTES
        return packet


Encode = Callable[[str, Any, str | None, int | None, int, Mapping[str, str] | None], bytes]
"""`EventEncoder.encode` of a publisher."""
Otherwise = Callable[[str, str | None, bytes, int, float], int]
"""What is done with a topic, key, encoded event, number and time where `publish` is not enough."""


class PythonOutlet:
    """All streams of a publisher."""

    def __init__(
        self,
        options: RingOptions,
        packet_bytes: int,
        values: LastValues,
        encode: Encode,
        otherwise: Otherwise,
        company: tuple[Sized, Sized],
    ) -> None:
        """`otherwise` is called for events that `publish` leaves to the caller, numbered 0, and
        for each one while there is any of `company`; it returns the number."""
        self.max_message_bytes = packet_bytes - HEADER_BYTES - LENGTH_BYTES
        """Longer messages are refused."""
        self.streams: list[PythonStream] = []
        """By index."""
        self.moved_at: float | None = None
        """When the first of the streams that have moved did."""
        self._packet_bytes = packet_bytes
        self._values = values
        self._encode = encode
        self._otherwise = otherwise
        self._company = company
        self._space = RingSpace(options)
        self._by_name: dict[str, PythonStream] = {}
        self._unsent: list[PythonStream] = []
        self._moved: list[PythonStream] = []
        self._messages: list[bytes] = []

    @property
    def size_bytes(self) -> int:
        """Bytes that the rings keep."""
        return self._space.size_bytes

    @property
    def has_messages(self) -> bool:
        """True when `take_full` has something."""
        return bool(self._messages)

    def find(self, name: str) -> PythonStream | None:
        """The stream of that name, if it is open."""
        return self._by_name.get(name)

    def open(self, name: str, session: bytes) -> PythonStream:
        """Opens a stream."""
        stream = PythonStream(self._space, name, len(self.streams), session)
        self._by_name[name] = stream
        self.streams.append(stream)
        return stream

    def number(
        self,
        topic: str,
        value: Any,
        key: str | None,
        headers: Mapping[str, str] | None,
        occurred_at_ns: int | None,
        now: float,
    ) -> int:
        """Encodes an event that is sent now, and publishes it."""
        data = self._encode(topic, value, key, occurred_at_ns, time.time_ns(), headers)
        number = self.publish(topic, key, data, now)
        if not number or any(self._company):
            return self._otherwise(topic, key, data, number, now)
        return number

    def publish(self, topic: str, key: str | None, data: bytes, now: float) -> int:
        """Puts an event; 0 when its stream is not open, or it is longer than a message may be."""
        stream = self._by_name.get(stream_of(topic))
        if stream is None or len(data) > self.max_message_bytes:
            return 0
        number = self._put(stream, data, now)
        self._values.remember(topic, key, stream.name, number, data)
        return number

    def put(self, name: str, message: bytes, now: float) -> int:
        """Numbers a message of a stream that is open; it leaves with the next `take_…`."""
        if len(message) > self.max_message_bytes:
            raise LimitError(
                f"message of {len(message)} bytes, a packet holds at most {self.max_message_bytes}"
            )
        return self._put(self._by_name[name], message, now)

    def _put(self, stream: PythonStream, message: bytes, now: float) -> int:
        block = encode_block(message)
        if stream.pending_bytes + len(block) > self._packet_bytes:
            self._messages.append(stream.close_packet())
        number = stream.append(block, now)
        stream.pending.append(block)
        stream.pending_bytes += len(block)
        if not stream.has_unsent:
            stream.has_unsent = True
            self._unsent.append(stream)
        if not stream.has_moved:
            stream.has_moved = True
            self._moved.append(stream)
            if self.moved_at is None:
                self.moved_at = now
        return number

    def add(self, message: bytes) -> None:
        """Adds what is no packet of a stream."""
        self._messages = self.take_all()
        self._messages.append(message)

    def end(self) -> None:
        """Says of each stream that nothing more will come."""
        self._messages = self.take_all()
        for stream in self.streams:
            header = encode_header(stream.session, stream.next, END_OF_SESSION_COUNT)
            self._messages.append(stream.prefix + header)

    def take_full(self) -> list[bytes]:
        """The packets that are full, and what was before them."""
        messages, self._messages = self._messages, []
        return messages

    def take_all(self) -> list[bytes]:
        """Everything that has not gone out yet."""
        for stream in self._unsent:
            stream.has_unsent = False
            if stream.pending:
                self._messages.append(stream.close_packet())
        self._unsent.clear()
        return self.take_full()

    def take_moved(self, most: int, now: float) -> list[PythonStream]:
        """The streams that have moved, the longest ago first; the others have moved `now`."""
        moved, self._moved = self._moved[:most], self._moved[most:]
        for stream in moved:
            stream.has_moved = False
        self.moved_at = now if self._moved else None
        return moved


if TYPE_CHECKING or not COMPILED:
    Outlet = PythonOutlet
    Stream = PythonStream
else:
    from ._outlet import Outlet as Outlet
    from ._outlet import Stream as Stream
