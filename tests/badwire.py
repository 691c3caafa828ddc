"""Network namespaces joined by a wire that loses, doubles, holds back and cuts, by a seed.

    host 0: eth0 <-veth-> end0 |                       | end1 <-veth-> eth0 :host 1
                               |  wire namespace: Hub  | end2 <-veth-> eth0 :host 2

`Hub` is the sans-IO core: frames and `now` go in, frames to send come out. `Relay` owns the raw
sockets and runs as its own process (this file, as a script) in the wire namespace, taking one
JSON command per line. `BadWire` builds the namespaces and speaks to the relay.

The one rule: for every destination, seen + duplicated == dropped + delivered + waiting, in UDP
frames. A frame with the group bit goes to every other host, any other to the owner of its
address. Only UDP is at risk; ARP, IGMP, neighbour discovery and TCP pass untouched. The fate of
the n-th frame since `faults` depends on seed, source, destination, group or unicast, and on how
often `faults` was called: never on timing. The wire's own losses are `relay_overflow`; a test
that relies on the counts asserts that it is 0.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Protocol

KINDS = ("unicast", "multicast")  # indexed by the group bit of the address
COUNTERS = ("seen", "dropped", "duplicated", "delayed", "delivered", "waiting")

MAX_HOSTS = 64  # a raw socket each under select(); every group frame is sent hosts - 1 times
MAX_HELD_FRAMES = 100_000  # 150 MB at most; above it the newest is dropped and is overflow
MAX_DELAY_S = 10.0  # longer than any deadline of a test
MAX_BATCH = 64  # frames taken from one end before the others get their turn
MAX_DRAIN = 20_000  # frames taken before a command is obeyed, so that a flood cannot starve it
MAX_FRAME_BYTES = 2048  # MTU 1500 and the Ethernet header, with room
# The kernel doubles it and charges 2304 bytes for a full frame, 832 for a small one (measured on
# 6.18): a second of full frames at 20k/s.
RECEIVE_BUFFER_BYTES = 24 << 20

# linux/if_packet.h and asm-generic/socket.h, absent from the socket module
SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 6, 23, 3
SO_RCVBUFFORCE = 33


class BadWireError(Exception):
    """The wire could not be built, or its relay ended."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What may happen to a UDP frame; every probability is per frame and destination."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Probability that a copy is held back for a time drawn from `delay_s`; 1.0 delays all."""
    delay_s: tuple[float, float] = (0.0, 0.0005)
    burst: tuple[float, float] | None = None
    """Gilbert-Elliott (enter, leave): all frames are lost in a burst of mean length 1 / leave."""

    def __post_init__(self) -> None:
        for chance in (self.loss, self.duplicate, self.reorder, *(self.burst or ())):
            if not 0.0 <= chance <= 1.0:
                raise ValueError(f"probability {chance} is not in 0..1")
        if not 0.0 <= self.delay_s[0] <= self.delay_s[1] <= MAX_DELAY_S:
            raise ValueError(f"delay_s {self.delay_s} is not low <= high in 0..{MAX_DELAY_S}")


CLEAN = Faults()


class Link:
    """One source to one destination, group or unicast: its faults, its dice and its counts."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.is_cut = False
        self.configure(CLEAN, Random(0))

    def configure(self, faults: Faults, random: Random) -> None:
        self._faults, self._random, self._in_burst = faults, random.random, False

    def fates(self) -> Sequence[float]:
        """Count one frame and return the hold time of each copy to deliver; none if lost."""
        counts, faults, random = self.counts, self._faults, self._random
        counts["seen"] += 1
        if faults is CLEAN and not self.is_cut:
            return (0.0,)
        # Seven draws whatever happens: what befalls one frame never moves the dice of the next.
        turn, loss, duplicate, *holds = [random() for _ in range(7)]
        if faults.burst is not None:
            enter, leave = faults.burst
            self._in_burst = turn >= leave if self._in_burst else turn < enter
        if self.is_cut or self._in_burst or loss < faults.loss:
            counts["dropped"] += 1
            return ()
        first = self._hold_s(holds[0], holds[1])
        if duplicate >= faults.duplicate:
            return (first,)
        counts["duplicated"] += 1
        return (first, self._hold_s(holds[2], holds[3]))

    def _hold_s(self, chance: float, share: float) -> float:
        if chance >= self._faults.reorder:
            return 0.0
        low, high = self._faults.delay_s
        self.counts["delayed"] += 1
        return low + share * (high - low)


