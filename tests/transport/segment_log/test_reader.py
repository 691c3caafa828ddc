"""Reading while another one writes, and what is said about damage."""

import errno
import os
from pathlib import Path

import pytest

from onehop.transport.errors import Closed, LogError
from onehop.transport.segment_log import LogCorrupt, LogOptions, NotInLog, SegmentLog, SegmentReader
from onehop.transport.segment_log import reader as reader_module
from onehop.transport.segment_log.frames import encode_file_header, encode_frames

SMALL = LogOptions(segment_bytes=200)


def segment(path: Path, first: int) -> Path:
    return path / f"{first:020}.seg"


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


def test_reader_follows_over_rolls(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, SMALL) as log, SegmentReader(tmp_path) as reader:
        assert (reader.first, reader.last) == (1, 0)
        at = 1
        for step in range(60):
            log.append_many([b"%d" % step] * (step % 4))
            for number, payload in reader.read_from(at):
                assert number == at
                assert payload == log.read(number)
                at += 1
            assert at == log.next_number
            assert reader.last == log.last
        assert len(list(tmp_path.glob("*.seg"))) > 5


def test_iteration_sees_frames_that_come_meanwhile(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, SMALL) as log:
        log.append(b"1")
        seen = []
        for number, _ in log.read_from(1):
            seen.append(number)
            if number < 40:
                log.append(b"more")
        assert seen == list(range(1, 41))


def test_reader_stops_at_every_unfinished_tail_and_goes_on_when_it_is_whole(
    tmp_path: Path,
) -> None:
    data = encode_file_header(1) + encode_frames(1, [b"one", b"two"])[0]
    file = segment(tmp_path, 1)
    with SegmentReader(tmp_path) as reader:
        assert list(reader.read_from(1)) == []
        for size in range(len(data) + 1):
            file.write_bytes(data[:size])
            whole = (size >= 24 + 23) + (size >= 24 + 46)
            assert reader.last == whole
            assert list(reader.read_from(whole + 1)) == []
            with pytest.raises(NotInLog, match="not written yet"):
                reader.read(whole + 1)
        assert reader.read(2) == b"two"


def test_random_reads_find_every_frame_of_large_segments(tmp_path: Path) -> None:
    payloads = [b"%06d" % number * (number % 50) for number in range(1, 3001)]
    with SegmentLog.open(tmp_path, LogOptions(segment_bytes=150_000)) as log:
        for start in range(0, 3000, 100):
            log.append_many(payloads[start : start + 100])
        with SegmentReader(tmp_path) as reader:
            for number in [*range(3000, 0, -97), *range(1, 3001, 89)]:
                assert reader.read(number) == log.read(number) == payloads[number - 1]


def test_frame_larger_than_one_read_comes_back(tmp_path: Path) -> None:
    large = os.urandom(300_000)
    with SegmentLog.open(tmp_path) as log:
        log.append_many([b"before", large, b"after"])
    with SegmentReader(tmp_path) as reader:
        assert [payload for _, payload in reader.read_from(1)] == [b"before", large, b"after"]


def test_open_files_and_indexes_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "MAX_OPEN_SEGMENTS", 3)
    monkeypatch.setattr(reader_module, "MAX_INDEXED_SEGMENTS", 5)
    with SegmentLog.open(tmp_path, SMALL) as log:
        for _ in range(10):
            log.append(bytes(150))
        before = len(os.listdir("/proc/self/fd"))
        with SegmentReader(tmp_path) as reader:
            for number in (1, 2, 3, 4, 1, 9, 8, 7, 6, 5):
                assert len(reader.read(number)) == 150
                assert len(os.listdir("/proc/self/fd")) <= before + 3
                assert len(reader._indexes) <= 5
        assert len(os.listdir("/proc/self/fd")) == before


def test_iteration_survives_that_its_file_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "MAX_OPEN_SEGMENTS", 1)
    with SegmentLog.open(tmp_path, SMALL) as log, SegmentReader(tmp_path) as reader:
        for number in range(1, 9):
            log.append(b"%d" % number * 60)
        expected = list(log.read_from(1))
        running = reader.read_from(1)
        got = []
        for number in (8, 1, 5, 3):
            got.append(next(running))
            reader.read(number)
        assert got + list(running) == expected


def test_dropped_frames_are_refused_not_skipped(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, SMALL) as log, SegmentReader(tmp_path) as reader:
        for _ in range(5):
            log.append(bytes(150))
        running = reader.read_from(1)
        assert next(running)[0] == 1
        log.drop_before(4)
        with pytest.raises(NotInLog, match="no frame 2, the first is 4"):
            next(running)
        with pytest.raises(NotInLog, match="no frame 1, the first is 4"):
            reader.read(1)
        assert (reader.first, reader.last) == (4, 5)


