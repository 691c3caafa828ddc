"""Many subscribers in one process, to see what they ask for when all miss the same packet.

python -m onehop.bench.audience URL --receivers 20 --count N
"""

import argparse
import json
import sys
import threading

from onehop.transport import Subscriber, open_subscriber


def main() -> None:
    """Receives `--count` messages with each subscriber; prints the sums as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--receivers", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=3.0)
    options = parser.parse_args()
    subscribers = [open_subscriber(options.url) for _ in range(options.receivers)]

    def receive(subscriber: Subscriber) -> None:
        for _ in range(options.count):
            if subscriber.receive(options.timeout) is None:
                return

    threads = [threading.Thread(target=receive, args=(each,)) for each in subscribers]
    for thread in threads:
        thread.start()
    print("ready", file=sys.stderr, flush=True)
    for thread in threads:
        thread.join()
    ledgers = []
    for subscriber in subscribers:
        subscriber.close()
        ledgers.append(subscriber.ledger)
    report = {
        "delivered": min(ledger.delivered for ledger in ledgers),
        "recovered": sum(ledger.recovered for ledger in ledgers),
        "expected": max(ledger.expected for ledger in ledgers),
        "lost": sum(ledger.lost_total for ledger in ledgers),
        "is_balanced": all(ledger.is_balanced for ledger in ledgers),
        "rate_per_s": 0.0,
        "latency_us": {},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
