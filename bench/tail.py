"""How soon a subscriber has a message again that was lost and had nothing behind it.

Nothing but the publisher's heartbeats can tell that the last packet is missing. Messages are sent
one by one with silence between, and a tenth of all datagrams is thrown away; what is measured is
the time from publishing to delivery of those that had to be asked for.
"""

import time

from onehop.transport import open_publisher, open_subscriber

GROUP = "multicast://239.255.7.2:31002"
SILENCE_S = 0.03
"""Longer than any repair, so that no message has another one behind it."""


def tail_repairs_ms(messages: int = 200, seed: int = 9) -> list[float]:
    """Publishes with gaps of silence; returns the delays of the repaired messages."""
    repaired_ms = []
    with (
        open_subscriber(f"{GROUP}?payload=raw&loss=0.1&seed={seed}", start="first") as subscriber,
        open_publisher(f"{GROUP}?payload=raw", linger_s=0.2) as publisher,
    ):
        recovered = 0
        for _ in range(messages):
            sent_at = time.perf_counter()
            publisher.publish("", bytes(64))
            if subscriber.receive(1.0) is None:
                continue
            took_s = time.perf_counter() - sent_at
            now_recovered = subscriber.ledger.recovered
            if now_recovered > recovered:
                recovered = now_recovered
                repaired_ms.append(took_s * 1e3)
            time.sleep(max(0.0, SILENCE_S - took_s))
    return repaired_ms
