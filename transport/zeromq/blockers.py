"""Back-pressure: whom a publisher waits for.

A subscriber with `on_overflow="block"` says in credits what it is subscribed to, and of each stream
it follows how far its application is; once when it is attached, and again as it goes on. What was
sent of these streams and not yet taken is outstanding; while it fills the window of a subscriber,
`publish` waits for it. A stream that begins later counts from its first message if the subscriber
wants it: one that is held back reads nothing, and could not name it. Nobody is waited for who is
not subscribed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from ..datagrams import Address
from .side import Credit, Farewell, encode_side

FAREWELL = encode_side(Farewell())
SESSIONS_PER_CREDIT = 64
"""More go into further messages: each is short enough to be taken."""
MAX_WANTED_BYTES = 2048
"""Of the prefixes in a credit; where they are longer none is named, and streams that begin later
count from the first credit that names them."""
MAX_BLOCKERS = 256
"""Subscribers that can make a publisher wait; more are not waited for, and counted."""


def encode_credits(credit: Credit) -> list[bytes]:
    """The messages that say so, each short enough to be taken."""
    taken = list(credit.taken.items())
    wanted = credit.wanted if sum(map(len, credit.wanted)) <= MAX_WANTED_BYTES else ()
    return [
        encode_side(
            msgspec.structs.replace(
                credit, wanted=wanted, taken=dict(taken[at : at + SESSIONS_PER_CREDIT])
            )
        )
        for at in range(0, len(taken), SESSIONS_PER_CREDIT)
    ]


@dataclass(slots=True)
class Blocker:
    """A subscriber that is waited for."""

    name: bytes
    requester: Address
    window: int
    timeout_s: float
    wanted: tuple[bytes, ...] = ()
    taken: dict[bytes, int] = field(default_factory=dict)
    outstanding: int = 0
    is_subscribed: bool = False
    """Credits may be faster than the subscription they belong to, or come from anybody."""

    @property
    def is_full(self) -> bool:
        """True while it is to be waited for."""
        return self.is_subscribed and self.outstanding >= self.window


class Blockers:
    """Those a publisher waits for."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Blocker] = {}
        """Those there are, by the name of the subscriber."""
        self._given_up: set[bytes] = set()
        self.disconnected = 0
        self.refused = 0
        """Credits of subscribers beyond the bound."""

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def receive(
        self,
        credit: Credit,
        requester: Address,
        sent: Mapping[bytes, int],
        *,
        is_subscribed: bool = True,
    ) -> None:
        """Takes a credit; `sent` is how many messages each session has."""
        if credit.name in self._given_up:
            return
        blocker = self.by_name.get(credit.name)
        if blocker is None:
            if len(self.by_name) >= MAX_BLOCKERS and not self._forget_stranger():
                self.refused += 1
                return
            blocker = Blocker(credit.name, requester, credit.window, credit.timeout_s)
            self.by_name[credit.name] = blocker
        blocker.requester = requester
        blocker.window, blocker.timeout_s = credit.window, credit.timeout_s
        blocker.wanted = credit.wanted
        blocker.is_subscribed = is_subscribed
        for session, taken in credit.taken.items():
            if session in sent:
                blocker.taken[session] = max(taken, blocker.taken.get(session, 0))
        blocker.outstanding = sum(
            max(0, sent[session] - taken) for session, taken in blocker.taken.items()
        )

    def _forget_stranger(self) -> bool:
        for blocker in self.by_name.values():
            if not blocker.is_subscribed:
                del self.by_name[blocker.name]
                return True
        return False

    def subscribed(self, name: bytes) -> None:
        """A subscriber is there: from now on it is waited for."""
        if name in self.by_name:
            self.by_name[name].is_subscribed = True

    def opened(self, session: bytes, prefix: bytes) -> None:
        """A stream begins: those who want it have taken none of it."""
        for blocker in self.by_name.values():
            if blocker.wanted and prefix.startswith(blocker.wanted):
                blocker.taken.setdefault(session, 0)

    def sent(self, session: bytes) -> None:
        """Notes that a message of a session was numbered."""
        for blocker in self.by_name.values():
            if session in blocker.taken:
                blocker.outstanding += 1

    def full(self) -> list[Blocker]:
        """Those that have no room for anything."""
        return [blocker for blocker in self.by_name.values() if blocker.is_full]

    def to_wait_for(self, session: bytes) -> list[Blocker]:
        """Those whose window a message of that session would overfill."""
        return [b for b in self.by_name.values() if b.is_full and session in b.taken]

    def forget(self, name: bytes) -> None:
        """It is gone."""
        self.by_name.pop(name, None)
        self._given_up.discard(name)

    def give_up(self, blockers: Iterable[Blocker]) -> list[tuple[bytes, Address]]:
        """Waits for them no more; returns what is to be said to each."""
        farewells = []
        for blocker in blockers:
            del self.by_name[blocker.name]
            self._given_up.add(blocker.name)
            self.disconnected += 1
            farewells.append((FAREWELL, blocker.requester))
        return farewells
