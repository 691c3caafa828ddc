"""Seeded faults, for tests, demonstrations and benchmarks: the same seed, the same faults."""

from collections.abc import Callable, Sequence

from .datagrams import Address, Received
from .lane import Lane
from .ports import BATCH, Port

_MASK = (1 << 64) - 1


class Xorshift:
    """A tiny generator that a C program can repeat bit for bit (the bench's floors do)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15) & _MASK or 1

    def random(self) -> float:
        """The next number in [0, 1)."""
        x = self._state
        x ^= (x << 13) & _MASK
        x ^= x >> 7
        x ^= (x << 17) & _MASK
        self._state = x
        return (x >> 11) * 2.0**-53


class LossyPort:
    """A port that loses a share of what comes to it."""

    def __init__(self, port: Port, loss: float, random: Xorshift) -> None:
        self._port = port
        self._loss = loss
        self._random = random
        self.lost_on_purpose = 0
        self.refused = 0
        self.trouble = None
        self.tells_once = port.tells_once
        self.fileno = port.fileno
        self.wake = port.wake
        self.close = port.close

    @property
    def address(self) -> Address:
        """That of the port behind."""
        return self._port.address

    @property
    def kernel_drops(self) -> int:
        """Those of the port behind; what is lost on purpose is in `lost_on_purpose`."""
        return self._port.kernel_drops

    @property
    def truncated(self) -> int:
        """Those of the port behind."""
        return self._port.truncated

    @property
    def has_more(self) -> bool:
        """As the port behind says."""
        return self._port.has_more

    def receive(self) -> list[Received]:
        """What has come and was not lost.

        Fewer than a batch means, as for any port, that nothing waits any more; so that this
        stays true it reads on until a batch is full, and may return up to two.
        """
        kept: list[Received] = []
        while True:
            received = self._port.receive()
            kept += self._thin(received)
            if len(received) < BATCH or len(kept) >= BATCH:
                return kept

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        """A lane that loses the same share."""
        return self._port.open_lane(is_raw=is_raw, topics=topics, is_lost=self._is_lost)

    def _is_lost(self) -> bool:
        is_lost = self._random.random() < self._loss
        self.lost_on_purpose += is_lost
        return is_lost

    def send(self, datagrams: Sequence[tuple[bytes, Address]]) -> int:
        """Sends everything: loss is on the way in."""
        return self._port.send(datagrams)

    def _thin(self, received: list[Received]) -> list[Received]:
        return [datagram for datagram in received if not self._is_lost()]
