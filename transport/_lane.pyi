"""The compiled side of `lane.py`, which documents both."""

from onehop.transport.lane import PythonLane as Lane
from onehop.transport.lane import PythonLane as MessageLane

__all__ = ["Lane", "MessageLane"]
