"""Everything one subscriber hears on its groups: many sessions, several paths, no I/O.

    datagram ──▶ header ──▶ which session? ──▶ ReceiverSession ──▶ runs and losses
                    │             └── unknown: follow it from where the subscription starts
                    └── malformed, foreign, from no server of ours: counted, dropped

Where a session is picked up: one first heard after the subscriber had settled in is new, and
is followed from its first message; one that was there before is followed from where `start`
says. Heartbeats come at least once a second, so `SETTLING_S` tells the two apart.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from ..errors import ConfigurationError, Malformed
from ..event import LossReason
from .outputs import Output
from .receiver import ReceiverSession
from .receiver_options import ReceiverOptions
from .wire import (
    HEARTBEAT_COUNT,
    MAX_SEQUENCE,
    Header,
    decode_header,
    decode_messages,
)

Start = Literal["live", "first"] | int

SETTLING_S = 2.0
"""A session that was there before us is heard within this time."""
FORGET_AFTER_S = 60.0
"""A session unheard for this long, with nothing missing, is let go."""
PLAUSIBLE_PER_S = 50_000_000
"""Messages a publisher may have sent in each second that it was not heard, and one more: ten times
what any sends. A number beyond is a fault or a forgery, and would make all that follows a gap."""
MAX_FORGOTTEN = 4096
"""Sessions let go of which we remember how far we came, should they be heard again."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """What to follow and from where."""

    start: Start = "live"
    """`live`: from what is heard first; `first`: from message 1; a number: from there."""
    resume: Mapping[bytes, int] = field(default_factory=dict)
    """Sessions that go on where an earlier life stopped: the first number wanted of each."""
    sessions: frozenset[bytes] | None = None
    """Follow only these; None: every session heard."""
    servers: tuple[Hashable, ...] = ()
    """Request servers; the addresses the data comes from are always added behind them."""
    max_sessions: int = 256
    """Sessions followed at once; beyond it new ones are ignored and counted."""
    probe: bool = True
    """Ask for an old message of a session that is silent, to learn from it who sends."""
    receiver: ReceiverOptions = field(default_factory=ReceiverOptions)
    """How each session is followed."""

    def __post_init__(self) -> None:
        if self.start not in ("live", "first") and not (
            type(self.start) is int and 1 <= self.start <= MAX_SEQUENCE
        ):
            raise ConfigurationError(
                f"start is {self.start!r}, expected 'live', 'first' or a number from 1 to 2**64 - 1"
            )


@dataclass(slots=True)
class Followed:
    """A session and where its data comes from."""

    receiver: ReceiverSession
    origins: list[Hashable]
    is_identified: bool = False
    """Set by the owner once it knows the source; until then the feed asks for one message."""
    identity: bytes | None = None
    """A message from before our beginning, to learn the source from."""


Outputs = list[tuple[Followed, Output]]

MAX_ORIGINS = 8
"""Addresses a session may send from; more than the paths anyone has."""


class Feed:
    """Sorts datagrams by session and keeps the timers of all of them."""

    def __init__(
        self,
        options: FeedOptions,
        *,
        random: Random,
        now: float,
        on_repaired: Callable[[float], None] = lambda elapsed_s: None,
        is_new: Callable[[bytes], bool] | None = None,
    ) -> None:
        """`is_new` says of a session whether it began after us, where that can be known better
        than by the time."""
        self.sessions: dict[bytes, Followed] = {}
        self.ignored: Counter[str] = Counter()
        self._options = options
        self._random = random
        self._opened_at = now
        self._forgotten: dict[bytes, int] = {}
        self._on_repaired = on_repaired
        self._is_new = is_new
        self._last: Followed | None = None  # the session of the packet before
        self.touched: dict[bytes, Followed] = {}
        """Sessions heard since the owner looked; it empties this."""
        self._repairing: dict[bytes, Followed] = {}  # all that may miss or ask for something

    @property
    def current(self) -> Followed | None:
        """The session of the last packet."""
        return self._last

    def receive_datagram(
        self, data: bytes, now: float, *, origin: Hashable, received_at_ns: int = 0, path: int = 0
    ) -> Outputs:
        """Takes a datagram that came to a group."""
        try:
            header = decode_header(data)
            messages = decode_messages(data, header)
        except Malformed as fault:
            self.ignored[fault.reason] += 1
            return []
        followed = self._last
        if followed is None or followed.receiver.session != header.session:
            followed = self._follow(header, now)
            if followed is None:
                return []
            self._last = followed
        if origin not in followed.origins and len(followed.origins) < MAX_ORIGINS:
            followed.origins.append(origin)
        receiver = followed.receiver
        if not receiver.is_started:
            self._start(receiver, header, now)
        elif header.sequence - receiver.next_number > PLAUSIBLE_PER_S * (
            1.0 + now - receiver.last_heard_at
        ):
            self.ignored["implausible"] += 1
            return []
        if messages:
            outputs = receiver.receive_data(header.sequence, messages, received_at_ns, now, path)
        else:
            outputs = receiver.receive_horizon(header.sequence, header.message_count, now, path)
            is_unknown = (
                not followed.is_identified and receiver.next_number == receiver.first_number
            )
            if is_unknown and header.sequence > 1 and self._options.probe:
                receiver.probe(header.sequence - 1)
                self._repairing[header.session] = followed
        self.touched[header.session] = followed
        if receiver.gaps.missing:
            self._repairing[header.session] = followed
        return [(followed, output) for output in outputs]

    def receive_reply(
        self, data: bytes, now: float, *, server: Hashable, received_at_ns: int = 0
    ) -> Outputs:
        """Takes a datagram that came to the request socket."""
        try:
            header = decode_header(data)
            messages = decode_messages(data, header)
        except Malformed as fault:
            self.ignored[fault.reason] += 1
            return []
        followed = self.sessions.get(header.session)
        if followed is None:
            self.ignored["foreign_session"] += 1
            return []
        if server not in self._servers(followed):
            self.ignored["foreign_reply"] += 1
            return []
        receiver = followed.receiver
        self.touched[header.session] = followed
        if messages:
            if header.sequence + len(messages) <= receiver.first_number:
                followed.identity = messages[-1]
            outputs = receiver.receive_data(
                header.sequence, messages, received_at_ns, now, server=server
            )
        elif header.message_count == HEARTBEAT_COUNT:
            outputs = receiver.receive_absence(header.sequence, server, now)
        else:
            outputs = []
        return [(followed, output) for output in outputs]

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is to be called; None while nothing is missing anywhere."""
        if not self._repairing:
            return None
        timeouts = [
            timeout
            for followed in self._repairing.values()
            if (timeout := followed.receiver.next_timeout()) is not None
        ]
        return min(timeouts, default=None)

    def handle_timeout(self, now: float) -> Outputs:
        """Does what is due in every session. Read all sockets before calling it."""
        return [
            (followed, output)
            for followed in self._repairing.values()
            for output in followed.receiver.handle_timeout(now)
        ]

    def requests_to_send(self) -> list[tuple[bytes, Hashable]]:
        """Request datagrams and the servers they go to."""
        requests: list[tuple[bytes, Hashable]] = []
        for session, followed in list(self._repairing.items()):
            requests += followed.receiver.requests_to_send()
            if not followed.receiver.gaps.missing:
                del self._repairing[session]
        return requests

    def end(self) -> Outputs:
        """Gives up every repair because the subscriber closes."""
        return [
            (followed, output)
            for followed in self.sessions.values()
            for output in followed.receiver.give_up_all(LossReason.ENDED)
        ]

    def _servers(self, followed: Followed) -> Sequence[Hashable]:
        configured = self._options.servers
        if not configured:
            return followed.origins
        return [*configured, *(origin for origin in followed.origins if origin not in configured)]

    def _follow(self, header: Header, now: float) -> Followed | None:
        followed = self.sessions.get(header.session)
        if followed is not None:
            return followed
        wanted = self._options.sessions
        if wanted is not None and header.session not in wanted:
            self.ignored["foreign_session"] += 1
            return None
        if len(self.sessions) >= self._options.max_sessions and not self._forget_one(now):
            self.ignored["too_many_sessions"] += 1
            return None
        origins: list[Hashable] = []
        receiver = ReceiverSession(
            header.session,
            self._options.receiver,
            random=self._random,
            servers=lambda: self._servers(self.sessions[header.session]),
            on_repaired=self._on_repaired,
        )
        followed = Followed(receiver, origins)
        self.sessions[header.session] = followed
        return followed

    def _start(self, receiver: ReceiverSession, header: Header, now: float) -> None:
        start = self._options.start
        heard = header.sequence
        resumed = self._forgotten.get(receiver.session, self._options.resume.get(receiver.session))
        if resumed is not None:
            first = resumed
        elif start == "first" or self._began_after_us(receiver.session, now):
            first = 1
        elif start == "live":
            first = heard
        else:
            first = int(start)
        receiver.start(first, heard, now)

    def _began_after_us(self, session: bytes, now: float) -> bool:
        if self._is_new is not None:
            return self._is_new(session)
        return now - self._opened_at > SETTLING_S

    def _forget_one(self, now: float) -> bool:
        for session, followed in self.sessions.items():
            receiver = followed.receiver
            is_quiet = now - receiver.last_heard_at > FORGET_AFTER_S
            if not receiver.gaps.missing and (receiver.is_ended or is_quiet):
                del self.sessions[session]
                self._repairing.pop(session, None)
                self._forgotten[session] = receiver.next_number
                if len(self._forgotten) > MAX_FORGOTTEN:
                    del self._forgotten[next(iter(self._forgotten))]
                if self._last is followed:
                    self._last = None
                return True
        return False
