"""A network inside the process, with seeded faults: test your own services under loss.

    with MemoryNetwork(seed=7, faults=Faults(loss=0.02)) as network:
        with open_subscriber(network.url) as events, open_publisher(network.url) as publisher:
            publisher.publish("quotes.AAPL", 101.5)

The protocol is the one that runs over multicast, with its heartbeats, requests and ledger; only
the datagrams travel through memory. Each link between two ports has its own dice, seeded by the
two addresses (ports are numbered as they open), so which of its datagrams are lost depends on the
seed and on their order, not on other links or threads.

`memory://name?loss=0.02&seed=7` opens a network by name, made at first use; it lives as long as
anything is open on it. A `MemoryNetwork` you made yourself lives until you close it.
"""

import heapq
import itertools
import os
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

from .datagrams import Address, Received
from .errors import ConfigurationError
from .lane import Lane, PythonLane
from .ports import BATCH
from .urls import TransportURL

OPTIONS = (
    "burst_enter",
    "burst_leave",
    "delay_ms",
    "duplicate",
    "loss",
    "payload",
    "reorder",
    "seed",
)
MAX_INBOX = 65_536
"""Datagrams that may wait at a port; more are dropped and counted as the kernel's would be."""
MAX_UNDER_WAY = 262_144
"""Datagrams that may be delayed at once; more are dropped and counted as `crowded_out`."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What a network does to datagrams. Chances are per datagram and link."""

    loss: float = 0.0
    """Chance to vanish, each datagram for itself."""
    burst_enter: float = 0.0
    """Chance to enter a bad time, in which everything vanishes."""
    burst_leave: float = 0.5
    """Chance to leave it again: a bad time lasts 1 / burst_leave datagrams on average."""
    duplicate: float = 0.0
    """Chance to come twice."""
    reorder: float = 0.0
    """Chance to be held up, by up to `reorder_s`, so that later ones overtake it."""
    reorder_s: float = 0.002
    delay_s: float = 0.0
    """Every datagram takes this long."""

    def __post_init__(self) -> None:
        for name in ("loss", "burst_enter", "burst_leave", "duplicate", "reorder"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}, expected 0 to 1")
        if self.delay_s < 0 or self.reorder_s < 0:
            raise ConfigurationError("delay_s and reorder_s cannot be below 0")


