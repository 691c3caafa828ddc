"""The last value of each topic and key, for those who come later; and a copy of them for one.

    remember ──▶ LastValues ──▶ snapshot ──▶ Snapshot, served by the desk like a ring

A snapshot is a session of its own, with the numbers 1 to n. A value that was published after the
subscriber's beginning is in it too, and comes to it on its stream as well: the subscriber knows
that from the number, and takes it only there.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..datagrams import COMPILED
from ..envelope import encode_delivery
from ..mold.ring import RingOptions
from ..mold.wire import HEADER_BYTES, encode_block
from ..pieces import split

MAX_LAST_VALUES = 65_536
"""Topics and keys remembered; beyond it, or beyond the bytes of the ring, the one that has been
silent longest is forgotten, and counted."""
LONG_AGO = float("-inf")


LastValue = tuple[str, int, bytes]
"""Its stream, its number there, its bytes."""
FORGET_SHARE = 64
"""At the bound one in so many is forgotten at once, so that it is not looked at for each event."""


class PythonRemembered:
    """One event for each topic and key, the one that was published longest ago first."""

    def __init__(self, max_values: int, max_bytes: int) -> None:
        self.values: dict[tuple[str, str | None], LastValue] = {}
        self.max_values = max_values
        self.max_bytes = max_bytes
        self.size_bytes = 0

    def remember(
        self, topic: str, key: str | None, stream: str, sequence: int, data: bytes
    ) -> None:
        """Notes an event that was published."""
        name = (topic, key)
        before = self.values.pop(name, None)
        if before is not None:
            self.size_bytes -= len(before[2])
        self.values[name] = (stream, sequence, data)
        self.size_bytes += len(data)
        if len(self.values) > self.max_values or self.size_bytes > self.max_bytes:
            self.forget()

    def forget(self) -> None:
        """Makes room."""
        raise NotImplementedError


if TYPE_CHECKING or not COMPILED:
    Remembered = PythonRemembered
else:
    from ._outlet import Remembered


class LastValues(Remembered):
    """What is remembered, within its bounds, and copies of it."""

    def __init__(self, options: RingOptions, max_values: int = MAX_LAST_VALUES) -> None:
        super().__init__(max_values, options.max_bytes)
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self.values)

    def forget(self) -> None:
        """Lets the longest silent go, until there is room for some more."""
        most = max(1, self.max_values - self.max_values // FORGET_SHARE)
        most_bytes = self.max_bytes - self.max_bytes // FORGET_SHARE
        left, left_bytes, doomed = len(self.values), self.size_bytes, []
        for name, (_, _, data) in self.values.items():
            if left == 1 or (left <= most and left_bytes <= most_bytes):
                break
            left -= 1
            left_bytes -= len(data)
            doomed.append(name)
        for name in doomed:
            self.size_bytes -= len(self.values.pop(name)[2])
            self.forgotten += 1

    def snapshot(self, topics: tuple[str, ...], max_message_bytes: int) -> "Snapshot":
        """All of them whose topic begins with one of `topics`, in the order of publishing."""
        wanted = [
            value
            for (topic, _), value in self.values.items()
            if not topics or topic.startswith(topics)
        ]
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
