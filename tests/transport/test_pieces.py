import random
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onehop.transport.envelope import (
    MAX_DELIVERY_BYTES,
    MAX_EVENT_BYTES,
    MAX_PIECES,
    PIECE_OVERHEAD_BYTES,
    Piece,
    decode,
)
from onehop.transport.errors import LimitError
from onehop.transport.event import LossReason
from onehop.transport.ledger import StreamAccount
from onehop.transport.pieces import (
    MAX_LOST_RANGES,
    MAX_PARTIAL_BYTES,
    PIECE_COST_BYTES,
    Assembler,
    Complete,
    Useless,
    split,
)

SMALLEST, USUAL, LARGEST = 42, 1378, 65_485  # messages in packets of 64, 1,400 and 65,507 bytes
DEADLINE, EVICTED, ENDED = LossReason.DEADLINE, LossReason.EVICTED, LossReason.ENDED
MALFORMED, OVERFLOW = LossReason.MALFORMED, LossReason.OVERFLOW
unhurried = settings(max_examples=200, deadline=None, database=None, derandomize=True)


def pieces_of(data: bytes, max_message_bytes: int = USUAL) -> list[Piece]:
    decoded = [decode(message) for message in split(data, max_message_bytes)]
    return [piece for piece in decoded if isinstance(piece, Piece)]


def bytes_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def add_all(assembler: Assembler, pieces: Iterable[tuple[int, Piece]]) -> list[Complete | Useless]:
    return [result for number, piece in pieces for result in assembler.add(number, piece)]


def three(data: bytes = b"abc") -> list[Piece]:
    return [Piece(place, 3, data[place : place + 1]) for place in range(3)]


# -- splitting and putting together ----------------------------------------------------------------


def sizes_around_each_boundary(message_bytes: int) -> list[int]:
    step = message_bytes - PIECE_OVERHEAD_BYTES
    last = MAX_EVENT_BYTES // step
    boundaries = [count * step for count in (2, 3, 10, last) if count * step < MAX_EVENT_BYTES]
    near = {at + by for at in boundaries for by in (-1, 0, 1)}
    return sorted(near | {message_bytes + 1, MAX_EVENT_BYTES - 1, MAX_EVENT_BYTES})


