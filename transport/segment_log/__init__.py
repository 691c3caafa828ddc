"""An append-only log of numbered frames in a directory, which a crash cannot tear."""

from onehop.transport.segment_log.errors import LogCorrupt, LogFull, NotInLog
from onehop.transport.segment_log.frames import MAX_BATCH_BYTES, MAX_FRAME_BYTES
from onehop.transport.segment_log.options import LogOptions
from onehop.transport.segment_log.reader import SegmentReader
from onehop.transport.segment_log.writer import SegmentLog

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_FRAME_BYTES",
    "LogCorrupt",
    "LogFull",
    "LogOptions",
    "NotInLog",
    "SegmentLog",
    "SegmentReader",
]
