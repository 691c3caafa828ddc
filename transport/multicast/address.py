"""A multicast URL: which groups, through which interface.

    multicast://GROUP:PORT?interface=IP-or-name&ttl=1&b=GROUP:PORT&source=IP&request=IP:PORT[,…]
                          &session=NAME&payload=event|raw&packet=1400&loss=0.02&seed=7

`interface` is 127.0.0.1 (or `lo` for IPv6) unless told otherwise: nothing leaves the machine by
accident. `b` is a second group that carries the same packets. `source` joins only what that
address sends. `request` names request servers. `loss` drops that share of what a subscriber
receives, seeded: for demonstrations and benchmarks.
"""

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Literal, cast

from ..datagrams import Address
from ..errors import ConfigurationError
from ..mold.sessions import parse_session
from ..mold.wire import DEFAULT_PACKET_BYTES
from ..urls import IPAddress, TransportURL, parse_endpoint

OPTIONS = (
    "b", "interface", "loss", "packet", "payload", "request", "seed", "session", "source", "ttl",
)  # fmt: skip
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class MulticastAddress:
    """A multicast URL, checked."""

    text: str
    groups: tuple[tuple[IPAddress, int], ...]
    interface_address: IPv4Address | None
    interface_index: int
    """0: chosen by `interface_address`."""
    ttl: int
    source: IPAddress | None
    servers: tuple[Address, ...]
    session: bytes | None
    payload: Literal["event", "raw"]
    packet_bytes: int
    loss: float
    seed: int

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6, as the first group."""
        return socket.AF_INET if self.groups[0][0].version == 4 else socket.AF_INET6

    def destination(self, path: int) -> Address:
        """Where the packets of one path are sent."""
        group, port = self.groups[path]
        if group.version == 4:
            return (str(group), port)
        return (str(group), port, 0, self.interface_index)


def parse_multicast(url: TransportURL) -> MulticastAddress:
    """Checks a multicast URL whole; raises `ConfigurationError` naming what is wrong."""
    url.only(OPTIONS)
    groups = [_group(url, url.where)]
    if "b" in url.options:
        groups.append(_group(url, url.options["b"]))
    if len({group.version for group, _ in groups}) > 1:
        raise ConfigurationError(f"{url.text!r}: both groups must be IPv4, or both IPv6")
    if len(set(groups)) < len(groups):
        raise ConfigurationError(f"{url.text!r}: b is the first group again, expected another")
    version = groups[0][0].version
    address, index = _interface(url, version)
    source = url.options.get("source")
    payload = url.options.get("payload", "event")
    if payload not in ("event", "raw"):
        raise ConfigurationError(f"payload={payload} in {url.text!r}: expected 'event' or 'raw'")
    session = url.options.get("session")
    requests = url.options.get("request", "")
    return MulticastAddress(
        text=url.text,
        groups=tuple(groups),
        interface_address=address,
        interface_index=index,
        ttl=url.whole("ttl", 1, 0, 255),
        source=None if source is None else _source(url, source, version),
        servers=tuple(_server(url, text, version, index) for text in requests.split(",") if text),
        session=None if session is None else parse_session(session),
        payload=cast(Literal["event", "raw"], payload),
        packet_bytes=url.whole("packet", DEFAULT_PACKET_BYTES, 64, 65_507),
        loss=url.number("loss", 0.0, 0.0, 1.0),
        seed=url.whole("seed", 1, 1, 2**53),
    )


def _group(url: TransportURL, text: str) -> tuple[IPAddress, int]:
    group, port = parse_endpoint(text, "group")
    if not group.is_multicast:
        raise ConfigurationError(
            f"{group} in {url.text!r} is no multicast group; "
            "use 239.0.0.0 to 239.255.255.255, or ff15:: and up for IPv6"
        )
    if port == 0:
        raise ConfigurationError(f"{url.text!r}: a group needs a port from 1 to 65535")
    return group, port


def _interface(url: TransportURL, version: int) -> tuple[IPv4Address | None, int]:
    text = url.options.get("interface", LOOPBACK if version == 4 else "lo")
    try:
        address = ip_address(text)
    except ValueError:
        try:
            return None, socket.if_nametoindex(text)
        except (OSError, ValueError):  # ValueError: a name with a zero byte
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise ConfigurationError(
                f"interface={text} in {url.text!r}: no such interface; there are {names}"
            ) from None
    if version == 6:
        raise ConfigurationError(
            f"interface={text} in {url.text!r}: IPv6 groups need the interface's name"
        )
    if not isinstance(address, IPv4Address):
        raise ConfigurationError(f"interface={text} in {url.text!r}: expected IPv4 or a name")
    return address, 0


def _source(url: TransportURL, text: str, version: int) -> IPAddress:
    try:
        address = ip_address(text)
    except ValueError:
        raise ConfigurationError(f"source={text} in {url.text!r}: expected an IP") from None
    if address.version != version or address.is_multicast:
        raise ConfigurationError(
            f"source={text} in {url.text!r}: expected the IPv{version} address of a sender"
        )
    return address


def _server(url: TransportURL, text: str, version: int, interface_index: int) -> Address:
    address, port = parse_endpoint(text, "request server")
    if address.version != version or port == 0:
        raise ConfigurationError(
            f"request server {text!r} in {url.text!r}: expected IPv{version}, as the group is, "
            "and a port from 1 to 65535"
        )
    if version == 4:
        return (str(address), port)
    # A link-local address means something on one link only, and replies come with its number.
    return (str(address), port, 0, interface_index if address.is_link_local else 0)