class MemoryPort:
    """A port on a `MemoryNetwork`, which counts what it loses itself."""

    lost_on_purpose = refused = 0
    trouble = None
    tells_once = has_more = False

    def __init__(self, network: "MemoryNetwork", address: Address) -> None:
        self._network = network
        self._inbox: deque[Received] = deque()
        self._lock = threading.Lock()
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_closed = self._is_woken = False
        self.address = address
        self.kernel_drops = 0
        self.truncated = 0

    def fileno(self) -> int:
        """Readable while something waits; -1 once closed, as a socket's."""
        return -1 if self._is_closed else self._event_fd

    def receive(self) -> list[Received]:
        """What has come, at most a batch."""
        with self._lock:
            inbox = self._inbox
            received = [inbox.popleft() for _ in range(min(len(inbox), BATCH))]
            if received and not inbox and not self._is_woken:
                os.eventfd_read(self._event_fd)
        return received

    def receive_wait(self, timeout_s: float | None) -> list[Received]:
        """What has come, waiting for the first."""
        poll = select.poll()
        with self._lock:
            if self._is_closed:
                return []
            poll.register(self._event_fd, select.POLLIN)
        poll.poll(None if timeout_s is None else timeout_s * 1e3)
        return self.receive()

    def spin(self, timeout_s: float) -> list[Received]:
        """In memory there is no wake-up to save: the same as waiting."""
        return self.receive_wait(timeout_s)

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        """The plain one: there is no socket to be quick about."""
        return PythonLane(self, is_raw=is_raw, topics=topics, is_lost=is_lost)

    def wake(self) -> None:
        """Readable from now on."""
        with self._lock:
            self._is_woken = True
            if not self._is_closed:
                os.eventfd_write(self._event_fd, 1)

    def send(self, datagrams: Sequence[tuple[bytes, Address]]) -> int:
        """Hands datagrams to the network, which always takes them."""
        for data, destination in datagrams:
            self._network._carry(data, self.address, destination)
        return len(datagrams)

    def close(self) -> None:
        """Leaves the network."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._inbox.clear()
            os.close(self._event_fd)
        self._network._leave(self)

    def _arrive(self, data: bytes, origin: Address) -> None:
        with self._lock:
            if self._is_closed:
                return
            if len(self._inbox) >= MAX_INBOX:
                self.kernel_drops += 1
                return
            if not self._inbox:
                os.eventfd_write(self._event_fd, 1)
            self._inbox.append((data, origin, time.time_ns()))


class _Link:
    __slots__ = ("is_bad", "random")

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.is_bad = False


class MemoryNetwork:
    """Joins ports, and loses, doubles, delays and reorders what they send, by seed."""

    def __init__(self, name: str | None = None, *, seed: int = 1, faults: Faults | None = None):
        self.name = f"network-{next(_names)}" if name is None else name
        self.counts: Counter[str] = Counter()
        self.seed = seed
        self._faults = Faults() if faults is None else faults
        self._lock = threading.Lock()
        self._ports: dict[Address, MemoryPort] = {}
        self._groups: dict[Address, list[MemoryPort]] = {}
        self._links: dict[tuple[Address, Address], _Link] = {}
        self._cut: set[Address] = set()
        self._numbers = itertools.count(1)
        self._post = _Post()
        self._is_kept = True
        with _registry_lock:
            if self.name in _networks:
                raise ConfigurationError(f"there is a memory network {self.name!r} already")
            _networks[self.name] = self

    @property
    def url(self) -> str:
        """What to open publishers and subscribers with."""
        return f"memory://{self.name}"

    @property
    def faults(self) -> Faults:
        """What the network does to datagrams; may be replaced at any time."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults

    def partition(self, *addresses: Address) -> None:
        """Cuts these ports off too (all there are when none is named) until `heal`."""
        with self._lock:
            self._cut |= set(addresses) or set(self._ports)

    def heal(self) -> None:
        """Joins everything again."""
        with self._lock:
            self._cut = set()

    def open_port(self, group: Address | None = None) -> MemoryPort:
        """A new port; with `group` it also gets what is sent there."""
        with self._lock:
            port = MemoryPort(self, ("memory", next(self._numbers)))
            self._ports[port.address] = port
            if group is not None:
                self._groups.setdefault(group, []).append(port)
        return port

    def listeners(self, group: Address) -> int:
        """How many ports listen to a group."""
        with self._lock:
            return len(self._groups.get(group, ()))

    def close(self) -> None:
        """Forgets the name; what is still on its way is dropped."""
        self._post.close()
        with _registry_lock:
            if _networks.get(self.name) is self:
                del _networks[self.name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _leave(self, port: MemoryPort) -> None:
        with self._lock:
            self._ports.pop(port.address, None)
            for ports in self._groups.values():
                if port in ports:
                    ports.remove(port)
            for link in [link for link in self._links if port.address in link]:
                del self._links[link]
            is_empty = not self._ports
        if is_empty and not self._is_kept:
            self.close()

    def _carry(self, data: bytes, origin: Address, destination: Address) -> None:
        arrivals: list[tuple[float, MemoryPort]] = []
        with self._lock:
            ports = self._groups.get(destination)
            if ports is None:
                port = self._ports.get(destination)
                ports = [] if port is None else [port]
            for port in ports:
                arrivals += [(delay_s, port) for delay_s in self._fate(origin, port.address)]
        for delay_s, port in arrivals:
            if delay_s > 0:
                if not self._post.later(delay_s, port, data, origin):
                    self._count("crowded_out")
            else:
                port._arrive(data, origin)

    def _fate(self, origin: Address, destination: Address) -> list[float]:
        """The delays of the copies that arrive; none when it is lost."""
        faults = self._faults
        self.counts["sent"] += 1
        if origin in self._cut or destination in self._cut:
            self.counts["partitioned"] += 1
            return []
        link = self._links.get((origin, destination))
        if link is None:
            link = _Link(f"{self.seed}/{origin}/{destination}")
            self._links[(origin, destination)] = link
        random = link.random.random
        leaves = random() < (faults.burst_leave if link.is_bad else faults.burst_enter)
        link.is_bad = link.is_bad != leaves
        if link.is_bad or random() < faults.loss:
            self.counts["lost"] += 1
            return []
        copies = 2 if random() < faults.duplicate else 1
        self.counts["duplicated"] += copies - 1
        delays = []
        for _ in range(copies):
            is_held = random() < faults.reorder
            held_s = random() * faults.reorder_s if is_held else 0.0
            self.counts["held_up"] += is_held
            self.counts["delivered"] += 1
            delays.append(faults.delay_s + held_s)
        return delays

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


class _Post:
    """Delivers what is under way when its time has come; its thread starts with the first."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, MemoryPort, bytes, Address]] = []
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._order = itertools.count()
        self._is_closed = False

    def later(self, delay_s: float, port: MemoryPort, data: bytes, origin: Address) -> bool:
        """Takes a datagram; False when too many are under way, or the network is closed."""
        with self._ready:
            if self._is_closed or len(self._due) >= MAX_UNDER_WAY:
                return False
            entry = (time.monotonic() + delay_s, next(self._order), port, data, origin)
            heapq.heappush(self._due, entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="onehop-post", daemon=True)
                self._thread.start()
            self._ready.notify()
        return True

    def close(self) -> None:
        with self._ready:
            self._is_closed = True
            self._due.clear()
            self._ready.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._is_closed and (not self._due or self._due[0][0] > time.monotonic()):
                    wait_s = self._due[0][0] - time.monotonic() if self._due else None
                    self._ready.wait(wait_s)
                if self._is_closed:
                    return
                _, _, port, data, origin = heapq.heappop(self._due)
            port._arrive(data, origin)


_registry_lock = threading.RLock()  # held while a network is found or made
_networks: dict[str, MemoryNetwork] = {}
_names = itertools.count(1)


def network_of(url: TransportURL) -> MemoryNetwork:
    """The network a `memory://` URL names, made at first use with the faults it asks for."""
    url.only(OPTIONS)
    if not url.where:
        raise ConfigurationError(f"{url.text!r}: a memory network needs a name: memory://NAME")
    faults = Faults(
        loss=url.number("loss", 0, 0, 1),
        burst_enter=url.number("burst_enter", 0, 0, 1),
        burst_leave=url.number("burst_leave", 0.5, 0, 1),
        duplicate=url.number("duplicate", 0, 0, 1),
        reorder=url.number("reorder", 0, 0, 1),
        delay_s=url.number("delay_ms", 0, 0, 60_000) / 1e3,
    )
    seed = url.whole("seed", 1, 0, 2**53)
    with _registry_lock:
        network = _networks.get(url.where)
        if network is None:
            network = MemoryNetwork(url.where, seed=seed, faults=faults)
            network._is_kept = False
            return network
    if url.options.keys() - {"payload", "seed"} and network.faults != faults:
        raise ConfigurationError(f"{url.text!r}: that network is open with {network.faults}")
    if "seed" in url.options and network.seed != seed:
        raise ConfigurationError(f"{url.text!r}: that network is open with seed {network.seed}")
    return network
