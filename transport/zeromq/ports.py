"""The sockets of a subscriber as ports: what comes looks like datagrams to the intake.

    DataPort       one SUB socket for each endpoint; announcements become heartbeats
    RequestPort    one DEALER socket for each publisher, connected when it is announced

A descriptor of ZeroMQ becomes readable when something has happened and tells it once; `has_more`
is True whenever a socket has not been read until it had nothing left.
"""

import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import zmq

from ..datagrams import Address, Received
from ..errors import LocalError
from ..lane import Lane, PythonLane
from ..ports import BATCH
from .address import ZeroMQAddress
from .credit import FAREWELL, Credit, encode_credits
from .directory import Directory, KnownPublisher
from .doorkeeper import Doorkeeper
from .handshakes import Handshakes
from .inlet import Inlet
from .keys import Security
from .sockets import (
    UNBOUNDED,
    Socket,
    bind,
    clock_name,
    connect,
    new_context,
    new_socket,
    secure_client,
    secure_server,
)
from .wire import EPOCH_BYTES, NAME_BYTES, random_name, subscriptions


def take(sock: Socket) -> list[bytes]:
    """What has come, at most `BATCH` messages: fewer mean that nothing is left."""
    messages: list[bytes] = []
    recv, add = sock.recv, messages.append
    try:
        for _ in range(BATCH):
            add(recv(zmq.DONTWAIT))
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
        self._directory = directory
        self._security = security
        self._timeout_s = timeout_s
        self._context = context
        self._sides: dict[Address, tuple[str, bytes]] = {}  # where, and whose key answers there
        self._dealers: dict[Address, Socket] = {}
        self._epoll = select.epoll()
        self.fileno = self._epoll.fileno

    @property
    def address(self) -> Address:
        """Nobody can send here unasked."""
        return ("", 0)

    def attach(self, publisher: KnownPublisher) -> None:
        """Notes where to ask a publisher. An old connection is let go: its way may be dead."""
        self.forget(publisher.origin)
        self._sides[publisher.origin] = publisher.side, publisher.key

    def forget(self, origin: Address) -> None:
        """Disconnects from a publisher."""
        self._sides.pop(origin, None)
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
                    Credit(name, self.window, self._timeout_s, numbers, self._directory.wanted)
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
            secure_client(dealer, self._security, key)
            connect(dealer, where)
        except LocalError:  # it says so itself: an address that makes no sense
            dealer.close()
            return None
        self._epoll.register(dealer.fileno(), select.EPOLLIN)
        self._dealers[origin] = dealer
        return dealer

    def receive(self) -> list[Received]:
        """What has come, from every publisher in turn."""
        received: list[Received] = []
        if not self.has_more and not self._epoll.poll(0):
            return received
        at_ns = time.time_ns()
        self.has_more = False
        for origin, dealer in self._dealers.items():
            replies = take(dealer)
            self.has_more |= len(replies) == BATCH
            for reply in replies:
                if reply == FAREWELL:
                    self.is_given_up = True
                else:
                    received.append((reply, origin, at_ns))
        return received

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
        """Closes every socket."""
        for origin in list(self._dealers):
            self.forget(origin)
        self._epoll.close()


