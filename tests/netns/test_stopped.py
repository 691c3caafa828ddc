"""A subscriber that is stopped for a while: what its buffer could not hold is asked for again."""

from __future__ import annotations

import signal

from badwire import BadWireFactory

from netns.actors import Actor, all_settled, onehop, result_of, subscribe, until, url

COUNT = 8000
# The kernel charges a full frame with 2304 bytes: 4 MiB, which it doubles, hold 3640 of them.
OVERFLOWS_BEHIND = 4500


def test_a_subscriber_stopped_until_its_buffer_overflows_loses_nothing(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    here, quiet = url(wire.host(1)), ("--timeout", "3")
    command = subscribe(wire.host(1), here, "--from", "first", "--count", str(COUNT), *quiet)
    publisher = onehop(
        wire.host(0), "publish", url(wire.host(0)),
        "--topic", "t", "--count", str(COUNT), "--rate", "5000", "--size", "1300", "--json",
    )  # fmt: skip

    def delivered_by_wire() -> int:
        delivered: int = wire.report()["ends"][1]["multicast"]["delivered"]
        return delivered

    until(delivered_by_wire, lambda delivered: delivered >= 500)
    command.send_signal(signal.SIGSTOP)
    overflows_at = delivered_by_wire() + OVERFLOWS_BEHIND
    until(delivered_by_wire, lambda delivered: delivered >= overflows_at)
    command.send_signal(signal.SIGCONT)
    sent, summary = result_of(publisher), result_of(command)
    print(f"kernel_drops {summary['kernel_drops']}, recovered {summary['recovered']}")
    assert summary["expected"] == summary["delivered"] == sent["sent"] == COUNT
    assert (summary["lost"], summary["pending"]) == ({}, 0)
    assert 500 < summary["recovered"] <= summary["kernel_drops"]  # some of these were heartbeats
    assert sent["retransmitted"] >= summary["recovered"]
    assert wire.report()["relay_overflow"] == 0


def test_a_repair_under_way_survives_a_stop_longer_than_its_deadline(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    listener = Actor.listener(wire.host(1), url(wire.host(1)), deadline_s=0.5)
    speaker = Actor.speaker(wire.host(0), url(wire.host(0)))
    speaker.ask("say", count=1)
    listener.until(all_settled(1))
    wire.partition(kind="multicast")
    speaker.ask("say", count=1)
    wire.partition(kind="unicast")
    wire.heal(kind="multicast")
    speaker.ask("say", count=1)
    listener.until(lambda report: report["requests"] >= 2)
    listener.process.send_signal(signal.SIGSTOP)
    # Heartbeats come less and less often: a thousand messages take a second without a sleep.
    speaker.ask("say", count=1000, rate_per_s=1000)
    wire.heal()
    listener.process.send_signal(signal.SIGCONT)
    report = listener.until(all_settled(1003))
    assert (report["delivered"], report["lost"], report["faults"]) == (1003, {}, [])
    assert report["recovered"] == 1
