"""The last value of each topic and key, for those who come later; and a copy of them for one.

    remember ──▶ LastValues ──▶ snapshot ──▶ Snapshot, served by the desk like a ring

A snapshot is a session of its own, with the numbers 1 to n. A value that was published after the
subscriber's beginning is in it too, and comes to it on its stream as well: the subscriber knows
that from the number, and takes it only there.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..envelope import encode_delivery
from ..mold.ring import RingOptions
from ..mold.wire import HEADER_BYTES, encode_block
from ..pieces import split

MAX_LAST_VALUES = 65_536
"""Topics and keys remembered; beyond it, or beyond the bytes of the ring, the one that has been
silent longest is forgotten, and counted."""
LONG_AGO = float("-inf")


class LastValue(NamedTuple):
    """An event as it was published."""

    stream: str
    sequence: int
    data: bytes


class LastValues:
    """One event for each topic and key."""

    def __init__(self, options: RingOptions) -> None:
        self._max_bytes = options.max_bytes
        self._values: dict[tuple[str, str | None], LastValue] = {}  # the longest silent first
        self.size_bytes = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._values)

    def remember(
        self, topic: str, key: str | None, stream: str, sequence: int, data: bytes
    ) -> None:
        """Notes an event that was published."""
        values, name = self._values, (topic, key)
        before = values.pop(name, None)
        if before is not None:
            self.size_bytes -= len(before.data)
        values[name] = LastValue(stream, sequence, data)
        self.size_bytes += len(data)
        while len(values) > MAX_LAST_VALUES or self.size_bytes > self._max_bytes:
            if len(values) == 1:
                return
            self.size_bytes -= len(values.pop(next(iter(values))).data)
            self.forgotten += 1

    def snapshot(self, topics: tuple[str, ...], max_message_bytes: int) -> "Snapshot":
        """All of them whose topic begins with one of `topics`, in the order of publishing."""
        wanted = (
            value
            for (topic, _), value in self._values.items()
            if not topics or topic.startswith(topics)
        )
        return Snapshot(wanted, max_message_bytes)


class Snapshot:
    """Messages 1 to `next - 1`, which never change: what a desk answers from."""

    first = 1

    def __init__(self, values: Iterable[LastValue], max_message_bytes: int) -> None:
        self._blocks: list[bytes] = []
        for stream, sequence, data in values:
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
