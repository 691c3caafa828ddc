"""Holds Ctrl-C back while something is done that must be done whole.

Python raises `KeyboardInterrupt` between any two steps of the main thread; in the middle of an
account it would leave it half written. Here it is raised when the block is left. Other threads
never get it, and need no shield.
"""

import threading
from _signal import SIGINT, getsignal, signal  # below the wrappers of `signal`: a tenth of the cost
from types import FrameType, TracebackType


class Shield:
    """`with shield:` is not interrupted by Ctrl-C; costs about a microsecond."""

    __slots__ = ("_depth", "_handler", "_interrupted", "_main")

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._depth = 0
        self._handler: object = None
        self._interrupted: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.get_ident() != self._main:
            return
        self._depth += 1
        if self._depth == 1:
            handler = getsignal(SIGINT)
            if callable(handler):
                self._handler = handler
                signal(SIGINT, self._note)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if threading.get_ident() != self._main:
            return
        self._depth -= 1
        if self._depth or self._handler is None:
            return
        handler, self._handler = self._handler, None
        assert callable(handler)
        signal(SIGINT, handler)
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None:
            handler(*interrupted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = (number, frame)
