"""`onehop publish`: events from the command line, a file or a load generator."""

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from onehop.transport import LimitError, LocalError, Publisher, open_publisher
from onehop.transport.envelope import MAX_EVENT_BYTES
from onehop.transport.opening import SCHEMES
from onehop.transport.urls import parse_url

from .interrupts import Interrupts, note_interrupts


@click.command(short_help="Publish events to a URL.")
@click.argument("url")
@click.option("--topic", required=True, help="Topic of every event.")
@click.option(
    "--count", type=click.IntRange(0), help="How many events; default 1, or all of stdin."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Events per second.")
@click.option("--size", type=click.IntRange(0, MAX_EVENT_BYTES), help="Value: this many bytes.")
@click.option("--source", help="Name of the source; default: this host and process.")
@click.option("--key", help="Key of every event.")
@click.option("--value", "value_text", metavar="JSON", help="Value of every event, as JSON.")
@click.option("--stdin", "from_stdin", is_flag=True, help="One event per line of standard input.")
@click.option(
    "--ready",
    "subscribers",
    type=click.IntRange(1),
    metavar="N",
    help="Wait for N subscribers first; where they can be known: over ZeroMQ.",
)
@click.option(
    "--ready-timeout",
    "ready_timeout_s",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for them.",
)
@click.option("--linger", "linger_s", type=click.FloatRange(0), default=1.0, show_default=True,
              help="Seconds for requests and groups after the last event.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object (the default when "
              "standard output is no terminal).")  # fmt: skip
def publish(
    url: str,
    topic: str,
    count: int | None,
    rate: float | None,
    size: int | None,
    source: str | None,
    key: str | None,
    value_text: str | None,
    from_stdin: bool,
    subscribers: int | None,
    ready_timeout_s: float,
    linger_s: float,
    as_json: bool,
) -> None:
    """Publish events to URL, for example multicast://239.255.7.1:7400?interface=127.0.0.1

    \b
    Without --value, --stdin or --size the value is the event's number.
    Ends with one JSON object: sent, source, epoch, requests_served, ...
    """
    if sum(option is not None for option in (value_text, size)) + from_stdin > 1:
        raise click.UsageError("give one of --value, --stdin and --size")
    interrupts = note_interrupts()
    values = _values(count, size, value_text, from_stdin, interrupts)
    publisher = open_publisher(url, source, linger_s=linger_s)
    if _is_raw(url):
        values = (_as_bytes(value) for value in values)
    started = time.monotonic()
    try:
        if subscribers is not None:
            with interrupts.welcome():
                publisher.ready(subscribers, timeout_s=ready_timeout_s)
        _publish_all(publisher, topic, key, values, rate, interrupts)
        _settle(publisher, linger_s)
    except KeyboardInterrupt:
        interrupts.noted.set()
    finally:
        if interrupts.noted.is_set():
            click.echo("interrupted: ending the session", err=True)
        elapsed_s = time.monotonic() - started
        publisher.close()
    _report(publisher, elapsed_s, as_json)


def _is_raw(url: str) -> bool:
    return parse_url(url, SCHEMES).options.get("payload") == "raw"


def _as_bytes(value: Any) -> bytes:
    """What is sent of a value where plain bytes are wanted: text as it is, the rest as JSON."""
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _lines(interrupts: Interrupts) -> Iterator[bytes]:
    while True:
        with interrupts.welcome():
            line = sys.stdin.buffer.readline()
        if not line:
            return
        yield line


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def _values(
    count: int | None,
    size: int | None,
    value_text: str | None,
    from_stdin: bool,
    interrupts: Interrupts,
) -> Iterator[Any]:
    if from_stdin:
        lines = _lines(interrupts)
        for number, line in enumerate(itertools.islice(lines, count)):
            try:
                text = line.rstrip(b"\r\n").decode()
            except UnicodeDecodeError:
                raise LimitError(f"line {number + 1} of standard input is no UTF-8") from None
            yield text
        return
    try:
        value = None if value_text is None else json.loads(value_text, parse_constant=_no_number)
    except (ValueError, RecursionError) as fault:
        raise click.BadParameter(
            f"{value_text!r:.80} is no JSON: {fault}", param_hint="--value"
        ) from None
    filler = None if size is None else bytes(size)
    for number in range(1, (1 if count is None else count) + 1):
        if value_text is not None:
            yield value
        else:
            yield number if filler is None else filler


def _publish_all(
    publisher: Publisher,
    topic: str,
    key: str | None,
    values: Iterator[Any],
    rate: float | None,
    interrupts: Interrupts,
) -> None:
    start = time.monotonic()
    for number, value in enumerate(values):
        if rate is not None:
            ahead_s = start + number / rate - time.monotonic()
            if ahead_s > 0:
                interrupts.noted.wait(ahead_s)
        if interrupts.noted.is_set():
            return
        publisher.publish(topic, value, key=key)


def _settle(publisher: Publisher, timeout_s: float) -> None:
    """Gives groups the time to do their work: what is not done is gone with the publisher."""
    try:
        publisher.settle(timeout_s)
    except LocalError as fault:
        click.echo(f"onehop: {fault}; give them longer with --linger", err=True)


def _report(publisher: Publisher, elapsed_s: float, as_json: bool) -> None:
    stats = publisher.stats
    if as_json or not sys.stdout.isatty():
        report = {
            "sent": stats.sent,
            "events": stats.events,
            "source": stats.source,
            "epoch": stats.epoch,
            "session": stats.session,
            "requests": stats.requests,
            "requests_served": stats.requests_served,
            "retransmitted": stats.retransmitted,
            "requests_evicted": stats.evicted,
            "send_errors": stats.send_errors,
            "groups": {n: dataclasses.asdict(group) for n, group in publisher.groups.items()},
            "elapsed_s": round(elapsed_s, 6),
        }
        click.echo(json.dumps(report))
    else:
        click.echo(
            f"sent {stats.sent:,} messages ({stats.events:,} events) of {stats.source} in "
            f"{elapsed_s:.2f} s; answered {stats.requests_served:,} requests with "
            f"{stats.retransmitted:,} messages"
        )
