"""From a ZeroMQ URL to a publisher, or to the ports of a subscriber."""

import time
from collections.abc import Callable, Sequence
from typing import Literal

from ..errors import ConfigurationError
from ..handover import HandoverQueue, QueueOptions
from ..intake import Intake
from ..ledger import Ledger
from ..mold.feed import FeedOptions
from ..mold.requests import RequestOptions
from ..mold.ring import RingOptions
from ..urls import TransportURL
from .address import parse_zeromq
from .data_port import DataPort
from .member import GroupMember
from .publisher import ZeroMQPublisher
from .sharing import GroupOptions
from .side import Ask, Join
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
    url: TransportURL,
    topics: Sequence[str],
    *,
    window: int,
    block_timeout_s: float,
    claim: Callable[[bytes], Ask | Join] | None = None,
) -> DataPort:
    """Opens the port of a subscriber; its `requests` is the other one."""
    address = parse_zeromq(url)
    if address.bind == "publisher":
        for endpoint in address.endpoints:
            if endpoint.host and not endpoint.port:
                raise ConfigurationError(f"{url.text!r}: a subscriber cannot connect to port 0")
    warn_of_plain_text(address)
    return DataPort(
        address,
        topics,
        time.monotonic(),
        window=window,
        block_timeout_s=block_timeout_s,
        claim=claim,
    )


def open_member(
    url: TransportURL,
    topics: Sequence[str],
    options: GroupOptions,
    feed: FeedOptions,
    *,
    spin: bool,
) -> GroupMember:
    """Opens a subscriber that is one of a group."""
    if feed.start not in ("live", "first"):
        raise ConfigurationError(
            f"start is {feed.start!r}: a group begins 'live', or with the 'first' that is kept"
        )
    start: Literal["live", "first"] = "first" if feed.start == "first" else "live"
    port = open_zeromq_port(
        url,
        topics,
        window=options.prefetch,
        block_timeout_s=0.0,
        claim=lambda name: options.join(name, topics, start),
    )
    queue, ledger = HandoverQueue(QueueOptions()), Ledger()
    try:
        intake = Intake([port], port.requests, queue, ledger, feed, registry=port.directory)
        return GroupMember(intake, queue, ledger, port.requests, options.ack, spin=spin)
    except BaseException:
        port.close()
        raise
