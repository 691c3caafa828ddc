"""A port: a place on some network where datagrams come and go.

The shells know only this. `multicast/` makes ports of kernel sockets, `memory.py` of queues with
seeded faults; both have a file descriptor that becomes readable when something has come.
"""

import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from .datagrams import Address, DatagramReader, Received, send_batch
from .lane import Lane

BATCH = 64
"""Datagrams read at once: half a megabyte of buffers at most stays in the cache."""


class Port(Protocol):
    """What a shell needs of a network."""

    @property
    def address(self) -> Address:
        """Where datagrams to this port are sent."""

    @property
    def kernel_drops(self) -> int:
        """Datagrams dropped because nobody read them in time."""

    @property
    def truncated(self) -> int:
        """Datagrams too long to be ours, dropped."""

    @property
    def refused(self) -> int:
        """Connections that came to nothing, where there are connections."""

    @property
    def trouble(self) -> str | None:
        """Why nothing will come any more, once that is known."""

    @property
    def lost_on_purpose(self) -> int:
        """Datagrams thrown away as told, by a fault that somebody asked for."""

    @property
    def tells_once(self) -> bool:
        """True when the descriptor tells of something that has come only once: look at `has_more`
        before sleeping on it."""

    @property
    def has_more(self) -> bool:
        """True when `receive` may return something though the descriptor does not say so."""

    def fileno(self) -> int:
        """Readable when `receive` would return something."""

    def receive(self) -> list[Received]:
        """What has come, at most `BATCH` datagrams; never waits."""

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        """The short way for what comes to this port in order; `is_lost` is asked per datagram."""

    def wake(self) -> None:
        """Makes a thread that waits for this port return, now and from now on."""

    def send(self, datagrams: Sequence[tuple[bytes, Address]]) -> int:
        """Sends in order, never waits; returns how many the network took."""

    def close(self) -> None:
        """Frees it; closing again does nothing."""


class SocketPort:
    """A kernel UDP socket as a port. Owns the socket."""

    lost_on_purpose = refused = 0
    trouble = None
    tells_once = has_more = False

    def __init__(self, sock: socket.socket, size: int = 2048) -> None:
        self._socket = sock
        self._reader = DatagramReader(sock, BATCH, size)
        self.receive = self._reader.receive
        self.fileno = sock.fileno

    @property
    def address(self) -> Address:
        """Where the socket is bound."""
        return cast(Address, self._socket.getsockname())

    @property
    def kernel_drops(self) -> int:
        """From SO_RXQ_OVFL: seen with the next datagram that gets through."""
        return self._reader.kernel_drops

    @property
    def truncated(self) -> int:
        """Datagrams longer than the reader's buffers."""
        return self._reader.truncated

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        """A lane over the reader's own buffers."""
        return Lane(self._reader, is_raw=is_raw, topics=topics, is_lost=is_lost)

    def wake(self) -> None:
        """Shuts the socket down: it is not connected, but whoever polls it is woken all the same.

        What has come stays readable.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def send(self, datagrams: Sequence[tuple[bytes, Address]]) -> int:
        """Sends in order; what the kernel refuses is for the caller to count."""
        return send_batch(self._socket, datagrams)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
