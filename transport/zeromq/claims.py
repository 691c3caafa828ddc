"""What a subscriber wants of each publisher beside its streams, without I/O.

    attached ──▶ claimed ──opened──▶ met             a share of a group
                    │  └────opened──▶ fetching ──▶ met     the last values, once all are there
                    │ refused: the subscriber is told, and gets nothing
                    └── no answer: claimed again

A publisher counts the subscriber only when its claim is met, so whoever waits for it with `ready`
knows that it misses nothing from then on; and streams are followed only then, so the last values
come before what is new.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..datagrams import Address
from ..intervals import IntervalSet
from ..mold.wire import HEARTBEAT_COUNT, Header, encode_header
from ..unpacking import HISTORY
from .side import RANGES_PER_MESSAGE, Ask, Done, Join, Leave, Opened, encode_side

CLAIM_AGAIN_S = 1.0
"""How long an answer is waited for."""
MAX_FINISHED = 64
"""Sessions of which is remembered what was done: one for each life of each publisher."""
FETCH_S = 5.0
"""Last values of which nothing has come for so long are not waited for any more."""


@dataclass(slots=True)
class Claim:
    """What is wanted of one publisher."""

    since: float
    session: bytes = b""
    """What it opened for us."""
    stop: int = 0
    came: IntervalSet = field(default_factory=IntervalSet)
    is_met: bool = False
    told: int = 0
    """The last number done that was told once more, a while later."""


class Claims:
    """The claims of one subscriber, the same at each publisher."""

    def __init__(self, wish: Ask | Join, open_session: Callable[[bytes, Address, str], None]):
        """`open_session` notes a session that is ours: session, whose it is, what it is called."""
        self.why_refused: str | None = None
        self.met: list[Address] = []
        """Publishers whose claims were met since the owner looked; it empties the list."""
        self._wish = wish
        self._message = encode_side(wish)
        self._open_session = open_session
        self._claims: dict[Address, Claim] = {}
        self._done: deque[tuple[bytes, int]] = deque()  # sessions and numbers, from any thread
        self._finished: dict[bytes, IntervalSet] = {}
        self._untold: set[bytes] = set()

    def attached(self, origin: Address, now: float) -> bytes:
        """A publisher is there (again): what to say to it."""
        self._claims[origin] = Claim(now)
        return self._message

    def forget(self, origin: Address) -> None:
        """A publisher is gone."""
        self._claims.pop(origin, None)

    def refused(self, why: str) -> None:
        """A publisher does not let us have it."""
        self.why_refused = why

    def opened(self, opened: Opened, origin: Address, now: float) -> bytes | None:
        """A publisher has opened a session for us; returns a packet that says how far it is."""
        claim = self._claims.get(origin)
        if claim is None:
            return None
        if opened.session != claim.session:
            name = HISTORY
            if isinstance(self._wish, Join):
                name = f"group.{self._wish.group}.{opened.session.decode(errors='replace')}"
            self._open_session(opened.session, origin, name)
            claim.session, claim.stop, claim.since = opened.session, opened.next_number, now
            claim.came = IntervalSet()
        self._untold.add(opened.session)  # what was said before may have been lost
        if opened.kind == "group" or claim.stop == 1:
            self._meet(claim, origin)
        return encode_header(opened.session, opened.next_number, HEARTBEAT_COUNT)

    def replied(self, header: Header, origin: Address, now: float) -> None:
        """A reply has come: perhaps the last of the last values."""
        claim = self._claims.get(origin)
        if claim is None or claim.is_met or header.session != claim.session:
            return
        claim.came.add(header.sequence, header.sequence + header.message_count)
        claim.since = now
        if claim.came.holds(1, claim.stop):
            self._meet(claim, origin)

    def due(self, now: float) -> list[tuple[bytes, Address]]:
        """What is to be said again; claims that nobody meets are let be."""
        again = []
        for origin, claim in self._claims.items():
            if claim.is_met:
                self._tell_again(claim, now)
                continue
            if not claim.session and now - claim.since > CLAIM_AGAIN_S:
                claim.since = now
                again.append((self._message, origin))
            elif claim.session and now - claim.since > FETCH_S:
                self._meet(claim, origin)
        return again

    def _tell_again(self, claim: Claim, now: float) -> None:
        if now - claim.since > CLAIM_AGAIN_S:
            claim.since = now
            finished = self._finished.get(claim.session)
            if finished is not None and finished.last != claim.told:
                claim.told = finished.last
                self._untold.add(claim.session)

    def _meet(self, claim: Claim, origin: Address) -> None:
        if not claim.is_met:
            claim.is_met = True
            self.met.append(origin)

    # -- members of a group ----------------------------------------------------------------------

    def done(self, session: bytes, number: int) -> None:
        """An event of a session of ours is done with; for any thread."""
        self._done.append((session, number))

    def reports(self) -> list[tuple[bytes, Address]]:
        """What has been done, where there is news.

        All of it each time, which is one range where nothing is left out: a report that was lost
        with its connection needs no answer, the next one says it too.
        """
        while self._done:
            session, number = self._done.popleft()
            if session not in self._finished and len(self._finished) >= MAX_FINISHED:
                del self._finished[next(iter(self._finished))]
            self._finished.setdefault(session, IntervalSet()).add(number, number + 1)
            self._untold.add(session)
        reports = []
        for origin, claim in self._claims.items() if self._untold else ():
            if claim.session in self._untold:
                self._untold.discard(claim.session)
                runs = list(self._finished.get(claim.session, ()))[-RANGES_PER_MESSAGE:]
                if not runs:
                    continue
                pairs = tuple((first, stop - 1) for first, stop in runs)
                done = Done(self._wish.name, claim.session, pairs)
                reports.append((encode_side(done), origin))
        return reports

    def farewells(self) -> list[tuple[bytes, Address]]:
        """What a member says when it goes."""
        if not isinstance(self._wish, Join):
            return []
        leave = encode_side(Leave(self._wish.name))
        return [(leave, origin) for origin, claim in self._claims.items() if claim.session]
