"""A publisher that dies: its next life is a new epoch, and both are accounted for apart."""

from __future__ import annotations

import signal

from badwire import BadWireFactory

from netns.actors import Actor, Report, all_settled, url


def stream_of(report: Report, epoch: int) -> Report:
    (stream,) = [stream for stream in report["streams"] if stream["epoch"] == epoch]
    return dict(stream)


def test_a_killed_publisher_comes_back_as_a_new_epoch_and_both_are_whole(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(hosts=3, seed=7)
    wire.faults(loss=0.05)
    listeners = Actor.listeners([(wire.host(n), url(wire.host(n))) for n in (1, 2)])
    first = Actor.speaker(wire.host(0), url(wire.host(0)), source="prices")
    before = first.ask("say", count=500, rate_per_s=2000)
    for listener in listeners:
        listener.until(all_settled(500, before["epoch"]))
    first.process.send_signal(signal.SIGKILL)
    assert first.process.wait() == -signal.SIGKILL
    second = Actor.speaker(wire.host(0), url(wire.host(0)), source="prices")
    after = second.ask("say", count=300, rate_per_s=2000)
    assert after["epoch"] != before["epoch"]
    for listener in listeners:
        listener.until(all_settled(300, after["epoch"]))
    second.close()
    for listener in listeners:
        report = listener.until(lambda report: bool(report["ended"]))
        for epoch, sent in ((before["epoch"], 500), (after["epoch"], 300)):
            stream = stream_of(report, epoch)
            assert stream["source"] == "prices"
            assert stream["expected"] == stream["delivered"] == sent
            assert stream["lost"] == {}
        assert report["ended"] == [after["epoch"]]  # the dead one never said that it ended
        assert (report["is_balanced"], report["faults"]) == (True, [])


def test_what_a_dying_publisher_took_along_is_lost_and_the_sum_is_exact(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    listener = Actor.listener(wire.host(1), url(wire.host(1)))
    first = Actor.speaker(wire.host(0), url(wire.host(0)), source="prices")
    first.ask("say", count=100)
    listener.until(all_settled(100))
    wire.partition()
    first.ask("say", count=10)
    wire.partition(kind="unicast")  # what shows the gap comes through, no request does
    wire.heal(kind="multicast")
    epoch = first.ask("say", count=1)["epoch"]
    listener.until(lambda report: report["expected"] == 111)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    wire.heal()
    second = Actor.speaker(wire.host(0), url(wire.host(0)), source="prices")
    after = second.ask("say", count=50)["epoch"]
    report = listener.until(all_settled(161))
    assert stream_of(report, epoch) == {
        "source": "prices", "epoch": epoch, "stream": "", "first": 1,
        "expected": 111, "delivered": 101, "lost": {"deadline": 10},
    }  # fmt: skip
    assert stream_of(report, after)["delivered"] == 50
    assert report["losses"] == [[epoch, 101, 10, "deadline"]]
    assert (report["is_balanced"], report["faults"]) == (True, [])
