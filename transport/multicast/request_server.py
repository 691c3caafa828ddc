"""The request server: keeps what publishers send, and answers for them when they are gone.

    groups ──▶ Keeper ──▶ store (memory) ──▶ file                    receiving, writing
                            ▼                 ▼
    requests ──▶ Holes ──▶ RequestDesk ──▶ replies, within budgets   answering

It is an ordinary subscriber of every session, from its first message on, and an ordinary
MoldUDP64 request server: nothing on the wire is its own invention. Receiving, writing and
answering are a thread each and share only the store, so that neither a burst of requests nor a
disk that stalls makes it miss what comes.

How a session is found when its publisher is dead: subscribers learn of sessions from what is
sent to the group, and MoldUDP64 has no way to ask which there are. So the server goes on with the
heartbeats of a publisher it has not heard for 1.5 s, or with its end of session if it has ended,
also after a restart out of its file (mold/standin.py). A joiner with start="first" hears of the
session within two seconds, asks the server for it and needs no name of the session. This means:
- The numbers are what the server knows; what only the publisher knew is gone with it.
- Several servers keep each other silent, and copy from each other what one of them lacks.
- A publisher that comes back has a new session. One that takes the same name again and counts
  from 1 (session=NAME) breaks the protocol, and no reader can tell its messages from the old.
- A subscriber that joined the group by source=IP hears the server only if it has that address.
- A subscriber that opened with start="live" while neither publisher nor server was there, and is
  there when the server comes back, takes the old session for a new one and gets it whole.
- start="first" gets every session that is announced: the 64 heard last. session=NAME narrows it.
"""

import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ..datagrams import Address, Received
from ..faults import LossyPort, Xorshift
from ..mold.feed import SETTLING_S
from ..mold.holes import Holes
from ..mold.requests import RequestDesk, RequestOptions
from ..mold.store import MemoryStore
from ..mold.wire import SESSION_BYTES
from ..ports import Port
from ..urls import parse_url
from .address import parse_multicast
from .file_store import FileStore
from .keeper import Keeper, send_all
from .sockets import open_data_port, open_request_port, open_server_port

RING_BYTES = 64 * 1024 * 1024
"""As much as a publisher keeps."""
LOOK_EVERY_S = 0.1
"""A server that is told to stop notices it after this time at the latest."""
WRITE_EVERY_S = 0.01
"""How often what has come is written to the file: what a killed process has to ask for again."""
UNANSWERED = ("malformed", "foreign_session", "coalesced", "refused", "future", "hole")


@dataclass(frozen=True, slots=True)
class RequestServerSnapshot:
    """What a request server has and has done up to now; messages unless said otherwise."""

    sessions: int
    kept: int
    """Kept since it was opened."""
    in_memory: int
    in_file: int
    memory_bytes: int
    file_bytes: int
    evicted: int
    """Gone from memory to make room; with a file they are there."""
    not_filed: int
    """Not in the file because the disk refused."""
    lost: int
    """Known to exist and not to be had from anyone."""
    recovered: int
    """Repaired gaps of its own, replay at the beginning included."""
    requests: int
    requests_served: int
    retransmitted: int
    requests_refused: int
    """Requests for what is evicted or lost."""
    ignored_requests: Mapping[str, int]
    """Requests that got no answer, by reason."""
    ignored: Mapping[str, int]
    """Datagrams to the group that were no use, by reason."""
    announced: int
    """Heartbeats sent in place of silent publishers."""
    send_errors: int
    kernel_drops: int
    fault: str
    """Why the disk does not take what comes, in one sentence; empty: it does."""
    damage: str
    """What was wrong with the file when it was opened, in one sentence; empty: nothing."""


