"""Who listens on the virtual network: subscribers that keep accounts, and request servers.

A subscriber checks what it is handed as it comes: in order where that was promised, byte for
byte what was sent, no number settled twice, and none given up that could still be had.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mold_network import FOREVER, Faults, Link, Network, Publisher

from onehop.transport.event import LossReason
from onehop.transport.mold import Feed, FeedOptions, Lost, RequestDesk, RequestOptions, Run
from onehop.transport.mold.feed import Outputs
from onehop.transport.mold.wire import HEADER_BYTES, encode_block


@dataclass(slots=True)
class Account:
    """What one subscriber got of one session."""

    sent: list[bytes]
    first: int
    ordered: bool
    next: int
    """The number that has to come next (ordered)."""
    delivered: int = 0
    lost: list[Lost] = field(default_factory=list)
    settled: bytearray = field(default_factory=bytearray)
    """One byte for each number (unordered): 1 once it is settled."""

    def take(self, output: Run | Lost) -> None:
        """Settles the numbers of one output."""
        first = output.first
        if isinstance(output, Run):
            count = len(output.messages)
            expected = self.sent[first - 1 : first - 1 + count]
            assert list(output.messages) == expected, f"wrong bytes at {first}"
            self.delivered += count
        else:
            count = output.count
            self.lost.append(output)
        assert count > 0, f"{output} settles nothing"
        if self.ordered:
            assert first == self.next, f"{output} while {self.next} is next"
            self.next = first + count
            return
        missing = first + count - len(self.settled)
        if missing > 0:
            self.settled += bytes(missing)
        assert not any(self.settled[first : first + count]), f"{output} settled twice"
        self.settled[first : first + count] = b"\1" * count

    @property
    def lost_count(self) -> int:
        """Numbers given up."""
        return sum(lost.count for lost in self.lost)


class Subscriber:
    """A `Feed` on the network, with an account for each session."""

    def __init__(self, network: Network, name: str, *, options: FeedOptions | None = None) -> None:
        self.name = name
        self.answering: list[Publisher | RequestServer] = []
        self.request_links: dict[Hashable, Link] = {}
        self.accounts: dict[bytes, Account] = {}
        self.requests = 0
        self.max_held_bytes = 0
        self.max_gaps = 0
        self._network = network
        self.options = options or FeedOptions()
        self._wake_at = FOREVER
        self.feed = Feed(self.options, random=network.random, now=network.now)

    def restart(self) -> None:
        """Dies and comes back, going on where the last number was handed out."""
        resume = {session: account.next for session, account in self.accounts.items()}
        options = replace(self.options, resume=resume)
        self.feed = Feed(options, random=self._network.random, now=self._network.now)

    def on_datagram(self, origin: Hashable, path: int, data: bytes) -> None:
        """Takes a datagram from a group."""
        now = self._network.now
        self._settle(self.feed.receive_datagram(data, now, origin=origin, path=path))

    def on_reply(self, server: Hashable, data: bytes) -> None:
        """Takes a datagram from a server."""
        self._settle(self.feed.receive_reply(data, self._network.now, server=server))

    def _wake(self, _: bytes) -> None:
        now = self._network.now
        if now >= self._wake_at:
            self._wake_at = FOREVER
            self._settle(self.feed.handle_timeout(now))

    def _settle(self, outputs: Outputs) -> None:
        for followed, output in outputs:
            followed.is_identified = True
            receiver = followed.receiver
            account = self.accounts.get(receiver.session)
            if account is None:
                account = self._open_account(receiver.session, receiver.first_number)
            account.take(output)
            if isinstance(output, Lost):
                self._check_loss(receiver.session, output)
        due_at = self.feed.next_timeout()
        if due_at is None:
            return
        for followed in self.feed.sessions.values():
            receiver = followed.receiver
            if receiver.held_bytes > self.max_held_bytes:
                self.max_held_bytes = receiver.held_bytes
            if len(receiver.gaps) > self.max_gaps:
                self.max_gaps = len(receiver.gaps)
        for request, server in self.feed.requests_to_send():
            self.requests += 1
            self.request_links[server].send(request)
        if due_at < self._wake_at:
            self._wake_at = due_at
            self._network.at(max(due_at, self._network.now), self._wake)

    def _open_account(self, session: bytes, first: int) -> Account:
        ordered = self.options.receiver.ordered
        account = Account(self._network.sent[session], first, ordered, next=first)
        self.accounts[session] = account
        return account

    def _check_loss(self, session: bytes, lost: Lost) -> None:
        """A number is given up when nobody has it, or not before its deadline."""
        stop = lost.first + lost.count
        options = self.options.receiver
        if lost.reason is LossReason.EVICTED:
            having = [s.name for s in self.answering if s.has_any(session, lost.first, stop)]
            assert not having, f"{lost} of {session!r}, but {having} had it"
        elif lost.reason is not LossReason.OVERFLOW and options.attempts is None:
            waited_s = self._network.now - self._network.sent_at[session][stop - 2]
            assert waited_s >= options.deadline_s, f"{lost} after only {waited_s} s"

    @property
    def missing(self) -> int:
        """Numbers under repair."""
        return sum(followed.receiver.gaps.missing for followed in self.feed.sessions.values())

    def check_complete(self) -> None:
        """Every number known to exist was delivered or lost, once, and nothing is held back."""
        for session, followed in self.feed.sessions.items():
            receiver = followed.receiver
            assert not receiver.gaps.missing
            assert receiver.held_bytes == 0
            account = self.accounts.get(session)
            if account is None:
                assert receiver.next_number == receiver.first_number
                continue
            expected = receiver.next_number - account.first
            assert account.delivered + account.lost_count == expected


class Store:
    """What a request server keeps: everything its own feed was handed, holes and all."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._blocks: list[bytes | None] = []
        self._kept_at: list[float] = []

    @property
    def next(self) -> int:
        """One past the newest."""
        return self.first + len(self._blocks)

    def keep(self, messages: Sequence[bytes | None], now: float) -> None:
        """Appends messages; None stands for a lost one."""
        for message in messages:
            self._blocks.append(None if message is None else encode_block(message))
            self._kept_at.append(now)

    def sent_at(self, number: int) -> float:
        """When a message was kept."""
        return self._kept_at[number - self.first]

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        """Blocks that fit one packet, up to a hole."""
        found: list[bytes] = []
        room = packet_bytes - HEADER_BYTES
        at = first - self.first
        for block in self._blocks[at : at + count]:
            if block is None or (found and len(block) > room):
                break
            room -= len(block)
            found.append(block)
        return found

    def has_any(self, first: int, stop: int) -> bool:
        """True when one of these numbers is here."""
        low = max(first, self.first) - self.first
        return any(block is not None for block in self._blocks[low : max(low, stop - self.first)])


