"""The compiled side of `lane.py`, which documents both."""

from onehop.transport.lane import PythonLane as Lane

__all__ = ["Lane"]
