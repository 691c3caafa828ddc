"""Ports on a network in memory, and what they do at their bounds."""

import select
import threading
import time
from collections.abc import Callable

import pytest

from onehop.transport.datagrams import Address
from onehop.transport.memory import MAX_INBOX, MemoryNetwork, MemoryPort
from onehop.transport.ports import BATCH

GROUP: Address = ("group", 1)
NetworkMaker = Callable[..., MemoryNetwork]


def send(sender: MemoryPort, numbers: range, to: MemoryPort) -> None:
    sender.send([(b"%d" % number, to.address) for number in numbers])


def received(port: MemoryPort) -> list[int]:
    """Everything that waits at a port."""
    numbers: list[int] = []
    while batch := port.receive():
        numbers += [int(data) for data, _, _ in batch]
    return numbers


def test_a_group_reaches_every_listener_and_nobody_else(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    listeners = [whole.open_port(GROUP) for _ in range(3)]
    sender = whole.open_port()

    sender.send([(b"7", GROUP)])

    assert [received(port) for port in (*listeners, sender)] == [[7], [7], [7], []]
    assert whole.listeners(GROUP) == 3
    listeners[0].close()
    assert whole.listeners(GROUP) == 2
    assert whole.listeners(("group", 2)) == 0


def test_a_datagram_tells_who_sent_it_and_when(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b = whole.open_port(), whole.open_port()
    before = time.time_ns()

    a.send([(b"7", b.address)])

    ((data, origin, at_ns),) = b.receive()
    assert (data, origin) == (b"7", a.address)
    assert before <= at_ns <= time.time_ns()


def test_a_port_is_readable_while_something_waits(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b = whole.open_port(), whole.open_port()

    def is_readable() -> bool:
        return select.select([b], [], [], 0)[0] == [b]

    assert not is_readable()
    send(a, range(BATCH + 1), b)
    assert is_readable()
    assert len(b.receive()) == BATCH
    assert is_readable()
    assert len(b.receive()) == 1
    assert not is_readable()
    assert b.receive_wait(0.0) == b.spin(0.0) == b.receive() == []


def test_a_full_inbox_drops_and_counts_as_a_kernel_would(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b = whole.open_port(), whole.open_port()

    send(a, range(MAX_INBOX), b)
    assert b.kernel_drops == 0
    send(a, range(MAX_INBOX, MAX_INBOX + 3), b)

    assert b.kernel_drops == 3
    assert received(b) == list(range(MAX_INBOX))


def test_too_many_delayed_datagrams_are_dropped_and_counted(
    memory_network: NetworkMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onehop.transport.memory.MAX_UNDER_WAY", 10)
    slow = memory_network(delay_s=60.0)
    a, b = slow.open_port(), slow.open_port()

    send(a, range(13), b)

    assert slow.counts["crowded_out"] == 3


def test_a_closed_port_gets_nothing_and_says_so(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b = whole.open_port(), whole.open_port()
    send(a, range(3), b)

    b.close()
    b.close()
    send(a, range(3), b)

    assert b.fileno() == -1
    assert b.receive() == b.receive_wait(None) == []


def test_ports_that_left_leave_nothing_behind(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a = whole.open_port(GROUP)

    for _ in range(100):
        b = whole.open_port(GROUP)
        send(a, range(1), b)
        send(b, range(1), a)
        b.close()

    assert len(whole._links) == 0
    assert whole.listeners(GROUP) == 1


def test_a_woken_port_stays_readable(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b = whole.open_port(), whole.open_port()

    b.wake()
    assert b.receive_wait(None) == []  # returns at once, though nothing came
    send(a, range(3), b)

    assert received(b) == [0, 1, 2]
    assert b.receive_wait(None) == []


def test_closing_the_network_drops_what_is_on_its_way(memory_network: NetworkMaker) -> None:
    slow = memory_network(delay_s=60.0)
    a, b = slow.open_port(), slow.open_port()
    send(a, range(3), b)

    slow.close()
    send(a, range(3), b)

    assert received(b) == []
    assert slow.counts["crowded_out"] == 3
    assert not [thread for thread in threading.enumerate() if thread.name == "onehop-post"]
