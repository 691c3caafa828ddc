"""`zmq+tcp://HOST:PORT,…` and `zmq+ipc:///PATH`: where to bind, where to connect."""

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import ConfigurationError, LocalError
from ..urls import TransportURL
from .keys import KeyPair, Security, load_allowed, load_pair, load_public

Binder = Literal["publisher", "subscriber"]

OPTIONS = ("allow", "bind", "hwm", "key", "server_key", "side")
DEFAULT_HWM = 10_000
"""Messages that ZeroMQ keeps for each peer, on each side; each holds up to 32 KiB of events."""
MAX_IPC_PATH_BYTES = 98
"""What the kernel takes is 107; a dot and the epoch are added."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place to bind or to connect to."""

    text: str
    """As ZeroMQ writes it: `tcp://HOST:PORT` or `ipc://PATH`."""
    host: str
    """The host of a TCP endpoint, with brackets if it needs them; empty for a Unix socket."""
    port: int

    @property
    def files(self) -> list[Path]:
        """What is left on disk by binding to it."""
        return [] if self.host else [Path(self.text.removeprefix("ipc://"))]

    @property
    def is_loopback(self) -> bool:
        """True when nothing that goes there leaves this machine."""
        if not self.host or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class ZeroMQAddress:
    """A ZeroMQ URL taken apart."""

    endpoints: tuple[Endpoint, ...]
    bind: Binder = "publisher"
    """Who binds; the others connect."""
    hwm: int = DEFAULT_HWM
    """What ZeroMQ may queue for each peer, in its own messages; beyond it they are repaired."""
    side_port: int = 0
    """Where the publisher takes requests, over TCP; 0: what the system gives."""
    key: Path | None = None
    """Our own secret key file; with it, or with `server_key`, everything is encrypted."""
    server_key: Path | None = None
    """The public key file of the one who binds, for those who connect."""
    allow: Path | None = None
    """Who may connect, for the one who binds: a directory of public keys, `*.key`, or one file."""

    def security(self, role: Binder) -> Security | None:
        """Reads the keys of a publisher or subscriber; None when there are none.

        Raises `LocalError` for a file that cannot be used, `ConfigurationError` where one is
        missing.
        """
        if self.key is None and self.server_key is None and self.allow is None:
            return None
        if role == self.bind:
            if self.key is None or self.server_key is not None:
                raise ConfigurationError(
                    f"the {role} binds: give it key= (its own secret key), and allow= for those "
                    "who may connect"
                )
            allowed = None if self.allow is None else load_allowed(self.allow)
            return Security(load_pair(self.key), None, allowed)
        if self.server_key is None or self.allow is not None:
            raise ConfigurationError(
                f"the {role} connects: give it server_key= (the public key of the {self.bind}), "
                "and key= (its own) where only some may connect"
            )
        own = KeyPair.random() if self.key is None else load_pair(self.key)
        return Security(own, load_public(self.server_key))

    def side(self, epoch: str) -> Endpoint:
        """Where the side channel of a publisher binds: on this machine, whoever binds the rest."""
        first = self.endpoints[0]
        if not first.host:
            name = "side" if self.bind == "publisher" else epoch
            return Endpoint(f"{first.text}.{name}", "", 0)
        host = first.host if self.bind == "publisher" else _own_address_towards(first)
        return Endpoint(f"tcp://{host}:{self.side_port}", host, self.side_port)


def parse_zeromq(url: TransportURL) -> ZeroMQAddress:
    """Reads a URL; raises `ConfigurationError` with what is wrong with it."""
    url.only(OPTIONS)
    bind = url.options.get("bind", "publisher")
    if bind not in ("publisher", "subscriber"):
        raise ConfigurationError(
            f"bind={bind} in {url.text!r}: expected 'publisher' or 'subscriber'"
        )
    if url.scheme == "zmq+ipc":
        endpoints: tuple[Endpoint, ...] = (_unix(url),)
    else:
        endpoints = tuple(_tcp(part, url) for part in url.where.split(","))
    return ZeroMQAddress(
        endpoints,
        "publisher" if bind == "publisher" else "subscriber",
        url.whole("hwm", DEFAULT_HWM, 1, 10_000_000),
        url.whole("side", 0, 0, 65535),
        *(
            Path(url.options[name]) if name in url.options else None
            for name in ("key", "server_key", "allow")
        ),
    )


def _unix(url: TransportURL) -> Endpoint:
    path = url.where
    if not path.startswith("/") or len(path) < 2 or not path.isprintable():
        raise ConfigurationError(f"{url.text!r}: expected zmq+ipc:///PATH, with three slashes")
    if len(path.encode()) > MAX_IPC_PATH_BYTES:
        raise ConfigurationError(
            f"{url.text!r}: the path has {len(path.encode())} bytes, at most "
            f"{MAX_IPC_PATH_BYTES} fit a Unix socket"
        )
    return Endpoint(f"ipc://{path}", "", 0)


def _tcp(text: str, url: TransportURL) -> Endpoint:
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    is_bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not host or not is_number or int(port) > 65535 or is_bare_ipv6 or "@" in host:
        raise ConfigurationError(f"{text!r} in {url.text!r}: expected HOST:PORT or [IPv6]:PORT")
    return Endpoint(f"tcp://{host}:{int(port)}", host, int(port))


def resolved(endpoint: Endpoint) -> str:
    """The endpoint to bind to: ZeroMQ binds to addresses, not to names."""
    if not endpoint.host or endpoint.host == "*":
        return endpoint.text
    host = endpoint.host.strip("[]")
    try:
        found = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as fault:
        raise LocalError(f"cannot bind to {endpoint.text}: {fault}") from None
    address = str(found[0][4][0])
    return (
        f"tcp://[{address}]:{endpoint.port}"
        if ":" in address
        else (f"tcp://{address}:{endpoint.port}")
    )


def _own_address_towards(endpoint: Endpoint) -> str:
    """The address of this machine that packets to an endpoint leave from; nothing is sent."""
    try:
        found = socket.getaddrinfo(
            endpoint.host.strip("[]"), endpoint.port or 9, type=socket.SOCK_DGRAM
        )
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            own = str(probe.getsockname()[0])
    except (OSError, UnicodeError) as fault:
        raise LocalError(f"cannot reach {endpoint.text}: {fault}") from None
    return f"[{own}]" if ":" in own else own
