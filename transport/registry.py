"""What a transport knows of sessions beside their packets: whose they are, and since when."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Identity(NamedTuple):
    """Whose a session is."""

    source: str
    epoch: int
    stream: str


class Registry(Protocol):
    """Asked by the intake about each session once."""

    @property
    def ignored(self) -> Mapping[str, int]:
        """What came and was of no session, by reason."""

    def identify(self, session: bytes) -> Identity:
        """Whose a session is, before its first event."""

    def is_new(self, session: bytes) -> bool:
        """True when it began after us."""
