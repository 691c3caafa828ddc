"""What `frames.py` and the lane of `data_port.py` do, compiled."""

from onehop.transport.lane import PythonLane
from onehop.transport.zeromq.frames import PlainSender as FrameSender

class SocketLane(PythonLane):
    """A lane that reads the one socket of a `DataPort`."""

__all__ = ["FrameSender", "SocketLane"]
