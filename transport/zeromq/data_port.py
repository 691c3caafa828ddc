"""The SUB sockets of a subscriber as a port: what comes looks like datagrams to the intake.

One socket for each endpoint; announcements become heartbeats. What comes over the side channel
without being asked for, packets of sessions of our own, comes out here too.

A descriptor of ZeroMQ becomes readable when something has happened and tells it once; `has_more`
is True whenever a socket has not been read until it had nothing left.
"""

import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq

from ..datagrams import Address, Received
from ..lane import Lane, MessageLane
from ..ports import BATCH
from .address import ZeroMQAddress
from .claims import Claims
from .directory import Directory
from .doorkeeper import Doorkeeper
from .frames import SocketLane
from .handshakes import Handshakes
from .inlet import Inlet
from .request_port import RequestPort, take
from .side import Ask, Join
from .sockets import (
    UNBOUNDED,
    bind,
    clock_name,
    connect,
    new_context,
    new_socket,
    secure_client,
    secure_server,
)
from .wire import NAME_BYTES, random_name, subscriptions

LONGEST_WAIT_MS = 60_000
CALM = 16
"""Messages that are read one by one, each when it comes, before it is looked whether more came with
one of them; when more did, it is looked each time."""


class DataPort:
    """Where events come in."""

    kernel_drops = truncated = lost_on_purpose = 0
    trouble = None
    tells_once = True

    def __init__(
        self,
        address: ZeroMQAddress,
        topics: Sequence[str],
        now: float,
        *,
        window: int,
        block_timeout_s: float,
        claim: Callable[[bytes], Ask | Join] | None = None,
    ) -> None:
        """`claim` says, of the name of the subscriber, what it wants beside streams.

        Raises `LocalError` when an endpoint cannot be used.
        """
        self.has_more = True
        name = random_name(NAME_BYTES)
        wish = None if claim is None else claim(name)
        wanted = [] if isinstance(wish, Join) else subscriptions(topics)
        self.directory = Directory(name, wanted, now, clock_name())
        security = address.security("subscriber")
        self._doorkeeper: Doorkeeper | None = None
        self._timeout_ms = -1
        self._is_dense, self._calm = False, 0
        self._handshakes = Handshakes()
        self._context = new_context()
        self._epoll = select.epoll()
        self._inlets: list[Inlet] = []
        self._bound: list[Path] = []
        self.requests = RequestPort(
            self._context, self.directory, security, window, block_timeout_s
        )
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
        self.only = self._inlets[0].socket if len(self._inlets) == 1 else None
        """The one socket that is to be read, where there is one."""
        self._only_fd = -1 if self.only is None else int(self.only.fileno())
        self._claimed: dict[Address, Inlet] = {}  # by whom a claim is to be met, and where to go on
        if wish is not None:
            self.requests.claims = Claims(wish, self.directory.open)
            self._epoll.register(self.requests.fileno(), select.EPOLLIN)
            self.only = None  # what comes to the other sockets counts too

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
        return self._epoll.fileno() if self.only is None else self._only_fd

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
        if self.requests.claims is not None:
            self._look_aside(self.requests.claims, received)
        return received

    def _look_aside(self, claims: Claims, received: list[Received]) -> None:
        """Takes packets of sessions of our own, and goes on where a claim is met."""
        self.requests.collect()
        self.has_more |= self.requests.has_more
        received += self.requests.arrived
        self.requests.arrived.clear()
        for origin in claims.met:
            inlet = self._claimed.pop(origin, None)
            if inlet is not None:
                inlet.attached(origin[0].encode())
                self.has_more = True
        claims.met.clear()

    def receive_wait(self, timeout_s: float | None) -> list[Received]:
        """What has come, sleeping until something has."""
        only = self.only
        if only is None or timeout_s == 0:
            return self._poll_and_receive(timeout_s)
        received: list[Received] = []
        timeout_ms = LONGEST_WAIT_MS if timeout_s is None else max(1, int(timeout_s * 1e3))
        self.wait_at_most(timeout_ms)
        try:
            message = only.recv()
        except zmq.Again:
            self.has_more = False
            return received
        except zmq.ZMQError:
            if not only.closed:  # by a signal handler, in the middle of it
                raise
            return received
        self.has_more = True  # perhaps; the next wait does not sleep if there is
        self._sort(message, self._inlets[0], time.time_ns(), received)
        if self._is_dense or self._calm >= CALM:
            more = self.receive()
            self._is_dense, self._calm = bool(more), 0
            received += more
        else:
            self._calm += 1
        return received

    def wait_at_most(self, timeout_ms: int) -> None:
        """Says how long a read of the one socket may sleep."""
        if self.only is not None and timeout_ms != self._timeout_ms and not self.only.closed:
            self.only.setsockopt(zmq.RCVTIMEO, timeout_ms)
            self._timeout_ms = timeout_ms

    def sort(self, message: bytes, at_ns: int) -> list[Received]:
        """What the intake has to see of a message that came to the one socket."""
        received: list[Received] = []
        self._sort(message, self._inlets[0], at_ns, received)
        return received

    def _poll_and_receive(self, timeout_s: float | None) -> list[Received]:
        received = self.receive()
        if received or self.has_more or timeout_s == 0:
            return received
        self._epoll.poll(LONGEST_WAIT_MS / 1e3 if timeout_s is None else timeout_s)
        return self.receive()

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
            self._claimed.pop(origin, None)
            for each in self._inlets:
                each.forget(origin[0].encode())
        for publisher in attached:
            self.requests.attach(publisher)
            if self.requests.claims is None:
                inlet.attached(publisher.origin[0].encode())
            else:
                self._claimed[publisher.origin] = inlet
        self.has_more = True  # to subscribe may use up what the descriptor tells

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        """A lane over the one socket, or over what `receive` gives."""
        if SocketLane is not None and self.only is not None:
            return SocketLane(self, is_raw=is_raw, topics=topics, is_lost=is_lost)
        return MessageLane(self, is_raw=is_raw, topics=topics, is_lost=is_lost)

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
        self.requests.close()
        self._handshakes.close()
        for path in self._bound:  # before somebody else can have bound to it
            path.unlink(missing_ok=True)
        self._bound.clear()
        self._context.destroy(linger=0)
        self._epoll.close()
