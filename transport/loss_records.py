"""Losses that wait to be told, as few records as say the same.

Neighbours of one stream are joined where their numbers meet and their reason is the same. Where
more than MAX_LOSS_RECORDS wait, they are also joined across numbers that are settled otherwise
(filtered, or lost for another reason), so a reader that stays away costs a bounded memory. Such a
record has the reason of its first number; the ledger stays exact. Numbers that may still be
delivered are never covered.
"""

from collections import deque

from .event import Loss, LossReason
from .ledger import StreamAccount

MAX_LOSS_RECORDS = 4096
"""Records kept apart; about 1 MiB."""


class LossRecord:
    """Numbers `[first, stop)` of a stream that will not come."""

    __slots__ = ("account", "at_ns", "first", "reason", "stop")

    def __init__(
        self, account: StreamAccount, first: int, stop: int, reason: LossReason, at_ns: int
    ) -> None:
        self.account = account
        self.first = first
        self.stop = stop
        self.reason = reason
        self.at_ns = at_ns

    def as_loss(self) -> Loss:
        """The same for the application."""
        account, count = self.account, self.stop - self.first
        return Loss(
            account.source, account.epoch, account.stream,
            self.first, count, self.reason, self.at_ns,
        )  # fmt: skip


class LossRecords:
    """Records in the order in which they are to be told."""

    __slots__ = ("_last", "_records")

    def __init__(self) -> None:
        self._records: deque[LossRecord] = deque()
        self._last: dict[StreamAccount, LossRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: LossRecord) -> None:
        """Puts a record at the end, or joins it to the last one of its stream."""
        last = self._last.get(record.account)
        if last is not None and self._can_join(last, record):
            last.stop = record.stop
            return
        self._last[record.account] = record
        self._records.append(record)

    def _can_join(self, last: LossRecord, record: LossRecord) -> bool:
        if len(self._records) < MAX_LOSS_RECORDS:
            return last.stop == record.first and last.reason is record.reason
        return last.stop <= record.first and record.account.are_settled(last.stop, record.first)

    def pop(self) -> LossRecord:
        """Takes out the first record."""
        record = self._records.popleft()
        if self._last.get(record.account) is record:
            del self._last[record.account]
        return record

    def pop_all(self) -> list[LossRecord]:
        """Takes out every record."""
        records = list(self._records)
        self._records.clear()
        self._last.clear()
        return records
