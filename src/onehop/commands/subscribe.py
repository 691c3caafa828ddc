"""`onehop subscribe`: events on the terminal, as JSON lines, or only their account."""

import base64
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from onehop.transport import (
    Disconnected,
    Event,
    LedgerSnapshot,
    Loss,
    Subscriber,
    open_subscriber,
)
from onehop.transport.handover import OVERFLOW_POLICIES


class StartType(click.ParamType[str | int]):
    """`live`, `first` or a sequence number."""

    name = "live|first|N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        """Text to a start."""
        if value in ("live", "first"):
            return str(value)
        if str(value).isdecimal() and int(value) >= 1:
            return int(value)
        self.fail(f"{value!r}: expected live, first or a number from 1", param, ctx)


@click.command(short_help="Receive events from a URL.")
@click.argument("url")
@click.option("--topic", "topics", multiple=True, metavar="PREFIX", help="Only these; repeatable.")
@click.option("--from", "start", type=StartType(), default="live", show_default=True,
              help="Where to begin in a session that was there before.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="End after this many events.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), metavar="S",
              help="End after this many seconds without an event.")  # fmt: skip
@click.option("--on-overflow", type=click.Choice(OVERFLOW_POLICIES), default="drop_oldest",
              show_default=True, help="What gives way when the queue is full.")  # fmt: skip
@click.option("--unordered", is_flag=True, help="Do not hold events back behind a gap.")
@click.option("--spin", is_flag=True, help="Burn a core while waiting: lowest latency.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event or loss.")
@click.option("--summary", is_flag=True, help="Only one JSON object, at the end.")
def subscribe(
    url: str,
    topics: tuple[str, ...],
    start: Any,
    count: int | None,
    timeout_s: float | None,
    on_overflow: Any,
    unordered: bool,
    spin: bool,
    as_json: bool,
    summary: bool,
) -> None:
    """Receive events from URL until Ctrl-C, --count or --timeout.

    \b
    Ends with the account of every message:
    expected = delivered + filtered + pending + lost
    """
    if as_json and summary:
        raise click.UsageError("give one of --json and --summary")
    show = _show_nothing if summary else _show_json if as_json else _show_text
    subscriber = open_subscriber(
        url, topics, start=start, on_overflow=on_overflow, ordered=not unordered, spin=spin
    )
    if sys.stderr.isatty() and not (as_json or summary):
        click.echo(f"listening on {url}; Ctrl-C ends", err=True)
    is_disconnected = False
    with subscriber:
        viewer = Viewer(show, count, timeout_s)
        try:
            try:
                viewer.follow(subscriber)
            except KeyboardInterrupt:  # the way to end it; what has come is still shown
                subscriber.close()
                viewer.follow(subscriber)
        except Disconnected as fault:
            is_disconnected = True
            click.echo(f"onehop: {fault}", err=True)
        subscriber.close()
        ledger = subscriber.ledger
    if summary:
        click.echo(json.dumps(summarise(ledger)))
    elif not as_json:
        click.echo(str(ledger), err=True)
    if is_disconnected:
        sys.exit(1)


@dataclass
class Viewer:
    """Shows what comes until enough has come, or nothing has for a while."""

    show: Callable[[Event | Loss], None]
    left: int | None
    timeout_s: float | None

    def follow(self, subscriber: Subscriber) -> None:
        """Shows items to the end; of a closed subscriber those that have come."""
        quiet_at = self._quiet_at()
        while self.left is None or self.left > 0:
            wait_s = None if quiet_at is None else max(0.0, quiet_at - time.monotonic())
            item = next(subscriber.with_losses(wait_s), None)
            if item is None:
                break
            self.show(item)
            if isinstance(item, Event):
                self.left = None if self.left is None else self.left - 1
                quiet_at = self._quiet_at()

    def _quiet_at(self) -> float | None:
        return None if self.timeout_s is None else time.monotonic() + self.timeout_s


def summarise(ledger: LedgerSnapshot) -> dict[str, Any]:
    """The account as one JSON object."""
    names = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    latency = {
        name: None if (ns := ledger.latency_ns.quantile(q)) is None else round(ns / 1e3, 3)
        for name, q in names.items()
    }
    return {
        "expected": ledger.expected,
        "delivered": ledger.delivered,
        "filtered": ledger.filtered,
        "pending": ledger.pending,
        "lost": dict(ledger.lost),
        "recovered": ledger.recovered,
        "duplicates": ledger.duplicates,
        "reordered": ledger.reordered,
        "kernel_drops": ledger.kernel_drops,
        "ignored": dict(ledger.ignored),
        "latency_us": latency,
        "streams": [
            {
                "source": stream.source,
                "epoch": stream.epoch,
                "stream": stream.stream,
                "first": stream.first,
                "expected": stream.expected,
                "delivered": stream.delivered,
                "lost": dict(stream.lost),
            }
            for stream in ledger.streams
        ],
    }


def _show_nothing(item: Event | Loss) -> None:
    """For --summary."""


def _show_text(item: Event | Loss) -> None:
    source = _printable(item.source)
    if isinstance(item, Loss):
        click.echo(f"lost {item.first}..{item.last} of {source}: {item.reason}", err=True)
    else:
        key = "" if item.key is None else f" [{_printable(item.key)}]"
        click.echo(f"{source} {item.sequence} {_printable(item.topic)}{key} {item.value!r}")


def _printable(text: str) -> str:
    """What a peer sent, without the control codes of a terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def _show_json(item: Event | Loss) -> None:
    if isinstance(item, Loss):
        record: dict[str, Any] = {
            "loss": item.reason.value,
            "source": item.source,
            "epoch": item.epoch,
            "stream": item.stream,
            "first": item.first,
            "count": item.count,
            "at_ns": item.at_ns,
        }
    else:
        record = {
            "topic": item.topic,
            "value": item.value,
            "key": item.key,
            "source": item.source,
            "epoch": item.epoch,
            "stream": item.stream,
            "sequence": item.sequence,
            "occurred_at_ns": item.occurred_at_ns,
            "sent_at_ns": item.sent_at_ns,
            "received_at_ns": item.received_at_ns,
            "headers": dict(item.headers),
        }
    sys.stdout.write(json.dumps(record, default=_jsonable) + "\n")
    sys.stdout.flush()


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    return str(value)
