"""The compiled modules under the address sanitizer, fed with broken datagrams."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Literal

import pytest

ROOT = Path(__file__).parent.parent.parent
ROUNDS = 30_000
HOW: list[Literal[0, 1]] = [0, 1]
BUFFER_BYTES = 200
"""Of one datagram: small, so that many end where the buffer ends."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_datagram_makes_the_compiled_modules_touch_foreign_memory(tmp_path: Path) -> None:
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip("gcc has no address sanitizer here")
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so"))
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    flags = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -g -O1"
    built = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, source],
        capture_output=True, text=True, check=False,
        env={**os.environ, "CFLAGS": flags, "LDFLAGS": "-fsanitize=address,undefined"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [sys.executable, __file__],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(target),
            "PYTHONMALLOC": "malloc",  # so that the sanitizer sees every object
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0",
        },
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, [str(target), "fed"]), done.stderr


def _feed() -> None:
    """Runs inside the sanitized process."""
    import socket

    from onehop.transport import _datagrams, _lane
    from onehop.transport.mold.wire import encode_packet

    print(Path(_lane.__file__).parent.parent.parent)
    random = Random(1)
    inlet, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for each in (inlet, sender):
        each.bind(("127.0.0.1", 0))
    reader = _datagrams.DatagramReader(inlet, 1, BUFFER_BYTES)
    lane = _lane.Lane(reader, is_raw=True, topics=())
    session = b"SESSION..1"
    lane.open(session, sender.getsockname(), "fuzz", 1)
    lane.expect(1)
    for _ in range(ROUNDS):
        messages = [random.randbytes(random.randint(0, 40)) for _ in range(random.randint(1, 12))]
        data = bytearray(encode_packet(session, lane.next_number, messages))
        fate = random.random()
        if fate < 0.3:
            for _ in range(random.randint(1, 4)):
                data[random.randrange(10, len(data))] = random.choice([0, 1, 0xFF, 0x7F])
        elif fate < 0.5:
            del data[random.randint(0, len(data)) :]
        elif fate < 0.6:
            data += random.randbytes(random.randint(1, 2 * BUFFER_BYTES))
        elif fate < 0.75:
            data = (data + bytes(BUFFER_BYTES))[:BUFFER_BYTES]
        sender.sendto(data, inlet.getsockname())
        if fate > 0.9:
            reader.receive()
            lane.push(random.getrandbits(60), messages, 1)
            continue
        lane.read(0, 0.0)
        if random.random() < 0.5:
            lane.take_many(random.randint(0, 30))
            lane.settle()
        elif random.random() < 0.1:
            while lane.pop() is not None:
                pass
    _feed_messages(random)
    _feed_frames(random)
    _feed_outlet(random)
    print("fed")


class _Shelf:
    """A reader that has one message."""

    def __init__(self) -> None:
        self.message = b""

    def receive(self) -> list[tuple[bytes, tuple[str, int], int]]:
        return [(self.message, ("me", 0), 1)]

    receive_wait = spin = None


def _feed_messages(random: Random) -> None:
    """Events, whole and broken, through the lane for messages and the compiled checks."""
    from onehop.transport import Malformed, _lane
    from onehop.transport.envelope import EventEncoder, decode
    from onehop.transport.mold.wire import encode_packet

    session, shelf = b"SESSION..1", _Shelf()
    lane = _lane.MessageLane(shelf, is_raw=False, topics=())  # type: ignore[arg-type]
    lane.open(session, ("me", 0), "fuzz", 1)
    lane.expect(1)
    encoder = EventEncoder("fuzz")
    for _ in range(ROUNDS):
        key = random.choice([None, "k", "é"])
        value = random.choice([1, "x", {"a": 1.5}, {"a": [1]}, [b"y"], {1: None}])
        data = bytearray(encoder.encode("t.x", value, key, random.getrandbits(62), 1, None))
        if random.random() < 0.6:
            for _ in range(random.randint(1, 3)):
                data[random.randrange(len(data))] = random.getrandbits(8)
        if random.random() < 0.3:
            del data[random.randint(0, len(data)) :]
        with contextlib.suppress(Malformed):
            decode(bytes(data))
        packet = encode_packet(session, lane.next_number, [bytes(data)] * random.randint(1, 3))
        shelf.message = packet[: random.choice([len(packet), random.randint(0, len(packet))])]
        lane.read(0, 0.0)
        while lane.take() is not None or (lane.is_stuck and lane.pop() is not None):
            pass
        lane.settle()