@pytest.mark.parametrize("message_bytes", [SMALLEST, USUAL, LARGEST])
def test_an_event_of_any_size_is_split_and_put_together(message_bytes: int) -> None:
    for size in sizes_around_each_boundary(message_bytes):
        data = bytes_of(size)
        messages = split(data, message_bytes)
        pieces = pieces_of(data, message_bytes)

        assert max(map(len, messages)) <= message_bytes, size
        assert len(pieces) == len(messages) == -(-size // (message_bytes - PIECE_OVERHEAD_BYTES))
        assembler = Assembler(first_number=1)
        assert add_all(assembler, enumerate(pieces, 7)) == [Complete(7, len(pieces), data)], size
        assert assembler.size_bytes == 0


def test_pieces_are_equal_in_size_but_for_the_last() -> None:
    sizes = [len(piece.data) for piece in pieces_of(bytes_of(10_000))]

    assert set(sizes[:-1]) == {USUAL - PIECE_OVERHEAD_BYTES}
    assert 0 < sizes[-1] <= sizes[0]


def test_the_number_of_pieces_is_bounded() -> None:
    most = MAX_PIECES * 4

    assert len(split(bytes(most), PIECE_OVERHEAD_BYTES + 4)) == MAX_PIECES
    with pytest.raises(LimitError, match=f"{most + 1} bytes in messages of .* {MAX_PIECES} pieces"):
        split(bytes(most + 1), PIECE_OVERHEAD_BYTES + 4)


@pytest.mark.parametrize("message_bytes", [0, 1, PIECE_OVERHEAD_BYTES])
def test_messages_with_no_room_for_data_are_refused(message_bytes: int) -> None:
    with pytest.raises(LimitError, match=f"100 bytes in messages of {message_bytes}"):
        split(bytes(100), message_bytes)


@unhurried
@given(st.permutations(range(6)))
def test_pieces_may_come_in_any_order(order: list[int]) -> None:
    data = bytes_of(6 * (USUAL - PIECE_OVERHEAD_BYTES))
    pieces = pieces_of(data)
    assembler = Assembler(first_number=1)

    results = add_all(assembler, ((10 + place, pieces[place]) for place in order))

    assert results == [Complete(10, 6, data)]


def test_events_may_interleave() -> None:
    assembler = Assembler(first_number=1)
    one, two = enumerate(three(b"abc"), 1), enumerate(three(b"xyz"), 4)

    results = add_all(assembler, (pair for both in zip(one, two, strict=True) for pair in both))

    assert results == [Complete(1, 3, b"abc"), Complete(4, 3, b"xyz")]


# -- losses ----------------------------------------------------------------------------------------


def test_siblings_of_a_lost_piece_are_lost_for_the_same_reason() -> None:
    assembler = Assembler(first_number=1)
    a, _, c = three()

    assert assembler.add(5, a) == []
    assert assembler.lose(6, 1, EVICTED) == [Useless(5, 1, EVICTED)]
    assert assembler.add(7, c) == [Useless(7, 1, EVICTED)]
    assert assembler.lose(8, 1, DEADLINE) == []
    assert assembler.size_bytes == 0


def test_held_neighbours_are_lost_as_one_range() -> None:
    assembler = Assembler(first_number=1)
    for place in (0, 1, 3, 4, 5, 7):
        assembler.add(10 + place, Piece(place, 8, b"x"))

    assert assembler.lose(12, 1, DEADLINE) == [
        Useless(10, 2, DEADLINE), Useless(13, 3, DEADLINE), Useless(17, 1, DEADLINE),
    ]  # fmt: skip


def test_a_loss_reaches_every_event_it_touches_and_no_other() -> None:
    assembler = Assembler(first_number=1)
    for start in (1, 4, 7, 10):
        assembler.add(start, three()[0])

    lost = assembler.lose(6, 2, DEADLINE)

    assert lost == [Useless(4, 1, DEADLINE), Useless(7, 1, DEADLINE)]
    assert add_all(assembler, [(2, three()[1]), (3, three()[2])]) == [Complete(1, 3, b"abc")]
    assert add_all(assembler, [(11, three()[1]), (12, three()[2])]) == [Complete(10, 3, b"abc")]


def test_pieces_of_an_event_that_began_before_us_are_filtered() -> None:
    assembler = Assembler(first_number=5)

    assert assembler.add(5, three()[1]) == [Useless(5, 1, None)]
    assert assembler.add(6, three()[2]) == [Useless(6, 1, None)]
    assert add_all(assembler, enumerate(three(), 7)) == [Complete(7, 3, b"abc")]


def test_at_the_end_every_held_piece_is_given_up() -> None:
    assembler = Assembler(first_number=1)
    add_all(assembler, [(1, three()[0]), (2, three()[1]), (4, three()[0]), (6, three()[2])])

    assert assembler.end(ENDED) == [
        Useless(1, 2, ENDED), Useless(4, 1, ENDED), Useless(6, 1, ENDED),
    ]  # fmt: skip
    assert assembler.end(ENDED) == []
    assert assembler.add(3, three()[2]) == [Useless(3, 1, ENDED)]


@pytest.mark.parametrize("losses", [MAX_LOST_RANGES - 1, MAX_LOST_RANGES, MAX_LOST_RANGES + 1])
def test_the_last_losses_are_remembered(losses: int) -> None:
    assembler = Assembler(first_number=1)
    for at in range(losses):
        assembler.lose(2 + 10 * at, 1, DEADLINE)

    result = assembler.add(1, three()[0])

    assert result == ([Useless(1, 1, DEADLINE)] if losses <= MAX_LOST_RANGES else [])
    if not result:  # it waits for a sibling that was lost and forgotten, until the end
        assert assembler.end(ENDED) == [Useless(1, 1, ENDED)]


@unhurried
@given(st.data())
def test_every_number_is_settled_once_whatever_is_lost_and_in_whatever_order(
    data: st.DataObject,
) -> None:
    counts = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=6))
    owner = [(event, place, count) for event, count in enumerate(counts) for place in range(count)]
    first = data.draw(st.integers(1, len(owner)))
    numbers = range(first, len(owner) + 1)
    lost = data.draw(st.sets(st.sampled_from(numbers)))
    account = StreamAccount("s", 1, "", first)
    account.expect(len(owner) + 1)
    assembler = Assembler(first)
    reasons: dict[int, set[LossReason | None]] = {}
    complete = set()

    for number in data.draw(st.permutations(numbers)):
        event, place, count = owner[number - 1]
        results: list[Complete | Useless]
        if number in lost:
            account.lose(number, 1, DEADLINE)
            results = [*assembler.lose(number, 1, DEADLINE)]
        else:
            results = assembler.add(number, Piece(place, count, b"%d" % event))
        for result in results:
            if isinstance(result, Complete):
                assert result.data == b"%d" % event * count
                account.deliver(result.first, result.count)
                complete.add(event)
            elif result.reason is None:
                account.filter(result.first, result.count)
            else:
                account.lose(result.first, result.count, result.reason)
                reasons.setdefault(owner[result.first - 1][0], set()).add(result.reason)

    assert account.pending == 0
    assert assembler.size_bytes == 0
    at = {event: [n for n, own in enumerate(owner, 1) if own[0] == event] for event, *_ in owner}
    assert complete == {
        event for event, own in at.items() if own[0] >= first and not lost & set(own)
    }
    assert all(seen == {DEADLINE} for seen in reasons.values())


