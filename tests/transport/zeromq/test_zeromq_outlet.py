"""The outlet, compiled and plain: what is published is numbered, kept, packed and remembered."""

import importlib
from random import Random

import pytest

from onehop.transport import LimitError, RingOptions
from onehop.transport.datagrams import COMPILED
from onehop.transport.envelope import EventEncoder, Whole, decode
from onehop.transport.mold.wire import decode_header, decode_messages
from onehop.transport.zeromq.last_values import LastValues
from onehop.transport.zeromq.outlet import Outlet, PythonOutlet

pytestmark = pytest.mark.twin

PACKET_BYTES = 200


def outlets(**ring: float) -> list[tuple[PythonOutlet, LastValues]]:
    """The plain one, and the compiled one where it is there."""
    options = RingOptions(**ring)  # type: ignore[arg-type]
    found = []
    for kind in dict.fromkeys([PythonOutlet, Outlet]):
        values = LastValues(options, max_values=6)
        found.append((new_outlet(kind, options, values), values))
    return found


def new_outlet(
    kind: type[PythonOutlet], options: RingOptions, values: LastValues, *company: object
) -> PythonOutlet:
    encode = EventEncoder("me").encode
    return kind(options, PACKET_BYTES, values, encode, refuse, (company, ()))


def refuse(topic: str, key: str | None, data: bytes, number: int, now: float) -> int:
    return -number


@pytest.fixture(params=[PythonOutlet, Outlet])
def outlet(request: pytest.FixtureRequest) -> PythonOutlet:
    outlet = new_outlet(request.param, RingOptions(), LastValues(RingOptions()))
    outlet.open("a", b"SESSION..1")
    return outlet


def read(message: bytes) -> tuple[str, int, list[bytes]]:
    prefix, _, packet = message.partition(b"\0")
    header = decode_header(packet)
    return prefix.decode(), header.sequence, decode_messages(packet, header)


def test_an_event_goes_to_the_stream_of_its_topic(outlet: PythonOutlet) -> None:
    outlet.open("b", b"SESSION..2")
    assert outlet.publish("a.x", None, b"1", 0.0) == 1
    assert outlet.publish("b", "k", b"2", 0.0) == 1
    assert outlet.publish("a.y.z", None, b"3", 0.0) == 2
    assert list(map(read, outlet.take_all())) == [("a", 1, [b"1", b"3"]), ("b", 1, [b"2"])]
    assert outlet.take_all() == []


@pytest.mark.parametrize("kind", [PythonOutlet, Outlet])
def test_the_caller_is_asked_where_an_event_concerns_others_too(kind: type[PythonOutlet]) -> None:
    alone = new_outlet(kind, RingOptions(), LastValues(RingOptions()))
    watched = new_outlet(kind, RingOptions(), LastValues(RingOptions()), "somebody")
    for outlet in (alone, watched):
        outlet.open("a", b"SESSION..1")
        outlet.number("a.x", 1, None, None, 5, 0.0)
    assert alone.number("a.x", {"price": 2}, "k", {"h": "v"}, 5, 0.0) == 2
    assert watched.number("a.x", {"price": 2}, "k", {"h": "v"}, 5, 0.0) == -2
    assert alone.number("not open", 1, None, None, None, 0.0) == 0
    (message,) = alone.take_all()
    event = decode(read(message)[2][1])
    assert isinstance(event, Whole)
    assert event[:5] == ("a.x", {"price": 2}, "k", "me", 5)
    assert event.headers == {"h": "v"}


def test_what_has_no_stream_or_is_too_long_is_left_to_the_caller(outlet: PythonOutlet) -> None:
    most = outlet.max_message_bytes
    assert most == PACKET_BYTES - 22
    assert outlet.publish("c.x", None, b"x", 0.0) == 0
    assert outlet.publish("a.x", None, bytes(most + 1), 0.0) == 0
    assert outlet.take_all() == []
    assert outlet.publish("a.x", None, bytes(most), 0.0) == 1
    assert [len(message) for message in outlet.take_all()] == [2 + PACKET_BYTES]
    with pytest.raises(LimitError, match=f"{most + 1} bytes.*at most {most}"):
        outlet.put("a", bytes(most + 1), 0.0)


