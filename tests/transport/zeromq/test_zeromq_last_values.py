"""The last value of each topic: what is remembered, and what a copy of it looks like."""

import pytest

from onehop.transport.envelope import SEQUENCE_HEADER, EventEncoder, Whole, decode
from onehop.transport.mold import RingOptions
from onehop.transport.mold.wire import LENGTH_BYTES
from onehop.transport.pieces import Assembler, Complete
from onehop.transport.zeromq.last_values import LastValues, Snapshot


def remember(
    values: LastValues, topic: str, value: object, number: int, key: str | None = None
) -> None:
    data = EventEncoder("me").encode(topic, value, key, 0, 0, None)
    values.remember(topic, key, topic.partition(".")[0], number, data)


def read(snapshot: Snapshot) -> list[tuple[str, object, str]]:
    found = []
    for number in range(1, snapshot.next):
        (block,) = snapshot.blocks(number, 1, 10**6)
        event = decode(block[LENGTH_BYTES:])
        assert isinstance(event, Whole)
        found.append((event.topic, event.value, event.headers[SEQUENCE_HEADER]))
    return found


def test_a_newer_value_takes_the_place_of_the_older_one() -> None:
    values = LastValues(RingOptions())
    remember(values, "q.a", 1, 1)
    remember(values, "q.b", 2, 2)
    remember(values, "q.a", 3, 3)
    assert read(values.snapshot((), 1000)) == [("q.b", 2, "2"), ("q.a", 3, "3")]


def test_each_key_of_a_topic_has_its_own() -> None:
    values = LastValues(RingOptions())
    remember(values, "temperature", 20, 1, "kitchen")
    remember(values, "temperature", 18, 2, "bath")
    assert len(values) == 2


def test_only_the_topics_that_are_wanted_are_copied() -> None:
    values = LastValues(RingOptions())
    for number, topic in enumerate(["q.a", "q.b", "r.a"], 1):
        remember(values, topic, number, number)
    assert [topic for topic, *_ in read(values.snapshot(("q.a", "r."), 1000))] == ["q.a", "r.a"]


@pytest.mark.parametrize(("topics", "forgotten"), [(4, 0), (5, 0), (6, 1)])
def test_topics_are_bounded_and_the_longest_silent_is_forgotten(
    topics: int, forgotten: int
) -> None:
    values = LastValues(RingOptions(), max_values=5)
    for number in range(topics):
        remember(values, f"t.{number}", number, number + 1)
    assert (len(values), values.forgotten) == (topics - forgotten, forgotten)
    assert read(values.snapshot((), 1000))[0][1] == forgotten


def test_bytes_are_bounded_but_one_value_is_always_kept() -> None:
    values = LastValues(RingOptions(max_bytes=1000))
    for number in range(4):
        remember(values, f"t.{number}", b"x" * 400, number + 1)
    assert (len(values), values.forgotten) == (2, 2)
    assert values.size_bytes <= 1000
    remember(values, "t.large", b"x" * 5000, 9)
    assert len(values) == 1


def test_a_value_larger_than_a_packet_is_copied_in_pieces() -> None:
    values = LastValues(RingOptions())
    remember(values, "t", b"x" * 5000, 7)
    snapshot = values.snapshot((), 1000)
    assembler, whole = Assembler(1), []
    for number in range(1, snapshot.next):
        (block,) = snapshot.blocks(number, 1, 1022)
        piece = decode(block[LENGTH_BYTES:])
        assert not isinstance(piece, Whole)
        whole += [r for r in assembler.add(number, piece) if isinstance(r, Complete)]
    event = decode(whole[0].data)
    assert isinstance(event, Whole)
    assert event.value == b"x" * 5000


def test_a_packet_of_a_copy_holds_what_fits() -> None:
    values = LastValues(RingOptions())
    for number in range(10):
        remember(values, f"t.{number}", number, number + 1)
    snapshot = values.snapshot((), 1000)
    size = len(snapshot.blocks(1, 1, 1000)[0])
    assert len(snapshot.blocks(1, 65535, 20 + 3 * size)) == 3
    assert len(snapshot.blocks(9, 65535, 20 + 3 * size)) == 2
    assert len(snapshot.blocks(1, 2, 1000)) == 2
