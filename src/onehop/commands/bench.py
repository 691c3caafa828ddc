"""`onehop bench`: the benchmarks, each against floors or peers in the same run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console


@click.group()
def bench() -> None:
    """Measure this machine: ratios against C floors and plain peers, in one run."""


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every benchmark has."""
    options = (
        click.option("--repetitions", type=click.IntRange(1), default=3, show_default=True),
        click.option("--scale", type=click.FloatRange(0.01, 100), default=1.0, show_default=True,
                     help="Stretches or shrinks how much is sent in each run."),
        click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False),
                     metavar="FILE", help="Also write everything that was measured."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _run(benchmark: Any, repetitions: int, scale: float, path: Path | None) -> None:
    from onehop.bench.floors.build import FloorBuildError
    from onehop.bench.pairs import PairError

    console = Console(width=None if sys.stdout.isatty() else 180)
    try:
        report = benchmark.measure(repetitions, scale, console)
    except (FloorBuildError, PairError) as fault:
        raise click.ClickException(str(fault)) from None
    except KeyboardInterrupt:
        raise click.ClickException("interrupted: a part of a comparison is none") from None
    if path is not None:
        benchmark.save(report, path)
    benchmark.show(report, console)


@bench.command()
@_with_options
def multicast(repetitions: int, scale: float, path: Path | None) -> None:
    """Latency, drain, loss and repair of UDP multicast, about five minutes on two cores."""
    from onehop.bench import multicast

    _run(multicast, repetitions, scale, path)


@bench.command()
@_with_options
def zeromq(repetitions: int, scale: float, path: Path | None) -> None:
    """Latency and throughput over ZeroMQ against plain pyzmq, about three minutes."""
    from onehop.bench import zeromq

    _run(zeromq, repetitions, scale, path)
