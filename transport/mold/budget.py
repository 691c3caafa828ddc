"""A token bucket in bytes: how much may be sent now so that the rate is never exceeded for long."""

ROUNDING_BYTES = 1.0
"""Forgiven, so that `has` holds at the time `ready_at` gave, which is rounded."""


class ByteBudget:
    """Refills at `rate_bytes_per_s` up to `burst_bytes`; time is passed in."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate_bytes_per_s: float, burst_bytes: float, now: float) -> None:
        self._rate = rate_bytes_per_s
        self._burst = burst_bytes
        self._tokens = burst_bytes
        self._at = now

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now

    def has(self, size_bytes: int, now: float) -> bool:
        """True when `size_bytes` may be spent now. More than a whole burst needs a full bucket."""
        self._refill(now)
        return self._tokens + ROUNDING_BYTES >= min(size_bytes, self._burst)

    def spend(self, size_bytes: int) -> None:
        """Takes `size_bytes` out; the bucket may go below zero by one packet."""
        self._tokens -= size_bytes

    def ready_at(self, size_bytes: int, now: float) -> float:
        """When `has(size_bytes)` will hold."""
        self._refill(now)
        lacking = min(size_bytes, self._burst) - self._tokens
        return now if lacking <= 0 else now + lacking / self._rate
