"""A cut wire: repaired when it heals in time, an explicit loss when it does not."""

from __future__ import annotations

from badwire import BadWireFactory

from netns.actors import Actor, Report, all_settled, dropped_to, until, url


def assert_sum(report: Report, sent: int) -> None:
    lost = sum(report["lost"].values())
    assert report["expected"] == report["delivered"] + lost == sent
    assert sum(count for _, _, count, _ in report["losses"]) == lost
    assert report["is_balanced"]
    assert report["faults"] == []


def test_what_was_sent_into_a_partition_is_repaired_after_it(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(hosts=3, seed=7)
    cut_off, spared = Actor.listeners([(wire.host(n), url(wire.host(n))) for n in (1, 2)])
    speaker = Actor.speaker(wire.host(0), url(wire.host(0)))
    speaker.tell("say", count=2000, rate_per_s=2000)
    cut_off.until(lambda report: report["delivered"] >= 200)
    wire.partition(destination=1)
    wire.partition(source=1)
    until(lambda: dropped_to(wire, 1), lambda dropped: dropped >= 600)
    wire.heal()
    assert speaker.answer()["sent"] == 2000
    reports = [listener.until(all_settled(2000)) for listener in (cut_off, spared)]
    for report in reports:
        assert_sum(report, 2000)
        assert report["lost"] == {}
    assert reports[0]["recovered"] >= 500
    assert reports[1]["recovered"] == 0
    assert wire.report()["relay_overflow"] == 0


def test_repairs_cut_off_for_less_than_the_deadline_lose_nothing(bad_wire: BadWireFactory) -> None:
    wire = bad_wire(seed=7)
    listener = Actor.listener(wire.host(1), url(wire.host(1)), deadline_s=5.0)
    speaker = Actor.speaker(wire.host(0), url(wire.host(0)))
    wire.faults(loss=0.2, kind="multicast")
    wire.partition(kind="unicast")
    sent = speaker.ask("say", count=500, rate_per_s=2000)["sent"]
    listener.until(lambda report: report["requests"] >= 100)
    wire.heal()
    report = listener.until(all_settled(sent))
    assert_sum(report, sent)
    assert report["lost"] == {}
    assert report["recovered"] >= 70


def test_repairs_cut_off_for_longer_than_the_deadline_are_a_loss_each(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    listener = Actor.listener(wire.host(1), url(wire.host(1)), deadline_s=0.3)
    speaker = Actor.speaker(wire.host(0), url(wire.host(0)))
    speaker.ask("say", count=1)
    listener.until(all_settled(1))
    wire.faults(loss=0.2, kind="multicast")
    wire.partition(kind="unicast")
    sent = speaker.ask("say", count=500, rate_per_s=2000)["sent"]
    report = listener.until(all_settled(sent))
    wire.heal()
    wire.faults()
    sent = speaker.ask("say", count=100)["sent"]
    after = listener.until(all_settled(sent))
    assert_sum(after, sent)
    assert after["lost"] == report["lost"] == {"deadline": sum(report["lost"].values())}
    assert 70 <= report["lost"]["deadline"] <= dropped_to(wire, 1)


def test_what_left_the_ring_during_a_partition_is_lost_as_evicted_to_the_message(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    listener = Actor.listener(wire.host(1), url(wire.host(1)))
    speaker = Actor.speaker(wire.host(0), url(wire.host(0)), ring_messages=300)
    speaker.ask("say", count=100)
    listener.until(all_settled(100))
    wire.partition()
    speaker.ask("say", count=1000)
    wire.heal()
    counts = speaker.ask("say", count=1)
    report = listener.until(all_settled(1101))
    assert_sum(report, 1101)
    # The ring holds 802..1101: of 101..1100 the first 701 are gone, the rest is repaired.
    assert counts["ring_first"] == 802
    assert report["losses"] == [[counts["epoch"], 101, 701, "evicted"]]
    assert report["recovered"] == 299
