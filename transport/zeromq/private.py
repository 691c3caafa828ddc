"""What a publisher gives to single subscribers, without I/O: shares of a group, last values.

join ──▶ Groups ──▶ opened, then packets of a session of its own     as long as it stays
ask  ──▶ LastValues ──▶ opened; it asks the desk for the rest        once, when it comes
"""

from collections.abc import Callable, Iterable

from ..datagrams import Address
from ..mold.requests import RequestDesk
from ..mold.ring import RingOptions
from ..mold.sender import SenderOptions
from ..mold.sessions import new_session
from .groups import Group, Groups
from .last_values import LastValues
from .side import LIVE, Ask, Done, Join, Leave, Opened, Refused, encode_side

MAX_SNAPSHOTS = 64
"""Copies of the last values that are being fetched; others have to ask again a moment later."""
SNAPSHOT_S = 60.0
"""How long one is kept for somebody who does not fetch it."""

Published = tuple[str, str | None, str, int, bytes]
"""Topic, key, stream, number and bytes of an event."""


class PrivateSessions:
    """Sessions for one subscriber each."""

    def __init__(
        self,
        options: RingOptions,
        sender: SenderOptions,
        desk: RequestDesk[Address],
        last_values: LastValues,
    ) -> None:
        self.last_values = last_values
        self.groups = Groups(options, desk, sender)
        self._desk = desk
        self._max_message_bytes = sender.max_message_bytes
        self._snapshots: dict[bytes, tuple[bytes, float]] = {}  # by subscriber: session, since when
        self._out: list[tuple[bytes, Address]] = []

    def offer(
        self, topic: str, key: str | None, stream: str, sequence: int, data: bytes, now: float
    ) -> None:
        """Gives an event that was numbered to the groups."""
        for group in self.groups:
            group.offer(topic, key, stream, sequence, data, now)

    def receive(
        self,
        message: Ask | Join | Done | Leave,
        requester: Address,
        kept: Callable[[], Iterable[Published]],
        now: float,
    ) -> None:
        """Takes what a subscriber says; `kept` is what there is for a group that wants it all."""
        if isinstance(message, Done):
            self.groups.done(message.name, message.session, message.ranges, now)
        elif isinstance(message, Leave):
            self.groups.leave(message.name, now, is_clean=True)
        elif isinstance(message, Ask):
            self._ask(message, requester, now)
        else:
            self._join(message, requester, kept, now)

    def _ask(self, ask: Ask, requester: Address, now: float) -> None:
        self.forget(ask.name, now)
        for name, (_, since) in list(self._snapshots.items()):
            if now - since > SNAPSHOT_S:
                self.forget(name, now)
        if len(self._snapshots) >= MAX_SNAPSHOTS:
            return  # it asks again
        snapshot = self.last_values.snapshot(ask.topics, self._max_message_bytes)
        session = new_session()
        self._desk.serve(session, snapshot)
        self._snapshots[ask.name] = session, now
        self._out.append((encode_side(Opened(session, "last", snapshot.next)), requester))

    def _join(
        self,
        join: Join,
        requester: Address,
        kept: Callable[[], Iterable[Published]],
        now: float,
    ) -> None:
        why_not = self.groups.why_not(join)
        if why_not is not None:
            self._out.append((encode_side(Refused(why_not)), requester))
            return
        group = self.groups.find(join.group)
        if group is None:
            group = self.groups.open(join)
            if join.start == "first":
                self._catch_up(group, kept(), now)
        member = self.groups.join(join, requester, now)
        opened = Opened(member.session.session, "group", 1)
        self._out.append((encode_side(opened), requester))

    def _catch_up(self, group: Group, kept: Iterable[Published], now: float) -> None:
        for topic, key, stream, sequence, data in kept:
            group.offer(topic, key, stream, sequence, data, now)

    def forget(self, name: bytes, now: float) -> None:
        """A subscriber needs its copy of the last values no more."""
        snapshot = self._snapshots.pop(name, None)
        if snapshot is not None:
            self._desk.forget(snapshot[0])

    def subscribed(self, name: bytes, now: float) -> None:
        """A subscriber has all that it needs."""
        self.forget(name, now)
        self.groups.subscribed(name)

    def gone(self, name: bytes, now: float) -> None:
        """A subscriber is not there any more."""
        self.forget(name, now)
        self.groups.leave(name, now)

    def messages(self, now: float) -> list[tuple[bytes, Address]]:
        """What goes to single subscribers."""
        out, self._out = self._out, []
        for group in self.groups:
            out += [(LIVE + packet, requester) for packet, requester in group.packets(now)]
        return out

    def tick(self, now: float) -> None:
        """Tells members how far their sessions are, behind all that was numbered before."""
        self._out = self.messages(now)
        for group in self.groups:
            self._out += [(LIVE + packet, requester) for packet, requester in group.heartbeats()]

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is to be called."""
        timeouts = [at for group in self.groups if (at := group.next_timeout()) is not None]
        return min(timeouts, default=None)

    def handle_timeout(self, now: float) -> None:
        """Takes back what members have kept too long."""
        for group in self.groups:
            for name in group.strangers(now):
                self.groups.leave(name, now)
            group.handle_timeout(now)
