"""How a subscriber wants to share, or to begin: checked options, and what they are on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigurationError
from .side import MAX_GROUP_BYTES, MAX_PREFETCH, MAX_TIMEOUT_S, Ask, Join, encode_side
from .wire import MAX_UPSTREAM_BYTES

Ack = Literal["auto", "manual", "none"]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How the members of a group share the work; all but `prefetch` is the same for all."""

    name: str
    order_by: Literal["key"] | None = None
    """`key`: events with the same key are done one after the other, in order."""
    ack: Ack = "auto"
    """When an event is done: `auto`, when the next is asked for; `manual`, by `ack(event)`; `none`:
    when it is handed over, and what a member that dies had in hand is lost."""
    ack_timeout_s: float = 30.0
    """How long a member may work on an event before it goes to another: longer than any takes."""
    prefetch: int = 64
    """Events that may wait at a member: enough to hide the way to the publisher and back."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.encode()) <= MAX_GROUP_BYTES or not self.name.isprintable():
            raise ConfigurationError(
                f"group {self.name!r:.80}: expected 1 to {MAX_GROUP_BYTES} bytes of printable text"
            )
        if self.order_by not in (None, "key"):
            raise ConfigurationError(f"order_by is {self.order_by!r}, expected 'key' or None")
        if self.ack not in ("auto", "manual", "none"):
            raise ConfigurationError(f"ack is {self.ack!r}, expected auto, manual or none")
        if not 0 < self.ack_timeout_s <= MAX_TIMEOUT_S:
            raise ConfigurationError(
                f"ack_timeout_s is {self.ack_timeout_s}, expected above 0 and up to "
                f"{MAX_TIMEOUT_S:g}"
            )
        if not 1 <= self.prefetch <= MAX_PREFETCH:
            raise ConfigurationError(f"prefetch is {self.prefetch}, expected 1 to {MAX_PREFETCH}")

    def join(self, name: bytes, topics: Sequence[str], start: Literal["live", "first"]) -> Join:
        """What a member says to a publisher."""
        acknowledges, timeout_s = self.ack != "none", float(self.ack_timeout_s)
        join = Join(
            name, self.name, tuple(sorted(topics)), self.order_by or "", acknowledges, timeout_s,
            self.prefetch, start,
        )  # fmt: skip
        _check_size(join)
        return join


def ask_for_last(name: bytes, topics: Sequence[str]) -> Ask:
    """What a subscriber says that wants the last values."""
    ask = Ask(name, tuple(topics))
    _check_size(ask)
    return ask


def _check_size(message: Ask | Join) -> None:
    if len(encode_side(message)) > MAX_UPSTREAM_BYTES:
        raise ConfigurationError(
            f"{len(message.topics)} topics are more than a publisher takes in one message of "
            f"{MAX_UPSTREAM_BYTES} bytes: subscribe to fewer or shorter prefixes"
        )