def test_a_full_packet_leaves_before_the_one_that_is_being_filled(outlet: PythonOutlet) -> None:
    for number in range(3):
        outlet.put("a", bytes([number]) * 80, 0.0)
    before = outlet.has_messages
    assert [read(message)[1] for message in outlet.take_full()] == [1]
    assert (before, outlet.has_messages) == (True, False)
    outlet.add(b"\xffannouncement")
    *packets, last = outlet.take_all()
    assert [read(message)[1] for message in packets] == [3]
    assert last == b"\xffannouncement"


def test_the_end_stands_behind_everything(outlet: PythonOutlet) -> None:
    outlet.put("a", b"x", 0.0)
    outlet.end()
    data, end = outlet.take_all()
    assert read(data) == ("a", 1, [b"x"])
    assert decode_header(end.partition(b"\0")[2])[1:] == (2, 0xFFFF)


def test_streams_that_moved_are_told_once_the_longest_ago_first(outlet: PythonOutlet) -> None:
    outlet.open("b", b"SESSION..2")
    unmoved = outlet.moved_at
    for now, name in enumerate(["b", "a", "b"]):
        outlet.put(name, b"x", float(now))
    assert outlet.moved_at == 0.0
    assert [stream.name for stream in outlet.take_moved(1, 5.0)] == ["b"]
    assert outlet.moved_at == 5.0
    outlet.put("b", b"x", 6.0)
    assert [stream.name for stream in outlet.take_moved(9, 7.0)] == ["a", "b"]
    assert outlet.moved_at is unmoved is None


def play(outlet: PythonOutlet, values: LastValues, seed: int) -> list[object]:
    """Everything that can be seen of an outlet, in order."""
    random = Random(seed)
    seen: list[object] = []
    for index in range(4):
        outlet.open("abcd"[index], b"SESSION..%d" % index)
    now = 0.0
    for _ in range(400):
        now += random.expovariate(50)
        topic = random.choice("abcde") + random.choice(["", ".x", ".y", ".", "é.x"])
        data = random.randbytes(random.choice([0, 1, 20, 60, 178, 179]))
        kind = random.random()
        if kind < 0.7:
            seen.append(outlet.publish(topic, random.choice([None, "k"]), data, now))
        elif kind < 0.8:
            seen.append(outlet.put(random.choice("abcd"), data[:178], now))
        elif kind < 0.85:
            outlet.add(data)
        elif kind < 0.95:
            seen.append(outlet.take_all() if random.random() < 0.5 else outlet.take_full())
        else:
            seen.append([stream.index for stream in outlet.take_moved(random.randint(1, 3), now)])
        for stream in outlet.streams:
            seen.append((stream.first, stream.next, stream.size_bytes))
            if stream.first < stream.next:
                first = random.randint(stream.first, stream.next - 1)
                seen.append(stream.blocks(first, random.randint(1, 9), random.randint(30, 300)))
                seen.append(stream.sent_at(first))
        seen.append((outlet.size_bytes, outlet.has_messages, outlet.moved_at))
        seen.append((list(values.values.items()), values.size_bytes, values.forgotten))
    outlet.end()
    return [*seen, outlet.take_all()]


@pytest.mark.parametrize("seed", range(20))
def test_the_compiled_outlet_and_the_plain_one_agree(seed: int) -> None:
    random = Random(seed)
    ring = {
        "max_messages": random.choice([1, 2, 30, 5000]),
        "max_bytes": random.choice([1, 500, 10**6]),
        "max_age_s": random.choice([0.5, 60.0]),
    }
    first, *others = (play(outlet, values, seed) for outlet, values in outlets(**ring))
    assert [first] * len(others) == others
    assert first[-1]


def test_a_ring_that_turns_over_many_times_keeps_its_account() -> None:
    for outlet, _ in outlets(max_messages=5000):
        stream = outlet.open("a", b"SESSION..1")
        for number in range(1, 40_001):
            assert outlet.put("a", b"%d" % number, number * 1e-3) == number
            outlet.take_full()
        assert (stream.first, stream.next) == (35_001, 40_001)
        for number in (35_001, 37_500, 40_000):
            assert stream.blocks(number, 1, 100) == [b"\x00\x05%d" % number]
            assert stream.sent_at(number) == number * 1e-3
        assert stream.size_bytes == outlet.size_bytes == 5000 * 7


def test_pure_python_is_chosen_when_asked_for() -> None:
    assert (Outlet is PythonOutlet) == (not COMPILED)
    if COMPILED:
        assert importlib.import_module("onehop.transport.zeromq._outlet").Outlet is Outlet
