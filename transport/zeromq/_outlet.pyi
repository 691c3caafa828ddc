"""The compiled side of `outlet.py`, which documents it."""

from onehop.transport.zeromq.last_values import PythonRemembered as Remembered
from onehop.transport.zeromq.outlet import PythonOutlet as Outlet
from onehop.transport.zeromq.outlet import PythonStream as Stream

__all__ = ["Outlet", "Remembered", "Stream"]
