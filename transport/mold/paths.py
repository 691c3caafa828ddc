"""What each path (A, B …) carried: the same stream may come twice, and the first copy wins."""

from dataclasses import dataclass


@dataclass(slots=True)
class PathCounts:
    """One path of one session, in messages."""

    received: int = 0
    """Messages that came on this path."""
    first_arrivals: int = 0
    """Of these, the ones no other path had brought before."""
    missing: int = 0
    """Numbers this path skipped and has not brought since; a second copy of any counts as one."""
    next_number: int = 0
    """One past the highest number this path has carried; 0 before its first packet."""
    last_heard_at: float = 0.0

    def packet(self, first: int, stop: int, next_number: int, now: float) -> bool:
        """Counts a packet; True when it is news on this path.

        `next_number` is one past the highest number seen on any path before it.
        """
        self.last_heard_at = now
        count = stop - first
        self.received += count
        if stop > next_number:
            self.first_arrivals += stop - max(first, next_number)
        if self.next_number == 0 or first == self.next_number:
            self.next_number = stop
            return True
        if first > self.next_number:
            self.missing += first - self.next_number
            self.next_number = stop
            return True
        self.missing = max(0, self.missing - (min(stop, self.next_number) - first))
        if stop > self.next_number:  # packed anew: partly old, partly news
            self.next_number = stop
            return True
        return False
