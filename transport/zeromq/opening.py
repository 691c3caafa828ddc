"""From a ZeroMQ URL to a publisher, or to the ports of a subscriber."""

import time
from collections.abc import Sequence

from ..errors import ConfigurationError
from ..mold.requests import RequestOptions
from ..mold.ring import RingOptions
from ..urls import TransportURL
from .address import parse_zeromq
from .ports import DataPort
from .publisher import ZeroMQPublisher
from .sockets import warn_of_plain_text
from .streams import StreamsOptions

RETRY_FLOOR_S = 0.1
"""The side channel is a connection: what is lost there is lost with it, or at a high-water mark."""


def open_zeromq_publisher(
    url: TransportURL,
    source: str,
    ring: RingOptions,
    requests: RequestOptions,
    linger_s: float,
) -> ZeroMQPublisher:
    """Opens a publisher; raises `LocalError` when it cannot bind."""
    address = parse_zeromq(url)
    warn_of_plain_text(address)
    return ZeroMQPublisher(url.text, address, source, StreamsOptions(ring, requests), linger_s)


def open_zeromq_port(
    url: TransportURL, topics: Sequence[str], *, window: int, block_timeout_s: float
) -> DataPort:
    """Opens the port of a subscriber; its `requests` is the other one."""
    address = parse_zeromq(url)
    if address.bind == "publisher":
        for endpoint in address.endpoints:
            if endpoint.host and not endpoint.port:
                raise ConfigurationError(f"{url.text!r}: a subscriber cannot connect to port 0")
    warn_of_plain_text(address)
    return DataPort(
        address, topics, time.monotonic(), window=window, block_timeout_s=block_timeout_s
    )
