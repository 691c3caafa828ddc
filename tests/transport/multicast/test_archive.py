"""Messages in a log, found by number: across restarts, damage and refusing disks."""

from pathlib import Path
from random import Random

import pytest

from onehop.transport.errors import LogError
from onehop.transport.mold.wire import encode_block
from onehop.transport.multicast import archive, file_store
from onehop.transport.multicast.archive import Archive, Packet
from onehop.transport.multicast.file_store import CALM_S, FileStore
from onehop.transport.segment_log import SegmentLog
from onehop.transport.segment_log.directory import list_segments, segment_path

SESSION = b"SESSION001"
OTHER = b"SESSION002"


def message(number: int) -> bytes:
    return b"%010d" % number


def keep(
    store: FileStore, first: int, count: int = 1, session: bytes = SESSION, now: float = 0.0
) -> None:
    messages = [message(number) for number in range(first, first + count)]
    store.keep(session, first, messages, now)
    store.flush(now)


def served(store: FileStore, numbers: range, session: bytes = SESSION) -> list[int]:
    """Those of `numbers` that are served, each asked for by itself."""
    shelf = store.shelf(session)
    if shelf is None:
        return []
    found = [number for number in numbers if shelf.blocks(number, 1, 1400)]
    assert all(shelf.blocks(n, 1, 1400) == [encode_block(message(n))] for n in found)
    return found


def test_what_was_flushed_is_served_by_the_next_process(tmp_path: Path) -> None:
    store = FileStore(1_000_000, tmp_path)
    keep(store, 1, 500)
    store.expect(SESSION, 501, is_ended=True)
    store.flush(0.0)
    store.close()
    again = FileStore(1_000_000, tmp_path)
    assert again.in_memory == 0
    assert served(again, range(1, 600)) == list(range(1, 501))
    shelf = again.shelf(SESSION)
    assert shelf is not None
    assert (shelf.first, shelf.next, shelf.is_ended, shelf.resume_at()) == (1, 501, True, 501)
    again.close()


def test_what_left_memory_is_served_from_the_file(tmp_path: Path) -> None:
    store = FileStore(2_000, tmp_path)
    for first in range(1, 1001, 10):
        keep(store, first, 10)
    assert store.in_memory < 10
    assert served(store, range(1, 1001)) == list(range(1, 1001))
    shelf = store.shelf(SESSION)
    assert shelf is not None
    assert shelf.blocks(1, 65534, 1400) == [encode_block(message(n)) for n in range(1, 116)]
    assert shelf.sent_at(1) == float("-inf")
    store.close()


def test_a_hole_in_the_file_is_where_it_goes_on(tmp_path: Path) -> None:
    store = FileStore(1_000_000, tmp_path)
    keep(store, 1, 10)
    keep(store, 15, 10)
    store.close()
    again = FileStore(1_000_000, tmp_path)
    shelf = again.shelf(SESSION)
    assert shelf is not None
    assert shelf.resume_at() == 11
    assert shelf.first_here(11) == 15
    keep(again, 8, 10)
    assert served(again, range(1, 30)) == list(range(1, 25))
    assert again.kept == 4
    assert again.archive.messages == 24
    again.close()


