import time
from collections.abc import Callable
from itertools import groupby
from math import sqrt

import pytest

from onehop.transport.datagrams import Address
from onehop.transport.errors import ConfigurationError
from onehop.transport.memory import (
    Faults,
    MemoryNetwork,
    MemoryPort,
)

GROUP: Address = ("group", 1)
COUNT = 20_000
DEADLINE_S = 10.0
NetworkMaker = Callable[..., MemoryNetwork]


def tolerance(chance: float, trials: float) -> float:
    """Five standard deviations of a binomial share."""
    return 5 * sqrt(chance * (1 - chance) / trials)


def send(sender: MemoryPort, numbers: range, to: MemoryPort) -> None:
    sender.send([(b"%d" % number, to.address) for number in numbers])


def received(port: MemoryPort) -> list[int]:
    """Everything that waits at a port."""
    numbers: list[int] = []
    while batch := port.receive():
        numbers += [int(data) for data, _, _ in batch]
    return numbers


def carried(network: MemoryNetwork, count: int = COUNT) -> list[int]:
    """What arrives of this many datagrams, sent a batch at a time."""
    sender, receiver = network.open_port(), network.open_port()
    numbers: list[int] = []
    for first in range(0, count, 1000):
        send(sender, range(first, min(first + 1000, count)), receiver)
        numbers += received(receiver)
    return numbers


def awaited(port: MemoryPort, count: int) -> list[int]:
    """This many datagrams, waited for."""
    numbers: list[int] = []
    while len(numbers) < count:
        batch = port.receive_wait(DEADLINE_S)
        assert batch, f"{len(numbers)} of {count} came within {DEADLINE_S} s"
        numbers += [int(data) for data, _, _ in batch]
    return numbers


# -- faults, each against its figure ---------------------------------------------------------------


def test_without_faults_everything_arrives_in_order(memory_network: NetworkMaker) -> None:
    assert carried(memory_network()) == list(range(COUNT))


@pytest.mark.parametrize("loss", [0.001, 0.02, 0.5, 1.0])
def test_loss_is_the_share_asked_for(memory_network: NetworkMaker, loss: float) -> None:
    lossy = memory_network(loss=loss)

    lost = COUNT - len(carried(lossy))

    assert lost / COUNT == pytest.approx(loss, abs=tolerance(loss, COUNT))
    assert lossy.counts["lost"] == lost


@pytest.mark.parametrize(("enter", "leave"), [(0.01, 0.1), (0.005, 0.5), (0.02, 1.0)])
def test_bursts_are_as_frequent_and_as_long_as_asked_for(
    memory_network: NetworkMaker, enter: float, leave: float
) -> None:
    arrived = set(carried(memory_network(burst_enter=enter, burst_leave=leave)))
    runs = [
        (is_good, len(list(run)))
        for is_good, run in groupby(map(arrived.__contains__, range(COUNT)))
    ]
    bad = [length for is_good, length in runs if not is_good]
    good = [length for is_good, length in runs if is_good]

    # Both kinds of run have geometric lengths: mean 1 / p, deviation sqrt(1 - p) / p.
    for lengths, chance in ((bad, leave), (good, enter)):
        deviation = sqrt(1 - chance) / chance / sqrt(len(lengths))
        assert sum(lengths) / len(lengths) == pytest.approx(1 / chance, abs=5 * deviation + 1e-9)


@pytest.mark.parametrize("duplicate", [0.01, 0.5, 1.0])
def test_duplicates_are_the_share_asked_for(memory_network: NetworkMaker, duplicate: float) -> None:
    doubling = memory_network(duplicate=duplicate)

    arrived = carried(doubling)

    extra = len(arrived) - COUNT
    assert extra / COUNT == pytest.approx(duplicate, abs=tolerance(duplicate, COUNT))
    assert doubling.counts["duplicated"] == extra
    assert set(arrived) == set(range(COUNT))


@pytest.mark.parametrize("reorder", [0.01, 0.3])
def test_held_up_are_the_share_asked_for(memory_network: NetworkMaker, reorder: float) -> None:
    holding = memory_network(
        reorder=reorder, reorder_s=0.0
    )  # held up for no time: nothing to wait for

    assert carried(holding) == list(range(COUNT))
    share = holding.counts["held_up"] / COUNT
    assert share == pytest.approx(reorder, abs=tolerance(reorder, COUNT))


