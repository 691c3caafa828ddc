"""Which event of a group goes next, and to whom it may go."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.transport.zeromq.backlog import Backlog, Job


def job(number: int, key: str | None = None) -> Job:
    return Job(number, "s", number, key, b"x" * number)


def filled(*keys: str | None, is_ordered: bool = True) -> Backlog:
    backlog = Backlog(is_ordered=is_ordered)
    for number, key in enumerate(keys, 1):
        backlog.add(job(number, key))
    return backlog


def taken(backlog: Backlog, holder: str) -> int | None:
    found = backlog.take(holder)
    return None if found is None else found.number


def test_the_oldest_goes_first() -> None:
    backlog = filled(None, None, None)
    assert [taken(backlog, "a") for _ in range(4)] == [1, 2, 3, None]
    assert (len(backlog), backlog.size_bytes) == (0, 0)


def test_what_is_put_back_goes_before_what_came_later() -> None:
    backlog = filled(None, None, None)
    one, two = backlog.take("a"), backlog.take("a")
    assert one is not None
    assert two is not None
    backlog.put_back([one, two])
    assert [taken(backlog, "b") for _ in range(3)] == [1, 2, 3]


def test_a_key_that_somebody_holds_is_for_nobody_else() -> None:
    backlog = filled("k", "k", "other", None)
    assert taken(backlog, "a") == 1
    assert [taken(backlog, "b") for _ in range(3)] == [3, 4, None]
    assert taken(backlog, "a") == 2


def test_a_key_is_free_again_when_all_of_it_is_done() -> None:
    backlog = filled("k", "k", "k")
    one, two = backlog.take("a"), backlog.take("a")
    assert one is not None
    assert two is not None
    backlog.settle(one)
    assert taken(backlog, "b") is None
    backlog.settle(two)
    assert taken(backlog, "b") == 3


def test_what_is_put_back_of_a_key_is_done_in_order_by_the_next() -> None:
    backlog = filled("k", "k", "k")
    held = [backlog.take("a"), backlog.take("a")]
    backlog.put_back([found for found in reversed(held) if found is not None])
    backlog.leave("a")
    assert [taken(backlog, "b") for _ in range(3)] == [1, 2, 3]


def test_what_waits_again_can_be_settled_all_the_same() -> None:
    backlog = filled("k", "k")
    one = backlog.take("a")
    assert one is not None
    backlog.put_back([one])
    backlog.settle(one)  # the first member has said that it was done, after all
    assert len(backlog) == 1
    assert taken(backlog, "b") == 2


def test_where_no_order_is_asked_for_keys_mean_nothing() -> None:
    backlog = filled("k", "k", is_ordered=False)
    assert (taken(backlog, "a"), taken(backlog, "b")) == (1, 2)


def test_the_oldest_that_waits_is_found_wherever_it_waits() -> None:
    backlog = filled("k", "k", None)
    assert taken(backlog, "a") == 1
    oldest = backlog.oldest()
    assert oldest is not None
    assert oldest.number == 2
    backlog.settle(oldest)
    assert taken(backlog, "a") == 3


@given(st.integers(0, 2**32), st.booleans())
def test_any_history_hands_each_out_once_at_a_time_and_each_key_in_order(
    seed: int, is_ordered: bool
) -> None:
    """Against the rules: one holder a key, ascending within a key, nothing lost, nothing twice."""
    random = Random(seed)
    backlog = Backlog(is_ordered=is_ordered)
    jobs: list[Job] = []
    held: dict[str, list[Job]] = {"a": [], "b": [], "c": []}
    done: list[Job] = []
    for _ in range(200):
        step, holder = random.random(), random.choice("abc")
        if step < 0.4:
            jobs.append(job(len(jobs) + 1, random.choice(["k", "l", None])))
            backlog.add(jobs[-1])
        elif step < 0.75:
            found = backlog.take(holder)
            if found is not None:
                assert found not in held["a"] + held["b"] + held["c"] + done
                if is_ordered and found.key is not None:
                    others = [j for who in held if who != holder for j in held[who]]
                    assert all(other.key != found.key for other in others)
                    before = [j for j in jobs if j.key == found.key and j.number < found.number]
                    assert all(j in done or j in held[holder] for j in before)
                held[holder].append(found)
        elif step < 0.9 and held[holder]:
            finished = held[holder].pop(random.randrange(len(held[holder])))
            backlog.settle(finished)
            done.append(finished)
        elif held[holder]:
            backlog.put_back(held[holder])
            held[holder] = []
        assert len(backlog) == len(jobs) - len(done) - sum(map(len, held.values()))
    for holder in held:
        backlog.put_back(held[holder])
        backlog.leave(holder)
    rest = []
    while (found := backlog.take("d")) is not None:
        rest.append(found)
    assert {j.number for j in rest} | {j.number for j in done} == {j.number for j in jobs}
    assert len(rest) + len(done) == len(jobs)
    assert (len(backlog), backlog.size_bytes) == (0, 0)


@pytest.mark.parametrize("count", [1, 100])
def test_a_line_that_is_done_is_forgotten(count: int) -> None:
    backlog = filled(*(f"k{n}" for n in range(count)))
    while (found := backlog.take("a")) is not None:
        backlog.settle(found)
    assert backlog._lines == {}
