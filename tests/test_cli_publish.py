"""`onehop publish`, run as a process."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import ONEHOP, in_this_process, onehop, running
from loopback import Stranger, new_url, take, values

from onehop.transport import open_subscriber

QUICK = ("--linger", "0")


def test_it_ends_with_one_json_object() -> None:
    url = new_url()
    with open_subscriber(url) as events:
        done = onehop("publish", url, "--topic", "t", "--count", 5, "--source", "me", *QUICK)
        received = take(events, 5)

    report = done.report
    assert report["sent"] == report["events"] == 5
    assert (report["source"], report["requests_served"], report["retransmitted"]) == ("me", 0, 0)
    assert {(event.source, event.epoch) for event in received} == {("me", report["epoch"])}
    assert values(received) == [1, 2, 3, 4, 5], "the number, when no value is given"


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["--value", '{"price": 101.5, "tags": ["a"]}'], b"", [{"price": 101.5, "tags": ["a"]}]),
        (["--value", "null", "--count", "2"], b"", [None, None]),
        (["--size", "0"], b"", [b""]),
        (["--size", "100000"], b"", [bytes(100_000)]),
        (["--stdin"], "one\ntwö\r\n\nlast".encode(), ["one", "twö", "", "last"]),
        (["--stdin", "--count", "2"], b"one\ntwo\nthree\n", ["one", "two"]),
        (["--stdin"], b"", []),
        (["--count", "0"], b"", []),
    ],
)
def test_where_values_come_from(arguments: list[str], stdin: bytes, expected: list[object]) -> None:
    url = new_url()
    with open_subscriber(url) as events:
        done = onehop(
            "publish", url, "--topic", "a.b", "--key", "k", *QUICK, *arguments, stdin=stdin
        )
        received = take(events, len(expected))
        assert events.receive(0) is None

    assert values(received) == expected
    assert {(event.topic, event.key) for event in received} <= {("a.b", "k")}
    assert done.report["events"] == len(expected)


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["--value", '"text"'], b"", [b"text"]),
        (["--value", '{"a": 1}'], b"", [b'{"a": 1}']),
        (["--count", "2"], b"", [b"1", b"2"]),
        (["--stdin"], b"one\ntwo\n", [b"one", b"two"]),
        (["--size", "3"], b"", [bytes(3)]),
    ],
)
def test_plain_bytes_are_sent_where_they_are_wanted(
    arguments: list[str], stdin: bytes, expected: list[bytes]
) -> None:
    url = new_url(payload="raw")
    with open_subscriber(url) as events:
        onehop("publish", url, "--topic", "t", *QUICK, *arguments, stdin=stdin)
        assert values(take(events, len(expected))) == expected


def test_a_rate_spreads_the_events_over_time() -> None:
    url = new_url()
    with open_subscriber(url) as events:
        report = onehop("publish", url, "--topic", "t", "--count", 31, "--rate", 100, *QUICK).report
        received = take(events, 31)

    spread_s = (received[-1].sent_at_ns - received[0].sent_at_ns) / 1e9
    assert 0.29 < spread_s < 5
    assert report["elapsed_s"] >= 0.29


def test_it_answers_requests_while_it_lingers_and_reports_them() -> None:
    url = new_url(session="TENLETTERS")
    with Stranger(url) as stranger:
        stranger.listen()
        with running("publish", url, "--topic", "t", "--linger", 1) as command:
            while (packet := stranger.hear())[2] != 0xFFFF:
                pass
            request = b"TENLETTERS" + (1).to_bytes(8, "big") + (1).to_bytes(2, "big")
            stranger.send(request, packet[4])
            assert stranger.socket.recv(2048)[:20] == request
            report = command.finish().report

    assert (report["requests"], report["requests_served"], report["retransmitted"]) == (1, 1, 1)
    assert report["session"] == "TENLETTERS"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_session_and_the_report_follows(number: int) -> None:
    url = new_url()
    with open_subscriber(url) as events:
        command_line = ("publish", url, "--topic", "t", "--count", 10**6, "--rate", 200, *QUICK)
        with running(*command_line) as command:
            take(events, 5)
            done = command.finish(number)
        report = done.report
        assert 5 <= report["sent"] < 1000
        take(events, report["sent"] - 5)
    assert done.err == "interrupted: ending the session\n"


def test_a_signal_ends_it_while_it_waits_for_standard_input() -> None:
    url = new_url()
    with open_subscriber(url) as events:
        command = subprocess.Popen(
            [*ONEHOP, "publish", url, "--topic", "t", "--stdin", *QUICK],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert command.stdin is not None
        command.stdin.write(b"one\n")
        command.stdin.flush()
        assert values(take(events, 1)) == ["one"]
        command.send_signal(signal.SIGINT)
        assert command.wait(10) == 0
        out, err = command.communicate()

    assert json.loads(out)["sent"] == 1
    assert err == b"interrupted: ending the session\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["URL", "--topic", "t", "--valu", "1"],
            "No such option '--valu'. Did you mean '--value'?",
        ),
        (["URL", "--topic", "t", "--value", "{x"], "'{x' is no JSON"),
        (["URL", "--topic", "t", "--value", "[" * 50_000], "is no JSON"),
        (["URL", "--topic", "t", "--value", "NaN"], "NaN is no number in JSON"),
        (["URL", "--topic", "t", "--size", str(2**20 + 1)], "--size"),
        (["URL", "--topic", "t", "--value", "1", "--size", "1"], "one of --value, --stdin and"),
        (["URL", "--topic", "t", "--value", str(2**70)], "a whole number of 71 bits"),
        (["URL", "--topic", ""], "topic has 0 bytes, expected 1 to 255"),
        (["URL", "--topic", "t", "--rate", "0"], "--rate"),
        (["URL", "--topic", "t", "--linger", "nan"], "linger_s is nan, expected 0 to 3600"),
        (["URL?inteface=lo", "--topic", "t"], "unknown option 'inteface'"),
        (["URL?ttl=900", "--topic", "t"], "ttl=900"),
        (["URL?interface=192.0.2.77", "--topic", "t"], "no multicast route there"),
        (["URL?interface=nope0", "--topic", "t"], "no such interface; there are lo"),
        (["quic://there", "--topic", "t"], "valid: memory://, multicast://"),
        (["239.1.1.1:7400", "--topic", "t"], "valid: memory://, multicast://"),
        (["multicast://10.0.0.1:7400", "--topic", "t"], "10.0.0.1"),
        (["URL"], "Missing option '--topic'"),
        ([], "Missing argument 'URL'"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    url = new_url()
    done = in_this_process(
        "publish", *(text.replace("URL", url) for text in arguments), capfd=capfd
    )

    assert done.code == 2
    assert sentence in done.sentence
    assert len(done.sentence) < 300


def test_standard_input_that_is_no_text_is_one_sentence() -> None:
    done = onehop("publish", new_url(), "--topic", "t", "--stdin", *QUICK, stdin=b"ok\n\xff\n")

    assert done.sentence == "onehop: line 2 of standard input is no UTF-8"


def test_output_on_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*ONEHOP, "publish", new_url(), "--topic", "t", *QUICK],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (1, "onehop: No space left on device\n")


def test_help_fits_eighty_columns() -> None:
    done = onehop("publish", "--help")

    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    for option in ("--topic", "--count", "--rate", "--size", "--source", "--value", "--stdin"):
        assert option in done.out
