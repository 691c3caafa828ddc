"""When the next heartbeat is due.

After each message heartbeats follow in a burst that decays, 1, 2, 4, 8 … ms after it, to one a
second: the loss of a burst's last packet is noticed after a millisecond, and an idle
stream costs next to nothing.
"""

FIRST_S = 0.001
IDLE_S = 1.0
OPENING_HEARTBEATS = 3
"""Sent at once when a session opens, so that a lost first packet is known to be missing."""


class HeartbeatSchedule:
    """Call `sent` for each message sent and `beat` for each heartbeat; `due_at` is the next."""

    __slots__ = ("_interval_s", "due_at")

    def __init__(self, now: float) -> None:
        self._interval_s = FIRST_S
        self.due_at = now

    def sent(self, now: float) -> None:
        """A message went out: the burst starts anew."""
        self._interval_s = FIRST_S
        self.due_at = now + FIRST_S

    def beat(self, now: float) -> None:
        """A heartbeat went out: the next one comes twice as late, at most a second."""
        self.due_at = now + self._interval_s
        self._interval_s = min(IDLE_S, self._interval_s * 2)
