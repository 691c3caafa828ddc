"""Which publishers and streams a subscriber knows, without I/O.

    hello ──▶ announcement, all parts ──▶ attached: its data is taken
                                            └── streams named there were there before; others
                                                are new

Data that comes before its publisher is attached is not taken: what of it is wanted is known from
the announcement to exist, and is repaired. So the first number of each stream is certain, and a
stream that begins later is followed from its first message.

A publisher that lives tells everyone so every second. One unheard for a minute is forgotten, or
earlier when others need its place.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..datagrams import Address
from ..errors import Malformed
from ..mold.sessions import epoch_of
from ..mold.wire import HEADER_BYTES, HEARTBEAT_COUNT, SESSION_BYTES, encode_header
from ..registry import Identity
from .wire import (
    CONTROL,
    EPOCH_BYTES,
    EVERYONE,
    NAME_BYTES,
    NUL,
    Announcement,
    decode_announcement,
    prefix_of,
    session_of,
)

MAX_PUBLISHERS = 512
"""Lives of publishers known at once; each may need a connection."""
MAX_SESSIONS = 16_384
"""Streams known at once, of all publishers; others are not taken and are counted."""
FORGET_AFTER_S = 60.0
"""A publisher unheard for this long is gone: every repair has been given up before."""
MISSED_AFTER_S = 2.5
"""One unheard for this long may be gone, and has to make room."""

Packet = tuple[bytes, Address]
"""A MoldUDP64 packet and whose it is."""


@dataclass(slots=True)
class KnownPublisher:
    """One life of a publisher."""

    source: str
    origin: Address
    is_new: bool
    """It began after us."""
    side: str = ""
    key: bytes = b""
    heard_at: float = 0.0
    parts: set[int] = field(default_factory=set)
    """Of its answer to our hello, until all are there."""
    is_attached: bool = False
    sessions: dict[bytes, bool] = field(default_factory=dict)
    """Its streams, and whether each began after we were attached."""


class Directory:
    """Sorts what comes by publisher and stream."""

    def __init__(
        self, name: bytes, wanted: Sequence[bytes], opened_at: float, clock: bytes = b""
    ) -> None:
        self.name = name
        self.ignored: Counter[str] = Counter()
        self.attached: list[KnownPublisher] = []
        """Those attached (again) since the owner looked; it empties the list."""
        self.forgotten: list[Address] = []
        """Those let go since the owner looked."""
        self.is_puzzled = False
        """Something came from somebody who is not attached; the owner sets it back."""
        self.wanted = tuple(wanted)
        """Prefixes of the streams that are taken."""
        self._opened_at = opened_at
        self._clock = clock
        self._publishers: dict[bytes, KnownPublisher] = {}
        self._sessions: dict[bytes, tuple[bytes, Address]] = {}
        self._own: dict[bytes, tuple[bytes, str]] = {}  # epoch and name of those for us alone

    def hello(self) -> None:
        """Hello is said anew: the parts of an earlier answer count no more."""
        for publisher in self._publishers.values():
            publisher.parts.clear()

    def packet(self, message: bytes) -> Packet | None:
        """The packet of a known stream, the usual case; None: it is for `receive`."""
        prefix, _, packet = message.partition(NUL)
        known = self._sessions.get(packet[:SESSION_BYTES])
        if known is not None and known[0] == prefix:
            return packet, known[1]
        return None

    def receive(self, message: bytes, host: str, now: float) -> Sequence[Packet]:
        """Takes a message that is no packet of a known stream; returns what the feed has to see.

        `host` is the other side as we know it, for publishers that do not know their own name.
        """
        if message.startswith(CONTROL):
            return self._control(message, host, now)
        prefix, _, packet = message.partition(NUL)
        session = packet[:SESSION_BYTES]
        if len(packet) < HEADER_BYTES or session in self._sessions:
            self.ignored["malformed"] += 1
            return ()
        publisher = self._publishers.get(session[:EPOCH_BYTES])
        if publisher is None or not publisher.is_attached:
            self.ignored["unattached"] += 1
            self.is_puzzled = True
            return ()
        try:
            stream = prefix.decode()
        except UnicodeDecodeError:
            self.ignored["malformed"] += 1
            return ()
        if not self._add(publisher, session, stream, now, is_new=True):
            return ()
        return ((packet, publisher.origin),)

    def open(self, session: bytes, origin: Address, name: str) -> None:
        """Notes a session that a publisher has opened for us alone."""
        self._own[session] = origin[0].encode(), name

    def is_new(self, session: bytes) -> bool:
        """True when a stream began after us."""
        if session in self._own:
            return True
        publisher = self._publishers.get(session[:EPOCH_BYTES])
        if publisher is None:  # forgotten since
            return False
        return publisher.is_new or publisher.sessions.get(session, False)

    def identify(self, session: bytes) -> Identity:
        """Whose a session is."""
        if session in self._own:
            epoch, name = self._own[session]
            known_publisher = self._publishers.get(epoch)
            source = "" if known_publisher is None else known_publisher.source
            return Identity(source, epoch_of(epoch), name)
        epoch = session[:EPOCH_BYTES]
        publisher = self._publishers.get(epoch)
        known = self._sessions.get(session)
        if publisher is None or known is None:  # forgotten since
            return Identity("", epoch_of(epoch), "")
        return Identity(publisher.source, epoch_of(epoch), known[0].decode())

    def _control(self, message: bytes, host: str, now: float) -> Sequence[Packet]:
        body = 1 + NAME_BYTES
        name = message[1:body]
        if name not in (self.name, EVERYONE):
            self.ignored["not_for_us"] += 1  # of one who subscribed to everything
            return ()
        try:
            announcement = decode_announcement(message[body:])
        except Malformed as fault:
            self.ignored[fault.reason] += 1
            return ()
        if name == EVERYONE:
            return self._told_to_everyone(announcement, now)
        publisher = self._meet(announcement, host, now)
        packets = self._heartbeats(publisher, announcement, now, is_new=publisher.is_attached)
        publisher.parts.add(announcement.part)
        if len(publisher.parts) == announcement.parts:
            publisher.parts.clear()
            publisher.is_attached = True
            self.attached.append(publisher)
        return packets

    def _told_to_everyone(self, announcement: Announcement, now: float) -> Sequence[Packet]:
        publisher = self._publishers.get(announcement.epoch)
        if publisher is None or not publisher.is_attached:
            self.is_puzzled = True
            return ()
        publisher.heard_at = now
        return self._heartbeats(publisher, announcement, now, is_new=True)

    def _heartbeats(
        self, publisher: KnownPublisher, announcement: Announcement, now: float, is_new: bool
    ) -> Sequence[Packet]:
        packets = []
        for stream, index, next_number in announcement.streams:
            session = session_of(announcement.epoch, index)
            if session not in publisher.sessions and not (
                prefix_of(stream).startswith(self.wanted)
                and self._add(publisher, session, stream, now, is_new)
            ):
                continue
            heartbeat = encode_header(session, next_number, HEARTBEAT_COUNT)
            packets.append((heartbeat, publisher.origin))
        return packets

    def _meet(self, announcement: Announcement, host: str, now: float) -> KnownPublisher:
        publisher = self._publishers.get(announcement.epoch)
        if publisher is None:
            self._forget_unheard(now, FORGET_AFTER_S)
            if len(self._publishers) >= MAX_PUBLISHERS:
                self._forget(min(self._publishers, key=lambda e: self._publishers[e].heard_at))
            publisher = self._publishers[announcement.epoch] = KnownPublisher(
                announcement.source,
                (announcement.epoch.decode(), 0),
                is_new=self._is_younger(announcement, now),
            )
        side = announcement.side
        if side.startswith("tcp://*:"):
            side = side.replace("*", host, 1)
        publisher.side = side
        publisher.key = announcement.key
        publisher.heard_at = now
        return publisher

    def _is_younger(self, announcement: Announcement, now: float) -> bool:
        if announcement.clock == self._clock:
            return announcement.opened_at > self._opened_at
        # Late by the time the announcement took to be read: in doubt it is younger, and all of
        # it is wanted.
        return now - announcement.age_s > self._opened_at

    def _add(
        self, publisher: KnownPublisher, session: bytes, stream: str, now: float, is_new: bool
    ) -> bool:
        if len(self._sessions) >= MAX_SESSIONS:
            self._forget_unheard(now, MISSED_AFTER_S)
        if len(self._sessions) >= MAX_SESSIONS:
            self.ignored["too_many_streams"] += 1  # told again every second, and taken then
            return False
        publisher.sessions[session] = is_new
        self._sessions[session] = stream.encode(), publisher.origin
        return True

    def _forget_unheard(self, now: float, after_s: float) -> None:
        for epoch, publisher in list(self._publishers.items()):
            if now - publisher.heard_at > after_s:
                self._forget(epoch)

    def _forget(self, epoch: bytes) -> None:
        publisher = self._publishers.pop(epoch)
        for session in publisher.sessions:
            del self._sessions[session]
        for session in [own for own, (owner, _) in self._own.items() if owner == epoch]:
            del self._own[session]
        self.forgotten.append(publisher.origin)
