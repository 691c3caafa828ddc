"""Plain pyzmq on the other side: as a reader of our frames, and as a peer that sends rubbish."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import pytest
import zmq

from onehop.transport import Publisher, open_publisher, open_subscriber
from onehop.transport.zeromq.wire import MAX_MESSAGE_BYTES, MAX_UPSTREAM_BYTES

TCP = "zmq+tcp://127.0.0.1:0"
WAIT_S = 10.0


NewSocket = Callable[[int], zmq.Socket[bytes]]


@pytest.fixture
def new_socket() -> Iterator[NewSocket]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets: list[zmq.Socket[bytes]] = []

    def new(kind: int) -> zmq.Socket[bytes]:
        socket = context.socket(kind)
        socket.setsockopt(zmq.RCVTIMEO, int(WAIT_S * 1e3))
        sockets.append(socket)
        return socket

    yield new
    for socket in sockets:
        socket.close(linger=0)
    context.term()


def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def side_of(publisher: Publisher) -> str:
    host, port = publisher.address[:2]
    return f"tcp://{host}:{port}"


def test_anyone_can_read_the_frames(new_socket: NewSocket) -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        reader = new_socket(zmq.SUB)
        reader.subscribe(b"quotes\0")
        reader.connect(publisher.url.removeprefix("zmq+"))
        number = 0
        while not reader.poll(20):  # a foreign one says no hello: nobody can wait for it
            number = publisher.publish("quotes.AAPL", "is anybody there?")
        publisher.publish("trades.AAPL", "not subscribed to")
        publisher.publish_many([("quotes.AAPL", {"price": 101.5}), ("quotes.MSFT", [1, 2])])
        found: dict[int, list[object]] = {}
        while len(found) == 0 or max(found) < number + 2:
            message = reader.recv()
            stream, _, packet = message.partition(b"\0")
            session, first, count = struct.unpack_from(">10sQH", packet)
            assert stream == b"quotes"
            at = 20
            for place in range(count):
                (length,) = struct.unpack_from(">H", packet, at)
                found[first + place] = msgpack.unpackb(packet[at + 2 : at + 2 + length])
                at += 2 + length
            assert at == len(packet)
            assert session[:8].decode() == publisher.stats.session

    version, topic, value, key, source, occurred_at_ns, sent_at_ns, headers = found[number + 1]
    assert (version, topic, value, key, source) == (1, "quotes.AAPL", {"price": 101.5}, None, "me")
    assert occurred_at_ns == sent_at_ns
    assert headers is None
    assert found[number + 2][1:3] == ["quotes.MSFT", [1, 2]]


def test_anyone_can_ask_for_what_was_sent(new_socket: NewSocket) -> None:
    with open_publisher(TCP, "me", linger_s=0.0) as publisher:
        publisher.publish_many(("q.x", number) for number in range(10))
        asker = new_socket(zmq.DEALER)
        asker.connect(side_of(publisher))
        session = publisher.stats.session.encode() + b"00"
        asker.send(struct.pack(">10sQH", session, 4, 2))
        reply = asker.recv()

    assert struct.unpack_from(">10sQH", reply) == (session, 4, 2)
    assert msgpack.unpackb(reply[22 : 22 + reply[21]])[2] == 3


RUBBISH = [b"", b"x", b"\0" * 20, b"\xff" * 40, b"q\0" + bytes(30), bytes(MAX_UPSTREAM_BYTES)]


def test_rubbish_to_a_publisher_is_counted_and_stops_nothing(
    new_socket: NewSocket,
) -> None:
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        open_subscriber(publisher.url) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        asker, speaker = new_socket(zmq.DEALER), new_socket(zmq.XSUB)
        asker.connect(side_of(publisher))
        speaker.connect(publisher.url.removeprefix("zmq+"))
        for rubbish in RUBBISH:
            asker.send(rubbish)
            asker.send_multipart([rubbish, b"", rubbish])
            speaker.send(rubbish)
        speaker.send(b"\x01\xffshort name")
        # each of ours twice to the side, and all that is no subscription
        until(lambda: publisher.stats.ignored_requests.get("malformed", 0) >= 2 * len(RUBBISH))
        publisher.publish("q.x", "still here")
        event = subscriber.receive(WAIT_S)

    assert event is not None
    assert event.value == "still here"
    assert subscriber.ledger.is_balanced


def test_a_message_longer_than_any_of_ours_ends_that_connection_alone(
    new_socket: NewSocket,
) -> None:
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        open_subscriber(publisher.url) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        asker = new_socket(zmq.DEALER)
        with asker.get_monitor_socket(zmq.EVENT_DISCONNECTED) as ended:
            asker.connect(side_of(publisher))
            asker.send(bytes(MAX_UPSTREAM_BYTES + 1))
            assert ended.poll(int(WAIT_S * 1e3))
            asker.disable_monitor()
        publisher.publish("q.x", "still here")
        event = subscriber.receive(WAIT_S)

    assert event is not None
    assert "malformed" not in publisher.stats.ignored_requests  # it was never taken in


def test_rubbish_to_a_subscriber_is_counted_by_reason(
    new_socket: NewSocket, tmp_path: Path
) -> None:
    url = f"zmq+ipc://{tmp_path}/in?bind=subscriber"
    with (
        open_subscriber(url) as subscriber,
        open_publisher(url, "me", linger_s=0.0) as publisher,
    ):
        publisher.ready(timeout_s=WAIT_S)
        liar = new_socket(zmq.XPUB)
        liar.connect(f"ipc://{tmp_path}/in")
        hello = b""
        while not hello.startswith(b"\x01\xff"):
            hello = liar.recv()
        for rubbish in (b"", b"x", b"q\0short", b"q\0" + bytes(30), hello[1:] + b"rubbish"):
            liar.send(rubbish)
        liar.send(b"\xff" + b"n" * 16)
        liar.send_multipart([b"q\0", bytes(20)])
        liar.send(bytes(MAX_MESSAGE_BYTES + 1))
        publisher.publish("q.x", "still here")
        event = subscriber.receive(WAIT_S)
        until(lambda: subscriber.ledger.ignored.get("not_for_us", 0) == 1)
        ledger = subscriber.ledger

    assert event is not None
    assert event.value == "still here"
    assert ledger.ignored["malformed"] >= 3
    assert ledger.ignored["unattached"] >= 1
    assert ledger.ignored["bad_announcement"] == 1
    assert (ledger.expected, ledger.delivered) == (1, 1)


def test_a_peer_that_speaks_another_mechanism_gets_nothing_and_harms_nothing(
    new_socket: NewSocket,
) -> None:
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        open_subscriber(publisher.url) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        stranger = new_socket(zmq.SUB)
        stranger.setsockopt(zmq.PLAIN_USERNAME, b"me")
        stranger.setsockopt(zmq.PLAIN_PASSWORD, b"secret")
        stranger.subscribe(b"")
        with stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL) as failed:
            stranger.connect(publisher.url.removeprefix("zmq+"))
            assert failed.poll(int(WAIT_S * 1e3))
            stranger.disable_monitor()
        publisher.publish("q.x", 1)
        event = subscriber.receive(WAIT_S)
        assert not stranger.poll(50)

    assert event is not None
