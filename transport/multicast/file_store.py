"""What a request server keeps with a file: the newest messages in memory, all of them in the log.

    keep ──▶ memory (bounded by bytes) ──▶ what is asked for soon
      └────▶ flush ──▶ Archive ──────────▶ what is asked for later, or after a restart

A message is in the file when `flush` returns, and a killed process does not lose it any more. A
thread of its own flushes, as a disk may stall for longer than a socket's buffer lasts.
While the disk refuses, what comes is in memory only: it is served as long as it stays there,
counted in `not_filed`, and `fault` says why in one sentence. It does not get into the file later:
the next process asks for it again. The file is tried anew with every flush; after a failure that
a log cannot go on from it is opened again.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, RLock

from ..errors import Closed, LogError
from ..mold.store import LONG_AGO, KeptRun, MemoryStore, Shelf, fit_packet
from ..mold.wire import LENGTH_BYTES
from .archive import Archive, ArchiveReader, Filed, Packet

WRITE_BYTES = 4 * 1024 * 1024
"""What is written at once."""
MAX_PENDING_BYTES = 16 * 1024 * 1024
"""What may wait for the file: a disk that stalls for a second at a gigabit loses nothing."""
CACHE_BYTES = 32 * 1024 * 1024
"""What is kept of the file after reading it: joiners usually ask for the same stretches."""
CALM_S = 5.0
"""A disk that is nearly full refuses one batch and takes the next: a fault stays so long."""
REOPEN_EVERY_S = 5.0
"""Opening a log reads its last segment, up to a second: not more often than this."""


class FiledShelf(Shelf):
    """The messages of one session, in memory or in the file."""

    def __init__(self, lock: RLock, session: bytes, filed: Filed, reader: ArchiveReader) -> None:
        super().__init__(lock)
        self.next = filed.next
        self.is_ended = filed.is_ended
        self.filed = filed
        self._session = session
        self._reader = reader

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        """Wire blocks from `first` to the next hole or the end of its stretch in the file."""
        found = super().blocks(first, count, packet_bytes)
        if found:
            return found
        with self._lock:
            length = self.filed.stretches.length
            frames = self.filed.stretches.frames_of(first)
        if not frames:
            return []
        # Without the lock: the disk may take its time, and what comes in must not wait for it.
        stretch = self._reader.load(self._session, first // length, length, frames)
        return fit_packet(stretch.get, first, count, packet_bytes)

    def first_here(self, number: int) -> int | None:
        """The lowest number from `number` on that can be served."""
        with self._lock:
            found = (self._here.first_from(number), self.filed.numbers.first_from(number))
            return min((number for number in found if number is not None), default=None)

    def missing(self, first: int, stop: int) -> list[tuple[int, int]]:
        """The parts of `[first, stop)` that are neither in memory nor in the file."""
        return [
            part
            for start, end in self.filed.numbers.missing(first, stop)
            for part in self._here.missing(start, end)
        ]

    def _let_go(self, first: int, stop: int) -> None:
        """Memory gives them up: nothing changes unless the disk had refused them."""
        for start, end in self.filed.numbers.missing(first, stop):
            self._lost.add(start, end)


class FileStore(MemoryStore):
    """Messages in memory within `max_bytes`, and in the directory `path` within the disk."""

    def __init__(self, max_bytes: int, path: Path) -> None:
        super().__init__(max_bytes)
        self.not_filed = 0
        """Messages that the disk refused."""
        self.archive = Archive(path)
        self.reader = ArchiveReader(path, CACHE_BYTES)
        self._writing = Lock()
        self._pending: deque[Packet] = deque()
        self._pending_bytes = 0
        self._reopen_at = LONG_AGO
        self._refused_at = LONG_AGO
        self._flushed_at = 0.0
        for session in self.archive.sessions:
            self._shelves[session] = self._new_shelf(session)

    @property
    def is_behind(self) -> bool:
        """True when so much waits for the file that who keeps should rather wait for it."""
        return self._pending_bytes > MAX_PENDING_BYTES

    def flush(self, now: float) -> None:
        """Writes what has come to the file; waits for a flush that another thread is in."""
        with self._writing:
            self._flushed_at = now
            while packets := self._take_pending():
                self._write(packets, now)
            try:
                self.archive.sync_if_due(now)
            except (LogError, Closed) as fault:
                self._refused(fault, now)

    def close(self) -> None:
        """Writes what is left, syncs and closes the file."""
        self.flush(self._flushed_at)
        try:
            self.archive.close()
        except LogError as fault:
            self.fault = explain(fault)
        self.reader.close()

    def _new_shelf(self, session: bytes) -> Shelf:
        filed = self.archive.sessions.get(session)
        if filed is None:
            filed = self.archive.sessions[session] = Filed()
        return FiledShelf(self.lock, session, filed, self.reader)

    def _put(self, session: bytes, shelf: Shelf, run: KeptRun) -> None:
        super()._put(session, shelf, run)
        size = sum(map(len, run.messages)) + LENGTH_BYTES * len(run.messages)
        last = self._pending[-1] if self._pending else None
        if last is not None and last.takes(session, run.first, len(run.messages), size):
            last.messages += run.messages
            last.size_bytes += size
        else:
            self._pending.append(Packet(session, run.first, list(run.messages), size))
        self._pending_bytes += size

    def _ended(self, session: bytes, shelf: Shelf) -> None:
        self._pending.append(Packet(session, shelf.next, is_end=True))

    def _take_pending(self) -> list[Packet]:
        packets: list[Packet] = []
        size = 0
        with self.lock:
            while self._pending and size < WRITE_BYTES:
                packets.append(self._pending.popleft())
                size += packets[-1].size_bytes
            self._pending_bytes -= size
        return packets

    def _write(self, packets: Sequence[Packet], now: float) -> None:
        try:
            frame = self.archive.append(packets)
        except (LogError, Closed) as fault:
            self.not_filed += sum(len(packet.messages) for packet in packets)
            self._refused(fault, now)
            return
        with self.lock:
            self.archive.note(packets, frame)
        if now - self._refused_at > CALM_S:
            self.fault = ""

    def _forgot(self, session: bytes) -> None:
        self.archive.sessions.pop(session, None)

    def _refused(self, fault: LogError | Closed, now: float) -> None:
        self._refused_at = now
        # With a number it is the disk's word, and the log goes on; without, it is the log's own.
        if getattr(fault, "errno", None) is not None:
            self.fault = f"{explain(fault)}; what comes is kept in memory only"
        elif now >= self._reopen_at:
            self._reopen_at = now + REOPEN_EVERY_S
            try:
                self.archive.reopen()
            except LogError as again:
                self.fault = f"{explain(again)}; what comes is kept in memory only"


def explain(fault: LogError | Closed) -> str:
    """The sentence of an error without its number."""
    return str(fault.args[-1])
