"""One side of a measured pair over ZeroMQ, in a process of its own.

    python -m onehop.bench.zeromq_talk send    KIND --rate R --count N
    python -m onehop.bench.zeromq_talk receive KIND --url URL --count N

KIND is `onehop` (blocking), `onehop-asyncio`, `onehop-uvloop`, `pyzmq` (plain sockets, blocking) or
`pyzmq-asyncio` (`zmq.asyncio`). Plain pyzmq does the same work: every event is the same MessagePack
array, packed before it is sent and unpacked when it has come. `occurred_at_ns` is the time just
before an event is handed to the sender's API, so latency is from there to when the application has
it.

The sender prints its URL, waits until a receiver is there, sends, and prints one JSON object; the
receiver prints one too.
"""

import argparse
import asyncio
import json
import sys
import time
from array import array
from collections.abc import Coroutine
from typing import Any

import msgpack
import zmq
import zmq.asyncio

from onehop.transport import RingOptions, open_publisher, open_subscriber

from .receiver import percentiles_us

KINDS = ("onehop", "onehop-asyncio", "onehop-uvloop", "pyzmq", "pyzmq-asyncio")
TOPIC, KEY, SOURCE = "quotes.AAPL", "AAPL", "bench"
VALUE = {"price": 101.5}
HWM = 1_000_000
"""More than is sent: what is compared is what sockets and work cost, not what is dropped."""
QUEUE_EVENTS = 2_000_000
HELLO_MS = 10
QUIET_S = 3.0
"""A receiver for which nothing came for this long is done."""


