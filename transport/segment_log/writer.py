"""The log, written by one process at a time.

    append ──► active segment ──roll──► sealed segments ──drop──► gone
                    │                         │
                    └──────── reader ◄────────┘

What survives what:

    the process is killed   every frame whose append returned, and no part of any other batch
    the power fails         every frame up to `synced_to`; of later ones perhaps some, in order

A segment is synced before the next one is created, so only the last segment can have a torn tail.
That sync happens inside the append that rolls. After a failed sync the system may have dropped
what it could not write and forgotten about it, so the log refuses every further write until it is
opened again, which finds out what is there.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from onehop.transport.errors import Closed, LogError
from onehop.transport.segment_log.active import ActiveSegment
from onehop.transport.segment_log.directory import (
    WriterLock,
    list_segments,
    make_directory,
    segment_path,
    sync_directory,
)
from onehop.transport.segment_log.errors import LogFull, NotInLog
from onehop.transport.segment_log.frames import FILE_HEADER_BYTES, Payload, encode_frames
from onehop.transport.segment_log.options import LogOptions
from onehop.transport.segment_log.reader import SegmentReader
from onehop.transport.segment_log.retention import SealedSegments

DEFAULT_OPTIONS = LogOptions()


class SegmentLog:
    """A log of frames numbered from 1 without holes, in a directory; made by `open`.

    Use from one thread at a time. Attributes to read: `recovered_cut_bytes`, what opening cut
    from a torn tail; `dropped_frames`, how many frames went since opening because of `max_bytes`
    or `max_age_s`; `synced_to`, the last frame that a power loss cannot take, `first - 1` if none.
    """

    def __init__(self, directory: str, options: LogOptions, lock: WriterLock) -> None:
        """Take over a directory under `lock`. Use `open` instead."""
        self._directory = directory
        self._options = options
        self._lock = lock
        self._is_closed = False
        self._broken = ""
        self._next_sync_at = float("-inf")
        self.recovered_cut_bytes = 0
        self.dropped_frames = 0
        firsts = list_segments(directory)
        self._sealed = SealedSegments(directory, firsts)
        self._reader = SegmentReader(directory)
        if firsts:
            self._active, self.recovered_cut_bytes = ActiveSegment.recover(directory, firsts[-1])
        else:
            self._active = ActiveSegment.create(directory, 1)
        self._reader.share_index(self._active.index)
        self.synced_to = self.last

    @classmethod
    def open(cls, path: str | os.PathLike[str], options: LogOptions = DEFAULT_OPTIONS) -> Self:
        """Open the log in the directory `path` for writing; create it where missing.

        Reads the last segment whole, cuts it at its first frame that is not whole, counts that
        in `recovered_cut_bytes`, and syncs the rest. Raises `LogError` if another writer holds
        the log or the disk refuses, `LogCorrupt` for damage that is not a torn tail.
        """
        directory = os.fspath(path)
        try:
            make_directory(directory)
            lock = WriterLock(directory)
            try:
                return cls(directory, options, lock)
            except BaseException:
                lock.release()
                raise
        except LogError:
            raise
        except OSError as error:
            raise LogError(error.errno, f"{directory}: cannot open: {error.strerror}") from error

    @property
    def first(self) -> int:
        """The oldest frame in the log; the one to come if it has none."""
        sealed = self._sealed.first
        return self._active.index.first if sealed is None else sealed

    @property
    def last(self) -> int:
        """The newest frame; `first - 1` if there is none."""
        return self._active.index.end_number - 1

    @property
    def next_number(self) -> int:
        """The number the next frame will have."""
        return self._active.index.end_number

    @property
    def size_bytes(self) -> int:
        """The size of all files, headers included."""
        return self._sealed.size_bytes + self._active.index.end_offset

    def append(self, payload: Payload) -> int:
        """Write one frame and return its number; a killed process does not lose it any more.

        Raises `LogFull` at `max_bytes`, `LimitError` over `MAX_FRAME_BYTES`, `LogError` if the
        disk refuses. Nothing was written then, and the log goes on once there is space; unless
        the write could not be undone or a sync failed, after which it has to be opened again.
        """
        return self.append_many((payload,))

    def append_many(self, payloads: Sequence[Payload]) -> int:
        """Write frames as one batch, all or none, and return the number of the first.

        A batch stays in one segment and has at most `MAX_BATCH_BYTES`. Raises as `append` does.
        An empty batch writes nothing and returns the number to come.
        """
        self._check_writable()
        first = self.next_number
        data, sizes = encode_frames(first, payloads)
        if not sizes:
            return first
        self._make_room(len(data))
        try:
            self._active.append(data, sizes)
        except OSError as error:
            raise self._error(f"cannot write frame {first}", error) from error
        if self._options.sync == "always":
            self.sync()
        return first

    def sync(self) -> None:
        """Wait until everything appended so far is on disk, and move `synced_to` there.

        What this promises: when it returns, every frame up to `synced_to` is found again after a
        power loss, if the drive does what it says on a flush (fdatasync). The name of a file is
        made durable when the file is created. Returns at once if there is nothing new.
        """
        self._check_writable()
        if self.synced_to == self.last:
            return
        try:
            self._active.sync()
        except OSError as error:
            self._broken = "a sync failed"
            raise self._error("cannot sync", error) from error
        self.synced_to = self.last

    def sync_if_due(self, now: float) -> bool:
        """Sync if there is something new and `sync_every_s` passed; say whether it was done.

        `now` is seconds of a monotonic clock. Only for `sync="group"`; otherwise does nothing.
        """
        is_due = self.synced_to < self.last and now >= self._next_sync_at
        if self._options.sync != "group" or not is_due:
            return False
        self.sync()
        self._next_sync_at = now + self._options.sync_every_s
        return True

    def roll(self) -> None:
        """Sync and seal the active segment and begin a new one, unless it has no frames yet.

        Not bound by `max_bytes`: the new file has only a header. If it cannot be created, the
        log goes on with the segment it has.
        """
        self._check_writable()
        if not self._active.has_frames:
            return
        self.sync()
        sealed = self._active
        try:
            self._active = ActiveSegment.create(self._directory, self.next_number)
        except BaseException as error:
            self._discard(error)
            if not isinstance(error, OSError):
                raise
            raise self._error(f"cannot begin segment {self.next_number}", error) from error
        sealed.close()
        self._sealed.add(sealed.index.first, sealed.index.end_number, sealed.index.end_offset)
        self._reader.share_index(self._active.index)

    def drop_before(self, number: int) -> int:
        """Remove the sealed segments with only frames before `number`; return how many frames.

        The active segment stays: `roll` first if it is to go too.
        """
        self._check_writable()
        return self._drop(lambda: self._sealed.drop_before(number))

    def drop_expired(self, wall_now_s: float) -> int:
        """Remove the oldest segments last written over `max_age_s` ago; return how many frames.

        `wall_now_s` is seconds since 1970, as it is compared with the time the file system keeps
        for each file. An active segment that is too old is rolled, and goes too.
        """
        self._check_writable()
        if self._options.max_age_s is None:
            return 0
        limit = wall_now_s - self._options.max_age_s
        if self._active.has_frames and self._active.modified_at_s() < limit:
            self.roll()
        return self._drop(lambda: self._sealed.drop_older(limit), is_loss=True)

    def read(self, number: int) -> bytes:
        """Return the payload of frame `number`; raises as `SegmentReader.read` does."""
        for _, payload in self.read_from(number):
            return payload
        raise NotInLog(f"{self._directory}: frame {number} is not written yet")

    def read_from(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield number and payload from `number` on; raises as `SegmentReader.read_from` does."""
        if not self.first <= number <= self.next_number:
            raise NotInLog(
                f"{self._directory}: no frame {number}, the log has {self.first} to {self.last}"
            )
        return self._reader.read_from(number)

    def close(self) -> None:
        """Sync, close all files and let another writer in. Harmless when repeated.

        Raises `LogError` if that sync fails; the log is closed all the same.
        """
        if self._is_closed:
            return
        try:
            if not self._broken and not self._active.is_torn:
                self.sync()
        finally:
            self._is_closed = True
            self._active.close()
            self._reader.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_writable(self) -> None:
        if self._is_closed:
            raise Closed(f"{self._directory}: the log is closed")
        if self._active.is_torn:
            self._broken = "a failed write could not be cut away"
        if self._broken:
            raise LogError(f"{self._directory}: {self._broken}; close the log and open it again")

    def _make_room(self, size: int) -> None:
        index, options = self._active.index, self._options
        must_roll = self._active.has_frames and index.end_offset + size > options.segment_bytes
        needed = self.size_bytes + size + (FILE_HEADER_BYTES if must_roll else 0)
        if options.max_bytes is not None and needed > options.max_bytes:
            is_hopeless = FILE_HEADER_BYTES + size > options.max_bytes
            if options.when_full == "refuse" or is_hopeless:
                raise LogFull(
                    f"{self._directory}: {size} bytes more make {needed}, "
                    f"max_bytes is {options.max_bytes}"
                )
        if must_roll:
            self.roll()
        if options.max_bytes is not None and self.size_bytes + size > options.max_bytes:
            left = options.max_bytes - self._active.index.end_offset - size
            self._drop(lambda: self._sealed.drop_to_size(left), is_loss=True)

    def _drop(self, drop: Callable[[], None], *, is_loss: bool = False) -> int:
        first = self.first
        try:
            drop()
        except OSError as error:
            raise self._error("cannot remove old segments", error) from error
        finally:
            if is_loss:
                self.dropped_frames += self.first - first
            if self.first > first:
                self._reader.refresh()
        return self.first - first

    def _discard(self, error: BaseException) -> None:
        """Remove what a failed creation left: later frames go to the segment before it."""
        if isinstance(error, FileExistsError):
            self._broken = "the next segment is there already, made by someone else"
            return
        try:
            with suppress(FileNotFoundError):
                os.unlink(segment_path(self._directory, self.next_number))
            sync_directory(self._directory)
        except OSError:
            self._broken = "a segment that could not be created could not be removed"

    def _error(self, action: str, error: OSError) -> LogError:
        return LogError(error.errno, f"{self._active.path}: {action}: {error.strerror}")
