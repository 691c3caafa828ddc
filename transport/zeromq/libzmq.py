"""Where the functions of the libzmq that pyzmq has loaded are, for the compiled modules.

pyzmq brings its own libzmq and no header to compile against; the few functions that are used here
have been the same in all versions of libzmq 4.
"""

import ctypes
import importlib
from functools import cache

BACKEND = "zmq.backend.cython._zmq"
"""The module of pyzmq that is linked with libzmq."""


@cache
def _library() -> ctypes.CDLL:
    path = importlib.import_module(BACKEND).__file__
    return ctypes.CDLL(path)


def address(function: str) -> int:
    """Where a function is; raises `ImportError` where it cannot be had."""
    try:
        found = ctypes.cast(getattr(_library(), function), ctypes.c_void_p).value
    except (AttributeError, OSError) as fault:
        raise ImportError(f"libzmq has no {function}: {fault}") from None
    if not found:
        raise ImportError(f"libzmq has no {function}")
    return found
