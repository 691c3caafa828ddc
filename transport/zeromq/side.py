"""What goes over the side channel beside MoldUDP64 packets, no state.

    0xFF MessagePack array    one of the messages below, its name first
    NUL packet                publisher to one subscriber: new messages of a session of its own
    packet                    a request, or the reply to one

A session of its own is what a publisher opens for one subscriber: the share of a member of a
group, or the last value of each topic. Its messages are numbered from 1 without holes and carry
where they come from (see `envelope.py`), so that the same accounts hold for them as for streams.
"""

import math
from typing import Annotated, Literal

import msgspec

from ..errors import Malformed
from ..mold.wire import MAX_SEQUENCE, SESSION_BYTES
from .wire import CONTROL, NAME_BYTES

LIVE = b"\0"
"""In front of a packet that nobody asked for; a session begins with a letter or a digit."""
MAX_WINDOW = 1 << 40
MAX_TIMEOUT_S = 3600.0
MAX_GROUP_BYTES = 64
MAX_PREFETCH = 1024
RANGES_PER_MESSAGE = 128
"""What is done and told at a time: so that a message is short enough to be taken."""

Name = Annotated[bytes, msgspec.Meta(min_length=NAME_BYTES, max_length=NAME_BYTES)]
Session = Annotated[bytes, msgspec.Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]
Number = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIMEOUT_S)]


class Credit(msgspec.Struct, frozen=True, array_like=True, tag="credit"):
    """Subscriber with `on_overflow="block"` to publisher: how far its application is."""

    name: Name
    window: Annotated[int, msgspec.Meta(ge=1, le=MAX_WINDOW)]
    """Messages that may be under way to its application."""
    timeout_s: Seconds
    """How long it may be waited for."""
    wanted: tuple[bytes, ...]
    """Prefixes of streams it is subscribed to."""
    taken: dict[Session, Number]
    """For each session the number of messages, from its first on, that are behind it."""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Subscriber to publisher: the last value of each topic, please."""

    name: Name
    topics: tuple[str, ...]


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """Subscriber to publisher: it wants to be a member of a group."""

    name: Name
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_GROUP_BYTES)]
    topics: tuple[str, ...]
    order_by: Literal["", "key"]
    acknowledges: bool
    timeout_s: Seconds
    """How long a member may keep an event without a word."""
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=MAX_PREFETCH)]
    start: Literal["live", "first"]


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Member to publisher: these messages of its session are done with."""

    name: Name
    session: Session
    ranges: tuple[tuple[Number, Number], ...]
    """First and last number of each."""


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """Member to publisher: what it has not done is for others."""

    name: Name


class Opened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """Publisher to subscriber: a session of its own, and the next number of it."""

    session: Session
    kind: Literal["group", "last"]
    next_number: Annotated[int, msgspec.Meta(ge=1)]


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """Publisher to subscriber: why it cannot have what it asked for."""

    why: str


class Farewell(msgspec.Struct, frozen=True, array_like=True, tag="farewell"):
    """Publisher to subscriber: it was waited for long enough, nobody waits any more."""


Upstream = Credit | Ask | Join | Done | Leave
Downstream = Opened | Refused | Farewell

_upstream = msgspec.msgpack.Decoder(Upstream)
_downstream = msgspec.msgpack.Decoder(Downstream)
_encode = msgspec.msgpack.Encoder().encode


def encode_side(message: Upstream | Downstream) -> bytes:
    """The bytes of a message."""
    return CONTROL + _encode(message)


def decode_upstream(data: bytes) -> Upstream:
    """Reads what a subscriber sent, without the 0xFF; raises `Malformed` on anything else."""
    try:
        message: Upstream = _upstream.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        raise Malformed("bad_side_message", str(fault)) from None
    numbers: list[int] = []
    if isinstance(message, Credit):
        numbers = list(message.taken.values())
    elif isinstance(message, Done):
        numbers = [number for pair in message.ranges for number in pair]
    if any(number > MAX_SEQUENCE for number in numbers) or (
        isinstance(message, Credit | Join) and not math.isfinite(message.timeout_s)
    ):
        raise Malformed("bad_side_message", "a number that cannot be")
    return message


def decode_downstream(data: bytes) -> Downstream:
    """Reads what a publisher sent, without the 0xFF; raises `Malformed` on anything else."""
    try:
        message: Downstream = _downstream.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        raise Malformed("bad_side_message", str(fault)) from None
    return message
