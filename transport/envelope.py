"""The event on the wire: one MessagePack array, readable by any MessagePack library.

    whole event   [1, topic, value, key, source, occurred_at_ns, sent_at_ns, headers]
    one piece     [1, place, pieces, bytes]      of an event too large for a packet
    delivery      [1, stream, sequence, attempt, bytes]
                  a whole event for one subscriber alone, under a number of its own: the stream and
                  the number it was published with, and how often it has been handed out

The first element is the format version. `key` and `headers` may be nil. Source travels in every
event (a late joiner knows it from the first one it sees); epoch, stream and sequence number
stand in the transport's own framing. Pieces are consecutive messages, see pieces.py. What a
delivery says of itself becomes headers of the event.

`msgpack` is used as it is the reference implementation and compiled; nothing here is specific
to it. The checks of the usual event are compiled too (`_envelope.pyx`); what is in any way unusual
is read here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from .datagrams import COMPILED
from .errors import LimitError, Malformed, UnsupportedValue
from .event import NO_HEADERS

if TYPE_CHECKING or COMPILED:
    from ._envelope import decode_usual as _decode_usual
else:

    def _decode_usual(*_message: object) -> None:
        return None


FORMAT_VERSION = 1

MAX_TOPIC_BYTES = 255
"""Topics are names, and ZeroMQ and StatsD peers expect short ones."""
MAX_KEY_BYTES = 1024
MAX_SOURCE_BYTES = 255
MAX_HEADERS = 32
MAX_HEADER_NAME_BYTES = 128
MAX_HEADER_VALUE_BYTES = 4096
MAX_NESTING = 32
"""Lists and maps inside one another; deeper values are attacks or accidents."""
MAX_EVENT_BYTES = 1024 * 1024
"""An encoded event, envelope included."""
MAX_DELIVERY_BYTES = MAX_EVENT_BYTES + 512
"""A delivery of the largest event."""
MAX_PIECES = 0xFFFF
"""Pieces of one event: the largest event in the smallest packets has fewer."""

STREAM_HEADER = "onehop-stream"
SEQUENCE_HEADER = "onehop-sequence"
ATTEMPT_HEADER = "onehop-attempt"
"""What a delivery says of itself."""

_WHOLE_LENGTH = 8
WHOLE_MARK = b"\x98"
"""How an array of eight begins; an event inside a delivery is nothing else."""
_DELIVERY_LENGTH = 5
_PIECE_LENGTH = 4
_PROVEN_BYTES = 2048
"""Longer messages are looked through before anything is built: lists inside one another that
each declare more items than there are would cost a thousand times the message in memory."""
_FOREIGN = (msgpack.ExtType, msgpack.Timestamp)
_COMPOUND = (dict, list, tuple, msgpack.Timestamp)
"""What is looked into; `ExtType` is a tuple."""
_PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""What most values are made of, and need no look."""


class Whole(NamedTuple):
    """The fields of a whole event, checked."""

    topic: str
    value: Any
    key: str | None
    source: str
    occurred_at_ns: int
    sent_at_ns: int
    headers: Mapping[str, str]


class Piece(NamedTuple):
    """One piece of an event: at place `place` of `pieces`, counted from 0."""

    place: int
    pieces: int
    data: bytes


