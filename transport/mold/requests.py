"""Answering requests: one desk for a publisher's ring and for a request server's store.

A request asks for messages by number and gets one packet, to the address it came from. Requests
are not answered as they come but when `replies` is called, off the send path, and within
budgets of bytes per second: one for each requester, one for all repairs together, and one for
all replay (messages older than `replay_age_s`), so that late joiners and repairs cannot starve
each other. Addresses can be forged: a forged request costs no more than these budgets, and a
reply is only put together once there is budget for a whole packet. Requests that wait cost no time
either: they lie in a queue for each requester, of which only the first is looked at.

The protocol has no way to say no. A request for what is no longer there is answered with an
empty packet (the form of a heartbeat) whose number is the oldest message that is: true for any
reader of the protocol, and enough for ours to stop waiting.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from ..errors import ConfigurationError, Malformed
from .budget import ByteBudget
from .wire import (
    DEFAULT_PACKET_BYTES,
    END_OF_SESSION_COUNT,
    HEADER_BYTES,
    HEARTBEAT_COUNT,
    decode_header,
    encode_header,
)

AddressT = TypeVar("AddressT", bound=Hashable)

Request = tuple[bytes, int, int]
"""Session, first number, count."""

LOOKS_PER_CALL = 64
"""Requesters that `replies` looks at without finding budget before it leaves the others for the
next call: it holds up whoever publishes."""
MANY = 1 << 30
ANSWERED = frozenset({"requests", "served", "retransmitted", "evicted"})
"""Counts that stand on their own."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What answering may cost."""

    repair_bytes_per_s: int = 32 * 1024 * 1024
    """All repairs together: a quarter of a gigabit link."""
    requester_bytes_per_s: int = 8 * 1024 * 1024
    """Any one requester, so that one unlucky or forged address cannot take it all."""
    replay_bytes_per_s: int = 16 * 1024 * 1024
    """All replay of old messages together."""
    burst_bytes: int = 256 * 1024
    """What each budget may spend at once after a pause."""
    replay_age_s: float = 1.0
    """Messages sent longer ago than this count as replay, not as repair."""
    coalesce_s: float = 0.0005
    """The same request from the same address is one request within this time, and as long as
    it waits for budget."""
    max_waiting: int = 4096
    """Requests that may wait for budget; beyond it they are refused and counted."""
    max_waiting_each: int = 1024
    """Of these, from one requester, so that one cannot take every place."""
    max_requesters: int = 1024
    """Requesters remembered; beyond it the one longest unheard is forgotten."""
    packet_bytes: int = DEFAULT_PACKET_BYTES
    """Size of a reply at most."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            least = 0 if name in ("replay_age_s", "coalesce_s") else 1
            if getattr(self, name) < least:
                raise ConfigurationError(
                    f"requests {name} is {getattr(self, name)}, expected {least} or more"
                )


class MessageStore(Protocol):
    """What a desk needs from a ring or a file."""

    @property
    def first(self) -> int:
        """The oldest number it still has."""

    @property
    def next(self) -> int:
        """One past the newest."""

    def sent_at(self, number: int) -> float:
        """When a message it has was first sent or kept; in a hole, long ago."""

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        """Wire blocks from `first` on, as many as fit a packet; empty when it has a hole there."""


@dataclass(slots=True)
class RequesterCounts:
    """What one requester asked for and got: who loses, and who hurts the others."""

    requests: int = 0
    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Requester:
    budget: ByteBudget
    counts: RequesterCounts
    recent: dict[tuple[bytes, int, int], float]


_Queues = OrderedDict[AddressT, dict[Request, int]]
"""For each requester what it waits for, and in which call of `replies` that came."""
REPAIR, REPLAY = False, True


class RequestDesk(Generic[AddressT]):
    """Takes requests for one or more sessions and says which replies to send when."""

    def __init__(self, options: RequestOptions, now: float) -> None:
        self._options = options
        self._stores: dict[bytes, MessageStore] = {}
        self._waiting: tuple[_Queues[AddressT], _Queues[AddressT]] = (OrderedDict(), OrderedDict())
        self._waiting_of: Counter[AddressT] = Counter()
        self._calls = 0  # of `replies`
        self._new = 0  # requests since the last of them
        self._repair = ByteBudget(options.repair_bytes_per_s, options.burst_bytes, now)
        self._replay = ByteBudget(options.replay_bytes_per_s, options.burst_bytes, now)
        self._requesters: OrderedDict[AddressT, _Requester] = OrderedDict()
        self._retry_at: float | None = None
        self.counts: Counter[str] = Counter()

    def serve(self, session: bytes, store: MessageStore) -> None:
        """Answers requests for `session` out of `store` from now on."""
        self._stores[session] = store

    def forget(self, session: bytes) -> None:
        """Answers no more requests for `session`."""
        self._stores.pop(session, None)

    @property
    def requesters(self) -> dict[AddressT, RequesterCounts]:
        """Who asked for how much."""
        return {address: requester.counts for address, requester in self._requesters.items()}

    @property
    def ignored(self) -> dict[str, int]:
        """Requests that were not answered, by reason."""
        return {reason: n for reason, n in self.counts.items() if reason not in ANSWERED}

    def receive_request(self, data: bytes, address: AddressT, now: float) -> None:
        """Notes one request datagram; nothing is sent before `replies`."""
        try:
            session, first, count = decode_header(data)
        except Malformed:
            self.counts["malformed"] += 1
            return
        if len(data) != HEADER_BYTES or first == 0 or count in (0, END_OF_SESSION_COUNT):
            self.counts["malformed"] += 1
            return
        if session not in self._stores:
            self.counts["foreign_session"] += 1
            return
        requester = self._requester(address, now)
        requester.counts.requests += 1
        self.counts["requests"] += 1
        request = (session, first, count)
        is_waiting = any(request in queues.get(address, ()) for queues in self._waiting)
        if is_waiting or self._is_repeat(requester, request, now):
            self.counts["coalesced"] += 1
        elif (
            self._waiting_of.total() >= self._options.max_waiting
            or self._waiting_of[address] >= self._options.max_waiting_each
        ):
            self.counts["refused"] += 1
        else:
            queues = self._waiting[self._is_replay(request, now)]
            queues.setdefault(address, {})[request] = self._calls
            self._waiting_of[address] += 1
            self._new += 1
            self._retry_at = now

    def replies(self, now: float, most: int = MANY) -> list[tuple[bytes, AddressT]]:
        """The datagrams that budgets allow now, at most `most` for repairs and for replay each.

        Requests without budget go on waiting.
        """
        replies: list[tuple[bytes, AddressT]] = []
        waits = [self._reply(queues, replies, len(replies) + most, now) for queues in self._waiting]
        if self._new:
            self.counts["delayed"] += self._new
            self._new = 0
        self._calls += 1
        self._retry_at = min((at for at in waits if at is not None), default=None)
        return replies

    def _reply(
        self,
        queues: "_Queues[AddressT]",
        replies: list[tuple[bytes, AddressT]],
        most: int,
        now: float,
    ) -> float | None:
        """Goes through the requesters of one kind; returns when there is more to do."""
        retry_at = None
        total = self._repair if queues is self._waiting[REPAIR] else self._replay
        if not total.has(1, now):
            return total.ready_at(1, now) if queues else None
        for looks, address in enumerate(list(islice(queues, LOOKS_PER_CALL + 1))):
            if looks == LOOKS_PER_CALL or len(replies) >= most:
                return now  # the others next time
            requests = queues[address]
            ready_at = None
            while requests and ready_at is None and len(replies) < most:
                request = next(iter(requests))
                ready_at = self._answer(request, address, total, replies, now)
                if ready_at is None:
                    self._new -= requests.pop(request) == self._calls
                    self._leave(address)
            if not requests:
                del queues[address]
                continue
            queues.move_to_end(address)
            if ready_at is None:
                return now
            retry_at = ready_at if retry_at is None else min(retry_at, ready_at)
        return retry_at

    def next_timeout(self) -> float | None:
        """When `replies` is worth calling again."""
        return self._retry_at

    def _is_replay(self, request: Request, now: float) -> bool:
        session, first, _ = request
        store = self._stores[session]
        if not store.first <= first < store.next:
            return False
        return now - store.sent_at(first) > self._options.replay_age_s

    def _answer(
        self,
        request: Request,
        address: AddressT,
        total: ByteBudget,
        replies: list[tuple[bytes, AddressT]],
        now: float,
    ) -> float | None:
        """Answers a request if budgets allow; returns when they will, or None when it is done."""
        session, first, count = request
        store = self._stores.get(session)
        if store is None:
            self.counts["foreign_session"] += 1
            return None
        if first >= store.next:
            self.counts["future"] += 1
            return None
        is_evicted = first < store.first
        if not is_evicted and not store.blocks(first, 1, self._options.packet_bytes):
            self.counts["hole"] += 1
            return None
        requester = self._requester(address, now)
        most = HEADER_BYTES if is_evicted else self._options.packet_bytes
        if not (total.has(most, now) and requester.budget.has(most, now)):
            return max(total.ready_at(most, now), requester.budget.ready_at(most, now))
        packet, messages = self._compose(session, store, first, 0 if is_evicted else count)
        total.spend(len(packet))
        requester.budget.spend(len(packet))
        requester.counts.messages += messages
        requester.counts.bytes += len(packet)
        replies.append((packet, address))
        return None

    def _compose(
        self, session: bytes, store: MessageStore, first: int, count: int
    ) -> tuple[bytes, int]:
        if not count:
            self.counts["evicted"] += 1
            return encode_header(session, store.first, HEARTBEAT_COUNT), 0
        blocks = store.blocks(first, count, self._options.packet_bytes)
        self.counts["served"] += 1
        self.counts["retransmitted"] += len(blocks)
        return encode_header(session, first, len(blocks)) + b"".join(blocks), len(blocks)

    def _leave(self, address: AddressT) -> None:
        self._waiting_of[address] -= 1
        if not self._waiting_of[address]:
            del self._waiting_of[address]

    def _requester(self, address: AddressT, now: float) -> _Requester:
        requester = self._requesters.get(address)
        if requester is None:
            options = self._options
            budget = ByteBudget(options.requester_bytes_per_s, options.burst_bytes, now)
            requester = _Requester(budget, RequesterCounts(), {})
            self._requesters[address] = requester
            if len(self._requesters) > options.max_requesters:
                self._requesters.popitem(last=False)
        self._requesters.move_to_end(address)
        return requester

    def _is_repeat(
        self, requester: _Requester, request: tuple[bytes, int, int], now: float
    ) -> bool:
        asked_at = requester.recent.get(request)
        if asked_at is not None and now - asked_at < self._options.coalesce_s:
            return True
        if len(requester.recent) >= 256:  # older than the window, nearly all of them
            requester.recent.clear()
        requester.recent[request] = now
        return False
