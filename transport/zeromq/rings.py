"""The retransmit rings of many streams within one bound: the oldest message of all goes first."""

from collections import deque
from collections.abc import Iterator

from ..envelope import Piece, decode
from ..mold.ring import RingOptions
from ..mold.wire import HEADER_BYTES, LENGTH_BYTES, MAX_MESSAGE_COUNT
from ..pieces import Assembler, Complete


class RingSpace:
    """The bounds that all rings of a publisher share."""

    def __init__(self, options: RingOptions) -> None:
        self._max_messages, self._max_bytes = options.max_messages, options.max_bytes
        self._max_age_s = options.max_age_s
        self._oldest: deque[StreamRing] = deque()  # whose message is the oldest, the next, …
        self._sent_at: deque[float] = deque()  # and when each was sent
        self.size_bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._oldest)

    def add(self, ring: "StreamRing", size_bytes: int, now: float) -> None:
        """Notes a new message and evicts what is beyond a bound, never the new one."""
        oldest, sent_at = self._oldest, self._sent_at
        oldest.append(ring)
        sent_at.append(now)
        self.size_bytes += size_bytes
        while (
            len(oldest) > self._max_messages
            or self.size_bytes > self._max_bytes
            or sent_at[0] < now - self._max_age_s
        ):
            if len(oldest) == 1:
                return
            sent_at.popleft()
            self.size_bytes -= oldest.popleft().evict()
            self.evicted += 1


class StreamRing:
    """The messages of one stream that are still there: `first` to `next - 1`."""

    __slots__ = ("_kept", "_space", "first", "next", "size_bytes")

    def __init__(self, space: RingSpace) -> None:
        self._space = space
        self._kept: dict[int, tuple[bytes, float]] = {}
        self.first = self.next = 1
        self.size_bytes = 0

    def append(self, block: bytes, now: float) -> int:
        """Keeps one message block; returns its number."""
        number = self.next
        self._kept[number] = block, now
        self.next = number + 1
        self.size_bytes += len(block)
        self._space.add(self, len(block), now)
        return number

    def evict(self) -> int:
        """Drops the oldest message; returns its size."""
        size = len(self._kept.pop(self.first)[0])
        self.first += 1
        self.size_bytes -= size
        return size

    def sent_at(self, number: int) -> float:
        """When message `number`, which must be in the ring, was first sent."""
        return self._kept[number][1]

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        """Blocks from `first` on: at most `count`, and as many as fit one packet."""
        room = packet_bytes - HEADER_BYTES
        found: list[bytes] = []
        for number in range(first, min(first + min(count, MAX_MESSAGE_COUNT), self.next)):
            block = self._kept[number][0]
            room -= len(block)
            if room < 0 and found:
                break
            found.append(block)
        return found


def events_of(
    stream: str, ring: StreamRing
) -> Iterator[tuple[float, tuple[str, str | None, str, int, bytes]]]:
    """The whole events that a ring still has, each with the time it was sent."""
    assembler = Assembler(ring.first)
    for number in range(ring.first, ring.next):
        (block,) = ring.blocks(number, 1, 0)
        data = block[LENGTH_BYTES:]
        event = decode(data)
        if isinstance(event, Piece):
            whole = [r for r in assembler.add(number, event) if isinstance(r, Complete)]
            if not whole:
                continue
            data = whole[0].data
            event = decode(data)
        assert not isinstance(event, Piece)
        yield ring.sent_at(number), (event.topic, event.key, stream, number, data)
