"""`onehop request-server`: keeps what publishers send, and answers for them."""

import dataclasses
import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from onehop.transport.errors import ConfigurationError
from onehop.transport.multicast.request_server import RequestServer, RequestServerSnapshot
from onehop.transport.urls import parse_endpoint

UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
MAX_DIGITS = 15
"""A petabyte of bytes; longer numbers are typing errors."""
STATUS_EVERY_S = 2.0


@click.command("request-server")
@click.argument("url")
@click.option("--listen", metavar="ADDRESS:PORT", help="Where to take requests; default: any port "
              "of the URL's interface.")  # fmt: skip
@click.option("--ring", default="64M", show_default=True, metavar="SIZE",
              help="What to keep in memory.")  # fmt: skip
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="PATH",
              help="Keep everything in this directory, also over a restart.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object (the default when "
              "standard output is no terminal).")  # fmt: skip
def request_server(
    url: str, listen: str | None, ring: str, path: Path | None, as_json: bool
) -> None:
    """Keep what is sent to URL and answer requests for it, also after the publisher is gone.

    \b
    Subscribers name it in their URL: multicast://...?request=ADDRESS:PORT
    With --file it can serve them from the first message on (subscribe --from first).
    """
    where = None
    if listen is not None:
        address, port = parse_endpoint(listen, "--listen")
        where = (str(address), port)
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with RequestServer(url, listen=where, ring_bytes=parse_size(ring), file=path) as server:
        if damage := server.stats.damage:
            click.echo(f"onehop: {damage}", err=True)
        host, number = server.address[:2]
        shown = f"[{host}]" if ":" in str(host) else host
        click.echo(f"answering requests on {shown}:{number}", err=True)
        watch = threading.Thread(target=_watch, args=(server, stop), daemon=True)
        watch.start()
        try:
            server.run(stop)
        finally:
            stop.set()
            watch.join()
    stats = server.stats
    if as_json or not sys.stdout.isatty():
        click.echo(json.dumps(dataclasses.asdict(stats)))
    else:
        click.echo(summarise(stats))


def parse_size(text: str) -> int:
    """`64M` as bytes."""
    unit = UNITS.get(text[-1:].upper(), 0)
    digits = text[:-1] if unit else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS and int(digits)):
        raise ConfigurationError(f"size {text!r}: expected a number of bytes, like 64M or 1G")
    return int(digits) * (unit or 1)


def summarise(stats: RequestServerSnapshot) -> str:
    """What a person wants to know, in one line."""
    places = f"{stats.in_memory:,} in memory"
    if stats.file_bytes:
        places += f", {stats.in_file:,} in the file"
    return (
        f"{stats.sessions:,} sessions, kept {stats.kept:,} messages ({places}), "
        f"lost {stats.lost:,}; answered {stats.requests_served:,} of {stats.requests:,} requests "
        f"with {stats.retransmitted:,} messages"
        f"{'; ' if stats.fault else ''}{stats.fault}"
    )


def _watch(server: RequestServer, stop: threading.Event) -> None:
    """Says when the disk refuses and when it takes again; on a terminal also how it goes."""
    fault = ""
    while not stop.wait(STATUS_EVERY_S):
        stats = server.stats
        if stats.fault != fault:
            fault = stats.fault
            click.echo(f"onehop: {fault or 'the file takes messages again'}", err=True)
        elif sys.stderr.isatty():
            click.echo(summarise(stats), err=True)