class PlainEncoder:
    """An encoder to which no event is usual."""

    def __init__(self, source: str) -> None:
        self._source = source

    def encode(
        self,
        topic: str,
        value: Any,
        key: str | None,
        occurred_at_ns: int | None,
        sent_at_ns: int,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        """The bytes of an event; raises `LimitError` or `UnsupportedValue` before any is sent.

        With None for when it occurred it did as it was sent.
        """
        if occurred_at_ns is None:
            occurred_at_ns = sent_at_ns
        return self.encode_unusual(topic, value, key, occurred_at_ns, sent_at_ns, headers)

    def encode_unusual(
        self,
        topic: str,
        value: Any,
        key: str | None,
        occurred_at_ns: int,
        sent_at_ns: int,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        """The same for what needs a closer look."""
        raise NotImplementedError


if TYPE_CHECKING or not COMPILED:
    UsualEncoder = PlainEncoder
else:
    from ._envelope import UsualEncoder


class EventEncoder(UsualEncoder):
    """Encodes the events of one source. Not for use from two threads at once."""

    def __init__(self, source: str) -> None:
        _check_text("source", source, 1, MAX_SOURCE_BYTES)
        super().__init__(source)
        self._name = source
        self._pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack

    def encode_unusual(
        self,
        topic: str,
        value: Any,
        key: str | None,
        occurred_at_ns: int,
        sent_at_ns: int,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        """The bytes of an event that is looked at closely."""
        _check(topic, value, key, headers, occurred_at_ns)
        fields = (
            FORMAT_VERSION, topic, value, key, self._name, occurred_at_ns, sent_at_ns,
            dict(headers) if headers else None,
        )  # fmt: skip
        try:
            data: bytes = self._pack(fields)
        except (TypeError, ValueError, OverflowError, BufferError) as fault:
            seen = _number_out_of_range([value, occurred_at_ns]) or str(fault)
            raise UnsupportedValue(f"value of {topic!r} cannot be sent: {seen}") from fault
        if len(data) > MAX_EVENT_BYTES:
            raise LimitError(
                f"event on {topic!r} has {len(data)} bytes, at most {MAX_EVENT_BYTES} can be sent"
            )
        return data


def _check(
    topic: str, value: Any, key: str | None, headers: Mapping[str, str] | None, occurred_at_ns: int
) -> None:
    """Raises on what cannot be sent, as far as MessagePack does not."""
    _check_text("topic", topic, 1, MAX_TOPIC_BYTES)
    if key is not None:
        _check_text("key", key, 0, MAX_KEY_BYTES)
    if headers:
        _check_headers(headers)
    if type(occurred_at_ns) is not int:
        seen = type(occurred_at_ns).__name__
        raise LimitError(f"occurred_at_ns is a {seen}, expected whole nanoseconds")
    if type(value) not in _PLAIN and isinstance(value, _COMPOUND):
        _check_compound(value, MAX_NESTING)


def encode_piece(index: int, pieces: int, data: bytes) -> bytes:
    """The bytes of one piece."""
    packed: bytes = msgpack.packb((FORMAT_VERSION, index, pieces, data), use_bin_type=True)
    return packed


def encode_delivery(stream: str, sequence: int, attempt: int, data: bytes) -> bytes:
    """The bytes of an encoded event for one subscriber alone."""
    fields = (FORMAT_VERSION, stream, sequence, attempt, data)
    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return packed


PIECE_OVERHEAD_BYTES = len(encode_piece(0xFFFF, 0xFFFF, b"\0" * 0x10000)) - 0x10000
"""What `encode_piece` adds at most."""


def decode(data: bytes) -> Whole | Piece:
    """Reads one message; raises `Malformed` on anything that is not exactly an event or piece."""
    usual = _decode_usual(Whole, data)
    if usual is not None:
        return usual
    size = len(data)
    if size > MAX_DELIVERY_BYTES:
        raise Malformed("too_large", f"message of {size} bytes, at most {MAX_EVENT_BYTES}")
    try:
        if size > _PROVEN_BYTES:
            _prove(data)
        fields = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError) as fault:
        raise Malformed("bad_messagepack", f"{type(fault).__name__}: {fault}") from None
    if type(fields) is not list or not fields:
        raise Malformed("not_an_array", f"a message is a MessagePack {type(fields).__name__}")
    if type(fields[0]) is not int or fields[0] != FORMAT_VERSION:
        seen = fields[0] if type(fields[0]) is int else f"of type {type(fields[0]).__name__}"
        raise Malformed("unknown_version", f"version {seen}, known is {FORMAT_VERSION}")
    if len(fields) == _DELIVERY_LENGTH:
        return _delivery(fields)
    if size > MAX_EVENT_BYTES:
        raise Malformed("too_large", f"message of {size} bytes, at most {MAX_EVENT_BYTES}")
    if len(fields) == _WHOLE_LENGTH:
        return _whole(fields)
    if len(fields) == _PIECE_LENGTH:
        return _piece(fields)
    raise Malformed(
        "wrong_length",
        f"{len(fields)} fields, expected {_WHOLE_LENGTH}, {_DELIVERY_LENGTH} or {_PIECE_LENGTH}",
    )


def _whole(fields: list[Any]) -> Whole:
    _, topic, value, key, source, occurred_at_ns, sent_at_ns, headers = fields
    if (
        type(topic) is not str
        or type(source) is not str
        or type(occurred_at_ns) is not int
        or type(sent_at_ns) is not int
        or not (key is None or type(key) is str)
    ):
        raise Malformed("wrong_type", "topic, key, source or a time is of another type")
    if not 1 <= _size(topic) <= MAX_TOPIC_BYTES or not 1 <= _size(source) <= MAX_SOURCE_BYTES:
        raise Malformed("bad_length", f"topic of {_size(topic)}, source of {_size(source)} bytes")
    if key is not None and _size(key) > MAX_KEY_BYTES:
        raise Malformed("bad_length", f"key of {_size(key)} bytes, at most {MAX_KEY_BYTES}")
    if type(value) not in _PLAIN and isinstance(value, _COMPOUND):
        try:
            _check_compound(value, MAX_NESTING)
        except LimitError as fault:
            raise Malformed("too_deep", str(fault)) from None
        except UnsupportedValue as fault:
            raise Malformed("bad_value", str(fault)) from None
    if headers is None:
        return Whole(topic, value, key, source, occurred_at_ns, sent_at_ns, NO_HEADERS)
    if type(headers) is not dict:
        raise Malformed("wrong_type", "headers are not a map")
    try:
        _check_headers(headers)
    except LimitError as fault:
        raise Malformed("bad_headers", str(fault)) from None
    return Whole(topic, value, key, source, occurred_at_ns, sent_at_ns, headers)


def _delivery(fields: list[Any]) -> Whole:
    _, stream, sequence, attempt, data = fields
    if (
        type(stream) is not str
        or type(sequence) is not int
        or type(attempt) is not int
        or type(data) is not bytes
        or _size(stream) > MAX_TOPIC_BYTES
        or len(data) > MAX_EVENT_BYTES
        or data[:1] != WHOLE_MARK
    ):
        raise Malformed("bad_delivery", "a delivery is a stream, two numbers and a whole event")
    whole = decode(data)
    assert isinstance(whole, Whole)
    headers = {
        **whole.headers,
        STREAM_HEADER: stream,
        SEQUENCE_HEADER: str(sequence),
        ATTEMPT_HEADER: str(attempt),
    }
    return whole._replace(headers=headers)


def _piece(fields: list[Any]) -> Piece:
    _, index, pieces, data = fields
    if type(index) is not int or type(pieces) is not int or type(data) is not bytes:
        raise Malformed("wrong_type", "a piece is two numbers and bytes")
    if not (0 <= index < pieces <= MAX_PIECES and pieces > 1) or not data:
        raise Malformed("bad_piece", f"piece {index} of {pieces} with {len(data)} bytes")
    return Piece(index, pieces, data)


def _prove(data: bytes) -> None:
    unpacker = msgpack.Unpacker(read_size=len(data), max_buffer_size=len(data))
    unpacker.feed(data)
    try:
        unpacker.skip()
    except msgpack.OutOfData:
        raise ValueError("incomplete input") from None


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _check_text(name: str, text: str, least: int, most: int) -> None:
    if not isinstance(text, str):
        raise LimitError(f"{name} is a {type(text).__name__}, expected text")
    try:
        size = _size(text)
    except UnicodeEncodeError as fault:
        raise LimitError(f"{name} is not UTF-8 text: {fault}") from None
    if not least <= size <= most:
        raise LimitError(f"{name} has {size} bytes, expected {least} to {most}")


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > MAX_HEADERS:
        raise LimitError(f"{len(headers)} headers, at most {MAX_HEADERS}")
    for name, value in headers.items():
        _check_text("header name", name, 1, MAX_HEADER_NAME_BYTES)
        _check_text(f"header {name!r}", value, 0, MAX_HEADER_VALUE_BYTES)


def _check_compound(value: Any, levels: int) -> None:
    """Raises unless a list or map is nested no deeper than `levels` and all readers have a form
    for it: lists as map keys, and extension types, are in MessagePack and in few languages."""
    if isinstance(value, _FOREIGN):
        raise UnsupportedValue(
            f"value has a MessagePack {type(value).__name__}, expected plain data"
        )
    if levels == 0:
        raise LimitError(f"value nests deeper than {MAX_NESTING} levels")
    items = value
    if isinstance(value, dict):
        items = value.values()
        for key in value:
            if type(key) not in _PLAIN and isinstance(key, _COMPOUND):
                raise UnsupportedValue(f"value has a {type(key).__name__} as a map key")
    for item in items:
        if type(item) not in _PLAIN and isinstance(item, _COMPOUND):
            _check_compound(item, levels - 1)


def _number_out_of_range(value: Any) -> str | None:
    """Names the first whole number in a checked value that MessagePack cannot hold."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return f"a whole number of {value.bit_length()} bits, expected -2**63 to 2**64 - 1"
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        return next(filter(None, map(_number_out_of_range, value)), None)
    return None
