"""The three sockets of the multicast transport, built by hand.

data      bound to the group itself, so other groups on the same port never leak in
request   a subscriber's own: replies never compete with live data for buffer space
sender    a publisher's: sends to the groups and takes requests, so that a subscriber needs no
          configuration: it asks the address the data came from
"""

import errno
import socket
import struct
import warnings

from ..errors import ConfigurationError, LocalError
from ..ports import SocketPort
from .address import MulticastAddress

RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
"""Asked for each socket that data comes to: some thirty milliseconds of small packets."""
MAX_DATAGRAM_BYTES = 65_535

# ip(7) and ipv6(7), not named by the socket module of Python 3.11
IP_MULTICAST_ALL = 49
IPV6_MULTICAST_ALL = 29
IP_ADD_SOURCE_MEMBERSHIP = 39
MCAST_JOIN_SOURCE_GROUP = 46


class SmallBufferWarning(RuntimeWarning):
    """The kernel gave a smaller receive buffer than was asked for."""


_has_warned = False


def open_data_port(address: MulticastAddress, path: int) -> SocketPort:
    """A socket that gets what is sent to one group."""
    group, port = address.groups[path]
    sock = _socket(address, RECEIVE_BUFFER_BYTES)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if group.version == 4:
            sock.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            sock.bind((str(group), port))
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
            sock.bind((str(group), port, 0, address.interface_index))
        _join(sock, address, path)
        _check_route(address, path)
    except OSError as fault:
        sock.close()
        raise _explained(fault, address, f"cannot listen to {group} port {port}") from fault
    return SocketPort(sock, MAX_DATAGRAM_BYTES if address.packet_bytes > 1472 else 2048)


def open_request_port(address: MulticastAddress) -> SocketPort:
    """A subscriber's socket for requests and their replies."""
    sock = _socket(address, RECEIVE_BUFFER_BYTES)
    host = _local_host(address)
    try:
        sock.bind((host, 0))
    except OSError as fault:
        sock.close()
        raise _explained(fault, address, f"cannot open a request socket on {host}") from fault
    return SocketPort(sock, MAX_DATAGRAM_BYTES if address.packet_bytes > 1472 else 2048)


def open_server_port(address: MulticastAddress, listen: tuple[str, int] | None) -> SocketPort:
    """A request server's socket: takes requests at `listen`, and can speak to the groups."""
    host, port = (_local_host(address), 0) if listen is None else listen
    if (":" in host) != (address.family == socket.AF_INET6):
        expected = "IPv4" if address.family == socket.AF_INET else "IPv6"
        raise ConfigurationError(f"cannot listen on {host}: {address.text!r} needs {expected}")
    sock = _socket(address, RECEIVE_BUFFER_BYTES)
    try:
        sock.bind((host, port))
        _choose_interface(sock, address)
    except OSError as fault:
        sock.close()
        raise _explained(fault, address, f"cannot listen for requests on {host}:{port}") from fault
    return SocketPort(sock)


def open_sender_port(address: MulticastAddress) -> SocketPort:
    """A publisher's socket: sends to the groups, takes requests."""
    sock = _socket(address, 0)
    host = _local_host(address)
    try:
        sock.bind((host, 0))
        _choose_interface(sock, address)
    except OSError as fault:
        sock.close()
        raise _explained(fault, address, f"cannot send from {host}") from fault
    return SocketPort(sock)


def _choose_interface(sock: socket.socket, address: MulticastAddress) -> None:
    if address.family == socket.AF_INET:
        membership = _membership(address)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, membership)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, address.ttl)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    else:
        index = address.interface_index
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, address.ttl)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)


def explain_send(fault: OSError, address: MulticastAddress) -> LocalError:
    """The one clear sentence for a first packet that could not be sent."""
    group, port = address.groups[0]
    return _explained(fault, address, f"cannot send to {group} port {port}")


