import re
import socket
from ipaddress import ip_address

import pytest

from onehop.transport.errors import ConfigurationError
from onehop.transport.mold.wire import DEFAULT_PACKET_BYTES
from onehop.transport.multicast.address import OPTIONS, MulticastAddress, parse_multicast
from onehop.transport.urls import parse_url

IPV4 = "multicast://239.255.7.1:7400"
IPV6 = "multicast://[ff15::7]:7400"


def address(text: str) -> MulticastAddress:
    return parse_multicast(parse_url(text, ["multicast"]))


def error_of(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        address(text)
    return str(caught.value)


# -- defaults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [IPV4, IPV6])
def test_an_address_alone_stays_on_this_machine(text: str) -> None:
    parsed = address(text)

    if parsed.family == socket.AF_INET:
        assert parsed.interface_address == ip_address("127.0.0.1")
        assert parsed.interface_index == 0
    else:
        assert parsed.interface_address is None
        assert parsed.interface_index == socket.if_nametoindex("lo")


@pytest.mark.parametrize("text", [IPV4, IPV6])
def test_an_address_alone_asks_for_nothing_special(text: str) -> None:
    parsed = address(text)

    assert parsed.text == text
    assert (parsed.ttl, parsed.packet_bytes) == (1, DEFAULT_PACKET_BYTES)
    assert (parsed.source, parsed.servers, parsed.session) == (None, (), None)
    assert (parsed.payload, parsed.loss, parsed.seed) == ("event", 0.0, 1)


@pytest.mark.parametrize(
    ("text", "family", "destination"),
    [
        (IPV4, socket.AF_INET, ("239.255.7.1", 7400)),
        (IPV6, socket.AF_INET6, ("ff15::7", 7400, 0, socket.if_nametoindex("lo"))),
    ],
)
def test_packets_go_to_the_group(
    text: str, family: socket.AddressFamily, destination: tuple[str, int]
) -> None:
    parsed = address(text)

    assert parsed.family == family
    assert parsed.destination(0) == destination


# -- each option -----------------------------------------------------------------------------------


def test_b_is_a_second_path() -> None:
    parsed = address(f"{IPV4}?b=239.255.7.2:7401")

    assert parsed.groups == (
        (ip_address("239.255.7.1"), 7400),
        (ip_address("239.255.7.2"), 7401),
    )
    assert parsed.destination(1) == ("239.255.7.2", 7401)


def test_b_of_an_ipv6_group_is_ipv6() -> None:
    parsed = address(f"{IPV6}?b=[ff15::8]:7400")

    assert parsed.destination(1) == ("ff15::8", 7400, 0, socket.if_nametoindex("lo"))


def test_an_interface_is_given_by_address_or_by_name() -> None:
    by_address = address(f"{IPV4}?interface=10.1.2.3")
    by_name = address(f"{IPV4}?interface=lo")

    assert (by_address.interface_address, by_address.interface_index) == (ip_address("10.1.2.3"), 0)
    assert by_name.interface_address is None
    assert by_name.interface_index == socket.if_nametoindex("lo")


@pytest.mark.parametrize(("text", "source"), [(IPV4, "10.1.2.3"), (IPV6, "2001:db8::1")])
def test_a_source_is_an_address(text: str, source: str) -> None:
    assert address(f"{text}?source={source}").source == ip_address(source)


def test_request_servers_are_a_list() -> None:
    one = address(f"{IPV4}?request=10.0.0.1:7500").servers
    two = address(f"{IPV4}?request=10.0.0.1:7500,10.0.0.2:7501").servers
    ipv6 = address(f"{IPV6}?request=[2001:db8::1]:7500").servers

    assert one == (("10.0.0.1", 7500),)
    assert two == (("10.0.0.1", 7500), ("10.0.0.2", 7501))
    assert ipv6 == (("2001:db8::1", 7500, 0, 0),)


def test_a_request_server_on_the_link_is_known_by_the_interface_it_is_on() -> None:
    index = socket.if_nametoindex("lo")
    servers = address(f"{IPV6}?interface=lo&request=[fe80::1]:7500,[fd00::1]:7500").servers
    assert servers == (("fe80::1", 7500, 0, index), ("fd00::1", 7500, 0, 0))


def test_a_session_is_padded_as_on_the_wire() -> None:
    assert address(f"{IPV4}?session=FEED1").session == b"FEED1     "


def test_a_payload_is_events_or_raw() -> None:
    assert address(f"{IPV4}?payload=event").payload == "event"
    assert address(f"{IPV4}?payload=raw").payload == "raw"


def test_loss_and_seed_are_numbers() -> None:
    parsed = address(f"{IPV4}?loss=0.02&seed=7")

    assert (parsed.loss, parsed.seed) == (0.02, 7)


@pytest.mark.parametrize(
    ("option", "attribute", "least", "most"),
    [
        ("ttl", "ttl", 0, 255),
        ("packet", "packet_bytes", 64, 65_507),
        ("seed", "seed", 1, 2**53),
    ],
)
def test_a_whole_number_is_taken_up_to_its_bounds(
    option: str, attribute: str, least: int, most: int
) -> None:
    for value in (least, most):
        assert getattr(address(f"{IPV4}?{option}={value}"), attribute) == value
    for wrong in (least - 1, most + 1, f"{least}.5", "x"):
        assert f"{option}={wrong} " in error_of(f"{IPV4}?{option}={wrong}")
        assert f"from {least} to {most}" in error_of(f"{IPV4}?{option}={wrong}")


# -- what makes no sense ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen", "expected"),
    [
        ("multicast://10.0.0.1:7400", "10.0.0.1 in", "no multicast group; use 239.0.0.0"),
        ("multicast://[::1]:7400", "::1 in", "ff15:: and up for IPv6"),
        ("multicast://239.1.1.1:0", "239.1.1.1:0", "port from 1 to 65535"),
        ("multicast://239.1.1.1", "'239.1.1.1'", "expected IP:PORT or [IPv6]:PORT"),
        ("multicast://", "group ''", "expected IP:PORT"),
        (f"{IPV4}?b=10.0.0.1:7400", "10.0.0.1 in", "no multicast group"),
        (f"{IPV4}?b=239.1.1.1:0", "b=239.1.1.1:0", "port from 1 to 65535"),
        (f"{IPV4}?b=[ff15::8]:7400", "ff15::8", "both IPv6"),
        (f"{IPV4}?b=239.255.7.1:7400", "b is the first group again", "expected another"),
        (f"{IPV4}?interface=nosuch0", "interface=nosuch0", "no such interface; there are lo"),
        (f"{IPV4}?interface=%00", "%00", "no such interface"),
        (f"{IPV4}?interface=::1", "interface=::1", "expected IPv4 or a name"),
        (f"{IPV6}?interface=::1", "interface=::1", "need the interface's name"),
        (f"{IPV4}?source=host", "source=host", "expected an IP"),
        (f"{IPV4}?source=::1", "source=::1", "expected the IPv4 address"),
        (f"{IPV6}?source=10.0.0.1", "source=10.0.0.1", "expected the IPv6 address"),
        (f"{IPV4}?source=239.1.1.1", "source=239.1.1.1", "address of a sender"),
        (f"{IPV4}?request=10.0.0.1", "'10.0.0.1'", "expected IP:PORT"),
        (f"{IPV4}?request=10.0.0.1:0", "'10.0.0.1:0'", "port from 1 to 65535"),
        (f"{IPV4}?request=[::1]:7500", "'[::1]:7500'", "expected IPv4, as the group is"),
        (f"{IPV6}?request=10.0.0.1:1", "'10.0.0.1:1'", "expected IPv6, as the group is"),
        (f"{IPV4}?session=ELEVENCHARS", "'ELEVENCHARS'", "expected 1 to 10"),
        (f"{IPV4}?session=", "session ''", "expected 1 to 10"),
        (f"{IPV4}?payload=json", "payload=json", "expected 'event' or 'raw'"),
        (f"{IPV4}?loss=1.5", "loss=1.5", "from 0 to 1"),
    ],
)
def test_an_error_says_what_was_seen_and_what_was_expected(
    text: str, seen: str, expected: str
) -> None:
    message = error_of(text)

    assert seen in message
    assert expected in message


def test_an_unknown_option_is_answered_with_the_valid_ones() -> None:
    message = error_of(f"{IPV4}?iface=lo")

    assert "unknown option 'iface'" in message
    assert re.findall(r"[a-z]+", message.partition("valid: ")[2]) == sorted(OPTIONS)
