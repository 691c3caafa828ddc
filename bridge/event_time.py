"""When an event happened, by one clock for all sources, without I/O.

    event time = occurred_at + offset        offset = the least received_at - sent_at of that life
                                             of its source over the last minutes

What an event took to come, and what the sender's clock is off, cannot be told apart for one event;
the least difference has the least delay in it, so it is the best guess at what the clocks are off.
The event time is fixed once, when the event is spooled: a replay gives the same.

    t (least of each slice, oldest first)   s0 ─ s1 ─ s2 ─ … ─ now
                                            └── forgotten after WINDOW_S

A time that no clock can be wrong by is not believed: such an event happened when it was received,
and is counted. A source whose clock is years ahead would otherwise hold every window closed before
its time, one in 1970 would be late for all of them.
"""

from collections import Counter, OrderedDict, deque

WINDOW_S = 300.0
"""How long a least difference counts: clocks drift, and a machine may be set right."""
SLICE_S = 5.0
"""Differences this close together are kept as one: sixty numbers for each source."""
MAX_SOURCES = 65_536
"""Lives of sources remembered; beyond it the one longest silent begins anew."""
MAX_AHEAD_S = 60.0
"""How far after its receipt an event may have happened: what is left when clocks are corrected."""
MAX_BEHIND_S = 30 * 86_400.0
"""How long before: the longest replay from a file that somebody may want by event time."""

_NS = 1_000_000_000
_SLICE_NS = int(SLICE_S * _NS)
_WINDOW_NS = int(WINDOW_S * _NS)


class LeastDifference:
    """The least of what was added over the last `WINDOW_S`, in constant memory and time."""

    __slots__ = ("_least",)

    def __init__(self) -> None:
        self._least: deque[tuple[int, int]] = deque()  # slice and difference, both rising

    def add(self, difference_ns: int, now_ns: int) -> int:
        """Notes a difference seen now; returns the least."""
        least = self._least
        this = now_ns // _SLICE_NS
        while least and least[-1][1] >= difference_ns:  # older and no better
            least.pop()
        if not least or least[-1][0] != this:
            least.append((this, difference_ns))
        oldest = (now_ns - _WINDOW_NS) // _SLICE_NS
        while least[0][0] <= oldest:
            least.popleft()
        return least[0][1]


class EventClock:
    """Gives each event its time. `unbelievable` counts those that were not believed, by reason."""

    def __init__(self) -> None:
        self.unbelievable: Counter[str] = Counter()
        self._sources: OrderedDict[tuple[str, int], LeastDifference] = OrderedDict()

    def __len__(self) -> int:
        """Lives of sources that are remembered."""
        return len(self._sources)

    def event_time_ns(
        self, source: str, epoch: int, occurred_at_ns: int, sent_at_ns: int, received_at_ns: int
    ) -> int:
        """The time of an event; call it once for each, in the order of receipt.

        Times of zero are unknown. An event whose sender gave none happened when it was received.
        """
        if not received_at_ns:
            return occurred_at_ns
        if not sent_at_ns or not occurred_at_ns:
            return received_at_ns
        offset_ns = self._offset(source, epoch, received_at_ns - sent_at_ns, received_at_ns)
        event_time_ns = occurred_at_ns + offset_ns
        if event_time_ns > received_at_ns + MAX_AHEAD_S * _NS:
            self.unbelievable["too_far_ahead"] += 1
            return received_at_ns
        if event_time_ns < received_at_ns - MAX_BEHIND_S * _NS:
            self.unbelievable["too_far_behind"] += 1
            return received_at_ns
        return event_time_ns

    def _offset(self, source: str, epoch: int, difference_ns: int, now_ns: int) -> int:
        name = source, epoch
        least = self._sources.get(name)
        if least is None:
            least = self._sources[name] = LeastDifference()
            if len(self._sources) > MAX_SOURCES:
                self._sources.popitem(last=False)
        else:
            self._sources.move_to_end(name)
        return least.add(difference_ns, now_ns)
