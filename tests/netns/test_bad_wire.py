"""Every message is delivered or reported as lost, whatever the wire does, to the last one."""

from __future__ import annotations

import pytest
from badwire import BadWireFactory

from netns.actors import Actor, all_settled, onehop, result_of, subscribe, url

COUNT = 4000
BAD = {
    "loss": 0.03,
    "duplicate": 0.02,
    "reorder": 0.03,
    "delay_s": (0.0002, 0.003),
    "burst": (0.003, 0.2),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_that_was_sent_is_delivered_or_lost_on_a_bad_wire(
    bad_wire: BadWireFactory, seed: int
) -> None:
    wire = bad_wire(hosts=5, seed=seed)
    wire.faults(**BAD)
    hosts = [wire.host(number) for number in range(5)]
    ways: list[dict[str, object]] = [{}, {"is_async": True}, {"ordered": False}]
    listeners = [
        Actor.listener(host, url(host), **way) for host, way in zip(hosts[1:4], ways, strict=True)
    ]
    command = subscribe(
        hosts[4], url(hosts[4]), "--from", "first", "--count", str(COUNT), "--timeout", "3"
    )
    publisher = onehop(
        hosts[0], "publish", url(hosts[0]),
        "--topic", "t", "--count", str(COUNT), "--rate", "4000", "--json",
    )  # fmt: skip
    sent = result_of(publisher)["sent"]
    assert sent == COUNT
    for listener in listeners:
        listener.until(all_settled(sent))
    reports = [listener.close() for listener in listeners]
    for report in (*reports, result_of(command)):
        assert report["expected"] == report["delivered"] + sum(report["lost"].values()) == sent
        assert (report["lost"], report["pending"], report["filtered"]) == ({}, 0, 0)
        assert report["recovered"] > COUNT * 0.02
        assert report["duplicates"] > 0
        assert report["reordered"] > 0
    assert all(report["is_balanced"] for report in reports)
    assert all(report["ended"] == [report["streams"][0]["epoch"]] for report in reports)
    assert [report["faults"] for report in reports[:2]] == [[], []]
    assert wire.report()["relay_overflow"] == 0


def test_events_of_a_megabyte_are_put_together_from_their_pieces(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(seed=7)
    wire.faults(loss=0.02, duplicate=0.01, reorder=0.02, delay_s=(0.0002, 0.003))
    command = subscribe(
        wire.host(1), url(wire.host(1)), "--from", "first", "--count", "4", "--timeout", "3"
    )
    publisher = onehop(
        wire.host(0), "publish", url(wire.host(0)),
        "--topic", "t", "--count", "4", "--rate", "8", "--size", "1000000", "--json",
    )  # fmt: skip
    sent, summary = result_of(publisher), result_of(command)
    assert (sent["events"], sent["sent"] > 4 * 700) == (4, True)
    assert summary["expected"] == summary["delivered"] == sent["sent"]
    assert (summary["lost"], summary["pending"]) == ({}, 0)
    assert summary["recovered"] > 20
    assert wire.report()["relay_overflow"] == 0