def test_number_beyond_the_end_is_refused(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log, SegmentReader(tmp_path) as reader:
        log.append(b"x")
        with pytest.raises(NotInLog, match="frame 3 is beyond the next one, 2"):
            list(reader.read_from(3))


@pytest.mark.parametrize("offset", range(24, 24 + 40))
def test_damage_in_a_sealed_segment_is_raised_with_file_and_byte(
    tmp_path: Path, offset: int
) -> None:
    # Two frames of 20 bytes and a third; the second segment begins with frame 3.
    segment(tmp_path, 1).write_bytes(encode_file_header(1) + encode_frames(1, [b"", b""])[0])
    segment(tmp_path, 3).write_bytes(encode_file_header(3) + encode_frames(3, [b"x"])[0])
    flip(segment(tmp_path, 1), offset)
    bad_at = 24 if offset < 44 else 44
    with SegmentReader(tmp_path) as reader:
        running = reader.read_from(1)
        if bad_at == 44:
            assert next(running) == (1, b"")
        with pytest.raises(LogCorrupt, match=f"{1:020}.seg: byte {bad_at}: ") as caught:
            next(running)
        assert (caught.value.path, caught.value.offset) == (str(segment(tmp_path, 1)), bad_at)
        assert reader.read(3) == b"x"


@pytest.mark.parametrize("size", [0, 10, 23, 24, 30, 43, 44, 63])
def test_sealed_segment_cut_short_is_raised(tmp_path: Path, size: int) -> None:
    whole = encode_file_header(1) + encode_frames(1, [b"", b""])[0]
    segment(tmp_path, 1).write_bytes(whole[:size])
    segment(tmp_path, 3).write_bytes(encode_file_header(3))
    with SegmentReader(tmp_path) as reader, pytest.raises(LogCorrupt, match=f"{1:020}.seg: byte"):
        list(reader.read_from(1))


def test_missing_segment_is_raised(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path, SMALL) as log:
        for _ in range(3):
            log.append(bytes(150))
        segment(tmp_path, 2).unlink()
        for source in (log, SegmentReader(tmp_path)):
            with pytest.raises(
                LogCorrupt, match="ends before frame 2, the next segment begins at 3"
            ):
                list(source.read_from(1))


def test_damage_to_a_frame_that_was_whole_is_raised_in_the_last_segment_too(
    tmp_path: Path,
) -> None:
    with SegmentLog.open(tmp_path) as log, SegmentReader(tmp_path) as reader:
        log.append_many([b"one", b"two", b"three"])
        assert reader.last == 3
        with segment(tmp_path, 1).open("r+b") as file:
            file.seek(24 + 23 + 20)
            file.write(b"X")
        for source in (log, reader):
            assert source.read(1) == b"one"
            for number in (2, 3):
                with pytest.raises(LogCorrupt, match="byte 47: frame 2 does not match its CRC"):
                    source.read(number)


def test_file_under_a_wrong_name_or_of_another_version_is_refused(tmp_path: Path) -> None:
    segment(tmp_path, 5).write_bytes(encode_file_header(6))
    with SegmentReader(tmp_path) as reader, pytest.raises(LogCorrupt, match="says frame 6"):
        reader.read(5)
    header = bytearray(encode_file_header(5))
    header[9] = 2
    header[20:] = (0).to_bytes(4, "big")
    segment(tmp_path, 5).write_bytes(header + b"frames")
    with SegmentReader(tmp_path) as reader, pytest.raises(LogCorrupt, match="bad file header"):
        reader.read(5)


def test_missing_directory_is_a_log_error_and_closed_reader_says_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot list") as caught:
        SegmentReader(tmp_path / "none")
    assert caught.value.errno == errno.ENOENT
    reader = SegmentReader(tmp_path)
    reader.close()
    reader.close()
    with pytest.raises(Closed):
        reader.read(1)


def test_segment_created_a_second_time_is_seen(tmp_path: Path) -> None:
    with SegmentReader(tmp_path) as reader:
        segment(tmp_path, 1).write_bytes(encode_file_header(1))
        assert reader.last == 0
        segment(tmp_path, 1).unlink()
        segment(tmp_path, 1).write_bytes(encode_file_header(1) + encode_frames(1, [b"x"])[0])
        assert reader.read(1) == b"x"


def test_other_files_in_the_directory_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "1.seg").touch()
    (tmp_path / f"{7:020}.seg.bak").touch()
    with SegmentLog.open(tmp_path) as log:
        assert log.append(b"x") == 1
