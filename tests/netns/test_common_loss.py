"""Receivers that lose the same packet ask about once each, and all of them get it."""

from __future__ import annotations

from badwire import BadWire, BadWireFactory

from netns.actors import Actor, Report, all_settled, url

ROUNDS = 40
MOST_REQUESTS = 1.2
"""Requests for one lost message by one receiver. The first is asked for several times: nobody knows
yet how long a reply takes, and addresses have to be resolved. After it one request is enough."""
MOST_REPEATS = 1.6
"""Messages retransmitted for one lost in a long gap: replies queue, and some are taken for lost."""


def open_all(wire: BadWire, receivers: int) -> tuple[Actor, list[Actor]]:
    hosts = [wire.host(number) for number in range(1, receivers + 1)]
    listeners = Actor.listeners([(host, url(host)) for host in hosts])
    return Actor.speaker(wire.host(0), url(wire.host(0))), listeners


def lose(wire: BadWire, speaker: Actor, count: int) -> None:
    """Lets nobody hear the next messages; the one after them shows that they are missing."""
    wire.partition(source=0, kind="multicast")
    speaker.ask("say", count=count)
    wire.heal(source=0, kind="multicast")
    speaker.ask("say", count=1)


def everything_delivered(listeners: list[Actor], sent: int) -> list[Report]:
    reports = [listener.until(all_settled(sent)) for listener in listeners]
    for report in reports:
        assert (report["delivered"], report["lost"], report["faults"]) == (sent, {}, [])
    return reports


def test_one_packet_lost_by_twenty_receivers_is_asked_for_about_once_by_each(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(hosts=21, seed=7)
    speaker, listeners = open_all(wire, receivers=20)
    speaker.ask("say", count=1)
    for number in range(ROUNDS):
        lose(wire, speaker, 1)
        reports = everything_delivered(listeners, 1 + 2 * (number + 1))
    counts, lost = speaker.close(), ROUNDS * 20
    assert [report["recovered"] for report in reports] == [ROUNDS] * 20
    print(f"{counts['requests'] / lost:.3f} requests per lost message and receiver")
    assert lost <= counts["requests"] <= MOST_REQUESTS * lost
    assert counts["retransmitted"] == counts["requests_served"] <= MOST_REQUESTS * lost
    assert wire.report()["relay_overflow"] == 0


def test_a_long_gap_common_to_many_is_repaired_by_the_packet_not_by_the_message(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(hosts=7, seed=8)
    speaker, listeners = open_all(wire, receivers=6)
    speaker.ask("say", count=1)
    lose(wire, speaker, 1000)
    reports = everything_delivered(listeners, 1002)
    counts, lost = speaker.close(), 6 * 1000
    assert [report["recovered"] for report in reports] == [1000] * 6
    print(f"{counts['requests'] / lost:.3f} requests per lost message and receiver")
    assert counts["requests"] <= 0.2 * lost
    assert lost <= counts["retransmitted"] <= MOST_REPEATS * lost
    assert wire.report()["relay_overflow"] == 0
