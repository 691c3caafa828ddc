"""The event, and the record of events that will not come.

An event is what a publisher says and a subscriber gets. Its place is fixed by four names:
`source` (who said it), `epoch` (which life of that source), `stream` (what is numbered without
holes) and `sequence` (its number there, from 1). A `Loss` names numbers of a stream that were
given up, and why; a subscriber sees every number either delivered or in exactly one `Loss`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn


class _NoHeaders(Mapping[str, str]):
    """One empty map for all events; unlike a `mappingproxy` it can be copied and pickled."""

    __slots__ = ()

    def __getitem__(self, name: str) -> NoReturn:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"

    def __reduce__(self) -> str:
        return "NO_HEADERS"


NO_HEADERS: Mapping[str, str] = _NoHeaders()


class LossReason(StrEnum):
    """Why a message was given up. Each lost message has exactly one."""

    EVICTED = "evicted"
    """Nobody has it any more."""
    DEADLINE = "deadline"
    """Its repair took longer than the subscriber was willing to wait."""
    OVERFLOW = "overflow"
    """The subscriber's own queue was full and its policy dropped it."""
    STALE = "stale"
    """It was older than the subscriber wanted."""
    ENDED = "ended"
    """The source went away, or the subscriber closed, before it came."""
    MALFORMED = "malformed"
    """It came, and was not an event."""


class Event(NamedTuple):
    """One event as the application sees it; a named tuple, as it is made by the million.

    Times are nanoseconds since 1970: `occurred_at_ns` and `sent_at_ns` by the producer's clock,
    `received_at_ns` by the receiver's (the kernel's stamp where there is one). Zero means unknown.
    An event that travelled in several pieces has the number of its last piece.
    """

    topic: str
    value: Any
    key: str | None = None
    source: str = ""
    epoch: int = 0
    stream: str = ""
    sequence: int = 0
    occurred_at_ns: int = 0
    sent_at_ns: int = 0
    received_at_ns: int = 0
    headers: Mapping[str, str] = NO_HEADERS


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages `first` to `first + count - 1` of a stream that will not be delivered."""

    source: str
    epoch: int
    stream: str
    first: int
    count: int
    reason: LossReason
    at_ns: int

    @property
    def last(self) -> int:
        """The last number of the range."""
        return self.first + self.count - 1
