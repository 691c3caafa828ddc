"""What a request server keeps in memory: the messages of many sessions, bounded by bytes.

    keep(session, first, messages) ──▶ shelf of that session ──▶ RequestDesk (first, next, blocks)

Numbers come in any order and may have holes. Of a shelf's numbers below `next` each is

    here       it can be served
    lost       it is known that it will not come
    expected   neither: it may still come

`first` is the lowest number that is here or expected. Keeping a number twice changes nothing. At
the bound the session whose message came first of all gives up its lowest messages.

Messages stay together as they came, in runs: what is done for each packet is much, for each message
next to nothing.

One thread keeps while another serves: both take the store's lock, for microseconds.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import NamedTuple

from ..errors import ConfigurationError
from ..intervals import IntervalSet
from .wire import HEADER_BYTES, LENGTH_BYTES, encode_block

MAX_SESSIONS = 4096
"""Sessions kept: sixteen times what a feed follows at once. The quietest one goes first."""
MESSAGE_OVERHEAD_BYTES = 200
"""What a message in memory costs beside its bytes (CPython 3.11: objects, table entries)."""
LONG_AGO = float("-inf")


class KeptRun(NamedTuple):
    """Messages in memory: the first is numbered `first`, the others follow."""

    first: int
    messages: Sequence[bytes]
    kept_at: float

    @property
    def size_bytes(self) -> int:
        """What it counts against the bound."""
        return sum(map(len, self.messages)) + MESSAGE_OVERHEAD_BYTES * len(self.messages)


class Shelf:
    """The messages of one session; what a desk answers from."""

    def __init__(self, lock: RLock) -> None:
        self.first = 1
        self.next = 1
        self.is_ended = False
        self.is_followed = False
        """A publisher or another server was heard, so that what is not here is asked for."""
        self._lock = lock
        self._runs: dict[int, KeptRun] = {}  # by each of its numbers
        self._here = IntervalSet()
        self._lost = IntervalSet()

    # -- what a desk asks ------------------------------------------------------------------------

    def sent_at(self, number: int) -> float:
        """When message `number` was kept; long ago if it is not in memory."""
        with self._lock:
            run = self._runs.get(number)
            return LONG_AGO if run is None else run.kept_at

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        """Wire blocks from `first` to the next hole, as many as fit a packet."""
        with self._lock:
            return fit_packet(self._message, first, count, packet_bytes)

    def first_here(self, number: int) -> int | None:
        """The lowest number from `number` on that can be served."""
        with self._lock:
            return self._here.first_from(number)

    def is_lost(self, first: int, stop: int) -> bool:
        """True when no number of `[first, stop)` is here or expected."""
        with self._lock:
            return self.first_here(first) not in range(first, stop) and (
                not self.is_followed or not self._lost.missing(first, stop)
            )

    @property
    def is_empty(self) -> bool:
        """True when nothing can be served."""
        return self.first_here(0) is None

    def resume_at(self) -> int:
        """The lowest number that may be worth asking for."""
        with self._lock:
            missing = self.missing(self.first, self.next)
            return missing[0][0] if missing else self.next

    # -- what a store does -----------------------------------------------------------------------

    def missing(self, first: int, stop: int) -> list[tuple[int, int]]:
        """The parts of `[first, stop)` that are not here."""
        return self._here.missing(first, stop)

    def put(self, run: KeptRun) -> None:
        """Keeps messages of which none is here yet."""
        stop = run.first + len(run.messages)
        self._here.add(run.first, stop)
        self._runs.update(dict.fromkeys(range(run.first, stop), run))
        self.next = max(self.next, stop)

    def evict(self) -> KeptRun | None:
        """Lets the lowest messages in memory go."""
        number = self._here.first_from(0)
        if number is None:
            return None
        run = self._runs[number]
        stop = run.first + len(run.messages)
        for gone in range(run.first, stop):
            del self._runs[gone]
        self._here.drop_below(stop)
        self._let_go(run.first, stop)
        return run

    def lose(self, first: int, count: int) -> None:
        """Notes that these numbers will not come."""
        self._lost.add(first, first + count)
        self.next = max(self.next, first + count)
        if first <= self.first < first + count:
            self.first = first + count

    def _message(self, number: int) -> bytes | None:
        run = self._runs.get(number)
        return None if run is None else run.messages[number - run.first]

    def _let_go(self, first: int, stop: int) -> None:
        self.first = max(self.first, stop)
        self._lost.drop_below(self.first)


class MemoryStore:
    """Messages of all sessions within `max_bytes`, `MESSAGE_OVERHEAD_BYTES` each included.

    Beyond `max_sessions` the session longest without a message goes.
    """

    def __init__(self, max_bytes: int, *, max_sessions: int = MAX_SESSIONS) -> None:
        if max_bytes <= 0:
            raise ConfigurationError(f"ring is {max_bytes} bytes, expected above 0")
        self.lock = RLock()
        self.kept = 0
        """Messages that came and were kept, evicted ones included."""
        self.in_memory = 0
        self.size_bytes = 0
        self.evicted = 0
        """Messages that left memory to make room for newer ones, or came after they would have."""
        self.lost = 0
        """Messages that are known to exist and did not come."""
        self.forgotten = 0
        """Sessions let go because there were more than `max_sessions`."""
        self.fault = ""
        """What is wrong with the place things are kept in, in one sentence."""
        self._shelves: OrderedDict[bytes, Shelf] = OrderedDict()  # the quietest first
        self._max_bytes = max_bytes
        self._max_sessions = max_sessions
        self._arrivals: deque[Shelf] = deque()  # one entry for each run in memory

    # -- reading ---------------------------------------------------------------------------------

    def shelf(self, session: bytes) -> Shelf | None:
        """The shelf of a session, if it has one."""
        return self._shelves.get(session)

    def shelves(self) -> list[tuple[bytes, Shelf]]:
        """All of them, the one that got a message last at the end."""
        with self.lock:
            return list(self._shelves.items())

    def __len__(self) -> int:
        return len(self._shelves)

    # -- keeping ---------------------------------------------------------------------------------

    def keep(self, session: bytes, first: int, messages: Sequence[bytes], now: float) -> None:
        """Keeps messages numbered from `first` on; those kept before are skipped."""
        with self.lock:
            shelf = self.follow(session)
            self.evicted += max(0, min(first + len(messages), shelf.first) - first)  # too late
            for start, stop in shelf.missing(max(first, shelf.first), first + len(messages)):
                self._put(
                    session, shelf, KeptRun(start, messages[start - first : stop - first], now)
                )
            while self.size_bytes > self._max_bytes:
                self._evict(self._arrivals.popleft())

    def lose(self, session: bytes, first: int, count: int) -> None:
        """Notes that these numbers of `session` will not come."""
        with self.lock:
            shelf = self.follow(session)
            for start, stop in shelf.missing(max(first, shelf.first), first + count):
                shelf.lose(start, stop - start)
                self.lost += stop - start

    def expect(self, session: bytes, next_number: int, *, is_ended: bool) -> None:
        """Notes that every number below `next_number` exists, and whether these are all."""
        with self.lock:
            shelf = self.follow(session)
            shelf.next = max(shelf.next, next_number)
            if is_ended and not shelf.is_ended:
                shelf.is_ended = True
                self._ended(session, shelf)

    def follow(self, session: bytes) -> Shelf:
        """The shelf of a session that has just been heard, made if there is none."""
        shelf = self._shelves.get(session)
        if shelf is None:
            shelf = self._shelves[session] = self._new_shelf(session)
            if len(self._shelves) > self._max_sessions:
                self._forget_quietest()
        shelf.is_followed = True
        self._shelves.move_to_end(session)
        return shelf

    @property
    def is_behind(self) -> bool:
        """True when `flush` should be waited for before more is kept."""
        return False

    def flush(self, now: float) -> None:
        """Makes what was kept survive the process, where it can."""

    def close(self) -> None:
        """Frees what is not memory."""

    # -- what a store with a file does otherwise ------------------------------------------------

    def _new_shelf(self, session: bytes) -> Shelf:
        return Shelf(self.lock)

    def _put(self, session: bytes, shelf: Shelf, run: KeptRun) -> None:
        shelf.put(run)
        self._arrivals.append(shelf)
        self.kept += len(run.messages)
        self.in_memory += len(run.messages)
        self.size_bytes += run.size_bytes

    def _ended(self, session: bytes, shelf: Shelf) -> None:
        """Called once when a session has ended."""

    def _forgot(self, session: bytes) -> None:
        """Called when a session is let go."""

    def _forget_quietest(self) -> None:
        session, shelf = self._shelves.popitem(last=False)
        self.forgotten += 1
        self._forgot(session)
        self._arrivals = deque(other for other in self._arrivals if other is not shelf)
        while self._evict(shelf):
            pass

    def _evict(self, shelf: Shelf) -> bool:
        run = shelf.evict()
        if run is None:
            return False
        self.size_bytes -= run.size_bytes
        self.in_memory -= len(run.messages)
        self.evicted += len(run.messages)
        return True


class ResumePoints(Mapping[bytes, int]):
    """Where a feed goes on with each session: a view that is always up to date."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getitem__(self, session: bytes) -> int:
        shelf = self._store.shelf(session)
        if shelf is None:
            raise KeyError(session)
        return shelf.resume_at()

    def __iter__(self) -> Iterator[bytes]:
        return iter([session for session, _ in self._store.shelves()])

    def __len__(self) -> int:
        return len(self._store)


def fit_packet(
    message: Callable[[int], bytes | None], first: int, count: int, packet_bytes: int
) -> list[bytes]:
    """Blocks from `first` to the next hole: at most `count`, and as many as fit one packet."""
    room = packet_bytes - HEADER_BYTES
    found: list[bytes] = []
    for number in range(first, first + count):
        data = message(number)
        if data is None:
            break
        room -= LENGTH_BYTES + len(data)
        if room < 0 and found:
            break
        found.append(encode_block(data))
    return found
