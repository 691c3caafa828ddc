"""A subscriber's side channel as a port: one DEALER socket for each publisher, when it is needed.

    requests ──▶ DEALER ──▶ replies            for the intake, as over any network
                    ├─────▶ new packets        of sessions of our own: for the data port
                    └─────▶ messages           of `side.py`: claims that are met, or refused

The routing name of each socket is the name of the subscriber, so that a publisher knows that nobody
speaks for another, and who it is that comes back.
"""

import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence

import zmq

from ..datagrams import Address, Received
from ..errors import LocalError, Malformed
from ..lane import Lane
from ..mold.wire import HEADER_BYTES, decode_header
from ..ports import BATCH
from .blockers import encode_credits
from .claims import Claims
from .directory import Directory, KnownPublisher
from .keys import Security
from .side import LIVE, Credit, Farewell, Opened, decode_downstream
from .sockets import Socket, connect, new_socket, secure_client
from .wire import CONTROL, EPOCH_BYTES

EVENTS, POLLIN, DONTWAIT = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.DONTWAIT)
"""As plain numbers: those of ZeroMQ are enumerations, and slow to work with."""
LEAVE_MS = 500
"""How long a last word may take to leave."""


def take(sock: Socket) -> list[bytes]:
    """What has come, at most `BATCH` messages: fewer mean that nothing is left.

    Whether there is a first and a second one is looked up; to be told so by an exception costs
    several times as much, and in a calm stream there never is.
    """
    messages: list[bytes] = []
    recv, add = sock.recv, messages.append
    try:
        for _ in range(2):
            if not int(sock.get(EVENTS)) & POLLIN:
                return messages
            add(recv(DONTWAIT))
        for _ in range(BATCH - 2):
            add(recv(DONTWAIT))
    except zmq.Again:
        return messages
    except zmq.ZMQError:
        if not sock.closed:  # by a signal handler, in the middle of it
            raise
    return messages