def mac(host: int) -> bytes:
    return bytes((2, 0x77, 0, 0, 0, host + 1))


def is_udp(frame: bytes) -> bool:
    ethertype = frame[12:14]
    if ethertype == b"\x08\x00":
        return frame[23:24] == b"\x11"  # every fragment of a UDP datagram counts as a frame
    if ethertype == b"\x86\xdd":
        return frame[20] == 17 or (frame[20] == 44 and frame[54] == 17)  # 44: a fragment
    return False


class Hub:
    """Decides for each frame where it goes, how often and when."""

    def __init__(self, hosts: int, seed: int) -> None:
        self.passed = self.overflow = 0
        self._seed, self._faults_calls = seed, 0
        self._owner = {mac(host): host for host in range(hosts)}
        self._others = [[to for to in range(hosts) if to != host] for host in range(hosts)]
        self._links = {
            (source, group, to): Link()
            for source, group, to in itertools.product(range(hosts), (0, 1), range(hosts))
        }
        self._held: list[tuple[float, int, int, Link, bytes]] = []
        self._order = itertools.count()  # equal due times leave in order of arrival

    def receive_frame(self, source: int, frame: bytes, now: float) -> list[tuple[int, bytes]]:
        owner = self._owner.get(frame[:6])
        targets = self._others[source] if owner is None else (owner,)
        if not is_udp(frame):
            self.passed += 1
            return [(to, frame) for to in targets]
        ready = []
        for to in targets:
            link = self._links[source, frame[0] & 1, to]
            for hold_s in link.fates():
                if hold_s > 0.0:
                    self._hold(now + hold_s, to, link, frame)
                else:
                    link.counts["delivered"] += 1
                    ready.append((to, frame))
        return ready

    def _hold(self, due: float, to: int, link: Link, frame: bytes) -> None:
        if len(self._held) >= MAX_HELD_FRAMES:
            self.overflow += 1
            link.counts["dropped"] += 1
            return
        link.counts["waiting"] += 1
        heapq.heappush(self._held, (due, next(self._order), to, link, frame))

    def next_timeout(self) -> float | None:
        return self._held[0][0] if self._held else None

    def handle_timeout(self, now: float) -> list[tuple[int, bytes]]:
        ready = []
        while self._held and self._held[0][0] <= now:
            _, _, to, link, frame = heapq.heappop(self._held)
            link.counts["waiting"] -= 1
            link.counts["delivered"] += 1
            ready.append((to, frame))
        return ready

    def _links_where(
        self, source: int | None = None, destination: int | None = None, kind: str | None = None
    ) -> Iterator[tuple[tuple[int, int, int], Link]]:
        for (at, group, to), link in self._links.items():
            if source in (None, at) and destination in (None, to) and kind in (None, KINDS[group]):
                yield (at, group, to), link

    def faults(self, faults: Faults, **where: Any) -> None:
        self._faults_calls += 1
        for key, link in self._links_where(**where):
            link.configure(faults, Random(f"{self._seed}/{self._faults_calls}/{key}"))

    def cut(self, is_cut: bool, **where: Any) -> None:
        for _, link in self._links_where(**where):
            link.is_cut = is_cut

    def _counts(self, **where: Any) -> dict[str, int]:
        links = [link for _, link in self._links_where(**where)]
        return {name: sum(link.counts[name] for link in links) for name in COUNTERS}

    def report(self) -> dict[str, Any]:
        ends: list[dict[str, Any]] = [
            {kind: self._counts(destination=to, kind=kind) for kind in KINDS}
            | self._counts(destination=to)
            for to in range(len(self._others))
        ]
        return {"ends": ends, "passed": self.passed, "relay_overflow": self.overflow}


