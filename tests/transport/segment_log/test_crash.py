"""A log cut at any byte, damaged at its end, or killed while it writes."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from onehop.transport.errors import LogError
from onehop.transport.segment_log import LogCorrupt, LogOptions, SegmentLog, SegmentReader
from onehop.transport.segment_log.frames import encode_file_header, encode_frames

OPTIONS = LogOptions(segment_bytes=150)


def segment(path: Path, first: int) -> Path:
    return path / f"{first:020}.seg"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A log of two segments: frames 1 and 2, then 3, 4 and 5."""
    path = tmp_path / "written"
    with SegmentLog.open(path, OPTIONS) as log:
        log.append(b"in the sealed segment")
        log.append(b"also there")
        log.roll()
        log.append_many([b"three", b"", b"five five"])
    return path


def reopened(path: Path) -> tuple[int, list[bytes]]:
    """Open a damaged log twice around one append; return what was cut and what was left."""
    with SegmentLog.open(path, OPTIONS) as log:
        cut_bytes = log.recovered_cut_bytes
        left = [payload for _, payload in log.read_from(1)]
        assert log.append(b"goes on") == len(left) + 1
        assert log.read(len(left) + 1) == b"goes on"
    with SegmentLog.open(path, OPTIONS) as log:
        assert log.recovered_cut_bytes == 0
        assert [payload for _, payload in log.read_from(1)] == [*left, b"goes on"]
    return cut_bytes, left


def test_cut_at_every_byte_leaves_the_whole_frames_before_it(written: Path) -> None:
    with SegmentReader(written) as reader:
        payloads = [payload for _, payload in reader.read_from(1)]
    data = segment(written, 3).read_bytes()
    ends = [24, 24 + 25, 24 + 45, 24 + 74]
    assert ends[-1] == len(data)
    for size in range(len(data)):
        segment(written, 3).write_bytes(data[:size])
        whole = max((place for place, end in enumerate(ends) if end <= size), default=0)
        kept = ends[whole] if size >= 24 else 0
        assert reopened(written) == (size - kept, payloads[: 2 + whole])


def test_cut_at_every_byte_of_a_log_just_created_leaves_an_empty_log(tmp_path: Path) -> None:
    for size in range(24):
        segment(tmp_path, 1).write_bytes(encode_file_header(1)[:size])
        assert reopened(tmp_path) == (size, [])


def test_header_of_zeros_as_after_a_power_loss_is_written_anew(written: Path) -> None:
    segment(written, 3).write_bytes(bytes(24))
    assert reopened(written) == (24, [b"in the sealed segment", b"also there"])


def test_every_damaged_byte_of_the_last_frame_costs_that_frame_only(written: Path) -> None:
    data = segment(written, 3).read_bytes()
    for offset in range(24 + 45, len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 0xFF
        segment(written, 3).write_bytes(damaged)
        cut_bytes, left = reopened(written)
        assert (cut_bytes, len(left)) == (29, 4)


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 77, encode_frames(5, [b"old"])[0]])
def test_rubbish_after_the_last_frame_is_cut(written: Path, tail: bytes) -> None:
    with segment(written, 3).open("ab") as file:
        file.write(tail)
    cut_bytes, left = reopened(written)
    assert (cut_bytes, len(left)) == (len(tail), 5)


def test_damage_before_the_last_segment_is_never_cut(written: Path) -> None:
    file = segment(written, 1)
    data = bytearray(file.read_bytes())
    data[24 + 20] ^= 1
    file.write_bytes(data)
    with SegmentLog.open(written, OPTIONS) as log:
        assert log.recovered_cut_bytes == 0
        with pytest.raises(LogCorrupt, match="byte 24: frame 1 does not match its CRC"):
            log.read(1)
        assert log.read(3) == b"three"
    assert file.read_bytes() == data


@pytest.mark.parametrize("offset", range(24))
def test_bad_header_before_frames_is_refused_and_left_alone(written: Path, offset: int) -> None:
    data = bytearray(segment(written, 3).read_bytes())
    data[offset] ^= 1
    segment(written, 3).write_bytes(data)
    with pytest.raises(LogCorrupt, match=f"{3:020}.seg: byte 0: bad file header"):
        SegmentLog.open(written, OPTIONS)
    assert segment(written, 3).read_bytes() == data


@pytest.mark.parametrize("frames", [b"", b"frames of a later format"])
def test_another_format_version_is_refused_and_left_alone(tmp_path: Path, frames: bytes) -> None:
    fields = struct.pack(">8sHHQ", b"1HOPSEGM", 2, 0, 1)
    data = fields + struct.pack(">I", zlib.crc32(fields)) + frames
    segment(tmp_path, 1).write_bytes(data)
    with pytest.raises(LogError, match="format version is 2, expected 1"):
        SegmentLog.open(tmp_path)
    assert segment(tmp_path, 1).read_bytes() == data


def test_batch_killed_before_its_first_header_is_not_there_at_all(tmp_path: Path) -> None:
    batch = encode_frames(1, [b"a", b"b", b"c"])[0]
    segment(tmp_path, 1).write_bytes(encode_file_header(1) + bytes(20) + batch[20:])
    with SegmentReader(tmp_path) as reader:
        assert reader.last == 0
    assert reopened(tmp_path) == (len(batch), [])


APPENDS_UNTIL_KILLED = """
import sys
from onehop.transport.segment_log import LogOptions, SegmentLog
log = SegmentLog.open(sys.argv[1], LogOptions(segment_bytes=20_000))
while True:
    number = log.next_number
    if number % 3:
        log.append(b"%d," % number * (number % 40))
        number += 1
    else:
        log.append_many([b"%d," % n * (n % 40) for n in range(number, number + 5)])
        number += 5
    sys.stdout.write(f"{number - 1}\\n")
    sys.stdout.flush()
"""


def test_killed_process_loses_nothing_it_was_told_is_written(tmp_path: Path) -> None:
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", APPENDS_UNTIL_KILLED, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        for _ in range(400):
            assert child.stdout.readline()
        with SegmentReader(tmp_path) as reader:
            seen = reader.last  # by another process while the first one writes
        child.kill()
        lines = child.stdout.read().split(b"\n")
        child.stdout.close()
        assert child.wait() == -9
        # The last line may have been cut by the kill; the one before it was not.
        acknowledged = int(lines[-2]) if len(lines) > 1 else 0
        with SegmentLog.open(tmp_path) as log:
            assert log.last >= max(acknowledged, seen)
            for number, payload in log.read_from(1):
                assert payload == b"%d," % number * (number % 40)
            assert number == log.last
