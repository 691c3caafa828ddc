"""ZeroMQ sockets as we want them: bounded, with heartbeats, and never keeping a process alive."""

import socket
import warnings
from pathlib import Path

import zmq

from ..errors import LocalError
from .address import Endpoint, ZeroMQAddress, resolved
from .keys import Security
from .wire import MAX_MESSAGE_BYTES, MAX_UPSTREAM_BYTES, NAME_BYTES, random_name

HEARTBEAT_MS = 1000
HEARTBEAT_TIMEOUT_MS = 3000
"""A peer unheard for this long is half open, and given up: it reconnects if it can."""
HANDSHAKE_MS = 5000
DOMAIN = b"onehop"
RECONNECT_MS = 50
RECONNECT_MOST_MS = 2000
"""Between two attempts to reach a peer that is not there: doubled each time up to this."""

Socket = zmq.Socket[bytes]


class PlainTextWarning(UserWarning):
    """Events leave this machine in plain text, and anybody who reaches the port can read them."""


_has_warned = False


def clock_name() -> bytes:
    """What tells this machine's monotonic clock from others: which boot it counts from."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return random_name(NAME_BYTES)  # like no other


def new_context() -> zmq.Context[Socket]:
    """A context of its own for each publisher and subscriber: one's fault is nobody else's."""
    return zmq.Context(io_threads=1)


UNBOUNDED = 0
DEFAULT_HWM = 1000


def new_socket(context: zmq.Context[Socket], kind: int, *, send_hwm: int = DEFAULT_HWM) -> Socket:
    """A socket with bounds on what comes from the network.

    How many messages ZeroMQ itself keeps for us is bounded only at sockets for requests. Elsewhere
    the bound is our own queue, whose policy says what gives way: a socket that ZeroMQ has stopped
    reading fails an assertion, and takes the process along, when its connection breaks meanwhile.
    """
    sock = context.socket(kind)
    is_upstream = kind in (zmq.XPUB, zmq.ROUTER)
    sock.setsockopt(zmq.MAXMSGSIZE, MAX_UPSTREAM_BYTES if is_upstream else MAX_MESSAGE_BYTES)
    sock.setsockopt(zmq.LINGER, 0)
    sock.setsockopt(zmq.SNDHWM, send_hwm)
    sock.setsockopt(zmq.RCVHWM, DEFAULT_HWM if kind == zmq.ROUTER else UNBOUNDED)
    sock.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    sock.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS)
    sock.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    sock.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    sock.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MOST_MS)
    return sock


def secure_server(sock: Socket, security: Security | None) -> None:
    """Encrypts what comes to a socket that binds."""
    if security is not None:
        sock.setsockopt(zmq.CURVE_SERVER, 1)
        sock.setsockopt(zmq.CURVE_SECRETKEY, security.own.secret)
        sock.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)


def secure_client(sock: Socket, security: Security | None, server_key: bytes | None) -> None:
    """Encrypts what goes to whoever has `server_key`, and to nobody else."""
    if security is not None and server_key is not None:
        sock.setsockopt(zmq.CURVE_SERVERKEY, server_key)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, security.own.public)
        sock.setsockopt(zmq.CURVE_SECRETKEY, security.own.secret)


def bind(sock: Socket, endpoint: Endpoint) -> str:
    """Binds; returns where, with the port that the system gave."""
    where = resolved(endpoint)
    if not endpoint.host and _is_listened_to(endpoint.text.removeprefix("ipc://")):
        raise LocalError(f"cannot bind to {endpoint.text}: Address already in use")
    sock.setsockopt(zmq.IPV6, "[" in where)
    try:
        sock.bind(where)
    except zmq.ZMQError as fault:
        raise LocalError(
            f"cannot bind to {endpoint.text}: {zmq.strerror(fault.errno or 0)}"
        ) from None
    return sock.getsockopt_string(zmq.LAST_ENDPOINT)


def _is_listened_to(path: str) -> bool:
    """True when somebody has the Unix socket: ZeroMQ would take it away without a word."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def connect(sock: Socket, endpoint: str) -> None:
    """Connects, now or whenever the other side is there."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    sock.setsockopt(zmq.IPV6, not host.replace(".", "").isdecimal())  # names may be either
    try:
        sock.connect(endpoint)
    except zmq.ZMQError as fault:
        raise LocalError(
            f"cannot connect to {endpoint}: {zmq.strerror(fault.errno or 0)}"
        ) from None


def warn_of_plain_text(address: ZeroMQAddress) -> None:
    """Warns once per process when events would leave the machine unencrypted."""
    global _has_warned
    outside = [e.text for e in address.endpoints if not e.is_loopback]
    if address.key is not None or address.server_key is not None:
        return
    if outside and not _has_warned:
        _has_warned = True
        warnings.warn(
            f"{outside[0]} is not on this machine and the connection is not encrypted: "
            "anybody who can reach it can read and forge events; see key= and server_key=",
            PlainTextWarning,
            stacklevel=4,  # whoever called open_publisher or open_subscriber
        )
