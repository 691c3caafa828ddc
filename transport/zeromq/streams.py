"""The streams of one publisher, without I/O: who listens, what goes out, what is asked for.

    publish(topic, …)          numbered within its stream, kept, packed: by the outlet
    private                    groups, and the last values: see `private.py`
    receive_subscription       a hello is answered with what there is; who has got it is counted
    receive_request, replies   repairs and replay, for all streams at one desk; credit; whatever
                               single subscribers ask for and get
    outlet                     data and announcements, in the order they must go

An announcement names the next number of each stream, so everything numbered before it is sent
before it. Where there are so many streams that it takes several parts, one goes out at a time: all
at once might overfill what ZeroMQ keeps for a subscriber, again and again the same ones.

    TICK_S after something was sent    the streams that have moved, to everyone
    ROUND_S                            all streams, to everyone, part by part
    TICK_S                             the next part for each newcomer that has not got all
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..datagrams import Address
from ..envelope import EventEncoder
from ..errors import LimitError, Malformed
from ..mold.requests import RequestDesk, RequestOptions
from ..mold.ring import RingOptions
from ..mold.sender import SenderOptions
from ..pieces import split
from .blockers import Blocker, Blockers
from .last_values import LastValues
from .outlet import Outlet, Stream
from .private import PrivateSessions, Published
from .rings import events_of
from .side import Credit, decode_upstream
from .wire import (
    CONTROL,
    EPOCH_BYTES,
    EVERYONE,
    MAX_STREAMS,
    NAME_BYTES,
    STREAMS_PER_PART,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Announcement,
    encode_announcement,
    random_name,
    session_of,
    stream_of,
)

PACKET_BYTES = 32 * 1024
"""A packet at most: a large event is 33 pieces, a batch of small ones some 300."""
TICK_S = 0.02
"""When it is told how far streams are; ZeroMQ loses only what its high-water mark drops."""
ROUND_S = 1.0
"""In which all streams are told once."""
REPLIES_AT_ONCE = 8
"""Packets made for requesters before those who publish get their turn."""
MAX_SUBSCRIBERS = 4096
"""Subscribers counted by name; beyond it they are served all the same."""


@dataclass(frozen=True, slots=True)
class StreamsOptions:
    """How the streams of a publisher are packed and kept."""

    ring: RingOptions = field(default_factory=RingOptions)
    """What is kept for repairs and replay, of all streams together."""
    requests: RequestOptions = field(default_factory=RequestOptions)
    """What answering requests may cost."""


class Streams:
    """Everything a publisher over ZeroMQ knows."""

    def __init__(
        self, source: str, options: StreamsOptions, now: float, clock: bytes = b""
    ) -> None:
        """`clock` names the clock that `now` is read from."""
        self.epoch = random_name(EPOCH_BYTES)
        self.side = ""
        """Where requests go; known once the shell is bound."""
        self.key = b""
        """The public key that answers there, if there is one."""
        self.subscribers: set[bytes] = set()
        self.ignored: Counter[str] = Counter()
        self.blockers = Blockers()
        requests = replace(options.requests, packet_bytes=PACKET_BYTES)
        self.desk: RequestDesk[Address] = RequestDesk(requests, now)
        self._source = source
        values = LastValues(options.ring)
        alone = SenderOptions(packet_bytes=PACKET_BYTES, opening_heartbeats=0)
        self.private = PrivateSessions(options.ring, alone, self.desk, values)
        self.outlet = Outlet(
            options.ring,
            PACKET_BYTES,
            values,
            EventEncoder(source).encode,
            self._publish_otherwise,
            (self.blockers.by_name, self.private.groups.by_name),
        )
        self._opened_at = now
        self._clock = clock
        self._newcomers: deque[tuple[bytes, int, int]] = deque()  # name, next part, parts
        self._farewells: list[tuple[bytes, Address]] = []
        self._ticks_at: float | None = None  # for newcomers
        self._round_at = now + ROUND_S
        self._round_part = 0

    @property
    def sent(self) -> int:
        """Messages numbered, of all streams."""
        return sum(stream.next - 1 for stream in self.outlet.streams)

    @property
    def ring_first(self) -> int:
        """The lowest number that some stream can still repeat."""
        return min((stream.first for stream in self.outlet.streams), default=1)

    # -- sending ---------------------------------------------------------------------------------

    def publish(self, topic: str, key: str | None, data: bytes, now: float) -> int:
        """Numbers an encoded event and packs it; returns its number."""
        return self._publish_otherwise(
            topic, key, data, self.outlet.publish(topic, key, data, now), now
        )

    def _publish_otherwise(
        self, topic: str, key: str | None, data: bytes, number: int, now: float
    ) -> int:
        """Goes on where the outlet is not enough; it has numbered the event unless that is 0."""
        name = stream_of(topic)
        if not number:
            number = self._publish_first_or_large(topic, key, data, now)
        stream = self.outlet.find(name)
        if stream is not None and self.blockers:
            self.blockers.sent(stream.session)
        self.private.offer(topic, key, name, number, data, now)
        return number

    def _publish_first_or_large(self, topic: str, key: str | None, data: bytes, now: float) -> int:
        name = stream_of(topic)
        if self.outlet.find(name) is None:
            self._open(name)
        most = self.outlet.max_message_bytes
        if len(data) <= most:
            return self.outlet.publish(topic, key, data, now)
        for piece in split(data, most):
            number = self.outlet.put(name, piece, now)
        self.private.last_values.remember(topic, key, name, number, data)
        return number

    def end(self) -> None:
        """Ends every stream."""
        self.outlet.end()

    def _open(self, name: str) -> None:
        index = len(self.outlet.streams)
        if index == MAX_STREAMS:
            raise LimitError(
                f"topic begins with {name!r}, the {MAX_STREAMS + 1}th first segment; a publisher "
                f"has {MAX_STREAMS} streams at most: put what varies behind the first dot"
            )
        stream = self.outlet.open(name, session_of(self.epoch, index))
        self.desk.serve(stream.session, stream)
        if self.blockers:
            self.blockers.opened(stream.session, stream.prefix)

    # -- who waits for whom ----------------------------------------------------------------------

    def to_wait_for(self, name: str) -> list[Blocker]:
        """The subscribers that have no room for another message of a stream."""
        stream = self.outlet.find(name)
        if stream is None or not self.blockers:
            return []
        return self.blockers.to_wait_for(stream.session)

    def give_up(self, blockers: list[Blocker]) -> None:
        """Waits for them no more, and tells them so."""
        self._farewells += self.blockers.give_up(blockers)

    # -- subscribers and requesters --------------------------------------------------------------

    def receive_subscription(self, data: bytes, now: float) -> None:
        """Takes what ZeroMQ says of subscriptions: a byte, and what was subscribed to."""
        kind, topic = data[:1], data[1:]
        if kind not in (bytes((SUBSCRIBE,)), bytes((UNSUBSCRIBE,))):
            self.ignored["malformed"] += 1
            return
        if not topic.startswith(CONTROL):
            return  # a stream: ZeroMQ sees to it
        name, epoch = topic[1 : 1 + NAME_BYTES], topic[1 + NAME_BYTES :]
        if len(name) != NAME_BYTES or len(epoch) not in (0, EPOCH_BYTES):
            self.ignored["malformed"] += 1
        elif epoch:
            if epoch == self.epoch:  # others are for others
                self._count(name, kind[0], now)
        elif kind[0] == UNSUBSCRIBE:
            if name not in self.subscribers:  # else the end of that subscription says so
                self.private.gone(name, now)
        elif name != EVERYONE:
            self._greet(name, 0, -(-len(self.outlet.streams) // STREAMS_PER_PART) or 1, now)

    def _count(self, name: bytes, kind: int, now: float) -> None:
        """A subscriber has all that it needs to miss nothing, or is gone."""
        if kind == UNSUBSCRIBE:
            self.subscribers.discard(name)
            self.blockers.forget(name)
            self.private.gone(name, now)
        elif len(self.subscribers) < MAX_SUBSCRIBERS:
            self.subscribers.add(name)
            self.blockers.subscribed(name)
            self.private.subscribed(name, now)
        else:
            self.ignored["too_many_subscribers"] += 1

    def receive_request(self, data: bytes, requester: Address, now: float) -> None:
        """Takes what came over the side channel: a request, or a message of `side.py`.

        A requester is its routing name, and 0.
        """
        if not data.startswith(CONTROL):
            self.desk.receive_request(data, requester, now)
            return
        try:
            message = decode_upstream(data[1:])
        except Malformed:
            self.ignored["malformed"] += 1
            return
        if requester[0] != message.name.hex():
            self.ignored["another_name"] += 1  # nobody speaks for others
        elif isinstance(message, Credit):
            sent = {s.session: s.next - 1 for s in self.outlet.streams}
            is_subscribed = message.name in self.subscribers
            self.blockers.receive(message, requester, sent, is_subscribed=is_subscribed)
        else:
            self.private.receive(message, requester, self._kept, now)

    def _kept(self) -> list[Published]:
        """The events that the rings still have, in the order of publishing."""
        found = [
            event for stream in self.outlet.streams for event in events_of(stream.name, stream)
        ]
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]

    def replies(self, now: float) -> list[tuple[bytes, Address]]:
        """What goes to single requesters; packets within the budgets."""
        farewells, self._farewells = self._farewells, []
        return farewells + self.desk.replies(now, REPLIES_AT_ONCE)

    def private_messages(self, now: float) -> list[tuple[bytes, Address]]:
        """What goes to single subscribers unasked."""
        return self.private.messages(now)

    def _greet(self, name: bytes, part: int, parts: int, now: float) -> None:
        """Tells a newcomer one part; the next follows with the next tick."""
        self._announce(name, part, parts, now)
        if part + 1 < parts:
            self._newcomers.append((name, part + 1, parts))
            self._tick_by(now + TICK_S)

    def _announce(self, name: bytes, part: int, parts: int, now: float) -> None:
        at = part * STREAMS_PER_PART
        self._tell(name, self.outlet.streams[at : at + STREAMS_PER_PART], part, parts, now)

    def _tell(
        self, name: bytes, streams: Sequence[Stream], part: int, parts: int, now: float
    ) -> None:
        announcement = Announcement(
            self._source,
            self.epoch,
            self._clock,
            self._opened_at,
            now - self._opened_at,
            self.side,
            self.key,
            part,
            parts,
            tuple((s.name, s.index, s.next) for s in streams),
        )
        self.outlet.add(encode_announcement(name, announcement))

    # -- time ------------------------------------------------------------------------------------

    def next_timeout(self) -> float:
        """When `handle_timeout` and `replies` are to be called at the latest."""
        times = (
            self._round_at,
            self._tick_due_at(),
            self.desk.next_timeout(),
            self.private.next_timeout(),
        )
        return min(time for time in times if time is not None)

    def handle_timeout(self, now: float) -> None:
        """Tells what is due."""
        self.private.handle_timeout(now)
        ticks_at = self._tick_due_at()
        if ticks_at is not None and now >= ticks_at:
            self._ticks_at = None
            self.private.tick(now)
            self._tell_moved(now)
            for _ in range(len(self._newcomers)):
                name, part, parts = self._newcomers.popleft()
                self._greet(name, part, parts, now)
        if now >= self._round_at:
            parts = -(-len(self.outlet.streams) // STREAMS_PER_PART) or 1
            self._round_part = (self._round_part + 1) % parts
            self._announce(EVERYONE, self._round_part, parts, now)
            self.private.tick(now)
            self._round_at = now + ROUND_S / parts

    def _tell_moved(self, now: float) -> None:
        moved = self.outlet.take_moved(STREAMS_PER_PART, now)
        if moved:
            self._tell(EVERYONE, moved, 0, 1, now)

    def _tick_due_at(self) -> float | None:
        moved_at = self.outlet.moved_at
        if moved_at is None:
            return self._ticks_at
        due_at = moved_at + TICK_S
        return due_at if self._ticks_at is None else min(due_at, self._ticks_at)

    def _tick_by(self, at: float) -> None:
        self._ticks_at = at if self._ticks_at is None else min(at, self._ticks_at)