def _socket(address: MulticastAddress, buffer_bytes: int) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    if buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        _check_buffer(sock, buffer_bytes)
    return sock


def _check_buffer(sock: socket.socket, asked: int) -> None:
    global _has_warned
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # Linux reports the double
    if given < asked and not _has_warned:
        _has_warned = True
        warnings.warn(
            f"receive buffer is {given} bytes, {asked} were asked for: bursts may be lost in the "
            f"kernel; raise it with: sysctl -w net.core.rmem_max={asked}",
            SmallBufferWarning,
            stacklevel=5,  # whoever called open_subscriber
        )


def _local_host(address: MulticastAddress) -> str:
    if address.interface_address is not None:
        return str(address.interface_address)
    if address.family == socket.AF_INET6:
        return "::1" if address.interface_index == _loopback_index() else "::"
    return "0.0.0.0"


def _loopback_index() -> int:
    try:
        return socket.if_nametoindex("lo")
    except OSError:
        return 0


def _membership(address: MulticastAddress, group: bytes = b"\0" * 4) -> bytes:
    # struct ip_mreqn: group, local address, interface index
    local = b"\0" * 4 if address.interface_address is None else address.interface_address.packed
    return struct.pack("=4s4si", group, local, address.interface_index)


def _join(sock: socket.socket, address: MulticastAddress, path: int) -> None:
    group, _ = address.groups[path]
    if address.source is not None and address.interface_address is not None:
        join = group.packed + address.interface_address.packed + address.source.packed
        sock.setsockopt(socket.IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, join)
    elif address.source is not None:
        # struct group_source_req: interface, padding, two sockaddr_storage
        join = struct.pack("=I4x", address.interface_index)
        join += _storage(group.packed) + _storage(address.source.packed)
        level = socket.IPPROTO_IP if group.version == 4 else socket.IPPROTO_IPV6
        sock.setsockopt(level, MCAST_JOIN_SOURCE_GROUP, join)
    elif group.version == 4:
        membership = _membership(address, group.packed)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    else:
        join = group.packed + struct.pack("=I", address.interface_index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, join)


def _storage(packed: bytes) -> bytes:
    # struct sockaddr_in or sockaddr_in6 in a sockaddr_storage of 128 bytes
    if len(packed) == 4:
        return struct.pack("=HH4s", socket.AF_INET, 0, packed).ljust(128, b"\0")
    return struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, packed, 0).ljust(128, b"\0")


def _check_route(address: MulticastAddress, path: int) -> None:
    """Raises where nothing could ever come: a join succeeds on an interface that is down."""
    with socket.socket(address.family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        _choose_interface(probe, address)
        try:
            probe.connect(address.destination(path))  # looks the route up, sends nothing
        except OSError as fault:
            if fault.errno in (errno.ENETUNREACH, errno.ENETDOWN):
                raise


def _explained(fault: OSError, address: MulticastAddress, what: str) -> LocalError:
    nowhere = (errno.ENETUNREACH, errno.ENETDOWN, errno.ENODEV, errno.EADDRNOTAVAIL)
    is_ipv6 = address.family == socket.AF_INET6
    if fault.errno in nowhere and is_ipv6 and address.interface_index == _loopback_index():
        routes = " and ".join(
            f"ip -6 route add local {group} dev lo" for group, _ in address.groups
        )
        hint = (
            "the loopback has no route for IPv6 multicast of its own; "
            f"add it: {routes}, or name another interface: ?interface=NAME"
        )
    elif fault.errno in nowhere:
        form = "NAME" if is_ipv6 else "IP"
        hint = (
            "no multicast route there; "
            f"name an interface of this machine that is up: ?interface={form}"
        )
    elif fault.errno == errno.EADDRINUSE:
        hint = "the port is in use by a program that does not share it"
    else:
        hint = f"in {address.text!r}"
    return LocalError(f"{what}: {fault.strerror or fault}; {hint}")
