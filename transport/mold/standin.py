"""Speaking for a publisher that has fallen silent, so that what is kept can be found.

A subscriber learns of a session, and of messages it has missed at its end, from the heartbeats of
the publisher only. When a publisher dies, a request server goes on with them: on the group, with
the number behind the last message it knows of, from the address it takes requests at. That is all
a late joiner needs to ask for the session, though it knows neither its name nor the server.

    nobody else was heard for SILENT_S   ──▶ an announcement now and every ANNOUNCE_S
    the publisher is heard               ──▶ silence
    another server is heard, knows more  ──▶ silence; the feed asks it for the difference
    another server is heard, knows less  ──▶ no difference

An announcement is a heartbeat, or an end of session if the publisher had said that. It is never
more than the truth: every number below it exists. A publisher that is only slow is not harmed by
it, and one that comes back from the dead begins a session of its own. So several servers need
not agree on anything: usually the first one to speak keeps the others silent.

Only the `MAX_ANNOUNCED` sessions heard last are announced; more than that can still be asked for
by those who know them.
"""

from collections import OrderedDict
from collections.abc import Iterable

from .store import Shelf
from .wire import END_OF_SESSION_COUNT, HEARTBEAT_COUNT, encode_header

SILENT_S = 1.5
"""A publisher's heartbeat comes once a second at least. With less than `feed.SETTLING_S` a joiner
hears of a session soon enough to know that it is an old one."""
ANNOUNCE_S = 1.0
MAX_ANNOUNCED = 64


class StandIn:
    """Says when to announce which session; time is passed in."""

    def __init__(self) -> None:
        self._speaks_at: OrderedDict[bytes, float] = OrderedDict()  # heard last at the end

    def heard(self, session: bytes, next_number: int, shelf: Shelf | None, now: float) -> None:
        """Somebody else said that every number of `session` below `next_number` exists."""
        if shelf is not None and next_number < shelf.next:
            self._speaks_at.setdefault(session, now + SILENT_S)
            return
        self._speaks_at[session] = now + SILENT_S
        self._speaks_at.move_to_end(session)
        self._forget()

    def remember(self, sessions: Iterable[bytes], now: float) -> None:
        """Sessions kept from an earlier life, the one heard last at the end."""
        for session in sessions:
            self._speaks_at[session] = now + SILENT_S
        self._forget()

    def next_timeout(self) -> float | None:
        """When `announcements` has something to say."""
        return min(self._speaks_at.values(), default=None)

    def announcements(self, shelves: dict[bytes, Shelf], now: float) -> list[bytes]:
        """The datagrams for the group that are due."""
        due = [session for session, at in self._speaks_at.items() if at <= now]
        datagrams = []
        for session in due:
            shelf = shelves.get(session)
            if shelf is None or shelf.is_empty:
                del self._speaks_at[session]  # nothing to ask us for
                continue
            self._speaks_at[session] = now + ANNOUNCE_S
            count = END_OF_SESSION_COUNT if shelf.is_ended else HEARTBEAT_COUNT
            datagrams.append(encode_header(session, shelf.next, count))
        return datagrams

    def _forget(self) -> None:
        while len(self._speaks_at) > MAX_ANNOUNCED:
            self._speaks_at.popitem(last=False)
