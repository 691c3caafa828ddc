"""One receiver against a model: whatever comes, each number is settled exactly once.

The model is a list of numbers sent, a server that has some of them, and a clock. Packets come in
any order, cut anywhere, twice or not at all; requests are answered, answered in part, answered
with "no more", or not answered.
"""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mold_hearer import SESSION, message

from onehop.transport.mold import Lost, ReceiverOptions
from onehop.transport.mold.outputs import Output
from onehop.transport.mold.receiver import HELD_OVERHEAD_BYTES, ReceiverSession
from onehop.transport.mold.wire import END_OF_SESSION_COUNT, HEARTBEAT_COUNT, decode_header

HOLD_BYTES = 6 * (HELD_OVERHEAD_BYTES + 30)
MAX_GAPS = 6
PACKET_BYTES = 300
SERVERS = ("x", "y")

far = st.integers(0, 40)
few = st.integers(1, 12)


class OneReceiver(RuleBasedStateMachine):
    """The rules are what a network, two servers and time can do."""

    @initialize(
        ordered=st.booleans(),
        start=st.sampled_from([1, 3, 10]),
        attempts=st.sampled_from([None, None, 0, 2]),
        small=st.booleans(),
    )
    def open(self, ordered: bool, start: int, attempts: int | None, small: bool) -> None:
        self.ordered = ordered
        self.options = ReceiverOptions(
            ordered=ordered,
            attempts=attempts,
            deadline_s=0.2,
            replay_deadline_s=0.4,
            hold_bytes=HOLD_BYTES if small else 10**6,
            max_gaps=MAX_GAPS if small else 1000,
        )
        self.now = 50.0
        self.sent = 10  # numbers 1 to 10 exist
        self.oldest = dict.fromkeys(SERVERS, 1)
        self.first = start
        self.settled: dict[int, str] = {}
        self.requests: list[tuple[int, int, object]] = []
        self.receiver = ReceiverSession(
            SESSION,
            self.options,
            random=Random(0),
            servers=lambda: SERVERS,
            on_repaired=lambda elapsed_s: None,
        )
        self.receiver.start(start, start, self.now)

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Lost):
                count, fate = output.count, "lost"
            else:
                count, fate = len(output.messages), "delivered"
                for number, data in enumerate(output.messages, output.first):
                    assert data == message(number)
            assert count > 0
            for number in range(output.first, output.first + count):
                assert self.first <= number <= self.sent
                assert number not in self.settled, f"{number} settled twice"
                if self.ordered:
                    assert number == self.first + len(self.settled), f"{number} out of order"
                self.settled[number] = fate
        for data, server in self.receiver.requests_to_send():
            _, first, count = decode_header(data)
            for number in range(first, first + count):
                assert self.first <= number <= self.sent
                assert number not in self.settled, f"asked for {number}, which is settled"
            self.requests.append((first, count, server))

    def packet(self, first: int, count: int) -> list[bytes]:
        return [message(number) for number in range(first, first + count)]

    # -- what may happen -------------------------------------------------------------------------

    @rule(count=few)
    def send(self, count: int) -> None:
        """A packet is sent and arrives."""
        first = self.sent + 1
        self.sent += count
        self.take(self.receiver.receive_data(first, self.packet(first, count), 0, self.now))

    @rule(count=few)
    def lose(self, count: int) -> None:
        """A packet is sent and does not arrive."""
        self.sent += count

    @rule(back=far, count=few, path=st.integers(0, 1))
    def hear_again(self, back: int, count: int, path: int) -> None:
        """Some packet of the past arrives: late, twice, on another path or packed anew."""
        first = max(1, self.sent - back)
        count = min(count, self.sent + 1 - first)
        messages = self.packet(first, count)
        self.take(self.receiver.receive_data(first, messages, 0, self.now, path))

    @rule(back=st.integers(0, 3))
    def beat(self, back: int) -> None:
        """A heartbeat arrives, perhaps an old one."""
        number = max(1, self.sent + 1 - back)
        self.take(self.receiver.receive_horizon(number, HEARTBEAT_COUNT, self.now))

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 5), most=few)
    def answer(self, which: int, most: int) -> None:
        """A request is answered, all of it or in part, or with what the server still has."""
        first, count, server = self.requests.pop(which % len(self.requests))
        oldest = self.oldest[str(server)]
        if first < oldest:
            self.take(self.receiver.receive_absence(oldest, server, self.now))
            return
        messages = self.packet(first, min(count, most))
        self.take(self.receiver.receive_data(first, messages, 0, self.now, server=server))

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 5))
    def lose_request(self, which: int) -> None:
        self.requests.pop(which % len(self.requests))

    @rule(server=st.sampled_from(SERVERS), kept=far)
    def evict(self, server: str, kept: int) -> None:
        """A server keeps only the last so many."""
        self.oldest[server] = max(self.oldest[server], self.sent + 1 - kept)

    @rule(seconds=st.sampled_from([0.0001, 0.002, 0.01, 0.04]))
    def wait(self, seconds: float) -> None:
        """Time passes, timer by timer."""
        stop = self.now + seconds
        while (due_at := self.receiver.next_timeout()) is not None and due_at <= stop:
            self.now = max(self.now, due_at)
            self.take(self.receiver.handle_timeout(self.now))
        self.now = stop

    @rule(seconds=st.sampled_from([0.06, 0.5, 3.0]))
    def be_stopped(self, seconds: float) -> None:
        """Time passes in one leap."""
        self.now += seconds
        self.take(self.receiver.handle_timeout(self.now))

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def every_known_number_is_settled_held_or_missing(self) -> None:
        missing = sum(gap.count for gap in self.receiver.gaps)
        assert missing == self.receiver.gaps.missing
        known = self.receiver.next_number - self.first
        if self.ordered:
            assert len(self.settled) + missing <= known
        else:
            assert len(self.settled) + missing == known

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.receiver.held_bytes <= self.options.hold_bytes
        assert len(self.receiver.gaps) <= self.options.max_gaps

    @invariant()
    def a_timer_runs_while_anything_is_missing(self) -> None:
        due_at = self.receiver.next_timeout()
        assert (due_at is not None) == (self.receiver.gaps.missing > 0)
        assert due_at is None or due_at < self.now + 1.0

    def teardown(self) -> None:
        """Nobody answers any more: everything is settled in bounded time."""
        if not hasattr(self, "receiver"):
            return
        horizon = self.receiver.receive_horizon(self.sent + 1, END_OF_SESSION_COUNT, self.now)
        self.take(horizon)
        self.wait(20 * 0.4)
        assert self.receiver.next_timeout() is None
        expected = range(self.first, max(self.first, self.sent + 1))
        assert sorted(self.settled) == list(expected)
        assert self.receiver.held_bytes == 0


OneReceiver.TestCase.settings = settings(
    max_examples=400, stateful_step_count=80, deadline=None, derandomize=True
)
TestOneReceiver = OneReceiver.TestCase
