"""How large a log may grow, and when what it holds reaches the disk."""

from dataclasses import dataclass
from typing import Literal

from onehop.transport.errors import ConfigurationError
from onehop.transport.segment_log.frames import FILE_HEADER_BYTES, FRAME_HEADER_BYTES

MIN_SEGMENT_BYTES = FILE_HEADER_BYTES + FRAME_HEADER_BYTES
"""A segment has room for one frame at least."""
MAX_SEGMENT_BYTES = 1 << 30
"""Opening for writing reads the whole last segment; this bounds how long that takes."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The settings of one `SegmentLog`."""

    segment_bytes: int = 64 * 1024 * 1024
    """Size at which a new file begins; one append larger than this has a file of its own."""
    max_bytes: int | None = None
    """Bound on the size of all files, at least two segments; `None` leaves it to the disk."""
    when_full: Literal["refuse", "drop_oldest"] = "refuse"
    """At `max_bytes`: raise `LogFull`, or drop the oldest files. Losing nothing is the default."""
    max_age_s: float | None = None
    """Age at which `drop_expired` drops a file; `None` keeps files however old they are."""
    sync: Literal["manual", "group", "always"] = "group"
    """Who syncs: only `sync()`, also `sync_if_due(now)`, or every append before it returns."""
    sync_every_s: float = 0.05
    """Least time between two group syncs; a disk flush costs about 1-10 ms, so 50 ms is cheap."""

    def __post_init__(self) -> None:
        if not MIN_SEGMENT_BYTES <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ConfigurationError(
                f"segment_bytes is {self.segment_bytes}, "
                f"expected {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}"
            )
        if self.max_bytes is not None and self.max_bytes < 2 * self.segment_bytes:
            raise ConfigurationError(
                f"max_bytes is {self.max_bytes}, expected at least two segments of "
                f"{self.segment_bytes}: the oldest can only go while another one is written"
            )
        if self.max_age_s is not None and not self.max_age_s > 0:
            raise ConfigurationError(f"max_age_s is {self.max_age_s}, expected more than 0")
        if not self.sync_every_s >= 0:
            raise ConfigurationError(f"sync_every_s is {self.sync_every_s}, expected 0 or more")
        if self.when_full not in ("refuse", "drop_oldest"):
            raise ConfigurationError(
                f"when_full is {self.when_full!r}, expected refuse or drop_oldest"
            )
        if self.sync not in ("manual", "group", "always"):
            raise ConfigurationError(f"sync is {self.sync!r}, expected manual, group or always")
