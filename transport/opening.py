"""`open_publisher` and `open_subscriber`: from a URL and options to a working object."""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from .datagram_publisher import DatagramPublisher
from .datagrams import Address
from .envelope import MAX_TOPIC_BYTES
from .errors import ConfigurationError
from .faults import LossyPort, Xorshift
from .gate import Backpressure
from .handover import HandoverQueue, Overflow, QueueOptions
from .intake import Intake
from .lag import LagOptions, LagWatch, OnLag
from .ledger import Ledger
from .memory import network_of
from .mold.feed import FeedOptions, Start
from .mold.receiver_options import ReceiverOptions
from .mold.requests import RequestOptions
from .mold.ring import RingOptions
from .mold.sender import SenderOptions, SenderSession
from .mold.sessions import new_session
from .multicast.address import parse_multicast
from .multicast.sockets import explain_send, open_data_port, open_request_port, open_sender_port
from .ports import Port
from .publisher import Publisher
from .registry import Registry
from .subscriber import Subscriber
from .urls import TransportURL, parse_url

SCHEMES = ("memory", "multicast", "zmq+ipc", "zmq+tcp")
MAX_LINGER_S = 3600.0
MEMORY_GROUP: Address = ("group", 1)

_QUEUE = QueueOptions()
_RECEIVER = ReceiverOptions()


def open_publisher(
    url: str,
    source: str | None = None,
    *,
    ring: RingOptions | None = None,
    requests: RequestOptions | None = None,
    linger_s: float = 1.0,
) -> Publisher:
    """Opens a publisher: a new epoch of `source`, heard at once.

    `source` is this host and process unless named. `ring` bounds what is kept for repairs,
    `requests` what answering them may cost, `linger_s` how long `close` goes on answering. Raises
    `LocalError` when this machine cannot send there.
    """
    if not 0 <= linger_s <= MAX_LINGER_S:
        raise ConfigurationError(f"linger_s is {linger_s}, expected 0 to {MAX_LINGER_S:g}")
    parsed = parse_url(url, SCHEMES)
    name = f"{socket.gethostname()}-{os.getpid()}" if source is None else source
    ring = RingOptions() if ring is None else ring
    requests = RequestOptions() if requests is None else requests
    if parsed.scheme == "memory":
        payload = _payload(parsed)
        network = network_of(parsed)
        memory_port = network.open_port()
        options = SenderOptions(ring=ring, requests=requests)
        with _closed_on_fault(memory_port):
            return DatagramPublisher(
                memory_port,
                [MEMORY_GROUP],
                SenderSession(new_session(), options, time.monotonic()),
                url=url,
                source=name,
                payload=payload,
                linger_s=linger_s,
                count_subscribers=lambda: network.listeners(MEMORY_GROUP),
            )
    if parsed.scheme.startswith("zmq"):
        from .zeromq.opening import open_zeromq_publisher  # nobody else pays for ZeroMQ

        return open_zeromq_publisher(parsed, name, ring, requests, linger_s)
    address = parse_multicast(parsed)
    options = SenderOptions(packet_bytes=address.packet_bytes, ring=ring, requests=requests)
    session: SenderSession[Address] = SenderSession(
        address.session or new_session(), options, time.monotonic()
    )
    port = open_sender_port(address)
    with _closed_on_fault(port):
        try:
            return DatagramPublisher(
                port,
                [address.destination(path) for path in range(len(address.groups))],
                session,
                url=url,
                source=name,
                payload=address.payload,
                linger_s=linger_s,
            )
        except OSError as fault:
            raise explain_send(fault, address) from fault


