import re
from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onehop.transport.errors import ConfigurationError
from onehop.transport.urls import TransportURL, parse_endpoint, parse_url

SCHEMES = ("multicast", "memory")
unhurried = settings(max_examples=200, deadline=None, database=None, derandomize=True)


def options(**given_options: str) -> TransportURL:
    return TransportURL("memory://x", "memory", "x", given_options)


# -- the whole URL ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "scheme", "where", "given_options"),
    [
        ("memory://any-name", "memory", "any-name", {}),
        ("memory://any-name/", "memory", "any-name", {}),
        ("memory://n?loss=0.02&seed=7", "memory", "n", {"loss": "0.02", "seed": "7"}),
        ("memory://n?loss", "memory", "n", {"loss": ""}),
        ("multicast://239.255.7.1:7400", "multicast", "239.255.7.1:7400", {}),
        (
            "multicast://[ff15::7]:7400?interface=eth0&b=[ff15::8]:7400",
            "multicast",
            "[ff15::7]:7400",
            {"interface": "eth0", "b": "[ff15::8]:7400"},
        ),
    ],
)
def test_a_url_is_taken_apart(
    text: str, scheme: str, where: str, given_options: dict[str, str]
) -> None:
    url = parse_url(text, SCHEMES)

    assert (url.text, url.scheme, url.where, url.options) == (text, scheme, where, given_options)


@pytest.mark.parametrize(
    "text",
    ["", "x", "239.255.7.1:7400", "tcp://h:1", "memory:name", "multicas://239.1.1.1:1", "://x"],
)
def test_an_unknown_scheme_is_answered_with_the_valid_ones(text: str) -> None:
    expected = f"unknown scheme in {text!r}; valid: memory://, multicast://"

    with pytest.raises(ConfigurationError, match=f"^{re.escape(expected)}$"):
        parse_url(text, SCHEMES)


@pytest.mark.parametrize("text", ["memory://n/path", "memory://n#part", "memory://n/a?loss=1"])
def test_nothing_but_options_may_follow_the_address(text: str) -> None:
    with pytest.raises(ConfigurationError, match="nothing may follow the address but"):
        parse_url(text, SCHEMES)


def test_an_option_may_be_given_once() -> None:
    with pytest.raises(ConfigurationError, match=r"loss=2.*: an option is given twice"):
        parse_url("memory://n?loss=1&loss=2", SCHEMES)


@pytest.mark.parametrize("text", ["multicast://[ff15::7:7400", "multicast://ff15::7]:7400"])
def test_lone_brackets_are_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(text))):
        parse_url(text, SCHEMES)


@unhurried
@given(st.text(max_size=40) | st.text("[]:/?#&=.%@0f", max_size=30).map("memory://{}".format))
def test_any_text_is_a_url_or_a_configuration_error(text: str) -> None:
    with suppress(ConfigurationError):
        parse_url(text, SCHEMES)


# -- options ---------------------------------------------------------------------------------------


def test_an_unknown_option_is_answered_with_the_valid_ones() -> None:
    url = parse_url("memory://n?los=1", SCHEMES)
    expected = "unknown option 'los' in 'memory://n?los=1'; valid: loss, seed"

    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        url.only(["seed", "loss"])
    url.only(["seed", "los"])


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0.0), ("1", 1.0), ("0.02", 0.02), ("1e-3", 0.001)]
)
def test_a_number_within_its_bounds_is_taken(text: str, value: float) -> None:
    assert options(loss=text).number("loss", 0.5, 0, 1) == value


def test_an_option_that_is_not_given_has_its_default() -> None:
    assert options().number("loss", 0.5, 0, 1) == 0.5
    assert options().whole("ttl", 1, 0, 255) == 1


@pytest.mark.parametrize("text", ["-0.001", "1.001", "nan", "inf", "-inf", "", "x", "0,5", "1 %"])
def test_anything_else_is_no_number(text: str) -> None:
    expected = f"loss={text} in 'memory://x': expected a number from 0 to 1"

    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        options(loss=text).number("loss", 0.5, 0, 1)


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("64", 64), ("65507", 65_507), ("007", 7)])
def test_a_whole_number_within_its_bounds_is_taken(text: str, value: int) -> None:
    assert options(packet=text).whole("packet", 1400, 2, 65_507) == value


@pytest.mark.parametrize(
    "text", ["1", "65508", "64.5", "1e3", "-64", "+64", "1_000", "", "x", "٦٤", "9" * 5000]
)
def test_anything_else_is_no_whole_number(text: str) -> None:
    expected = f"packet={text} in 'memory://x': expected a whole number from 2 to 65507"

    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        options(packet=text).whole("packet", 1400, 2, 65_507)


# -- endpoints -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("239.255.7.1:7400", "239.255.7.1", 7400),
        ("10.0.0.1:65535", "10.0.0.1", 65_535),
        ("[::1]:1", "::1", 1),
        ("[ff15::7]:7400", "ff15::7", 7400),
    ],
)
def test_an_endpoint_is_an_address_and_a_port(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text, "group") == (ip_address(host), port)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", ":7400", "7400", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:+1", "127.0.0.1:1_0", "127.0.0.1:x", "127.0.0.1: 1", "127.0.0.1:٧", "127.0.0:1",
        "host:1", "[::1]", "[::1]:", "[::1:1", "::1]:1", "ff15::7:7400", "[127.0.0.1]:1", "[]:1",
        "127.0.0.1:" + "9" * 5000,
    ],
)  # fmt: skip
def test_an_endpoint_that_is_none_is_named(text: str) -> None:
    expected = f"group {text!r}: expected IP:PORT or [IPv6]:PORT"

    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        parse_endpoint(text, "group")
