"""The lane, compiled and plain: what is next goes through, everything else comes out untouched."""

import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from onehop.transport import _datagrams, _lane, datagrams
from onehop.transport import lane as lanes
from onehop.transport.datagrams import Address, PurePythonReader, Received
from onehop.transport.envelope import EventEncoder, encode_piece
from onehop.transport.lane import NOW, SLEEPING, SPINNING, PythonLane
from onehop.transport.mold.wire import END_OF_SESSION_COUNT, encode_header, encode_packet

pytestmark = pytest.mark.twin

SESSION = b"SESSION..1"
LAST = 2**64 - 1
OBSTACLE = object()
"""Something that is no message."""


def event(topic: str, value: object = None, sent_at_ns: int = 5) -> bytes:
    return EventEncoder("source").encode(topic, value, None, 4, sent_at_ns, None)


class Wire:
    """A socket that a lane reads, and two others that send to it."""

    def __init__(self) -> None:
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
        for each in self.sockets:
            each.bind(("127.0.0.1", 0))
        self.inlet, self.sender, self.stranger = self.sockets

    @property
    def origin(self) -> Address:
        address: Address = self.sender.getsockname()
        return address

    def send(self, *packets: bytes) -> None:
        for packet in packets:
            self.sender.sendto(packet, self.inlet.getsockname())

    def lane(self, kind: str, *, is_raw: bool = True, **options: Any) -> PythonLane:
        options.setdefault("topics", ())
        if kind == "compiled":
            return _lane.Lane(_datagrams.DatagramReader(self.inlet), is_raw=is_raw, **options)
        if kind == "messages":
            return _lane.MessageLane(PurePythonReader(self.inlet), is_raw=is_raw, **options)
        return PythonLane(PurePythonReader(self.inlet), is_raw=is_raw, **options)

    def close(self) -> None:
        for each in self.sockets:
            each.close()


KINDS = ["python", "compiled", "messages"]
MakeLane = Callable[..., PythonLane]


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


@pytest.fixture(params=KINDS)
def make_lane(request: pytest.FixtureRequest, wire: Wire) -> MakeLane:
    """A lane open at number 1."""

    def make(next_number: int = 1, **options: Any) -> PythonLane:
        lane = wire.lane(request.param, **options)
        lane.open(SESSION, wire.origin, "name", 77)
        lane.expect(next_number)
        return lane

    return make


def packet(first: int, *messages: bytes) -> bytes:
    return encode_packet(SESSION, first, messages)