class RequestPort:
    """Where requests go out and replies come in."""

    kernel_drops = truncated = lost_on_purpose = refused = 0
    tells_once = True

    def __init__(
        self,
        context: zmq.Context[Socket],
        directory: Directory,
        security: Security | None,
        window: int,
        timeout_s: float,
    ) -> None:
        self.has_more = False
        self.window = window
        self.is_given_up = False
        self.arrived: list[Received] = []
        """Packets that nobody asked for; the data port takes them."""
        self.claims: Claims | None = None
        self._replies: list[Received] = []
        self._directory = directory
        self._security = security
        self._timeout_s = timeout_s
        self._context = context
        self._sides: dict[Address, tuple[str, bytes]] = {}  # where, and whose key answers there
        self._dealers: dict[Address, Socket] = {}
        self._nudge_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._nudge_fd, select.EPOLLIN)
        self.fileno = self._epoll.fileno

    @property
    def address(self) -> Address:
        """Nobody can send here unasked."""
        return ("", 0)

    @property
    def trouble(self) -> str | None:
        """Why a publisher does not let us have what we want."""
        return None if self.claims is None else self.claims.why_refused

    def attach(self, publisher: KnownPublisher) -> None:
        """Notes where to ask a publisher. An old connection is let go: its way may be dead."""
        origin = publisher.origin
        self.forget(origin)
        self._sides[origin] = publisher.side, publisher.key
        if self.claims is not None:
            self.send([(self.claims.attached(origin, time.monotonic()), origin)])

    def forget(self, origin: Address) -> None:
        """Disconnects from a publisher."""
        self._sides.pop(origin, None)
        if self.claims is not None:
            self.claims.forget(origin)
        dealer = self._dealers.pop(origin, None)
        if dealer is not None and not dealer.closed:
            self._epoll.unregister(dealer.fileno())
            dealer.close()

    def grant(self, taken: Mapping[bytes, int]) -> None:
        """Tells each publisher how far the application is with its streams."""
        by_origin: dict[Address, dict[bytes, int]] = {}
        for session, number in taken.items():
            by_origin.setdefault((session[:EPOCH_BYTES].decode(), 0), {})[session] = number
        name = self._directory.name
        self.send(
            [
                (message, origin)
                for origin, numbers in by_origin.items()
                if origin in self._sides
                for message in encode_credits(
                    Credit(name, self.window, self._timeout_s, self._directory.wanted, numbers)
                )
            ]
        )

    def _dealer(self, origin: Address) -> Socket | None:
        """The connection to a publisher; made when something is to be asked."""
        dealer = self._dealers.get(origin)
        side = self._sides.get(origin)
        if dealer is not None or side is None:
            return dealer
        where, key = side
        if self._security is not None and not key:
            return None  # never in plain text
        try:
            dealer = new_socket(self._context, zmq.DEALER)
        except zmq.ZMQError:  # no more sockets, or the port is closed
            return None
        try:
            dealer.setsockopt(zmq.ROUTING_ID, self._directory.name)
            secure_client(dealer, self._security, key)
            connect(dealer, where)
        except LocalError:  # it says so itself: an address that makes no sense
            dealer.close()
            return None
        self._epoll.register(dealer.fileno(), select.EPOLLIN)
        self._dealers[origin] = dealer
        return dealer

    def receive(self) -> list[Received]:
        """Replies that have come, from every publisher in turn."""
        self.collect()
        replies, self._replies = self._replies, []
        return replies

    def done(self, session: bytes, number: int) -> None:
        """Notes that an event of a session of ours is done with; for any thread."""
        if self.claims is not None:
            self.claims.done(session, number)

    def report(self) -> None:
        """Tells publishers what has been done; in the thread that uses the sockets."""
        if self.claims is not None and (reports := self.claims.reports()):
            self.send(reports)

    def nudge(self) -> None:
        """Has the thread that waits for this port report; for any other thread."""
        os.eventfd_write(self._nudge_fd, 1)

    def collect(self) -> None:
        """Reads what has come, and says what is to be said meanwhile."""
        now = time.monotonic()
        if self.claims is not None:
            self.report()
            said = self.claims.due(now)
            if said:
                self.send(said)
        if not self.has_more and not self._epoll.poll(0):
            return
        at_ns = time.time_ns()
        self.has_more = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._nudge_fd)
        for origin, dealer in self._dealers.items():
            messages = take(dealer)
            self.has_more |= len(messages) == BATCH
            for message in messages:
                self._sort(message, origin, at_ns, now)

    def _sort(self, message: bytes, origin: Address, at_ns: int, now: float) -> None:
        if message.startswith(LIVE):
            self.arrived.append((message[1:], origin, at_ns))
        elif message.startswith(CONTROL):
            self._told(message[1:], origin, at_ns, now)
        else:
            self._replies.append((message, origin, at_ns))
            if self.claims is not None and len(message) >= HEADER_BYTES:
                self.claims.replied(decode_header(message), origin, now)

    def _told(self, data: bytes, origin: Address, at_ns: int, now: float) -> None:
        try:
            message = decode_downstream(data)
        except Malformed as fault:
            self._directory.ignored[fault.reason] += 1
            return
        if isinstance(message, Farewell):
            self.is_given_up = True
        elif self.claims is None:
            self._directory.ignored["not_asked_for"] += 1
        elif isinstance(message, Opened):
            packet = self.claims.opened(message, origin, now)
            if packet is not None:
                self.arrived.append((packet, origin, at_ns))
        else:
            self.claims.refused(message.why)

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        """Replies never go the short way."""
        raise NotImplementedError

    def wake(self) -> None:
        """Waits are short."""

    def send(self, datagrams: Sequence[tuple[bytes, Address]]) -> int:
        """Sends in order; stops at a publisher that is gone or takes nothing more."""
        self.has_more = True  # a send may use up what the descriptor tells
        for sent, (data, origin) in enumerate(datagrams):
            dealer = self._dealer(origin)
            if dealer is None:
                return sent
            try:
                dealer.send(data, zmq.DONTWAIT)
            except zmq.Again:
                return sent
        return len(datagrams)

    def close(self) -> None:
        """Closes every socket; members of a group say what they have done, and that they go."""
        if self.claims is not None and not self._epoll.closed:
            said = self.claims.reports() + self.claims.farewells()
            if said:
                self.send(said)
                for dealer in self._dealers.values():
                    dealer.setsockopt(zmq.LINGER, LEAVE_MS)
        for origin in list(self._dealers):
            self.forget(origin)
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._nudge_fd)
