"""The last value of each topic and key, for those who come later; and a copy of them for one.

    remember ──▶ LastValues ──▶ snapshot ──▶ Snapshot, served by the desk like a ring

A snapshot is a session of its own, with the numbers 1 to n. A value that was published after the
subscriber's beginning is in it too, and comes to it on its stream as well: the subscriber knows
that from the number, and takes it only there.
"""

from collections.abc import Iterable

from ..envelope import encode_delivery
from ..mold.ring import RingOptions
from ..mold.wire import HEADER_BYTES, encode_block
from ..pieces import split

MAX_LAST_VALUES = 65_536
"""Topics and keys remembered; beyond it, or beyond the bytes of the ring, the one that has been
silent longest is forgotten, and counted."""
LONG_AGO = float("-inf")


LastValue = tuple[int, str, int, bytes]
"""How many were published before it, its stream, its number there, its bytes."""
FORGET_SHARE = 64
"""At the bound one in so many is forgotten at once: finding them looks at all."""


class LastValues:
    """One event for each topic and key."""

    def __init__(self, options: RingOptions) -> None:
        self._max_bytes = options.max_bytes
        self._values: dict[tuple[str, str | None], LastValue] = {}
        self._published = 0
        self.size_bytes = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._values)

    def remember(
        self, topic: str, key: str | None, stream: str, sequence: int, data: bytes
    ) -> None:
        """Notes an event that was published."""
        name = (topic, key)
        before = self._values.get(name)
        self._values[name] = (self._published, stream, sequence, data)
        self._published += 1
        if before is not None:
            self.size_bytes += len(data) - len(before[3])
        else:
            self.size_bytes += len(data)
            if len(self._values) > MAX_LAST_VALUES:
                self._forget()
        if self.size_bytes > self._max_bytes:
            self._forget()

    def _forget(self) -> None:
        """Lets the longest silent go, until there is room for some more."""
        values = self._values
        most = max(1, MAX_LAST_VALUES - MAX_LAST_VALUES // FORGET_SHARE)
        most_bytes = self._max_bytes - self._max_bytes // FORGET_SHARE
        for name in sorted(values, key=lambda name: values[name][0]):
            if len(values) == 1 or (len(values) <= most and self.size_bytes <= most_bytes):
                return
            self.size_bytes -= len(values.pop(name)[3])
            self.forgotten += 1

    def snapshot(self, topics: tuple[str, ...], max_message_bytes: int) -> "Snapshot":
        """All of them whose topic begins with one of `topics`, in the order of publishing."""
        wanted = [
            value
            for (topic, _), value in self._values.items()
            if not topics or topic.startswith(topics)
        ]
        return Snapshot(sorted(wanted), max_message_bytes)


class Snapshot:
    """Messages 1 to `next - 1`, which never change: what a desk answers from."""

    first = 1

    def __init__(self, values: Iterable[LastValue], max_message_bytes: int) -> None:
        self._blocks: list[bytes] = []
        for _, stream, sequence, data in values:
            message = encode_delivery(stream, sequence, 1, data)
            if len(message) <= max_message_bytes:
                self._blocks.append(encode_block(message))
            else:
                self._blocks += map(encode_block, split(message, max_message_bytes))
        self.next = len(self._blocks) + 1

    def sent_at(self, number: int) -> float:
        """All of it is replay."""
        return LONG_AGO

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        """Blocks from `first` on: at most `count`, and as many as fit one packet."""
        room = packet_bytes - HEADER_BYTES
        found: list[bytes] = []
        for block in self._blocks[first - 1 : first - 1 + count]:
            room -= len(block)
            if room < 0 and found:
                break
            found.append(block)
        return found
