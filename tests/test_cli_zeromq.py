"""`onehop publish` and `onehop subscribe` over ZeroMQ, as processes."""

import json
import signal
from pathlib import Path

import pytest
from command_line import Running, onehop

from onehop.transport import open_publisher


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"zmq+ipc://{tmp_path}/s"


def test_a_subscriber_gets_all_of_a_short_life(url: str) -> None:
    command = Running("subscribe", url, "--from", "first", "--count", 5, "--summary")
    sent = onehop(
        "publish", url, "--topic", "q.x", "--count", 5, "--source", "me", "--linger", 5
    ).report
    summary = command.finish().report

    assert (sent["sent"], sent["events"], sent["source"]) == (5, 5, "me")
    assert (summary["expected"], summary["delivered"], summary["lost"]) == (5, 5, {})
    (stream,) = summary["streams"]
    assert (stream["source"], stream["stream"], stream["epoch"]) == ("me", "q", sent["epoch"])


@pytest.mark.parametrize(("start", "values"), [("first", [1, 2, 3, 4]), ("3", [3, 4])])
def test_a_late_joiner_begins_where_it_is_told(url: str, start: str, values: list[int]) -> None:
    with open_publisher(url, "me", linger_s=0.0) as publisher:
        for value in range(1, 5):
            publisher.publish("q.x", value)
        done = onehop("subscribe", url, "--from", start, "--count", len(values), "--json")

    assert done.code == 0
    assert [json.loads(line)["value"] for line in done.out.splitlines()] == values


def test_a_publisher_that_waits_for_its_subscribers_reaches_them_with_its_first_event(
    url: str,
) -> None:
    publisher = Running("publish", url, "--topic", "q.x", "--count", 3, "--ready", 2)
    readers = [Running("subscribe", url, "--count", 3, "--summary") for _ in range(2)]
    sent = publisher.finish().report
    assert [reader.finish().report["delivered"] for reader in readers] == [3, 3]
    assert sent["sent"] == 3


def test_a_publisher_does_not_wait_for_ever_or_where_nobody_can_be_known(url: str) -> None:
    late = onehop("publish", url, "--topic", "q", "--ready", 1, "--ready-timeout", 0.1)
    assert (late.code, late.err) == (2, "onehop: 0 of 1 subscribers after 0.1 s\n")
    unknown = onehop("publish", "multicast://239.255.7.9:7409", "--topic", "q", "--ready", 1)
    assert unknown.code == 2
    assert "multicast" in unknown.err


def test_members_of_a_group_share_what_is_published(url: str) -> None:
    options = ("--group", "workers", "--order-by", "key", "--from", "first", "--json")
    members = [Running("subscribe", url, *options, "--timeout", 3) for _ in range(2)]
    done = onehop("publish", url, "--topic", "jobs.x", "--count", 100, "--linger", 4)
    lines = [json.loads(line) for member in members for line in member.finish().out.splitlines()]

    assert sorted(line["value"] for line in lines if "value" in line) == list(range(1, 101))
    account = done.report["groups"]["workers"]
    assert (account["accepted"], account["acknowledged"], account["waiting"]) == (100, 100, 0)


def test_work_that_nobody_does_is_said_at_the_end(url: str) -> None:
    member = Running("subscribe", url, "--group", "workers", "--from", "first", "--count", 1)
    done = onehop("publish", url, "--topic", "jobs.x", "--count", 5, "--rate", 2, "--linger", 1)
    member.finish(signal.SIGTERM)

    assert "not done after 1 s: group 'workers' has 4 waiting" in done.err
    assert done.report["groups"]["workers"]["acknowledged"] == 1


def test_history_begins_with_the_last_value_of_each_topic(url: str) -> None:
    with open_publisher(url, "me", linger_s=0.0) as publisher:
        for value in range(10):
            publisher.publish(f"q.{value % 2}", value)
        done = onehop("subscribe", url, "--history", "last", "--count", 2, "--json")

    assert [json.loads(line)["value"] for line in done.out.splitlines()] == [8, 9]


def test_an_order_without_a_group_is_a_mistake(url: str) -> None:
    done = onehop("subscribe", url, "--order-by", "key")
    assert done.sentence.endswith("--order-by goes with --group")


def test_ctrl_c_ends_it_with_the_account(url: str) -> None:
    with open_publisher(url, "me", linger_s=0.0) as publisher:
        command = Running("subscribe", url, "--json")
        publisher.ready(timeout_s=20)
        publisher.publish("q.x", 1)
        line = command.out.readline()
        done = command.finish(signal.SIGINT)

    assert json.loads(line)["stream"] == "q"
    assert done.code == 0


def test_events_that_leave_the_machine_in_plain_text_are_warned_of_in_one_line() -> None:
    done = onehop("publish", "zmq+tcp://192.0.2.77:7401", "--topic", "t")
    warning, fault = done.err.splitlines()

    assert warning.startswith("onehop: warning: tcp://192.0.2.77:7401 is not on this machine")
    assert fault == (
        "onehop: cannot bind to tcp://192.0.2.77:7401: Cannot assign requested address"
    )
    assert done.code == 2


def test_keys_new_writes_two_files_and_says_what_they_are_for(tmp_path: Path) -> None:
    done = onehop("keys", "new", "me", "--directory", tmp_path / "keys")
    public, secret = (Path(line.split()[0]) for line in done.out.splitlines())

    assert done.code == 0
    assert (public.name, secret.name) == ("me.key", "me.key_secret")
    assert secret.stat().st_mode & 0o077 == 0
    again = onehop("keys", "new", "me", "--directory", tmp_path / "keys")
    assert again.sentence.endswith("me.key_secret: File exists")
