"""Opening: what is refused, with which sentence, and that a refusal leaves nothing open."""

import gc
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import group_of, new_url

from onehop.transport import (
    ConfigurationError,
    LimitError,
    LocalError,
    LogError,
    OnehopError,
    RingOptions,
    open_publisher,
    open_subscriber,
)
from onehop.transport.memory import _networks

Opener = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    """Unclosed sockets warn, which is an error here; descriptors and networks are counted."""
    gc.collect()
    descriptors, networks = len(os.listdir("/proc/self/fd")), set(_networks)
    yield
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert set(_networks) == networks


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("opener", [open_publisher, open_subscriber])
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "unknown scheme in ''; valid: memory://, multicast://"),
        ("tcp://127.0.0.1:1", "valid: memory://, multicast://"),
        ("multicast://239.1.1.1:7400?ttl=1&ttl=2", "an option is given twice"),
        ("multicast://239.1.1.1:7400?colour=red", "unknown option 'colour' .* valid: b, interface"),
        ("multicast://239.1.1.1:7400/path", "nothing may follow the address"),
        ("multicast://239.1.1.1", "expected IP:PORT"),
        ("multicast://239.1.1.1:0", "a group needs a port from 1 to 65535"),
        ("multicast://127.0.0.1:7400", "127.0.0.1 .* is no multicast group"),
        ("multicast://239.1.1.1:7400?payload=xml", "payload=xml .* expected 'event' or 'raw'"),
        ("multicast://239.1.1.1:7400?interface=nope0", "no such interface; there are lo"),
        ("memory://", "needs a name"),
        ("memory://opening?payload=xml", "payload=xml .* expected 'event' or 'raw'"),
        ("memory://opening?colour=red", "unknown option 'colour' .* valid: burst_enter"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_and_says_what_does(
    opener: Opener, url: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        opener(url)


@pytest.mark.parametrize("opener", [open_publisher, open_subscriber])
def test_an_interface_this_machine_does_not_have_is_one_clear_sentence(opener: Opener) -> None:
    with pytest.raises(LocalError, match=r"cannot .*; name an interface of this machine"):
        opener(new_url(interface="192.0.2.77"))


def test_a_port_in_use_is_one_clear_sentence() -> None:
    url = new_url()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
        greedy.bind(("", group_of(url)[1]))
        with pytest.raises(LocalError, match=r"Address already in use; the port is in use by a"):
            open_subscriber(url)


def test_a_second_group_that_cannot_be_joined_closes_the_first() -> None:
    group, port = group_of(new_url())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
        greedy.bind(("", port))
        with pytest.raises(LocalError, match=f"{group} port {port}"):
            open_subscriber(new_url(b=f"{group}:{port}"))


# -- options ---------------------------------------------------------------------------------------


@pytest.fixture(params=["multicast", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    return new_url() if request.param == "multicast" else "memory://opening"


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"source": ""}, LimitError, "source has 0 bytes, expected 1 to 255"),
        ({"source": "s" * 256}, LimitError, "source has 256 bytes"),
        ({"linger_s": -1}, ConfigurationError, "linger_s is -1"),
        ({"linger_s": float("nan")}, ConfigurationError, "linger_s is nan"),
    ],
)
def test_a_publisher_refuses_options_that_make_no_sense(
    url: str, options: dict[str, Any], error: type[OnehopError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        open_publisher(url, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topics": "quotes."}, "topics is the text 'quotes.', expected a list"),
        ({"topics": [b"quotes."]}, "is a bytes, expected text"),
        ({"start": 0}, "start is 0, expected 'live', 'first' or a number from 1"),
        ({"start": "last"}, "start is 'last'"),
        ({"start": True}, "start is True"),
        ({"on_overflow": "block"}, "nothing there can make a publisher wait; use spill"),
        ({"on_overflow": "explode"}, "on_overflow is 'explode', expected drop_newest"),
        ({"queue_events": 0}, "queue_events is 0, expected 1 or more"),
        ({"queue_bytes": 0}, "queue_bytes is 0, expected 1 or more"),
        ({"spill_path": Path("/tmp")}, "spill_path needs on_overflow 'spill'"),
        ({"deadline_s": 0}, "deadline_s is 0, expected above 0"),
        ({"attempts": -1}, "attempts is -1, expected 0 or more"),
    ],
)
def test_a_subscriber_refuses_options_that_make_no_sense(
    url: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        open_subscriber(url, **options)


def test_a_place_to_spill_that_cannot_be_used_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError):
        open_subscriber(url, on_overflow="spill", spill_path=tmp_path / "file")


def test_ring_options_are_checked_where_they_are_made() -> None:
    for name in ("max_messages", "max_bytes", "max_age_s"):
        with pytest.raises(ConfigurationError, match=f"ring {name} is 0"):
            RingOptions(**{name: 0})


def test_what_opens_closes_without_a_trace(url: str) -> None:
    with open_publisher(url) as publisher, open_subscriber(url):
        assert publisher.source == f"{socket.gethostname()}-{os.getpid()}"
