"""ZeroMQ between machines: cuts, deaths and stops, and what each subscriber's ledger says."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest
from badwire import BadWire, BadWireFactory, Host

from netns.actors import Actor, Report, all_settled

PORT = 7401
CUT_S = 3.0


def url_of(wire: BadWire, options: str = "") -> str:
    return f"zmq+tcp://{wire.host(0).address}:{PORT}{options}"


def nft(host: Host, rules: str) -> None:
    command = ("ip", "netns", "exec", host.namespace, "nft", "-f", "-")
    subprocess.run(command, input=rules, text=True, check=True)


def cut_off(host: Host) -> None:
    """Drops every packet to and from a host, without a word to anyone."""
    nft(host, """
        add table inet cut
        add chain inet cut in { type filter hook input priority 0; policy drop; }
        add chain inet cut out { type filter hook output priority 0; policy drop; }
        add rule inet cut in iif lo accept
        add rule inet cut out oif lo accept
    """)  # fmt: skip


def assert_whole(report: Report, sent: int) -> None:
    assert report["expected"] == report["delivered"] == sent
    assert (report["lost"], report["pending"], report["losses"]) == ({}, 0, [])
    assert (report["is_balanced"], report["faults"]) == (True, [])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_network_cut_for_three_seconds_loses_nothing(
    bad_wire: BadWireFactory, is_async: bool
) -> None:
    wire = bad_wire(hosts=3, seed=7)
    speaker = Actor.speaker(wire.host(0), url_of(wire), source="prices")
    cut, spared = Actor.listeners([(wire.host(n), url_of(wire)) for n in (1, 2)], is_async=is_async)
    speaker.tell("say", count=10_000, rate_per_s=2000)
    cut.until(lambda report: report["delivered"] >= 500)
    cut_off(wire.host(1))
    time.sleep(CUT_S)  # the length of the cut is the point
    before = cut.ask("report")
    nft(wire.host(1), "delete table inet cut")
    assert speaker.answer()["sent"] == 10_000
    for listener in (cut, spared):
        assert_whole(listener.until(all_settled(10_000)), 10_000)
    assert before["expected"] < 6000  # it really was cut off


def test_a_killed_publisher_comes_back_as_a_new_epoch_and_both_are_whole(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(hosts=2, seed=7)
    first = Actor.speaker(wire.host(0), url_of(wire), source="prices")
    listener = Actor.listener(wire.host(1), url_of(wire), start="live")
    listener.until(lambda report: first.ask("report")["subscribers"] == 1)
    before = first.ask("say", count=500, rate_per_s=5000)
    listener.until(all_settled(500, before["epoch"]))
    first.process.send_signal(signal.SIGKILL)
    assert first.process.wait() == -signal.SIGKILL
    second = Actor.speaker(wire.host(0), url_of(wire), source="prices")
    after = second.ask("say", count=300, rate_per_s=5000)
    report = listener.until(all_settled(300, after["epoch"]))
    assert after["epoch"] != before["epoch"]
    assert_whole(report, 800)
    assert {stream["source"] for stream in report["streams"]} == {"prices"}


def test_a_killed_subscriber_harms_nobody_and_can_begin_again_where_it_was(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(hosts=3, seed=7)
    speaker = Actor.speaker(wire.host(0), url_of(wire), source="prices")
    doomed, other = Actor.listeners([(wire.host(n), url_of(wire)) for n in (1, 2)])
    speaker.tell("say", count=4000, rate_per_s=4000)
    reached = doomed.until(lambda report: report["delivered"] >= 500)["delivered"]
    doomed.process.send_signal(signal.SIGKILL)
    doomed.process.wait()
    again = Actor.listener(wire.host(1), url_of(wire), start=reached + 1)
    assert speaker.answer()["sent"] == 4000
    assert_whole(other.until(all_settled(4000)), 4000)
    assert_whole(again.until(all_settled(4000 - reached)), 4000 - reached)


def test_the_others_do_not_notice_that_one_is_stopped(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(hosts=4, seed=7)
    hwm = url_of(wire, "?hwm=100")
    speaker = Actor.speaker(wire.host(0), hwm, source="prices")
    stopped, *others = Actor.listeners([(wire.host(n), hwm) for n in (1, 2, 3)])
    stopped.until(lambda report: speaker.ask("report")["subscribers"] == 3)
    stopped.process.send_signal(signal.SIGSTOP)
    speaker.ask("say", count=8000, rate_per_s=2000, size=1000)
    for other in others:
        report = other.until(all_settled(8000))
        assert_whole(report, 8000)
        assert report["recovered"] == 0
    stopped.process.send_signal(signal.SIGCONT)
    assert_whole(stopped.until(all_settled(8000)), 8000)
