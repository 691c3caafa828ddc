"""A request server on another host than the publisher, over both families."""

from __future__ import annotations

import signal

import pytest
from badwire import BadWireFactory

from netns.actors import Actor, all_settled, onehop, result_of, url


@pytest.mark.parametrize("group", ["239.77.1.9:7409", "[ff15::7709]:7409"])
def test_a_late_joiner_gets_everything_of_a_dead_publisher(
    bad_wire: BadWireFactory, group: str
) -> None:
    wire = bad_wire(hosts=3, seed=7)
    there, between, here = (wire.host(number) for number in range(3))
    server = onehop(between, "request-server", url(between, group))
    assert server.stderr is not None
    assert "answering requests on" in server.stderr.readline()
    speaker = Actor.speaker(there, url(there, group))
    witness = Actor.listener(between, url(between, group))  # beside the server, on the same wire
    speaker.ask("say", count=500)
    witness.until(all_settled(500))
    speaker.process.kill()
    late = Actor.listener(here, url(here, group), start="first")
    report = late.until(all_settled(500))
    assert (report["delivered"], report["lost"]) == (500, {})
    server.send_signal(signal.SIGTERM)
    stats = result_of(server)
    assert (stats["kept"], stats["lost"]) == (500, 0)
    assert stats["retransmitted"] >= 500
