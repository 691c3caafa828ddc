"""Events on disk, first in, first out: where the hand-over queue goes when memory is full.

    append ──► encode ──► segment log ──► read ──► decode
                               └── segments that were read are dropped

One frame is one event and the losses to be told before it, so an event is on disk with all that
must come before it, or not at all:

    [account, first, count, size_bytes, the fields of the event, losses]
    one loss: [account, first, stop, reason, at_ns]

`account` is a place in a table kept in memory: the files are a longer memory, not a store, and
mean nothing to another process. So nothing asks for a sync, but the log syncs a segment when it
begins the next one, and the append that does so waits for the disk.

Which numbers are on disk is also known in memory, as runs for each stream in the order of the
files, so they can be accounted for when they cannot be read.
"""

import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack

from .errors import LogError
from .event import NO_HEADERS, Event, LossReason
from .ledger import StreamAccount
from .loss_records import LossRecord
from .segment_log import LogOptions, SegmentLog

MIN_SPILL_BYTES = 4096
"""Below it the headers of the files would be most of the content."""
MAX_SEGMENT_BYTES = 64 * 1024 * 1024
SEGMENTS_WITHIN_BOUND = 8
"""Only whole segments are given back, so up to an eighth of the bound holds what was read."""
DIRECTORY_NAME = "onehop-spill"
"""Made inside a given path, so that nothing but our own files is ever removed."""

_REFUSALS = (OSError, ValueError, TypeError, OverflowError)  # the disk's, the log's, MessagePack's

Entry = tuple[Event, StreamAccount, int, int, int]
"""An event that waits: the event, its account, first number, how many numbers, bytes."""