class Relay:
    """The hub's sockets and clock; one raw socket per host, commands on stdin."""

    def __init__(self, hosts: int, seed: int) -> None:
        self._hub = Hub(hosts, seed)
        self._ends = [self._open(f"end{host}") for host in range(hosts)]
        self._kernel_drops = 0

    @staticmethod
    def _open(interface: str) -> socket.socket:
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # 0: deaf until bound
        end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        end.bind((interface, ETH_P_ALL))
        end.setblocking(False)
        return end

    def run(self) -> None:
        ends = {end.fileno(): host for host, end in enumerate(self._ends)}
        watched = [0, *ends]
        print(json.dumps({"ready": True}), flush=True)
        while True:
            due = self._hub.next_timeout()
            wait_s = None if due is None else max(0.0, due - time.monotonic())
            readable, _, _ = select.select(watched, [], [], wait_s)
            self._send(self._hub.handle_timeout(time.monotonic()))
            for descriptor in readable:
                if descriptor != 0:
                    self._pump(ends[descriptor], MAX_BATCH)
                elif not self._obey():
                    return

    def _pump(self, host: int, limit: int) -> None:
        receive, hub = self._ends[host].recv, self._hub
        with contextlib.suppress(BlockingIOError):
            for _ in range(limit):
                self._send(hub.receive_frame(host, receive(MAX_FRAME_BYTES), time.monotonic()))

    def _send(self, frames: list[tuple[int, bytes]]) -> None:
        for to, frame in frames:
            try:
                self._ends[to].send(frame)
            except OSError:  # the peer's backlog is full (ENOBUFS) or its interface is down
                self._hub.overflow += 1

    def _obey(self) -> bool:
        line = sys.stdin.readline()
        for host in range(len(self._ends)):
            self._pump(host, MAX_DRAIN)  # frames sent before the command fall under the old rule
        if not line:
            return False
        command = json.loads(line)
        name, where = command.pop("do"), command.pop("where", {})
        if name == "faults":
            self._hub.faults(Faults(**command), **where)
        elif name == "cut":
            self._hub.cut(command["is_cut"], **where)
        print(json.dumps(self._report()), flush=True)
        return True

    def _report(self) -> dict[str, Any]:
        for end in self._ends:
            raw = end.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            self._kernel_drops += struct.unpack("II", raw)[1]  # reading resets it
        report = self._hub.report()
        report["relay_overflow"] += self._kernel_drops
        return report


