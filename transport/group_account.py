"""The account of a group of subscribers that share the work, as its publisher keeps it.

For each group, at any moment and exactly:

    accepted   = acknowledged + waiting + outstanding + lost
    handed_out = acknowledged + outstanding + taken_back + lost as `ended`

`accepted` is what was published on its topics since its first member came; `handed_out` is what the
ledgers of all its members expect, once everything that was sent has come.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The account of one group at one moment."""

    name: str
    accepted: int
    acknowledged: int
    waiting: int
    outstanding: int
    """Handed out, and neither done nor taken back."""
    lost: Mapping[str, int]
    """`overflow`: more waited than is kept; `failed`: nobody got it done; `ended`: its member is
    gone, in a group that does not acknowledge."""
    handed_out: int
    taken_back: int
    """Handed out to a member that did not do it; each goes to another."""
    members: Mapping[str, int]
    """What each member has at the moment, by its name."""

    @property
    def is_balanced(self) -> bool:
        """True when both sums hold. Anything else is a fault."""
        settled = self.acknowledged + self.outstanding
        return self.accepted == settled + self.waiting + sum(
            self.lost.values()
        ) and self.handed_out == settled + self.taken_back + self.lost.get("ended", 0)
