"""How a benchmark tells what it found: goals as figures of one repetition, medians and spreads."""

import math
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rich import box
from rich.table import Table

from .pairs import Result

RunsT = TypeVar("RunsT")


@dataclass(frozen=True, slots=True)
class Goal(Generic[RunsT]):
    """One line of the table of goals: a figure computed from the runs of one repetition."""

    name: str
    measure: Callable[[RunsT], float]
    target: float
    sense: Literal["at most", "at least"]
    unit: str = "×"

    def is_met(self, value: float) -> bool:
        """Whether a figure is as good as wanted; a figure that is not there is not."""
        return value <= self.target if self.sense == "at most" else value >= self.target

    def add_to(self, table: Table, values: Sequence[float]) -> None:
        """The line, with the median and the spread over the repetitions."""
        median = statistics.median(values)
        table.add_row(
            self.name,
            f"{self.sense} {self.target:g} {self.unit}".strip(),
            f"{spread(values)} {self.unit}".strip(),
            "met" if self.is_met(median) else f"missed by {self._miss(median)}",
        )

    def _miss(self, value: float) -> str:
        if self.target == 0:
            return f"{value:,.0f}"
        return f"{abs(value / self.target - 1):.0%}"


def goals_table() -> Table:
    """An empty table of goals."""
    return Table("goal", "target", "measured", "", box=box.MARKDOWN)


def spread(values: Sequence[float]) -> str:
    """The median, the least and the most."""
    if any(math.isnan(value) for value in values):
        return "–"
    median = statistics.median(values)
    return f"{_figure(median)} ({_figure(min(values))}–{_figure(max(values))})"


def runs_table(repetitions: Sequence[Mapping[str, Result]], unit: str) -> Table:
    """Every run: the ones where we lose too."""
    table = Table(box=box.MARKDOWN)
    table.add_column("run")
    for name in ("p50 µs", "p99 µs", unit, "missing"):
        table.add_column(name, justify="right")
    for name in repetitions[0]:
        results = [runs[name] for runs in repetitions]
        table.add_row(
            name,
            spread([result.p50 for result in results]),
            spread([result.p99 for result in results]),
            spread([result.rate for result in results]),
            spread([float(result.missing) for result in results]),
        )
    return table


def as_rows(repetitions: Sequence[Mapping[str, Result]]) -> list[dict[str, object]]:
    """Everything that was measured, for JSON."""
    return [
        {name: {"receiver": dict(r.receiver), "sender": dict(r.sender)} for name, r in runs.items()}
        for runs in repetitions
    ]


def _figure(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine(repetitions: int) -> str:
    """What a reader has to know of the run."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"\n{repetitions} repetitions, interleaved; median (least–most); "
        f"{cores} cores, Linux {platform.release()}, Python {platform.python_version()}\n"
    )