class RequestServer(Subscriber):
    """A subscriber that answers requests out of what it was handed."""

    def __init__(self, network: Network, name: str) -> None:
        super().__init__(network, name)
        self.reply_links: dict[Hashable, Link] = {}
        self._forget_all()

    def _forget_all(self) -> None:
        self._stores: dict[bytes, Store] = {}
        self._desk: RequestDesk[Hashable] = RequestDesk(RequestOptions(), self._network.now)
        self._retry_at = FOREVER

    def restart(self) -> None:
        """Forgets everything and follows from what it hears next."""
        self.feed = Feed(self.options, random=self._network.random, now=self._network.now)
        self.accounts = {}
        self._forget_all()

    def has_any(self, session: bytes, first: int, stop: int) -> bool:
        """True when it could still answer for one of these numbers."""
        store = self._stores.get(session)
        return store is not None and store.has_any(first, stop)

    def _settle(self, outputs: Outputs) -> None:
        super()._settle(outputs)
        now = self._network.now
        for followed, output in outputs:
            session = followed.receiver.session
            store = self._stores.get(session)
            if store is None:
                store = self._stores[session] = Store(followed.receiver.first_number)
                self._desk.serve(session, store)
            kept = output.messages if isinstance(output, Run) else [None] * output.count
            store.keep(kept, now)

    def on_request(self, address: Hashable, data: bytes) -> None:
        """Takes a request that came over a link."""
        self._desk.receive_request(data, address, self._network.now)
        self._reply()

    def _reply(self) -> None:
        for data, address in self._desk.replies(self._network.now):
            self.reply_links[address].send(data)
        retry_at = self._desk.next_timeout()
        if retry_at is not None and retry_at < self._retry_at:
            self._retry_at = retry_at
            self._network.at(retry_at, self._retry)

    def _retry(self, _: bytes) -> None:
        if self._network.now >= self._retry_at:
            self._retry_at = FOREVER
            self._reply()


def connect(
    network: Network,
    publisher: Publisher,
    subscriber: Subscriber,
    faults: Faults,
    servers: Sequence[RequestServer] = (),
    second_path: Faults | None = None,
) -> None:
    """Joins a subscriber to a publisher's group, and both ways to whoever answers requests."""
    for path, how in enumerate((faults, second_path)):
        if how is not None:
            sink = partial(subscriber.on_datagram, publisher.name, path)
            publisher.group.append(Link(network, how, sink))
    answering: list[Publisher | RequestServer] = [publisher, *servers]
    for server in answering:
        if server not in subscriber.answering:
            subscriber.answering.append(server)
        to_server = partial(server.on_request, subscriber.name)
        subscriber.request_links[server.name] = Link(network, faults, to_server)
        back = partial(subscriber.on_reply, server.name)
        server.reply_links[subscriber.name] = Link(network, faults, back)
