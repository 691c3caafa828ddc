"""Events larger than a packet: split into consecutive numbered messages, and put together again.

A piece numbered n at place i belongs to the event whose first piece is numbered n - i, so no
name for the event travels along. An event is complete when all its pieces are there. When one of
them is lost the others are of no use, and are lost for the same reason; the pieces of an event
that began before the subscription are of no use either, but were never owed: they are filtered.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import groupby

from .envelope import (
    MAX_DELIVERY_BYTES,
    MAX_EVENT_BYTES,
    MAX_PIECES,
    PIECE_OVERHEAD_BYTES,
    Piece,
    encode_piece,
)
from .errors import LimitError
from .event import LossReason

MAX_PARTIAL_BYTES = 16 * MAX_EVENT_BYTES
"""Memory for incomplete events of one stream; beyond it the oldest events are given up."""
PIECE_COST_BYTES = 256
"""What a piece costs in memory beside its data, so that many tiny ones are bounded too."""
MAX_LOST_RANGES = 1024
"""Losses remembered to recognise pieces that came without their siblings."""


def split(data: bytes, max_message_bytes: int) -> list[bytes]:
    """The messages that carry `data`, which fits no single one: equal in size but for the last."""
    step = max_message_bytes - PIECE_OVERHEAD_BYTES
    if step < 1 or len(data) > step * MAX_PIECES:
        raise LimitError(
            f"{len(data)} bytes in messages of {max_message_bytes}: more than {MAX_PIECES} pieces"
        )
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    return [encode_piece(index, len(chunks), chunk) for index, chunk in enumerate(chunks)]


@dataclass(frozen=True, slots=True)
class Complete:
    """All pieces of an event: messages `first` to `first + count - 1`."""

    first: int
    count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Useless:
    """Pieces that came and cannot be delivered; `reason` None: filtered."""

    first: int
    count: int
    reason: LossReason | None


@dataclass(slots=True)
class _Partial:
    pieces: int
    chunks: dict[int, bytes] = field(default_factory=dict)
    size_bytes: int = 0


class Assembler:
    """Puts the pieces of one stream together, in whatever order they come."""

    def __init__(self, first_number: int) -> None:
        self._first_number = first_number
        self._partials: dict[int, _Partial] = {}
        self._lost: deque[tuple[int, int, LossReason]] = deque(maxlen=MAX_LOST_RANGES)
        self._lost_stop = 0  # no number from here on is lost
        self.size_bytes = 0

    def add(self, number: int, piece: Piece) -> list[Complete | Useless]:
        """Takes message `number`, a piece; says what became complete or useless by it."""
        start = number - piece.place
        if start < self._first_number:
            return [Useless(number, 1, None)]
        if start < self._lost_stop:
            for low, stop, reason in self._lost:
                if low < start + piece.pieces and start < stop:
                    return [Useless(number, 1, reason)]
        partial = self._partials.setdefault(start, _Partial(piece.pieces))
        if piece.place in partial.chunks:
            return []  # the same number again: it is accounted for by the first
        if partial.pieces != piece.pieces:
            return [*self._abandon(start, LossReason.MALFORMED),
                    Useless(number, 1, LossReason.MALFORMED)]  # fmt: skip
        partial.chunks[piece.place] = piece.data
        partial.size_bytes += len(piece.data)
        self.size_bytes += len(piece.data) + PIECE_COST_BYTES
        if partial.size_bytes > MAX_DELIVERY_BYTES:
            return list(self._abandon(start, LossReason.MALFORMED))
        if len(partial.chunks) == partial.pieces:
            self._drop(start)
            data = b"".join(partial.chunks[place] for place in range(partial.pieces))
            return [Complete(start, partial.pieces, data)]
        useless: list[Complete | Useless] = []
        while self.size_bytes > MAX_PARTIAL_BYTES:
            useless += self._abandon(next(iter(self._partials)), LossReason.OVERFLOW)
        return useless

    def lose(self, first: int, count: int, reason: LossReason) -> list[Useless]:
        """Notes that numbers are lost; says which pieces became useless by it."""
        stop = first + count
        self._note_lost(first, stop, reason)
        useless: list[Useless] = []
        for start, partial in list(self._partials.items()):
            if start < stop and first < start + partial.pieces:
                useless += self._abandon(start, reason)
        return useless

    def end(self, reason: LossReason) -> list[Useless]:
        """Gives up every incomplete event, because nothing more will come."""
        return [piece for start in list(self._partials) for piece in self._abandon(start, reason)]

    def _note_lost(self, first: int, stop: int, reason: LossReason) -> None:
        self._lost.append((first, stop, reason))
        self._lost_stop = max(self._lost_stop, stop)

    def _abandon(self, start: int, reason: LossReason) -> list[Useless]:
        partial = self._drop(start)
        self._note_lost(start, start + partial.pieces, reason)
        # Neighbouring places as one range: place minus rank is the same within a run.
        runs = groupby(enumerate(sorted(partial.chunks)), key=lambda pair: pair[1] - pair[0])
        held = [[place for _, place in run] for _, run in runs]
        return [Useless(start + run[0], len(run), reason) for run in held]

    def _drop(self, start: int) -> _Partial:
        partial = self._partials.pop(start)
        self.size_bytes -= partial.size_bytes + len(partial.chunks) * PIECE_COST_BYTES
        return partial
