"""`onehop demo`: a publisher and two subscribers on this machine, with loss on purpose.

Everything is real: UDP multicast on the loopback interface, heartbeats, requests, repairs. Only
the loss is made: each subscriber throws a share of its datagrams away before looking at them.
"""

import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from onehop.transport import LedgerSnapshot, Publisher, Subscriber, open_publisher, open_subscriber

REFRESH_S = 0.25
SETTLE_S = 3.0
"""How long the last repairs may take before the account is closed."""


def _quantile_us(ledger: LedgerSnapshot, share: float) -> str:
    ns = ledger.latency_ns.quantile(share)
    return "–" if ns is None else f"{ns / 1e3:,.0f} µs"


ROWS: dict[str, Callable[[LedgerSnapshot], str]] = {
    "expected": lambda ledger: f"{ledger.expected:,}",
    "delivered": lambda ledger: f"{ledger.delivered:,}",
    "pending": lambda ledger: f"{ledger.pending:,}",
    "lost": lambda ledger: f"{ledger.lost_total:,}",
    "datagrams thrown away": lambda ledger: f"{ledger.ignored.get('lost_on_purpose', 0):,}",
    "recovered": lambda ledger: f"{ledger.recovered:,}",
    "latency p50": lambda ledger: _quantile_us(ledger, 0.5),
    "latency p99": lambda ledger: _quantile_us(ledger, 0.99),
}


@click.command(short_help="See loss repaired and every event accounted for.")
@click.option("--seconds", "duration_s", type=click.FloatRange(0.1), default=10.0,
              show_default=True, help="How long to publish.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(1, 20_000), default=2_000.0, show_default=True,
              help="Events per second.")  # fmt: skip
@click.option("--loss", type=click.FloatRange(0, 0.9), default=0.02, show_default=True,
              help="Share of datagrams each subscriber loses.")  # fmt: skip
def demo(duration_s: float, rate: float, loss: float) -> None:
    """Watch a publisher and two subscribers repair injected loss, and add up the result."""
    url = f"multicast://239.255.77.1:{random.randint(20_000, 60_000)}"
    console = Console()
    stage = Stage(
        subscribers=[
            open_subscriber(f"{url}?loss={loss}&seed={seed}", start="first") for seed in (1, 2)
        ],
        publisher=open_publisher(url, source="demo"),
        duration_s=duration_s,
        rate=rate,
    )
    console.print(
        f"{rate:,.0f} events a second for {duration_s:g} s over {url}\n"
        f"each subscriber throws {loss:.1%} of its datagrams away on purpose"
    )
    try:
        stage.play(console)
    except KeyboardInterrupt:
        console.print("interrupted: closing the account early")
    is_accounted = stage.finish(console)
    sys.exit(0 if is_accounted else 1)


@dataclass
class Stage:
    """The three of them and their threads."""

    subscribers: list[Subscriber]
    publisher: Publisher
    duration_s: float
    rate: float
    is_over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    received: dict[int, int] = field(default_factory=dict)

    def play(self, console: Console) -> None:
        """Publishes and receives until the time is over, showing how it goes."""
        for place, subscriber in enumerate(self.subscribers):
            self.received[place] = 0
            self._start(self._receive, place, subscriber)
        self._start(self._publish)
        started = time.monotonic()
        if not console.is_terminal:
            while not self.is_over.wait(1.0):
                console.print(self._line())
            return
        with Live(self._picture(0.0), console=console, auto_refresh=False) as live:
            while not self.is_over.wait(REFRESH_S):
                live.update(self._picture(time.monotonic() - started), refresh=True)
            live.update(self._picture(self.duration_s), refresh=True)

    def finish(self, console: Console) -> bool:
        """Waits for the last repairs, closes, and says whether everything is accounted for."""
        self.is_over.set()
        self.threads[-1].join()  # the publisher's: nothing is sent any more
        sent = self.publisher.stats.sent
        give_up_at = time.monotonic() + SETTLE_S
        while time.monotonic() < give_up_at:
            ledgers = [subscriber.ledger for subscriber in self.subscribers]
            if all(ledger.expected == sent and not ledger.pending for ledger in ledgers):
                break
            time.sleep(0.01)  # each look takes the subscribers' locks: not too often
        for subscriber in self.subscribers:
            subscriber.close()
        for thread in self.threads:
            thread.join()
        self.publisher.close()
        ledgers = [subscriber.ledger for subscriber in self.subscribers]
        for place, ledger in enumerate(ledgers):
            console.print(f"\n[bold]subscriber {place + 1}[/bold]\n{ledger}", highlight=False)
        is_accounted = all(
            ledger.is_balanced
            and sent == ledger.delivered + ledger.lost_total
            and ledger.delivered == self.received[place]
            for place, ledger in enumerate(ledgers)
        )
        verdict = "every event is accounted for" if is_accounted else "NOT accounted for"
        lines = [
            f"  subscriber {place + 1}: {sent:,} sent = "
            f"{ledger.delivered:,} delivered + {ledger.lost_total:,} lost"
            for place, ledger in enumerate(ledgers)
        ]
        style = "bold green" if is_accounted else "bold red"
        console.print(Text("\n".join(["", f"{verdict}:", *lines]), style=style))
        return is_accounted

    def _start(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _publish(self) -> None:
        started = time.monotonic()
        count = round(self.duration_s * self.rate)
        for number in range(count):
            ahead_s = started + number / self.rate - time.monotonic()
            if ahead_s > 0 and self.is_over.wait(ahead_s):
                break
            self.publisher.publish("demo.price", 100 + number % 7, key="ABC")
        self.is_over.set()

    def _receive(self, place: int, subscriber: Subscriber) -> None:
        for _ in subscriber:
            self.received[place] += 1

    def _line(self) -> str:
        parts = [f"sent {self.publisher.stats.sent:,}"]
        for place, subscriber in enumerate(self.subscribers):
            ledger = subscriber.ledger
            parts.append(
                f"subscriber {place + 1}: delivered {ledger.delivered:,}, "
                f"recovered {ledger.recovered:,}, lost {ledger.lost_total:,}"
            )
        return "\n  ".join(parts)

    def _picture(self, elapsed_s: float) -> Group:
        stats = self.publisher.stats
        table = Table("", *(f"subscriber {n + 1}" for n in range(len(self.subscribers))))
        for column in table.columns[1:]:
            column.justify = "right"
        ledgers = [subscriber.ledger for subscriber in self.subscribers]
        for name, show in ROWS.items():
            table.add_row(name, *map(show, ledgers))
        bar = ProgressBar(total=self.duration_s, completed=min(elapsed_s, self.duration_s))
        head = Text(
            f"publisher: {stats.sent:,} sent, {stats.requests_served:,} requests answered, "
            f"{stats.retransmitted:,} sent again"
        )
        return Group(head, table, bar)
