"""The retransmit ring: the last messages of a session, ready to be sent again.

Bounded three ways, by messages, bytes and age; what is beyond any bound is evicted, oldest
first. Messages are kept as wire blocks, so an answer is a header and a join of neighbours.
"""

from dataclasses import dataclass

from ..errors import ConfigurationError
from .wire import HEADER_BYTES, MAX_MESSAGE_COUNT


@dataclass(frozen=True, slots=True)
class RingOptions:
    """How much a publisher keeps for repairs."""

    max_messages: int = 262_144
    """At most this many messages; their slots are allocated at once (8 bytes each)."""
    max_bytes: int = 64 * 1024 * 1024
    """At most this many bytes of message blocks."""
    max_age_s: float = 60.0
    """Older messages are evicted when newer ones come."""

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_bytes", "max_age_s"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"ring {name} is {getattr(self, name)}, expected above 0")


class RetransmitRing:
    """Messages `first` to `next - 1`, by number."""

    def __init__(self, options: RingOptions, first: int = 1) -> None:
        self._options = options
        self._blocks: list[bytes | None] = [None] * options.max_messages
        self._sent_at: list[float] = [0.0] * options.max_messages
        self.first = first
        self.next = first
        self.size_bytes = 0
        self.evicted = 0

    def append(self, block: bytes, now: float) -> int:
        """Keeps one message block; returns its number."""
        options = self._options
        if self.next - self.first == options.max_messages:
            self._evict()
        number = self.next
        slot = number % options.max_messages
        self._blocks[slot] = block
        self._sent_at[slot] = now
        self.next = number + 1
        self.size_bytes += len(block)
        while self.size_bytes > options.max_bytes and self.first < number:
            self._evict()
        horizon = now - options.max_age_s
        while self._sent_at[self.first % options.max_messages] < horizon:
            self._evict()
        return number

    def sent_at(self, number: int) -> float:
        """When message `number`, which must be in the ring, was first sent."""
        return self._sent_at[number % self._options.max_messages]

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        """Blocks from `first` on: at most `count`, and as many as fit one packet."""
        room = packet_bytes - HEADER_BYTES
        found: list[bytes] = []
        for number in range(first, min(first + min(count, MAX_MESSAGE_COUNT), self.next)):
            block = self._blocks[number % self._options.max_messages]
            assert block is not None
            room -= len(block)
            if room < 0 and found:
                break
            found.append(block)
        return found

    def _evict(self) -> None:
        slot = self.first % self._options.max_messages
        block = self._blocks[slot]
        assert block is not None
        self._blocks[slot] = None
        self.size_bytes -= len(block)
        self.first += 1
        self.evicted += 1
