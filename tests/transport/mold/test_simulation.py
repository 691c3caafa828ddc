"""Whole stories on a virtual network, millions of steps: whatever happens, the sum is exact.

The seed is in the name of each test; running it again tells the same story.
"""

from random import Random

import pytest
from mold_audience import RequestServer, Subscriber, connect
from mold_network import Faults, Network, Publisher

from onehop.transport.mold import (
    FeedOptions,
    ReceiverOptions,
    RequestOptions,
    RingOptions,
    SenderOptions,
)

STEPS = 140_000
"""For each seed; a step is a datagram that arrives, a timer, or a message sent."""
ACT_S = 0.2
QUIET_S = 30.0
HOLD_BYTES = 64 * 1024
MAX_GAPS = 256
MAX_GAPS_UNORDERED = 8192
PACKET_BYTES = 1400
CALM = ("calm", "calm", "cut")
STORMY = (*CALM, "restart publisher", "restart server", "restart subscriber")


class Story:
    """A cast drawn from a seed, and what happens to it."""

    def __init__(self, seed: int, *, deadlines: tuple[float, ...], rings: tuple[int, ...]) -> None:
        self.plot = Random(seed)
        self.network = Network(seed)
        self.faults: list[Faults] = []
        self._deadlines = deadlines
        self._ring = RingOptions(max_messages=self.plot.choice(rings))
        self.publishers = [self._add_publisher(at) for at in range(self.plot.choice([1, 1, 2]))]
        self.servers = [
            RequestServer(self.network, f"server{at}") for at in range(self.plot.randrange(3))
        ]
        for server in self.servers:
            for publisher in self.publishers:
                connect(self.network, publisher, server, self._add_faults())
        self.subscribers = [self._add_subscriber(at) for at in range(self.plot.randint(1, 3))]

    def _add_publisher(self, number: int) -> Publisher:
        plot = self.plot
        rate = plot.choice([8_000_000, 400_000])
        requests = RequestOptions(requester_bytes_per_s=rate, burst_bytes=16 * 1024)
        return Publisher(
            self.network,
            f"pub{number}-",
            tick_s=plot.choice([0.0001, 0.0003]),
            per_tick=plot.choice([1, 1, 5]),
            options=SenderOptions(ring=self._ring, requests=requests),
        )

    def _add_faults(self) -> Faults:
        plot = self.plot
        faults = Faults(
            loss=plot.choice([0.0, 0.01, 0.05, 0.2]),
            burst_enter=plot.choice([0.0, 0.0, 0.005]),
            duplicate=plot.choice([0.0, 0.02]),
            reorder=plot.choice([0.0, 0.0, 0.05]),
            delay_s=plot.choice([0.00005, 0.0005, 0.01]),
        )
        self.faults.append(faults)
        return faults

    def _add_subscriber(self, number: int) -> Subscriber:
        plot = self.plot
        deadline_s = plot.choice(self._deadlines)
        ordered = plot.random() < 0.7
        receiver = ReceiverOptions(
            ordered=ordered,
            deadline_s=deadline_s,
            replay_deadline_s=max(1.0, deadline_s),
            attempts=plot.choice([None, None, 3]) if deadline_s <= 1.0 else None,
            hold_bytes=HOLD_BYTES,
            max_gaps=MAX_GAPS if ordered else MAX_GAPS_UNORDERED,
        )
        options = FeedOptions(
            start=plot.choice(["live", "first"]),
            servers=tuple(server.name for server in self.servers),
            receiver=receiver,
        )
        subscriber = Subscriber(self.network, f"sub{number}", options=options)
        has_second_path = plot.random() < 0.2
        for publisher in self.publishers:
            second = self._add_faults() if has_second_path else None
            first = self._add_faults()
            connect(self.network, publisher, subscriber, first, self.servers, second)
        return subscriber

    def play(self, events: tuple[str, ...]) -> None:
        """Sends until enough has happened, then stops every fault and lets repairs end."""
        for publisher in self.publishers:
            publisher.start()
        while self.network.steps < STEPS:
            self.network.run_until(self.network.now + ACT_S)
            self._happen(self.plot.choice(events))
        for faults in self.faults:
            faults.loss = faults.burst_enter = faults.reorder = faults.duplicate = 0.0
            faults.is_cut = False
        for publisher in self.publishers:
            publisher.end()
        self.network.run_until(self.network.now + QUIET_S)

    def _happen(self, event: str) -> None:
        plot = self.plot
        if event == "cut":
            faults = plot.choice(self.faults)
            faults.is_cut = True
            mend_at = self.network.now + plot.random() * 0.3
            self.network.at(mend_at, lambda _: setattr(faults, "is_cut", False))
        elif event == "restart publisher":
            plot.choice(self.publishers).restart()
        elif event == "restart server" and self.servers:
            plot.choice(self.servers).restart()
        elif event == "restart subscriber":
            subscriber = plot.choice(self.subscribers)
            if all(account.ordered for account in subscriber.accounts.values()):
                subscriber.restart()

    def check(self) -> None:
        """What must hold of any story, whatever happened in it."""
        for subscriber in self.subscribers:
            assert subscriber.missing == 0
            subscriber.check_complete()
            for publisher in self.publishers:
                session = publisher.session
                receiver = subscriber.feed.sessions[session.session].receiver
                assert receiver.next_number == session.next_number
                assert receiver.is_ended
            assert subscriber.max_held_bytes <= HOLD_BYTES + PACKET_BYTES
            assert subscriber.max_gaps <= subscriber.options.receiver.max_gaps


@pytest.mark.parametrize("seed", range(12))
def test_every_number_is_delivered_or_lost_exactly_once_whatever_happens(seed: int) -> None:
    story = Story(seed, deadlines=(0.05, 1.0), rings=(2_000, 100_000))
    story.play(STORMY)
    story.check()


@pytest.mark.parametrize("seed", range(100, 104))
def test_nothing_is_lost_while_somebody_has_it_and_no_deadline_passes(seed: int) -> None:
    story = Story(seed, deadlines=(600.0,), rings=(1_000_000,))
    story.play(CALM)
    story.check()
    for subscriber in story.subscribers:
        assert [account.lost for account in subscriber.accounts.values() if account.lost] == []


def test_twenty_receivers_that_lose_the_same_packet_ask_once_and_are_answered_once() -> None:
    network = Network(seed=1)
    publisher = Publisher(network, "pub")
    links = [Faults() for _ in range(20)]
    subscribers = [Subscriber(network, f"sub{number}") for number in range(20)]
    for subscriber, faults in zip(subscribers, links, strict=True):
        connect(network, publisher, subscriber, faults)
    for is_cut in (False, True, False):
        for faults in links:
            faults.is_cut = is_cut
        publisher.send(b"message")
        publisher.flush()
    network.run_until(1.0)
    assert [subscriber.requests for subscriber in subscribers] == [1] * 20
    assert publisher.session.desk.counts["retransmitted"] == 20
    for subscriber in subscribers:
        subscriber.check_complete()
        (account,) = subscriber.accounts.values()
        assert (account.delivered, account.lost) == (3, [])
