"""Rings of many streams within one bound."""

from random import Random

from onehop.transport.mold.ring import RingOptions
from onehop.transport.zeromq.rings import RingSpace, StreamRing


def test_the_oldest_message_of_all_goes_first() -> None:
    space = RingSpace(RingOptions(max_messages=3))
    a, b = StreamRing(space), StreamRing(space)
    for now, ring in enumerate((a, b, b, a, b)):
        ring.append(b"x", float(now))

    assert (a.first, a.next) == (2, 3)
    assert (b.first, b.next) == (2, 4)
    assert len(space) == 3
    assert space.evicted == 2


def test_bytes_are_bounded_over_all_rings_but_the_newest_stays() -> None:
    space = RingSpace(RingOptions(max_bytes=10))
    a, b = StreamRing(space), StreamRing(space)
    a.append(b"12345", 0.0)
    b.append(b"12345", 0.0)
    assert space.size_bytes == 10
    b.append(b"1", 0.0)
    assert (a.first, a.next, space.size_bytes) == (2, 2, 6)
    a.append(b"x" * 50, 0.0)
    assert (len(space), space.size_bytes) == (1, 50)
    assert a.blocks(2, 5, 1400) == [b"x" * 50]


def test_what_is_too_old_goes_when_something_new_comes() -> None:
    space = RingSpace(RingOptions(max_age_s=10.0))
    a, b = StreamRing(space), StreamRing(space)
    a.append(b"old", 0.0)
    b.append(b"at the bound", 1.0)
    b.append(b"new", 11.0)

    assert (a.first, a.next) == (2, 2)
    assert (b.first, b.next) == (1, 3)
    assert b.sent_at(1) == 1.0


def test_blocks_are_as_many_as_fit_a_packet_and_one_at_least() -> None:
    ring = StreamRing(RingSpace(RingOptions()))
    for number in range(5):
        ring.append(bytes([number]) * 100, 0.0)

    assert [block[0] for block in ring.blocks(2, 9, 20 + 300)] == [1, 2, 3]
    assert [block[0] for block in ring.blocks(2, 2, 1400)] == [1, 2]
    assert len(ring.blocks(1, 9, 50)) == 1


def test_sums_hold_whatever_is_sent() -> None:
    random = Random(5)
    space = RingSpace(RingOptions(max_messages=50, max_bytes=2000, max_age_s=5.0))
    rings = [StreamRing(space) for _ in range(7)]
    now = 0.0
    for _ in range(5000):
        now += random.expovariate(20)
        random.choice(rings).append(random.randbytes(random.randint(1, 120)), now)
        assert len(space) <= 50
        assert space.size_bytes <= 2000
        assert space.size_bytes == sum(ring.size_bytes for ring in rings)
        assert len(space) == sum(ring.next - ring.first for ring in rings)
