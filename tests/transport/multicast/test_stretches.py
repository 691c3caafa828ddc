"""The index of a log: a place for each stretch, bounded."""

import pytest

from onehop.transport.multicast.stretches import NEAR_FRAMES, STRETCH, Stretches


def test_the_index_takes_a_place_for_each_stretch() -> None:
    stretches = Stretches()
    for frame in range(1, 10 * STRETCH):
        stretches.note(frame, frame + 1, frame)
    assert len(stretches) == 10
    assert stretches.frames_of(5 * STRETCH) == [(5 * STRETCH, 6 * STRETCH - 1)]
    assert stretches.frames_of(10 * STRETCH) == []


@pytest.mark.parametrize(("places", "length"), [(7, STRETCH), (8, STRETCH), (9, 2 * STRETCH)])
def test_at_the_bound_stretches_double(places: int, length: int) -> None:
    stretches = Stretches(max_places=8)
    for number in range(1, places * STRETCH):
        stretches.note(number, number + 1, number)
    assert stretches.length == length
    assert len(stretches) <= 8
    for number in range(1, places * STRETCH):
        assert any(low <= number <= high for low, high in stretches.frames_of(number))


@pytest.mark.parametrize(("after", "parts"), [(NEAR_FRAMES, 1), (NEAR_FRAMES + 1, 2)])
def test_a_late_repair_does_not_widen_its_stretch(after: int, parts: int) -> None:
    stretches = Stretches()
    stretches.note(1, 11, 1)
    stretches.note(11, 12, 1 + after)
    assert len(stretches.frames_of(11)) == parts
    assert any(low <= 1 + after <= high for low, high in stretches.frames_of(11))


@pytest.mark.parametrize(("strays", "parts"), [(2, 3), (3, 4), (4, 4)])
def test_beyond_the_most_strays_stretches_are_widened(strays: int, parts: int) -> None:
    stretches = Stretches(max_strays=3)
    frames = [1 + at * (NEAR_FRAMES + 2_000) for at in range(strays + 1)]
    for frame in frames:
        stretches.note(1, 2, frame)
    found = stretches.frames_of(1)
    assert len(found) == parts
    assert all(any(low <= frame <= high for low, high in found) for frame in frames)
