"""The ZeroMQ benchmark: our public API against plain pyzmq doing the same work, as ratios.

Every repetition runs each pair once, one after the other; sender and receiver are processes of
their own. They are not pinned: ZeroMQ has a thread of its own on each side. Behind it come the
scenarios, in which every event must be accounted for.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .pairs import Result, read_report
from .report import Goal, as_rows, goals_table, machine, runs_table
from .zeromq_scenarios import SCENARIOS, Outcome

Runs = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who talks to whom, and how much."""

    sender: str
    receiver: str
    rate: int
    count: int


def plan(scale: float) -> dict[str, Plan]:
    """Every run of one repetition."""
    calm, flood = round(20_000 * scale), round(200_000 * scale)
    return {
        "pyzmq blocking, 10k/s": Plan("pyzmq", "pyzmq", 10_000, calm),
        "onehop blocking, 10k/s": Plan("onehop", "onehop", 10_000, calm),
        "onehop asyncio, 10k/s": Plan("onehop", "onehop-asyncio", 10_000, calm),
        "onehop uvloop, 10k/s": Plan("onehop", "onehop-uvloop", 10_000, calm),
        "zmq.asyncio, 10k/s": Plan("pyzmq", "pyzmq-asyncio", 10_000, calm),
        "pyzmq blocking, flood": Plan("pyzmq", "pyzmq", 0, flood),
        "onehop blocking, flood": Plan("onehop", "onehop", 0, flood),
        "zmq.asyncio, flood": Plan("pyzmq", "pyzmq-asyncio", 0, flood),
        "onehop asyncio, flood": Plan("onehop", "onehop-asyncio", 0, flood),
    }


GOALS: tuple[Goal[Runs], ...] = (
    Goal("blocking p50 / plain blocking pyzmq",
         lambda r: r["onehop blocking, 10k/s"].p50 / r["pyzmq blocking, 10k/s"].p50,
         1.2, "at most"),
    Goal("asyncio p50 / plain blocking pyzmq",
         lambda r: r["onehop asyncio, 10k/s"].p50 / r["pyzmq blocking, 10k/s"].p50,
         1.35, "at most"),
    Goal("throughput / plain pyzmq PUB/SUB",
         lambda r: r["onehop blocking, flood"].rate / r["pyzmq blocking, flood"].rate,
         0.7, "at least"),
    Goal("asyncio throughput / zmq.asyncio",
         lambda r: r["onehop asyncio, flood"].rate / r["zmq.asyncio, flood"].rate,
         3.0, "at least"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """The results of every repetition, and of the scenarios."""

    repetitions: list[dict[str, Result]]
    outcomes: list[Outcome]


def measure(repetitions: int, scale: float, console: Console) -> Report:
    """Runs everything, and shows how far it is."""
    runs = plan(scale)
    results: list[dict[str, Result]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("", total=repetitions * len(runs) + len(SCENARIOS))
        for _ in range(repetitions):
            done: dict[str, Result] = {}
            for name, run in runs.items():
                progress.update(task, description=f"{name:30}")
                done[name] = run_pair(name, run)
                progress.advance(task)
            results.append(done)
        outcomes = []
        for scenario in SCENARIOS:
            progress.update(task, description=f"{scenario.name:30}")
            outcomes.append(scenario.run(scale))
            progress.advance(task)
    return Report(results, outcomes)


def run_pair(name: str, run: Plan) -> Result:
    """Runs both sides to the end."""
    sender = _start(["send", run.sender, "--rate", run.rate, "--count", run.count])
    assert sender.stdout is not None
    assert sender.stdin is not None
    url = sender.stdout.readline().strip()
    receiver = _start(["receive", run.receiver, "--url", url, "--count", run.count])
    try:
        if run.sender == "pyzmq":
            assert receiver.stderr is not None
            receiver.stderr.readline()  # it has heard the sender
            sender.stdin.write("go\n")
            sender.stdin.flush()
        received = read_report(receiver, f"{name}: the receiver")
        sent = read_report(sender, f"{name}: the sender")
    finally:
        for process in (sender, receiver):
            process.kill()
            process.wait()
    return Result(received, sent)


def _start(arguments: list[object]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "onehop.bench.zeromq_talk", *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def show(report: Report, console: Console) -> None:
    """Prints the goals, then every run, then the scenarios."""
    console.print(machine(len(report.repetitions)), markup=False, highlight=False)
    table = goals_table()
    for goal in GOALS:
        goal.add_to(table, [goal.measure(runs) for runs in report.repetitions])
    unaccounted = sum(abs(outcome.unaccounted) for outcome in report.outcomes)
    table.add_row(
        "unaccounted events in all scenarios",
        "0",
        f"{unaccounted:,}",
        "met" if unaccounted == 0 else f"missed by {unaccounted:,}",
    )
    console.print(table)
    console.print(runs_table(report.repetitions, "events/s"))
    scenarios = Table("scenario", box=box.MARKDOWN)
    for name in ("sent", "delivered", "lost", "unaccounted"):
        scenarios.add_column(name, justify="right")
    for outcome in report.outcomes:
        lost = ", ".join(f"{reason} {n:,}" for reason, n in outcome.lost.items()) or "0"
        counts = (f"{outcome.sent:,}", f"{outcome.delivered:,}", lost, f"{outcome.unaccounted:,}")
        scenarios.add_row(outcome.name, *counts)
    console.print(scenarios)


def save(report: Report, path: Path) -> None:
    """Everything that was measured, as JSON."""
    rows = as_rows(report.repetitions)
    goals = {goal.name: [goal.measure(runs) for runs in report.repetitions] for goal in GOALS}
    outcomes = [
        {"name": o.name, "sent": o.sent, "delivered": o.delivered, "lost": dict(o.lost)}
        for o in report.outcomes
    ]
    content = {"repetitions": rows, "goals": goals, "scenarios": outcomes}
    path.write_text(json.dumps(content, indent=1))