class Spill:
    """A queue of events in files. Once made it never raises; `errors` counts refusals."""

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        """Raises `LogError` when the disk refuses or another process uses the same path."""
        self.errors = 0
        self._events = 0
        self._path = path
        segment_bytes = min(MAX_SEGMENT_BYTES, max_bytes // SEGMENTS_WITHIN_BOUND)
        self._options = LogOptions(segment_bytes=segment_bytes, max_bytes=max_bytes, sync="manual")
        self._accounts: list[StreamAccount] = []
        self._places: dict[StreamAccount, int] = {}
        self._on_disk: dict[StreamAccount, deque[tuple[int, int]]] = {}  # runs [start, stop)
        self._last_at_ns = 0
        self._log: SegmentLog | None = self._open()
        self._give_back()  # what a killed process left

    def __len__(self) -> int:
        return self._events

    def append(self, entry: Entry, told_before: list[LossRecord]) -> bool:
        """Writes an event and the losses before it; False, with nothing written, if refused."""
        try:
            self._write(self._encode(entry, told_before))
        except _REFUSALS:
            self.errors += 1
            return False
        for account, start, stop in _numbers(entry, told_before):
            runs = self._on_disk.setdefault(account, deque())
            if runs and runs[-1][1] == start:
                start, _ = runs.pop()
            runs.append((start, stop))
        self._last_at_ns = entry[0].received_at_ns
        self._events += 1
        return True

    def read(self, max_events: int, max_bytes: int) -> list[tuple[Entry, list[LossRecord]]]:
        """Takes out the oldest events, each with the losses before it.

        As many as stay within both bounds, but one at least. None at all while some wait means
        that they cannot be read: then `abandon` is what is left to do.
        """
        batch: list[tuple[Entry, list[LossRecord]]] = []
        size_bytes = 0
        with suppress(*_REFUSALS):
            for _, frame in () if self._log is None else self._log.read_from(self._next):
                entry, told_before = self._decode(frame)
                if batch and size_bytes + entry[4] > max_bytes:
                    break
                batch.append((entry, told_before))
                size_bytes += entry[4]
                if len(batch) == max_events:
                    break
        for entry, told_before in batch:
            for account, _, stop in _numbers(entry, told_before):  # the first of the first run
                _, run_stop = self._on_disk[account].popleft()
                if stop < run_stop:
                    self._on_disk[account].appendleft((stop, run_stop))
        self._next += len(batch)
        self._events -= len(batch)
        self._give_back()
        return batch

    def abandon(self, reason: LossReason = LossReason.OVERFLOW) -> tuple[int, list[LossRecord]]:
        """Forgets everything on disk and settles it as lost; how many, and the records of it.

        Losses that were on disk to be told are told for this reason too.
        """
        lost, records = 0, []
        for account, runs in self._on_disk.items():
            for start, stop in runs:
                for first, end in account.unsettled(start, stop):  # others are told of already
                    account.lose(first, end - first, reason)
                    lost += end - first
                records.append(LossRecord(account, start, stop, reason, self._last_at_ns))
        self._events = 0
        self.close()
        self._give_back()
        return lost, records

    def close(self) -> None:
        """Removes the files."""
        log, self._log = self._log, None
        if log is not None:
            self._remove_files()  # first, while the lock still keeps others out
            with suppress(OSError):
                log.close()

    def _open(self) -> SegmentLog:
        try:
            if self._path is None:
                directory = tempfile.mkdtemp(prefix=f"{DIRECTORY_NAME}-")
            else:
                directory = str(self._path / DIRECTORY_NAME)
        except OSError as error:
            raise LogError(error.errno, f"no place to spill to: {error.strerror}") from error
        try:
            log = SegmentLog.open(directory, self._options)
        except LogError:
            if self._path is None:
                shutil.rmtree(directory, ignore_errors=True)
            raise
        # Also runs when the interpreter exits. After a kill the next life finds the files.
        self._remove_files = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._opened_at = self._next = log.next_number
        return log

    def _write(self, frame: bytes) -> None:
        if self._log is None:
            self._log = self._open()
        try:
            self._log.append(frame)
        except LogError:
            # With nothing to keep, a new log has all its space back and no failed file. A log
            # that refuses from its first frame on would do so again.
            if self._events or self._log.next_number == self._opened_at:
                raise
            self.close()
            self._log = self._open()
            self._log.append(frame)

    def _give_back(self) -> None:
        if self._events == 0:
            self._accounts.clear()
            self._places.clear()
            self._on_disk.clear()
        if self._log is not None:
            try:
                self._log.drop_before(self._next)
            except LogError:
                self.errors += 1

    def _place(self, account: StreamAccount) -> int:
        place = self._places.setdefault(account, len(self._accounts))
        if place == len(self._accounts):
            self._accounts.append(account)
        return place

    def _encode(self, entry: Entry, told_before: list[LossRecord]) -> bytes:
        event, account, first, count, size_bytes = entry
        fields = (
            self._place(account), first, count, size_bytes,
            event.topic, event.value, event.key, event.source, event.epoch, event.stream,
            event.sequence, event.occurred_at_ns, event.sent_at_ns, event.received_at_ns,
            dict(event.headers) or None,
            [(self._place(r.account), r.first, r.stop, r.reason, r.at_ns) for r in told_before],
        )  # fmt: skip
        frame: bytes = msgpack.packb(fields, use_bin_type=True)
        return frame

    def _decode(self, frame: bytes) -> tuple[Entry, list[LossRecord]]:
        # Bytes of our own with a good CRC: they need no checks.
        fields: list[Any] = msgpack.unpackb(frame, strict_map_key=False)
        place, first, count, size_bytes, *event_fields, headers, rows = fields
        event = Event(*[*event_fields, headers or NO_HEADERS])
        told_before = [
            LossRecord(self._accounts[at], start, stop, LossReason(reason), at_ns)
            for at, start, stop, reason, at_ns in rows
        ]
        return (event, self._accounts[place], first, count, size_bytes), told_before


def _numbers(
    entry: Entry, told_before: Iterable[LossRecord]
) -> Iterator[tuple[StreamAccount, int, int]]:
    for record in told_before:
        yield record.account, record.first, record.stop
    yield entry[1], entry[2], entry[2] + entry[3]
