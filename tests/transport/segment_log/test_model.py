"""The log against a plain list, over any order of calls, reopenings and crashes."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from onehop.transport.segment_log import LogOptions, SegmentLog, SegmentReader

OPTIONS = LogOptions(segment_bytes=300)
PAYLOADS = st.binary(max_size=120)


class LogAgainstList(RuleBasedStateMachine):
    """`frames` is what the log must hold, `first` the number of its first entry."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="segment-log-"))
        self.log = SegmentLog.open(self.path, OPTIONS)
        self.reader = SegmentReader(self.path)
        self.frames: list[bytes] = []
        self.first = 1
        self.followed_to = 1

    @property
    def next_number(self) -> int:
        return self.first + len(self.frames)

    @rule(payload=PAYLOADS)
    def append(self, payload: bytes) -> None:
        assert self.log.append(payload) == self.next_number
        self.frames.append(payload)

    @rule(payloads=st.lists(PAYLOADS, max_size=6))
    def append_many(self, payloads: list[bytes]) -> None:
        assert self.log.append_many(payloads) == self.next_number
        self.frames += payloads

    @rule()
    def sync(self) -> None:
        self.log.sync()
        assert self.log.synced_to == self.next_number - 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def drop_before(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(self.first, self.next_number + 1))
        firsts = sorted(int(file.stem) for file in self.path.glob("*.seg"))
        expected = max([first for first in firsts if first <= number], default=self.first)
        assert self.log.drop_before(number) == expected - self.first
        del self.frames[: expected - self.first]
        self.first = expected
        self.followed_to = max(self.followed_to, expected)

    @rule()
    def follow(self) -> None:
        for number, payload in self.reader.read_from(self.followed_to):
            assert payload == self.frames[number - self.first]
            self.followed_to = number + 1
        assert self.followed_to == self.next_number

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = SegmentLog.open(self.path, OPTIONS)
        assert self.log.recovered_cut_bytes == 0

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def crash_in_the_last_segment(self, data: st.DataObject) -> None:
        """As a power loss does: the last segment loses some of its end."""
        self.log.close()
        last = max(self.path.glob("*.seg"))
        start = int(last.stem)
        in_last = self.frames[start - self.first :]
        content = last.read_bytes()
        size = data.draw(st.integers(0, len(content)))
        rubbish = data.draw(st.binary(max_size=30)) if size >= 24 else b""
        last.write_bytes(content[:size] + rubbish)
        offset, kept = 24, 0
        while kept < len(in_last) and offset + 20 + len(in_last[kept]) <= size:
            offset += 20 + len(in_last[kept])
            kept += 1
        del self.frames[start - self.first + kept :]
        self.log = SegmentLog.open(self.path, OPTIONS)
        # No reader lives through a power loss.
        self.reader.close()
        self.reader = SegmentReader(self.path)
        self.followed_to = min(self.followed_to, self.next_number)

    @invariant()
    def numbers_and_size_agree(self) -> None:
        assert (self.log.first, self.log.next_number) == (self.first, self.next_number)
        assert self.log.size_bytes == sum(file.stat().st_size for file in self.path.glob("*.seg"))
        assert self.log.synced_to <= self.log.last

    @invariant()
    def content_agrees(self) -> None:
        got = [payload for _, payload in self.log.read_from(self.first)]
        assert got == self.frames
        for number in {self.first, self.next_number - 1} - {self.first + len(self.frames)}:
            if number >= self.first:
                assert self.log.read(number) == self.frames[number - self.first]

    def teardown(self) -> None:
        self.log.close()
        self.reader.close()
        shutil.rmtree(self.path)


LogAgainstList.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, derandomize=True, database=None
)
TestLogAgainstList = LogAgainstList.TestCase
