"""Groups of both families, a join of one source only, and the same feed on two groups."""

from __future__ import annotations

import shutil

import pytest
from badwire import BadWireFactory, ip

from netns.actors import GROUP, Actor, all_settled, onehop, result_of, subscribe, url

DARK = (
    "add table ip dark; add chain ip dark come { type filter hook prerouting priority 0; };"
    f"add rule ip dark come ip daddr {GROUP} drop"
)
LIGHT = "delete table ip dark"


@pytest.mark.parametrize("group", ["ff02::7701", "ff05::7701"])
def test_ipv6_groups_are_heard_and_repaired(bad_wire: BadWireFactory, group: str) -> None:
    wire = bad_wire(seed=7)
    wire.faults(loss=0.05)
    there, here = (url(wire.host(number), f"[{group}]:7401") for number in (0, 1))
    command = subscribe(
        wire.host(1), here, "--from", "first", "--count", "1000", "--timeout", "3", group=group
    )
    publisher = onehop(
        wire.host(0), "publish", there, "--topic", "t", "--count", "1000", "--rate", "3000"
    )
    sent, summary = result_of(publisher), result_of(command)
    assert summary["expected"] == summary["delivered"] == sent["sent"] == 1000
    assert (summary["lost"], summary["ignored"]) == ({}, {})
    assert summary["recovered"] > 20
    assert wire.report()["relay_overflow"] == 0


@pytest.mark.parametrize(
    ("group", "attribute", "by_name"),
    [
        ("232.77.1.1:7402", "address", False),
        ("232.77.1.1:7402", "address", True),
        ("[ff35::7701]:7402", "address6", True),
    ],
)
def test_a_join_of_one_source_hears_no_other(
    bad_wire: BadWireFactory, group: str, attribute: str, by_name: bool
) -> None:
    wire = bad_wire(hosts=4, seed=7)
    wanted, other, choosy, open_eared = (wire.host(number) for number in range(4))
    named = {"interface": choosy.interface} if by_name else {}
    here = url(choosy, group, source=getattr(wanted, attribute), **named)
    listener = Actor.listener(choosy, here)
    hears_all = Actor.listener(open_eared, url(open_eared, group))
    speakers = [Actor.speaker(host, url(host, group)) for host in (wanted, other)]
    epochs = [speaker.ask("say", count=100)["epoch"] for speaker in speakers]
    both = hears_all.until(all_settled(200))
    assert {stream["epoch"] for stream in both["streams"]} == set(epochs)
    # Those of the other came first, if they came at all: a last word of the wanted one is behind.
    speakers[0].ask("say", count=1)
    report = listener.until(lambda report: report["delivered"] >= 101)
    assert [stream["epoch"] for stream in report["streams"]] == epochs[:1]
    assert (report["delivered"], report["ignored"]) == (101, {})


def test_two_paths_that_lose_a_tenth_each_need_few_requests_and_their_counts_add_up(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    wire.faults(loss=0.1, kind="multicast")
    here, there = (url(wire.host(number), b="239.77.1.2:7403") for number in (1, 0))
    listener = Actor.listener(wire.host(1), here)
    speaker = Actor.speaker(wire.host(0), there)
    speaker.ask("say", count=3000, rate_per_s=3000)
    listener.until(all_settled(3000))
    speaker.close()
    report = listener.close()
    assert (report["delivered"], report["lost"], report["faults"]) == (3000, {}, [])
    print(f"{report['recovered']} recovered by {report['requests']} requests", report["paths"])
    assert report["requests"] < 3000 * 0.1 * 0.1 * 3  # a hundredth is lost on both
    assert report["recovered"] > 3
    for path in report["paths"]:
        assert path["received"] + path["missing"] == 3000
        assert 200 < path["missing"] < 400
    carried = sum(path["first_arrivals"] for path in report["paths"])
    assert carried + report["recovered"] == 3000


def test_a_path_that_goes_dark_costs_no_request_and_counts_when_it_is_back(
    bad_wire: BadWireFactory,
) -> None:
    if shutil.which("nft") is None:
        pytest.skip("needs nft (package nftables), which is not on PATH")
    wire = bad_wire(seed=7)
    here, there = (url(wire.host(number), b="239.77.1.2:7403") for number in (1, 0))
    listener = Actor.listener(wire.host(1), here)
    speaker = Actor.speaker(wire.host(0), there)
    for count, rules in enumerate((DARK, LIGHT, ""), start=1):
        speaker.ask("say", count=500, rate_per_s=4000)
        listener.until(all_settled(500 * count))
        ip("netns", "exec", wire.host(1).namespace, "nft", rules)
    report = listener.close()
    assert (report["delivered"], report["lost"], report["faults"]) == (1500, {}, [])
    assert (report["requests"], report["recovered"]) == (0, 0)
    first, second = report["paths"]
    assert (first["received"], first["missing"]) == (1000, 500)
    assert (second["received"], second["missing"]) == (1500, 0)
    assert first["first_arrivals"] + second["first_arrivals"] == 1500
