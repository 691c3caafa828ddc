"""The receiving side: from datagrams on ports to events for the application.

    ports ──▶ Feed (runs, losses) ──▶ envelope, pieces ──▶ topics ──▶ queue ──▶ application
      │          └──▶ requests back to the network                               ▲
      └──▶ lane, while everything comes in order ────────────────────────────────┘

One `pump` takes everything that has come and does everything that is due; it never waits. Sockets
are read before timers are looked at, so that a process that was stopped does not give up what is
already waiting in its buffers.

The events of a session wait in the lane or in the queue, never in both, so their order is kept. The
lane is used for one session, from a moment on when the queue is empty, as long as all that waits
fits. What does not fit is for the overflow policy: `drop_oldest` drops at the front of the lane;
for the others everything that waits there goes to the queue, in front of what comes later. The
lane reads the socket itself while nothing is missing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from .datagrams import Address, Received
from .envelope import Whole, decode
from .errors import Malformed
from .event import Loss
from .gate import Backpressure, Gate
from .handover import HandoverQueue
from .lag import LagWatch
from .ledger import Ledger
from .mold.feed import Feed, FeedOptions, Followed, Outputs
from .mold.outputs import Lost, Run
from .mold.sessions import epoch_of, show_session
from .ports import BATCH, Port
from .registry import Identity, Registry
from .unpacking import HISTORY, IntakeStream, Payload, Unpacker

BATCHES_PER_PUMP = 4
"""What one pump reads of a port before the application gets its turn."""

MAX_LANE_EVENTS = 8192
"""Messages that wait in the lane where they may have to go on to the queue: with all of them it
takes about 25 ms."""


@dataclass(frozen=True, slots=True)
class PathSnapshot:
    """What one path (0 is A, 1 is B) of one session has carried up to now, in messages."""

    source: str
    epoch: int
    path: int
    received: int
    first_arrivals: int
    """Those that no other path had brought before."""
    missing: int
    """Those it skipped; nearly exact, as a path may also bring a packet twice."""


class Intake:
    """Reads the ports of one subscriber and fills its queue and ledger."""

    def __init__(
        self,
        data: Sequence[Port],
        requests: Port,
        queue: HandoverQueue,
        ledger: Ledger,
        options: FeedOptions,
        *,
        topics: Sequence[str] = (),
        payload: Payload = "event",
        registry: Registry | None = None,
        backpressure: Backpressure | None = None,
        watch: LagWatch | None = None,
    ) -> None:
        self.ports = [*data, requests]
        self._telling_once = [port for port in self.ports if port.tells_once]
        self._data = data
        self._requests = requests
        self._queue = queue
        self._ledger = ledger
        self._topics = tuple(topics)
        self._payload = payload
        self._registry = registry
        self._watch = watch
        self._gate = None if backpressure is None else Gate(queue, backpressure)
        self._feed = Feed(
            options,
            random=Random(),
            now=time.monotonic(),
            on_repaired=lambda elapsed_s: ledger.repair_ns.record(elapsed_s * 1e9),
            is_new=None if registry is None else registry.is_new,
        )
        self._streams: dict[bytes, IntakeStream] = {}
        entrance = queue if self._gate is None else self._gate
        self._unpacker = Unpacker(
            entrance, ledger, tuple(topics), payload, first_live=self._first_live
        )
        self.lane = data[0].open_lane(is_raw=payload == "raw", topics=self._topics)
        self._is_stale = False  # the ledger lacks counts of the last pump
        self._in_lane: Followed | None = None
        policy, max_events = queue.options.on_overflow, queue.options.max_events
        # Of what is not wanted nothing must be dropped as too much: it has to be looked at.
        self._can_shed = policy == "drop_oldest" and not self._topics
        self._lane_events = max_events if self._can_shed else min(MAX_LANE_EVENTS, max_events)
        if policy == "latest":  # one for each key: never the lane
            self._lane_events = 0
        self.is_mixed = False
        """True when the queue may have something while the lane has too: then both take turns."""
        self._origin: Address | None = None

    @property
    def feed(self) -> Feed:
        """The protocol state, for statistics."""
        return self._feed

    def paths(self) -> tuple[PathSnapshot, ...]:
        """What each path of each session that is followed has carried."""
        found = []
        for followed in self._feed.sessions.values():
            account = self._stream(followed).account
            for path, counts in enumerate(followed.receiver.paths):
                found.append(
                    PathSnapshot(
                        account.source, account.epoch, path,
                        counts.received, counts.first_arrivals, counts.missing,
                    )
                )  # fmt: skip
        return tuple(found)

    def next_timeout(self) -> float | None:
        """When `pump` has something to do though nothing comes."""
        return self._feed.next_timeout()

    def pump(self, received: list[Received] | None = None) -> bool:
        """Takes what has come and does what is due.

        `received` is what has been read of the first port already; None: it is to be read.
        False when it stopped though more has come.
        """
        if self._gate and self._is_held_back(self._gate):
            return True
        now = time.monotonic()
        self.settle()
        self.lane.may_read = False
        feed = self._feed
        is_drained = True
        for path, port in enumerate(self._data):
            batch = port.receive() if received is None or path else received
            for rounds in range(BATCHES_PER_PUMP):
                for data, origin, at_ns in batch:
                    outputs = feed.receive_datagram(
                        data, now, origin=origin, received_at_ns=at_ns, path=path
                    )
                    self._origin = origin
                    if outputs:
                        self._take(outputs)
                if len(batch) < BATCH and not port.has_more:
                    break
                if rounds == BATCHES_PER_PUMP - 1:
                    is_drained = False
                    break
                batch = port.receive()
        self._pump_repairs(now, is_drained)
        if self._requests.trouble is not None and not self._queue.disconnected:
            self._queue.disconnect(self._requests.trouble)
        if self._gate is not None:
            self._grant(self._gate)
        if self._watch is not None:
            self._watch.look(sum(stream.account.pending for stream in self._streams.values()))
        self.is_mixed = len(self._queue) > 0
        return is_drained

    def unstick(self) -> bool:
        """Lets in what was held back as far as it fits; True if some of it did."""
        return self._gate is not None and self._gate.release()

    def _is_held_back(self, gate: Gate) -> bool:
        """Looks whether there is room again; while there is none, nothing is read."""
        self.settle()
        gate.release()
        if gate:
            self._requests.receive()  # a farewell; replies, which are asked for again
            self._grant(gate)
            gate.release()
        return bool(gate)

    def _grant(self, gate: Gate) -> None:
        taken = {
            session: stream.account.first - 1 + stream.account.expected - stream.account.pending
            for session, stream in self._streams.items()
        }
        gate.grant(taken, is_idle=not (len(self.lane) or len(self._queue) or gate))

    @property
    def is_direct(self) -> bool:
        """True when nobody has to be told of each event that is taken."""
        return self._gate is None

    @property
    def is_calm(self) -> bool:
        """True while the lane can go on reading as it is."""
        return self._gate is None and self.lane.is_calm

    def before_wait(self) -> None:
        """Nothing is there to be taken: settles, and lets the lane read if it can."""
        self.settle()
        if self._is_stale:
            self._copy_counts()
        if self._gate is not None:
            self._grant(self._gate)
        if self.lane.may_read:
            return
        followed = self._feed.current
        if followed is None or not followed.is_identified or len(self._queue) or self._gate:
            return
        if self._in_lane is not followed:
            self._enter_lane(followed)
        if self._in_lane is None or len(self._data) > 1 or not followed.receiver.is_in_order:
            return
        if self._feed.next_timeout() is None and not self._has_strangers():
            self.lane.expect(followed.receiver.next_number)
            self.lane.may_read = True

    def update_ledger(self) -> None:
        """Brings the ledger up to this moment."""
        self.settle()
        self._copy_counts()

    def has_more(self) -> bool:
        """True when more may have come than the ports' descriptors tell."""
        if self._gate:
            return False
        for port in self._telling_once:  # noqa: SIM110  # a generator costs as much as the rest
            if port.has_more:
                return True
        return False

    def has_room_in_lane(self) -> bool:
        """True when more can wait there; otherwise a pump lets the overflow policy decide."""
        return len(self.lane) < self._lane_events

    def settle(self) -> None:
        """Puts what the application took from the lane into the accounts."""
        followed = self._in_lane
        if followed is None:
            return
        runs, latencies_ns = self.lane.settle()
        next_number = self.lane.next_number
        receiver = followed.receiver
        if next_number > receiver.next_number:
            receiver.receive_elsewhere(next_number, time.monotonic())
        account = self._stream(followed).account
        account.expect(next_number)
        for first, stop, is_filtered in runs:
            if is_filtered:
                account.filter(first, stop - first)
            else:
                account.deliver(first, stop - first)
        if latencies_ns:
            self._ledger.latency_ns.record_many(latencies_ns)

    def take_stuck(self) -> Loss | None:
        """Takes what is no plain event out of the lane; what comes of it is returned or queued."""
        if self._in_lane is None:
            return None
        self.settle()
        loss = self._pop_loss(self._stream(self._in_lane))
        if loss is None and len(self._queue):
            self._leave_lane()
        return loss

    def _enter_lane(self, followed: Followed) -> None:
        self._leave_lane()
        if self._watch is not None:  # the age of each event is looked at as it is taken
            return
        if self._origin is None or len(self._queue) or self._gate or self._queue.disconnected:
            return
        stream = self._stream(followed)
        if stream.name == HISTORY:  # each event is looked at
            return
        self._in_lane = followed
        session = followed.receiver.session
        self.lane.open(session, self._origin, stream.source, stream.epoch, stream.name)
        self.lane.expect(followed.receiver.next_number)  # not that of the session before

    def _leave_lane(self) -> None:
        followed = self._in_lane
        if followed is None:
            return
        self.settle()
        self.lane.may_read = False
        self._in_lane = None
        stream = self._stream(followed)
        while (popped := self.lane.pop()) is not None:
            number, message, at_ns = popped
            self._unpack(followed, stream, number, message, at_ns)

    def _unpack(
        self, followed: Followed, stream: IntakeStream, number: int, message: object, at_ns: int
    ) -> None:
        """The long way for one entry of the lane."""
        if isinstance(message, Lost):
            self._unpacker.lost(stream, message)
        else:
            assert isinstance(message, bytes)
            self._unpacker.message(followed, stream, number, message, at_ns)

    def _pump_repairs(self, now: float, is_drained: bool) -> None:
        feed = self._feed
        timeout = feed.next_timeout()
        # Even when nothing is missing: a late or forged reply would wake every wait to come.
        for data, server, at_ns in self._requests.receive():
            self._take(feed.receive_reply(data, now, server=server, received_at_ns=at_ns))
        if timeout is not None and is_drained and now >= timeout:
            self._take(feed.handle_timeout(now))
        requests = feed.requests_to_send()
        if requests:
            self._ask(cast(list[tuple[bytes, Address]], requests))
        self._is_stale = True

    def _ask(self, requests: list[tuple[bytes, Address]]) -> None:
        """Sends requests; one that cannot go (no route, no permission) is due again later."""
        while requests:
            try:
                sent = self._requests.send(requests)
            except OSError:
                sent = 0
            if sent < len(requests):
                self._ledger.ignored["requests_not_sent"] += 1
            requests = requests[sent + 1 :]

    def _has_strangers(self) -> bool:
        if self._registry is not None:
            return False
        return any(not followed.is_identified for followed in self._feed.sessions.values())

    def end(self) -> None:
        """Gives up what is under repair, because the subscriber closes."""
        self._leave_lane()
        self.unstick()
        self._take(self._feed.end())
        for stream in self._streams.values():
            self._unpacker.end(stream)
        self._copy_counts()

    def _forget_streams(self) -> None:
        """Closes the accounts of sessions that the feed has let go."""
        for session in self._streams.keys() - self._feed.sessions.keys():
            if self._in_lane is not None and self._in_lane.receiver.session == session:
                self._leave_lane()
            stream = self._streams.pop(session)
            self._unpacker.end(stream)
            stream.account.is_finished = True

    def _learn_source(self, followed: Followed, stream: IntakeStream, message: bytes) -> None:
        """Reads the reply to a probe: a late joiner learns who sends though nothing is sent."""
        try:
            fields = decode(message)
        except Malformed:
            return
        if isinstance(fields, Whole):
            followed.is_identified = True
            stream.source = stream.account.source = fields.source

    def _stream(self, followed: Followed) -> IntakeStream:
        session = followed.receiver.session
        stream = self._streams.get(session)
        if stream is None:
            if self._registry is not None:
                identity = self._registry.identify(session)
            else:
                source = show_session(session) if self._payload == "raw" else ""
                identity = Identity(source, epoch_of(session), "")
            account = self._ledger.open(*identity, followed.receiver.first_number)
            stream = self._streams[session] = IntakeStream(account, followed)
            followed.is_identified = bool(identity.source)
        return stream

    def _first_live(self, name: str, epoch: int) -> int:
        """The first number that a stream brings us; all of one that began after us comes."""
        for followed in self._feed.sessions.values():
            stream = self._stream(followed)
            if stream.name == name and stream.epoch == epoch:
                return stream.account.first
        return 0

    def _copy_counts(self) -> None:
        self._is_stale = False
        touched = list(self._feed.touched.values())
        self._feed.touched.clear()
        for followed in touched:
            stream = self._stream(followed)
            if not followed.is_identified and followed.identity is not None:
                self._learn_source(followed, stream, followed.identity)
            account, receiver = stream.account, stream.receiver
            account.expect(receiver.next_number)
            account.recovered = receiver.counts.recovered
            account.duplicates = receiver.counts.duplicates
            account.reordered = receiver.counts.reordered
        if len(self._streams) > len(self._feed.sessions):
            self._forget_streams()
        ledger = self._ledger
        if self._watch is not None:
            ledger.lagged = self._watch.occasions
        ledger.kernel_drops = sum(port.kernel_drops for port in self.ports)
        truncated = sum(port.truncated for port in self.ports)
        if truncated:
            ledger.ignored["truncated"] = truncated
        lost_on_purpose = sum(port.lost_on_purpose for port in self.ports)
        if lost_on_purpose:
            ledger.ignored["lost_on_purpose"] = lost_on_purpose
        refused = sum(port.refused for port in self.ports)
        if refused:
            ledger.ignored["refused_handshakes"] = refused
        if self._queue.spill_errors:
            ledger.ignored["spill_refused"] = self._queue.spill_errors
        for reason, count in self._feed.ignored.items():
            ledger.ignored[reason] = count
        if self._registry is not None:
            for reason, count in dict(self._registry.ignored).items():  # it is being added to
                ledger.ignored[reason] = count

    def _take(self, outputs: Outputs) -> None:
        for followed, output in outputs:
            stream = self._stream(followed)
            stream.account.expect(followed.receiver.next_number)
            if followed is self._in_lane:
                if not self._goes_to_lane(output):
                    self._leave_lane()
            elif isinstance(output, Run):
                number = output.first
                for message in output.messages:
                    self._unpacker.message(followed, stream, number, message, output.received_at_ns)
                    number += 1
            else:
                self._unpacker.lost(stream, output)

    def _goes_to_lane(self, output: Run | Lost) -> bool:
        lane = self.lane
        if isinstance(output, Run):
            lane.push(output.first, output.messages, output.received_at_ns)
        else:
            lane.push(output.first, (output,), 0)
        return self._has_kept_to_bounds()

    def _has_kept_to_bounds(self) -> bool:
        """Sheds what is too much for the lane; False when it is not for the lane to do so."""
        lane, max_bytes = self.lane, self._queue.options.max_bytes
        followed = self._in_lane
        while len(lane) > self._lane_events or lane.size_bytes > max_bytes:
            if followed is None or not self._can_shed or len(lane) <= 1:
                return len(lane) <= 1 <= self._lane_events
            stream = self._stream(followed)
            self.settle()
            excess = max(len(lane) - self._lane_events, 1)
            first, count = lane.drop(excess)
            if count:
                self._queue.drop(stream.account, first, count, time.time_ns())
            elif (loss := self._pop_loss(stream)) is None:
                return False
            else:
                self._queue.tell_first(loss, stream.account)
        return True

    def _pop_loss(self, stream: IntakeStream) -> Loss | None:
        """Takes the loss that is next in the lane; None when it is a piece of an event, which goes
        the long way, and so must everything behind it."""
        popped = self.lane.pop()
        if popped is None or self._in_lane is None:
            return None
        number, message, at_ns = popped
        if isinstance(message, Lost) and stream.assembler is None:
            stream.account.lose(message.first, message.count, message.reason)
            return stream.loss(message.first, message.count, message.reason)
        self._unpack(self._in_lane, stream, number, message, at_ns)
        return None

    def close(self) -> None:
        """Closes the ports."""
        for port in self.ports:
            port.close()