class DataPort:
    """Where events come in."""

    kernel_drops = truncated = lost_on_purpose = 0
    tells_once = True

    def __init__(
        self,
        address: ZeroMQAddress,
        topics: Sequence[str],
        now: float,
        *,
        window: int,
        block_timeout_s: float,
    ) -> None:
        """Raises `LocalError` when an endpoint cannot be used."""
        self.has_more = True
        wanted = subscriptions(topics)
        self.directory = Directory(random_name(NAME_BYTES), wanted, now, clock_name())
        security = address.security("subscriber")
        self._doorkeeper: Doorkeeper | None = None
        self._timeout_ms = -1
        self._handshakes = Handshakes()
        self._context = new_context()
        self._epoll = select.epoll()
        self._inlets: list[Inlet] = []
        self._bound: list[Path] = []
        try:
            if security is not None and address.bind == "subscriber":
                self._doorkeeper = Doorkeeper(
                    self._context, security.allowed, self.directory.ignored
                )
            for endpoint in address.endpoints:
                # Subscriptions are as many as the user asked for, and none may be dropped.
                sock = new_socket(self._context, zmq.SUB, send_hwm=UNBOUNDED)
                self._handshakes.watch(sock)
                is_shared = address.bind == "subscriber"
                self._inlets.append(
                    Inlet(
                        sock, endpoint.host, self.directory.name, wanted, now, is_shared=is_shared
                    )
                )
                if is_shared:
                    secure_server(sock, security)
                    bind(sock, endpoint)
                    self._bound += endpoint.files
                else:
                    if security is not None:
                        secure_client(sock, security, security.server_key)
                    connect(sock, endpoint.text)
                self._epoll.register(sock.fileno(), select.EPOLLIN)
        except BaseException:
            self.close()
            raise
        self.requests = RequestPort(
            self._context, self.directory, security, window, block_timeout_s
        )
        self._only = self._inlets[0].socket if len(self._inlets) == 1 else None

    @property
    def address(self) -> Address:
        """Nobody sends here."""
        return ("", 0)

    @property
    def refused(self) -> int:
        """Handshakes that failed: of ours with a publisher, or of one with us."""
        self._handshakes.look()
        return self._handshakes.failed.total()

    def fileno(self) -> int:
        """Readable when something has happened."""
        return self._epoll.fileno()

    def receive(self) -> list[Received]:
        """What has come, a batch of each socket at most."""
        received: list[Received] = []
        self.has_more = False
        for inlet in self._inlets:
            at_ns = time.time_ns()
            messages = take(inlet.socket)
            self.has_more |= len(messages) == BATCH
            for message in messages:
                self._sort(message, inlet, at_ns, received)
        return received

    def receive_wait(self, timeout_s: float | None) -> list[Received]:
        """What has come, sleeping until something has."""
        received = self.receive()
        if received or self.has_more or timeout_s == 0:
            return received
        timeout_ms = 60_000 if timeout_s is None else max(1, int(timeout_s * 1e3))
        if self._only is None:
            self._epoll.poll(timeout_ms / 1e3)
            return self.receive()
        if timeout_ms != self._timeout_ms:
            self._only.setsockopt(zmq.RCVTIMEO, timeout_ms)
            self._timeout_ms = timeout_ms
        try:
            message = self._only.recv()
        except zmq.Again:
            return received
        except zmq.ZMQError:
            if not self._only.closed:  # by a signal handler, in the middle of it
                raise
            return received
        self.has_more = True
        self._sort(message, self._inlets[0], time.time_ns(), received)
        return received

    def spin(self, timeout_s: float) -> list[Received]:
        """The same without sleeping."""
        give_up_at = time.monotonic() + timeout_s
        while not (received := self.receive()) and time.monotonic() < give_up_at:
            pass
        return received

    def _sort(self, message: bytes, inlet: Inlet, at_ns: int, received: list[Received]) -> None:
        directory = self.directory
        packet = directory.packet(message)
        if packet is not None:
            received.append((*packet, at_ns))
            return
        now = time.monotonic()
        for data, origin in directory.receive(message, inlet.host, now):
            received.append((data, origin, at_ns))
        if directory.attached or directory.forgotten:
            self._attach(inlet)
        if directory.is_puzzled:
            directory.is_puzzled = False
            if inlet.say_hello_again(now):
                directory.hello()
                self.has_more = True

    def _attach(self, inlet: Inlet) -> None:
        directory = self.directory
        forgotten, directory.forgotten = directory.forgotten, []
        attached, directory.attached = directory.attached, []
        for origin in forgotten:
            self.requests.forget(origin)
            for each in self._inlets:
                each.forget(origin[0].encode())
        for publisher in attached:
            self.requests.attach(publisher)
            inlet.attached(publisher.origin[0].encode())
        self.has_more = True  # to subscribe may use up what the descriptor tells

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        """A plain lane: the compiled one reads datagrams only."""
        return PythonLane(self, is_raw=is_raw, topics=topics, is_lost=is_lost)

    def wake(self) -> None:
        """Waits are short."""

    def send(self, datagrams: Sequence[tuple[bytes, Address]]) -> int:
        """Nothing is sent here."""
        return 0

    def close(self) -> None:
        """Closes every socket, those of the request port too."""
        if self._doorkeeper is not None:
            self._doorkeeper.close()
            self._doorkeeper = None
        self._handshakes.close()
        for path in self._bound:  # before somebody else can have bound to it
            path.unlink(missing_ok=True)
        self._bound.clear()
        self._context.destroy(linger=0)
        self._epoll.close()
