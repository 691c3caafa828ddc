"""Multicast on the loopback interface for tests: groups nobody else is on, and a stranger there.

    url = new_url(payload="raw")
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(b"SESSION001", 1, b"one", b"two")
        assert [event.value for event in take(events, 2)] == [b"one", b"two"]

The stranger is made of plain sockets and `struct` alone: an independent peer for the wire.
"""

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from onehop.transport import Event, Subscriber

PATIENCE_S = 10.0
"""How long a test waits for what must happen; it happens at once."""
HEADER = struct.Struct(">10sQH")
END_OF_SESSION = 0xFFFF


def free_port() -> int:
    """A UDP port nobody is bound to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def new_url(**options: object) -> str:
    """A group and port of its own, so that tests can run beside each other."""
    dice = random.SystemRandom()
    group = f"239.{dice.randint(1, 250)}.{dice.randint(1, 250)}.{dice.randint(1, 250)}"
    tail = "&".join(f"{name}={value}" for name, value in options.items())
    return f"multicast://{group}:{free_port()}" + (f"?{tail}" if tail else "")


def group_of(url: str) -> tuple[str, int]:
    """The group and port of a URL."""
    group, _, port = url.removeprefix("multicast://").partition("?")[0].partition(":")
    return group, int(port)


def until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Waits until something is so; fails when it does not become so."""
    give_up_at = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < give_up_at, f"not within {patience_s} s"
        time.sleep(0.001)


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Does `work` in another thread; the event it gets is set when the block ends, or fails."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def take(subscriber: Subscriber, count: int) -> list[Event]:
    """The next `count` events; fails when they do not come."""
    events: list[Event] = []
    while len(events) < count:
        event = subscriber.receive(PATIENCE_S)
        assert event is not None, f"{len(events)} of {count} came: {subscriber.ledger}"
        events.append(event)
    return events


def values(events: list[Event]) -> list[object]:
    """What the events say."""
    return [event.value for event in events]


def drops_at(url: str) -> int:
    """What /proc says was dropped at the one socket of a group: the outside count."""
    (row,) = _sockets_of(url)
    return int(row[-1])


def is_listened_to(url: str) -> bool:
    """True when a socket is bound to the group."""
    return bool(_sockets_of(url))


def is_read(url: str) -> bool:
    """True when nothing waits in the buffers of the group's sockets."""
    return all(row[4].endswith(":00000000") for row in _sockets_of(url))


def _sockets_of(url: str) -> list[list[str]]:
    group, port = group_of(url)
    packed = int.from_bytes(socket.inet_aton(group), "little")
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()]
    return [row for row in rows if row[1] == f"{packed:08X}:{port:04X}"]


class Stranger:
    """Somebody on the group who has never heard of this package."""

    def __init__(self, url: str) -> None:
        self.group = group_of(url)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
        )
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(PATIENCE_S)
        self._ear: socket.socket | None = None

    def send(self, data: bytes, to: tuple[str, int] | None = None) -> None:
        """Sends bytes as they are, to the group unless told otherwise."""
        self.socket.sendto(data, to or self.group)

    def send_packet(
        self, session: bytes, sequence: int, *messages: bytes, to: tuple[str, int] | None = None
    ) -> None:
        """A downstream packet; without messages a heartbeat."""
        blocks = b"".join(struct.pack(">H", len(message)) + message for message in messages)
        self.send(HEADER.pack(session, sequence, len(messages)) + blocks, to)

    def end_session(self, session: bytes, sequence: int) -> None:
        """An end-of-session packet."""
        self.send(HEADER.pack(session, sequence, END_OF_SESSION))

    def take_request(self) -> tuple[bytes, int, int, tuple[str, int]]:
        """The next request sent to the stranger, and where it came from."""
        data, address = self.socket.recvfrom(2048)
        session, first, count = HEADER.unpack(data)
        return session, first, count, address

    def listen(self) -> None:
        """Joins the group as well."""
        self._ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._ear.bind(self.group)
        join = socket.inet_aton(self.group[0]) + socket.inet_aton("127.0.0.1")
        self._ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, join)
        self._ear.settimeout(PATIENCE_S)

    def hear(self) -> tuple[bytes, int, int, list[bytes], tuple[str, int]]:
        """The next packet: session, sequence, count, messages and who sent it."""
        assert self._ear is not None
        data, address = self._ear.recvfrom(65_535)
        session, sequence, count = HEADER.unpack_from(data)
        return session, sequence, count, blocks_of(data), address

    def hear_message(self) -> tuple[int, list[bytes]]:
        """The next packet that holds messages: its sequence number and them."""
        while True:
            _, sequence, _, messages, _ = self.hear()
            if messages:
                return sequence, messages

    def close(self) -> None:
        self.socket.close()
        if self._ear is not None:
            self._ear.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def blocks_of(packet: bytes) -> list[bytes]:
    """The messages of a downstream packet."""
    messages = []
    at = HEADER.size
    while at < len(packet):
        (length,) = struct.unpack_from(">H", packet, at)
        messages.append(packet[at + 2 : at + 2 + length])
        at += 2 + length
    return messages
