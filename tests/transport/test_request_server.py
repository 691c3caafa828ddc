"""The request server on real loopback multicast, with processes that are really killed.

Every test has a group and port of its own. Publishers are processes that obey lines on standard
input, so that a test knows what was sent when it kills one.
"""

import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from onehop.transport import (
    Event,
    Loss,
    RequestOptions,
    open_publisher,
    open_subscriber,
)
from onehop.transport.datagrams import Address
from onehop.transport.mold.standin import SILENT_S
from onehop.transport.mold.wire import (
    END_OF_SESSION_COUNT,
    HEADER_BYTES,
    MAX_MESSAGE_COUNT,
    decode_header,
    decode_messages,
    encode_header,
    encode_packet,
)
from onehop.transport.multicast.keeper import JOINED_MESSAGES
from onehop.transport.multicast.request_server import RequestServer, RequestServerSnapshot

ONEHOP = [sys.executable, "-c", "from onehop.cli import main; main()"]
PATIENCE_S = 30.0
PUBLISHER = """
import os, signal, sys, time
from onehop.transport import open_publisher
publisher = open_publisher(sys.argv[1], "doomed")
number = 0
for line in sys.stdin:
    count, rate = map(float, line.split())
    started = time.monotonic()
    for sent in range(int(count)):
        number += 1
        publisher.publish("t", number)
        if rate and (ahead := started + sent / rate - time.monotonic()) > 0:
            time.sleep(ahead)
    print(number, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
_groups = itertools.count(os.getpid() % 200 * 250)


@pytest.fixture
def url() -> str:
    """A group nobody else is on, and a port that is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    number = next(_groups)
    return f"multicast://239.255.{number // 250}.{number % 250 + 1}:{port}"


