"""A pytest plugin: the fixture `memory_network`, a network with seeded faults for your tests.

    def test_my_service_survives_loss(memory_network):
        network = memory_network(loss=0.05, seed=7)
        with open_subscriber(network.url) as events: ...

Loaded by itself once onehop is installed. The seed stands in the report of a failing test.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .memory import MemoryNetwork


@pytest.fixture
def memory_network(request: pytest.FixtureRequest) -> Iterator[Callable[..., "MemoryNetwork"]]:
    """Makes networks: `memory_network(seed=1, **faults)`; see `onehop.transport.memory.Faults`."""
    # Imported here: a test run that does not use the fixture does not pay for the package.
    from .memory import Faults, MemoryNetwork

    with ExitStack() as networks:

        def make(seed: int = 1, **faults: float) -> MemoryNetwork:
            network = networks.enter_context(MemoryNetwork(seed=seed, faults=Faults(**faults)))
            request.node.add_report_section(
                "setup", "onehop", f"{network.url} seed={seed} {faults}"
            )
            return network

        yield make
