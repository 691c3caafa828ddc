"""What travels over ZeroMQ, one frame each; no state.

    data        stream NUL packet        publisher to subscribers, PUB/SUB
    control     0xFF name announcement   publisher to the one subscriber of that name, PUB/SUB;
                                         the name EVERYONE is that of all
    hello       0xFF name                subscriber to publisher: a subscription like any other
    attached    0xFF name epoch          the same, once all has been announced
    request     packet                   subscriber to publisher, DEALER/ROUTER
    reply       packet                   publisher to that subscriber, DEALER/ROUTER
    live        NUL packet               the same, of a session for that subscriber alone
    message     0xFF MessagePack         either way over DEALER/ROUTER: see `side.py`

A packet is MoldUDP64: session(10) sequence(8) count(2), then `count` blocks of length(2) and
data, each an event in MessagePack; count 0 is a heartbeat. A stream is the first segment of the
topic, so `quotes NUL` as a subscription is all of `quotes.AAPL`, `quotes.MSFT`, …; no text holds
the byte 0xFF. The session of a stream is eight alphanumerics for the epoch of its publisher and
two for the stream.

The hello is how a subscriber is noticed: ZeroMQ hands subscriptions to the publisher, in order. The
answer goes to that one subscriber by the same way as the data, ahead of all data that follows: it
says which streams there are and the next number of each. The same is told to everyone of streams
that have moved, and of all of them once a second, so that the loss of a last event is noticed.
"""

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from ..envelope import MAX_SOURCE_BYTES, MAX_TOPIC_BYTES
from ..errors import LimitError, Malformed
from ..mold.sessions import ALPHANUMERICS
from ..mold.wire import MAX_SEQUENCE

CONTROL = b"\xff"
NUL = b"\0"
VERSION = 1
NAME_BYTES = 16
EPOCH_BYTES = 8
KEY_BYTES = 40
"""A public key of CURVE in Z85."""
MAX_STREAMS = len(ALPHANUMERICS) ** 2
"""Streams of one publisher: what two alphanumerics can tell apart."""
STREAMS_PER_PART = 1024
"""More go into further parts, so that no message grows without bound."""
MAX_PARTS = -(-MAX_STREAMS // STREAMS_PER_PART)
EVERYONE = b"*" * NAME_BYTES
MAX_SIDE_BYTES = 512
MAX_CLOCK_BYTES = 64
MAX_MESSAGE_BYTES = 1024 * 1024
"""What a subscriber takes: above the longest announcement and the largest packet."""
MAX_UPSTREAM_BYTES = 4096
"""What a publisher takes: subscriptions and requests are short."""

SUBSCRIBE, UNSUBSCRIBE = 1, 0


def random_name(length: int) -> bytes:
    """Random alphanumerics."""
    return bytes(secrets.choice(ALPHANUMERICS) for _ in range(length))


def session_of(epoch: bytes, index: int) -> bytes:
    """The session of the stream that is number `index` of its publisher, from 0."""
    high, low = divmod(index, len(ALPHANUMERICS))
    return epoch + bytes((ALPHANUMERICS[high], ALPHANUMERICS[low]))


def stream_of(topic: str) -> str:
    """The first segment of a topic."""
    return topic.partition(".")[0]


def prefix_of(stream: str) -> bytes:
    """What stands in front of every packet of a stream."""
    if "\0" in stream:
        raise LimitError(f"stream {stream!r} has a NUL in it, which ends a stream's name")
    return stream.encode() + NUL


def subscriptions(topics: Sequence[str]) -> list[bytes]:
    """What to subscribe to at the sender for topic prefixes; finer ones are left to the receiver.

    A prefix that ends before the first dot may begin the names of many streams.
    """
    if not topics:
        return [b""]
    wanted = {prefix_of(stream_of(topic)) if "." in topic else topic.encode() for topic in topics}
    return sorted(wanted)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a publisher says to a newcomer."""

    source: str
    epoch: bytes
    clock: bytes
    """Whose clock `opened_at` is by: the same on the same machine, until it is booted again."""
    opened_at: float
    age_s: float
    """How long the publisher has been there, for those with another clock."""
    side: str
    """Where requests go; `*` for the host is the host the subscriber knows it by."""
    key: bytes
    """The public key that answers there, or nothing."""
    part: int
    parts: int
    """How many such messages name all the streams; this is number `part`, from 0."""
    streams: tuple[tuple[str, int, int], ...]
    """Name, index and next number of each."""


def encode_announcement(name: bytes, announcement: Announcement) -> bytes:
    """The message that tells it to the subscriber `name`."""
    told = announcement
    fields = (
        VERSION, told.source, told.epoch, told.clock, told.opened_at, told.age_s, told.side,
        told.key, told.part, told.parts, told.streams,
    )  # fmt: skip
    return CONTROL + name + bytes(msgpack.packb(fields, use_bin_type=True))


def decode_announcement(data: bytes) -> Announcement:
    """Reads what follows the name; raises `Malformed` on anything else than an announcement."""
    try:
        fields = msgpack.unpackb(data, max_array_len=STREAMS_PER_PART, max_map_len=0)
    except (ValueError, msgpack.UnpackException) as fault:
        raise Malformed("bad_announcement", f"no MessagePack: {fault}") from None
    if not isinstance(fields, list) or len(fields) != 11 or fields[0] != VERSION:
        raise Malformed("bad_announcement", f"expected 11 fields, the first {VERSION}")
    _, source, epoch, clock, opened_at, age_s, side, key, part, parts, streams = fields
    if not (
        _is_text(source, MAX_SOURCE_BYTES)
        and isinstance(epoch, bytes)
        and len(epoch) == EPOCH_BYTES
        and set(epoch) <= set(ALPHANUMERICS)
        and isinstance(clock, bytes)
        and len(clock) <= MAX_CLOCK_BYTES
        and all(isinstance(time, float) and math.isfinite(time) for time in (opened_at, age_s))
        and _is_text(side, MAX_SIDE_BYTES)
        and isinstance(key, bytes)
        and len(key) in (0, KEY_BYTES)
        and type(part) is type(parts) is int
        and 0 <= part < parts <= MAX_PARTS
        and isinstance(streams, list)
    ):
        raise Malformed("bad_announcement", "a field is not what it should be")
    told = tuple(_streams(streams))
    return Announcement(source, epoch, clock, opened_at, age_s, side, key, part, parts, told)


def _streams(entries: Iterable[Any]) -> Iterable[tuple[str, int, int]]:
    for entry in entries:
        if not (
            isinstance(entry, list)
            and len(entry) == 3
            and _is_text(entry[0], MAX_TOPIC_BYTES)
            and "\0" not in entry[0]
            and type(entry[1]) is int
            and 0 <= entry[1] < MAX_STREAMS
            and type(entry[2]) is int
            and 1 <= entry[2] <= MAX_SEQUENCE
        ):
            raise Malformed("bad_announcement", f"stream {entry!r:.80}")
        yield entry[0], entry[1], entry[2]


def _is_text(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(value.encode()) <= most
