"""The compiled side of `data_port.py`'s lane, which is plain over what the port reads."""

from onehop.transport.lane import PythonLane

class SocketLane(PythonLane):
    """A lane that reads the one socket of a `DataPort`."""

__all__ = ["SocketLane"]
