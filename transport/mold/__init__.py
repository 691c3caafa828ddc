"""MoldUDP64 without I/O: bytes and the time go in; messages, losses and bytes come out."""

from .feed import Feed, FeedOptions, Followed
from .outputs import Lost, Run
from .receiver_options import ReceiverOptions
from .requests import RequestDesk, RequestOptions
from .ring import RingOptions
from .sender import SenderOptions, SenderSession
from .sessions import epoch_of, new_session, parse_session, show_session

__all__ = [
    "Feed",
    "FeedOptions",
    "Followed",
    "Lost",
    "ReceiverOptions",
    "RequestDesk",
    "RequestOptions",
    "RingOptions",
    "Run",
    "SenderOptions",
    "SenderSession",
    "epoch_of",
    "new_session",
    "parse_session",
    "show_session",
]