@pytest.mark.parametrize("seed", range(4))
def test_sessions_and_repairs_in_any_order_are_found(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    store = FileStore(3_000, tmp_path)
    chunks = [
        (session, first)
        for session in (SESSION, OTHER)
        for first in range(1, 3001, 5)
        if random.random() < 0.9
    ]
    # In order but for one in ten, which comes anywhere.
    chunks.sort(key=lambda c: c[1] + (random.randint(0, 3000) if random.random() < 0.1 else 0))
    for at, (session, first) in enumerate(chunks):
        keep(store, first, 5, session)
        if at == len(chunks) // 2:
            store.close()
            store = FileStore(3_000, tmp_path)
    for session in (SESSION, OTHER):
        expected = [n for name, first in sorted(chunks) if name == session
                    for n in range(first, first + 5)]  # fmt: skip
        assert served(store, range(1, 3100), session) == expected
    store.close()


def test_a_frame_holds_what_comes_together(tmp_path: Path) -> None:
    store = FileStore(10_000_000, tmp_path)
    for first in range(1, 101, 10):
        store.keep(SESSION, first, [message(n) for n in range(first, first + 10)], 0.0)
    store.keep(OTHER, 1, [message(1)], 0.0)
    store.flush(0.0)
    store.close()
    with SegmentLog.open(tmp_path) as log:
        assert log.last == 2


# -- damage ------------------------------------------------------------------------------------


def fill_segments(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A log of several small segments with 1000 messages; their first frames."""
    monkeypatch.setattr(file_store, "Archive", lambda where: Archive(where, segment_bytes=8192))
    store = FileStore(1_000, path)
    for first in range(1, 1001, 5):
        keep(store, first, 5)
    store.close()
    return list_segments(str(path))


def flip_byte(path: Path, segment: int, offset: int) -> None:
    with open(segment_path(str(path), segment), "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_damage_hides_only_the_rest_of_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = fill_segments(tmp_path, monkeypatch)
    assert len(segments) > 2
    flip_byte(tmp_path, segments[1], 4000)
    store = FileStore(1_000, tmp_path)
    assert "CRC" in store.archive.damage or "frame" in store.archive.damage
    here = served(store, range(1, 1001))
    gone = sorted(set(range(1, 1001)) - set(here))
    assert 0 < len(gone) < 500
    assert gone == list(range(gone[0], gone[-1] + 1))
    shelf = store.shelf(SESSION)
    assert shelf is not None
    assert shelf.resume_at() == gone[0]
    keep(store, gone[0], len(gone))
    assert served(store, range(1, 1001)) == list(range(1, 1001))
    store.close()


def test_damage_that_comes_later_is_counted_and_what_is_before_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = fill_segments(tmp_path, monkeypatch)
    store = FileStore(1_000, tmp_path)
    flip_byte(tmp_path, segments[1], 4000)
    here = served(store, range(1, 1001))
    assert 1 in here
    assert 1000 in here
    assert 500 < len(here) < 1000
    assert store.reader.faults > 0
    store.close()


def test_a_torn_end_is_cut_and_told(tmp_path: Path) -> None:
    store = FileStore(1_000_000, tmp_path)
    keep(store, 1, 10)
    keep(store, 11, 10)
    store.close()
    (segment,) = list_segments(str(tmp_path))
    with open(segment_path(str(tmp_path), segment), "r+b") as file:
        file.truncate(file.seek(0, 2) - 3)
    again = FileStore(1_000_000, tmp_path)
    assert served(again, range(1, 30)) == list(range(1, 11))
    assert "half written" in again.archive.damage
    again.close()


def test_a_log_held_by_another_writer_is_refused(tmp_path: Path) -> None:
    store = FileStore(1_000_000, tmp_path)
    with pytest.raises(LogError, match="another writer"):
        FileStore(1_000_000, tmp_path)
    store.close()


# -- a disk that refuses -----------------------------------------------------------------------


def refuse(monkeypatch: pytest.MonkeyPatch, fault: LogError) -> None:
    def append(self: Archive, packets: list[Packet]) -> int:
        raise fault

    monkeypatch.setattr(Archive, "append", append)


def test_a_full_disk_is_counted_and_memory_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(1_000_000, tmp_path)
    keep(store, 1, 10)
    with monkeypatch.context() as full:
        refuse(full, LogError(28, "log: cannot write frame 2: No space left on device"))
        keep(store, 11, 10)
        assert store.fault.endswith("No space left on device; what comes is kept in memory only")
        assert store.not_filed == 10
        assert served(store, range(1, 30)) == list(range(1, 21))
    keep(store, 21, 4, now=CALM_S)
    assert store.fault
    keep(store, 25, 1, now=CALM_S + 0.1)
    assert store.fault == ""
    assert served(store, range(1, 30)) == list(range(1, 26))
    store.close()
    again = FileStore(1_000_000, tmp_path)
    assert served(again, range(1, 30)) == [*range(1, 11), *range(21, 26)]
    again.close()


def test_what_the_disk_refused_and_memory_let_go_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(2_000, tmp_path)
    keep(store, 1, 10)
    with monkeypatch.context() as full:
        refuse(full, LogError(28, "No space left on device"))
        keep(store, 11, 20)
    keep(store, 31, 20)
    shelf = store.shelf(SESSION)
    assert shelf is not None
    assert shelf.is_lost(11, 31)
    assert shelf.first_here(11) == 31
    assert shelf.first == 1
    store.close()


def test_a_log_that_cannot_go_on_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(1_000_000, tmp_path)
    keep(store, 1, 10)
    with monkeypatch.context() as broken:
        refuse(broken, LogError("a sync failed; close the log and open it again"))
        keep(store, 11, 1)
    keep(store, 12, 1)
    assert store.fault == ""
    store.close()
    again = FileStore(1_000_000, tmp_path)
    assert served(again, range(1, 30)) == [*range(1, 11), 12]
    again.close()


@pytest.mark.parametrize(("sessions", "forgotten"), [(3, 0), (4, 0), (5, 1)])
def test_the_index_holds_the_sessions_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: int, forgotten: int
) -> None:
    store = FileStore(1_000_000, tmp_path)
    for number in range(sessions):
        keep(store, 1, 1, b"SESSION%03d" % number)
    store.close()
    monkeypatch.setattr(archive, "MAX_SESSIONS", 4)
    again = FileStore(1_000_000, tmp_path)
    assert len(again) == sessions - forgotten
    assert again.archive.forgotten == forgotten
    again.close()
