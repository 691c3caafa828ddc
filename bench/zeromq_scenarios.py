"""What happens to events over ZeroMQ when something goes wrong, counted on both sides.

Each scenario publishes in this process and receives in another; what the publisher says it sent
must be what the subscriber's ledger has delivered or lost.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onehop.transport import Publisher, RingOptions, open_publisher

WAIT_S = 60.0
URL = "zmq+tcp://127.0.0.1:0?hwm=1000"
RING = RingOptions(max_messages=10**6, max_bytes=2**30, max_age_s=600.0)

READER = """
import json, sys, time
from onehop.transport import open_subscriber
url, start, pause_s, queue_events = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
with open_subscriber(url, start=start, queue_events=queue_events) as events:
    print("ready", flush=True)
    taken = 0
    while (event := events.receive(3600.0)) is not None and event.value != "end":
        taken += 1
        if pause_s and taken % 100 == 0:
            time.sleep(pause_s)
    events.receive(0.2)
    ledger = events.ledger
    print(json.dumps({
        "expected": ledger.expected, "delivered": ledger.delivered, "filtered": ledger.filtered,
        "pending": ledger.pending, "lost": dict(ledger.lost),
    }))
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was sent, and what became of it."""

    name: str
    sent: int
    delivered: int
    lost: Mapping[str, int]
    unaccounted: int


class Reader:
    """A subscriber in a process of its own; ends with the event `end`."""

    def __init__(
        self, publisher: Publisher, start: str = "first", pause_s: float = 0.0, queue: int = 10**6
    ) -> None:
        command = [sys.executable, "-c", READER, publisher.url, start, str(pause_s), str(queue)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def account(self) -> dict[str, Any]:
        """Its ledger, at the end."""
        try:
            out, _ = self.process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return {"expected": 0, "delivered": 0, "filtered": 0, "pending": 0, "lost": {}}
        account: dict[str, Any] = json.loads(out)
        return account


def _publish(publisher: Publisher, count: int, rate: int = 0) -> None:
    started = time.monotonic()
    for number in range(count):
        if rate and (ahead_s := started + number / rate - time.monotonic()) > 0:
            time.sleep(ahead_s)
        publisher.publish("quotes.AAPL", number)


def _steady(publisher: Publisher, scale: float) -> Reader:
    reader = Reader(publisher)
    publisher.ready(timeout_s=WAIT_S)
    _publish(publisher, round(20_000 * scale), 10_000)
    return reader


def _burst(publisher: Publisher, scale: float) -> Reader:
    reader = Reader(publisher)
    publisher.ready(timeout_s=WAIT_S)
    _publish(publisher, round(100_000 * scale))
    return reader


def _slow_consumer(publisher: Publisher, scale: float) -> Reader:
    reader = Reader(publisher, pause_s=0.02, queue=1000)
    publisher.ready(timeout_s=WAIT_S)
    _publish(publisher, round(20_000 * scale), 20_000)
    return reader


def _crash_and_restart(publisher: Publisher, scale: float) -> Reader:
    crashing = Reader(publisher)
    publisher.ready(timeout_s=WAIT_S)
    _publish(publisher, round(10_000 * scale), 10_000)
    crashing.process.kill()
    crashing.process.communicate()
    _publish(publisher, round(5_000 * scale), 10_000)  # while nobody is there
    reader = Reader(publisher)
    publisher.ready(timeout_s=WAIT_S)
    _publish(publisher, round(5_000 * scale), 10_000)
    return reader


def _late_join(publisher: Publisher, scale: float) -> Reader:
    _publish(publisher, round(20_000 * scale), 20_000)
    reader = Reader(publisher)
    publisher.ready(timeout_s=WAIT_S)
    _publish(publisher, round(5_000 * scale), 10_000)
    return reader


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something that happens between a publisher and a subscriber."""

    name: str
    act: Callable[[Publisher, float], Reader]

    def run(self, scale: float) -> Outcome:
        """Lets it happen, and counts."""
        with open_publisher(URL, "bench", ring=RING, linger_s=1.0) as publisher:
            reader = self.act(publisher, scale)
            publisher.publish("quotes.AAPL", "end")
            account = reader.account()
            sent = publisher.stats.sent
        known = account["delivered"] + account["filtered"] + sum(account["lost"].values())
        return Outcome(self.name, sent, account["delivered"], account["lost"], sent - known)


SCENARIOS = (
    Scenario("steady 10k/s", _steady),
    Scenario("burst", _burst),
    Scenario("slow consumer", _slow_consumer),
    Scenario("subscriber crash and restart", _crash_and_restart),
    Scenario("late join", _late_join),
)
