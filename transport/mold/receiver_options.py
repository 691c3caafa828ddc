"""What a subscriber can say about repair: how hard to try, how long, how much to hold meanwhile."""

from dataclasses import dataclass

from ..errors import ConfigurationError
from .pacing import RETRY_FLOOR_S


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """How hard to try, how long, and how much to hold meanwhile."""

    ordered: bool = True
    """Hand out in order, holding back what comes behind a gap; else as it comes."""
    deadline_s: float = 1.0
    """A gap is given up when it could not be filled for this long."""
    attempts: int | None = None
    """Or after this many requests; None: only the deadline counts."""
    replay_deadline_s: float = 5.0
    """Replay of old messages is given up when no reply came for this long."""
    retry_floor_s: float = RETRY_FLOOR_S
    """No request is repeated sooner; longer where the way of requests loses nothing itself."""
    hold_bytes: int = 64 * 1024 * 1024
    """What may be held back behind a gap, in all."""
    max_gaps: int = 16_384
    """Gaps followed at once; at the bound packets behind them are not kept and are asked for
    later, as with `hold_bytes`. Unordered, where nothing is held, the oldest gap is given up."""

    def __post_init__(self) -> None:
        for name in ("deadline_s", "replay_deadline_s", "retry_floor_s", "hold_bytes", "max_gaps"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}, expected above 0")
        if self.attempts is not None and self.attempts < 0:
            raise ConfigurationError(f"attempts is {self.attempts}, expected 0 or more")
