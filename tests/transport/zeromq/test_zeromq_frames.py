"""Frames into and out of a socket, compiled and plain."""

from collections.abc import Iterator
from random import Random

import pytest
import zmq

from onehop.transport.datagrams import COMPILED, Received
from onehop.transport.envelope import EventEncoder
from onehop.transport.lane import NOW, SLEEPING, SPINNING, PythonLane
from onehop.transport.mold.wire import encode_header, encode_packet
from onehop.transport.zeromq.frames import FrameSender, PlainSender, SocketLane

SESSION, PREFIX, ORIGIN = b"SESSION..1", b"q\0", ("me", 0)
WAIT_S = 5.0
WAIT_MS = 5000


class Port:
    """A port with one socket, of which a plain lane can read too."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.has_more = False
        self.only, self.peer = (context.socket(zmq.PAIR) for _ in range(2))
        where = f"inproc://{id(self)}"
        self.only.bind(where)
        self.peer.connect(where)

    def wait_at_most(self, timeout_ms: int) -> None:
        if not self.only.closed:
            self.only.rcvtimeo = timeout_ms

    def sort(self, message: bytes, at_ns: int) -> list[Received]:
        packet = message.removeprefix(PREFIX) if message.startswith(PREFIX) else message
        return [] if message == b"ignored" else [(packet, ORIGIN, at_ns)]

    def receive(self) -> list[Received]:
        received: list[Received] = []
        while self.only.poll(0):
            received += self.sort(self.only.recv(), 7)
        return received

    def receive_wait(self, timeout_s: float | None) -> list[Received]:
        self.only.poll(WAIT_MS)
        return self.receive()

    def spin(self, timeout_s: float) -> list[Received]:
        return self.receive_wait(timeout_s)


@pytest.fixture
def ports() -> Iterator[tuple[Port, Port]]:
    with zmq.Context() as context:
        pair = Port(context), Port(context)
        yield pair
        for port in pair:
            port.only.close(linger=0)
            port.peer.close(linger=0)


def open_lane(port: Port, *, is_compiled: bool) -> PythonLane:
    if not is_compiled:
        lane = PythonLane(port, is_raw=False, topics=("yes",))
    else:
        assert SocketLane is not None
        lane = SocketLane(port, is_raw=False, topics=("yes",))
    lane.open(SESSION, ORIGIN, "name", 77, "q")
    lane.expect(1)
    return lane


def tape(random: Random, length: int) -> list[bytes]:
    """Mostly the next packet; sometimes anything else."""
    number, frames = 1, []
    encode = EventEncoder("source").encode
    for _ in range(length):
        topics = random.choices(["yes", "no", "yes.x"], k=random.randint(1, 4))
        messages = [encode(topic, random.random(), None, 4, 5, None) for topic in topics]
        whole = PREFIX + encode_packet(SESSION, number, messages)
        kind = random.random()
        if kind < 0.8:
            frames.append(whole)
            number += len(messages)
        elif kind < 0.85:
            frames.append(whole[: random.randint(0, len(whole) - 1)])
        elif kind < 0.9:
            frames.append(whole + b"x")
        else:
            heartbeat = PREFIX + encode_header(SESSION, number, 0)
            frames.append(random.choice([heartbeat, b"ignored", b"", b"q", PREFIX, whole[1:]]))
    return frames


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(10))
def test_both_lanes_take_the_same_frames_and_give_back_the_others(
    ports: tuple[Port, Port], seed: int
) -> None:
    random = Random(seed)
    lanes = [open_lane(port, is_compiled=port is ports[1]) for port in ports]
    taken = 0
    for frame in tape(random, 300):
        how = random.choice([NOW, SLEEPING, SPINNING])
        seen = []
        for port, lane in zip(ports, lanes, strict=True):
            port.peer.send(frame)
            if how == NOW or frame == b"ignored":
                port.only.poll(WAIT_MS)
                rest = lane.read(NOW, 0.0)
            else:
                rest = lane.read(how, WAIT_S)
            seen.append(([r[:2] for r in rest], len(lane), lane.next_number, lane.size_bytes))
        assert seen[0] == seen[1]
        if random.random() < 0.3:
            plain, compiled = (
                [event._replace(received_at_ns=0) for event in lane.take_many(9)] for lane in lanes
            )
            assert plain == compiled
            taken += len(plain)
            runs = [lane.settle()[0] for lane in lanes]
            assert runs[0] == runs[1]
    assert taken > 100


@pytest.mark.compiled
def test_many_frames_come_with_one_read_and_none_is_left_unnoticed(
    ports: tuple[Port, Port],
) -> None:
    port = ports[0]
    lane = open_lane(port, is_compiled=True)
    data = EventEncoder("source").encode("yes", 1, None, 4, 5, None)
    for number in range(1, 201):
        port.peer.send(PREFIX + encode_packet(SESSION, number, [data]))
    reads = 0
    while len(lane) < 200:
        assert lane.read(SLEEPING, WAIT_S) == []
        assert port.has_more or len(lane) == 200
        reads += 1
    assert reads < 60
    while port.has_more:
        lane.read(NOW, 0.0)
    assert lane.read(SLEEPING, 0.001) == []
    assert not port.has_more


@pytest.mark.compiled
def test_a_closed_socket_has_nothing_and_takes_nothing(ports: tuple[Port, Port]) -> None:
    port = ports[0]
    lane, sender = open_lane(port, is_compiled=True), FrameSender(port.only)
    port.only.close(linger=0)
    for how in (NOW, SLEEPING, SPINNING):
        assert lane.read(how, 0.001) == []
    with pytest.raises(zmq.ZMQError):
        sender.send([b"x"])


@pytest.mark.twin
@pytest.mark.parametrize("kind", [PlainSender, FrameSender])
def test_frames_are_sent_as_they_are_in_order(
    kind: type[PlainSender], ports: tuple[Port, Port]
) -> None:
    port = ports[0]
    frames = [b"", b"x", bytes(70_000), b"q\0" + bytes(range(256))]
    kind(port.only).send(frames)
    assert [port.peer.recv() for _ in frames] == frames
    with pytest.raises(TypeError):
        kind(port.only).send(["text"])  # type: ignore[list-item]


@pytest.mark.twin
def test_pure_python_is_chosen_when_asked_for() -> None:
    assert (FrameSender is PlainSender) == (SocketLane is None) == (not COMPILED)
