"""A publisher or subscriber stays with the process that opened it.

A forked child has its memory and its descriptors, and none of its threads: whatever it did with
them would go wrong, now or in the parent. So there they are closed from the beginning.
"""

import os
from typing import Protocol
from weakref import WeakSet


class StaysWithParent(Protocol):
    """Something that a child must not use."""

    def leave_to_parent(self) -> None:
        """Called in the child: closed, with nothing told to anybody."""


_open: WeakSet[StaysWithParent] = WeakSet()


def stays_with_parent(thing: StaysWithParent) -> None:
    """From now on children find it closed."""
    _open.add(thing)


def _leave() -> None:
    for thing in list(_open):
        thing.leave_to_parent()


os.register_at_fork(after_in_child=_leave)
