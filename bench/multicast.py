"""The multicast benchmark: our public API against C floors, in one run, as ratios.

Every repetition runs each pair once, one after the other, so that a slow minute of the machine
hits both sides of a ratio. Printed are the goals and then every run, the ones where we lose too.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .floors.build import build
from .goals import GOALS, Runs, plan
from .pairs import PairError, Result, run_pair
from .report import Goal, as_rows, goals_table, machine, runs_table
from .tail import tail_repairs_ms

TAIL_GOAL_MS = 5.0


@dataclass(frozen=True, slots=True)
class Report:
    """The results of every repetition, by the name of the run."""

    repetitions: list[dict[str, Result]]
    tail_ms: list[float]

    def goal_values(self, goal: Goal[Runs]) -> list[float]:
        """The goal's figure in each repetition that has all it needs."""
        return [goal.measure(runs) for runs in self.repetitions]

    @property
    def unbalanced(self) -> list[str]:
        """Runs of ours whose account does not add up to what was sent."""
        return [
            name
            for runs in self.repetitions
            for name, result in runs.items()
            if name.startswith("onehop") and not _is_accounted(result)
        ]


def _is_accounted(result: Result) -> bool:
    receiver = result.receiver
    return bool(receiver["is_balanced"]) and int(receiver["expected"]) == int(result.sender["sent"])


def measure(repetitions: int, scale: float, console: Console) -> Report:
    """Builds the floors, runs everything, shows how far it is."""
    runs = plan(scale)
    results: list[dict[str, Result]] = []
    with tempfile.TemporaryDirectory(prefix="onehop-floors-") as directory:
        floors = build(Path(directory))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            task = progress.add_task("", total=repetitions * len(runs))
            for _ in range(repetitions):
                done: dict[str, Result] = {}
                for name, run in runs.items():
                    progress.update(task, description=f"{name:40}")
                    try:
                        done[name] = run_pair(floors, run.receiver, run.traffic)
                    except PairError as fault:
                        raise PairError(f"{name}: {fault}") from None
                    progress.advance(task)
                results.append(done)
            progress.update(task, description="loss of the last packet")
            tail_ms = tail_repairs_ms()
    return Report(results, tail_ms)


def show(report: Report, console: Console) -> None:
    """Prints the goals, then every run."""
    console.print(machine(len(report.repetitions)), markup=False, highlight=False)
    table = goals_table()
    for goal in GOALS:
        goal.add_to(table, report.goal_values(goal))
    if report.tail_ms:
        name = f"loss of the last packet: repaired ({len(report.tail_ms)} times)"
        tail: Goal[object] = Goal(name, lambda _: 0.0, TAIL_GOAL_MS, "at most", "ms")
        tail.add_to(table, report.tail_ms)
    unbalanced = report.unbalanced
    table.add_row(
        "sent = delivered + lost, in every run of ours",
        "always",
        "always" if not unbalanced else f"not in {', '.join(unbalanced)}",
        "met" if not unbalanced else "missed",
    )
    console.print(table)
    console.print(runs_table(report.repetitions, "messages/s"))


def save(report: Report, path: Path) -> None:
    """Everything that was measured, as JSON."""
    rows = as_rows(report.repetitions)
    goals = {f"{place} {goal.name}": report.goal_values(goal) for place, goal in enumerate(GOALS)}
    content = {"repetitions": rows, "goals": goals, "tail_ms": report.tail_ms}
    path.write_text(json.dumps(content, indent=1))
