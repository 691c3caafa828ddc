"""What a request server keeps in memory: any order, holes, one bound over all sessions."""

from random import Random

import pytest

from onehop.transport.errors import ConfigurationError
from onehop.transport.intervals import IntervalSet
from onehop.transport.mold.store import MESSAGE_OVERHEAD_BYTES, MemoryStore, ResumePoints, Shelf
from onehop.transport.mold.wire import HEADER_BYTES, LENGTH_BYTES, encode_block

SESSION = b"SESSION001"
OTHER = b"SESSION002"
COST = 10 + MESSAGE_OVERHEAD_BYTES
"""What a message of ten bytes counts."""


def message(number: int) -> bytes:
    return b"%010d" % number


def keep(store: MemoryStore, *numbers: int, session: bytes = SESSION, now: float = 0.0) -> None:
    for number in numbers:
        store.keep(session, number, [message(number)], now)


def shelf_of(store: MemoryStore, session: bytes = SESSION) -> Shelf:
    shelf = store.shelf(session)
    assert shelf is not None
    return shelf


def served(store: MemoryStore, first: int, count: int = 100, packet_bytes: int = 1400) -> list[int]:
    blocks = shelf_of(store).blocks(first, count, packet_bytes)
    assert blocks == [encode_block(message(first + at)) for at in range(len(blocks))]
    return list(range(first, first + len(blocks)))


def test_messages_come_in_any_order_and_are_served_by_number() -> None:
    store = MemoryStore(1_000_000)
    keep(store, 3, 1, 2)
    assert served(store, 1) == [1, 2, 3]
    assert (shelf_of(store).first, shelf_of(store).next) == (1, 4)


def test_a_reply_ends_at_a_hole() -> None:
    store = MemoryStore(1_000_000)
    keep(store, 1, 2, 4)
    assert served(store, 1) == [1, 2]
    assert served(store, 3) == []
    assert shelf_of(store).first_here(3) == 4


@pytest.mark.parametrize(("spare", "count"), [(-1, 2), (0, 3), (1, 3)])
def test_a_reply_fits_its_packet(spare: int, count: int) -> None:
    store = MemoryStore(1_000_000)
    keep(store, 1, 2, 3, 4)
    size = HEADER_BYTES + 3 * (LENGTH_BYTES + 10) + spare
    assert len(served(store, 1, packet_bytes=size)) == count


def test_a_message_larger_than_a_packet_is_served_alone() -> None:
    store = MemoryStore(1_000_000)
    keep(store, 1, 2)
    assert served(store, 1, packet_bytes=24) == [1]


def test_keeping_a_number_twice_changes_nothing() -> None:
    store = MemoryStore(1_000_000)
    store.keep(SESSION, 1, [message(1), message(2)], 0.0)
    store.keep(SESSION, 2, [b"another one", message(3)], 5.0)
    assert served(store, 1) == [1, 2, 3]
    assert store.kept == 3
    assert store.size_bytes == 3 * COST
    assert shelf_of(store).sent_at(2) == 0.0


@pytest.mark.parametrize(("spare", "first"), [(-1, 2), (0, 1), (1, 1)])
def test_at_the_bound_the_lowest_number_goes(spare: int, first: int) -> None:
    store = MemoryStore(3 * COST + spare)
    keep(store, 1, 2, 3)
    assert served(store, first) == list(range(first, 4))
    assert shelf_of(store).first == first
    assert store.evicted == first - 1
    assert store.in_memory == 4 - first
    assert store.size_bytes <= 3 * COST + spare


def test_the_session_whose_message_came_first_gives_way() -> None:
    store = MemoryStore(3 * COST)
    keep(store, 1, session=OTHER)
    keep(store, 1, 2, 3)
    assert shelf_of(store, OTHER).is_empty
    assert served(store, 1) == [1, 2, 3]


def test_replay_of_old_numbers_does_not_push_out_newer_ones() -> None:
    store = MemoryStore(3 * COST)
    keep(store, 10, 11, 12, 1, 2, 3)
    assert served(store, 10) == [10, 11, 12]
    assert store.evicted == 3


