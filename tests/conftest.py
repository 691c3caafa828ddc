"""What every test can ask for: the `bad_wire` factory, and tests skipped with a reason.

    def test_repair(bad_wire: BadWireFactory) -> None:
        wire = bad_wire(hosts=3, seed=7)
        wire.faults(loss=0.05)
        publisher = wire.host(0).popen([sys.executable, "-m", ...])

A test that uses `bad_wire` carries the marker `netns` by itself. Whether this machine can run
such tests is tried once per session, and only if one was collected.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator

import pytest
from badwire import BadWire, BadWireError, BadWireFactory, ip

from onehop.transport import datagrams


@functools.cache
def why_no_netns() -> str | None:
    """Return what keeps this machine from running netns tests, or None if nothing does."""
    if os.geteuid() != 0:
        return f"needs root, the effective user is {os.geteuid()}"
    for tool, package in (("ip", "iproute2"), ("ethtool", "ethtool"), ("nft", "nftables")):
        if shutil.which(tool) is None:
            return f"needs {tool} (package {package}), which is not on PATH"
    return why_no_namespace_with_a_veth(f"bwprobe{os.getpid()}")


def why_no_namespace_with_a_veth(name: str) -> str | None:
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "end0")
        ip("netns", "exec", name, "ethtool", "-K", "eth0", "tx", "off")
        ip("netns", "exec", name, "true")
    except BadWireError as error:
        return f"cannot make a network namespace: {error}"
    finally:
        with contextlib.suppress(BadWireError):  # never made
            ip("netns", "del", name)
    return None


# First, so that `-m netns` sees the markers added here.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "bad_wire" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.netns)


# At set-up rather than at collection: a run that deselects netns tests never tries.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("netns") is not None and (reason := why_no_netns()) is not None:
        pytest.skip(f"netns: {reason}")
    if item.get_closest_marker("compiled") is not None and not datagrams.COMPILED:
        pytest.skip("compiled: the extension was not built, or ONEHOP_PURE_PYTHON is set")


@pytest.fixture
def bad_wire() -> Iterator[BadWireFactory]:
    """Return a function that sets up a `BadWire`; every wire is taken down after the test."""
    with contextlib.ExitStack() as wires:

        def make(hosts: int = 2, *, seed: int) -> BadWire:
            print(f"bad wire: {hosts} hosts, seed {seed}")
            return wires.enter_context(BadWire(hosts, seed=seed))

        yield make
