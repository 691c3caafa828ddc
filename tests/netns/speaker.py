"""A publisher that does as it is told: `python speaker.py URL OPTIONS`, both of them texts.

OPTIONS is a JSON object: `source`, `ring_messages`, `linger_s`. Each line on standard input is a
command, answered by one line with the publisher's counts once it has been carried out:

    {"do": "say", "count": 100, "rate_per_s": 1000, "size": 32, "pack": 10}
    {"do": "report"}                 only the answer
    {"do": "close"}                  ends the session; the answer comes when it has lingered

Without `size` the value of an event is its number, else its number in 8 bytes, cut or filled up
with blanks. `pack` puts so many into one packet.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any

from onehop.transport import Publisher, RingOptions, open_publisher


def say(
    publisher: Publisher,
    count: int,
    rate_per_s: float = 1e9,
    size: int | None = None,
    pack: int = 1,
) -> None:
    start = time.monotonic()
    for done in range(0, count, pack):
        ahead_s = start + done / rate_per_s - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
        first = publisher.stats.sent + 1
        numbers = range(first, first + min(pack, count - done))
        publisher.publish_many(
            ("t", number if size is None else number.to_bytes(8, "big")[:size].ljust(size))
            for number in numbers
        )


def answer(publisher: Publisher, port: int) -> None:
    print(json.dumps(asdict(publisher.stats) | {"port": port}), flush=True)


def main(url: str, source: str | None = None, ring_messages: int = 100_000, **options: Any) -> None:
    ring = RingOptions(max_messages=ring_messages)
    with open_publisher(url, source, ring=ring, **options) as publisher:
        port = publisher.address[1]
        answer(publisher, port)
        for line in sys.stdin:
            command = json.loads(line)
            match command.pop("do"):
                case "say":
                    say(publisher, **command)
                case "close":
                    publisher.close()
            answer(publisher, port)


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