def test_packets_in_order_become_events(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane()
    wire.send(packet(1, b"a", b"b"), packet(3, b""))
    assert lane.read(SLEEPING, 1.0) == []
    assert (len(lane), lane.next_number, lane.size_bytes) == (3, 4, 2)
    events = lane.take_many(10)
    assert [(e.sequence, e.value, e.source, e.epoch) for e in events] == [
        (1, b"a", "name", 77), (2, b"b", "name", 77), (3, b"", "name", 77),
    ]  # fmt: skip
    assert all(e.received_at_ns > 10**18 for e in events)
    assert lane.take() is None
    assert lane.size_bytes == 0
    assert lane.settle() == ([(1, 4, False)], [])
    assert lane.settle() == ([], [])


@pytest.mark.parametrize(
    "other",
    [
        packet(2, b"skipped one"),
        encode_packet(b"OTHER....1", 1, [b"x"]),
        encode_header(SESSION, 1, 0),
        encode_header(SESSION, 1, END_OF_SESSION_COUNT),
        packet(1, b"abc")[:-1],
        packet(1, b"abc") + b"\0",
        packet(1, b"a")[:18] + b"\0\2" + packet(1, b"a")[20:],
        b"short",
        b"",
    ],
)
def test_what_is_not_next_comes_out_with_all_behind_it(
    wire: Wire, make_lane: MakeLane, other: bytes
) -> None:
    lane = make_lane()
    wire.send(other, packet(1, b"behind"))
    rest = lane.read(SLEEPING, 1.0)
    rest += lane.read(NOW, 0.0)
    assert [(data, origin) for data, origin, _ in rest] == [
        (other, wire.origin), (packet(1, b"behind"), wire.origin),
    ]  # fmt: skip
    assert len(lane) == 0
    assert lane.next_number == 1


def test_a_packet_from_another_address_comes_out(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane()
    wire.stranger.sendto(packet(1, b"x"), wire.inlet.getsockname())
    ((_, origin, _),) = lane.read(SLEEPING, 1.0)
    assert origin == wire.stranger.getsockname()
    assert len(lane) == 0


def test_numbers_end_at_the_last_one(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane(LAST)
    wire.send(packet(LAST, b"a", b"b"))
    assert len(lane.read(SLEEPING, 1.0)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_lane_that_was_never_opened_has_nothing_and_takes_nothing(wire: Wire, kind: str) -> None:
    lane = wire.lane(kind)
    wire.send(packet(1, b"a"))
    assert (lane.take(), lane.take_many(5), lane.pop(), lane.settle()) == (None, [], None, ([], []))
    assert len(lane.read(SLEEPING, 1.0)) == 1


def test_opening_again_forgets_which_packet_was_next(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane(7)
    lane.open(SESSION, wire.origin, "name", 78)
    assert lane.next_number == 0


def test_number_zero_is_none(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane(0)
    wire.send(packet(0, b"a"))
    assert len(lane.read(SLEEPING, 1.0)) == 1


def test_events_are_decoded_and_timed(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane(is_raw=False)
    wire.send(packet(1, event("t", {"a": 1}, sent_at_ns=6)))
    lane.read(SLEEPING, 1.0)
    taken = lane.take()
    assert taken is not None
    assert (taken.topic, taken.value, taken.source) == ("t", {"a": 1}, "source")
    assert (taken.epoch, taken.sequence, taken.occurred_at_ns, taken.sent_at_ns) == (77, 1, 4, 6)
    runs, (latency_ns,) = lane.settle()
    assert runs == [(1, 2, False)]
    assert latency_ns > 10**18  # sent in 1970


def test_a_time_beyond_64_bits_of_sign_is_no_fault(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane(is_raw=False)
    wire.send(packet(1, event("t", sent_at_ns=LAST)))
    lane.read(SLEEPING, 1.0)
    assert lane.take() is not None
    assert lane.settle()[1][0] < 0


def test_unwanted_topics_are_filtered_by_number(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane(is_raw=False, topics=("want", "also"))
    topics = ["want.a", "no", "no", "also", "wan", "want"]
    wire.send(packet(1, *(event(topic) for topic in topics)))
    lane.read(SLEEPING, 1.0)
    assert [e.topic for e in lane.take_many(10)] == ["want.a", "also", "want"]
    runs, _ = lane.settle()
    assert runs == [
        (1, 2, False), (2, 3, True), (3, 4, True), (4, 5, False), (5, 6, True), (6, 7, False),
    ]  # fmt: skip


@pytest.mark.parametrize("odd", [b"\xc1", encode_piece(0, 2, b"x"), b""])
def test_what_is_no_plain_event_waits_to_be_popped(
    wire: Wire, make_lane: MakeLane, odd: bytes
) -> None:
    lane = make_lane(is_raw=False)
    wire.send(packet(1, event("a"), odd, event("b")))
    lane.read(SLEEPING, 1.0)
    assert [e.topic for e in lane.take_many(10)] == ["a"]
    assert (lane.is_stuck, lane.settle()[0]) == (True, [(1, 2, False)])
    popped = lane.pop()
    assert popped is not None
    assert popped[:2] == (2, odd)
    assert lane.is_stuck is False
    assert [e.topic for e in lane.take_many(10)] == ["b"]
    assert lane.settle()[0] == [(3, 4, False)]
    assert lane.pop() is None


def test_what_came_the_long_way_is_taken_in_the_order_it_was_pushed(
    wire: Wire, make_lane: MakeLane
) -> None:
    lane = make_lane(5)
    lane.push(3, [b"a", b"b"], 8)
    wire.send(packet(5, b"c"))
    lane.read(SLEEPING, 1.0)
    lane.push(9, [b"d"], 8)
    lane.push(2, [b"e"], 8)
    assert [e.sequence for e in lane.take_many(10)] == [3, 4, 5, 9, 2]
    assert lane.settle()[0] == [(3, 6, False), (9, 10, False), (2, 3, False)]
    assert lane.next_number == 6


def test_an_obstacle_waits_to_be_popped(make_lane: MakeLane) -> None:
    lane = make_lane()
    lane.push(1, [b"a"], 8)
    lane.push(2, (OBSTACLE,), 0)
    lane.push(7, [b"b"], 8)
    assert [e.sequence for e in lane.take_many(10)] == [1]
    assert (lane.is_stuck, lane.pop()) == (True, (2, OBSTACLE, 0))
    assert [e.sequence for e in lane.take_many(10)] == [7]


def test_a_long_wait_with_short_looks_keeps_every_message(make_lane: MakeLane) -> None:
    lane = make_lane()
    numbers = []
    for first in range(1, 30_001, 3):
        lane.push(first, [b"x", b"y", b"z"], 8)
        if first > 9_000:  # from here on as many are taken as come, thousands behind
            numbers += [e.sequence for e in lane.take_many(3)]
    assert len(lane) == 9_000
    numbers += [e.sequence for e in lane.take_many(30_000)]
    assert numbers == list(range(1, 30_001))
    assert lane.settle()[0] == [(1, 30_001, False)]


def test_a_wait_ends_in_time(make_lane: MakeLane) -> None:
    lane = make_lane()
    assert lane.read(SLEEPING, 0.01) == []
    assert lane.read(SPINNING, 0.01) == []
    assert lane.read(NOW, 0.0) == []


def test_datagrams_lost_on_purpose_are_as_if_they_never_came(
    wire: Wire, make_lane: MakeLane
) -> None:
    fates = iter([False, True, False])
    lane = make_lane(is_lost=lambda: next(fates))
    wire.send(packet(1, b"a"), packet(2, b"b"), packet(3, b"c"))
    rest: list[Received] = []
    while not rest:
        rest = lane.read(SLEEPING, 1.0)
    assert [data for data, _, _ in rest] == [packet(3, b"c")]
    assert lane.next_number == 2


def test_what_is_dropped_is_numbered_without_a_hole(wire: Wire, make_lane: MakeLane) -> None:
    lane = make_lane(is_raw=False)
    lane.push(1, [event("a")] * 5, 9)
    lane.push(8, [event("a")] * 2, 9)
    lane.push(10, [encode_piece(0, 2, b"x"), event("a")], 9)
    assert lane.drop(3) == (1, 3)
    taken = lane.take()
    assert taken is not None
    assert taken.sequence == 4
    assert lane.drop(9) == (5, 1)
    assert lane.drop(9) == (8, 2)
    assert lane.drop(9) == (0, 0)  # a piece
    popped = lane.pop()
    assert popped is not None
    assert popped[0] == 10
    assert lane.drop(0) == (0, 0)
    assert lane.drop(1) == (11, 1)
    assert (len(lane), lane.size_bytes) == (0, 0)
    assert lane.settle()[0] == [(4, 5, False)]


def _tape(random: Random, length: int) -> list[bytes]:
    """Mostly the next packet; sometimes anything else, after which numbers may be off."""
    number, packets = 1, []
    for _ in range(length):
        kind = random.random()
        messages = [
            random.choice([event("yes", random.random()), event("no"), b"\xc1", b"",
                           encode_piece(0, 2, b"x"), random.randbytes(random.randint(0, 60))])
            for _ in range(random.randint(1, 4))
        ]  # fmt: skip
        whole = packet(number, *messages)
        if kind < 0.9:
            packets.append(whole)
            number += len(messages)
        elif kind < 0.93:
            packets.append(whole[: random.randint(0, len(whole))])
        elif kind < 0.96:
            packets.append(packet(number + random.choice([-1, 1, 5]), *messages))
        else:
            packets.append(encode_header(SESSION, number, random.choice([0, 0xFFFF])))
    return packets


def _play(wire: Wire, lane: PythonLane, tape: list[bytes], seed: int) -> list[object]:
    """Everything that can be seen of a lane, in order."""
    random = Random(seed)
    seen: list[object] = []
    lane.open(SESSION, wire.origin, "name", 77)
    lane.expect(1)
    for data in tape:
        wire.send(data)
        rest = lane.read(SLEEPING, 1.0)
        seen.append([received[:2] for received in rest])
        for _ in range(random.randint(0, 4)):
            taken = lane.take()
            seen.append(None if taken is None else taken._replace(received_at_ns=0))
        if lane.is_stuck or random.random() < 0.1:
            seen.append(lane.settle()[0])
            popped = lane.pop()
            seen.append(popped and popped[:2])
        if random.random() < 0.2:
            seen.append(lane.settle()[0])
            seen.append(lane.drop(random.randint(0, 3)))
        if random.random() < 0.1:
            first = random.randint(1, 100)
            lane.push(first, [event("yes"), OBSTACLE, b"raw"][: random.randint(1, 3)], 9)
        seen.append((len(lane), lane.next_number, lane.size_bytes, lane.is_stuck))
    seen.append(lane.settle()[0])
    return seen


@pytest.mark.parametrize("is_raw", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_the_compiled_lane_and_the_plain_one_agree(wire: Wire, seed: int, is_raw: bool) -> None:
    tape = _tape(Random(seed), 60)
    plain, compiled, messages = (
        _play(wire, wire.lane(kind, is_raw=is_raw, topics=("yes",)), tape, seed) for kind in KINDS
    )
    assert compiled == messages == plain
    assert plain[-2][1] > 30  # type: ignore[index]  # it went far


def test_pure_python_is_chosen_when_asked_for() -> None:
    assert (lanes.Lane is PythonLane) == (not datagrams.COMPILED)
