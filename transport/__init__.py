"""Publish and subscribe in one hop, with an account of every message."""

from .errors import (
    Closed,
    ConfigurationError,
    Disconnected,
    Lagging,
    LimitError,
    LocalError,
    LogError,
    Malformed,
    OnehopError,
    RemoteError,
    UnsupportedValue,
)
from .event import Event, Loss, LossReason
from .group_account import GroupSnapshot
from .handover import Overflow
from .histogram import Histogram
from .intake import PathSnapshot
from .lag import Lag, OnLag
from .ledger import LedgerSnapshot, StreamSnapshot
from .mold.requests import RequestOptions
from .mold.ring import RingOptions
from .opening import open_publisher, open_subscriber
from .publisher import Publisher, PublisherSnapshot
from .subscriber import Subscriber

__all__ = [
    "Closed",
    "ConfigurationError",
    "Disconnected",
    "Event",
    "GroupSnapshot",
    "Histogram",
    "Lag",
    "Lagging",
    "LedgerSnapshot",
    "LimitError",
    "LocalError",
    "LogError",
    "Loss",
    "LossReason",
    "Malformed",
    "OnLag",
    "OnehopError",
    "Overflow",
    "PathSnapshot",
    "Publisher",
    "PublisherSnapshot",
    "RemoteError",
    "RequestOptions",
    "RingOptions",
    "StreamSnapshot",
    "Subscriber",
    "UnsupportedValue",
    "open_publisher",
    "open_subscriber",
]
