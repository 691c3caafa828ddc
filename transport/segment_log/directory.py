"""The directory of a log: the names of its segments, its lock, and making names durable."""

import fcntl
import os
import re

from onehop.transport.errors import LogError

LOCK_NAME = "lock"
_SEGMENT_NAME = re.compile(r"[0-9]{20}\.seg")


def segment_path(directory: str, first: int) -> str:
    """Return the path of the segment that begins with frame `first`."""
    return os.path.join(directory, f"{first:020}.seg")


def list_segments(directory: str) -> list[int]:
    """Return the first frame of each segment, in order. Files of other names are ignored."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise LogError(
            error.errno, f"{directory}: cannot list the log: {error.strerror}"
        ) from error
    return sorted(int(name[:20]) for name in names if _SEGMENT_NAME.fullmatch(name))


def sync_directory(directory: str) -> None:
    """Make the names in `directory` survive a power loss."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: str) -> None:
    """Create `directory` and its parents where missing, and make its own name durable."""
    if not os.path.isdir(directory):
        os.makedirs(directory, exist_ok=True)
        sync_directory(os.path.dirname(os.path.abspath(directory)))


class WriterLock:
    """The right to write to a log, held until `release` or the end of the process.

    A child made by `fork` without `exec` shares the lock, and keeps it while it lives.
    """

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, LOCK_NAME)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if not isinstance(error, BlockingIOError):
                raise
            raise LogError(error.errno, f"{path}: another writer holds this log") from error

    def release(self) -> None:
        """Let another writer in. Harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
