"""What went over a host's interface, as an independent decoder of the protocol reads it."""

from __future__ import annotations

import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
from badwire import Host

from netns.actors import DEADLINE_S

FIELDS = (
    "udp.srcport", "udp.dstport", "udp.length",
    "moldudp64.session", "moldudp64.sequence", "moldudp64.count", "moldudp64.msgseq",
    "moldudp64.msglen", "moldudp64.msgdata",
    "_ws.malformed", "_ws.expert.severity", "_ws.expert.message",
)  # fmt: skip
UDP_HEADER_BYTES = 8
EMPTY = "<MISSING>"  # how tshark shows the data of a message of no bytes
WARNING = 0x600000  # expert severities of Wireshark: comment, chat and note are below it


@dataclass(frozen=True, slots=True)
class Packet:
    """One MoldUDP64 packet as tshark shows it; sequences and lengths are those of its blocks."""

    source_port: int
    destination_port: int
    size_bytes: int
    session: str
    sequence: int
    count: int
    block_sequences: list[int]
    block_lengths: list[int]
    block_data: list[bytes]
    complaints: str

    @classmethod
    def parse(cls, line: str) -> Self:
        source, destination, size, session, sequence, count, *blocks = line.split("|")
        numbers, lengths, data, malformed, severities, messages = blocks
        is_worse = malformed or any(int(text) >= WARNING for text in severities.split(",") if text)
        return cls(
            int(source),
            int(destination),
            int(size) - UDP_HEADER_BYTES,
            session,
            int(sequence),
            int(count),
            [int(number) for number in numbers.split(",") if number],
            [int(length) for length in lengths.split(",") if length],
            [b"" if text == EMPTY else bytes.fromhex(text) for text in data.split(",") if text],
            malformed + messages if is_worse else "",
        )


class Capture:
    """Captures the UDP datagrams of a host from now until `stop`."""

    def __init__(self, host: Host, path: Path) -> None:
        for tool in ("dumpcap", "tshark"):
            if shutil.which(tool) is None:
                pytest.skip(f"needs {tool} (package tshark), which is not on PATH")
        self._path = path
        command = ["dumpcap", "-q", "-i", host.interface, "-f", "udp", "-w", str(path)]
        self._process = host.popen(command, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith("File:"):  # opened after the interface: nothing is missed now
                return
        raise AssertionError(f"dumpcap ended with status {self._process.wait()}")

    def stop(self, *ports: int) -> list[Packet]:
        """Ends the capture; returns what came from or went to these ports."""
        self._process.send_signal(signal.SIGINT)
        _, errors = self._process.communicate(timeout=DEADLINE_S)
        assert self._process.returncode == 0, errors
        command = ["tshark", "-r", str(self._path), "-T", "fields", "-E", "separator=|"]
        for port in ports:
            command += ["-d", f"udp.port=={port},moldudp64"]
        command += ["-Y", " or ".join(f"udp.port == {port}" for port in ports)]
        for field in FIELDS:
            command += ["-e", field]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        return [Packet.parse(line) for line in shown.stdout.splitlines()]
