"""A budget of bytes per second."""

import pytest

from onehop.transport.mold.budget import ByteBudget


def test_a_fresh_budget_allows_one_burst() -> None:
    budget = ByteBudget(1000, 5000, now=0.0)
    assert budget.has(5000, 0.0)
    budget.spend(5000)
    assert not budget.has(100, 0.0)


def test_it_refills_at_its_rate() -> None:
    budget = ByteBudget(1000, 5000, now=0.0)
    budget.spend(5000)
    assert not budget.has(1000, 0.9)
    assert budget.has(1000, 1.0)
    assert not budget.has(1100, 1.0)


def test_it_never_holds_more_than_a_burst() -> None:
    budget = ByteBudget(1000, 5000, now=0.0)
    assert budget.has(5000, 1000.0)
    budget.spend(5000)
    assert not budget.has(100, 1000.0)


def test_more_than_a_burst_needs_a_full_bucket_and_goes_into_debt() -> None:
    budget = ByteBudget(1000, 500, now=0.0)
    assert budget.has(1400, 0.0)
    budget.spend(1400)
    assert not budget.has(1400, 1.3)
    assert budget.has(1400, 1.4)


def test_time_that_runs_backwards_refills_nothing() -> None:
    budget = ByteBudget(1000, 5000, now=10.0)
    budget.spend(5000)
    assert not budget.has(100, 5.0)
    assert budget.has(100, 10.1)


def test_what_may_be_spent_now_is_ready_now() -> None:
    assert ByteBudget(1000, 5000, now=3.0).ready_at(5000, 3.0) == 3.0


@pytest.mark.parametrize("now", [0.0, 0.3, 1e4, 1e7 + 0.1])
@pytest.mark.parametrize("rate", [7.0, 1e6 / 3, 32e6])
def test_at_the_time_it_says_it_is_ready(now: float, rate: float) -> None:
    budget = ByteBudget(rate, 4000, now=now)
    for _ in range(50):
        budget.spend(1400)
        ready_at = budget.ready_at(1400, now)
        assert budget.has(1400, now) == (ready_at == now)
        assert budget.has(1400, ready_at)
        now = ready_at


def test_over_a_long_time_the_rate_is_kept() -> None:
    budget = ByteBudget(10_000, 2000, now=0.0)
    spent, now = 0, 0.0
    while now < 60.0:
        if budget.has(1400, now):
            budget.spend(1400)
            spent += 1400
        now += 0.01
    assert 598_000 <= spent <= 603_500
