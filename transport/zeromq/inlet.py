"""One SUB socket: what it is subscribed to, and when.

    hello ──▶ announcement, all parts ──▶ streams ──▶ attached
      ▲                                      │
      └── data of somebody who was not announced, for a while: all over again

The streams are subscribed to when the announcement has come: before that nothing but control
messages comes, so a flood cannot keep it out. What was sent in between is known from the
announcement, or from the next, to be missing. The last subscription says that all the others are
in force: from then on a publisher can count on it.
"""

from collections.abc import Sequence

from .sockets import Socket
from .wire import CONTROL, EVERYONE

HELLO_AGAIN_S = 1.0
"""How long an announcement is waited for before hello is said again."""


class Inlet:
    """A socket that is connected to one publisher, or bound for many."""

    __slots__ = ("_confirmed", "_has_streams", "_hello", "_hello_at", "_is_shared", "_wanted",
                 "host", "socket")  # fmt: skip

    def __init__(
        self,
        sock: Socket,
        host: str,
        name: bytes,
        wanted: Sequence[bytes],
        now: float,
        *,
        is_shared: bool,
    ) -> None:
        self.socket = sock
        self.host = host
        self._hello = CONTROL + name
        self._wanted = wanted
        self._is_shared = is_shared
        self._has_streams = False
        self._confirmed: dict[bytes, None] = {}
        self._hello_at = now
        sock.subscribe(CONTROL + EVERYONE)
        sock.subscribe(self._hello)

    def attached(self, epoch: bytes) -> None:
        """A publisher has told all: its streams are wanted, and it can count on us."""
        if not self._has_streams:
            self._has_streams = True
            for wanted in self._wanted:
                self.socket.subscribe(wanted)
        if epoch not in self._confirmed:
            self._confirmed[epoch] = None
            self.socket.subscribe(self._hello + epoch)

    def forget(self, epoch: bytes) -> None:
        """A publisher is gone."""
        if epoch in self._confirmed:
            del self._confirmed[epoch]
            self.socket.unsubscribe(self._hello + epoch)

    def say_hello_again(self, now: float) -> bool:
        """Begins anew, unless that was done a moment ago.

        Where others are attached they go on; the streams of one alone are stopped meanwhile.
        """
        if now - self._hello_at < HELLO_AGAIN_S:
            return False
        self._hello_at = now
        self.socket.unsubscribe(self._hello)
        if not self._is_shared:
            for epoch in list(self._confirmed):
                self.forget(epoch)
            if self._has_streams:
                self._has_streams = False
                for wanted in self._wanted:
                    self.socket.unsubscribe(wanted)
        self.socket.subscribe(self._hello)
        return True
