"""Runs one sender and one receiver as a pair of processes, each on a core of its own.

The sender is the C floor's in every pair, so two receivers are compared under the same traffic:
open loop, each message stamped with the time it was due. Both sides report as JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onehop.transport.envelope import EventEncoder

GROUP, PORT = "239.255.7.1", 31001
START_DELAY_S = 0.2
"""What the sender waits before it begins: a floor program needs less to listen. Ours says when."""
RUN_TIMEOUT_S = 90.0
LEAST_RATE = 0.98
"""A paced sender that kept less than this share of its rate was disturbed: the run is repeated."""
ATTEMPTS = 3


TIME_MARK = 0x0102030405060708
EVENT = EventEncoder("bench").encode(
    "quotes.AAPL", {"price": 101.5}, "AAPL", 1_700_000_000_000_000_000, TIME_MARK, None
)
"""An event of 51 bytes; the sender writes the time it is due over the mark."""


class PairError(RuntimeError):
    """One of the two did not do its part."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the sender sends; a rate of 0 is as fast as it can."""

    rate: int
    packets: int
    per_packet: int = 1
    serves: bool = False
    skip: int = 0
    """Every so many packets one is kept back, so all receivers miss the same ones."""
    holds_events: bool = False
    """Messages are our events instead of plain bytes."""

    @property
    def messages(self) -> int:
        """How many messages that is."""
        return self.packets * self.per_packet


@dataclass(frozen=True, slots=True)
class Receiver:
    """Who receives: a floor program, or our own API in some mode."""

    name: str
    floor: str = ""
    mode: str = "block"
    loss: float = 0.0
    is_pure: bool = False
    repairs: bool = True
    receivers: int = 1
    """How many subscribers listen in that process."""

    def command(self, floors: Mapping[str, Path], traffic: Traffic) -> list[str]:
        """Its command line."""
        if self.floor:
            settings = {"--mode": self.mode, "--loss": self.loss, "--seed": 5, "--timeout": 3}
            settings |= {"--group": GROUP, "--port": PORT}
            return [
                str(floors[self.floor]),
                *(str(part) for pair in settings.items() for part in pair),
            ]
        payload = "event" if traffic.holds_events else "raw"
        url = f"multicast://{GROUP}:{PORT}?payload={payload}&loss={self.loss}&seed=5"
        count = ["--count", str(traffic.messages)]
        if self.receivers > 1:
            audience = [sys.executable, "-m", "onehop.bench.audience", url]
            return [*audience, "--receivers", str(self.receivers), *count]
        options = ["--mode", self.mode, *count, *([] if self.repairs else ["--no-repair"])]
        return [sys.executable, "-m", "onehop.bench.receiver", url, *options]


@dataclass(frozen=True, slots=True)
class Result:
    """What both sides said."""

    receiver: Mapping[str, Any]
    sender: Mapping[str, Any]
    is_disturbed: bool = field(default=False)

    @property
    def p50(self) -> float:
        """Median latency in microseconds."""
        return float(self.receiver["latency_us"].get("p50", float("nan")))

    @property
    def p99(self) -> float:
        """The 99th percentile in microseconds."""
        return float(self.receiver["latency_us"].get("p99", float("nan")))

    @property
    def rate(self) -> float:
        """Messages per second that came through."""
        return float(self.receiver["rate_per_s"])

    @property
    def missing(self) -> int:
        """Sent and not delivered."""
        return int(self.sender["sent"]) - int(self.receiver["delivered"])


def run_pair(floors: Mapping[str, Path], receiver: Receiver, traffic: Traffic) -> Result:
    """Runs both to the end; again when the sender could not keep its rate."""
    for attempt in range(ATTEMPTS):
        result = _run_once(floors, receiver, traffic)
        if not result.is_disturbed or attempt == ATTEMPTS - 1:
            return result
    raise AssertionError("unreachable")


def _run_once(floors: Mapping[str, Path], receiver: Receiver, traffic: Traffic) -> Result:
    cores = sorted(os.sched_getaffinity(0))
    send = {
        "--group": GROUP, "--port": PORT, "--rate": traffic.rate, "--count": traffic.packets,
        "--messages-per-packet": traffic.per_packet, "--serve": int(traffic.serves),
        "--start-delay": START_DELAY_S, "--skip": traffic.skip,
    }  # fmt: skip
    if traffic.holds_events:
        send |= {"--template": EVENT.hex(), "--time-at": EVENT.index(TIME_MARK.to_bytes(8))}
    sender_command = [str(floors["send"]), *(str(part) for pair in send.items() for part in pair)]
    receiving = _start(receiver.command(floors, traffic), cores[-1], receiver.is_pure)
    if not receiver.floor:
        _await_ready(receiving)
    sending = _start(sender_command, cores[0], False)
    try:
        sent = read_report(sending, "the sender")
        received = read_report(receiving, receiver.name)
    finally:
        for process in (receiving, sending):
            process.kill()
            process.wait()
    is_disturbed = traffic.rate > 0 and sent["rate_per_s"] < LEAST_RATE * traffic.rate
    return Result(received, sent, is_disturbed)


def _start(command: list[str], core: int, is_pure: bool) -> "subprocess.Popen[str]":
    environment = {**os.environ, **({"ONEHOP_PURE_PYTHON": "1"} if is_pure else {})}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    os.sched_setaffinity(process.pid, {core})
    return process


def _await_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    process.stderr.readline()  # "ready", or the end of a process that failed


def read_report(process: "subprocess.Popen[str]", name: str) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PairError(f"{name} did not end within {RUN_TIMEOUT_S:.0f} s") from None
    if process.returncode != 0:
        raise PairError(f"{name} ended with {process.returncode}: {err.strip()[-500:]}")
    report: dict[str, Any] = json.loads(out)
    return report
