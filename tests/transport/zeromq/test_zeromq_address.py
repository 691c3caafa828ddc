"""ZeroMQ URLs."""

import pytest

from onehop.transport import ConfigurationError, LocalError
from onehop.transport.urls import parse_url
from onehop.transport.zeromq.address import Endpoint, ZeroMQAddress, parse_zeromq, resolved


def parse(text: str) -> ZeroMQAddress:
    return parse_zeromq(parse_url(text, ("zmq+tcp", "zmq+ipc")))


def test_one_endpoint_or_several() -> None:
    assert parse("zmq+tcp://127.0.0.1:7401").endpoints == (
        Endpoint("tcp://127.0.0.1:7401", "127.0.0.1", 7401),
    )
    several = parse("zmq+tcp://a.example:1,[::1]:2,10.0.0.1:3").endpoints
    assert [endpoint.text for endpoint in several] == [
        "tcp://a.example:1", "tcp://[::1]:2", "tcp://10.0.0.1:3",
    ]  # fmt: skip
    assert [endpoint.is_loopback for endpoint in several] == [False, True, False]


def test_a_unix_socket_has_its_side_channel_beside_it() -> None:
    address = parse("zmq+ipc:///tmp/quotes.sock")

    assert address.endpoints[0].text == "ipc:///tmp/quotes.sock"
    assert address.endpoints[0].is_loopback
    assert address.side("epoch").text == "ipc:///tmp/quotes.sock.side"


def test_options() -> None:
    address = parse("zmq+tcp://127.0.0.1:1?bind=subscriber&hwm=5&side=7402")

    assert (address.bind, address.hwm, address.side_port) == ("subscriber", 5, 7402)


def test_the_side_channel_is_on_the_machine_of_the_publisher() -> None:
    def side(url: str) -> str:
        return parse(url).side("epoch").text

    assert side("zmq+tcp://192.0.2.7:1?side=7402") == "tcp://192.0.2.7:7402"
    assert side("zmq+tcp://127.0.0.9:1?bind=subscriber&side=7402") == "tcp://127.0.0.1:7402"
    assert side("zmq+tcp://[::1]:1?bind=subscriber") == "tcp://[::1]:0"
    assert side("zmq+ipc:///tmp/in?bind=subscriber") == "ipc:///tmp/in.epoch"
    with pytest.raises(LocalError, match=r"cannot reach tcp://no\.such\.invalid:1"):
        side("zmq+tcp://no.such.invalid:1?bind=subscriber")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("zmq+tcp://127.0.0.1", "expected HOST:PORT"),
        ("zmq+tcp://:7401", "expected HOST:PORT"),
        ("zmq+tcp://127.0.0.1:70000", "expected HOST:PORT"),
        ("zmq+tcp://127.0.0.1:x", "expected HOST:PORT"),
        ("zmq+tcp://::1:7401", "expected HOST:PORT"),
        ("zmq+tcp://user@host:7401", "expected HOST:PORT"),
        ("zmq+tcp://127.0.0.1:1,", "expected HOST:PORT"),
        ("zmq+tcp://127.0.0.1:1/path", "nothing may follow"),
        ("zmq+tcp://127.0.0.1:1?bind=me", "expected 'publisher' or 'subscriber'"),
        ("zmq+tcp://127.0.0.1:1?hwm=0", "expected a whole number from 1"),
        (
            "zmq+tcp://127.0.0.1:1?hmw=5",
            "unknown option 'hmw'.*valid: allow, bind, hwm, key",
        ),
        ("zmq+ipc://tmp/x", "nothing may follow"),
        ("zmq+ipc:///", "expected zmq"),
        ("zmq+ipc:///" + "x" * 98, "at most 98 fit"),
    ],
)
def test_a_mistake_is_one_clear_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        parse(text)


def test_names_are_resolved_to_bind() -> None:
    assert resolved(Endpoint("tcp://localhost:5", "localhost", 5)) in (
        "tcp://127.0.0.1:5", "tcp://[::1]:5",
    )  # fmt: skip
    assert resolved(Endpoint("tcp://[::1]:5", "[::1]", 5)) == "tcp://[::1]:5"
    assert resolved(Endpoint("tcp://*:5", "*", 5)) == "tcp://*:5"
    with pytest.raises(LocalError, match=r"cannot bind to tcp://no\.such\.invalid:5"):
        resolved(Endpoint("tcp://no.such.invalid:5", "no.such.invalid", 5))
