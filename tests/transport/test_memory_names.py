"""Networks in memory by name: `memory://NAME?…`."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from onehop.transport.errors import ConfigurationError
from onehop.transport.memory import OPTIONS, Faults, MemoryNetwork, network_of
from onehop.transport.urls import parse_url


def opened(text: str) -> MemoryNetwork:
    return network_of(parse_url(text, ["memory"]))


def test_a_name_is_one_network_while_anything_is_open_on_it() -> None:
    network = opened("memory://shared")
    a, b = network.open_port(), network.open_port()

    assert opened("memory://shared") is network
    a.close()
    assert opened("memory://shared") is network
    b.close()
    other = opened("memory://shared")
    assert other is not network
    other.close()


def test_a_network_of_ones_own_lives_until_it_is_closed() -> None:
    with MemoryNetwork("own", faults=Faults(loss=0.5)) as network:
        network.open_port().close()
        assert opened(network.url) is network
    other = opened("memory://own")
    assert other is not network
    other.close()


def test_networks_without_a_name_are_given_different_ones() -> None:
    with MemoryNetwork() as one, MemoryNetwork() as two:
        assert one.url != two.url


def test_a_name_cannot_be_given_twice() -> None:
    with (
        MemoryNetwork("taken"),
        pytest.raises(ConfigurationError, match="a memory network 'taken' already"),
    ):
        MemoryNetwork("taken")


def test_two_threads_that_ask_for_a_new_name_at_once_get_one_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, both = MemoryNetwork.__init__, Barrier(2)

    def make_slowly(network: MemoryNetwork, name: str, **options: Any) -> None:
        with suppress(BrokenBarrierError):  # the other one does not come here: good
            both.wait(timeout=0.1)
        make(network, name, **options)

    monkeypatch.setattr(MemoryNetwork, "__init__", make_slowly)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(opened, "memory://popular") for _ in range(2)]
        one, two = (answer.result() for answer in asked)

    assert one is two
    one.close()


@pytest.mark.parametrize(
    ("option", "faults"),
    [
        ("loss=0.02", Faults(loss=0.02)),
        ("burst_enter=0.01", Faults(burst_enter=0.01)),
        ("burst_leave=0.25", Faults(burst_leave=0.25)),
        ("duplicate=1", Faults(duplicate=1.0)),
        ("reorder=0.5", Faults(reorder=0.5)),
        ("delay_ms=1.5", Faults(delay_s=0.0015)),
        ("payload=raw", Faults()),
        ("seed=9", Faults()),
        ("", Faults()),
    ],
)
def test_options_set_the_faults(option: str, faults: Faults) -> None:
    network = opened(f"memory://options?{option}")
    try:
        assert network.faults == faults
        assert network.seed == (9 if option == "seed=9" else 1)
    finally:
        network.close()


def test_every_option_is_known() -> None:
    tried = {"loss", "burst_enter", "burst_leave", "duplicate", "reorder", "delay_ms"}

    assert set(OPTIONS) == tried | {"payload", "seed"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory://", "'memory://': a memory network needs a name"),
        ("memory://n?los=1", "unknown option 'los' .* valid: burst_enter, .* loss, .* seed"),
        ("memory://n?loss=2", "loss=2 in .*: expected a number from 0 to 1"),
        ("memory://n?delay_ms=-1", "delay_ms=-1 in .*: expected a number from 0 to 60000"),
        ("memory://n?seed=1.5", "seed=1.5 in .*: expected a whole number from 0 to"),
    ],
)
def test_an_error_says_what_was_seen_and_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        opened(text)


def test_an_open_network_is_joined_with_its_own_faults_or_none() -> None:
    with MemoryNetwork("lossy", seed=3, faults=Faults(loss=0.02)) as network:
        for options in ("", "?loss=0.02", "?seed=3", "?loss=0.02&seed=3", "?payload=raw"):
            assert opened(f"memory://lossy{options}") is network
        for options in ("?loss=0.03", "?loss=0.02&duplicate=0.1"):
            with pytest.raises(ConfigurationError, match=r"open with Faults\(loss=0\.02"):
                opened(f"memory://lossy{options}")
        with pytest.raises(ConfigurationError, match="open with seed 3"):
            opened("memory://lossy?seed=4")


def test_faults_may_be_replaced_while_the_network_runs() -> None:
    with MemoryNetwork() as network:
        a, b = network.open_port(), network.open_port()
        network.faults = Faults(loss=1.0)
        a.send([(b"lost", b.address)])
        network.faults = Faults()
        a.send([(b"kept", b.address)])

        assert [data for data, _, _ in b.receive()] == [b"kept"]
