"""Whom to ask: the request servers of one session, what they still have, and who is silent.

Attempts go round the list. A server that has left many requests unanswered while others answer is
passed over on most rounds, so that a dead publisher in the list does not cost every second try.
"""

from collections.abc import Callable, Hashable, Sequence

SILENT_AFTER = 8
"""So many requests without an answer, and a server is passed over."""
TRY_AGAIN_EVERY = 8
"""One attempt in so many goes to a silent one all the same: it may have come back."""


class RequestServers:
    """The servers of one session; `addresses` is asked anew each time, as the list may grow."""

    def __init__(self, addresses: Callable[[], Sequence[Hashable]]) -> None:
        self._addresses = addresses
        self._oldest: dict[Hashable, int] = {}  # what each said it still has
        self._unanswered: dict[Hashable, int] = {}

    def having(self, number: int) -> Sequence[Hashable]:
        """Those that may have `number`."""
        servers = self._addresses()
        if not self._oldest:
            return servers
        return [server for server in servers if self._oldest.get(server, 0) <= number]

    def choose(self, number: int, attempt: int) -> Hashable | None:
        """Whom to ask for `number` at attempt 1, 2, …; None when nobody has it."""
        servers = self.having(number)
        if not servers:
            return None
        if attempt % TRY_AGAIN_EVERY:
            unanswered = self._unanswered
            servers = [s for s in servers if unanswered.get(s, 0) < SILENT_AFTER] or servers
        server = servers[(attempt - 1) % len(servers)]
        self._unanswered[server] = self._unanswered.get(server, 0) + 1
        return server

    def answered(self, server: Hashable) -> None:
        """Notes that a server sent something."""
        self._unanswered[server] = 0

    def lacks_below(self, server: Hashable, oldest: int) -> int:
        """Notes the oldest number a server has; returns what was known of it before."""
        self.answered(server)
        known = self._oldest.get(server, 0)
        self._oldest[server] = oldest
        return known

    @property
    def oldest(self) -> int:
        """The lowest number anyone may still have."""
        return min((self._oldest.get(server, 0) for server in self._addresses()), default=0)