def ip(*arguments: str, lines: str | None = None) -> str:
    done = subprocess.run(("ip", *arguments), input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        raise BadWireError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """One namespace on the wire, with loopback, both address families and a multicast route."""

    interface = "eth0"

    def __init__(self, number: int, namespace: str) -> None:
        self.namespace = namespace
        self.address, self.address6 = f"10.77.0.{number + 1}", f"fd77::{number + 1:x}"
        self.processes: list[subprocess.Popen[str]] = []

    def popen(self, arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a program in this namespace, pipes in text mode; it is killed with the wire."""
        inside = ("ip", "netns", "exec", self.namespace, *arguments)
        process: subprocess.Popen[str] = subprocess.Popen(inside, **{**options, "text": True})
        self.processes.append(process)
        return process

    def connect(self, number: int, wire: str) -> None:
        ip("netns", "add", self.namespace)
        ends = f"link add eth0 address {mac(number).hex(':')} netns {self.namespace} type veth "
        ip("-batch", "-", lines=f"{ends} peer name end{number} netns {wire}\n")
        # A checksum left to the card is never filled in when a raw socket relays the frame.
        off = ("tx", "off", "rx", "off", "gso", "off", "gro", "off", "tso", "off")
        for namespace, device in ((self.namespace, "eth0"), (wire, f"end{number}")):
            ip("netns", "exec", namespace, "ethtool", "-K", device, *off)
        # The far end first: what eth0 announces as it comes up would count as overflow.
        ip("-n", wire, "link", "set", f"end{number}", "addrgenmode", "none", "up")
        # A fixed link-local address: nothing waits for duplicate address detection.
        ip("-n", self.namespace, "-batch", "-", lines=f"""
            link set lo up
            link set eth0 addrgenmode none up
            addr add {self.address}/24 dev eth0
            addr add {self.address6}/64 dev eth0 nodad
            addr add fe80::{number + 1:x}/64 dev eth0 nodad
            route add 224.0.0.0/4 dev eth0
        """)  # fmt: skip

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


class BadWire:
    """Hosts on one bad wire; a context manager that leaves no namespace or process behind.

    `where` is any of source=, destination= (host numbers) and kind= ("multicast", "unicast").
    """

    _numbers = itertools.count()

    def __init__(self, hosts: int = 2, *, seed: int) -> None:
        if not 2 <= hosts <= MAX_HOSTS:
            raise ValueError(f"{hosts} hosts, expected 2..{MAX_HOSTS}")
        self.seed, name = seed, f"bw{os.getpid()}n{next(self._numbers)}"
        self._wire = Host(MAX_HOSTS, f"{name}wire")
        self._hosts = [Host(number, f"{name}h{number}") for number in range(hosts)]

    def __enter__(self) -> BadWire:
        try:
            ip("netns", "add", self._wire.namespace)
            for number, host in enumerate(self._hosts):
                host.connect(number, self._wire.namespace)
            relay = [sys.executable, "-I", __file__, str(len(self._hosts)), str(self.seed)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.relay = self._wire.popen(relay, **pipes)
            self._answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for host in (self._wire, *self._hosts):  # the relay ends before its interfaces do
            host.close()
            with contextlib.suppress(BadWireError):  # never made, or already gone
                ip("netns", "del", host.namespace)

    def host(self, number: int) -> Host:
        return self._hosts[number]

    def faults(self, **faults_and_where: Any) -> None:
        """Replace the faults of the chosen links by those named (see `Faults`), dice anew."""
        names = {"source", "destination", "kind"} & faults_and_where.keys()
        where = self._where(**{name: faults_and_where.pop(name) for name in names})
        self._command("faults", where, **asdict(Faults(**faults_and_where)))

    def partition(self, **where: Any) -> None:
        """Drop every UDP frame on the chosen links; frames already held still arrive."""
        self._command("cut", self._where(**where), is_cut=True)

    def heal(self, **where: Any) -> None:
        self._command("cut", self._where(**where), is_cut=False)

    def report(self) -> dict[str, Any]:
        """Counts by destination in `ends`, `passed` (not UDP) and `relay_overflow`."""
        report = self._command("report", {})
        for host in (*self._hosts, self._wire):  # a full backlog shows at the sending end
            links = json.loads(ip("-n", host.namespace, "-s", "-j", "link", "show", "type", "veth"))
            report["relay_overflow"] += sum(link["stats64"]["tx"]["dropped"] for link in links)
        return report

    def settle(self, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """Wait until the senders' last frame has left the wire, then report.

        The senders must have stopped; two equal reports show that the relay is not behind.
        """
        deadline = time.monotonic() + timeout_s
        before: dict[str, Any] = {}
        report = self._command("report", {})
        while report != before or any(end["waiting"] for end in report["ends"]):
            if time.monotonic() > deadline:
                raise BadWireError(f"frames still move or are held after {timeout_s} s")
            time.sleep(0.005)
            before, report = report, self._command("report", {})
        return self.report()

    def _where(
        self, source: int | None = None, destination: int | None = None, kind: str | None = None
    ) -> dict[str, Any]:
        # A choice that matches no link would leave the wire clean and the test blind.
        hosts = (None, *range(len(self._hosts)))
        if source not in hosts or destination not in hosts or kind not in (None, *KINDS):
            raise ValueError(f"no link has {source=}, {destination=}, {kind=}")
        return {"source": source, "destination": destination, "kind": kind}

    def _command(self, do: str, where: dict[str, Any], **values: Any) -> dict[str, Any]:
        assert self.relay.stdin is not None
        self.relay.stdin.write(json.dumps({"do": do, "where": where, **values}) + "\n")
        self.relay.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.relay.stdout is not None
        line = self.relay.stdout.readline()
        if not line:
            raise BadWireError(f"the relay ended with status {self.relay.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class BadWireFactory(Protocol):
    """The type of the fixture `bad_wire`."""

    def __call__(self, hosts: int = 2, *, seed: int) -> BadWire: ...


if __name__ == "__main__":
    gc.disable()  # no cycles are made here, and a collection would show as delay
    Relay(int(sys.argv[1]), int(sys.argv[2])).run()
