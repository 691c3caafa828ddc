"""The sparse index: every frame is found from a place not far before it."""

from onehop.transport.segment_log.frames import FILE_HEADER_BYTES
from onehop.transport.segment_log.index import INDEX_EVERY_BYTES, SegmentIndex


def test_nearest_place_is_at_or_before_the_frame_and_near() -> None:
    index = SegmentIndex(10)
    offsets = {}
    for number in range(10, 5010):
        offsets[number] = index.end_offset
        index.advance(100 + number % 7)
    for number, offset in offsets.items():
        known, at = index.nearest(number)
        assert known <= number
        assert offsets[known] == at
        assert offset - at < INDEX_EVERY_BYTES + 107


def test_place_after_the_end_is_the_end() -> None:
    index = SegmentIndex(5)
    assert index.nearest(5) == (5, FILE_HEADER_BYTES)
    index.advance(30)
    assert index.nearest(6) == index.nearest(99) == (6, FILE_HEADER_BYTES + 30)
