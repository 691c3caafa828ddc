"""No way to the network: one clear sentence at the start, a counter while it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from badwire import BadWireFactory, Host, ip

from netns.actors import DEADLINE_S, Actor, all_settled, onehop, url

ROUTE = "no multicast route there; name an interface of this machine that is up: ?interface="
NO_ADDRESS = "Cannot assign requested address"
UNREACHABLE = "Network is unreachable"
HOLD = """
import signal, socket
holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
holder.bind(("", 7400))
print("holds", flush=True)
signal.pause()
"""


def refused(host: Host, *arguments: str) -> str:
    """The sentence a command ends with; it must be one line, without a traceback."""
    process = onehop(host, *arguments)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, output) == (2, ""), errors
    (sentence,) = errors.splitlines()
    return sentence.removeprefix("onehop: ")


def publish(host: Host, address: str) -> str:
    return refused(host, "publish", address, "--topic", "t")


def subscribe(host: Host, address: str) -> str:
    return refused(host, "subscribe", address, "--summary", "--timeout", "0.2")


def test_an_interface_that_is_down_is_one_clear_sentence(bad_wire: BadWireFactory) -> None:
    host = bad_wire(seed=7).host(0)
    ip("-n", host.namespace, "link", "set", "eth0", "down")
    for interface in (host.address, "eth0"):
        address = url(host, interface=interface)
        for act, verb in ((publish, "send to"), (subscribe, "listen to")):
            expected = f"cannot {verb} 239.77.1.1 port 7400: {UNREACHABLE}; {ROUTE}IP"
            assert act(host, address) == expected
    for group in ("ff02::7701", "ff05::7701"):
        address = url(host, f"[{group}]:7401")
        for act, verb in ((publish, "send to"), (subscribe, "listen to")):
            expected = f"cannot {verb} {group} port 7401: {UNREACHABLE}; {ROUTE}NAME"
            assert act(host, address) == expected


@pytest.mark.parametrize(
    ("address", "publishing", "subscribing"),
    [
        (
            "multicast://239.77.1.1:7400",
            f"cannot send from 127.0.0.1: {NO_ADDRESS}; {ROUTE}IP",
            f"cannot listen to 239.77.1.1 port 7400: No such device; {ROUTE}IP",
        ),
        (
            "multicast://239.77.1.1:7400?interface=10.99.0.1",
            f"cannot send from 10.99.0.1: {NO_ADDRESS}; {ROUTE}IP",
            f"cannot listen to 239.77.1.1 port 7400: No such device; {ROUTE}IP",
        ),
        (
            "multicast://239.77.1.1:7400?interface=eth9",
            "interface=eth9 in 'multicast://239.77.1.1:7400?interface=eth9': "
            "no such interface; there are lo, eth0",
            "interface=eth9 in 'multicast://239.77.1.1:7400?interface=eth9': "
            "no such interface; there are lo, eth0",
        ),
    ],
)
def test_an_address_or_interface_that_is_not_there_is_one_clear_sentence(
    bad_wire: BadWireFactory, address: str, publishing: str, subscribing: str
) -> None:
    host = bad_wire(seed=7).host(0)
    ip("-n", host.namespace, "addr", "del", "127.0.0.1/8", "dev", "lo")
    assert publish(host, address) == publishing
    assert subscribe(host, address) == subscribing


def test_a_port_held_by_a_program_that_does_not_share_it_is_one_clear_sentence(
    bad_wire: BadWireFactory,
) -> None:
    host = bad_wire(seed=7).host(0)
    holder = host.popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holds\n"
    assert subscribe(host, url(host)) == (
        "cannot listen to 239.77.1.1 port 7400: Address already in use; "
        "the port is in use by a program that does not share it"
    )


def test_an_interface_that_goes_down_under_a_publisher_costs_repairs_and_nothing_else(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    listener = Actor.listener(wire.host(1), url(wire.host(1)))
    speaker = Actor.speaker(wire.host(0), url(wire.host(0)))
    speaker.ask("say", count=100)
    listener.until(all_settled(100))
    ip("-n", wire.host(0).namespace, "link", "set", "eth0", "down")
    assert speaker.ask("say", count=200)["send_errors"] >= 200
    ip("-n", wire.host(0).namespace, "link", "set", "eth0", "up")
    speaker.ask("say", count=1)
    report = listener.until(all_settled(301))
    assert (report["delivered"], report["lost"], report["faults"]) == (301, {}, [])
    assert report["recovered"] == 200


def test_an_interface_that_goes_down_under_a_subscriber_costs_repairs_and_nothing_else(
    bad_wire: BadWireFactory,
) -> None:
    wire = bad_wire(seed=7)
    listener = Actor.listener(wire.host(1), url(wire.host(1)), deadline_s=10.0)
    speaker = Actor.speaker(wire.host(0), url(wire.host(0)))
    speaker.ask("say", count=100)
    listener.until(all_settled(100))
    wire.partition(kind="multicast")
    speaker.ask("say", count=10)
    wire.partition(kind="unicast")
    wire.heal(kind="multicast")
    speaker.ask("say", count=1)
    listener.until(lambda report: report["requests"] > 0)
    ip("-n", wire.host(1).namespace, "link", "set", "eth0", "down")
    listener.until(lambda report: report["ignored"].get("requests_not_sent", 0) > 2)
    speaker.ask("say", count=100)
    ip("-n", wire.host(1).namespace, "link", "set", "eth0", "up")
    wire.heal()
    speaker.ask("say", count=1)
    report = listener.until(all_settled(212))
    assert (report["delivered"], report["lost"], report["faults"]) == (212, {}, [])
    assert report["recovered"] >= 10
