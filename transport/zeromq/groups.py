"""Groups of subscribers that share the work, at the publisher, without I/O.

    publish ──▶ Group.offer ──▶ backlog ──▶ the member that is readiest ──▶ its own session
                                   ▲                 │ done: acknowledged
                                   └── dies, leaves, says nothing for too long: to another

Each group gets every event on its topics, from its first member on; one member gets each. The
account of a group is in `group_account.py`.

The readiest member is the one with the fewest events that it has not done. How many it may have
grows from one to its `prefetch` as it does them, so one that never does anything keeps one event
from the others, and one that stops doing anything at most `prefetch`, for `timeout_s`. An event
that was taken back may have been worked on all the same: it can come twice.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..datagrams import Address
from ..envelope import encode_delivery
from ..group_account import GroupSnapshot
from ..mold.requests import RequestDesk
from ..mold.ring import RetransmitRing, RingOptions
from ..mold.sender import SenderOptions, SenderSession
from ..mold.sessions import new_session
from ..mold.wire import HEARTBEAT_COUNT, encode_header
from ..pieces import split
from .backlog import Backlog, Job
from .side import Join

MAX_GROUPS = 64
MAX_MEMBERS = 256
"""In one group."""
MAX_FAILURES = 16
"""An event that so many members worked on and did not get done is given up: it may be what stops
them. What only waited behind it does not count."""
SUBSCRIBED_S = 10.0
"""How long after it joined a member may take to be a subscriber too."""
MEMBER_RING = RingOptions(max_messages=4096, max_bytes=64 * 1024 * 1024, max_age_s=3600.0)
"""What can be sent again to one member; beyond it an event is handed out again after a while."""


@dataclass(slots=True)
class Member:
    """One subscriber of a group."""

    name: bytes
    requester: Address
    session: SenderSession[Address]
    prefetch: int
    joined_at: float
    is_subscribed: bool = False
    """It has said so on the other channel, whose end tells when it is gone."""
    window: int = 1
    outstanding: dict[int, Job] = field(default_factory=dict)
    """By the number in its session, the oldest first."""
    expired: dict[int, Job] = field(default_factory=dict)
    """Taken back though it is still here: it may yet say that they are done."""
    oldest_since: float = 0.0
    """Since when the oldest has been the oldest."""
    has_progress: bool = True
    """It has done something since then."""

    @property
    def has_room(self) -> bool:
        """True when it may have another event."""
        return len(self.outstanding) < self.window


class Group:
    """The events and the members of one group."""

    def __init__(self, join: Join, options: RingOptions, desk: RequestDesk[Address]) -> None:
        self.terms = join
        self.members: dict[bytes, Member] = {}
        self._options = options
        self._desk = desk
        self._backlog = Backlog(is_ordered=join.order_by == "key")
        self._numbers = 0
        self._acknowledged = self._handed_out = self._taken_back = 0
        self._lost: Counter[str] = Counter()
        self._unsent: dict[bytes, Member] = {}

    @property
    def is_done(self) -> bool:
        """True when nothing waits and nobody works."""
        return not len(self._backlog) and not any(m.outstanding for m in self.members.values())

    def snapshot(self) -> GroupSnapshot:
        """The account up to now."""
        return GroupSnapshot(
            name=self.terms.group,
            accepted=self._numbers,
            acknowledged=self._acknowledged,
            waiting=len(self._backlog),
            outstanding=sum(len(member.outstanding) for member in self.members.values()),
            lost=dict(self._lost),
            handed_out=self._handed_out,
            taken_back=self._taken_back,
            members={m.name.decode(): len(m.outstanding) for m in self.members.values()},
        )

    def why_not(self, join: Join) -> str | None:
        """Why somebody cannot be a member; None when they can."""
        ours = self.terms
        for what in ("topics", "order_by", "acknowledges", "timeout_s"):
            if (theirs := getattr(join, what)) != getattr(ours, what):
                return (
                    f"group {ours.group!r} has {what} {getattr(ours, what)!r}, this subscriber "
                    f"{theirs!r}: all members of a group must agree"
                )
        if join.name not in self.members and len(self.members) >= MAX_MEMBERS:
            return f"group {ours.group!r} has {MAX_MEMBERS} members, which is the most"
        return None

    # -- members ---------------------------------------------------------------------------------

    def join(self, join: Join, requester: Address, options: SenderOptions, now: float) -> Member:
        """A member comes, or says so again."""
        member = self.members.get(join.name)
        if member is None:
            session: SenderSession[Address] = SenderSession(
                new_session(), options, now, ring=RetransmitRing(MEMBER_RING), desk=self._desk
            )
            member = self.members[join.name] = Member(
                join.name, requester, session, join.prefetch, now
            )
        member.requester = requester
        self._hand_out(now)
        return member

    def leave(self, name: bytes, now: float, *, is_clean: bool = False) -> None:
        """A member is gone: what it has not done is for others.

        `is_clean`: it said so itself, and was working on nothing.
        """
        member = self.members.pop(name, None)
        if member is None:
            return
        self._unsent.pop(name, None)
        self._desk.forget(member.session.session)
        if self.terms.acknowledges:
            self._take_back(member, list(member.outstanding), now, has_failed=not is_clean)
        else:
            for job in member.outstanding.values():
                self._lose(job, "ended")
            member.outstanding.clear()
        self._backlog.leave(name)
        self._hand_out(now)

    def done(
        self, name: bytes, session: bytes, ranges: Iterable[tuple[int, int]], now: float
    ) -> int:
        """A member has done something; returns how many of it somebody else has by now.

        What it has said before means nothing new.
        """
        member = self.members.get(name)
        if member is None or member.session.session != session:
            return 0  # of a life before
        was_full = not member.has_room
        oldest = next(iter(member.outstanding), None)
        member.window = max(1, member.window)
        late = 0
        for first, last in ranges:
            for number in [n for n in member.outstanding if first <= n <= last]:
                self._acknowledge(member.outstanding.pop(number))
            for number in [n for n in member.expired if first <= n <= last]:
                job = member.expired.pop(number)
                if job.state == "waiting":  # nobody else has it yet
                    self._taken_back -= 1
                    self._acknowledge(job)
                else:
                    late += 1
        if was_full:
            member.window = min(member.prefetch, member.window * 2)
        member.has_progress = True
        if next(iter(member.outstanding), None) != oldest:
            member.oldest_since, member.has_progress = now, False
        self._hand_out(now)
        return late

    # -- events ----------------------------------------------------------------------------------

    def offer(
        self, topic: str, key: str | None, stream: str, sequence: int, data: bytes, now: float
    ) -> None:
        """Takes an event that was published, if it is on the group's topics."""
        if self.terms.topics and not topic.startswith(self.terms.topics):
            return
        self._numbers += 1
        self._backlog.add(Job(self._numbers, stream, sequence, key, data))
        self._hand_out(now)
        backlog, options = self._backlog, self._options
        while len(backlog) > options.max_messages or backlog.size_bytes > options.max_bytes:
            oldest = backlog.oldest()
            if oldest is None or len(backlog) == 1:
                return
            self._lose(oldest, "overflow")

    def packets(self, now: float) -> list[tuple[bytes, Address]]:
        """What goes to the members."""
        found = [
            (packet, member.requester)
            for member in self._unsent.values()
            for packet in member.session.datagrams_to_send(now)
        ]
        self._unsent.clear()
        return found

    def heartbeats(self) -> list[tuple[bytes, Address]]:
        """How far each member's session is, so that the loss of a last packet is noticed."""
        return [
            (encode_header(m.session.session, m.session.next_number, HEARTBEAT_COUNT), m.requester)
            for m in self.members.values()
        ]

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is to be called."""
        since = [m.oldest_since for m in self.members.values() if m.outstanding]
        return min(since) + self.terms.timeout_s if since else None

    def strangers(self, now: float) -> list[bytes]:
        """Members that have not subscribed for too long: nobody would tell when they are gone."""
        return [
            member.name
            for member in self.members.values()
            if not member.is_subscribed and now - member.joined_at > SUBSCRIBED_S
        ]

    def handle_timeout(self, now: float) -> None:
        """Takes back what members have kept too long."""
        for member in self.members.values():
            if not member.outstanding or now < member.oldest_since + self.terms.timeout_s:
                continue
            numbers = list(member.outstanding)
            if member.has_progress:  # it works, and has forgotten one, or its whole line
                line = member.outstanding[numbers[0]].line
                numbers = [
                    number
                    for number, job in member.outstanding.items()
                    if number == numbers[0] or (line is not None and job.line is line)
                ]
            else:
                member.window = 0  # until it says something
            member.expired = {n: member.outstanding[n] for n in numbers}
            self._take_back(member, numbers, now, has_failed=True)
        self._hand_out(now)

    # -- inside ----------------------------------------------------------------------------------

    def _hand_out(self, now: float) -> None:
        if not len(self._backlog):
            return
        ready = [
            (len(m.outstanding), m.session.next_number, m.name)
            for m in self.members.values()
            if m.has_room
        ]
        heapq.heapify(ready)
        while ready:
            _, _, name = ready[0]
            member = self.members[name]
            job = self._backlog.take(name)
            if job is None:
                heapq.heappop(ready)  # all that waits is for others
                continue
            self._give(member, job, now)
            if member.has_room:
                place = (len(member.outstanding), member.session.next_number, name)
                heapq.heapreplace(ready, place)
            else:
                heapq.heappop(ready)

    def _give(self, member: Member, job: Job, now: float) -> None:
        job.attempts += 1
        self._handed_out += 1
        if not member.outstanding:
            member.oldest_since, member.has_progress = now, False
        session = member.session
        message = encode_delivery(job.stream, job.sequence, job.attempts, job.data)
        if len(message) <= session.max_message_bytes:
            number = session.send(message, now)
        else:
            for piece in split(message, session.max_message_bytes):
                number = session.send(piece, now)
        member.outstanding[number] = job
        self._unsent[member.name] = member

    def _acknowledge(self, job: Job) -> None:
        self._backlog.settle(job)
        self._acknowledged += 1

    def _take_back(
        self, member: Member, numbers: Iterable[int], now: float, *, has_failed: bool
    ) -> None:
        jobs = [member.outstanding.pop(number) for number in numbers]
        member.oldest_since, member.has_progress = now, False
        self._taken_back += len(jobs)
        self._backlog.put_back(jobs)
        if jobs and has_failed:  # the oldest is the one it was working on
            jobs[0].failures += 1
            if jobs[0].failures >= MAX_FAILURES:
                self._lose(jobs[0], "failed")

    def _lose(self, job: Job, reason: str) -> None:
        self._backlog.settle(job)
        self._lost[reason] += 1


class Groups:
    """The groups of one publisher."""

    def __init__(self, options: RingOptions, desk: RequestDesk[Address], sender: SenderOptions):
        self._options = options
        self._desk = desk
        self._sender = sender
        self.by_name: dict[str, Group] = {}
        """Those that have had a member."""
        self._of_member: dict[bytes, Group] = {}
        self.late = 0
        """Events said to be done by members that no longer had them."""

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.by_name.values())

    def find(self, name: str) -> Group | None:
        """A group that has had a member."""
        return self.by_name.get(name)

    def why_not(self, join: Join) -> str | None:
        """Why somebody cannot join; None when they can."""
        group = self.by_name.get(join.group)
        if group is not None:
            return group.why_not(join)
        if len(self.by_name) >= MAX_GROUPS:
            return f"the publisher has {MAX_GROUPS} groups, which is the most"
        return None

    def open(self, join: Join) -> Group:
        """A new group, on the terms of its first member."""
        group = self.by_name[join.group] = Group(join, self._options, self._desk)
        return group

    def join(self, join: Join, requester: Address, now: float) -> Member:
        """A member comes to a group that is there."""
        group = self.by_name[join.group]
        self._of_member[join.name] = group
        return group.join(join, requester, self._sender, now)

    def subscribed(self, name: bytes) -> None:
        """A subscriber is there; if it is a member, its end will be noticed."""
        group = self._of_member.get(name)
        if group is not None and name in group.members:
            group.members[name].is_subscribed = True

    def leave(self, name: bytes, now: float, *, is_clean: bool = False) -> None:
        """A subscriber is gone; if it was a member, its work is for others."""
        group = self._of_member.pop(name, None)
        if group is not None:
            group.leave(name, now, is_clean=is_clean)

    def done(
        self, name: bytes, session: bytes, ranges: Iterable[tuple[int, int]], now: float
    ) -> None:
        """A member has done something."""
        group = self._of_member.get(name)
        if group is not None:
            self.late += group.done(name, session, ranges, now)
