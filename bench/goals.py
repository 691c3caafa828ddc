"""The goals of the multicast transport: what is run, what is compared, what would be good.

Each goal is a figure computed from the runs of one repetition, so both sides of a ratio come from
the same minute of the same machine. What is printed is the median over the repetitions and the
spread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .pairs import Receiver, Result, Traffic
from .report import Goal

AUDIENCE = 20

Runs = Mapping[str, Result]
"""The results of one repetition, by the name of the run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A receiver under some traffic."""

    receiver: Receiver
    traffic: Traffic


def _floor(program: str, mode: str, loss: float = 0.0) -> Receiver:
    return Receiver(f"C {program} {mode}", floor=program, mode=mode, loss=loss)


def _ours(mode: str, loss: float = 0.0, *, is_pure: bool = False) -> Receiver:
    # A flood is faster than anyone reads it; the floor does not repair what it misses, nor do we.
    return Receiver(f"onehop {mode}", mode=mode, loss=loss, is_pure=is_pure, repairs=mode != "many")


def plan(scale: float) -> dict[str, Run]:
    """Every run of one repetition; `scale` stretches or shrinks how much is sent."""
    calm = Traffic(10_000, round(20_000 * scale))
    served = Traffic(10_000, round(20_000 * scale), serves=True)
    events = Traffic(10_000, round(20_000 * scale), holds_events=True)
    busy = Traffic(100_000, round(100_000 * scale))
    fast = Traffic(300_000, round(300_000 * scale))
    flood = Traffic(0, round(300_000 * scale))
    packed = Traffic(0, round(50_000 * scale), per_packet=20)
    skipping = Traffic(500, round(1_000 * scale), serves=True, skip=20)
    return {
        "C blocking recv, 10k/s": Run(_floor("recv", "block"), calm),
        "onehop blocking, 10k/s": Run(_ours("block"), calm),
        "onehop blocking, pure Python, 10k/s": Run(_ours("block", is_pure=True), calm),
        "onehop blocking, events, 10k/s": Run(_ours("block"), events),
        "onehop asyncio, 10k/s": Run(_ours("asyncio"), calm),
        "onehop uvloop, 10k/s": Run(_ours("uvloop"), calm),
        "C spin, 10k/s": Run(_floor("recv", "spin"), calm),
        "onehop spin, 10k/s": Run(_ours("spin"), calm),
        "onehop asyncio, 100k/s": Run(_ours("asyncio"), busy),
        "C recvmmsg, flood": Run(_floor("recv", "mmsg"), flood),
        "onehop many, flood": Run(_ours("many"), flood),
        "onehop many, 300k/s": Run(_ours("many"), fast),
        "C recvmmsg, flood of 20 per packet": Run(_floor("recv", "mmsg"), packed),
        "onehop many, flood of 20 per packet": Run(_ours("many"), packed),
        "onehop many, pure Python, flood of 20": Run(_ours("many", is_pure=True), packed),
        "C mold floor, 0 % loss": Run(_floor("mold_recv", "block"), served),
        "onehop blocking, 0 % loss": Run(_ours("block"), served),
        "C mold floor, 1 % loss": Run(_floor("mold_recv", "block", 0.01), served),
        "onehop blocking, 1 % loss": Run(_ours("block", 0.01), served),
        "onehop spin, 1 % loss": Run(_ours("spin", 0.01), served),
        "C mold floor, 5 % loss": Run(_floor("mold_recv", "block", 0.05), served),
        "onehop blocking, 5 % loss": Run(_ours("block", 0.05), served),
        "onehop spin, 5 % loss": Run(_ours("spin", 0.05), served),
        "onehop blocking, pure Python, 5 % loss": Run(_ours("block", 0.05, is_pure=True), served),
        "onehop, 20 subscribers miss the same": Run(
            Receiver("onehop audience", receivers=AUDIENCE), skipping
        ),
    }


def _p50_ratio(ours: str, floor: str) -> Callable[[Runs], float]:
    return lambda runs: runs[ours].p50 / runs[floor].p50


def _p99_ratio(ours: str, floor: str) -> Callable[[Runs], float]:
    return lambda runs: runs[ours].p99 / runs[floor].p99


def _rate_ratio(ours: str, floor: str) -> Callable[[Runs], float]:
    return lambda runs: runs[ours].rate / runs[floor].rate


def _repair_p50(name: str) -> Callable[[Runs], float]:
    return lambda runs: float(runs[name].receiver["repair_us"]["p50"])


def _requests_per_loss(name: str) -> Callable[[Runs], float]:
    return lambda runs: (
        runs[name].sender["requests"] / max(1, int(runs[name].receiver["recovered"]))
    )


GOALS: tuple[Goal[Runs], ...] = (
    Goal("blocking receive p50 / C blocking recv",
         _p50_ratio("onehop blocking, 10k/s", "C blocking recv, 10k/s"), 1.25, "at most"),
    Goal("the same, pure Python",
         _p50_ratio("onehop blocking, pure Python, 10k/s", "C blocking recv, 10k/s"),
         1.5, "at most"),
    Goal("spin receive p50 / C spin",
         _p50_ratio("onehop spin, 10k/s", "C spin, 10k/s"), 1.5, "at most"),
    Goal("asyncio p50 / C blocking recv",
         _p50_ratio("onehop asyncio, 10k/s", "C blocking recv, 10k/s"), 1.6, "at most"),
    Goal("uvloop p50 / C blocking recv",
         _p50_ratio("onehop uvloop, 10k/s", "C blocking recv, 10k/s"), 1.6, "at most"),
    Goal("asyncio at 100k/s: missing",
         lambda runs: runs["onehop asyncio, 100k/s"].missing, 0, "at most", "messages"),
    Goal("drain, 1 per packet / C recvmmsg",
         _rate_ratio("onehop many, flood", "C recvmmsg, flood"), 0.9, "at least"),
    Goal("at 300k/s: missing",
         lambda runs: runs["onehop many, 300k/s"].missing, 0, "at most", "messages"),
    Goal("drain, 20 per packet / C recvmmsg",
         _rate_ratio("onehop many, flood of 20 per packet", "C recvmmsg, flood of 20 per packet"),
         0.5, "at least"),
    Goal("the same, pure Python",
         lambda runs: runs["onehop many, pure Python, flood of 20"].rate / 1e6,
         1.0, "at least", "M messages/s"),
    Goal("1 % loss: in-order p99 / C mold floor",
         _p99_ratio("onehop blocking, 1 % loss", "C mold floor, 1 % loss"), 2.0, "at most"),
    Goal("5 % loss: in-order p99 / C mold floor",
         _p99_ratio("onehop blocking, 5 % loss", "C mold floor, 5 % loss"), 2.0, "at most"),
    Goal("5 % loss: p50 / loss-free",
         _p50_ratio("onehop blocking, 5 % loss", "onehop blocking, 0 % loss"), 2.0, "at most"),
    Goal("5 % loss: rate kept",
         lambda runs: runs["onehop blocking, 5 % loss"].rate / 1e4, 0.99, "at least"),
    Goal("gap noticed to filled, p50",
         _repair_p50("onehop blocking, 5 % loss"), 150, "at most", "µs"),
    Goal("the same, pure Python",
         _repair_p50("onehop blocking, pure Python, 5 % loss"), 300, "at most", "µs"),
    Goal("requests per lost message at 5 %",
         _requests_per_loss("onehop blocking, 5 % loss"), 1.2, "at most", ""),
    Goal("the same, each of 20 that miss the same packet",
         _requests_per_loss("onehop, 20 subscribers miss the same"), 1.2, "at most", ""),
)  # fmt: skip