class RequestServer:
    """Keeps and answers while `run` runs; raises `LocalError` when it cannot be set up.

    `listen` is where requests are taken: an IP and a port, 0 for any; by default the interface
    of the URL. `ring_bytes` bounds what is in memory. `file` is a directory for everything.
    `requests` says what answering may cost.
    """

    def __init__(
        self,
        url: str,
        *,
        listen: tuple[str, int] | None = None,
        ring_bytes: int = RING_BYTES,
        file: Path | None = None,
        requests: RequestOptions | None = None,
    ) -> None:
        address = parse_multicast(parse_url(url, ("multicast",)))
        self._ports: list[Port] = []
        self._is_closed = False
        self._reply_errors = 0
        try:
            self._ports.append(open_server_port(address, listen))
            for path in range(len(address.groups)):
                self._ports.append(open_data_port(address, path))
            self._ports.append(open_request_port(address))
            self._file = None if file is None else FileStore(ring_bytes, file)
            self._store = MemoryStore(ring_bytes) if self._file is None else self._file
        except BaseException:
            self._close_ports()
            raise
        self._port, *heard = self._ports
        if address.loss:
            dice = Xorshift(address.seed)
            heard = [LossyPort(port, address.loss, dice) for port in heard]
        self._heard = heard
        now = self._opened_at = time.monotonic()
        self._keeper = Keeper(address, heard[:-1], heard[-1], self._port, self._store, now)
        budgets = requests or RequestOptions(packet_bytes=address.packet_bytes)
        self._desk: RequestDesk[Address] = RequestDesk(budgets, now)
        self._holes: Holes[Address] = Holes()

    @property
    def address(self) -> Address:
        """Where requests are taken."""
        return self._port.address

    @property
    def stats(self) -> RequestServerSnapshot:
        """What has been done up to now; may be read while `run` runs in another thread."""
        store, refused = self._store, self._holes.refused
        counts, desk = Counter(dict(self._keeper.counts)), Counter(dict(self._desk.counts))
        file = self._file
        return RequestServerSnapshot(
            sessions=len(store),
            kept=store.kept,
            in_memory=store.in_memory,
            in_file=0 if file is None else file.archive.messages,
            memory_bytes=store.size_bytes,
            file_bytes=0 if file is None else file.archive.size_bytes,
            evicted=store.evicted,
            not_filed=0 if file is None else file.not_filed,
            lost=store.lost,
            recovered=counts["recovered"],
            requests=desk["requests"] + refused,
            requests_served=desk["served"],
            retransmitted=desk["retransmitted"],
            requests_refused=desk["evicted"] + refused,
            ignored_requests={name: desk[name] for name in UNANSWERED if desk[name]},
            ignored=dict(self._keeper.ignored),
            announced=counts["announced"],
            send_errors=counts["send_errors"] + self._reply_errors,
            kernel_drops=sum(port.kernel_drops for port in self._ports),
            fault=store.fault,
            damage="" if file is None else file.archive.damage,
        )

    def run(self, stop: threading.Event) -> None:
        """Keeps and answers until `stop` is set; `close` leaves nothing unwritten."""
        failures: list[BaseException] = []

        def guarded(work: Callable[[threading.Event], None]) -> None:
            try:
                work(stop)
            except BaseException as failure:
                failures.append(failure)
                stop.set()

        workers = [
            threading.Thread(target=guarded, args=(work,), name=f"onehop-{work.__name__}")
            for work in ((self._answer,) if self._file is None else (self._answer, self._write))
        ]
        for worker in workers:
            worker.start()
        try:
            guarded(self._receive)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        for failure in failures:
            raise failure

    def close(self) -> None:
        """Frees everything. Not while `run` runs; closing again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._close_ports()
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _close_ports(self) -> None:
        for port in self._ports:
            port.close()

    # -- the threads -----------------------------------------------------------------------------

    def _receive(self, stop: threading.Event) -> None:
        poll = select.poll()
        for port in self._heard:
            poll.register(port.fileno(), select.POLLIN)
        while not stop.is_set():
            timeout = self._keeper.next_timeout()
            wait_s = LOOK_EVERY_S if timeout is None else timeout - time.monotonic()
            poll.poll(max(0.0, min(wait_s, LOOK_EVERY_S)) * 1e3)
            self._keeper.turn(time.monotonic())

    def _write(self, stop: threading.Event) -> None:
        while not stop.wait(WRITE_EVERY_S):
            self._store.flush(time.monotonic())

    def _answer(self, stop: threading.Event) -> None:
        poll = select.poll()
        poll.register(self._port.fileno(), select.POLLIN)
        while not stop.is_set():
            retry_at = self._desk.next_timeout()
            wait_s = LOOK_EVERY_S if retry_at is None else max(0.0, retry_at - time.monotonic())
            poll.poll(min(wait_s, LOOK_EVERY_S) * 1e3)
            replies = self._replies(self._port.receive(), time.monotonic())
            self._reply_errors += send_all(self._port, replies)

    def _replies(self, requests: Sequence[Received], now: float) -> list[tuple[bytes, Address]]:
        desk = self._desk
        replies: list[tuple[bytes, Address]] = []
        for data, origin, _ in requests:
            session = data[:SESSION_BYTES]
            shelf = self._store.shelf(session)
            request, refusal = data, None
            if shelf is None:
                desk.forget(session)
            else:
                desk.serve(session, shelf)
                if now - self._opened_at > SETTLING_S:  # before, a publisher may yet be heard
                    request, refusal = self._holes.steer(data, shelf, origin, now)
            if refusal is None:
                desk.receive_request(request, origin, now)
            else:
                replies.append((refusal, origin))
        return replies + desk.replies(now)