class Measured:
    """What came, as it came."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.latencies_ns = array("q")
        self.first_ns = self.last_ns = 0

    def take(self, handed_ns: int) -> bool:
        """Notes an event; True when it was the last one."""
        now = time.time_ns()
        latencies = self.latencies_ns
        if not latencies:
            self.first_ns = now
        latencies.append(now - handed_ns)
        self.last_ns = now
        return len(latencies) == self.count

    def report(self, **more: object) -> dict[str, object]:
        """What was measured."""
        elapsed_s = (self.last_ns - self.first_ns) / 1e9
        return {
            "delivered": len(self.latencies_ns),
            "rate_per_s": len(self.latencies_ns) / elapsed_s if elapsed_s else 0.0,
            "latency_us": percentiles_us(self.latencies_ns),
            **more,
        }


# -- sending ---------------------------------------------------------------------------------------


def pace(rate: int, count: int, send: Any) -> float:
    """Calls `send(now_ns)` for each event, open loop; a rate of 0 is as fast as it can."""
    started_ns = time.time_ns()
    for number in range(count):
        if rate:
            ahead_ns = started_ns + number * 1_000_000_000 // rate - time.time_ns()
            if ahead_ns > 0:
                time.sleep(ahead_ns / 1e9)
        send(time.time_ns())
    return (time.time_ns() - started_ns) / 1e9


def send_onehop(rate: int, count: int) -> dict[str, object]:
    """With our publisher."""
    ring = RingOptions(max_messages=10**7, max_bytes=2**31)
    url = f"zmq+tcp://127.0.0.1:0?hwm={HWM}"
    with open_publisher(url, SOURCE, ring=ring, linger_s=1.0) as publisher:
        print(publisher.url, flush=True)
        publisher.ready(timeout_s=30)
        publish = publisher.publish
        elapsed_s = pace(
            rate, count, lambda now_ns: publish(TOPIC, VALUE, key=KEY, occurred_at_ns=now_ns)
        )
        sent = publisher.stats.sent
    return {"sent": sent, "rate_per_s": count / elapsed_s}


def send_pyzmq(rate: int, count: int) -> dict[str, object]:
    """With a plain PUB socket: hello until somebody says that it has heard it."""
    with zmq.Context() as context, context.socket(zmq.PUB) as sock:
        sock.setsockopt(zmq.SNDHWM, 0)
        port = sock.bind_to_random_port("tcp://127.0.0.1")
        print(f"tcp://127.0.0.1:{port}", flush=True)
        packb = msgpack.Packer(use_bin_type=True, autoreset=True).pack
        poller = zmq.Poller()
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        while not poller.poll(HELLO_MS):
            sock.send(b"hello")

        def send(now_ns: int) -> None:
            sent_at_ns = time.time_ns()
            sock.send(packb((1, TOPIC, VALUE, KEY, SOURCE, now_ns, sent_at_ns, None)))

        elapsed_s = pace(rate, count, send)
        time.sleep(1.0)
    return {"sent": count, "rate_per_s": count / elapsed_s}


# -- receiving -------------------------------------------------------------------------------------


def receive_onehop(url: str, seen: Measured) -> dict[str, object]:
    """With our subscriber, blocking."""
    with open_subscriber(url, queue_events=QUEUE_EVENTS) as events:
        receive, take = events.receive, seen.take
        while (event := receive(QUIET_S)) is not None:
            if take(event.occurred_at_ns):
                break
        ledger = events.ledger
    return seen.report(expected=ledger.expected, lost=dict(ledger.lost), pending=ledger.pending)


async def receive_onehop_async(url: str, seen: Measured) -> dict[str, object]:
    """With our subscriber in an event loop."""
    async with open_subscriber(url, queue_events=QUEUE_EVENTS) as events:
        take = seen.take

        async def read() -> None:
            async for event in events:
                if take(event.occurred_at_ns):
                    return

        await until_quiet(read(), seen)
        ledger = events.ledger
    return seen.report(expected=ledger.expected, lost=dict(ledger.lost), pending=ledger.pending)


def receive_pyzmq(url: str, seen: Measured) -> dict[str, object]:
    """With a plain SUB socket, blocking."""
    with zmq.Context() as context, context.socket(zmq.SUB) as sock:
        sock.setsockopt(zmq.RCVHWM, 0)
        sock.setsockopt(zmq.RCVTIMEO, int(QUIET_S * 1e3))
        sock.subscribe(b"")
        sock.connect(url)
        unpackb, recv, take = msgpack.unpackb, sock.recv, seen.take
        while recv() != b"hello":
            pass
        print("heard", file=sys.stderr, flush=True)
        try:
            while True:
                data = recv()
                if data != b"hello" and take(unpackb(data)[5]):
                    break
        except zmq.Again:
            pass
    return seen.report()


async def receive_pyzmq_async(url: str, seen: Measured) -> dict[str, object]:
    """With `zmq.asyncio`: a future for each message."""
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as sock:
        sock.setsockopt(zmq.RCVHWM, 0)
        sock.setsockopt(zmq.LINGER, 0)
        sock.subscribe(b"")
        sock.connect(url)
        unpackb, take = msgpack.unpackb, seen.take
        while await sock.recv() != b"hello":
            pass
        print("heard", file=sys.stderr, flush=True)

        async def read() -> None:
            while True:
                data = await sock.recv()
                if data != b"hello" and take(unpackb(data)[5]):
                    return

        await until_quiet(read(), seen)
    return seen.report()


async def until_quiet(reading: Coroutine[Any, Any, None], seen: Measured) -> None:
    """Until all has come, or nothing did for a while: one timer, not one for each message."""
    task = asyncio.ensure_future(reading)
    before = -1
    while not task.done() and (before != len(seen.latencies_ns) or not before):
        before = len(seen.latencies_ns)
        await asyncio.wait([task], timeout=QUIET_S)
    task.cancel()
    await asyncio.wait([task])


def receive(kind: str, url: str, count: int) -> dict[str, object]:
    """As one of the kinds."""
    seen = Measured(count)
    if kind == "onehop":
        return receive_onehop(url, seen)
    if kind == "pyzmq":
        return receive_pyzmq(url, seen)
    if kind == "pyzmq-asyncio":
        return asyncio.run(receive_pyzmq_async(url, seen))
    if kind == "onehop-uvloop":
        import uvloop

        return uvloop.run(receive_onehop_async(url, seen))
    return asyncio.run(receive_onehop_async(url, seen))


def main() -> None:
    """One side of a pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=["send", "receive"])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--url", default="")
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    if options.side == "receive":
        report = receive(options.kind, options.url, options.count)
    elif options.kind.startswith("onehop"):
        report = send_onehop(options.rate, options.count)
    else:
        report = send_pyzmq(options.rate, options.count)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
