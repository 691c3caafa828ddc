"""Frames out of a socket, plain or compiled (`_frames.pyx`).

The compiled side calls the functions of libzmq itself. Where pyzmq has another backend, or none of
it was compiled, the plain side and the plain lane do the same.
"""

from typing import TYPE_CHECKING

import zmq

from ..datagrams import COMPILED
from ..lane import Lane
from .sockets import Socket


class PlainSender:
    """Sends frames, without waiting."""

    def __init__(self, sock: Socket) -> None:
        self._socket = sock

    def send(self, frames: list[bytes]) -> None:
        """Sends each; raises `ZMQError` when the socket takes no more."""
        for frame in frames:
            self._socket.send(frame, zmq.DONTWAIT)


FrameSender = PlainSender
SocketLane: type[Lane] | None = None
"""A lane that reads a socket itself, where there is one."""

if COMPILED and not TYPE_CHECKING:
    try:
        from ._frames import FrameSender, SocketLane
    except ImportError:  # another libzmq than that of pyzmq's own wheels
        FrameSender, SocketLane = PlainSender, None
