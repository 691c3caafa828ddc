"""`onehop subscribe`, run as a process."""

import json
import signal
import socket
import threading
import time
from functools import partial

import pytest
from command_line import in_this_process, onehop, subscribing
from loopback import Stranger, group_of, is_read, meanwhile, new_url, until

from onehop.transport import open_publisher

open_quick = partial(open_publisher, linger_s=0.0)
SUMMARY = {
    "expected", "delivered", "filtered", "pending", "lost", "recovered", "duplicates",
    "reordered", "kernel_drops", "latency_us", "ignored", "streams",
}  # fmt: skip


# -- what it prints --------------------------------------------------------------------------------


def test_the_summary_is_one_json_object_with_the_whole_account() -> None:
    url = new_url()
    with subscribing(url, "--count", 3, "--summary") as command, open_quick(url, "s") as publisher:
        for n in range(3):
            publisher.publish("t", n)
        summary = command.finish().report

    assert summary.keys() == SUMMARY
    assert summary["latency_us"].keys() == {"p50", "p90", "p99", "p999", "max"}
    assert 0 < summary["latency_us"]["p50"] <= summary["latency_us"]["max"] < 10e6
    counts = {name: summary[name] for name in SUMMARY - {"latency_us", "streams"}}
    assert counts == {
        "expected": 3, "delivered": 3, "filtered": 0, "pending": 0, "lost": {}, "recovered": 0,
        "duplicates": 0, "reordered": 0, "kernel_drops": 0, "ignored": {},
    }  # fmt: skip
    (stream,) = summary["streams"]
    assert (stream["source"], stream["epoch"], stream["first"]) == ("s", publisher.epoch, 1)


def test_json_prints_an_object_for_each_event_and_loss() -> None:
    url = new_url()
    with (
        subscribing(url, "--json", "--timeout", 0.3) as command,
        open_quick(url, "s") as publisher,
        Stranger(url) as stranger,
    ):
        publisher.publish("t", {"a": [1, b"\xff"]}, key="k", headers={"h": "v"})
        stranger.send_packet(b"SESSION001", 1, b"\xc1")
        done = command.finish()

    event, loss = map(json.loads, done.out.splitlines())
    assert done.code == 0
    assert event["value"] == {"a": [1, {"base64": "/w=="}]}
    assert (event["topic"], event["key"], event["source"]) == ("t", "k", "s")
    assert (event["sequence"], event["stream"], event["headers"]) == (1, "", {"h": "v"})
    assert event["epoch"] == publisher.epoch
    assert event["occurred_at_ns"] <= event["sent_at_ns"] <= event["received_at_ns"]
    at_ns = loss.pop("at_ns")
    assert abs(at_ns - time.time_ns()) < 60e9
    assert loss.pop("source") == ""
    assert loss.pop("epoch") > 0
    assert loss == {"loss": "malformed", "stream": "", "first": 1, "count": 1}


def test_a_value_that_json_has_no_form_for_is_printed_all_the_same() -> None:
    url = new_url()
    value = {b"k": 1, 2: [float("nan"), float("-inf")], None: {1.5: "x"}}
    with subscribing(url, "--json", "--count", 1) as command, open_quick(url) as publisher:
        publisher.publish("t", value)
        done = command.finish()

    event = json.loads(done.out, parse_constant=pytest.fail)
    assert event["value"] == {"aw==": 1, "2": ["nan", "-inf"], "null": {"1.5": "x"}}


def test_a_person_gets_a_line_for_each_event_and_the_account_at_the_end() -> None:
    url = new_url()
    with subscribing(url, "--count", 2) as command, open_quick(url, "s") as publisher:
        publisher.publish("t", "text")
        publisher.publish("t", 2, key="k")
        done = command.finish()

    assert done.out == "s 1 t 'text'\ns 2 t [k] 2\n"
    assert done.err.startswith("expected 2 = delivered 2 + filtered 0 + pending 0 + lost 0\n")


# -- what it takes and when it ends ----------------------------------------------------------------


@pytest.mark.parametrize(("start", "first"), [("live", 4), ("first", 1), ("3", 3)])
def test_from_says_where_to_begin(start: str, first: int) -> None:
    url = new_url()
    with open_quick(url) as publisher:
        for n in range(1, 4):
            publisher.publish("t", n)
        count = 4 - first + 1
        with subscribing(url, "--from", start, "--json", "--count", count) as command:
            with Stranger(url) as witness:  # of a heartbeat that the subscriber heard, too
                witness.listen()
                while witness.hear()[3]:
                    pass
            publisher.publish("t", 4)
            done = command.finish()

    assert [json.loads(line)["value"] for line in done.out.splitlines()] == [*range(first, 5)]


def test_topics_filter_and_the_summary_counts_what_was_filtered() -> None:
    url = new_url()
    arguments = ("--topic", "a.", "--topic", "b.", "--count", 2, "--summary")
    with subscribing(url, *arguments) as command, open_quick(url) as publisher:
        for topic in ("a.1", "c.1", "c.2", "b.1"):
            publisher.publish(topic, 0)
        summary = command.finish().report

    assert (summary["expected"], summary["delivered"], summary["filtered"]) == (4, 2, 2)