# -- what a broken publisher may send --------------------------------------------------------------


def test_pieces_that_disagree_on_their_number_are_malformed_once() -> None:
    assembler = Assembler(first_number=1)
    assembler.add(1, Piece(0, 3, b"a"))

    results = assembler.add(2, Piece(1, 4, b"b"))

    assert results == [Useless(1, 1, MALFORMED), Useless(2, 1, MALFORMED)]
    assert assembler.add(3, Piece(2, 3, b"c")) == [Useless(3, 1, MALFORMED)]


def test_the_same_number_again_changes_nothing() -> None:
    assembler = Assembler(first_number=1)
    add_all(assembler, [(1, Piece(0, 3, b"a")), (1, Piece(0, 3, b"z")), (2, Piece(1, 3, b"b"))])

    assert assembler.add(3, Piece(2, 3, b"c")) == [Complete(1, 3, b"abc")]
    assert assembler.size_bytes == 0


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_an_event_larger_than_allowed_is_malformed_even_when_complete(extra: int) -> None:
    assembler = Assembler(first_number=1)
    half = MAX_DELIVERY_BYTES // 2

    results = add_all(
        assembler, [(1, Piece(0, 2, bytes(half))), (2, Piece(1, 2, bytes(half + extra)))]
    )

    if extra <= 0:
        assert results == [Complete(1, 2, bytes(MAX_DELIVERY_BYTES + extra))]
    else:
        assert results == [Useless(1, 2, MALFORMED)]
    assert assembler.size_bytes == 0


def test_beyond_the_memory_bound_the_oldest_event_is_given_up() -> None:
    assembler = Assembler(first_number=1)
    chunk = MAX_PARTIAL_BYTES // 32 - PIECE_COST_BYTES
    for at in range(32):
        assert assembler.add(1 + 2 * at, Piece(0, 2, bytes(chunk))) == []
    assert assembler.size_bytes == MAX_PARTIAL_BYTES

    assert assembler.add(65, Piece(0, 2, b"x")) == [Useless(1, 1, OVERFLOW)]
    assert assembler.add(2, Piece(1, 2, b"x")) == [Useless(2, 1, OVERFLOW)]
    assert assembler.add(4, Piece(1, 2, b"x")) == [Complete(3, 2, bytes(chunk) + b"x")]


def test_many_tiny_events_before_large_ones_do_not_stretch_the_bound() -> None:
    assembler = Assembler(first_number=1)
    given_up = 0

    for at in range(2000):
        size = 1 if at < 1000 else LARGEST
        given_up += sum(
            result.count for result in assembler.add(1 + 2 * at, Piece(0, 2, bytes(size)))
        )
        assert assembler.size_bytes <= MAX_PARTIAL_BYTES

    held = MAX_PARTIAL_BYTES // (LARGEST + PIECE_COST_BYTES)
    assert given_up == 2000 - held


def test_tiny_pieces_cost_little_more_memory_than_the_bound_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = MAX_PARTIAL_BYTES // 8
    monkeypatch.setattr("onehop.transport.pieces.MAX_PARTIAL_BYTES", bound)
    assembler = Assembler(first_number=1)
    tracemalloc.start()
    try:
        for at in range(2 * bound // PIECE_COST_BYTES):
            assembler.add(1 + 2 * at, Piece(0, 2, b"x"))
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert assembler.size_bytes <= bound
    assert held_bytes < 2 * bound