def test_what_comes_below_the_first_is_counted_and_not_kept() -> None:
    store = MemoryStore(2 * COST)
    keep(store, 1, 2, 3, 1)
    assert store.evicted == 2
    assert served(store, 2) == [2, 3]


def test_losing_numbers_at_the_front_moves_the_first() -> None:
    store = MemoryStore(1_000_000)
    keep(store, 5)
    store.lose(SESSION, 1, 4)
    assert shelf_of(store).first == 5
    assert store.lost == 4


def test_what_is_here_cannot_be_lost() -> None:
    store = MemoryStore(1_000_000)
    keep(store, 2)
    store.lose(SESSION, 1, 3)
    assert store.lost == 2
    assert served(store, 2) == [2]


def test_a_hole_is_expected_until_it_is_lost() -> None:
    store = MemoryStore(1_000_000)
    keep(store, 1, 5)
    shelf = shelf_of(store)
    assert not shelf.is_lost(2, 5)
    store.lose(SESSION, 2, 2)
    assert shelf.is_lost(2, 4)
    assert not shelf.is_lost(2, 5)
    store.lose(SESSION, 4, 1)
    assert shelf.is_lost(2, 5)
    assert not shelf.is_lost(2, 6)


def test_a_session_goes_on_at_its_first_hole() -> None:
    store = MemoryStore(1_000_000)
    points = ResumePoints(store)
    assert points.get(SESSION) is None
    keep(store, 1, 2, 4)
    assert points[SESSION] == 3
    keep(store, 3)
    assert dict(points) == {SESSION: 5}
    store.expect(SESSION, 9, is_ended=False)
    assert points[SESSION] == 5


def test_a_heartbeat_tells_what_exists_and_an_end_that_there_is_no_more() -> None:
    store = MemoryStore(1_000_000)
    keep(store, 1)
    store.expect(SESSION, 4, is_ended=False)
    assert shelf_of(store).next == 4
    store.expect(SESSION, 3, is_ended=True)
    assert shelf_of(store).next == 4
    assert shelf_of(store).is_ended


@pytest.mark.parametrize(("sessions", "forgotten"), [(2, 0), (3, 0), (4, 1)])
def test_beyond_the_most_sessions_the_quietest_goes(sessions: int, forgotten: int) -> None:
    store = MemoryStore(1_000_000, max_sessions=3)
    names = [b"SESSION%03d" % number for number in range(sessions)]
    for name in names:
        keep(store, 1, session=name)
    assert [name for name, _ in store.shelves()] == names[forgotten:]
    assert store.forgotten == forgotten
    assert store.size_bytes == COST * (sessions - forgotten)


def test_a_ring_without_room_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ring is 0 bytes"):
        MemoryStore(0)


@pytest.mark.parametrize("seed", range(5))
def test_the_highest_numbers_are_here_whatever_the_order(seed: int) -> None:
    random = Random(seed)
    store, came = MemoryStore(50 * COST), set[int]()
    for _ in range(400):
        first = random.randint(1, 120)
        numbers = range(first, first + random.randint(1, 6))
        store.keep(SESSION, first, [message(number) for number in numbers], 0.0)
        came |= set(numbers)
        shelf = shelf_of(store)
        here = {number for number in range(1, 130) if served(store, number, 1)}
        assert here == {number for number in came if number >= min(here)}
        assert min(50, len(came)) - 5 <= len(here) == store.in_memory <= 50
        assert shelf.first_here(first) == min((n for n in here if n >= first), default=None)
        came &= here  # what is gone does not come back


@pytest.mark.parametrize("seed", range(5))
def test_intervals_agree_with_a_set(seed: int) -> None:
    random = Random(seed)
    intervals, numbers = IntervalSet(), set[int]()
    for _ in range(300):
        start = random.randint(0, 80)
        stop = start + random.randint(1, 8)
        if random.random() < 0.2:
            intervals.drop_below(start)
            numbers = {number for number in numbers if number >= start}
        else:
            intervals.add(start, stop)
            numbers |= set(range(start, stop))
        low, high = random.randint(0, 90), random.randint(0, 90)
        missing = [n for first, end in intervals.missing(low, high) for n in range(first, end)]
        assert missing == [number for number in range(low, high) if number not in numbers]
        assert intervals.first_from(low) == min((n for n in numbers if n >= low), default=None)
