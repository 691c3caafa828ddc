"""The queue between the receiving side and the application, and what it does when it is full.

    put ──► waiting ──────────────────────────► take
               └──(full, `spill`)──► disk ──► waiting

What goes in comes out in order, or is in exactly one `Loss`. An event is settled as delivered when
it is taken, as lost when the policy drops it:

    drop_newest   the event that does not fit is dropped
    drop_oldest   the oldest waiting ones are dropped until it fits
    latest        as drop_oldest; and one event at most waits for each (source, topic, key): a
                  newer one supersedes it and goes to the end, and the loss is told first
    block         `put` returns False and changes nothing: stop reading and offer it again (after
                  `disconnect` it is dropped)
    spill         it goes to disk, as does every one after it until the disk has been read back;
                  it is dropped when the disk is full or fails
    disconnect    it is dropped, as is every one after it; what waits can still be taken

An event larger than `max_bytes` fits an empty queue; otherwise it could never come through.
Losses always fit. There is no clock and no lock in here: the owner holds a lock around each call.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from .errors import ConfigurationError
from .event import Event, Loss, LossReason
from .ledger import StreamAccount
from .loss_records import LossRecord, LossRecords
from .spill import MIN_SPILL_BYTES, Entry, Spill

Overflow = Literal["drop_newest", "drop_oldest", "latest", "block", "spill", "disconnect"]
OVERFLOW_POLICIES: tuple[Overflow, ...] = get_args(Overflow)

READ_BACK_EVENTS = 256
"""Events read from disk at a time: enough to make finding the place in the file cheap."""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The settings of one hand-over queue."""

    on_overflow: Overflow = "drop_oldest"
    """What gives way when the queue is full; the default keeps reading, and keeps what is new."""
    max_events: int = 65_536
    """Events that wait in memory; a third of a second at 200,000 per second."""
    max_bytes: int = 256 * 1024 * 1024
    """Payload bytes that wait in memory, approximately; for when the events are large."""
    spill_path: Path | None = None
    """Directory for `spill`; None makes a private temporary one, removed on close."""
    spill_bytes: int = 1024 * 1024 * 1024
    """Bytes of files that `spill` may keep; small against a disk, four times the memory."""

    def __post_init__(self) -> None:
        if self.on_overflow not in OVERFLOW_POLICIES:
            expected = ", ".join(OVERFLOW_POLICIES)
            raise ConfigurationError(f"on_overflow is {self.on_overflow!r}, expected {expected}")
        bounds = {"max_events": 1, "max_bytes": 1, "spill_bytes": MIN_SPILL_BYTES}
        for name, least in bounds.items():
            if (seen := getattr(self, name)) < least:
                raise ConfigurationError(f"{name} is {seen}, expected {least} or more")
        if self.spill_path is not None and self.on_overflow != "spill":
            raise ConfigurationError(
                f"spill_path needs on_overflow 'spill', not {self.on_overflow!r}"
            )


