"""A virtual network for the MoldUDP64 cores: clock, links and publishers.

    Publisher ──multicast links──▶ Subscriber ──request links──▶ Publisher or RequestServer
                                        ◀──────reply links──────

Time is virtual and nothing waits: one heap of due events, one seeded random source for every
fault, so a seed tells the whole story. Who listens is in `mold_audience`.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from onehop.transport.mold import SenderOptions, SenderSession

FOREVER = float("inf")


@dataclass(slots=True)
class Faults:
    """What a link does to datagrams; may be changed while it is in use."""

    loss: float = 0.0
    burst_enter: float = 0.0
    """Gilbert-Elliott: chance per datagram to enter the bad state, in which all are lost."""
    burst_leave: float = 0.25
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_s: float = 0.002
    delay_s: float = 0.0002
    is_cut: bool = False


class Network:
    """The clock, the heap and what was truly sent."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.sent: dict[bytes, list[bytes]] = {}
        self.sent_at: dict[bytes, list[float]] = {}
        self._heap: list[tuple[float, int, Callable[[bytes], None], bytes]] = []
        self._order = 0

    def at(self, when: float, action: Callable[[bytes], None], data: bytes = b"") -> None:
        """Calls `action(data)` at a time."""
        self._order += 1
        heappush(self._heap, (when, self._order, action, data))

    def run_until(self, stop: float) -> None:
        """Lets everything happen that is due before `stop`."""
        heap = self._heap
        while heap and heap[0][0] <= stop:
            self.now, _, action, data = heappop(heap)
            self.steps += 1
            action(data)
        self.now = stop


class Link:
    """One direction between two nodes."""

    def __init__(self, network: Network, faults: Faults, sink: Callable[[bytes], None]) -> None:
        self.faults = faults
        self._network = network
        self._sink = sink
        self._is_bad = False

    def send(self, data: bytes) -> None:
        """Carries a datagram, or loses, doubles or delays it."""
        network, faults = self._network, self.faults
        random = network.random.random
        if faults.is_cut or random() < faults.loss:
            return
        if faults.burst_enter:
            change = faults.burst_leave if self._is_bad else faults.burst_enter
            if random() < change:
                self._is_bad = not self._is_bad
            if self._is_bad:
                return
        when = network.now + faults.delay_s
        if faults.reorder and random() < faults.reorder:
            when += random() * faults.reorder_s
        network.at(when, self._sink, data)
        if faults.duplicate and random() < faults.duplicate:
            network.at(when + random() * faults.reorder_s, self._sink, data)


class Publisher:
    """Sends `per_tick` messages every `tick_s`, beats, and answers requests."""

    def __init__(
        self,
        network: Network,
        name: str,
        *,
        tick_s: float = 0.0001,
        per_tick: int = 1,
        options: SenderOptions | None = None,
    ) -> None:
        self.name = name
        self.group: list[Link] = []
        self.reply_links: dict[Hashable, Link] = {}
        self.is_sending = False
        self.reply_bytes = 0
        self._network = network
        self._options = options or SenderOptions()
        self._tick_s = tick_s
        self._per_tick = per_tick
        self._lives = 0
        self._wake_at = FOREVER
        self.session = self._open()

    def _open(self) -> SenderSession[Hashable]:
        self._lives += 1
        name = f"{self.name}{self._lives}".encode().ljust(10)
        self._network.sent[name] = []
        self._network.sent_at[name] = []
        return SenderSession(name, self._options, self._network.now)

    def restart(self) -> None:
        """Dies and comes back under a new session; its ring is gone."""
        self.session = self._open()
        self._transmit()

    def start(self) -> None:
        """Begins to send."""
        self.is_sending = True
        self._transmit()
        self._network.at(self._network.now + self._tick_s, self._tick)

    def end(self) -> None:
        """Ends the session and sends no more."""
        self.is_sending = False
        self.session.end(self._network.now)
        self._transmit()

    def send(self, message: bytes) -> None:
        """Sends one message, which leaves with the next `flush`."""
        network, session = self._network, self.session
        network.sent[session.session].append(message)
        network.sent_at[session.session].append(network.now)
        session.send(message, network.now)

    def flush(self) -> None:
        """Lets the messages leave."""
        self._transmit()

    def _tick(self, _: bytes) -> None:
        if not self.is_sending:
            return
        network = self._network
        random = network.random
        for _each in range(self._per_tick):
            self.send(random.randbytes(random.randrange(24)))
        self._transmit()
        network.at(network.now + self._tick_s, self._tick)

    def _transmit(self) -> None:
        for data in self.session.datagrams_to_send(self._network.now):
            for link in self.group:
                link.send(data)
        self._set_alarm()

    def _set_alarm(self) -> None:
        due_at = self.session.next_timeout()
        if due_at < self._wake_at:
            self._wake_at = due_at
            self._network.at(due_at, self._wake)

    def _wake(self, _: bytes) -> None:
        now = self._network.now
        if now < self._wake_at:
            return
        self._wake_at = FOREVER
        self.session.handle_timeout(now)
        self._reply()
        self._transmit()

    def has_any(self, session: bytes, first: int, stop: int) -> bool:
        """True when it could still answer for one of these numbers."""
        ring = self.session.ring
        return session == self.session.session and first < ring.next and stop > ring.first

    def on_request(self, address: Hashable, data: bytes) -> None:
        """Takes a request that came over a link."""
        self.session.receive_request(data, address, self._network.now)
        self._reply()
        self._set_alarm()

    def _reply(self) -> None:
        for data, address in self.session.replies(self._network.now):
            self.reply_bytes += len(data)
            self.reply_links[address].send(data)
