"""The log as its writer sees it: numbers, segments, syncs, failed writes."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onehop.transport.errors import Closed, ConfigurationError, LimitError, LogError
from onehop.transport.segment_log import (
    MAX_FRAME_BYTES,
    LogOptions,
    NotInLog,
    SegmentLog,
    SegmentReader,
)
from onehop.transport.segment_log.options import MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES

SMALL = LogOptions(segment_bytes=200)


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("*.seg"))


def content(log: SegmentLog) -> list[tuple[int, bytes]]:
    return list(log.read_from(log.first))


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Make the system refuse files longer than this; Python ignores the signal for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_frames_are_numbered_from_one_and_come_back(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path / "a" / "b") as log:
        assert (log.first, log.last, log.next_number) == (1, 0, 1)
        assert log.append(b"one") == 1
        assert log.append_many([b"two", bytearray(b"three"), memoryview(b"")]) == 2
        assert log.append_many([]) == 5
        assert (log.first, log.last, log.next_number) == (1, 4, 5)
        assert log.read(3) == b"three"
        assert content(log) == [(1, b"one"), (2, b"two"), (3, b"three"), (4, b"")]
        size = log.size_bytes
    assert names(tmp_path / "a" / "b") == ["00000000000000000001.seg"]
    assert (tmp_path / "a" / "b" / names(tmp_path / "a" / "b")[0]).stat().st_size == size
    with SegmentLog.open(tmp_path / "a" / "b") as log:
        assert log.recovered_cut_bytes == 0
        assert log.append(b"five") == 5
        assert log.read(1) == b"one"


def test_segment_rolls_before_it_passes_its_size_and_a_large_frame_has_its_own(
    tmp_path: Path,
) -> None:
    with SegmentLog.open(tmp_path, SMALL) as log:
        log.append(bytes(200 - 24 - 20 - 20))
        log.append(b"")  # ends at byte 200
        assert names(tmp_path) == ["00000000000000000001.seg"]
        log.append(b"")
        log.append(bytes(1000))
        log.append(b"after")
        assert names(tmp_path)[1:] == [f"{number:020}.seg" for number in (3, 4, 5)]
        assert [number for number, _ in content(log)] == [1, 2, 3, 4, 5]
        assert log.size_bytes == sum(file.stat().st_size for file in tmp_path.glob("*.seg"))


def test_roll_without_frames_does_nothing(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        log.roll()
        log.append(b"x")
        log.roll()
        log.roll()
        assert len(names(tmp_path)) == 2
        assert (log.last, log.append(b"y")) == (1, 2)


def test_numbers_outside_the_log_are_refused(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        log.append(b"x")
        assert list(log.read_from(2)) == []
        for number in (0, 3):
            with pytest.raises(NotInLog, match=f"no frame {number}, the log has 1 to 1"):
                log.read_from(number)
        with pytest.raises(NotInLog, match="frame 2 is not written yet"):
            log.read(2)


def test_too_large_a_frame_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        size = log.size_bytes
        with pytest.raises(LimitError):
            log.append(bytes(MAX_FRAME_BYTES + 1))
        assert (log.size_bytes, log.append(b"x")) == (size, 1)


def test_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with (
        SegmentLog.open(tmp_path),
        pytest.raises(LogError, match=f"{tmp_path}/lock: another writer"),
    ):
        SegmentLog.open(tmp_path)
    SegmentLog.open(tmp_path).close()


def test_failed_open_lets_the_lock_go(tmp_path: Path) -> None:
    segment = tmp_path / f"{1:020}.seg"
    segment.write_bytes(bytes(100))
    with pytest.raises(LogError, match="bad file header"):
        SegmentLog.open(tmp_path)
    segment.unlink()
    SegmentLog.open(tmp_path).close()


def test_path_that_is_a_file_is_a_log_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="cannot open"):
        SegmentLog.open(tmp_path / "file")


def test_synced_to_moves_with_sync_and_at_a_roll(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, LogOptions(sync="manual")) as log:
        log.append_many([b"a", b"b"])
        assert log.synced_to == 0
        assert not log.sync_if_due(100.0)
        log.sync()
        assert log.synced_to == 2
        log.append(b"c")
        log.roll()
        assert log.synced_to == 3
        log.append(b"d")
    with SegmentLog.open(tmp_path) as log:
        assert log.synced_to == 4


def test_group_sync_waits_for_its_time(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, LogOptions(sync_every_s=1.0)) as log:
        assert not log.sync_if_due(10.0)
        log.append(b"a")
        assert log.sync_if_due(10.0)
        log.append(b"b")
        assert not log.sync_if_due(10.9)
        assert log.synced_to == 1
        assert log.sync_if_due(11.0)
        assert log.synced_to == 2


def test_always_syncs_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    with SegmentLog.open(tmp_path, LogOptions(sync="always")) as log:
        monkeypatch.setattr(os, "fdatasync", calls.append)
        log.append(b"a")
        assert (log.synced_to, len(calls)) == (1, 1)


def test_failed_sync_stops_writing_until_the_log_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    log = SegmentLog.open(tmp_path)
    log.append(b"a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(LogError, match="cannot sync"):
            log.sync()
    for write in (lambda: log.append(b"b"), log.sync, log.roll):
        with pytest.raises(LogError, match="a sync failed; close the log and open it again"):
            write()
    assert log.synced_to == 0
    assert log.read(1) == b"a"
    log.close()
    with SegmentLog.open(tmp_path) as log:
        assert (log.last, log.synced_to) == (1, 1)


@pytest.mark.parametrize("room", range(0, 60, 7))
def test_write_the_system_refuses_leaves_nothing_and_the_log_goes_on(
    tmp_path: Path, room: int
) -> None:
    with SegmentLog.open(tmp_path) as log, SegmentReader(tmp_path) as reader:
        log.append(b"before")
        size = log.size_bytes
        with file_size_limit(size + room):
            for batch in ([bytes(40)], [b"small", b"small", bytes(40)]):
                with pytest.raises(LogError, match="cannot write frame 2") as caught:
                    log.append_many(batch)
                assert caught.value.errno == errno.EFBIG
                assert (tmp_path / names(tmp_path)[0]).stat().st_size == log.size_bytes == size
                assert reader.last == 1
        assert log.append(b"after") == 2
        assert content(log) == [(1, b"before"), (2, b"after")]
        assert reader.read(2) == b"after"
    with SegmentLog.open(tmp_path) as log:
        assert (log.recovered_cut_bytes, log.last) == (0, 2)


@pytest.mark.parametrize("room", [0, 1, 23])
def test_segment_that_cannot_be_created_is_removed_and_the_log_goes_on(
    tmp_path: Path, room: int
) -> None:
    with SegmentLog.open(tmp_path, SMALL) as log, SegmentReader(tmp_path) as reader:
        log.append(bytes(130))
        with file_size_limit(room):
            with pytest.raises(LogError, match="cannot begin segment 2"):
                log.append(bytes(130))
            assert names(tmp_path) == [f"{1:020}.seg"]
        assert log.append(b"") == 2  # still fits the first segment
        assert log.append(bytes(130)) == 3
        assert names(tmp_path) == [f"{1:020}.seg", f"{3:020}.seg"]
        assert reader.last == 3


def test_write_that_cannot_be_cut_away_stops_the_log_and_reopening_cuts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    log = SegmentLog.open(tmp_path)
    log.append(b"a")
    with monkeypatch.context() as patch, file_size_limit(log.size_bytes + 10):
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(LogError, match="cannot write frame 2"):
            log.append(b"b")
    with pytest.raises(LogError, match="could not be cut away"):
        log.append(b"b")
    log.close()
    with SegmentLog.open(tmp_path) as log:
        assert (log.recovered_cut_bytes, log.last) == (10, 1)


def test_foreign_file_in_the_place_of_the_next_segment_is_not_touched(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        log.append(b"a")
        foreign = tmp_path / f"{2:020}.seg"
        foreign.write_bytes(b"mine")
        with pytest.raises(LogError, match="cannot begin segment 2"):
            log.roll()
        with pytest.raises(LogError, match="made by someone else"):
            log.append(b"b")
    assert foreign.read_bytes() == b"mine"


def test_closed_log_says_so_and_close_repeats(tmp_path: Path) -> None:
    log = SegmentLog.open(tmp_path)
    log.append(b"a")
    log.append(b"b")
    running = log.read_from(1)
    next(running)
    log.close()
    log.close()
    for use in (lambda: log.append(b"a"), log.sync, log.roll, lambda: log.read(1)):
        with pytest.raises(Closed):
            use()
    assert next(running) == (2, b"b")  # read before the close
    with pytest.raises(Closed):
        next(running)


@pytest.mark.parametrize(
    "options",
    [
        {"segment_bytes": MIN_SEGMENT_BYTES - 1},
        {"segment_bytes": MAX_SEGMENT_BYTES + 1},
        {"segment_bytes": 1000, "max_bytes": 1999},
        {"max_age_s": 0.0},
        {"max_age_s": float("nan")},
        {"sync_every_s": -1.0},
        {"when_full": "panic"},
        {"sync": "sometimes"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(reversed(options))):
        LogOptions(**options)  # type: ignore[arg-type]


def test_options_at_their_bounds_are_taken() -> None:
    LogOptions(segment_bytes=MIN_SEGMENT_BYTES)
    LogOptions(segment_bytes=MAX_SEGMENT_BYTES)
    LogOptions(segment_bytes=1000, max_bytes=2000)
