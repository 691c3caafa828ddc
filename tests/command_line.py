"""The `onehop` command as a user runs it: a process, its output, its exit code."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from loopback import PATIENCE_S, is_listened_to, until

from onehop.cli import main

ONEHOP = [sys.executable, "-c", "from onehop.cli import main; main()"]


class Finished(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one sentence a failure ends with, and nothing of a traceback before it."""
        assert self.code != 0
        assert self.out == ""
        assert "Traceback" not in self.err, self.err
        *usage, sentence = self.err.splitlines()
        assert all(line == "" or line.startswith(("Usage:", "Try ")) for line in usage)
        return sentence

    @property
    def report(self) -> dict[str, Any]:
        """The one JSON object of a success."""
        assert self.code == 0, self.err
        assert "Traceback" not in self.err, self.err
        (line,) = self.out.splitlines()
        report = json.loads(line)
        assert isinstance(report, dict)
        return report


def onehop(*arguments: object, stdin: bytes = b"") -> Finished:
    """Runs a command to its end."""
    done = subprocess.run(
        [*ONEHOP, *map(str, arguments)], input=stdin, capture_output=True, timeout=PATIENCE_S
    )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_this_process(*arguments: str, capfd: pytest.CaptureFixture[str]) -> Finished:
    """The same without a process, which is quicker: for what ends by itself."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    try:
        with pytest.raises(SystemExit) as ending:
            main(arguments)
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
    return Finished(int(ending.value.code or 0), *capfd.readouterr())


class Running:
    """A command that runs; killed with the test if it has not ended."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [*ONEHOP, *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.out = self.process.stdout

    def finish(self, number: int | None = None) -> Finished:
        """Sends it a signal, if one is given, and waits for its end."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return Finished(self.process.returncode, out, err)


@contextmanager
def running(*arguments: object) -> Iterator[Running]:
    """Starts a command."""
    command = Running(*arguments)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.communicate()


@contextmanager
def subscribing(url: str, *arguments: object) -> Iterator[Running]:
    """`onehop subscribe`, once it listens."""
    with running("subscribe", url, *arguments) as command:
        until(lambda: is_listened_to(url) or command.process.poll() is not None)
        yield command
