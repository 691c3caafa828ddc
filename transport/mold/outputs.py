"""What a receiving session hands out, and what it counts meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..event import LossReason


@dataclass(slots=True)
class Run:
    """Messages handed out: the first is numbered `first`, the others follow."""

    first: int
    messages: Sequence[bytes]
    received_at_ns: int
    recovered: bool = False


@dataclass(slots=True)
class Lost:
    """Numbers given up."""

    first: int
    count: int
    reason: LossReason


Output = Run | Lost


@dataclass(slots=True)
class RepairCounts:
    """What repair has done, in messages unless said otherwise."""

    recovered: int = 0
    duplicates: int = 0
    reordered: int = 0
    requests: int = 0
    """Request datagrams."""
    refused_to_hold: int = 0
    """Messages not kept because `hold_bytes` was reached; they were asked for again."""