class DoomedPublisher:
    """A publisher in a process of its own: sends when told, and never ends in an orderly way."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def publish(self, count: int, rate: float = 0.0) -> None:
        """Begins to send `count` events with the next numbers as values."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count} {rate}\n")
        self._process.stdin.flush()

    def wait_sent(self) -> int:
        """Waits until the last `publish` is done; returns how many were sent in all."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def die_after_the_last(self) -> None:
        """It kills itself right after its last event, before any heartbeat can follow."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == -signal.SIGKILL

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class ServerProcess:
    """`onehop request-server` as a user runs it."""

    def __init__(self, *arguments: str, file_bytes: int | None = None) -> None:
        limit: Callable[[], None] | None = None
        if file_bytes is not None:
            limits = (file_bytes, file_bytes)

            def limit() -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        self.process = subprocess.Popen(
            [*ONEHOP, "request-server", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit,
        )  # fmt: skip
        assert self.process.stderr is not None
        self.said: list[str] = []
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("answering requests on "):
                self.where = line.split()[-1]
                return
        raise AssertionError(f"no server: {self.said}")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()

    def end(self, number: signal.Signals = signal.SIGTERM) -> dict[str, object]:
        """Ends it in an orderly way; returns what it reports."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, err
        self.said += err.splitlines()
        (line,) = out.splitlines()
        report = json.loads(line)
        assert isinstance(report, dict)
        return report


@contextmanager
def running(server: RequestServer) -> Iterator[RequestServer]:
    """The server at work in a thread of its own."""
    stop = threading.Event()
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        thread.join()
        server.close()


@pytest.fixture
def cast() -> Iterator[ExitStack]:
    """Whoever is put in here is gone after the test."""
    with ExitStack() as stack:
        yield stack


def doomed(cast: ExitStack, url: str) -> DoomedPublisher:
    publisher = DoomedPublisher(url)
    cast.callback(publisher.kill)
    return publisher


def served_by(cast: ExitStack, *arguments: str, file_bytes: int | None = None) -> ServerProcess:
    server = ServerProcess(*arguments, file_bytes=file_bytes)
    cast.callback(server.kill)
    return server


def wait_for(
    server: RequestServer, condition: Callable[[RequestServerSnapshot], bool]
) -> RequestServerSnapshot:
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition(server.stats):
        assert time.monotonic() < give_up_at, server.stats
        time.sleep(0.01)
    return server.stats


def where(server: RequestServer) -> str:
    host, port = server.address[:2]
    return f"{host}:{port}"


def join_from_first(url: str, request: str, count: int) -> list[Event | Loss]:
    """Everything a late joiner gets, until `count` messages are accounted for."""
    items: list[Event | Loss] = []
    with open_subscriber(f"{url}?request={request}", start="first") as subscriber:
        accounted = 0
        for item in subscriber.with_losses(PATIENCE_S / 2):
            items.append(item)
            accounted += item.count if isinstance(item, Loss) else 1
            if accounted >= count:
                break
        more = next(subscriber.with_losses(0.1), None)
        assert more is None, more
    return items


def assert_everything(items: list[Event | Loss], count: int) -> None:
    losses = [item for item in items if isinstance(item, Loss)]
    assert losses == []
    assert [item.value for item in items if isinstance(item, Event)] == list(range(1, count + 1))


# -- a publisher that dies ---------------------------------------------------------------------


def test_gaps_are_repaired_from_the_server_after_the_publisher_was_killed(
    url: str, cast: ExitStack
) -> None:
    server = cast.enter_context(running(RequestServer(url)))
    lossy = f"{url}?loss=0.3&seed=7&request={where(server)}"
    subscriber = cast.enter_context(open_subscriber(lossy, start="first", deadline_s=10.0))
    publisher = doomed(cast, url)
    publisher.publish(3000)
    publisher.die_after_the_last()
    items = list(itertools.islice(subscriber.with_losses(PATIENCE_S / 2), 3000))
    assert_everything(items, 3000)
    ledger = subscriber.ledger
    assert ledger.lost_total == 0
    assert ledger.recovered > 100
    assert server.stats.retransmitted > 50


def test_the_last_messages_of_a_killed_publisher_are_not_lost_unnoticed(
    url: str, cast: ExitStack
) -> None:
    """Nothing follows them that could show the gap, but for what the server says."""
    group, port = url.removeprefix("multicast://").split(":")
    other = f"239.254.1.1:{port}"  # what the subscriber loses comes on this one only
    server = cast.enter_context(running(RequestServer(f"{url}?b={other}")))
    raw = f"{url}?payload=raw&request={where(server)}"
    subscriber = cast.enter_context(open_subscriber(raw, start="first"))
    sender = sender_to(cast, group, int(port))
    messages = [b"%d" % number for number in range(1, 21)]
    sender.send(encode_packet(b"SESSION001", 1, messages[:10]))
    sender.send(encode_packet(b"SESSION001", 11, messages[10:]), ("239.254.1.1", int(port)))
    events = [subscriber.receive(PATIENCE_S / 2) for _ in messages]
    assert [event and event.value for event in events] == messages


def test_the_server_repairs_gaps_of_its_own(url: str, cast: ExitStack) -> None:
    server = cast.enter_context(running(RequestServer(f"{url}?loss=0.1&seed=5")))
    publisher = cast.enter_context(open_publisher(url, linger_s=0.0))
    for number in range(2000):
        publisher.publish("t", number)
    stats = wait_for(server, lambda stats: stats.kept == 2000)
    assert stats.recovered > 100
    assert stats.lost == 0


def test_a_late_joiner_is_served_after_the_publisher_has_ended(url: str, cast: ExitStack) -> None:
    server = cast.enter_context(running(RequestServer(url)))
    with open_publisher(url, linger_s=0.0) as publisher:
        for number in range(1, 1001):
            publisher.publish("t", number)
        wait_for(server, lambda stats: stats.kept == 1000)
    assert_everything(join_from_first(url, where(server), 1000), 1000)


def test_a_joiner_that_names_no_server_finds_it(url: str, cast: ExitStack) -> None:
    server = cast.enter_context(running(RequestServer(url)))
    publisher = doomed(cast, url)
    publisher.publish(100)
    publisher.die_after_the_last()
    wait_for(server, lambda stats: stats.kept == 100)
    with open_subscriber(url, start="first") as subscriber:
        events = [subscriber.receive(PATIENCE_S / 2) for _ in range(100)]
    assert [event and event.value for event in events] == list(range(1, 101))


@pytest.mark.parametrize("options", ["interface=lo", "interface=127.0.0.1&ttl=0"])
def test_a_server_on_any_address_is_found_by_its_announcements(
    url: str, cast: ExitStack, options: str
) -> None:
    server = cast.enter_context(running(RequestServer(f"{url}?{options}", listen=("0.0.0.0", 0))))
    publisher = doomed(cast, f"{url}?{options}")
    publisher.publish(100)
    publisher.die_after_the_last()
    wait_for(server, lambda stats: stats.announced > 1)
    with open_subscriber(f"{url}?{options}", start="first") as subscriber:
        events = [subscriber.receive(PATIENCE_S / 2) for _ in range(100)]
    assert [event and event.value for event in events] == list(range(1, 101))


def test_a_live_joiner_gets_nothing_old(url: str, cast: ExitStack) -> None:
    server = cast.enter_context(running(RequestServer(url)))
    publisher = doomed(cast, url)
    publisher.publish(100)
    publisher.die_after_the_last()
    wait_for(server, lambda stats: stats.announced > 0)
    with open_subscriber(f"{url}?request={where(server)}") as subscriber:
        seen, started = server.stats.announced, time.monotonic()
        wait_for(server, lambda stats: stats.announced > seen + 2)
        assert time.monotonic() - started < 3 * SILENT_S  # it does not take itself for another
        assert subscriber.receive(0.0) is None
        (stream,) = subscriber.ledger.streams
        assert stream.expected == 0


def test_a_second_server_copies_from_the_first(url: str, cast: ExitStack) -> None:
    publisher = doomed(cast, url)
    with running(RequestServer(url)) as first:
        publisher.publish(1000)
        publisher.wait_sent()
        wait_for(first, lambda stats: stats.kept == 1000)
        publisher.kill()
        second = cast.enter_context(running(RequestServer(url)))
        wait_for(second, lambda stats: stats.kept == 1000)
    assert_everything(join_from_first(url, where(second), 1000), 1000)


# -- a server that dies ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_server_killed_at_any_moment_serves_everything_from_the_first_message(
    url: str, cast: ExitStack, tmp_path: Path, seed: int
) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    count, rate = 6000, 2000.0
    publisher = doomed(cast, url)
    publisher.publish(count, rate)
    give_up_at = time.monotonic() + count / rate
    kills = 0
    while time.monotonic() < give_up_at:
        server = served_by(cast, f"{url}?loss=0.02&seed={seed}", "--file", str(tmp_path))
        time.sleep(random.uniform(0.0, 0.5))  # the moment is what the seed decides
        server.kill()
        kills += 1
    assert publisher.wait_sent() == count
    with running(RequestServer(url, file=tmp_path)) as last:
        wait_for(last, lambda stats: stats.in_file == count)
    publisher.kill()
    assert kills >= 2
    after = served_by(cast, url, "--file", str(tmp_path))
    assert_everything(join_from_first(url, after.where, count), count)


def test_a_restarted_server_asks_only_for_what_it_missed(
    url: str, cast: ExitStack, tmp_path: Path
) -> None:
    publisher = cast.enter_context(open_publisher(url, linger_s=0.0))
    with running(RequestServer(url, file=tmp_path)) as first:
        for number in range(1000):
            publisher.publish("t", number)
        wait_for(first, lambda stats: stats.in_file == 1000)
    for number in range(500):
        publisher.publish("t", number)
    again = cast.enter_context(running(RequestServer(url, file=tmp_path)))
    stats = wait_for(again, lambda stats: stats.in_file == 1500)
    assert stats.recovered == stats.kept == 500


# -- a disk that is full -----------------------------------------------------------------------


def test_a_full_disk_is_told_and_memory_goes_on(url: str, cast: ExitStack, tmp_path: Path) -> None:
    server = served_by(cast, url, "--file", str(tmp_path), file_bytes=50_000)
    publisher = cast.enter_context(open_publisher(url, linger_s=0.0))
    for number in range(1, 3001):
        publisher.publish("t", number)
    assert_everything(join_from_first(url, server.where, 3000), 3000)
    report = server.end()
    assert report["kept"] == 3000
    assert isinstance(report["in_file"], int)
    assert 0 < report["in_file"] < 3000
    assert report["not_filed"] == 3000 - report["in_file"]
    assert "File too large; what comes is kept in memory only" in str(report["fault"])


def test_what_neither_disk_nor_memory_had_room_for_is_reported_as_lost(
    url: str, cast: ExitStack, tmp_path: Path
) -> None:
    arguments = (url, "--file", str(tmp_path), "--ring", "500K")
    server = served_by(cast, *arguments, file_bytes=500_000)
    publisher = doomed(cast, url)
    count = 20_000
    publisher.publish(count, 20_000)
    publisher.wait_sent()
    publisher.die_after_the_last()
    items = join_from_first(url, server.where, count)
    losses = [item for item in items if isinstance(item, Loss)]
    events = [item.sequence for item in items if isinstance(item, Event)]
    assert losses
    report = server.end()
    assert report["kept"] == count
    assert sorted(
        [*events, *(number for loss in losses for number in range(loss.first, loss.last + 1))]
    ) == list(range(1, count + 1))
    assert isinstance(report["in_file"], int)
    assert isinstance(report["in_memory"], int)
    assert len(events) >= report["in_file"]
    assert events[-report["in_memory"] :] == list(range(count - report["in_memory"] + 1, count + 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a tmpfs of its own")
def test_a_file_system_without_space_is_told_and_memory_goes_on(
    url: str, cast: ExitStack, tmp_path: Path
) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    cast.callback(subprocess.run, ["umount", str(tmp_path)], check=True)
    server = served_by(cast, url, "--file", str(tmp_path / "log"))
    publisher = cast.enter_context(open_publisher(url, linger_s=0.0))
    for number in range(1, 6001):
        publisher.publish("t", number)
    assert_everything(join_from_first(url, server.where, 6000), 6000)
    report = server.end()
    assert report["not_filed"] == 6000 - int(str(report["in_file"])) > 0
    assert "No space left on device" in str(report["fault"])


# -- requests ----------------------------------------------------------------------------------


class Client:
    """A MoldUDP64 client that asks by hand."""

    def __init__(self, server: Address) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(PATIENCE_S)
        self._server = server

    def send(self, data: bytes, to: Address | None = None) -> None:
        self._socket.sendto(data, to or self._server)

    def receive(self) -> bytes:
        return self._socket.recv(65_535)

    def receive_all(self, quiet_s: float) -> list[bytes]:
        self._socket.settimeout(quiet_s)
        found = []
        try:
            while True:
                found.append(self.receive())
        except TimeoutError:
            return found

    def close(self) -> None:
        self._socket.close()


def kept(cast: ExitStack, url: str, count: int, server: RequestServer) -> bytes:
    """Lets the server keep `count` raw messages; returns their session."""
    publisher = cast.enter_context(open_publisher(f"{url}?payload=raw", linger_s=0.0))
    for number in range(count):
        publisher.publish("", b"%0100d" % number)
    wait_for(server, lambda stats: stats.kept == count)
    return publisher.stats.session.encode()


def sender_to(cast: ExitStack, group: str, port: int) -> Client:
    """Sends packets made by hand to a group."""
    sender = Client((group, port))
    cast.callback(sender.close)
    loopback = socket.inet_aton("127.0.0.1")
    sender._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
    return sender


def client_of(cast: ExitStack, server: RequestServer) -> Client:
    client = Client(server.address)
    cast.callback(client.close)
    return client


def test_a_request_gets_one_plain_packet(url: str, cast: ExitStack) -> None:
    server = cast.enter_context(running(RequestServer(url)))
    session = kept(cast, url, 100, server)
    client = client_of(cast, server)
    client.send(encode_header(session, 5, MAX_MESSAGE_COUNT))
    data = client.receive()
    header = decode_header(data)
    assert header == (session, 5, (1400 - HEADER_BYTES) // 102)
    assert decode_messages(data, header)[0] == b"%0100d" % 4


def test_requests_that_cannot_be_answered_are_counted(url: str, cast: ExitStack) -> None:
    server = cast.enter_context(running(RequestServer(url)))
    session = kept(cast, url, 100, server)
    client = client_of(cast, server)
    for data in (
        b"short",
        encode_header(session, 1, 1) + b"trailing",
        encode_header(session, 0, 1),
        encode_header(session, 1, 0),
        encode_header(session, 1, END_OF_SESSION_COUNT),
        encode_header(b"NO-SESSION", 1, 1),
        encode_header(session, 101, 1),
    ):
        client.send(data)
    client.send(encode_header(session, 100, 1))
    assert decode_header(client.receive()) == (session, 100, 1)
    ignored = server.stats.ignored_requests
    assert ignored == {"malformed": 5, "foreign_session": 1, "future": 1}


def test_what_memory_let_go_is_refused_with_the_oldest_that_is_left(
    url: str, cast: ExitStack
) -> None:
    server = cast.enter_context(running(RequestServer(url, ring_bytes=50 * 300)))
    session = kept(cast, url, 100, server)
    client = client_of(cast, server)
    client.send(encode_header(session, 1, 10))
    _, oldest, count = decode_header(client.receive())
    assert count == 0
    assert 51 <= oldest <= 51 + JOINED_MESSAGES
    assert server.stats.requests_refused == 1
    client.send(encode_header(session, oldest, 1))
    assert decode_header(client.receive()) == (session, oldest, 1)


def test_a_greedy_requester_gets_no_more_than_its_budget(url: str, cast: ExitStack) -> None:
    rate, burst = 1_000_000, 20_000
    budgets = RequestOptions(requester_bytes_per_s=rate, burst_bytes=burst)
    server = cast.enter_context(running(RequestServer(url, requests=budgets)))
    session = kept(cast, url, 1000, server)
    client = client_of(cast, server)
    started = time.monotonic()
    for number in range(1, 988):
        client.send(encode_header(session, number, 13))
    replies = client.receive_all(quiet_s=0.5)
    elapsed_s = time.monotonic() - started - 0.5
    got = sum(map(len, replies))
    assert got > 2 * burst
    assert got <= burst + rate * elapsed_s + 1400


def test_a_forged_datagram_on_the_group_is_counted(url: str, cast: ExitStack) -> None:
    server = cast.enter_context(running(RequestServer(url)))
    group, port = url.removeprefix("multicast://").split(":")
    sender = sender_to(cast, group, int(port))
    sender.send(b"short")
    sender.send(encode_header(b"SESSION001", 1, 2) + b"\0\1a")
    stats = wait_for(server, lambda stats: len(stats.ignored) == 2)
    assert stats.ignored == {"short_header": 1, "wrong_count": 1}


# -- the command -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_with_one_line_of_json(
    url: str, cast: ExitStack, number: signal.Signals
) -> None:
    server = served_by(cast, url, "--listen", "127.0.0.1:0", "--ring", "1M")
    report = server.end(number)
    assert report["kept"] == 0
    assert report["fault"] == ""
    assert server.said == [f"answering requests on {server.where}\n"]


def refused(*arguments: str) -> str:
    """What the command says when it does not start."""
    result = subprocess.run(
        [*ONEHOP, "request-server", *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert result.returncode == 2
    assert result.stdout == ""
    (sentence,) = result.stderr.splitlines()
    return sentence


def test_wrong_input_is_one_sentence(url: str, cast: ExitStack, tmp_path: Path) -> None:
    assert "expected a number of bytes" in refused(url, "--ring", "lots")
    assert "expected a number of bytes" in refused(url, "--ring", "0")
    assert "expected IP:PORT" in refused(url, "--listen", "7400")
    assert "needs IPv4" in refused(url, "--listen", "[::1]:0")
    assert "cannot listen for requests on 192.0.2.1:0" in refused(url, "--listen", "192.0.2.1:0")
    assert "multicast://" in refused("memory://here")
    assert "no multicast group" in refused("multicast://10.0.0.1:7400")
    (tmp_path / "file").touch()
    assert "cannot open" in refused(url, "--file", str(tmp_path / "file"))
    server = served_by(cast, url, "--file", str(tmp_path / "log"))
    assert "Address already in use" in refused(url, "--listen", server.where)
    assert "another writer" in refused(url, "--file", str(tmp_path / "log"))
