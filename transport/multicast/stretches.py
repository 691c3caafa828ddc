"""Where in a log the messages of a session are, without remembering every one.

For each stretch of `STRETCH` numbers the index has the frames between which they lie, 24 bytes:
finding a number means reading through these. A frame far behind the others of its stretch (a late
repair) is noted by itself. At `MAX_PLACES` the stretches of a session double in length: its
messages take longer to find, and memory stays bounded.
"""

from array import array
from bisect import bisect_left

STRETCH = 256
"""Numbers found together: reading them takes well under a millisecond for small messages."""
MAX_PLACES = 262_144
"""Stretches of one session: 6 MiB of memory, 67 million numbers before they double."""
NEAR_FRAMES = 1024
"""A frame up to so many behind the others of its stretch is found by reading through."""
MAX_STRAYS = 65_536
"""Frames of one session noted by themselves; beyond it stretches are widened to reach them."""


class Stretches:
    """Between which frames the numbers of one session lie."""

    def __init__(self, max_places: int = MAX_PLACES, max_strays: int = MAX_STRAYS) -> None:
        self.length = STRETCH
        self._max_places = max_places
        self._max_strays = max_strays
        self._places = array("Q")  # stretch number, sorted
        self._lows = array("Q")
        self._highs = array("Q")
        self._strays: dict[int, list[int]] = {}
        self._stray_count = 0

    def __len__(self) -> int:
        return len(self._places)

    def note(self, first: int, stop: int, frame: int) -> None:
        """Numbers `[first, stop)` are in `frame`; frames are noted in order."""
        for place in range(first // self.length, (stop - 1) // self.length + 1):
            at = bisect_left(self._places, place)
            if at == len(self._places) or self._places[at] != place:
                self._places.insert(at, place)
                self._lows.insert(at, frame)
                self._highs.insert(at, frame)
            elif frame - self._highs[at] <= NEAR_FRAMES or self._stray_count >= self._max_strays:
                self._highs[at] = frame
            elif (strays := self._strays.setdefault(place, []))[-1:] != [frame]:
                strays.append(frame)
                self._stray_count += 1
        while len(self._places) > self._max_places:
            self._double()

    def frames_of(self, number: int) -> list[tuple[int, int]]:
        """First and last frame of each part of the log where `number` may be."""
        place = number // self.length
        at = bisect_left(self._places, place)
        if at == len(self._places) or self._places[at] != place:
            return []
        strays = [(frame, frame) for frame in self._strays.get(place, [])]
        return [(self._lows[at], self._highs[at]), *strays]

    def _double(self) -> None:
        self.length *= 2
        old = zip(self._places, self._lows, self._highs, strict=True)
        self._places, self._lows, self._highs = array("Q"), array("Q"), array("Q")
        for place, low, high in old:
            if self._places and self._places[-1] == place // 2:
                self._lows[-1] = min(self._lows[-1], low)
                self._highs[-1] = max(self._highs[-1], high)
            else:
                self._places.append(place // 2)
                self._lows.append(low)
                self._highs.append(high)
        strays: dict[int, list[int]] = {}
        for place, frames in self._strays.items():
            strays[place // 2] = sorted({*strays.get(place // 2, []), *frames})
        self._strays = strays
        self._stray_count = sum(map(len, strays.values()))