def test_what_is_held_up_is_overtaken_and_arrives(memory_network: NetworkMaker) -> None:
    holding = memory_network(reorder=0.5, reorder_s=0.05)
    sender, receiver = holding.open_port(), holding.open_port()

    send(sender, range(200), receiver)
    arrived = awaited(receiver, 200)

    assert sorted(arrived) == list(range(200))
    assert arrived != sorted(arrived)


def test_a_delay_holds_everything_up_alike(memory_network: NetworkMaker) -> None:
    slow = memory_network(delay_s=0.03)
    sender, receiver = slow.open_port(), slow.open_port()
    started = time.monotonic()

    send(sender, range(50), receiver)
    first = receiver.receive_wait(DEADLINE_S)

    assert time.monotonic() - started >= 0.03
    assert [int(data) for data, _, _ in first] + awaited(receiver, 50 - len(first)) == list(
        range(50)
    )


def test_every_datagram_is_in_exactly_one_count(memory_network: NetworkMaker) -> None:
    rough = memory_network(loss=0.1, burst_enter=0.01, duplicate=0.2, reorder=0.1, reorder_s=0.0)

    arrived = carried(rough)

    counts = rough.counts
    assert counts["sent"] == COUNT
    assert counts["delivered"] == len(arrived)
    assert counts["sent"] == counts["delivered"] - counts["duplicated"] + counts["lost"]


@pytest.mark.parametrize(
    "wrong", [{"loss": 1.1}, {"burst_enter": -0.1}, {"burst_leave": 2}, {"duplicate": float("nan")},
              {"reorder": -1}, {"delay_s": -1}, {"reorder_s": -1}],
)  # fmt: skip
def test_a_fault_out_of_bounds_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Faults(**wrong)


# -- seeds -----------------------------------------------------------------------------------------

ROUGH = {"loss": 0.1, "burst_enter": 0.01, "duplicate": 0.1}


def test_the_same_seed_gives_the_same_fate(memory_network: NetworkMaker) -> None:
    assert carried(memory_network(seed=3, **ROUGH), 2000) == carried(
        memory_network(seed=3, **ROUGH), 2000
    )
    assert carried(memory_network(seed=3, **ROUGH), 2000) != carried(
        memory_network(seed=4, **ROUGH), 2000
    )


def test_a_link_has_its_own_dice_whatever_others_do(
    memory_network: NetworkMaker,
) -> None:
    alone, busy = memory_network(**ROUGH), memory_network(**ROUGH)
    a, b = alone.open_port(), alone.open_port()
    x, y, z = busy.open_port(), busy.open_port(), busy.open_port()

    send(a, range(500), b)
    for number in range(500):
        send(z, range(number, number + 1), y)
        send(y, range(number, number + 1), x)
        send(x, range(number, number + 1), z)
    received(y)
    send(x, range(500), y)

    assert received(y) == received(b)
    assert received(x) != received(z)


# -- partitions ------------------------------------------------------------------------------------


def test_a_partition_cuts_the_named_ports_off_until_it_heals(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b, c = whole.open_port(), whole.open_port(), whole.open_port()

    whole.partition(b.address)
    send(a, range(10), b)
    send(b, range(10), c)
    send(a, range(10), c)
    whole.heal()
    send(a, range(10, 20), b)

    assert received(b) == list(range(10, 20))
    assert received(c) == list(range(10))
    assert whole.counts["partitioned"] == 20


def test_a_second_partition_adds_to_the_first(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b, c = whole.open_port(), whole.open_port(), whole.open_port()

    whole.partition(b.address)
    whole.partition(c.address)
    send(a, range(10), b)
    send(a, range(10), c)

    assert received(b) + received(c) == []


def test_a_partition_without_names_cuts_everyone_off(memory_network: NetworkMaker) -> None:
    whole = memory_network()
    a, b = whole.open_port(), whole.open_port()

    whole.partition()
    send(a, range(10), b)
    whole.heal()

    assert received(b) == []
