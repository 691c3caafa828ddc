"""The programs of these tests: speaker and listener, which obey, and the command line.

    speaker = Actor.speaker(wire.host(0), url(wire.host(0)))
    listener = Actor.listener(wire.host(1), url(wire.host(1)), start="first")
    speaker.ask("say", count=100)
    report = listener.until(lambda report: report["delivered"] == 100)

Nothing here waits longer than `DEADLINE_S`, and nothing sleeps in place of waiting for an event.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from badwire import BadWire, Host, ip

GROUP, PORT = "239.77.1.1", 7400
DEADLINE_S = 20.0
POLL_S = 0.01

Report = dict[str, Any]
T = TypeVar("T")


def url(host: Host, group: str = f"{GROUP}:{PORT}", **options: object) -> str:
    """The URL of a group as that host says it, through its interface on the wire."""
    options = {"interface": host.interface if group.startswith("[") else host.address} | options
    return f"multicast://{group}?" + "&".join(f"{name}={value}" for name, value in options.items())


class Actor:
    """A process that answers each command with one line of JSON."""

    def __init__(self, host: Host, script: str, *arguments: str) -> None:
        pipe, path = subprocess.PIPE, str(Path(__file__).with_name(script))
        self.process = host.popen([sys.executable, path, *arguments], stdin=pipe, stdout=pipe)

    @classmethod
    def speaker(cls, host: Host, url: str, **options: object) -> Self:
        speaker = cls(host, "speaker.py", url, json.dumps(options))
        speaker.answer()
        return speaker

    @classmethod
    def listener(cls, host: Host, url: str, **options: object) -> Self:
        return cls.listeners([(host, url)], **options)[0]

    @classmethod
    def listeners(cls, where: list[tuple[Host, str]], **options: object) -> list[Self]:
        """Starts them all, then waits until all of them listen."""
        text = json.dumps({"start": "first"} | options)
        listeners = [cls(host, "listener.py", url, text) for host, url in where]
        for listener in listeners:
            listener.answer()
        return listeners

    def ask(self, do: str, **values: object) -> Report:
        self.tell(do, **values)
        return self.answer()

    def tell(self, do: str, **values: object) -> None:
        """Sends a command without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **values}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Report:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        assert readable, f"no answer for {DEADLINE_S} s"
        line = self.process.stdout.readline()
        assert line, f"the process ended with status {self.process.wait()}"
        report: Report = json.loads(line)
        return report

    def until(self, holds: Callable[[Report], bool]) -> Report:
        """Asks for reports until one satisfies the condition."""
        return until(lambda: self.ask("report"), holds)

    def close(self) -> Report:
        return self.ask("close")


def until(look: Callable[[], T], holds: Callable[[T], bool]) -> T:
    """Looks again and again until the condition holds; fails with the last look."""
    give_up_at = time.monotonic() + DEADLINE_S
    while not holds(seen := look()):
        assert time.monotonic() < give_up_at, f"still after {DEADLINE_S} s: {seen}"
        time.sleep(POLL_S)
    return seen


def all_settled(sent: int, epoch: int | None = None) -> Callable[[Report], bool]:
    """The condition that every message up to `sent` is known and delivered or lost."""

    def holds(report: Report) -> bool:
        rows = [s for s in report["streams"] if epoch in (None, s["epoch"])]
        expected = sum(row["expected"] for row in rows)
        settled = sum(row["delivered"] + sum(row["lost"].values()) for row in rows)
        return bool(expected == settled == sent)

    return holds


def onehop(host: Host, *arguments: str) -> subprocess.Popen[str]:
    """Starts the command line in a host's namespace."""
    program = str(Path(sysconfig.get_path("scripts")) / "onehop")
    pipe = subprocess.PIPE
    return host.popen([program, *arguments], stdin=pipe, stdout=pipe, stderr=pipe)


def subscribe(host: Host, url: str, *arguments: str, group: str = GROUP) -> subprocess.Popen[str]:
    """Starts `onehop subscribe --summary` and waits until the host has joined the group."""
    process = onehop(host, "subscribe", url, "--summary", *arguments)
    until(lambda: groups_of(host), lambda groups: group in groups)
    return process


def groups_of(host: Host) -> list[str]:
    show = ip("-n", host.namespace, "-j", "maddr", "show", "dev", host.interface)
    return [entry.get("address", "") for link in json.loads(show) for entry in link["maddr"]]


def result_of(process: subprocess.Popen[str]) -> Report:
    """Waits for the end of a command and returns the JSON object it ended with."""
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    result: Report = json.loads(output.splitlines()[-1])
    return result


def dropped_to(wire: BadWire, host: int, kind: str = "multicast") -> int:
    dropped: int = wire.report()["ends"][host][kind]["dropped"]
    return dropped