def test_timeout_counts_from_the_last_event() -> None:
    url = new_url()
    with subscribing(url, "--timeout", 0.6, "--summary") as command, open_quick(url) as publisher:
        for n in range(4):
            publisher.publish("t", n)
            time.sleep(0.25)
        assert command.process.poll() is None
        assert command.finish().report["delivered"] == 4


def test_loss_is_repaired_and_shown_in_the_summary() -> None:
    url = new_url()
    arguments = ("--from", "first", "--count", 500, "--summary")
    lossy = f"{url}?loss=0.1&seed=3"
    with subscribing(lossy, *arguments) as command, open_quick(url) as publisher:
        for n in range(500):
            publisher.publish("t", n)
        summary = command.finish().report

    assert (summary["delivered"], summary["lost"]) == (500, {})
    assert summary["recovered"] > 10
    assert summary["ignored"]["lost_on_purpose"] > 10


def test_nothing_is_pending_at_the_end_though_more_came_than_was_wanted() -> None:
    url = new_url()
    with subscribing(url, "--count", 2, "--summary") as command, open_quick(url) as publisher:
        publisher.publish_many(("t", n) for n in range(10))
        summary = command.finish().report

    assert (summary["delivered"], summary["pending"]) == (2, 0)
    assert summary["expected"] == 2 + summary["lost"].get("ended", 0) > 2


# -- interruptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("spin", [(), ("--spin",)], ids=["sleeping", "spinning"])
def test_a_signal_ends_it_with_the_summary(number: int, spin: tuple[str, ...]) -> None:
    url = new_url()
    with subscribing(url, "--summary", *spin) as command, open_quick(url) as publisher:
        publisher.publish("t", 1)
        until(lambda: is_read(url))
        summary = command.finish(number).report

    assert (summary["expected"], summary["delivered"], summary["pending"]) == (1, 1, 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_interrupted_in_a_flood_it_has_printed_what_it_counts(seed: int) -> None:
    url = new_url()
    lossy = f"{url}?loss=0.02&seed={seed}"
    with subscribing(lossy, "--json", "--from", "first") as command, open_quick(url) as publisher:

        def flood(is_over: threading.Event) -> None:
            while not is_over.is_set():
                publisher.publish("t", 0)

        with meanwhile(flood):
            lines = [command.out.readline() for _ in range(500 * seed)]
            command.process.send_signal(signal.SIGINT)
            lines += command.out.readlines()
        done = command.finish()

    rows = list(map(json.loads, lines))
    numbers: list[int] = []
    for row in rows:
        first = row["first"] if "loss" in row else row["sequence"]
        numbers += range(first, first + row.get("count", 1))
    assert done.code == 0
    assert numbers == list(range(1, len(numbers) + 1)), "every number once, event or loss"


def test_a_reader_that_goes_away_ends_it_without_a_traceback() -> None:
    url = new_url()
    with subscribing(url, "--json") as command, open_quick(url) as publisher:
        publisher.publish("t", 1)
        assert json.loads(command.out.readline())["value"] == 1
        command.out.close()
        publisher.publish("t", 2)
        command.process.wait(10)
        assert command.process.stderr is not None
        err = command.process.stderr.read()
        command.process.stdout = None

    assert err == ""
    assert command.process.returncode == 1


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["URL", "--sumary"], "No such option '--sumary'. Did you mean '--summary'?"),
        (["URL", "--from", "0"], "expected live, first or a number from 1"),
        (["URL", "--from", str(2**64)], "expected live, first or a number from 1"),
        (["URL", "--from", "last"], "expected live, first or a number from 1"),
        (["URL", "--json", "--summary"], "give one of --json and --summary"),
        (["URL", "--count", "0"], "--count"),
        (["URL", "--on-overflow", "block"], "nothing there can make a publisher wait"),
        (["URL?loss=2"], "loss=2"),
        (["URL?interface=192.0.2.77"], "no multicast route there"),
        (["multicast://[ff15::7:7400"], "is no URL"),
        (["tcp://127.0.0.1:7401"], "valid: memory://, multicast://, zmq+ipc://, zmq+tcp://"),
        (["memory://"], "a memory network needs a name"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    url = new_url()
    texts = [text.replace("URL", url) for text in arguments]
    done = in_this_process("subscribe", *texts, capfd=capfd)

    assert done.code == 2
    assert sentence in done.sentence


def test_a_port_that_somebody_keeps_for_himself_is_one_sentence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = new_url()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
        greedy.bind(("", group_of(url)[1]))
        done = in_this_process("subscribe", url, capfd=capfd)

    assert "the port is in use by a program that does not share it" in done.sentence


def test_help_fits_eighty_columns() -> None:
    done = onehop("subscribe", "--help")

    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    for option in ("--topic", "--from", "--count", "--timeout", "--json", "--summary"):
        assert option in done.out
