"""One measured receiver: our public API in a process of its own, reporting like the C floors.

    python -m onehop.bench.receiver URL --mode block|many|spin|asyncio|uvloop --count N

Each message carries its intended send time (an event as `sent_at_ns`, plain bytes in their first
eight), so latency is from when it should have left to when the application has it. Prints one JSON
object.
"""

import argparse
import asyncio
import json
import sys
from array import array
from collections.abc import Sequence
from time import time_ns

from onehop.transport import Event, LedgerSnapshot, Subscriber, open_subscriber
from onehop.transport.datagrams import COMPILED

MODES = ("block", "many", "spin", "asyncio", "uvloop")


class Measured:
    """What came, as it came."""

    def __init__(self) -> None:
        self.latencies_ns = array("q")
        self.delivered = 0
        self.first_ns = 0
        self.last_ns = 0

    def take(self, event: Event, now: int) -> None:
        """Notes one message and when the application had it."""
        due_ns = event.sent_at_ns or int.from_bytes(event.value[:8])
        if not self.latencies_ns:
            self.first_ns = now
        self.latencies_ns.append(now - due_ns)
        self.delivered += 1
        self.last_ns = now

    def report(self, mode: str, ledger: LedgerSnapshot) -> dict[str, object]:
        """The JSON object."""
        elapsed_s = (self.last_ns - self.first_ns) / 1e9
        repair = ledger.repair_ns
        return {
            "mode": mode,
            "compiled": COMPILED,
            "delivered": self.delivered,
            "lost": dict(ledger.lost),
            "expected": ledger.expected,
            "is_balanced": ledger.is_balanced,
            "kernel_drops": ledger.kernel_drops,
            "recovered": ledger.recovered,
            "elapsed_s": elapsed_s,
            "rate_per_s": self.delivered / elapsed_s if elapsed_s else 0.0,
            "latency_us": percentiles_us(self.latencies_ns),
            "repair_us": {
                "p50": (repair.quantile(0.5) or 0.0) / 1e3,
                "p99": (repair.quantile(0.99) or 0.0) / 1e3,
            },
        }


def percentiles_us(latencies_ns: Sequence[int]) -> dict[str, float]:
    """p50 to max in microseconds."""
    if not latencies_ns:
        return {}
    ranked = sorted(latencies_ns)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    found = {name: ranked[int(share * len(ranked))] / 1e3 for name, share in shares.items()}
    return {**found, "max": ranked[-1] / 1e3}


def receive_blocking(subscriber: Subscriber, count: int, timeout_s: float, seen: Measured) -> None:
    """With the blocking face, spinning or not."""
    receive, take = subscriber.receive, seen.take
    for _ in range(count):
        event = receive(timeout_s)
        if event is None:
            return
        take(event, time_ns())


def receive_batches(subscriber: Subscriber, count: int, timeout_s: float, seen: Measured) -> None:
    """With `receive_many`; the latency is that of the last event of each batch."""
    receive_many, take = subscriber.receive_many, seen.take
    while seen.delivered < count:
        events = receive_many(1024, timeout_s)
        if not events:
            return
        seen.delivered += len(events) - 1
        take(events[-1], time_ns())


async def receive_async(
    subscriber: Subscriber, count: int, timeout_s: float, seen: Measured
) -> None:
    """With the asyncio face; the wait for silence is one timer, not one for each message."""
    take = seen.take

    async def read() -> None:
        async for event in subscriber:
            take(event, time_ns())
            if len(seen.latencies_ns) == count:
                return

    reader = asyncio.ensure_future(read())
    before = -1
    while not reader.done() and before != len(seen.latencies_ns):
        before = len(seen.latencies_ns) if seen.latencies_ns else -1
        await asyncio.wait([reader], timeout=timeout_s)
        if before == -1 and not seen.latencies_ns:
            break
    reader.cancel()


def main() -> None:
    """Receives `--count` messages, or until none came for `--timeout` seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=2.0)
    parser.add_argument("--no-repair", action="store_true", help="as a floor: count, do not ask")
    options = parser.parse_args()
    seen = Measured()
    subscriber = open_subscriber(
        options.url,
        spin=options.mode == "spin",
        ordered=not options.no_repair,
        attempts=0 if options.no_repair else None,
    )
    with subscriber:
        print("ready", file=sys.stderr, flush=True)
        if options.mode == "many":
            receive_batches(subscriber, options.count, options.timeout, seen)
        elif options.mode in ("block", "spin"):
            receive_blocking(subscriber, options.count, options.timeout, seen)
        elif options.mode == "asyncio":
            asyncio.run(receive_async(subscriber, options.count, options.timeout, seen))
        else:
            import uvloop

            uvloop.run(receive_async(subscriber, options.count, options.timeout, seen))
        subscriber.close()
        print(json.dumps(seen.report(options.mode, subscriber.ledger)))


if __name__ == "__main__":
    main()
