"""Reads and writes datagrams in batches: the only place of the transport that touches a UDP socket.

    socket ──> DatagramReader.receive() ──> [(bytes, address, received_at_ns), ...] ──> core
    core ──> [(bytes, address), ...] ──> send_batch() ──> socket

The rule it keeps: every datagram the kernel took for this socket is either returned or in exactly
one counter. `kernel_drops` were lost to a full socket buffer, `truncated` were longer than `size`.
`errors` are not datagrams but what the network said about ours (an ICMP "port unreachable").

This file is the specification in plain Python; `_datagrams.pyx` does the same with one system call
per batch. The last lines choose between them: ONEHOP_PURE_PYTHON=1, or a missing extension, selects
the twin. The two differ in speed and in two more points: the twin rounds a wait up to the next
millisecond, and only the compiled reader notices, and refuses, a second thread.
"""

import _socket
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias, final

from onehop.transport.errors import ConfigurationError, LimitError

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""What `socket.recvfrom` gives: (host, port), for IPv6 also the flow and the scope."""

Received: TypeAlias = tuple[bytes, Address, int]
"""One datagram: its bytes, who sent it, when it came (nanoseconds since 1970)."""

# socket(7); the socket module of Python 3.11 does not name them
SO_TIMESTAMPNS = 35
SO_RXQ_OVFL = 40

MAX_BATCH = 1024
"""Datagrams in one system call: the kernel's own limit (UIO_MAXIOV)."""
MAX_SIZE = 65_535
"""Bytes in one datagram: the length field of UDP has 16 bits."""
MAX_ADDRESSES = 1024
"""Addresses kept converted; at the bound old ones go, which costs time and nothing else."""
MAX_FLOWINFO = 0xF_FFFF
"""RFC 8200 section 3: a flow label has 20 bits."""
ROUNDS = 16
"""Attempts of one `receive` that met only errors or oversized datagrams: a flood of them must not
hold the caller for ever."""
CONTROL_BYTES = 64
"""Ancillary bytes per datagram: the stamp takes 32, the drop counter 24, and the kernel writes
them first, so options that others set on the socket cannot push them out."""

NAP_NS = 10_000_000
"""The kernel's own timeout of a read counts coarsely: only whole naps are left to it."""
MAX_NAPS = 100

FOREVER_NS = 2**63 - 1
LONGEST_S = 1e9
"""Timeouts from here on (30 years) mean for ever."""
LONGEST_POLL_NS = 3_600_000_000_000
"""poll(2) counts milliseconds in an int; a longer wait polls again."""

_TIMESPEC = struct.Struct("@qq").unpack_from
_COUNTER = struct.Struct("@I").unpack_from

family_of: Callable[[socket.socket], int] = _socket.socket.family.__get__
"""The family as a plain int; `sock.family` looks up an enum member at each call."""

ASYNCHRONOUS_ERRORS = frozenset(
    {
        errno.EACCES,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EMSGSIZE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENONET,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPROTO,
        errno.ETIMEDOUT,
    }
)
"""What ICMP, or a link going down, leaves on a socket for the next call to find (Linux
`icmp_err_convert`). Reading clears it; it says nothing about the socket itself."""


