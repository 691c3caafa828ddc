"""Ctrl-C and SIGTERM for commands that end with an account: noted, and looked at between events.

An exception out of a signal handler may come between any two steps, also between an event that is
counted and its output. So the first signal only sets a flag; a second one ends the command at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Whether the user wants the command to end."""

    def __init__(self) -> None:
        self.noted = threading.Event()
        self._may_raise = False

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self._may_raise or self.noted.is_set():
            raise KeyboardInterrupt
        self.noted.set()

    @contextmanager
    def welcome(self) -> Iterator[None]:
        """Around a wait that only an exception can end, like reading standard input."""
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False


def note_interrupts() -> Interrupts:
    """From now on signals are noted."""
    interrupts = Interrupts()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupts.handle)
    return interrupts
