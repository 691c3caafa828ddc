"""`onehop bench`: the benchmarks, each against floors or peers in the same run."""

import sys
from pathlib import Path

import click
from rich.console import Console


@click.group()
def bench() -> None:
    """Measure this machine: ratios against C floors that are compiled on the spot."""


@bench.command()
@click.option("--repetitions", type=click.IntRange(1), default=3, show_default=True)
@click.option("--scale", type=click.FloatRange(0.01, 100), default=1.0, show_default=True,
              help="Stretches or shrinks how much is sent in each run.")  # fmt: skip
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Also write everything that was measured.")  # fmt: skip
def multicast(repetitions: int, scale: float, path: Path | None) -> None:
    """Latency, drain, loss and repair of UDP multicast, about five minutes on two cores."""
    from onehop.bench.floors.build import FloorBuildError
    from onehop.bench.multicast import measure, save, show
    from onehop.bench.pairs import PairError

    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        report = measure(repetitions, scale, console)
    except (FloorBuildError, PairError) as fault:
        raise click.ClickException(str(fault)) from None
    except KeyboardInterrupt:
        raise click.ClickException("interrupted: a part of a comparison is none") from None
    if path is not None:
        save(report, path)
    show(report, console)
