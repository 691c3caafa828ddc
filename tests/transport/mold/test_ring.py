"""The retransmit ring: what it keeps, and what it lets go at each of its bounds."""

import pytest

from onehop.transport.errors import ConfigurationError
from onehop.transport.mold import RingOptions
from onehop.transport.mold.ring import RetransmitRing
from onehop.transport.mold.wire import HEADER_BYTES, MAX_MESSAGE_COUNT, encode_block

BLOCK = encode_block(b"12345678")


def ring_of(
    count: int, *, max_messages: int = 1000, max_bytes: int = 1_000_000, max_age_s: float = 60.0
) -> RetransmitRing:
    """A ring to which `count` blocks of ten bytes were added, one a second."""
    ring = RetransmitRing(RingOptions(max_messages, max_bytes, max_age_s))
    for number in range(1, count + 1):
        assert ring.append(BLOCK, float(number)) == number
    return ring


@pytest.mark.parametrize(("count", "first"), [(4, 1), (5, 1), (6, 2), (17, 13)])
def test_it_is_bounded_by_messages(count: int, first: int) -> None:
    ring = ring_of(count, max_messages=5)
    assert (ring.first, ring.next) == (first, count + 1)
    assert ring.evicted == first - 1
    assert len(ring.blocks(first, 1000, 100_000)) == min(count, 5)


@pytest.mark.parametrize(("count", "first"), [(4, 1), (5, 1), (6, 2), (17, 13)])
def test_it_is_bounded_by_bytes(count: int, first: int) -> None:
    ring = ring_of(count, max_bytes=5 * len(BLOCK))
    assert (ring.first, ring.next) == (first, count + 1)
    assert ring.size_bytes == min(count, 5) * len(BLOCK)


def test_the_newest_message_is_kept_even_if_it_alone_is_over_the_bytes() -> None:
    ring = ring_of(3, max_bytes=4)
    assert (ring.first, ring.next, ring.size_bytes) == (3, 4, len(BLOCK))


@pytest.mark.parametrize(("count", "first"), [(10, 1), (11, 1), (12, 2)])
def test_it_is_bounded_by_age(count: int, first: int) -> None:
    assert ring_of(count, max_age_s=10.0).first == first


def test_after_a_long_silence_only_the_newest_is_left() -> None:
    ring = ring_of(5, max_age_s=10.0)
    ring.append(BLOCK, 1000.0)
    assert (ring.first, ring.next) == (6, 7)


def test_blocks_come_by_number_and_at_most_as_many_as_asked_for() -> None:
    ring = RetransmitRing(RingOptions(max_messages=4))
    for number in range(1, 8):
        ring.append(encode_block(b"%d" % number), float(number))
    assert ring.blocks(5, 2, 1400) == [b"\0\x015", b"\0\x016"]
    assert ring.blocks(6, 10, 1400) == [b"\0\x016", b"\0\x017"]
    assert ring.sent_at(6) == 6.0


@pytest.mark.parametrize(("room", "fitting"), [(29, 2), (30, 3), (31, 3)])
def test_blocks_stop_where_the_packet_is_full(room: int, fitting: int) -> None:
    assert len(ring_of(9).blocks(1, 9, HEADER_BYTES + room)) == fitting


def test_a_single_block_is_never_too_large() -> None:
    assert len(ring_of(3).blocks(1, 3, HEADER_BYTES + 1)) == 1


def test_blocks_are_at_most_what_a_packet_can_count() -> None:
    ring = RetransmitRing(RingOptions(max_messages=MAX_MESSAGE_COUNT + 2))
    for _ in range(MAX_MESSAGE_COUNT + 2):
        ring.append(b"\0\0", 0.0)
    assert len(ring.blocks(1, MAX_MESSAGE_COUNT + 2, 1_000_000)) == MAX_MESSAGE_COUNT


@pytest.mark.parametrize("name", ["max_messages", "max_bytes", "max_age_s"])
def test_a_bound_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"ring {name} is 0"):
        RingOptions(**{name: 0})
