"""What must not happen to a process because of ZeroMQ, of its peers, or of its own threads."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq
from loopback import until

from onehop.transport import (
    Closed,
    Disconnected,
    LocalError,
    RingOptions,
    open_publisher,
    open_subscriber,
)
from onehop.transport.zeromq.keys import new_keys

TCP = "zmq+tcp://127.0.0.1:0"
WAIT_S = 20.0

READER_THAT_STALLS = """
import ctypes, sys, time
from onehop.transport import open_subscriber
with open_subscriber(sys.argv[1]) as events:
    events.receive(20)
    print("stalls", flush=True)
    ctypes.PyDLL(None).sleep(5)  # with the lock of the interpreter: no thread of ours runs
    while events.receive(0.5) is not None:
        pass
    ledger = events.ledger
    print(ledger.expected, ledger.delivered, ledger.lost_total, ledger.pending)
"""


@pytest.mark.parametrize("dies", [False, True])
def test_a_reader_that_stalls_longer_than_a_heartbeat_goes_on(dies: bool) -> None:
    """ZeroMQ aborts the process when it has stopped reading and the connection breaks."""
    with open_publisher(f"{TCP}?hwm=100", "me", linger_s=0.0) as publisher:
        reader = subprocess.Popen(
            [sys.executable, "-c", READER_THAT_STALLS, publisher.url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("q.x", 0)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "stalls\n"
        for number in range(1, 3000):
            publisher.publish("q.x", "y" * 100)
            if number % 20 == 0:
                time.sleep(0.001)  # a rate that the connection can take
        if not dies:
            out, err = reader.communicate(timeout=WAIT_S)
    if dies:
        out, err = reader.communicate(timeout=WAIT_S)

    assert reader.returncode == 0, err
    expected, delivered, lost, pending = map(int, out.split())
    assert (expected, pending) == (3000, 0)
    assert delivered + lost == 3000
    assert lost == 0 or dies


def test_a_whole_number_of_seconds_is_a_time_to_wait_too() -> None:
    with (
        open_publisher(TCP, "me", linger_s=0.0) as publisher,
        open_subscriber(
            publisher.url, on_overflow="block", queue_events=10, block_timeout_s=1
        ) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("q.x", "hello")
        assert subscriber.receive(WAIT_S) is not None
        until(lambda: bool(publisher._streams.blockers), WAIT_S)  # type: ignore[attr-defined]
        started = time.monotonic()
        for number in range(100):
            publisher.publish("q.x", number)
        assert time.monotonic() - started >= 1.0
        assert publisher.stats.disconnected == 1


def test_a_stream_that_begins_while_the_subscriber_is_held_back_is_waited_for() -> None:
    ring = RingOptions(max_messages=1000)
    with (
        open_publisher(f"{TCP}?hwm=10", "me", ring=ring, linger_s=0.0) as publisher,
        open_subscriber(
            publisher.url, on_overflow="block", queue_events=50, block_timeout_s=0.5
        ) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("a.x", "hello")
        assert subscriber.receive(WAIT_S) is not None
        until(lambda: bool(publisher._streams.blockers), WAIT_S)  # type: ignore[attr-defined]
        for number in range(49):
            publisher.publish("a.x", number)
        started = time.monotonic()
        for number in range(900):
            publisher.publish("b.x", number)
        assert time.monotonic() - started >= 0.5
        assert publisher.stats.disconnected == 1
        with pytest.raises(Disconnected):
            list(subscriber)


@pytest.mark.parametrize("mechanism", ["none", "plain", "another server key"])
def test_a_peer_with_another_mechanism_is_refused_and_counted(
    mechanism: str, tmp_path: Path
) -> None:
    new_keys("server", tmp_path)
    url = f"{TCP}?key={tmp_path}/server.key_secret"
    with open_publisher(url, "me", linger_s=0.0) as publisher, zmq.Context() as context:
        peer = context.socket(zmq.SUB)
        peer.setsockopt(zmq.LINGER, 0)
        peer.subscribe(b"")
        if mechanism == "plain":
            peer.plain_username, peer.plain_password = b"me", b"secret"
        elif mechanism == "another server key":
            peer.curve_publickey, peer.curve_secretkey = zmq.curve_keypair()
            peer.curve_serverkey, _ = zmq.curve_keypair()
        peer.connect(publisher.url.removeprefix("zmq+").partition("?")[0])
        until(lambda: bool(publisher.stats.refused), WAIT_S)
        refused = publisher.stats.refused
        publisher.publish("q.x", "secret")
        assert peer.poll(100) == 0
        peer.close()

    assert all(" at tcp://127.0.0.1:" in name for name in refused)


def test_a_subscriber_with_another_server_key_can_read_why_nothing_comes(tmp_path: Path) -> None:
    for name in ("server", "other"):
        new_keys(name, tmp_path)
    with open_publisher(f"{TCP}?key={tmp_path}/server.key_secret", linger_s=0.0) as publisher:
        where = publisher.url.partition("?")[0]
        with open_subscriber(f"{where}?server_key={tmp_path}/other.key") as subscriber:
            until(lambda: subscriber.ledger.ignored.get("refused_handshakes", 0) > 0, WAIT_S)
            assert subscriber.ledger.expected == 0


@pytest.mark.parametrize("binder", ["publisher", "subscriber"])
def test_no_socket_file_is_left_behind(binder: str, tmp_path: Path) -> None:
    url = f"zmq+ipc://{tmp_path}/s?bind={binder}"
    for _ in range(3):
        with open_subscriber(url) as subscriber, open_publisher(url, linger_s=0.0) as publisher:
            publisher.ready(timeout_s=WAIT_S)
            publisher.publish("q.x", 1)
            assert subscriber.receive(WAIT_S) is not None
        assert list(tmp_path.iterdir()) == []


def test_two_threads_cannot_wait_for_one_subscriber() -> None:
    with (
        open_publisher(TCP, linger_s=0.0) as publisher,
        open_subscriber(publisher.url) as subscriber,
    ):
        subscriber._waiting = -1  # some other thread
        with pytest.raises(LocalError, match="another thread waits"):
            subscriber.receive(0.1)
        subscriber._waiting = None
        publisher.ready(timeout_s=WAIT_S)
        publisher.publish("q.x", 1)
        assert subscriber.receive(WAIT_S) is not None


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("url", [TCP, "memory://forked"])
def test_in_a_forked_child_both_are_closed_and_the_parent_goes_on(url: str) -> None:
    with (
        open_publisher(url, linger_s=0.0) as publisher,
        open_subscriber(publisher.url) as subscriber,
    ):
        publisher.ready(timeout_s=WAIT_S)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                publisher.publish("q.x", "from the child")
            except Closed:
                code = 0 if subscriber.receive(0.0) is None else 2
                subscriber.close()
                publisher.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        publisher.publish("q.x", "from the parent")
        event = subscriber.receive(WAIT_S)
        assert event is not None
        assert event.value == "from the parent"
