"""What a segment log raises beyond a plain `LogError`.

LogError         the disk refused, another writer holds the log, or the log must be reopened
├── LogFull      the append would pass `max_bytes`
├── LogCorrupt   bytes on disk are not what was written; names the file and the byte
└── NotInLog     the frame was dropped, or is not written yet
"""

from onehop.transport.errors import LogError


class LogFull(LogError):
    """The append would pass `max_bytes`; nothing was written."""


class NotInLog(LogError):
    """The frame asked for was dropped already, or is not written yet."""


class LogCorrupt(LogError):
    """Bytes on disk are not what was written, at a place no crash can explain."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path}: byte {offset}: {reason}")
        self.path = path
        self.offset = offset
