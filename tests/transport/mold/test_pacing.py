"""How long a receiver waits, before it asks and before it asks again."""

from random import Random

import pytest

from onehop.transport.mold.pacing import (
    FIRST_RTT_GUESS_S,
    RETRY_CEILING_S,
    RETRY_FLOOR_S,
    RETRY_LONGEST_S,
    SECOND_PATH_SKEW_S,
    STRAGGLER_CEILING_S,
    STRAGGLER_MARGIN,
    STRAGGLER_MEMORY_S,
    TOO_SOON,
    Pacing,
)

JITTER = 1.5


def pacing_at(rtt_s: float | None, seed: int = 0) -> Pacing:
    """A pacing that has seen many replies which took `rtt_s`."""
    pacing = Pacing(Random(seed))
    for _ in range(0 if rtt_s is None else 100):
        assert rtt_s is not None
        pacing.reply_took(rtt_s)
    return pacing


def retries(pacing: Pacing, attempts: int, samples: int = 200) -> list[float]:
    return [pacing.retry_after(attempts) for _ in range(samples)]


# -- before the first request --------------------------------------------------------------------


def test_a_new_gap_is_asked_for_at_once() -> None:
    assert pacing_at(None).first_after(5.0, paths=1) == 0.0


def test_with_a_second_path_it_gets_a_moment_to_come_that_way() -> None:
    assert pacing_at(None).first_after(5.0, paths=2) == SECOND_PATH_SKEW_S


def test_after_a_straggler_gaps_get_as_long_as_it_took_and_a_margin() -> None:
    pacing = pacing_at(None)
    pacing.straggler_took(0.004, now=5.0)
    for paths in (1, 2):
        assert pacing.first_after(5.1, paths) == pytest.approx(0.004 * STRAGGLER_MARGIN)


def test_the_slowest_recent_straggler_counts() -> None:
    pacing = pacing_at(None)
    for took in (0.001, 0.006, 0.002):
        pacing.straggler_took(took, now=5.0)
    assert pacing.first_after(5.0, 1) == pytest.approx(0.006 * STRAGGLER_MARGIN)


def test_the_wait_for_stragglers_is_bounded() -> None:
    pacing = pacing_at(None)
    pacing.straggler_took(3.0, now=5.0)
    assert pacing.first_after(5.0, 1) == STRAGGLER_CEILING_S


def test_stragglers_are_forgotten_by_halves() -> None:
    pacing = pacing_at(None)
    pacing.straggler_took(0.008, now=5.0)
    wait = 0.008 * STRAGGLER_MARGIN
    assert pacing.first_after(5.0 + 0.9 * STRAGGLER_MEMORY_S, 1) == pytest.approx(wait)
    assert pacing.first_after(5.0 + 1.1 * STRAGGLER_MEMORY_S, 1) == pytest.approx(wait / 2)
    assert pacing.first_after(5.0 + 2.1 * STRAGGLER_MEMORY_S, 1) == pytest.approx(wait / 4)
    assert pacing.first_after(5.0 + 20 * STRAGGLER_MEMORY_S, 1) == 0.0


# -- before asking again -------------------------------------------------------------------------


def test_before_any_reply_a_guess_is_made() -> None:
    waits = retries(pacing_at(None), 1)
    assert min(waits) >= 2 * FIRST_RTT_GUESS_S
    assert max(waits) <= 2 * FIRST_RTT_GUESS_S * JITTER


@pytest.mark.parametrize("rtt_s", [0.002, 0.02, 0.2])
def test_a_retry_is_paced_by_the_time_replies_take_and_never_comes_before_one(rtt_s: float) -> None:
    waits = retries(pacing_at(rtt_s), 1)
    assert min(waits) > rtt_s
    assert max(waits) < rtt_s * 1.3 * JITTER


def test_a_retry_never_comes_sooner_than_a_millisecond() -> None:
    assert min(retries(pacing_at(0.00002), 1)) >= RETRY_FLOOR_S


def test_replies_that_vary_make_retries_more_patient() -> None:
    steady, varying = pacing_at(0.010), Pacing(Random(0))
    for step in range(100):
        varying.reply_took(0.005 if step % 2 else 0.015)
    assert min(retries(varying, 1)) > max(retries(steady, 1))
    assert min(retries(varying, 1)) > 0.015


