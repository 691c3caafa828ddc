"""The receiving side of a request server: from datagrams on ports to messages in a store.

    groups ──▶ Feed ──▶ store
      ▲         └──▶ requests for its own gaps ──▶ publishers, other servers
      └── announcements of sessions whose publisher is silent

One `turn` takes everything that has come and does everything that is due; it never waits. Sockets
are read before timers are looked at. What a turn took is in memory; someone else flushes the store.
"""

import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import cast

from ..datagrams import Address
from ..mold.feed import Feed, FeedOptions, Outputs
from ..mold.outputs import Output, Run
from ..mold.receiver_options import ReceiverOptions
from ..mold.standin import StandIn
from ..mold.store import MemoryStore, ResumePoints
from ..mold.wire import HEADER_BYTES, SESSION_BYTES, decode_header
from ..ports import BATCH, Port
from .address import MulticastAddress

DEADLINE_S = 10.0
"""How long the server tries to repair a gap of its own: nobody waits for it."""
JOINED_MESSAGES = 16
"""Runs shorter than this are joined with what follows. They leave memory together, too."""
BATCHES_PER_TURN = 2
"""What is read of a port before repairs get their turn: a few milliseconds of full packets."""


class Keeper:
    """Follows every session from its first message on, or from where the store's file ends.

    `speaker` is the port that requests come to: announcements are sent from there, so that
    those who hear them know where to ask.
    """

    def __init__(
        self,
        address: MulticastAddress,
        data: Sequence[Port],
        replies: Port,
        speaker: Port,
        store: MemoryStore,
        now: float,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._data = data
        self._replies = replies
        self._speaker = speaker
        self._own = speaker.address[:2]
        self._groups = [address.destination(path) for path in range(len(address.groups))]
        self._store = store
        self._stand_in = StandIn()
        self._stand_in.remember((session for session, _ in store.shelves()), now)
        options = FeedOptions(
            start="first",
            resume=ResumePoints(store),
            sessions=None if address.session is None else frozenset({address.session}),
            servers=tuple(server for server in address.servers if not self._is_own(server)),
            receiver=ReceiverOptions(
                ordered=False, deadline_s=DEADLINE_S, replay_deadline_s=DEADLINE_S
            ),
        )
        self._feed = Feed(options, random=Random(), now=now)
        self.ignored = self._feed.ignored
        """Datagrams that were no use, by reason."""

    def next_timeout(self) -> float | None:
        """When a turn has something to do though nothing comes."""
        timeouts = (self._feed.next_timeout(), self._stand_in.next_timeout())
        return min((at for at in timeouts if at is not None), default=None)

    def turn(self, now: float) -> None:
        """Takes what has come and does what is due."""
        feed = self._feed
        heard: dict[bytes, bytes] = {}
        outputs, is_drained = self._read(heard, now)
        for data, server, at_ns in self._replies.receive():
            outputs += feed.receive_reply(data, now, server=server, received_at_ns=at_ns)
        if is_drained:
            outputs += feed.handle_timeout(now)
        self._keep(outputs, heard, now)
        requests = cast(list[tuple[bytes, Address]], feed.requests_to_send())
        self.counts["send_errors"] += send_all(self._replies, requests)
        self._speak(heard, now)

    def _read(self, heard: dict[bytes, bytes], now: float) -> tuple[Outputs, bool]:
        """Reads the groups; notes the last datagram of each session in `heard`."""
        outputs: Outputs = []
        is_drained = True
        for path, port in enumerate(self._data):
            for _ in range(BATCHES_PER_TURN):
                batch = port.receive()
                for data, origin, at_ns in batch:
                    if not self._is_own(origin):
                        heard[data[:SESSION_BYTES]] = data
                        outputs += self._feed.receive_datagram(
                            data, now, origin=origin, received_at_ns=at_ns, path=path
                        )
                if len(batch) < BATCH:
                    break
            else:
                is_drained = False
        return outputs, is_drained

    def _keep(self, outputs: Outputs, heard: Mapping[bytes, bytes], now: float) -> None:
        store = self._store
        for session, output in _joined(outputs):
            if isinstance(output, Run):
                store.keep(session, output.first, output.messages, now)
                self.counts["recovered"] += len(output.messages) if output.recovered else 0
            else:
                store.lose(session, output.first, output.count)
        for session in heard:
            followed_now = self._feed.sessions.get(session)
            if followed_now is not None:
                receiver = followed_now.receiver
                store.expect(session, receiver.next_number, is_ended=receiver.is_ended)
                followed_now.is_identified = True  # who sends is of no interest here
        if store.is_behind:
            store.flush(now)

    def _speak(self, heard: Mapping[bytes, bytes], now: float) -> None:
        store, stand_in = self._store, self._stand_in
        for session, data in heard.items():
            if session in self._feed.sessions and len(data) >= HEADER_BYTES:
                stand_in.heard(session, _says_next(data), store.shelf(session), now)
        timeout = stand_in.next_timeout()
        if timeout is not None and now >= timeout:
            datagrams = stand_in.announcements(dict(store.shelves()), now)
            self.counts["announced"] += len(datagrams)
            to_groups = [(data, group) for data in datagrams for group in self._groups]
            self.counts["send_errors"] += send_all(self._speaker, to_groups)

    def _is_own(self, origin: Address) -> bool:
        host, port = self._own
        return origin[1] == port and (origin[0] == host or (_is_any(host) and _is_here(origin[0])))


def _joined(outputs: Outputs) -> Iterator[tuple[bytes, Output]]:
    """The same with neighbouring short runs made one: what is done for each is most of the work."""
    waiting: tuple[bytes, Run] | None = None
    for followed, output in outputs:
        session = followed.receiver.session
        if waiting is not None:
            name, run = waiting
            if (
                isinstance(output, Run)
                and session == name
                and output.first == run.first + len(run.messages)
                and output.recovered == run.recovered
                and len(run.messages) < JOINED_MESSAGES
            ):
                waiting = name, replace(run, messages=[*run.messages, *output.messages])
                continue
            yield waiting
            waiting = None
        if isinstance(output, Run):
            waiting = session, output
        else:
            yield session, output
    if waiting is not None:
        yield waiting


def send_all(port: Port, datagrams: Sequence[tuple[bytes, Address]]) -> int:
    """Sends in order; returns how many the network refused. Whoever lacks one asks again."""
    refused = 0
    while datagrams:
        try:
            sent = port.send(datagrams)
        except OSError:
            sent = 0
        refused += sent < len(datagrams)
        datagrams = datagrams[sent + 1 :]
    return refused


def _says_next(data: bytes) -> int:
    header = decode_header(data)
    has_messages = len(data) > HEADER_BYTES
    return header.sequence + (header.message_count if has_messages else 0)


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")


def _is_here(host: str) -> bool:
    """True when `host` is an address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
