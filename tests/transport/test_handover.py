"""What each overflow policy keeps, drops and says."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import cast

import pytest

from onehop.transport.errors import ConfigurationError, LogError
from onehop.transport.event import Event, Loss, LossReason
from onehop.transport.handover import OVERFLOW_POLICIES, HandoverQueue, Overflow, QueueOptions
from onehop.transport.ledger import Ledger, StreamAccount
from onehop.transport.loss_records import MAX_LOSS_RECORDS

OVERFLOW = LossReason.OVERFLOW


def stream(ledger: Ledger | None = None, source: str = "s") -> StreamAccount:
    account = (ledger or Ledger()).open(source, 1, "", 1)
    account.expect(1_000_000)
    return account


def put(
    queue: HandoverQueue,
    account: StreamAccount,
    number: int,
    *,
    count: int = 1,
    size: int = 10,
    topic: str = "t",
    key: str | None = None,
) -> bool:
    event = Event(topic, {"n": number}, key, account.source, 1, "", number + count - 1)
    return queue.put(event, account, number, count, size, at_ns=7)


def lose(queue: HandoverQueue, account: StreamAccount, first: int, count: int = 1) -> None:
    account.lose(first, count, LossReason.DEADLINE)
    queue.put_loss(Loss(account.source, 1, "", first, count, LossReason.DEADLINE, 7), account)


def take_all(queue: HandoverQueue) -> list[int | tuple[int, int, str]]:
    """Numbers for events, (first, last, reason) for losses."""
    taken: list[int | tuple[int, int, str]] = []
    while (item := queue.take()) is not None:
        if isinstance(item, Loss):
            taken.append((item.first, item.last, item.reason.value))
        else:
            taken.append(item.sequence)
    return taken


def test_events_and_losses_come_out_in_the_order_they_went_in() -> None:
    queue, account = HandoverQueue(QueueOptions()), stream()
    put(queue, account, 1)
    lose(queue, account, 2, 2)
    put(queue, account, 4)
    lose(queue, account, 5)
    assert len(queue) == 4
    assert take_all(queue) == [1, (2, 3, "deadline"), 4, (5, 5, "deadline")]
    assert queue.take() is None


def test_an_event_is_pending_until_it_is_taken() -> None:
    queue, account = HandoverQueue(QueueOptions()), stream()
    put(queue, account, 1, count=3)
    assert account.delivered == 0
    queue.take()
    assert account.delivered == 3


def test_losses_that_meet_are_told_as_one() -> None:
    queue, account = HandoverQueue(QueueOptions()), stream()
    for number in (1, 2, 3):
        lose(queue, account, number)
    lose(queue, account, 5)
    assert take_all(queue) == [(1, 3, "deadline"), (5, 5, "deadline")]


def test_drop_newest_keeps_what_waits() -> None:
    queue, account = HandoverQueue(QueueOptions("drop_newest", max_events=2)), stream()
    assert all(put(queue, account, number) for number in range(1, 6))
    assert take_all(queue) == [1, 2, (3, 5, "overflow")]
    assert (queue.dropped, account.lost[OVERFLOW], account.delivered) == (3, 3, 2)


def test_drop_oldest_keeps_what_is_new_and_tells_the_loss_in_its_place() -> None:
    queue, account = HandoverQueue(QueueOptions("drop_oldest", max_events=2)), stream()
    put(queue, account, 1)
    lose(queue, account, 2)
    for number in range(3, 7):
        put(queue, account, number)
    assert take_all(queue) == [
        (1, 1, "overflow"), (2, 2, "deadline"), (3, 4, "overflow"), 5, 6,
    ]  # fmt: skip


def test_bytes_bound_the_queue_as_well_as_events() -> None:
    queue, account = HandoverQueue(QueueOptions("drop_oldest", max_bytes=100)), stream()
    for number in range(1, 4):
        put(queue, account, number, size=50)
    assert queue.waiting_bytes == 100
    assert take_all(queue) == [(1, 1, "overflow"), 2, 3]
    assert queue.waiting_bytes == 0


@pytest.mark.parametrize("policy", OVERFLOW_POLICIES)
def test_an_event_larger_than_the_queue_comes_through_an_empty_one(policy: Overflow) -> None:
    queue, account = HandoverQueue(QueueOptions(policy, max_bytes=10)), stream()
    assert put(queue, account, 1, size=1000)
    assert take_all(queue) == [1]
    queue.close()


def test_latest_keeps_one_event_for_each_source_topic_and_key() -> None:
    queue = HandoverQueue(QueueOptions("latest"))
    account, other = stream(), stream(source="other")
    put(queue, account, 1, key="a")
    put(queue, account, 2, key="b")
    put(queue, other, 1, key="a")
    put(queue, account, 3, key="a")
    put(queue, account, 4, topic="u", key="a")
    assert len(queue) == 5  # one loss, four events
    assert take_all(queue) == [(1, 1, "overflow"), 2, 1, 3, 4]
    assert (account.lost[OVERFLOW], other.lost[OVERFLOW]) == (1, 0)


def test_latest_drops_the_oldest_key_when_there_are_too_many() -> None:
    queue, account = HandoverQueue(QueueOptions("latest", max_events=2)), stream()
    for number in range(1, 5):
        put(queue, account, number, key=str(number))
    assert take_all(queue) == [(1, 2, "overflow"), 3, 4]


def test_block_refuses_and_changes_nothing() -> None:
    queue, account = HandoverQueue(QueueOptions("block", max_events=1)), stream()
    assert put(queue, account, 1)
    assert not put(queue, account, 2)
    assert queue.dropped == 0
    queue.take()
    assert put(queue, account, 2)
    assert take_all(queue) == [2]


def test_disconnect_drops_everything_after_the_first_that_did_not_fit() -> None:
    queue, account = HandoverQueue(QueueOptions("disconnect", max_events=2)), stream()
    put(queue, account, 1)
    put(queue, account, 2)
    assert not put(queue, account, 3)
    assert queue.disconnected
    queue.take()
    assert not put(queue, account, 4)
    assert take_all(queue) == [2, (3, 4, "overflow")]


def test_spill_comes_back_in_order_with_the_losses_between() -> None:
    queue, account = HandoverQueue(QueueOptions("spill", max_events=2)), stream()
    for number in range(1, 1000):
        if number % 100 == 0:
            lose(queue, account, number)
        else:
            put(queue, account, number)
    assert queue.spilled > 900
    expected = [(n, n, "deadline") if n % 100 == 0 else n for n in range(1, 1000)]
    assert take_all(queue) == expected
    assert (queue.dropped, queue.spill_errors) == (0, 0)
    put(queue, account, 1000)  # the disk is read: memory again
    assert queue.spilled == len([n for n in expected if isinstance(n, int)]) - 2
    queue.close()


def test_spill_brings_every_field_back() -> None:
    queue, account = HandoverQueue(QueueOptions("spill", max_events=1)), stream()
    put(queue, account, 1)
    event = Event(
        "topic", {"a": [1, None, b"x", 2.5]}, "key", "s", 1, "", 2, 11, 12, 13, {"name": "value"}
    )
    queue.put(event, account, 2, 1, 10, at_ns=7)
    queue.take()
    assert queue.take() == event
    queue.close()


def test_a_full_spill_drops_and_says_so_and_goes_on_when_there_is_room() -> None:
    options = QueueOptions("spill", max_events=1, spill_bytes=4096)
    queue, account = HandoverQueue(options), stream()
    for number in range(1, 200):
        put(queue, account, number)
    assert queue.dropped == queue.spill_errors > 0
    taken = take_all(queue)
    kept = 199 - queue.dropped
    assert taken == [*range(1, kept + 1), (kept + 1, 199, "overflow")]
    for number in range(200, 203):
        put(queue, account, number)
    assert take_all(queue) == [200, 201, 202]
    queue.close()


def test_files_of_a_spill_are_removed_on_close(tmp_path: Path) -> None:
    queue, account = HandoverQueue(QueueOptions("spill", 1, 1000, tmp_path)), stream()
    for number in range(1, 10):
        put(queue, account, number)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
    queue.close()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_two_queues_cannot_spill_to_one_path(tmp_path: Path) -> None:
    first = HandoverQueue(QueueOptions("spill", spill_path=tmp_path))
    with pytest.raises(LogError, match="another"):
        HandoverQueue(QueueOptions("spill", spill_path=tmp_path))
    first.close()


def test_a_spill_whose_files_are_destroyed_is_accounted_for(tmp_path: Path) -> None:
    queue, account = HandoverQueue(QueueOptions("spill", 1, 1000, tmp_path)), stream()
    for number in range(1, 10):
        put(queue, account, number)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size:
            path.write_bytes(b"\0" * path.stat().st_size)
    assert take_all(queue) == [1, (2, 9, "overflow")]
    assert (queue.dropped, account.lost[OVERFLOW]) == (8, 8)
    assert queue.spill_errors
    put(queue, account, 10)
    assert take_all(queue) == [10]
    queue.close()


def _destroy(path: Path) -> None:
    for file in path.rglob("*"):
        if file.is_file() and file.stat().st_size:
            file.write_bytes(b"\0" * file.stat().st_size)


def test_numbers_that_went_to_a_destroyed_spill_out_of_order_are_all_accounted_for(
    tmp_path: Path,
) -> None:
    queue, account = HandoverQueue(QueueOptions("spill", 1, 1000, tmp_path)), stream()
    order = [1, 10, 11, 12, 5, 6, 2]
    for number in order:
        put(queue, account, number)
    _destroy(tmp_path)
    told = take_all(queue)
    assert told == [1, (10, 12, "overflow"), (5, 6, "overflow"), (2, 2, "overflow")]
    assert (account.delivered, account.lost[OVERFLOW]) == (1, 6)
    assert all(account.is_settled(number) for number in order)
    queue.close()


def test_what_was_filtered_is_not_told_as_lost_with_a_destroyed_spill(tmp_path: Path) -> None:
    queue, account = HandoverQueue(QueueOptions("spill", 1, 1000, tmp_path)), stream()
    for number in range(1, 10):
        if number % 2:
            put(queue, account, number)
        else:
            account.expect(number + 1)
            account.filter(number)
    _destroy(tmp_path)
    assert take_all(queue) == [1, *((n, n, "overflow") for n in (3, 5, 7, 9))]
    assert (account.filtered, account.lost[OVERFLOW]) == (4, 4)
    queue.close()


@pytest.mark.parametrize("policy", ["drop_oldest", "latest", "spill"])
def test_what_is_given_up_is_settled_and_told(policy: Overflow) -> None:
    queue, account = HandoverQueue(QueueOptions(policy, max_events=3)), stream()
    for number in range(1, 7):
        put(queue, account, number)
    lose(queue, account, 7)
    queue.give_up(LossReason.ENDED, at_ns=9)
    told = take_all(queue)
    assert not any(isinstance(item, int) for item in told)
    assert account.are_settled(1, 8)
    assert account.lost[LossReason.ENDED] == {"drop_oldest": 3, "latest": 1, "spill": 6}[policy]
    queue.close()


def _spill_until_the_disk_is_full(path: Path) -> None:
    """Runs in a process whose files may not grow beyond 64 KiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
    queue, account = HandoverQueue(QueueOptions("spill", 1, 1 << 20, path)), stream()
    for number in range(1, 1001):
        put(queue, account, number, key="k" * 500)
    taken = take_all(queue)
    numbers = [n for n in taken if isinstance(n, int)]
    losses = [n for n in taken if isinstance(n, tuple)]
    lost = sum(last - first + 1 for first, last, _ in losses)
    print(numbers == sorted(numbers), len(numbers) + lost, lost == queue.dropped, lost > 0)
    queue.close()