def test_each_retry_waits_twice_as_long_up_to_the_ceiling() -> None:
    pacing = pacing_at(0.002)
    shortest = [min(retries(pacing, attempts)) for attempts in range(1, 12)]
    for attempts in range(4):
        assert shortest[attempts + 1] == pytest.approx(2 * shortest[attempts], rel=0.02)
    assert shortest[-1] == pytest.approx(RETRY_CEILING_S, rel=0.02)
    assert max(retries(pacing, 1000)) <= RETRY_CEILING_S * JITTER


def test_the_ceiling_is_no_less_than_a_reply_takes() -> None:
    assert min(retries(pacing_at(0.4), 8)) > 0.4


def test_retries_are_spread_so_that_receivers_do_not_ask_in_step() -> None:
    waits = retries(pacing_at(0.010), 1)
    assert max(waits) / min(waits) > 1.4
    assert len(set(waits)) == len(waits)
    assert retries(pacing_at(0.010, seed=1), 1) != retries(pacing_at(0.010, seed=2), 1)


def test_the_estimate_follows_when_replies_get_faster_or_slower() -> None:
    pacing = pacing_at(0.020)
    for _ in range(60):
        pacing.reply_took(0.001)
    assert pacing.rtt_s == pytest.approx(0.001, rel=0.1)
    for _ in range(60):
        pacing.reply_took(0.020)
    assert pacing.rtt_s == pytest.approx(0.020, rel=0.1)


def test_a_reply_after_a_retry_may_raise_the_estimate_and_never_lowers_it() -> None:
    pacing = pacing_at(0.010)
    for elapsed_s in (0.001, 0.006, 0.0099):
        pacing.late_reply_took(elapsed_s, 0.009)
        assert pacing.rtt_s == pytest.approx(0.010)
    pacing.late_reply_took(0.050, 0.100)
    assert pacing.rtt_s == pytest.approx(0.010 + 0.040 / 8)


def test_replies_too_soon_for_the_last_request_are_believed_to_answer_the_one_before() -> None:
    pacing = pacing_at(0.010)
    for _ in range(TOO_SOON - 1):
        pacing.late_reply_took(0.001, 0.018)
        assert pacing.rtt_s == pytest.approx(0.010)
    pacing.late_reply_took(0.001, 0.018)
    assert pacing.rtt_s == pytest.approx(0.010 + 0.008 / 8)


def test_a_reply_before_a_retry_shows_that_retries_do_not_come_too_soon() -> None:
    pacing = pacing_at(0.010)
    for _ in range(20):
        for _ in range(TOO_SOON - 1):
            pacing.late_reply_took(0.001, 0.018)
        pacing.reply_took(0.010)
    assert pacing.rtt_s == pytest.approx(0.010)


@pytest.mark.parametrize("seed", range(5))
def test_lost_requests_do_not_make_the_wait_longer_and_longer(seed: int) -> None:
    random = Random(seed)
    pacing = Pacing(Random(seed))
    pacing.reply_took(0.5)  # an outlier to begin with
    for _ in range(300):  # gaps; every third request or its reply is lost, others take 1 ms
        asked = [0.0]
        while random.random() < 0.36:
            asked.append(asked[-1] + pacing.retry_after(len(asked)))
        if len(asked) == 1:
            pacing.reply_took(0.001)
        else:
            pacing.late_reply_took(0.001, asked[-1] - asked[-2] + 0.001)
    assert max(retries(pacing, 1)) < 0.010


def test_no_wait_is_longer_than_a_second_and_its_spread() -> None:
    pacing = pacing_at(30.0)
    assert min(retries(pacing, 1)) >= RETRY_LONGEST_S
    assert max(retries(pacing, 9)) <= RETRY_LONGEST_S * JITTER


@pytest.mark.parametrize("reply_s", [0.02, 0.1, 0.3])
def test_replies_slower_than_the_guess_are_soon_waited_for(reply_s: float) -> None:
    pacing = Pacing(Random(3))
    requests = []
    for _ in range(120):  # gaps, one after the other
        asked = [0.0]
        while (again_at := asked[-1] + pacing.retry_after(len(asked))) < reply_s:
            asked.append(again_at)
        requests.append(len(asked))
        if len(asked) == 1:
            pacing.reply_took(reply_s)
        else:
            pacing.late_reply_took(reply_s - asked[-1], reply_s - asked[-2])
    assert requests[0] > 1
    assert sum(requests[-20:]) == 20