class HandoverQueue:
    """Events and losses that wait for the application.

    `dropped` counts messages given up by the policy, `spilled` events that went to disk.
    """

    def __init__(
        self, options: QueueOptions, is_stale: Callable[[int], bool] | None = None
    ) -> None:
        """`is_stale` is asked of each event that is taken, with its age in nanoseconds.

        Raises `LogError` when the policy is `spill` and the disk refuses from the start.
        """
        self.options = options
        self._is_stale = is_stale
        self.dropped = self.spilled = 0
        self.disconnected: str | None = None
        """Why nothing more comes through, once that is so."""
        self._bytes = 0
        self._max_events, self._max_bytes = options.max_events, options.max_bytes
        self._told_first = LossRecords()  # before everything that waits
        self._waiting: deque[Entry | LossRecord] = deque()
        self._events = 0  # those of `_waiting` that are events
        self._told_last = LossRecords()  # after everything that waits, on disk too
        self._newest: dict[tuple[str, str, str | None], Entry] | None = None
        self._spill: Spill | None = None
        if options.on_overflow == "latest":
            self._newest = {}
        elif options.on_overflow == "spill":
            self._spill = Spill(options.spill_path, options.spill_bytes)

    def __len__(self) -> int:
        """Events and loss records that wait, on disk too."""
        waiting = len(self._told_first) + len(self._waiting) + len(self._told_last)
        return waiting + len(self._newest or ()) + (len(self._spill) if self._spill else 0)

    @property
    def waiting_bytes(self) -> int:
        """Payload bytes that wait in memory."""
        return self._bytes

    @property
    def has_to_tell_first(self) -> bool:
        """True when a loss comes before everything else."""
        return len(self._told_first) > 0

    @property
    def spill_errors(self) -> int:
        """How often the disk refused."""
        return 0 if self._spill is None else self._spill.errors

    def put(
        self,
        event: Event,
        account: StreamAccount,
        first: int,
        count: int,
        size_bytes: int,
        at_ns: int,
    ) -> bool:
        """Offers an event that is messages `first` to `first + count - 1` of `account`.

        False under `block` means full: nothing has changed, offer it again. False under
        `disconnect` means that it was dropped, and so will be all others. True otherwise.
        """
        entry = (event, account, first, count, size_bytes)
        if self._newest is not None:
            return self._supersede(entry, self._newest, at_ns)
        if self._fits(size_bytes) and not self._spill and not self.disconnected:
            self._append(entry)
            return True
        return self._overflow(entry, at_ns)

    def drop(self, account: StreamAccount, first: int, count: int, at_ns: int) -> None:
        """Drops messages that wait elsewhere, in front of all that waits here."""
        self._lose_numbers(account, first, count, self._told_first, at_ns)

    def tell_first(self, loss: Loss, account: StreamAccount) -> None:
        """Puts in a loss that the caller has settled in `account`, in front of all that waits."""
        stop = loss.first + loss.count
        self._told_first.add(LossRecord(account, loss.first, stop, loss.reason, loss.at_ns))

    def put_loss(self, loss: Loss, account: StreamAccount) -> None:
        """Puts in a loss that the caller has settled in `account`."""
        stop = loss.first + loss.count
        self._told_last.add(LossRecord(account, loss.first, stop, loss.reason, loss.at_ns))

    def take(self, now_ns: int = 0) -> Event | Loss | None:
        """The next in order, None when there is nothing. An event is settled as delivered.

        One that is stale at `now_ns` is settled as lost, and a loss in its place.
        """
        if self._told_first:
            return self._told_first.pop().as_loss()
        if not self._waiting and self._newest is None and self._spill:
            self._read_back(self._spill)
            if self._told_first:  # the disk could not be read
                return self._told_first.pop().as_loss()
        entry: Entry | LossRecord
        if self._waiting:
            entry = self._waiting.popleft()
        elif self._newest:
            entry = self._newest.pop(next(iter(self._newest)))
        elif self._told_last:
            return self._told_last.pop().as_loss()
        else:
            return None
        if isinstance(entry, LossRecord):
            return entry.as_loss()
        event, account, first, count, size_bytes = entry
        self._events -= 1
        self._bytes -= size_bytes
        if self._is_stale and event.sent_at_ns and self._is_stale(now_ns - event.sent_at_ns):
            account.lose(first, count, LossReason.STALE)
            return LossRecord(account, first, first + count, LossReason.STALE, now_ns).as_loss()
        account.deliver(first, count)
        return event

    def disconnect(self, why: str) -> None:
        """Drops everything from now on; what waits can still be taken."""
        self.disconnected = why

    def give_up(self, reason: LossReason, at_ns: int) -> None:
        """Settles every event that waits as lost; losses can still be taken."""
        entries: list[Entry | LossRecord] = [*self._waiting, *(self._newest or {}).values()]
        self._waiting.clear()
        if self._newest is not None:
            self._newest.clear()
        for entry in entries:
            if isinstance(entry, LossRecord):
                self._told_first.add(entry)
                continue
            _, account, first, count, _ = entry
            account.lose(first, count, reason)
            self._told_first.add(LossRecord(account, first, first + count, reason, at_ns))
        self._events = self._bytes = 0
        if self._spill is not None and len(self._spill):
            _, records = self._spill.abandon(reason)
            for record in records:
                self._told_first.add(record)

    def close(self) -> None:
        """Removes what is on disk; events still there stay `pending` in their accounts."""
        if self._spill is not None:
            self._spill.close()

    def _fits(self, size_bytes: int) -> bool:
        if self._events == 0:
            return True
        return self._events < self._max_events and self._bytes + size_bytes <= self._max_bytes

    def _append(self, entry: Entry) -> None:
        if self._told_last:
            self._waiting.extend(self._told_last.pop_all())
        self._waiting.append(entry)
        self._events += 1
        self._bytes += entry[4]

    def _overflow(self, entry: Entry, at_ns: int) -> bool:
        policy = self.options.on_overflow
        if policy == "block" and not self.disconnected:
            return False
        if policy == "drop_oldest":
            while not self._fits(entry[4]):
                self._drop_oldest(at_ns)
            self._append(entry)
        elif policy == "spill" and self._spill is not None:
            self._to_disk(entry, self._spill, at_ns)
        else:
            if policy == "disconnect":
                self.disconnect("the queue was full and on_overflow is 'disconnect'")
            self._lose(entry, self._told_last, at_ns)
        return self.disconnected is None

    def _drop_oldest(self, at_ns: int) -> None:
        item = self._waiting.popleft()
        if isinstance(item, LossRecord):
            self._told_first.add(item)
            return
        self._events -= 1
        self._bytes -= item[4]
        self._lose(item, self._told_first, at_ns)

    def _supersede(
        self, entry: Entry, newest: dict[tuple[str, str, str | None], Entry], at_ns: int
    ) -> bool:
        event = entry[0]
        name = (event.source, event.topic, event.key)
        superseded = newest.pop(name, None)
        while superseded is not None or not self._fits(entry[4]):
            if superseded is None:
                superseded = newest.pop(next(iter(newest)))
            self._events -= 1
            self._bytes -= superseded[4]
            self._lose(superseded, self._told_first, at_ns)
            superseded = None
        for record in self._told_last.pop_all():
            self._told_first.add(record)
        newest[name] = entry
        self._events += 1
        self._bytes += entry[4]
        return True

    def _to_disk(self, entry: Entry, spill: Spill, at_ns: int) -> None:
        told_before = self._told_last.pop_all()
        if spill.append(entry, told_before):
            self.spilled += 1
            return
        for record in told_before:
            self._told_last.add(record)
        self._lose(entry, self._told_last, at_ns)

    def _read_back(self, spill: Spill) -> None:
        limit = min(READ_BACK_EVENTS, self._max_events)
        for entry, told_before in spill.read(limit, self._max_bytes):
            self._waiting.extend(told_before)
            self._waiting.append(entry)
            self._events += 1
            self._bytes += entry[4]
        if not self._waiting:
            spill.errors += 1
            lost, records = spill.abandon()
            self.dropped += lost
            for record in records:
                self._told_first.add(record)

    def _lose(self, entry: Entry, records: LossRecords, at_ns: int) -> None:
        _, account, first, count, _ = entry
        self._lose_numbers(account, first, count, records, at_ns)

    def _lose_numbers(
        self, account: StreamAccount, first: int, count: int, records: LossRecords, at_ns: int
    ) -> None:
        account.lose(first, count, LossReason.OVERFLOW)
        self.dropped += count
        records.add(LossRecord(account, first, first + count, LossReason.OVERFLOW, at_ns))