def test_a_full_disk_under_spill_loses_nothing_silently(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["True", "1000", "True", "True"], "")


@pytest.mark.parametrize("policy", OVERFLOW_POLICIES)
@pytest.mark.parametrize("seed", range(20))
def test_every_number_is_taken_once_or_in_exactly_one_loss(policy: Overflow, seed: int) -> None:
    random = Random(seed)
    options = QueueOptions(policy, max_events=random.randint(1, 8), max_bytes=200, spill_bytes=8192)
    queue, ledger = HandoverQueue(options), Ledger()
    accounts = [stream(ledger, source) for source in "abc"]
    fates: dict[tuple[str, int], int] = {}
    filtered: set[tuple[str, int]] = set()
    following = dict.fromkeys("abc", 1)

    def take() -> bool:
        item = queue.take()
        if item is None:
            return False
        first = item.first if isinstance(item, Loss) else item.sequence
        for number in range(first, first + (item.count if isinstance(item, Loss) else 1)):
            fates[item.source, number] = fates.get((item.source, number), 0) + 1
        return True

    for _ in range(400):
        account = random.choice(accounts)
        number = following[account.source]
        action = random.random()
        if action < 0.6:
            key = random.choice("kl")
            is_in = put(queue, account, number, size=random.randint(1, 90), key=key)
            following[account.source] += is_in or policy == "disconnect"
        elif action < 0.7:
            lose(queue, account, number)
            following[account.source] += 1
        elif action < 0.75:
            account.filter(number)
            filtered.add((account.source, number))
            following[account.source] += 1
        else:
            take()
    while take():
        pass
    queue.close()
    offered = {(source, n) for source, stop in following.items() for n in range(1, stop)}
    assert fates == dict.fromkeys(offered - filtered, 1)
    snapshot = ledger.snapshot()
    assert snapshot.lost.get("overflow", 0) == queue.dropped
    assert snapshot.delivered + snapshot.lost_total + snapshot.filtered == len(offered)


def test_an_application_that_never_reads_costs_bounded_memory() -> None:
    queue, account = HandoverQueue(QueueOptions("drop_oldest", max_events=10)), stream()
    for number in range(1, 40_000, 2):
        put(queue, account, number)
        account.filter(number + 1)
    assert len(queue) <= MAX_LOSS_RECORDS + 10
    covered = [item for item in take_all(queue) if isinstance(item, tuple)]
    assert covered[0][0] == 1
    assert sum(last - first + 1 for first, last, _ in covered) >= queue.dropped == 20_000 - 10


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_overflow": "drop"}, "on_overflow is 'drop', expected drop_newest"),
        ({"max_events": 0}, "max_events is 0, expected 1 or more"),
        ({"max_bytes": 0}, "max_bytes is 0, expected 1 or more"),
        ({"spill_bytes": 10}, "spill_bytes is 10, expected 4096 or more"),
        ({"spill_path": Path(tempfile.gettempdir())}, "spill_path needs on_overflow 'spill'"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        QueueOptions(**cast("dict[str, int]", options))  # type: ignore[arg-type]


if __name__ == "__main__":
    _spill_until_the_disk_is_full(Path(sys.argv[1]))
