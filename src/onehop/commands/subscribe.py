"""`onehop subscribe`: events on the terminal, as JSON lines, or only their account."""

import base64
import json
import math
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
from onehop.transport.mold.wire import MAX_SEQUENCE

from .interrupts import Interrupts, note_interrupts

LOOK_S = 0.1
"""How often a wait looks whether the user wants to end it."""


class StartType(click.ParamType[str | int]):
    """`live`, `first` or a sequence number."""

    name = "live|first|N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        """Text to a start."""
        if value in ("live", "first"):
            return str(value)
        text = str(value)
        if text.isascii() and text.isdecimal() and 1 <= int(text[:21]) <= MAX_SEQUENCE:
            return int(text)
        self.fail(f"{value!r}: expected live, first or a number from 1 to 2**64 - 1", param, ctx)


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
@click.option("--group", metavar="NAME", help="Share the events with others in this group: each "
              "goes to one.")  # fmt: skip
@click.option("--order-by", type=click.Choice(["key"]), help="In a group: each key in order.")
@click.option("--history", type=click.Choice(["last"]), help="Begin with the last value of each "
              "topic.")  # fmt: skip
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
    group: str | None,
    order_by: Any,
    history: Any,
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
    if order_by is not None and group is None:
        raise click.UsageError("--order-by goes with --group")
    show = _show_nothing if summary else _show_json if as_json else _show_text
    subscriber = open_subscriber(
        url, topics, start=start, on_overflow=on_overflow, ordered=not unordered, spin=spin,
        group=group, order_by=order_by, history=history,
    )  # fmt: skip
    if sys.stderr.isatty() and not (as_json or summary):
        click.echo(f"listening on {url}; Ctrl-C ends", err=True)
    is_disconnected = False
    with subscriber:
        viewer = Viewer(show, count, timeout_s, note_interrupts())
        try:
            viewer.follow(subscriber)
            if viewer.is_interrupted:  # the way to end it; what has come is still shown
                subscriber.close()
                viewer.follow(subscriber)
        except Disconnected as fault:
            is_disconnected = True
            click.echo(f"onehop: {fault}", err=True)
    ledger = subscriber.ledger
    if summary:
        click.echo(json.dumps(summarise(ledger)))
    elif not as_json:
        click.echo(str(ledger), err=True)
    if is_disconnected:
        sys.exit(1)


@dataclass
class Viewer:
    """Shows what comes until enough has come, nothing has for a while, or the user wants to end."""

    show: Callable[[Event | Loss], None]
    left: int | None
    timeout_s: float | None
    interrupts: Interrupts

    @property
    def is_interrupted(self) -> bool:
        """True when the user wants to end."""
        return self.interrupts.noted.is_set()

    def follow(self, subscriber: Subscriber) -> None:
        """Shows items to the end; of a closed subscriber those that have come."""
        was_interrupted = self.is_interrupted
        quiet_at = self._quiet_at()
        while (self.left is None or self.left > 0) and self.is_interrupted == was_interrupted:
            wait_s = max(0.0, min(LOOK_S, quiet_at - time.monotonic()))
            item = next(subscriber.with_losses(wait_s), None)
            if item is None:
                if was_interrupted or time.monotonic() >= quiet_at:
                    break
                continue
            self.show(item)
            if isinstance(item, Event):
                self.left = None if self.left is None else self.left - 1
                quiet_at = self._quiet_at()

    def _quiet_at(self) -> float:
        return math.inf if self.timeout_s is None else time.monotonic() + self.timeout_s


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
    sys.stdout.write(json.dumps(jsonable(record), allow_nan=False) + "\n")
    sys.stdout.flush()


def jsonable(value: Any) -> Any:
    """A value of an event in the forms that JSON has; what it has none for becomes text."""
    if isinstance(value, dict):
        return {_json_key(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


def _json_key(key: Any) -> str:
    if isinstance(key, bytes):
        return base64.b64encode(key).decode("ascii")
    return key if isinstance(key, str) else json.dumps(jsonable(key))