def open_subscriber(
    url: str,
    topics: Sequence[str] = (),
    *,
    start: Start = "live",
    on_overflow: Overflow = "drop_oldest",
    queue_events: int = _QUEUE.max_events,
    queue_bytes: int = _QUEUE.max_bytes,
    spill_path: Path | None = None,
    spill_bytes: int = _QUEUE.spill_bytes,
    ordered: bool = True,
    deadline_s: float = _RECEIVER.deadline_s,
    attempts: int | None = None,
    spin: bool = False,
    block_timeout_s: float = 1.0,
    max_age_s: float | None = None,
    max_lag: int | None = None,
    on_lag: OnLag = "count",
    history: Literal["last"] | None = None,
    group: str | None = None,
    order_by: Literal["key"] | None = None,
    ack: Literal["auto", "manual", "none"] = "auto",
    ack_timeout_s: float = 30.0,
    prefetch: int = 64,
) -> Subscriber:
    """Opens a subscriber; events from this moment on (or from `start`) are accounted for.

    `topics` are prefixes, none means all. `deadline_s` and `attempts` say how hard to try for a
    lost message before it is reported as a `Loss`; `attempts=0` never asks. `spin` burns a core
    while waiting and saves the wake-up. See `QueueOptions` for `on_overflow` and its bounds; under
    `block`, over ZeroMQ, `block_timeout_s` is how long a publisher may wait for this subscriber.
    See `LagOptions` for `max_age_s`, `max_lag` and `on_lag`.

    Over ZeroMQ also: `history="last"` begins with the last value of each topic and key; `group`
    makes this subscriber one of several that share the events, each going to one of them, and
    returns a `GroupMember`. See `GroupOptions` for the four that follow.
    """
    if isinstance(topics, str):
        raise ConfigurationError(f"topics is the text {topics!r}, expected a list of prefixes")
    for topic in topics:
        if not isinstance(topic, str):
            raise ConfigurationError(f"topic {topic!r} is a {type(topic).__name__}, expected text")
        if len(topic.encode(errors="replace")) > MAX_TOPIC_BYTES:
            raise ConfigurationError(
                f"topic {topic!r:.40} has {len(topic)} letters, at most {MAX_TOPIC_BYTES} bytes "
                "can be published"
            )
    parsed = parse_url(url, SCHEMES)
    if on_overflow == "block" and not parsed.scheme.startswith("zmq"):
        raise ConfigurationError(
            f"on_overflow='block' cannot work over {parsed.scheme}: nothing there can make a "
            "publisher wait; use spill, drop_oldest, drop_newest, latest or disconnect"
        )
    if not 0 <= block_timeout_s <= MAX_LINGER_S:
        raise ConfigurationError(
            f"block_timeout_s is {block_timeout_s}, expected 0 to {MAX_LINGER_S:g}"
        )
    for name, bound in (("queue_events", queue_events), ("queue_bytes", queue_bytes)):
        if bound < 1:
            raise ConfigurationError(f"{name} is {bound}, expected 1 or more")
    if (group is not None or history is not None) and not parsed.scheme.startswith("zmq"):
        raise ConfigurationError(
            f"{'group' if history is None else 'history'} cannot work over {parsed.scheme}: "
            "nobody there can be spoken to alone; use zmq+tcp:// or zmq+ipc://"
        )
    if group is None and (order_by is not None or ack != "auto"):
        raise ConfigurationError("order_by and ack are for the members of a group: give group= too")
    if history not in (None, "last"):
        raise ConfigurationError(f"history is {history!r}, expected 'last' or None")
    if history is not None and (start != "live" or group is not None):
        raise ConfigurationError("history='last' goes with start='live', and not with a group")
    block_timeout_s = float(block_timeout_s)  # a whole number would travel as one
    queue = QueueOptions(on_overflow, queue_events, queue_bytes, spill_path, spill_bytes)
    lag = LagOptions(max_age_s, max_lag, on_lag)
    receiver = ReceiverOptions(ordered=ordered, deadline_s=deadline_s, attempts=attempts)
    if parsed.scheme == "memory":
        payload = _payload(parsed)
        feed = FeedOptions(start=start, receiver=receiver)
        network = network_of(parsed)
        data: list[Port] = [network.open_port(MEMORY_GROUP)]
        return _subscribe(data, network.open_port(), queue, feed, topics, payload, spin, lag)
    if parsed.scheme.startswith("zmq"):
        from .zeromq.directory import MAX_SESSIONS
        from .zeromq.opening import RETRY_FLOOR_S, open_member, open_zeromq_port
        from .zeromq.sharing import GroupOptions, ask_for_last

        receiver = replace(receiver, retry_floor_s=RETRY_FLOOR_S)
        feed = FeedOptions(start=start, max_sessions=MAX_SESSIONS, probe=False, receiver=receiver)
        if group is not None:
            if on_overflow != "drop_oldest" or lag.is_watched:
                raise ConfigurationError(
                    "in a group on_overflow, max_age_s and max_lag have no meaning: what is not "
                    "done waits at the publisher"
                )
            sharing = GroupOptions(group, order_by, ack, ack_timeout_s, prefetch)
            return open_member(parsed, topics, sharing, feed, spin=spin)
        events = open_zeromq_port(
            parsed,
            topics,
            window=queue_events,
            block_timeout_s=block_timeout_s,
            claim=None if history is None else lambda name: ask_for_last(name, topics),
        )
        return _subscribe(
            [events],
            events.requests,
            queue,
            feed,
            topics,
            "event",
            spin,
            lag,
            events.directory,
            events.requests if on_overflow == "block" else None,
        )
    address = parse_multicast(parsed)
    feed = FeedOptions(
        start=start,
        sessions=None if address.session is None else frozenset({address.session}),
        servers=address.servers,
        receiver=receiver,
    )
    ports: list[Port] = []
    try:
        for path in range(len(address.groups)):
            ports.append(open_data_port(address, path))  # noqa: PERF401, closed below on a fault
        ports.append(open_request_port(address))
    except BaseException:
        for port in ports:
            port.close()
        raise
    if address.loss:
        dice = Xorshift(address.seed)
        ports = [LossyPort(port, address.loss, dice) for port in ports]
    return _subscribe(ports[:-1], ports[-1], queue, feed, topics, address.payload, spin, lag)


def _payload(url: TransportURL) -> Literal["event", "raw"]:
    payload = url.options.get("payload", "event")
    if payload not in ("event", "raw"):
        raise ConfigurationError(f"payload={payload} in {url.text!r}: expected 'event' or 'raw'")
    return cast(Literal["event", "raw"], payload)


def _subscribe(
    data: Sequence[Port],
    requests: Port,
    queue_options: QueueOptions,
    feed: FeedOptions,
    topics: Sequence[str],
    payload: Literal["event", "raw"],
    spin: bool,
    lag: LagOptions,
    registry: Registry | None = None,
    backpressure: Backpressure | None = None,
) -> Subscriber:
    with _closed_on_fault(*data, requests):
        watch = LagWatch(lag) if lag.is_watched else None
        queue = HandoverQueue(queue_options, None if watch is None else watch.is_stale)
        ledger = Ledger()
        intake = Intake(
            data,
            requests,
            queue,
            ledger,
            feed,
            topics=topics,
            payload=payload,
            registry=registry,
            backpressure=backpressure,
            watch=watch,
        )
        return Subscriber(intake, queue, ledger, spin=spin, watch=watch)


@contextmanager
def _closed_on_fault(*ports: Port) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for port in ports:
            port.close()
        raise
