"""A subscriber that is too far behind, by age or by count, and what it wants to happen then.

    max_age_s    an event older than this when it is taken is not delivered: it is lost as `stale`
    max_lag      messages known to exist and not taken yet
    on_lag       count (in the ledger, nothing else), raise, disconnect, or a function to be called

Each time the subscriber falls behind is one occasion, however many events that concerns; it begins
anew once an event was young enough again, or half of `max_lag` is caught up. There is no clock in
here, and the functions of the user are called by the owner, outside of its lock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind the subscriber was found."""

    messages: int
    """Known and not taken, at least."""
    age_s: float | None = None
    """Of the event that was too old; None when `max_lag` was passed."""

    def __str__(self) -> str:
        if self.age_s is None:
            return f"{self.messages:,} messages behind"
        return f"an event was {self.age_s:.3f} s old"


OnLag = Literal["count", "raise", "disconnect"] | Callable[[Lag], None]


@dataclass(frozen=True, slots=True)
class LagOptions:
    """When a subscriber is too far behind."""

    max_age_s: float | None = None
    """By the clocks of sender and receiver; None: events never get too old."""
    max_lag: int | None = None
    """In messages; None: any number may wait."""
    on_lag: OnLag = "count"

    def __post_init__(self) -> None:
        if self.max_age_s is not None and not self.max_age_s > 0:
            raise ConfigurationError(f"max_age_s is {self.max_age_s}, expected above 0")
        if self.max_lag is not None and self.max_lag < 1:
            raise ConfigurationError(f"max_lag is {self.max_lag}, expected 1 or more")
        if not callable(self.on_lag) and self.on_lag not in ("count", "raise", "disconnect"):
            raise ConfigurationError(
                f"on_lag is {self.on_lag!r}, expected count, raise, disconnect or a function"
            )

    @property
    def is_watched(self) -> bool:
        """True when there is a limit."""
        return self.max_age_s is not None or self.max_lag is not None


class LagWatch:
    """Notices that the subscriber falls behind."""

    def __init__(self, options: LagOptions) -> None:
        self.options = options
        self.occasions = 0
        self._max_age_ns = float("inf") if options.max_age_s is None else options.max_age_s * 1e9
        self._is_old = False
        self._is_behind = False
        self._noticed: Lag | None = None

    def is_stale(self, age_ns: int) -> bool:
        """Says of an event about to be taken whether it is too old."""
        if age_ns <= self._max_age_ns:
            self._is_old = False
            return False
        if not self._is_old:
            self._is_old = True
            self._notice(Lag(1, age_ns / 1e9))
        return True

    def look(self, pending: int) -> None:
        """Looks at how many messages are known and not taken."""
        max_lag = self.options.max_lag
        if max_lag is None:
            return
        if self._is_behind:
            self._is_behind = pending > max_lag // 2
        elif pending > max_lag:
            self._is_behind = True
            self._notice(Lag(pending))

    @property
    def has_noticed(self) -> bool:
        """True when `take` has something."""
        return self._noticed is not None

    def take(self) -> Lag | None:
        """What was noticed since the last time, once."""
        noticed, self._noticed = self._noticed, None
        return noticed

    def _notice(self, lag: Lag) -> None:
        self.occasions += 1
        self._noticed = lag
