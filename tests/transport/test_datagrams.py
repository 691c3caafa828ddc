"""Both readers and both senders, over real sockets on loopback, against the same sentences."""

import errno
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import NamedTuple

import pytest

from onehop.transport import datagrams
from onehop.transport.datagrams import Address, PurePythonReader, Received, send_batch_pure
from onehop.transport.errors import ConfigurationError, LimitError, LocalError

pytestmark = pytest.mark.twin

DEADLINE_S = 5.0
SHORT_S = 0.05


class Implementation(NamedTuple):
    reader: type[datagrams.DatagramReader] | type[PurePythonReader]
    send: Callable[[socket.socket, list[tuple[bytes, Address]]], int]


TWIN = Implementation(PurePythonReader, send_batch_pure)
IMPLEMENTATIONS = {"python": TWIN}
if datagrams.COMPILED:
    IMPLEMENTATIONS["compiled"] = Implementation(datagrams.DatagramReader, datagrams.send_batch)


@pytest.fixture(params=list(IMPLEMENTATIONS))
def implementation(request: pytest.FixtureRequest) -> Implementation:
    return IMPLEMENTATIONS[str(request.param)]


class Sockets:
    """Opens UDP sockets on loopback and closes them with the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def open(self, host: str | None = None, rcvbuf: int = 0) -> socket.socket:
        family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
        sock = self._stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if host:
            sock.bind((host, 0))
        return sock


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    with ExitStack() as stack:
        yield Sockets(stack)


@pytest.fixture
def receiver(sockets: Sockets) -> socket.socket:
    return sockets.open("127.0.0.1", rcvbuf=1 << 20)


@pytest.fixture
def sender(sockets: Sockets) -> socket.socket:
    return sockets.open("127.0.0.1")


def say(sender: socket.socket, receiver: socket.socket, *payloads: bytes) -> None:
    for payload in payloads:
        sender.sendto(payload, receiver.getsockname())


def payloads(found: list[Received]) -> list[bytes]:
    return [data for data, _, _ in found]


def drain(reader: datagrams.DatagramReader | PurePythonReader) -> list[Received]:
    everything: list[Received] = []
    while found := reader.receive_wait(SHORT_S):
        everything += found
    return everything


# ---------------------------------------------------------------------------- receive


def test_nothing_there_gives_an_empty_list_at_once(
    implementation: Implementation, receiver: socket.socket
) -> None:
    started = time.monotonic()
    assert implementation.reader(receiver).receive() == []
    assert time.monotonic() - started < 1


def test_order_content_and_address_are_kept(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver)
    sent = [b"", b"a", bytes(range(256)), b"\0\0", b"x" * 2048]
    say(sender, receiver, *sent)
    found = reader.receive()
    assert payloads(found) == sent
    assert {address for _, address, _ in found} == {sender.getsockname()}


def test_address_is_what_recvfrom_gives(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver)
    say(sender, receiver, b"one", b"two")
    _, expected = receiver.recvfrom(16)
    ((_, address, _),) = reader.receive()
    assert address == expected
    assert [type(part) for part in address] == [type(part) for part in expected]


def test_ipv6_address_is_what_recvfrom_gives(
    implementation: Implementation, sockets: Sockets
) -> None:
    try:
        receiver = sockets.open("::1")
    except OSError as error:
        pytest.skip(f"no ::1 on this machine: {error}")
    sender = sockets.open("::1")
    reader = implementation.reader(receiver)
    to = receiver.getsockname()
    assert implementation.send(sender, [(b"one", to), (b"two", to[:2])]) == 2
    _, expected = receiver.recvfrom(16)
    ((data, address, _),) = reader.receive()
    assert (data, address) == (b"two", expected)
    assert address == sender.getsockname()
    assert len(address) == 4


def test_alternating_senders_keep_their_addresses(
    implementation: Implementation, receiver: socket.socket, sockets: Sockets
) -> None:
    reader = implementation.reader(receiver)
    senders = [sockets.open("127.0.0.1") for _ in range(3)]
    for turn in range(12):
        say(senders[turn % 3], receiver, b"%d" % turn)
    expected = [senders[turn % 3].getsockname() for turn in range(12)]
    assert [address for _, address, _ in reader.receive()] == expected


def test_more_addresses_than_are_kept_are_all_right() -> None:
    # bound - 1, bound and bound + 1 in one sweep, twice: the second meets what was thrown out
    for _ in range(2):
        for port in range(1, datagrams.MAX_ADDRESSES + 2):
            raw = datagrams.encode_address(socket.AF_INET, ("10.0.0.1", port))
            assert datagrams.decode_address(raw) == ("10.0.0.1", port)
    assert datagrams.encode_address.cache_info().currsize == datagrams.MAX_ADDRESSES
    assert datagrams.decode_address.cache_info().currsize == datagrams.MAX_ADDRESSES


@pytest.mark.parametrize(
    "address", [("127.0.0.1", 5), ("::1", 5, 0, 0), ("fe80::1", 65_535, 0xF_FFFF, 2**32 - 1)]
)
def test_address_survives_the_kernel_form(address: Address) -> None:
    family = socket.AF_INET if len(address) == 2 else socket.AF_INET6
    assert datagrams.decode_address(datagrams.encode_address(family, address)) == address


def test_one_call_returns_at_most_the_batch(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver, batch=4)
    say(sender, receiver, *(b"%d" % number for number in range(9)))
    assert [len(reader.receive()) for _ in range(4)] == [4, 4, 1, 0]


def test_used_slots_carry_nothing_over(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver, batch=2)
    for round_number in range(20):
        sent = [b"long" * 50, b"s%d" % round_number][: 1 + round_number % 2]
        say(sender, receiver, *sent)
        found = reader.receive()
        assert payloads(found) == sent
        assert all(address == sender.getsockname() for _, address, _ in found)


@pytest.mark.parametrize("length", [99, 100, 101])
def test_datagram_over_the_size_is_counted_and_not_returned(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket, length: int
) -> None:
    reader = implementation.reader(receiver, size=100)
    say(sender, receiver, b"before", b"x" * length, b"after")
    found = payloads(reader.receive())
    is_over = length > 100
    assert found == ([b"before", b"after"] if is_over else [b"before", b"x" * length, b"after"])
    assert reader.truncated == int(is_over)


def test_good_datagram_behind_a_batch_of_oversized_ones_is_returned(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver, batch=2, size=10)
    say(sender, receiver, *[b"x" * 11] * 6, b"good")
    assert payloads(reader.receive()) == [b"good"]
    assert reader.truncated == 6


@pytest.mark.parametrize("oversized", [-1, 0, 1])
def test_flood_of_oversized_datagrams_ends_after_the_rounds(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket, oversized: int
) -> None:
    reader = implementation.reader(receiver, batch=1, size=10)
    count = datagrams.ROUNDS + oversized
    say(sender, receiver, *[b"x" * 11] * count, b"good")
    calls = [payloads(reader.receive()) for _ in range(2)]
    assert calls == ([[b"good"], []] if count < datagrams.ROUNDS else [[], [b"good"]])
    assert reader.truncated == count


def test_stamp_is_the_kernels_and_close_to_the_clock(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver)
    before_ns = time.time_ns()
    say(sender, receiver, b"one", b"two")
    after_ns = time.time_ns()
    time.sleep(SHORT_S)
    stamps = [stamp for _, _, stamp in reader.receive()]
    assert stamps == sorted(stamps)
    # taken when the datagram came, not when it was read
    assert before_ns <= stamps[0] <= stamps[1] <= after_ns + 10_000_000


def test_without_stamps_the_clock_is_read(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver)
    receiver.setsockopt(socket.SOL_SOCKET, datagrams.SO_TIMESTAMPNS, 0)
    say(sender, receiver, b"one")
    before_ns = time.time_ns()
    ((_, _, stamp),) = reader.receive()
    assert before_ns <= stamp <= time.time_ns()


def test_ancillary_data_of_others_is_cut_and_ours_is_kept(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket
) -> None:
    reader = implementation.reader(receiver)
    for option in (8, socket.IP_RECVTOS, 12, 20):  # PKTINFO, RECVTTL, ORIGDSTADDR: over 64 bytes
        receiver.setsockopt(socket.IPPROTO_IP, option, 1)
    before_ns = time.time_ns()
    say(sender, receiver, b"one")
    after_ns = time.time_ns()
    time.sleep(SHORT_S)
    ((data, address, stamp),) = reader.receive()
    assert (data, address) == (b"one", sender.getsockname())
    assert before_ns <= stamp <= after_ns + 10_000_000


# ---------------------------------------------------------------------------- counters


def test_received_and_kernel_drops_are_exactly_what_was_sent(
    implementation: Implementation, sockets: Sockets
) -> None:
    receiver, sender = sockets.open("127.0.0.1", rcvbuf=4096), sockets.open("127.0.0.1")
    reader = implementation.reader(receiver)
    say(sender, receiver, *[b"flood"] * 500)
    received = len(drain(reader))
    assert 0 < received < 500
    say(sender, receiver, b"and the counter")
    received += len(reader.receive_wait(DEADLINE_S))
    assert received + reader.kernel_drops == 501
    assert (reader.truncated, reader.errors) == (0, 0)


def test_truncated_datagram_brings_the_drop_counter_too(
    implementation: Implementation, sockets: Sockets
) -> None:
    receiver, sender = sockets.open("127.0.0.1", rcvbuf=4096), sockets.open("127.0.0.1")
    reader = implementation.reader(receiver, size=10)
    say(sender, receiver, *[b"flood"] * 100)
    received = len(drain(reader))
    say(sender, receiver, b"longer than ten")
    assert reader.receive_wait(SHORT_S) == []
    assert received + reader.truncated + reader.kernel_drops == 101


def test_drop_counter_goes_on_over_its_32_bits(
    implementation: Implementation, receiver: socket.socket
) -> None:
    reader = implementation.reader(receiver)
    for seen, total in [
        (7, 7),
        (2**31 + 6, 2**31 + 6),  # the largest step forward
        (2**32 - 1, 2**32 - 1),
        (2, 2**32 + 2),  # wrapped
        (2**32 - 1, 2**32 + 2),  # a step back is no drop
        (3, 2**32 + 3),
    ]:
        reader._note_drops(seen)
        assert reader.kernel_drops == total


def refused(receiver: socket.socket, sockets: Sockets) -> None:
    """Connects to a port nobody has, and provokes its ICMP answer."""
    gone = sockets.open("127.0.0.1")
    receiver.connect(gone.getsockname())
    gone.close()
    receiver.send(b"anyone?")


def test_refused_connection_is_counted_and_not_raised(
    implementation: Implementation, receiver: socket.socket, sockets: Sockets
) -> None:
    reader = implementation.reader(receiver)
    refused(receiver, sockets)
    assert reader.wait(DEADLINE_S)
    assert reader.receive() == []
    assert reader.errors == 1
    assert not reader.wait(0)


def test_datagram_behind_an_error_is_returned_by_the_same_call(
    implementation: Implementation, receiver: socket.socket, sockets: Sockets
) -> None:
    reader = implementation.reader(receiver)
    peer = sockets.open("127.0.0.1")
    receiver.connect(peer.getsockname())
    say(peer, receiver, b"data")
    peer.close()
    receiver.send(b"anyone?")
    assert payloads(reader.receive_wait(DEADLINE_S)) == [b"data"]
    assert reader.errors == 1


def test_error_does_not_end_a_wait(
    implementation: Implementation, receiver: socket.socket, sockets: Sockets
) -> None:
    reader = implementation.reader(receiver)
    refused(receiver, sockets)
    started = time.monotonic()
    assert reader.receive_wait(SHORT_S) == []
    assert time.monotonic() - started >= SHORT_S
    assert reader.errors == 1


@pytest.mark.parametrize("method", ["receive", "wait", "receive_wait", "spin"])
def test_closed_socket_raises_bad_file_descriptor(
    implementation: Implementation, receiver: socket.socket, method: str
) -> None:
    reader = implementation.reader(receiver)
    receiver.close()
    arguments = () if method == "receive" else (DEADLINE_S,)
    with pytest.raises(OSError, match="Bad file descriptor") as raised:
        getattr(reader, method)(*arguments)
    assert raised.value.errno == errno.EBADF


# ---------------------------------------------------------------------------- limits


@pytest.mark.parametrize("batch", [1, 2, 1023, 1024])
def test_batch_within_its_limits_reads(
    implementation: Implementation, receiver: socket.socket, sender: socket.socket, batch: int
) -> None:
    reader = implementation.reader(receiver, batch, 64)
    say(sender, receiver, b"one")
    assert payloads(reader.receive()) == [b"one"]


@pytest.mark.parametrize("batch", [-1, 0, 1025])
def test_batch_over_its_limits_is_refused(
    implementation: Implementation, receiver: socket.socket, batch: int
) -> None:
    with pytest.raises(LimitError, match=f"batch is {batch}, expected 1 to 1024"):
        implementation.reader(receiver, batch=batch)


@pytest.mark.parametrize("size", [1, 65_534, 65_535])
def test_size_within_its_limits_is_taken(
    implementation: Implementation, receiver: socket.socket, size: int
) -> None:
    assert implementation.reader(receiver, 1, size).receive() == []


@pytest.mark.parametrize("size", [-1, 0, 65_536])
def test_size_over_its_limits_is_refused(
    implementation: Implementation, receiver: socket.socket, size: int
) -> None:
    with pytest.raises(LimitError, match=f"size is {size}, expected 1 to 65535"):
        implementation.reader(receiver, size=size)


def test_other_sockets_are_refused(implementation: Implementation, receiver: socket.socket) -> None:
    with socket.socket() as stream, pytest.raises(ConfigurationError, match="expected a UDP"):
        implementation.reader(stream)
    receiver.settimeout(1.5)
    with pytest.raises(ConfigurationError, match=r"timeout of 1\.5 s, expected none"):
        implementation.reader(receiver)


# ---------------------------------------------------------------------------- waiting


@pytest.mark.parametrize("method", ["wait", "receive_wait", "spin"])
@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), 0.0015, SHORT_S])
def test_timeout_is_kept(
    implementation: Implementation, receiver: socket.socket, method: str, timeout_s: float
) -> None:
    reader = implementation.reader(receiver)
    started = time.monotonic()
    assert not getattr(reader, method)(timeout_s)
    elapsed = time.monotonic() - started
    # generous above, because the machine may be busy; exact below
    assert elapsed < 1
    if timeout_s > 0:
        assert elapsed >= timeout_s


@pytest.mark.compiled
def test_compiled_wait_is_not_rounded_to_milliseconds(receiver: socket.socket) -> None:
    reader = datagrams.DatagramReader(receiver)
    shortest = 1.0
    for _ in range(50):
        started = time.monotonic()
        assert reader.receive_wait(0.0002) == []
        shortest = min(shortest, time.monotonic() - started)
    assert 0.0002 <= shortest < 0.0009


@pytest.mark.parametrize("method", ["receive_wait", "spin"])
@pytest.mark.parametrize("timeout_s", [None, DEADLINE_S, 1e300])
def test_data_already_there_ends_the_wait_at_once(
    implementation: Implementation,
    receiver: socket.socket,
    sender: socket.socket,
    method: str,
    timeout_s: float | None,
) -> None:
    reader = implementation.reader(receiver)
    say(sender, receiver, b"one")
    assert reader.wait(timeout_s)
    assert payloads(getattr(reader, method)(timeout_s)) == [b"one"]


@pytest.mark.parametrize("method", ["wait", "receive_wait", "spin"])
@pytest.mark.parametrize("timeout_s", [None, DEADLINE_S])
def test_data_arriving_ends_the_wait(
    implementation: Implementation,
    receiver: socket.socket,
    sender: socket.socket,
    method: str,
    timeout_s: float | None,
) -> None:
    reader = implementation.reader(receiver)
    timer = threading.Timer(SHORT_S, say, (sender, receiver, b"late"))
    timer.start()
    started = time.monotonic()
    assert getattr(reader, method)(timeout_s)
    assert SHORT_S / 2 < time.monotonic() - started < DEADLINE_S / 2
    timer.join()


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[int, FrameType | None], None]], None]]:
    """Installs a handler and rings it once, after SHORT_S."""
    previous = signal.getsignal(signal.SIGALRM)

    def ring(handler: Callable[[int, FrameType | None], None]) -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, SHORT_S)

    yield ring
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("method", ["wait", "receive_wait", "spin"])
@pytest.mark.parametrize("timeout_s", [None, DEADLINE_S])
def test_signal_handler_that_raises_ends_the_wait(
    implementation: Implementation,
    receiver: socket.socket,
    alarm: Callable[[Callable[[int, FrameType | None], None]], None],
    method: str,
    timeout_s: float | None,
) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    reader = implementation.reader(receiver)
    alarm(interrupt)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        getattr(reader, method)(timeout_s)
    assert time.monotonic() - started < DEADLINE_S / 2
    assert reader.receive() == []


@pytest.mark.parametrize("method", ["wait", "receive_wait", "spin"])
def test_signal_handler_that_returns_does_not_shorten_the_wait(
    implementation: Implementation,
    receiver: socket.socket,
    alarm: Callable[[Callable[[int, FrameType | None], None]], None],
    method: str,
) -> None:
    rung: list[int] = []
    reader = implementation.reader(receiver)
    alarm(lambda number, frame: rung.append(number))
    started = time.monotonic()
    assert not getattr(reader, method)(3 * SHORT_S)
    assert time.monotonic() - started >= 3 * SHORT_S
    assert rung == [signal.SIGALRM]


@pytest.mark.compiled
def test_compiled_reader_refuses_a_second_thread(
    receiver: socket.socket, sender: socket.socket
) -> None:
    reader = datagrams.DatagramReader(receiver)
    found: list[Received] = []
    thread = threading.Thread(target=lambda: found.extend(reader.receive_wait(DEADLINE_S)))
    thread.start()
    time.sleep(SHORT_S)
    with pytest.raises(LocalError, match="another thread"):
        reader.receive()
    say(sender, receiver, b"for the first")
    thread.join()
    assert payloads(found) == [b"for the first"]
    assert reader.receive() == []


# ---------------------------------------------------------------------------- send


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 2000])
def test_batch_of_any_length_arrives_in_order(
    implementation: Implementation, sockets: Sockets, sender: socket.socket, count: int
) -> None:
    receiver = sockets.open("127.0.0.1", rcvbuf=1 << 22)
    reader = implementation.reader(receiver)
    sent = [b"%d" % number for number in range(count)]
    to = receiver.getsockname()
    assert implementation.send(sender, [(payload, to) for payload in sent]) == count
    assert payloads(drain(reader)) == sent


def test_each_datagram_goes_to_its_own_address(
    implementation: Implementation, sockets: Sockets, sender: socket.socket
) -> None:
    receivers = [sockets.open("127.0.0.1") for _ in range(3)]
    batch: list[tuple[bytes, Address]] = [
        (b"%d" % number, receivers[number % 3].getsockname()) for number in range(9)
    ]
    assert implementation.send(sender, batch) == 9
    for index, receiver in enumerate(receivers):
        found = drain(implementation.reader(receiver))
        assert payloads(found) == [b"%d" % number for number in range(index, 9, 3)]


def test_first_datagram_the_kernel_refuses_is_raised(
    implementation: Implementation, sender: socket.socket, receiver: socket.socket
) -> None:
    with pytest.raises(OSError, match="Message too long") as raised:
        implementation.send(sender, [(b"x" * 65_508, receiver.getsockname())])
    assert raised.value.errno == errno.EMSGSIZE


@pytest.mark.parametrize("good", [1, 128, 130])
def test_later_datagram_the_kernel_refuses_ends_the_batch(
    implementation: Implementation, sender: socket.socket, receiver: socket.socket, good: int
) -> None:
    to = receiver.getsockname()
    batch = [*[(b"good", to)] * good, (b"x" * 65_508, to), (b"never", to)]
    assert implementation.send(sender, batch) == good
    assert payloads(drain(implementation.reader(receiver))) == [b"good"] * good


@pytest.mark.parametrize("good", [1, 128, 130])
def test_later_item_that_is_no_datagram_ends_the_batch(
    implementation: Implementation, sender: socket.socket, receiver: socket.socket, good: int
) -> None:
    to = receiver.getsockname()
    for bad in ((b"name", ("localhost", 1)), ("text", to), None):
        batch = [*[(b"good", to)] * good, bad, (b"never", to)]
        assert implementation.send(sender, batch) == good  # type: ignore[arg-type]
        assert payloads(drain(implementation.reader(receiver))) == [b"good"] * good


@pytest.mark.parametrize(
    "address",
    [
        ("localhost", 9),
        ("", 9),
        ("<broadcast>", 9),
        ("127.0.0.1\0", 9),
        ("127.1", 9),
        ("::1", 9),
        ("127.0.0.1", -1),
        ("127.0.0.1", 65_536),
        ("127.0.0.1", "9"),
        ("127.0.0.1", 9, 0, 0),
        ("127.0.0.1",),
        (b"127.0.0.1", 9),
        None,
    ],
)
def test_address_that_is_not_numeric_ipv4_is_refused(
    implementation: Implementation, sender: socket.socket, address: Address
) -> None:
    with pytest.raises(ConfigurationError, match="expected numeric IPv4"):
        implementation.send(sender, [(b"data", address)])


@pytest.mark.parametrize(
    "address",
    [
        ("127.0.0.1", 9),
        ("fe80::1%lo", 9),
        ("::1", 9, 2**20, 0),
        ("::1", 9, -1, 0),
        ("::1", 9, 0, 2**32),
        ("::1", 9, 0),
    ],
)
def test_address_that_is_not_numeric_ipv6_is_refused(
    implementation: Implementation, sockets: Sockets, address: Address
) -> None:
    try:
        sender = sockets.open("::1")
    except OSError as error:
        pytest.skip(f"no ::1 on this machine: {error}")
    with pytest.raises(ConfigurationError, match="expected numeric IPv6"):
        implementation.send(sender, [(b"data", address)])


@pytest.mark.parametrize("item", [None, b"data", (b"data",), ["data", None], ("text", None)])
def test_first_item_that_is_no_datagram_is_raised(
    implementation: Implementation, sender: socket.socket, item: tuple[bytes, Address]
) -> None:
    with pytest.raises(TypeError, match=r"expected \(bytes, address\)"):
        implementation.send(sender, [item])


def test_closed_sender_raises_bad_file_descriptor(
    implementation: Implementation, sender: socket.socket
) -> None:
    sender.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        implementation.send(sender, [(b"data", ("127.0.0.1", 9))])


class FullSocket(socket.socket):
    """Refuses from the third datagram on, as a full send buffer does."""

    accepted = 0

    def sendto(self, *arguments: object) -> int:
        self.accepted += 1
        if self.accepted > 2:
            raise BlockingIOError(errno.EAGAIN, "full")
        return 0


def test_full_buffer_is_a_count_and_no_error() -> None:
    # Only the twin can be tested so: loopback delivers at once and never fills a send buffer.
    with FullSocket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        batch: list[tuple[bytes, Address]] = [(b"data", ("127.0.0.1", 9))] * 5
        assert send_batch_pure(sender, batch) == 2
        assert send_batch_pure(sender, batch) == 0


# ---------------------------------------------------------------------------- both


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(5))
def test_both_readers_give_the_same_tape_for_the_same_traffic(sockets: Sockets, seed: int) -> None:
    print(f"seed={seed}")
    random_ = random.Random(seed)
    batch, size = random_.randint(1, 70), random_.randint(1, 300)
    traffic = [random_.randbytes(random_.randint(0, 2 * size)) for _ in range(300)]
    senders = [sockets.open("127.0.0.1") for _ in range(3)]
    speakers = [random_.randrange(3) for _ in traffic]
    tapes = []
    for implementation in IMPLEMENTATIONS.values():
        receiver = sockets.open("127.0.0.1", rcvbuf=1 << 20)
        reader = implementation.reader(receiver, batch, size)
        for speaker, payload in zip(speakers, traffic, strict=True):
            assert implementation.send(senders[speaker], [(payload, receiver.getsockname())]) == 1
        calls = []
        while found := reader.receive():
            calls.append([(data, address) for data, address, _ in found])
        tapes.append((calls, reader.truncated, reader.kernel_drops, reader.errors))
    assert tapes[0] == tapes[1]
    assert sum(map(len, tapes[0][0])) + tapes[0][1] == 300


def test_environment_selects_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setenv("ONEHOP_PURE_PYTHON", "1")
    spec = importlib.util.spec_from_file_location("datagrams_again", datagrams.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.COMPILED is False
    assert module.DatagramReader is module.PurePythonReader
    assert module.send_batch is module.send_batch_pure
