"""The time of events by one clock, whatever the clocks of their sources are off."""

from random import Random

import pytest

from onehop.bridge import event_time as module
from onehop.bridge.event_time import (
    MAX_AHEAD_S,
    MAX_BEHIND_S,
    SLICE_S,
    WINDOW_S,
    EventClock,
    LeastDifference,
)

NS = 1_000_000_000
NOW = 1_800_000_000 * NS


def test_a_clock_that_is_off_is_set_right_but_for_the_least_delay() -> None:
    clock, random = EventClock(), Random(1)
    off_ns = 3600 * NS
    errors = []
    for number in range(1000):
        happened = NOW + number * NS // 100
        delay = 50_000 + int(random.expovariate(1 / 1e6))
        time = clock.event_time_ns("me", 1, happened + off_ns, happened + off_ns, happened + delay)
        errors.append(time - happened)
    assert errors[-1] == min(errors)
    assert 50_000 <= errors[-1] < 60_000
    assert not clock.unbelievable


def test_what_waited_at_the_sender_keeps_the_time_when_it_happened() -> None:
    clock = EventClock()
    assert clock.event_time_ns("me", 1, NOW, NOW, NOW + 10) == NOW + 10
    assert clock.event_time_ns("me", 1, NOW - 5 * NS, NOW + NS, NOW + NS + 30) == NOW - 5 * NS + 10


def test_each_life_of_a_source_has_a_clock_of_its_own() -> None:
    clock = EventClock()
    assert clock.event_time_ns("me", 1, NOW - NS, NOW - NS, NOW) == NOW
    assert clock.event_time_ns("me", 2, NOW, NOW, NOW) == NOW
    assert clock.event_time_ns("you", 1, NOW + NS, NOW + NS, NOW) == NOW
    assert len(clock) == 3


@pytest.mark.parametrize(
    ("occurred", "sent", "received", "expected"),
    [(0, NOW, NOW + 1, NOW + 1), (NOW, 0, NOW + 1, NOW + 1), (0, 0, NOW, NOW), (NOW, NOW, 0, NOW)],
)
def test_times_that_are_unknown_are_those_of_the_receipt(
    occurred: int, sent: int, received: int, expected: int
) -> None:
    clock = EventClock()
    assert clock.event_time_ns("me", 1, occurred, sent, received) == expected
    assert len(clock) == 0


AHEAD, BEHIND = int(MAX_AHEAD_S) * NS, int(MAX_BEHIND_S) * NS


@pytest.mark.parametrize(
    ("occurred", "reason"),
    [
        (NOW + AHEAD, None),
        (NOW + AHEAD + 1, "too_far_ahead"),
        (2**63 - 1, "too_far_ahead"),
        (NOW - BEHIND, None),
        (NOW - BEHIND - 1, "too_far_behind"),
        (1, "too_far_behind"),
        (-(2**63), "too_far_behind"),
    ],
)
def test_a_time_that_no_clock_is_wrong_by_is_counted_and_not_believed(
    occurred: int, reason: str | None
) -> None:
    clock = EventClock()
    time = clock.event_time_ns("me", 1, occurred, NOW, NOW)
    assert time == (occurred if reason is None else NOW)
    assert dict(clock.unbelievable) == ({} if reason is None else {reason: 1})


def test_one_message_with_an_impossible_time_does_not_move_the_others_for_long() -> None:
    """Sent in 1970 by its header, or after it was received: the offset follows the window."""
    clock = EventClock()
    clock.event_time_ns("me", 1, NOW + 9 * NS, NOW + 9 * NS, NOW)
    later = NOW + int(WINDOW_S + SLICE_S) * NS
    assert clock.event_time_ns("me", 1, later, later, later) == later


def test_the_least_is_that_of_the_window_at_any_time() -> None:
    random = Random(7)
    least, seen = LeastDifference(), []
    now = NOW
    for _ in range(6000):  # twice the window
        now += int(random.expovariate(1 / (0.1 * NS)))
        difference = int(random.gauss(0, 1e6)) + (now - NOW) // 1000
        seen.append((now, difference))
        found = least.add(difference, now)
        window, slice_ns = int(WINDOW_S) * NS, int(SLICE_S) * NS
        inside = [d for at, d in seen if at >= now - window + slice_ns]
        around = [d for at, d in seen if at >= now - window - slice_ns]
        assert min(around) <= found <= min(inside)
        assert len(least._least) <= WINDOW_S / SLICE_S + 1


@pytest.mark.parametrize(("sources", "remembered"), [(2, 2), (3, 3), (4, 3)])
def test_sources_are_bounded_and_the_longest_silent_begins_anew(
    sources: int, remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SOURCES", 3)
    clock = EventClock()
    clock.event_time_ns("0", 1, NOW + 5, NOW + 5, NOW)  # the least it will ever see
    for number in range(1, sources):
        clock.event_time_ns(str(number), 1, NOW, NOW, NOW)
        clock.event_time_ns("0", 1, NOW, NOW, NOW)  # never silent
    assert len(clock) == remembered
    assert clock.event_time_ns("0", 1, NOW, NOW, NOW) == NOW - 5  # and not forgotten