class _Frames:
    """A port with one socket."""

    has_more = False

    def __init__(self) -> None:
        import zmq

        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.only, self.peer = (self.context.socket(zmq.PAIR) for _ in range(2))
        self.only.bind("inproc://frames")
        self.peer.connect("inproc://frames")
        self.sorted: list[bytes] = []

    def wait_at_most(self, timeout_ms: int) -> None:
        self.only.rcvtimeo = timeout_ms

    def sort(self, message: bytes, at_ns: int) -> list[tuple[bytes, tuple[str, int], int]]:
        self.sorted.append(message)
        return [(message, ("me", 0), at_ns)] if len(message) % 2 else []


def _feed_frames(random: Random) -> None:
    """Frames of every length, whole and broken, through the lane over a socket."""
    from onehop.transport.mold.wire import encode_packet
    from onehop.transport.zeromq import _frames

    session, port = b"SESSION..1", _Frames()
    lane = _frames.SocketLane(port, is_raw=True, topics=())  # type: ignore[arg-type]
    lane.open(session, ("me", 0), "fuzz", 1, "q")
    lane.expect(1)
    taken = sent = 0
    for _ in range(ROUNDS // 3):
        for _ in range(random.randint(1, 3)):
            number = lane.next_number
            frame = bytearray(b"q\0" + encode_packet(session, number, [random.randbytes(9)] * 2))
            if random.random() < 0.4:
                frame[random.randrange(len(frame))] = random.getrandbits(8)
            if random.random() < 0.4:
                del frame[random.randint(0, len(frame)) :]
            port.peer.send(bytes(frame))
            sent += 1
        while lane.read(random.choices(HOW, [50, 1])[0], 0.001) or port.has_more:
            pass
        taken += len(lane.take_many(random.randint(0, 30)))
        lane.settle()
    assert 2 * (sent - len(port.sorted)) == taken + len(lane)
    lane.open(session, ("me", 0), "fuzz", 1, "a stream with another name")
    port.peer.send(b"q")
    lane.read(0, 0.0)
    for each in (port.only, port.peer):
        each.close(linger=0)
    assert lane.read(1, 0.001) == []  # its socket is closed
    port.context.term()


def _feed_outlet(random: Random) -> None:
    """Messages of every length through rings of every size."""
    from onehop.transport import RingOptions
    from onehop.transport.envelope import EventEncoder
    from onehop.transport.zeromq import _outlet
    from onehop.transport.zeromq.last_values import LastValues

    def otherwise(*_unpublished: object) -> int:
        return 0

    for _ in range(30):
        options = RingOptions(max_messages=random.choice([1, 3, 5000]), max_bytes=10**6)
        outlet = _outlet.Outlet(
            options, 200, LastValues(options, max_values=5), EventEncoder("me").encode, otherwise,
            ((), ()),
        )  # fmt: skip
        streams = [outlet.open(name, b"SESSION..1") for name in ("a", "b", "")]
        for number in range(ROUNDS // 10):
            topic = random.choice(["a", "a.x", "b.y", ".", "c", "é"])
            outlet.publish(topic, None, random.randbytes(random.randint(0, 190)), number * 1e-3)
            outlet.number(topic, number, "k", None, None, number * 1e-3)
            if random.random() < 0.1:
                outlet.take_all() if random.random() < 0.5 else outlet.take_full()
                outlet.take_moved(2, 0.0)
            stream = random.choice(streams)
            with contextlib.suppress(KeyError):
                stream.blocks(random.randint(0, 4000), random.randint(-1, 70_000), 400)
                stream.sent_at(random.randint(0, 4000))
        outlet.end()
        outlet.take_all()


if __name__ == "__main__":
    _feed()
