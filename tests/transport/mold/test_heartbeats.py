"""When heartbeats are due."""

from itertools import pairwise

import pytest

from onehop.transport.mold.heartbeats import FIRST_S, IDLE_S, HeartbeatSchedule


def beats_after_a_message(seconds: float) -> list[float]:
    """When heartbeats go out after a message at time 0, if each goes out as it is due."""
    schedule = HeartbeatSchedule(-5.0)
    schedule.sent(0.0)
    beats = []
    while schedule.due_at <= seconds:
        beats.append(schedule.due_at)
        schedule.beat(schedule.due_at)
    return beats


def test_the_first_is_due_at_once() -> None:
    assert HeartbeatSchedule(7.0).due_at == 7.0


def test_after_a_message_they_come_in_a_burst_that_decays() -> None:
    beats = [round(beat * 1000) for beat in beats_after_a_message(0.6)]
    assert beats == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def test_the_burst_decays_to_one_a_second() -> None:
    beats = beats_after_a_message(20.0)
    pauses = [round(after - before, 6) for before, after in pairwise(beats)]
    assert pauses[-15:] == [IDLE_S] * 15
    assert pauses == sorted(pauses)


def test_each_message_starts_the_burst_anew() -> None:
    schedule = HeartbeatSchedule(0.0)
    for _ in range(12):
        schedule.beat(schedule.due_at)
    schedule.sent(50.0)
    assert schedule.due_at == 50.0 + FIRST_S
    schedule.beat(50.0 + FIRST_S)
    assert schedule.due_at == pytest.approx(50.0 + 2 * FIRST_S)


def test_while_messages_flow_none_is_due() -> None:
    schedule = HeartbeatSchedule(0.0)
    for step in range(1000):
        now = step * FIRST_S * 0.9
        schedule.sent(now)
        assert schedule.due_at > now


def test_one_that_goes_out_late_delays_the_next() -> None:
    schedule = HeartbeatSchedule(0.0)
    schedule.sent(0.0)
    schedule.beat(3.0)
    assert schedule.due_at == 3.0 + FIRST_S
