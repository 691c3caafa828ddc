"""The bad wire does what it says: first its hub by itself, then through namespaces."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from random import Random
from typing import Any

import badwire
import pytest
from badwire import BadWire, BadWireError, BadWireFactory, Faults, Hub, Link, mac

GROUP, PORT = "239.77.0.1", 30077

# python -c SEND destination count rate_per_s: datagram n holds n
SEND = """
import socket, sys, time
destination, count, rate_per_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
family = socket.AF_INET6 if ":" in destination else socket.AF_INET
sender, start = socket.socket(family, socket.SOCK_DGRAM), time.monotonic()
for number in range(count):
    while time.monotonic() < start + number / rate_per_s:
        pass
    sender.sendto(number.to_bytes(4, "big"), (destination, 30077))
"""

# python -c RECEIVE bind_address: prints the numbers that came, as JSON, once stdin is closed
RECEIVE = """
import json, select, socket, sys
address, numbers = sys.argv[1], []
family = socket.AF_INET6 if ":" in address else socket.AF_INET
receiver = socket.socket(family, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
receiver.bind((address, 30077))
if address.startswith("239."):
    group = socket.inet_aton(address) + bytes(4)
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
receiver.setblocking(False)
print("ready", flush=True)
is_open = True
while is_open:
    readable, _, _ = select.select([receiver, sys.stdin], [], [])
    is_open = sys.stdin not in readable
    try:
        while True:
            numbers.append(int.from_bytes(receiver.recv(2048), "big"))
    except BlockingIOError:
        pass
print(json.dumps(numbers))
"""


def start_receiver(wire: BadWire, host: int, address: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", RECEIVE, address]
    receiver = wire.host(host).popen(command, stdin=pipe, stdout=pipe)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "ready\n"
    return receiver


def send(wire: BadWire, host: int, destination: str, count: int, rate_per_s: float) -> None:
    command = [sys.executable, "-c", SEND, destination, str(count), str(rate_per_s)]
    assert wire.host(host).popen(command).wait(60) == 0


def numbers_of(receiver: subprocess.Popen[str]) -> list[int]:
    output, _ = receiver.communicate(timeout=30)
    numbers: list[int] = json.loads(output)
    return numbers


def transfer(
    wire: BadWire, count: int, *, rate_per_s: float = 5000.0, to: str = GROUP
) -> tuple[list[int], dict[str, Any]]:
    """Send from host 0 to host 1; return the numbers received and the report for host 1."""
    receiver = start_receiver(wire, 1, to)
    send(wire, 0, to, count, rate_per_s)
    report = wire.settle()
    assert report["relay_overflow"] == 0
    end: dict[str, Any] = report["ends"][1]
    assert end["seen"] + end["duplicated"] == end["dropped"] + end["delivered"]
    return numbers_of(receiver), end


def udp_frame(to: bytes) -> bytes:
    return to + mac(0) + b"\x08\x00" + bytes(9) + b"\x11" + bytes(20)


def test_bursts_have_the_mean_length_and_share_of_the_two_state_model() -> None:
    link = Link()
    link.configure(Faults(burst=(0.01, 0.25)), Random(7))
    lost = [not link.fates() for _ in range(100_000)]
    bursts = sum(now and not before for before, now in zip([False, *lost], lost, strict=False))
    assert sum(lost) / bursts == pytest.approx(4.0, rel=0.1)
    assert sum(lost) / len(lost) == pytest.approx(0.01 / 0.26, rel=0.1)


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_frames_held_above_the_bound_are_dropped_and_are_overflow(
    monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(badwire, "MAX_HELD_FRAMES", 10)
    hub = Hub(2, 7)
    hub.faults(Faults(reorder=1.0, delay_s=(1.0, 1.0)))
    for _ in range(10 + excess):
        assert hub.receive_frame(0, udp_frame(mac(1)), 0.0) == []
    assert hub.report()["relay_overflow"] == max(0, excess)
    assert hub.next_timeout() == 1.0
    assert hub.handle_timeout(0.999) == []
    assert len(hub.handle_timeout(1.0)) == min(10, 10 + excess)
    assert hub.next_timeout() is None


def test_faults_on_one_link_leave_the_others_and_what_is_not_udp_alone() -> None:
    hub = Hub(3, 7)
    hub.cut(True, destination=1, kind="multicast")
    group = bytes.fromhex("01005e4d0001")
    assert [to for to, _ in hub.receive_frame(0, udp_frame(group), 0.0)] == [2]
    assert [to for to, _ in hub.receive_frame(0, udp_frame(mac(1)), 0.0)] == [1]
    hub.cut(True)
    arp = b"\xff" * 6 + mac(0) + b"\x08\x06" + bytes(28)
    assert [to for to, _ in hub.receive_frame(0, arp, 0.0)] == [1, 2]
    assert hub.report()["passed"] == 1


@pytest.mark.parametrize(
    "wrong",
    [{"loss": 1.1}, {"burst": (0.1, -0.1)}, {"delay_s": (0.2, 0.1)}, {"delay_s": (0.0, 11.0)}],
)
def test_faults_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is not"):
        Faults(**wrong)


@pytest.mark.parametrize("hosts", [1, badwire.MAX_HOSTS + 1])
def test_too_few_or_too_many_hosts_are_refused(hosts: int) -> None:
    with pytest.raises(ValueError, match="expected 2"):
        BadWire(hosts, seed=7)


@pytest.mark.parametrize("wrong", [{"kind": "mcast"}, {"source": 2}, {"destination": -1}])
def test_a_choice_of_links_that_matches_none_is_refused(wrong: dict[str, Any]) -> None:
    wire = BadWire(2, seed=7)
    for act in (wire.faults, wire.partition, wire.heal):
        with pytest.raises(ValueError, match="no link has"):
            act(**wrong)
    with pytest.raises(TypeError, match="unexpected keyword"):
        wire.partition(dest=1)


def test_a_clean_wire_delivers_all_in_order(bad_wire: BadWireFactory) -> None:
    numbers, end = transfer(bad_wire(seed=7), 2000)
    assert numbers == list(range(2000))
    assert end["multicast"]["delivered"] == end["delivered"] == 2000


def test_received_and_dropped_add_up_to_sent(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(seed=7)
    wire.faults(loss=0.05)
    numbers, end = transfer(wire, 5000)
    assert len(numbers) + end["dropped"] == 5000
    assert 150 < end["dropped"] < 350


def test_the_same_seed_drops_the_same_frames_and_another_does_not(
    bad_wire: BadWireFactory,
) -> None:
    received = []
    for seed, rate_per_s in ((7, 4000.0), (7, 9000.0), (8, 4000.0)):
        wire = bad_wire(seed=seed)
        wire.faults(loss=0.05, burst=(0.01, 0.3))
        received.append(transfer(wire, 2000, rate_per_s=rate_per_s)[0])
    assert received[0] == received[1]
    assert received[0] != received[2]


def test_duplicates_add_up(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(seed=7)
    wire.faults(duplicate=0.1)
    numbers, end = transfer(wire, 2000)
    assert len(numbers) == 2000 + end["duplicated"]
    copies = Counter(Counter(numbers).values())
    assert copies == {1: 2000 - end["duplicated"], 2: end["duplicated"]}
    assert end["duplicated"] > 100


def test_frames_held_back_are_overtaken_and_none_is_lost(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(seed=7)
    wire.faults(reorder=0.05, delay_s=(0.001, 0.003))
    numbers, end = transfer(wire, 2000)
    assert sorted(numbers) == list(range(2000))
    assert numbers != sorted(numbers)
    assert end["delayed"] > 50


def test_a_partition_stops_one_direction_until_healed(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(seed=7)
    wire.partition(source=0, destination=1)
    numbers, end = transfer(wire, 500)
    assert (numbers, end["dropped"]) == ([], 500)
    back = start_receiver(wire, 0, GROUP)
    send(wire, 1, GROUP, 100, 5000.0)
    assert wire.settle()["ends"][0]["delivered"] == 100
    assert numbers_of(back) == list(range(100))
    wire.heal()
    assert transfer(wire, 500)[0] == list(range(500))


@pytest.mark.parametrize("attribute", ["address", "address6"])
def test_unicast_is_counted_apart_and_spared_by_group_faults(
    bad_wire: BadWireFactory, attribute: str
) -> None:
    wire = bad_wire(hosts=3, seed=7)
    wire.faults(loss=1.0, kind="multicast")
    numbers, end = transfer(wire, 300, to=getattr(wire.host(1), attribute))
    assert numbers == list(range(300))
    assert end["unicast"]["delivered"] == 300
    assert wire.report()["ends"][2]["seen"] == 0


def test_the_relay_keeps_up_with_ten_thousand_frames_per_second(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    wire.faults(loss=0.01, duplicate=0.01, reorder=0.02)
    numbers, end = transfer(wire, 10_000, rate_per_s=10_000.0)
    assert len(numbers) == end["delivered"]


def test_what_a_stalled_relay_loses_is_overflow(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(seed=7)
    wire.relay.send_signal(signal.SIGSTOP)
    send(wire, 0, GROUP, 100_000, 1e9)
    wire.relay.send_signal(signal.SIGCONT)
    report = wire.settle(timeout_s=30.0)
    assert report["relay_overflow"] > 0
    accounted = report["ends"][1]["seen"] + report["relay_overflow"]
    assert 0 <= accounted - 100_000 <= 20  # the kernel's own few frames may be among the lost


def test_one_sender_reaches_twenty_receivers(bad_wire: BadWireFactory) -> None:
    start = time.monotonic()
    wire = bad_wire(hosts=21, seed=7)
    assert time.monotonic() - start < 10.0
    wire.faults(loss=0.05)
    receivers = [start_receiver(wire, host, GROUP) for host in range(1, 21)]
    send(wire, 0, GROUP, 500, 500.0)
    report = wire.settle()
    assert report["relay_overflow"] == 0
    received = [numbers_of(receiver) for receiver in receivers]
    assert [len(numbers) for numbers in received] == [
        500 - end["dropped"] for end in report["ends"][1:]
    ]
    assert len({tuple(numbers) for numbers in received}) == 20  # each has its own dice


def leftovers(wire: BadWire) -> list[str]:
    prefix = wire.host(0).namespace.removesuffix("h0")
    return [line for line in badwire.ip("netns", "list").splitlines() if line.startswith(prefix)]


def fail_on(wire: BadWire) -> None:
    with wire:
        wire.host(1).popen(["sleep", "60"])
        assert len(leftovers(wire)) == 3
        raise RuntimeError("failure of the test")


@pytest.mark.netns
def test_nothing_is_left_after_a_failure_inside_or_during_set_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = BadWire(2, seed=7)
    with pytest.raises(RuntimeError, match="of the test"):
        fail_on(wire)
    assert wire.host(1).processes[0].returncode == -signal.SIGKILL
    assert leftovers(wire) == []
    monkeypatch.setattr(sys, "executable", "/bin/false")
    broken = BadWire(2, seed=7)
    with pytest.raises(BadWireError, match="relay ended with status 1"), broken:
        pass
    assert leftovers(broken) == []
