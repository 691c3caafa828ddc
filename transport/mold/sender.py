"""The sending side of a MoldUDP64 session, without I/O.

    send(message)  ->  number, kept in the ring, packed
    datagrams_to_send(now)      what goes to the group: data, heartbeats, end of session
    receive_request / replies   what goes to one requester (see requests.py)
    next_timeout / handle_timeout

    OPEN ──end()──▶ ENDING (end-of-session packets in place of heartbeats, requests answered)

Messages are packed as long as they fit; a packet goes out when it is full or when the caller
asks for what is to be sent, so a caller who asks after every message adds no latency and one
who asks after a hundred gets large packets.
"""

from dataclasses import dataclass, field
from typing import Generic, Protocol

from ..errors import Closed, ConfigurationError, LimitError
from .heartbeats import OPENING_HEARTBEATS, HeartbeatSchedule
from .requests import MANY, AddressT, MessageStore, RequestDesk, RequestOptions
from .ring import RetransmitRing, RingOptions
from .wire import (
    DEFAULT_PACKET_BYTES,
    END_OF_SESSION_COUNT,
    HEADER_BYTES,
    HEARTBEAT_COUNT,
    LENGTH_BYTES,
    MAX_MESSAGE_COUNT,
    SESSION_BYTES,
    encode_block,
    encode_header,
)

MIN_PACKET_BYTES = 64
MAX_PACKET_BYTES = 65_507
"""The largest UDP payload over IPv4."""


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """How a session is packed and kept."""

    packet_bytes: int = DEFAULT_PACKET_BYTES
    """Size of a datagram at most; above the path's MTU the network may split it."""
    ring: RingOptions = field(default_factory=RingOptions)
    """What is kept for repairs."""
    requests: RequestOptions = field(default_factory=RequestOptions)
    """What answering requests may cost."""
    opening_heartbeats: int = OPENING_HEARTBEATS
    """Sent at once when the session opens, and again when it ends."""

    def __post_init__(self) -> None:
        if not MIN_PACKET_BYTES <= self.packet_bytes <= MAX_PACKET_BYTES:
            raise ConfigurationError(
                f"packet_bytes is {self.packet_bytes}, "
                f"expected {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES}"
            )

    @property
    def max_message_bytes(self) -> int:
        """The longest message that fits."""
        return self.packet_bytes - HEADER_BYTES - LENGTH_BYTES


class Ring(MessageStore, Protocol):
    """Where a session keeps what it has sent."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the blocks it has."""

    def append(self, block: bytes, now: float) -> int:
        """Keeps one message block; returns its number."""


class SenderSession(Generic[AddressT]):
    """Numbers, packs, keeps and repeats the messages of one session.

    Sessions that belong together may share the bounds of a `ring` and one `desk`.
    """

    def __init__(
        self,
        session: bytes,
        options: SenderOptions,
        now: float,
        *,
        ring: Ring | None = None,
        desk: RequestDesk[AddressT] | None = None,
    ) -> None:
        if len(session) != SESSION_BYTES:
            raise ConfigurationError(f"session {session!r}: expected {SESSION_BYTES} bytes")
        self.session = session
        self.ring: Ring = RetransmitRing(options.ring) if ring is None else ring
        self.desk: RequestDesk[AddressT] = desk or RequestDesk(options.requests, now)
        self.desk.serve(session, self.ring)
        self.is_ending = False
        self.max_message_bytes = options.max_message_bytes
        self._packet_bytes = options.packet_bytes
        self._blocks: list[bytes] = []  # the packet being filled
        self._blocks_bytes = HEADER_BYTES
        self._opening_heartbeats = options.opening_heartbeats
        self._packets: list[bytes] = [self._empty_packet()] * options.opening_heartbeats
        self._heartbeats = HeartbeatSchedule(now)
        self._sent_at: float | None = None  # since the heartbeats were looked at

    @property
    def next_number(self) -> int:
        """The number the next message will get."""
        return self.ring.next

    @property
    def has_full_packet(self) -> bool:
        """True when `full_datagrams_to_send` has something."""
        return bool(self._packets)

    def send(self, message: bytes, now: float) -> int:
        """Numbers a message and packs it; it leaves with the next `datagrams_to_send`."""
        if self.is_ending:
            raise Closed("the session has ended; no message can follow")
        if len(message) > self.max_message_bytes:
            raise LimitError(
                f"message of {len(message)} bytes; a packet of {self._packet_bytes} bytes "
                f"holds at most {self.max_message_bytes}"
            )
        block = encode_block(message)
        size_bytes = self._blocks_bytes + len(block)
        if size_bytes > self._packet_bytes or len(self._blocks) == MAX_MESSAGE_COUNT:
            self._close_packet()
            size_bytes = self._blocks_bytes + len(block)
        number = self.ring.append(block, now)
        self._blocks.append(block)
        self._blocks_bytes = size_bytes
        self._sent_at = now  # from where the next heartbeat counts
        return number

    def datagrams_to_send(self, now: float) -> list[bytes]:
        """Everything for the group that has not gone out yet, in order."""
        if self._blocks:
            self._close_packet()
        packets = self._packets
        if packets:
            self._packets = []
        return packets

    def full_datagrams_to_send(self) -> list[bytes]:
        """The same without the packet that is being filled."""
        packets, self._packets = self._packets, []
        return packets

    def end(self, now: float) -> None:
        """Ends the session: end-of-session packets take the place of heartbeats."""
        if not self.is_ending:
            if self._blocks:
                self._close_packet()
            self.is_ending = True
            self._packets += [self._empty_packet()] * self._opening_heartbeats
            self._sent_at = now

    def receive_request(self, data: bytes, address: AddressT, now: float) -> None:
        """Takes a request datagram from `address`."""
        self.desk.receive_request(data, address, now)

    def replies(self, now: float, most: int = MANY) -> list[tuple[bytes, AddressT]]:
        """Datagrams for single requesters, within the budgets."""
        return self.desk.replies(now, most)

    def next_timeout(self) -> float:
        """When `handle_timeout` and `replies` are to be called at the latest."""
        retry_at = self.desk.next_timeout()
        due_at = self._heartbeat_due_at()
        return due_at if retry_at is None else min(due_at, retry_at)

    def handle_timeout(self, now: float) -> None:
        """Makes the heartbeat that is due, if one is."""
        if now >= self._heartbeat_due_at():
            if self._blocks:
                self._close_packet()
            self._packets.append(self._empty_packet())
            self._heartbeats.beat(now)

    def _heartbeat_due_at(self) -> float:
        if self._sent_at is not None:
            self._heartbeats.sent(self._sent_at)
            self._sent_at = None
        return self._heartbeats.due_at

    def _empty_packet(self) -> bytes:
        count = END_OF_SESSION_COUNT if self.is_ending else HEARTBEAT_COUNT
        # Numbered behind everything sent so far: a packet being filled is closed before.
        return encode_header(self.session, self.ring.next, count)

    def _close_packet(self) -> None:
        blocks = self._blocks
        first = self.ring.next - len(blocks)
        header = encode_header(self.session, first, len(blocks))
        self._packets.append(header + b"".join(blocks))
        self._blocks = []
        self._blocks_bytes = HEADER_BYTES
