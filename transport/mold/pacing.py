"""How long to wait: for a reply before asking again, and for a straggler before asking at all.

Retry: the smoothed time from request to reply plus four times its deviation (a quarter of that
time at least), never under a millisecond (more where requests are not lost), doubled with each
attempt, spread by half upwards so that receivers that lost the same packet do not ask in step. It
is never less than a reply takes.

A reply after a retry could answer any of the requests. It took at least as long as the last of
them has been out: an estimate below that is raised, and never lowered. One that comes much too
soon for the last request may answer the one before; when that happens again and again, and no
reply ever comes before a retry, retries come too soon, and the longer reading is taken.

First request: at once, until packets have been seen out of order or a second path exists; then
as long as stragglers have recently taken, so that what is only late is not asked for.
"""

from random import Random

RETRY_FLOOR_S = 0.001
RETRY_CEILING_S = 0.05
"""Doubling stops here, unless a single reply takes longer."""
RETRY_LONGEST_S = 1.0
"""However long replies take, asking again costs little after this long."""
FIRST_RTT_GUESS_S = 0.001
TOO_SOON = 4
"""So many replies too soon for the last request, and none before a retry, are believed."""
STRAGGLER_CEILING_S = 0.02
STRAGGLER_MEMORY_S = 10.0
"""After this long without a straggler the wait is halved."""
STRAGGLER_MARGIN = 1.25
SECOND_PATH_SKEW_S = 0.0002
"""What the second path may lag behind until it has been measured."""


class Pacing:
    """Learns from replies and stragglers; no clock, and `random` is passed in."""

    __slots__ = (
        "_deviation_s", "_floor_s", "_random", "_rtt_s", "_straggle_s", "_straggler_at",
        "_too_soon",
    )  # fmt: skip

    def __init__(self, random: Random, floor_s: float = RETRY_FLOOR_S) -> None:
        self._random = random
        self._floor_s = floor_s
        self._rtt_s: float | None = None
        self._deviation_s = 0.0
        self._too_soon = 0
        self._straggle_s = 0.0
        self._straggler_at = 0.0

    @property
    def rtt_s(self) -> float | None:
        """Request to reply, smoothed; None before the first reply."""
        return self._rtt_s

    def reply_took(self, elapsed_s: float) -> None:
        """Learns from a reply to a first attempt (a later one could answer either)."""
        self._too_soon = 0
        if self._rtt_s is None:
            self._rtt_s = elapsed_s
            self._deviation_s = elapsed_s / 2
        else:
            self._deviation_s += (abs(elapsed_s - self._rtt_s) - self._deviation_s) / 4
            self._rtt_s += (elapsed_s - self._rtt_s) / 8

    def late_reply_took(self, elapsed_s: float, before_s: float) -> None:
        """Learns from a reply after a retry: since the last request and since the one before."""
        if self._rtt_s is None or elapsed_s > self._rtt_s:
            self.reply_took(elapsed_s)
        elif elapsed_s < self._rtt_s / 2:
            self._too_soon += 1
            if self._too_soon >= TOO_SOON:
                self.reply_took(max(before_s, self._rtt_s))

    def retry_after(self, attempts: int) -> float:
        """How long to wait for the reply to attempt number `attempts`, counted from 1."""
        rtt_s = self._rtt_s
        if rtt_s is None:
            base = max(self._floor_s, FIRST_RTT_GUESS_S * 2)
        else:
            wait = rtt_s + max(4 * self._deviation_s, rtt_s / 4)
            base = min(RETRY_LONGEST_S, max(self._floor_s, wait))
        backed_off = base * (1 << min(attempts - 1, 16))
        return min(max(RETRY_CEILING_S, base), backed_off) * self._random.uniform(1.0, 1.5)

    def straggler_took(self, elapsed_s: float, now: float) -> None:
        """Learns from a packet that came late by itself."""
        late = min(STRAGGLER_CEILING_S, elapsed_s * STRAGGLER_MARGIN)
        self._straggle_s = max(late, self.first_after(now, paths=1))
        self._straggler_at = now

    def first_after(self, now: float, paths: int) -> float:
        """How long to wait before the first request for a new gap."""
        wait = self._straggle_s
        if wait:
            quiet = now - self._straggler_at
            wait *= 0.5 ** int(quiet / STRAGGLER_MEMORY_S)
            if wait < 1e-5:
                wait = self._straggle_s = 0.0
        return max(wait, SECOND_PATH_SKEW_S) if paths > 1 else wait
