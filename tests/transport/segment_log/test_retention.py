"""What goes when the log is bounded by number, size or age."""

import os
from pathlib import Path

import pytest

from onehop.transport.segment_log import LogFull, LogOptions, NotInLog, SegmentLog

FRAME = bytes(80)  # 100 bytes as a frame: two in a segment of 250
SEGMENT_BYTES = 250


def filled(path: Path, count: int, options: LogOptions | None = None) -> SegmentLog:
    log = SegmentLog.open(path, options or LogOptions(segment_bytes=SEGMENT_BYTES))
    for _ in range(count):
        log.append(FRAME)
    return log


def test_drop_before_removes_only_whole_older_segments(tmp_path: Path) -> None:
    with filled(tmp_path, 7) as log:
        assert log.drop_before(2) == 0
        assert log.drop_before(4) == 2
        assert (log.first, log.last) == (3, 7)
        assert log.drop_before(1000) == 4
        assert (log.first, log.last) == (7, 7)
        assert log.dropped_frames == 0
        with pytest.raises(NotInLog):
            log.read(6)
        assert log.size_bytes == sum(file.stat().st_size for file in tmp_path.glob("*.seg"))


def test_emptied_log_keeps_its_numbers_over_a_reopening(tmp_path: Path) -> None:
    with filled(tmp_path, 3) as log:
        log.roll()
        assert log.drop_before(4) == 3
        assert (log.first, log.last) == (4, 3)
    with SegmentLog.open(tmp_path) as log:
        assert (log.first, log.last, log.synced_to, log.append(b"x")) == (4, 3, 3, 4)


def test_full_log_refuses_at_the_bound_and_takes_again_after_a_drop(tmp_path: Path) -> None:
    # 24 + 100 + 100, then the same: 448 bytes are four frames in two segments.
    options = LogOptions(segment_bytes=SEGMENT_BYTES, max_bytes=548)
    with filled(tmp_path, 4, options) as log:
        assert log.size_bytes == 448
        for _ in range(2):
            with pytest.raises(LogFull, match="100 bytes more make 572, max_bytes is 548"):
                log.append(FRAME)
        assert (log.size_bytes, log.last) == (448, 4)
        with pytest.raises(LogFull):
            log.append(bytes(57))  # with the header of a new segment one byte too many
        assert log.append(bytes(56)) == 5
        assert log.size_bytes == 548
        log.drop_before(3)
        assert log.append(FRAME) == 6
        assert log.dropped_frames == 0


def test_full_log_drops_the_oldest_and_counts(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=SEGMENT_BYTES, max_bytes=548, when_full="drop_oldest")
    with filled(tmp_path, 4, options) as log:
        for number in range(5, 50):
            before = log.first
            assert log.append(FRAME) == number
            assert log.size_bytes <= 548
            assert log.dropped_frames == log.first - 1
            assert log.first in (before, before + 2)
        assert [number for number, _ in log.read_from(log.first)] == [47, 48, 49]


def test_frame_larger_than_the_bound_is_refused_before_anything_is_dropped(
    tmp_path: Path,
) -> None:
    options = LogOptions(segment_bytes=SEGMENT_BYTES, max_bytes=548, when_full="drop_oldest")
    with filled(tmp_path, 4, options) as log:
        with pytest.raises(LogFull):
            log.append(bytes(548 - 24 - 20 + 1))
        assert (log.first, log.last) == (1, 4)
        assert log.append(bytes(548 - 24 - 20)) == 5
        assert (log.first, log.size_bytes, log.dropped_frames) == (5, 548, 4)


def test_expired_segments_go_from_the_oldest_and_are_counted(tmp_path: Path) -> None:
    with filled(tmp_path, 7, LogOptions(segment_bytes=SEGMENT_BYTES, max_age_s=10.0)) as log:
        for first, written_at in ((1, 100.0), (3, 105.0), (5, 106.0), (7, 107.0)):
            os.utime(tmp_path / f"{first:020}.seg", (written_at, written_at))
        assert log.drop_expired(110.0) == 0
        assert log.drop_expired(115.5) == 4
        assert (log.first, log.last) == (5, 7)
        assert log.drop_expired(1000.0) == 3  # the active one was rolled
        assert (log.first, log.last, log.dropped_frames) == (8, 7, 7)
        assert log.drop_expired(2e10) == 0  # an empty active segment stays
        assert log.append(b"x") == 8


def test_without_max_age_nothing_expires(tmp_path: Path) -> None:
    with filled(tmp_path, 3) as log:
        assert log.drop_expired(2e10) == 0


def test_segment_that_cannot_be_removed_is_reported_and_what_went_is_counted(
    tmp_path: Path,
) -> None:
    options = LogOptions(segment_bytes=SEGMENT_BYTES, max_age_s=1.0)
    with filled(tmp_path, 5, options) as log:
        stuck = tmp_path / f"{3:020}.seg"
        stuck.unlink()
        stuck.mkdir()
        os.utime(stuck, (1.0, 1.0))
        os.utime(tmp_path / f"{1:020}.seg", (1.0, 1.0))
        with pytest.raises(OSError, match="cannot remove old segments"):
            log.drop_expired(50.0)
        assert (log.first, log.dropped_frames) == (3, 2)