@final
class PurePythonReader:
    """Reads a UDP socket in batches of at most `batch` datagrams of at most `size` bytes.

    The socket stays the caller's: the reader sets two options on it (SO_TIMESTAMPNS, SO_RXQ_OVFL)
    and never closes it. One thread at a time reads.
    """

    def __init__(self, sock: socket.socket, batch: int = 64, size: int = 2048) -> None:
        prepare_socket(sock, batch, size)
        self._sock = sock
        self._batch = batch
        self._size = size
        self._last_drops = 0
        self._naps = 0
        self.kernel_drops = 0
        """Datagrams lost to a full socket buffer, as the newest datagram read reports it."""
        self.truncated = 0
        """Datagrams longer than `size`, dropped."""
        self.errors = 0
        """Errors the network reported asynchronously, swallowed."""

    def receive(self) -> list[Received]:
        """Returns what is there now, at most `batch` datagrams; never blocks.

        Empty means nothing is there, or nothing good in `ROUNDS` attempts. Raises OSError where
        the socket itself is broken (EBADF after close).
        """
        for _ in range(ROUNDS):
            found, is_drained = self._read_batch(self._batch)
            if found or is_drained:
                return found
        return []

    def wait(self, timeout_s: float | None) -> bool:
        """Blocks until the socket has a datagram or an error to read; None waits for ever."""
        return self._poll(_deadline_after(timeout_s))

    def receive_wait(self, timeout_s: float | None) -> list[Received]:
        """Returns as `receive` does, sleeping until something is there; empty after the timeout."""
        deadline_ns = _deadline_after(timeout_s)
        found = self.receive()
        while not found and (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            if left_ns >= NAP_NS and self._sock.gettimeout() is None:
                self._set_naps(min(left_ns // NAP_NS, MAX_NAPS))
                found, _ = self._read_batch(1, 0)  # one: nothing more is likely to have come
            else:
                self._poll(deadline_ns)
                found, _ = self._read_batch(1)
        return found

    def _set_naps(self, naps: int) -> None:
        """Leaves the wait to the read itself: one call from the wake-up to the datagram."""
        if naps != self._naps:
            seconds, rest_ns = divmod(naps * NAP_NS, 1_000_000_000)
            timeout = struct.pack("@ll", seconds, rest_ns // 1000)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            self._naps = naps

    def spin(self, timeout_s: float | None) -> list[Received]:
        """Returns as `receive_wait` does, but burns a core instead of sleeping."""
        deadline_ns = _deadline_after(timeout_s)
        found = self.receive()
        while not found and time.monotonic_ns() < deadline_ns:
            found, _ = self._read_batch(1)
        return found

    def _read_batch(self, most: int, how: int = socket.MSG_DONTWAIT) -> tuple[list[Received], bool]:
        found: list[Received] = []
        for _ in range(most):
            try:
                data, ancillary, flags, address = self._sock.recvmsg(self._size, CONTROL_BYTES, how)
            except BlockingIOError:
                return found, True
            except OSError as error:
                if error.errno not in ASYNCHRONOUS_ERRORS:
                    raise
                self.errors += 1
                return found, False
            if address is None:  # no datagram: the socket was shut down to wake us
                return found, True
            # First the ancillary data: a truncated datagram carries the drop counter too.
            received_at_ns = self._read_control(ancillary)
            if flags & socket.MSG_TRUNC:
                self.truncated += 1
            else:
                found.append((data, address, received_at_ns))
        return found, False

    def _read_control(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        received_at_ns = 0
        for level, kind, data in ancillary:
            if level != socket.SOL_SOCKET:
                continue
            if kind == SO_TIMESTAMPNS and len(data) >= 16:
                seconds, nanoseconds = _TIMESPEC(data)
                received_at_ns = seconds * 1_000_000_000 + nanoseconds
            elif kind == SO_RXQ_OVFL and len(data) >= 4:
                self._note_drops(_COUNTER(data)[0])
        return received_at_ns or time.time_ns()

    def _note_drops(self, seen: int) -> None:
        # The kernel counts in 32 bits and wraps; a step of over half the circle is a step back.
        step = (seen - self._last_drops) & 0xFFFF_FFFF
        if step < 0x8000_0000:
            self.kernel_drops += step
            self._last_drops = seen

    def _poll(self, deadline_ns: int) -> bool:
        fd = self._sock.fileno()
        if fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        while True:
            remaining_ns = max(0, deadline_ns - time.monotonic_ns())
            for _, events in poller.poll(min(remaining_ns, LONGEST_POLL_NS) / 1e6):
                if events & select.POLLNVAL:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                return True
            if time.monotonic_ns() >= deadline_ns:
                return False


def send_batch_pure(sock: socket.socket, datagrams: Sequence[tuple[bytes, Address]]) -> int:
    """Sends in order, without blocking, and returns how many datagrams the kernel accepted.

    It stops at the first that cannot go. A full buffer (EAGAIN, ENOBUFS) is no error: the count
    says where to go on. Any other failure is raised only if it hit the first datagram, so that
    an exception always means that nothing was sent: OSError from the kernel, ConfigurationError
    for an address that is not numeric or not of the socket's family, TypeError for anything else
    than (bytes, address) tuples.
    """
    family = family_of(sock)
    sent = 0
    try:
        for item in datagrams:
            _check_datagram(item)
            encode_address(family, item[1])  # for its checks: sendto would resolve a name
            sock.sendto(item[0], socket.MSG_DONTWAIT, item[1])
            sent += 1
    except (OSError, TypeError, ValueError) as error:
        is_full = isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.ENOBUFS)
        if sent == 0 and not is_full:
            raise
    return sent


def _check_datagram(item: object) -> None:
    if type(item) is not tuple or len(item) != 2 or type(item[0]) is not bytes:
        raise TypeError(f"datagram is {type(item).__name__}, expected (bytes, address)")


def prepare_socket(sock: socket.socket, batch: int, size: int) -> None:
    """Checks what a reader is made of and asks the kernel for stamps and the drop counter."""
    if not 1 <= batch <= MAX_BATCH:
        raise LimitError(f"batch is {batch}, expected 1 to {MAX_BATCH}")
    if not 1 <= size <= MAX_SIZE:
        raise LimitError(f"size is {size}, expected 1 to {MAX_SIZE}")
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_DGRAM:
        raise ConfigurationError(f"{sock!r}: expected a UDP socket")
    if sock.gettimeout():
        raise ConfigurationError(f"socket has a timeout of {sock.gettimeout()} s, expected none")
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)


@lru_cache(MAX_ADDRESSES)
def encode_address(family: int, address: Address) -> bytes:
    """Returns the sockaddr_in or sockaddr_in6 of a numeric address (ip(7), ipv6(7))."""
    try:
        host, port, flowinfo, scope_id = address if len(address) == 4 else (*address, 0, 0)
        packed = socket.inet_pton(family, host)
        if flowinfo > MAX_FLOWINFO or (family == socket.AF_INET and len(address) != 2):
            raise ValueError
        # family and scope in the machine's byte order, the rest in the network's
        if family == socket.AF_INET:
            return struct.pack("=H", family) + struct.pack("!H4s8x", port, packed)
        head, tail = struct.pack("=H", family), struct.pack("=I", scope_id)
        return head + struct.pack("!HI16s", port, flowinfo, packed) + tail
    except (OSError, TypeError, ValueError, struct.error) as error:
        name = "IPv4" if family == socket.AF_INET else "IPv6"
        raise ConfigurationError(f"address is {address!r}, expected numeric {name}") from error


@lru_cache(MAX_ADDRESSES)
def decode_address(raw: bytes) -> Address:
    """Returns the address in a sockaddr_in (16 bytes) or sockaddr_in6 (28 bytes)."""
    if len(raw) == 16:
        port, packed = struct.unpack_from("!H4s", raw, 2)
        return socket.inet_ntop(socket.AF_INET, packed), port
    if len(raw) == 28:
        port, flowinfo, packed = struct.unpack_from("!HI16s", raw, 2)
        (scope_id,) = struct.unpack_from("=I", raw, 24)
        return socket.inet_ntop(socket.AF_INET6, packed), port, flowinfo, scope_id
    raise ConfigurationError(f"socket address has {len(raw)} bytes, expected 16 or 28")


def _deadline_after(timeout_s: float | None) -> int:
    if timeout_s is None or timeout_s >= LONGEST_S:
        return FOREVER_NS
    if not timeout_s > 0:
        return time.monotonic_ns()
    return time.monotonic_ns() + int(timeout_s * 1e9)


if TYPE_CHECKING:
    from onehop.transport._datagrams import DatagramReader, send_batch

    COMPILED: bool
elif os.environ.get("ONEHOP_PURE_PYTHON") == "1":
    DatagramReader, send_batch, COMPILED = PurePythonReader, send_batch_pure, False
else:
    try:
        from onehop.transport._datagrams import DatagramReader, send_batch

        COMPILED = True
    except ImportError:
        DatagramReader, send_batch, COMPILED = PurePythonReader, send_batch_pure, False

__all__ = [
    "COMPILED",
    "Address",
    "DatagramReader",
    "PurePythonReader",
    "Received",
    "send_batch",
    "send_batch_pure",
]
