"""What goes over the wire is MoldUDP64 to an independent decoder, and is what we say we sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from badwire import BadWire, BadWireFactory

from netns.actors import PORT, Actor, Report, all_settled, url
from netns.capture import Capture, Packet

HEARTBEAT, END_OF_SESSION = 0, 0xFFFF


def converse(wire: BadWire, path: Path, payload: str) -> tuple[list[Packet], Report, Report]:
    """Publishes under loss; returns the publisher's traffic and what both sides say."""
    capture = Capture(wire.host(0), path)
    listener = Actor.listener(wire.host(1), url(wire.host(1), payload=payload))
    speaker = Actor.speaker(wire.host(0), url(wire.host(0), payload=payload))
    wire.faults(loss=0.1, kind="multicast")
    speaker.ask("say", count=300, rate_per_s=2000, pack=3, size=24)
    speaker.ask("say", count=5, size=0)
    speaker.ask("say", count=200, rate_per_s=2000, size=900)
    listener.until(all_settled(505))
    counts = speaker.ask("close")
    report = listener.close()
    return capture.stop(PORT, counts["port"]), counts, report


@pytest.mark.parametrize("payload", ["raw", "event"])
def test_captured_traffic_is_decoded_without_an_error_and_says_what_the_publisher_says(
    bad_wire: BadWireFactory, tmp_path: Path, payload: str
) -> None:
    packets, counts, report = converse(bad_wire(seed=7), tmp_path / "traffic.pcapng", payload)
    assert [packet for packet in packets if packet.complaints] == []
    assert {packet.session for packet in packets} == {counts["session"]}
    # The decoder overlooks a single byte behind the last block.
    assert [p for p in packets if p.size_bytes != 20 + sum(2 + n for n in p.block_lengths)] == []

    to_group = [packet for packet in packets if packet.destination_port == PORT]
    requests = [packet for packet in packets if packet.destination_port == counts["port"]]
    replies = [p for p in packets if p.source_port == counts["port"] and p not in to_group]
    assert len(to_group) + len(requests) + len(replies) == len(packets)
    assert_group(to_group, counts["sent"])
    assert len(requests) == counts["requests"] == report["requests"]
    assert all(1 <= packet.count <= packet.count + packet.sequence <= 506 for packet in requests)
    assert len(replies) == counts["requests_served"]
    assert sum(packet.count for packet in replies) == counts["retransmitted"]
    assert counts["retransmitted"] >= report["recovered"] > 20
    assert_blocks([p for p in to_group if 0 < p.count < END_OF_SESSION] + replies, payload)


def assert_group(packets: list[Packet], sent: int) -> None:
    """Every number once and in order; what has no messages carries the number to come."""
    number, has_ended, heartbeats = 1, False, 0
    for packet in packets:
        assert packet.sequence == number
        if packet.count == END_OF_SESSION:
            has_ended = True
            continue
        assert not has_ended
        heartbeats += packet.count == HEARTBEAT
        number += packet.count
    assert number == sent + 1
    assert has_ended
    assert heartbeats >= 3


def assert_blocks(packets: list[Packet], payload: str) -> None:
    assert {len(packet.block_sequences) for packet in packets} >= {1, 3}
    for packet in packets:
        numbers = list(range(packet.sequence, packet.sequence + packet.count))
        assert packet.block_sequences == numbers
        assert len(packet.block_lengths) == packet.count
        if payload == "raw":
            expected = [message(number) for number in numbers]
            assert packet.block_lengths == [len(data) for data in expected]
            assert packet.block_data == expected


def message(number: int) -> bytes:
    size = 24 if number <= 300 else 0 if number <= 305 else 900
    return number.to_bytes(8, "big")[:size].ljust(size)
