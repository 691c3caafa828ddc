"""Messages of many sessions in a segment log, found again by session and number.

    append, note ──▶ SegmentLog, each frame a MoldUDP64 packet      one thread
    load         ◀── SegmentReader, a stretch of numbers at a time  another thread

A frame is a packet as in the protocol, only that it may be larger than a datagram; one with the
count of an end of session says that the session has no more. So the file needs no format of its
own, and a frame that was torn by a crash was never there.

The index (stretches.py) is small however large the log is, and is made anew by reading the log
when it is opened.

Damage: a torn end is cut off. A sealed segment with a bad frame is readable up to there; what
was behind it counts as not here, so that it is asked for again as long as someone has it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import LogError, Malformed
from ..intervals import IntervalSet
from ..mold.store import MAX_SESSIONS, MESSAGE_OVERHEAD_BYTES
from ..mold.wire import (
    END_OF_SESSION_COUNT,
    MAX_MESSAGE_COUNT,
    decode_header,
    decode_messages,
    encode_header,
    encode_packet,
)
from ..segment_log import LogCorrupt, LogOptions, SegmentLog, SegmentReader
from ..segment_log.directory import list_segments
from .stretches import Stretches

FRAME_BYTES = 64 * 1024
"""Messages that come together share a frame up to this size."""
SYNC_EVERY_S = 1.0
"""Least time between two syncs: what a power failure can take. A killed process loses nothing."""


@dataclass(slots=True)
class Packet:
    """Messages of a session that become one frame, or its end."""

    session: bytes
    first: int
    messages: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    """Of the messages and their lengths."""
    is_end: bool = False

    def takes(self, session: bytes, first: int, count: int, size_bytes: int) -> bool:
        """True when messages numbered from `first` on can be added."""
        return (
            session == self.session
            and first == self.first + len(self.messages)
            and len(self.messages) + count <= MAX_MESSAGE_COUNT
            and self.size_bytes + size_bytes <= FRAME_BYTES
            and not self.is_end
        )

    def encode(self) -> bytes:
        """The frame."""
        if self.is_end:
            return encode_header(self.session, self.first, END_OF_SESSION_COUNT)
        return encode_packet(self.session, self.first, self.messages)


class Filed:
    """What the log has of one session."""

    def __init__(self) -> None:
        self.numbers = IntervalSet()
        self.stretches = Stretches()
        self.next = 1
        self.is_ended = False


class Archive:
    """The log and its index. Raises `LogError` when the log cannot be opened."""

    def __init__(self, path: Path, segment_bytes: int = LogOptions().segment_bytes) -> None:
        self.sessions: OrderedDict[bytes, Filed] = OrderedDict()  # the last one written at the end
        self.messages = 0
        self.forgotten = 0
        """Sessions in the log that were left out of the index, which holds `MAX_SESSIONS`."""
        self.damage = ""
        """The first damage found when the log was opened, in one sentence."""
        self._path = path
        self._options = LogOptions(segment_bytes=segment_bytes, sync_every_s=SYNC_EVERY_S)
        self._log = SegmentLog.open(path, self._options)
        try:
            frames = _readable(self._log, self._path, self._log.first, self._note_damage)
            for frame, payload in frames:
                self._read_frame(payload, frame)
        except BaseException:
            self._log.close()
            raise
        if self._log.recovered_cut_bytes:
            self.damage = self.damage or (
                f"{path}: cut {self._log.recovered_cut_bytes} bytes that a crash left half written"
            )

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return self._log.size_bytes

    # -- writing ---------------------------------------------------------------------------------

    def append(self, packets: Sequence[Packet]) -> int:
        """Writes packets, all or none, and returns the frame of the first, to be noted.

        Raises `LogError` when the disk refuses.
        """
        return self._log.append_many([packet.encode() for packet in packets])

    def note(self, packets: Sequence[Packet], frame: int) -> None:
        """Puts packets that were written into the index, where readers find them."""
        for number, packet in enumerate(packets, frame):
            self._note(packet.session, packet.first, len(packet.messages), packet.is_end, number)

    def sync_if_due(self, now: float) -> None:
        """Syncs now and then; raises `LogError` when the disk refuses."""
        self._log.sync_if_due(now)

    def reopen(self) -> None:
        """Opens the log again after a failure that it cannot go on from. Raises `LogError`."""
        with suppress(LogError):  # that failure again
            self._log.close()
        self._log = SegmentLog.open(self._path, self._options)

    def close(self) -> None:
        """Syncs and closes; raises `LogError` when the disk refuses, and is closed all the same."""
        self._log.close()

    # -- the index -------------------------------------------------------------------------------

    def _note_damage(self, fault: Exception) -> None:
        self.damage = self.damage or str(fault)

    def _read_frame(self, payload: bytes, frame: int) -> None:
        try:
            session, first, count = decode_header(payload)
        except Malformed as fault:
            self._note_damage(LogError(f"{self._path}: frame {frame} is no packet: {fault}"))
            return
        is_end = count == END_OF_SESSION_COUNT
        self._note(session, first, 0 if is_end else count, is_end, frame)
        if len(self.sessions) > MAX_SESSIONS:
            self.sessions.popitem(last=False)
            self.forgotten += 1

    def _note(self, session: bytes, first: int, count: int, is_end: bool, frame: int) -> None:
        filed = self.sessions.get(session)
        if filed is None:
            filed = self.sessions[session] = Filed()
        self.sessions.move_to_end(session)
        filed.next = max(filed.next, first + count)
        filed.is_ended = filed.is_ended or is_end
        if count:
            filed.numbers.add(first, first + count)
            filed.stretches.note(first, first + count, frame)
            self.messages += count


class ArchiveReader:
    """Reads messages out of the log while another thread writes it."""

    def __init__(self, path: Path, max_cached_bytes: int) -> None:
        self.faults = 0
        """Stretches of the log that could not be read."""
        self._path = path
        self._reader = SegmentReader(path)
        self._cache: OrderedDict[tuple[bytes, int, int], dict[int, bytes]] = OrderedDict()
        self._cached_bytes = 0
        self._max_cached_bytes = max_cached_bytes

    def load(
        self, session: bytes, place: int, length: int, frames: Sequence[tuple[int, int]]
    ) -> dict[int, bytes]:
        """Messages by number: what the `frames` hold of stretch `place` of a session."""
        # A stretch that has grown has other frames; the older copy of it ages out.
        key = session, place * length, sum(last for _, last in frames)
        messages = self._cache.get(key)
        if messages is None:
            messages = self._cache[key] = {}
            numbers = range(place * length, (place + 1) * length)
            for first, last in frames:
                self._collect(session, numbers, first, last, messages)
            self._cached_bytes += _size(messages)
            while self._cached_bytes > self._max_cached_bytes and len(self._cache) > 1:
                self._cached_bytes -= _size(self._cache.popitem(last=False)[1])
        self._cache.move_to_end(key)
        return messages

    def close(self) -> None:
        """Closes the files."""
        self._reader.close()

    def _collect(
        self, session: bytes, numbers: range, first: int, last: int, messages: dict[int, bytes]
    ) -> None:
        try:
            for frame, payload in _readable(self._reader, self._path, first, self._note_fault):
                if frame > last:
                    return
                if payload.startswith(session):
                    messages.update(_take(payload, numbers))
                if frame == last:
                    return
        except (LogError, Malformed) as fault:
            self._note_fault(fault)  # what was read before it can be served

    def _note_fault(self, fault: Exception) -> None:
        self.faults += 1


def _readable(
    log: SegmentLog | SegmentReader, path: Path, frame: int, on_damage: Callable[[LogCorrupt], None]
) -> Iterator[tuple[int, bytes]]:
    """Frames from `frame` on; a bad one hides the rest of its segment."""
    while True:
        try:
            for number, payload in log.read_from(frame):
                frame = number + 1
                yield number, payload
            return
        except LogCorrupt as fault:
            on_damage(fault)
            following = [first for first in list_segments(str(path)) if first > frame]
            if not following:
                return
            frame = following[0]


def _take(payload: bytes, numbers: range) -> dict[int, bytes]:
    header = decode_header(payload)
    if header.sequence >= numbers.stop or header.sequence + header.message_count <= numbers.start:
        return {}
    messages = enumerate(decode_messages(payload, header), header.sequence)
    return {number: message for number, message in messages if number in numbers}


def _size(messages: dict[int, bytes]) -> int:
    return sum(map(len, messages.values())) + MESSAGE_OVERHEAD_BYTES * (1 + len(messages))
