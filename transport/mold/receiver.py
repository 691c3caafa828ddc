"""The receiving side of one MoldUDP64 session, without I/O.

Numbers below `next_number` are known to exist. Each of them is in exactly one place:

    handed out   every number below `cursor` (ordered), or anything no longer listed below
    held         came, waits for numbers before it        (ordered only, bounded by bytes)
    missing      in the gap table, being asked for

A packet moves numbers from missing (or from beyond `next_number`) to held or handed out; giving
up moves them from missing to a `Lost`, which waits for its turn like a message. Whatever is in
none of these places has been handed out before: another copy of it is a duplicate.

When `held` or the gap table is full, packets beyond are not kept: their numbers stay missing
and are asked for when half of it is free again. Nothing is lost by that, and memory stays
bounded. A quarter of each is for repairs alone, so that gaps under way go on while new packets
find no room: they are filled or given up together, not one deadline after the other.

A gap waits for its turn, is due, or is under way; its one timer is in the gap table:

    waits ──window and room──▶ asked ──no reply──▶ asked again ──deadline, attempts──▶ Lost
      ▲                          │ partial reply: the rest is asked for at once
      └──no room for the reply───┘

The first gap never waits, so there is always a timer that leads on.
"""

from collections.abc import Callable, Hashable, Sequence
from random import Random

from ..event import LossReason
from .gaps import FOREVER, Gap, GapTable
from .outputs import Lost, Output, RepairCounts, Run
from .pacing import Pacing
from .paths import PathCounts
from .receiver_options import ReceiverOptions
from .servers import RequestServers
from .wire import (
    DEFAULT_PACKET_BYTES,
    END_OF_SESSION_COUNT,
    MAX_MESSAGE_COUNT,
    encode_header,
)

REQUEST_WINDOW = 16
"""Requests under way at once for one long gap; each brings back a packet."""
HELD_OVERHEAD_BYTES = 120
"""What a held run costs beside its messages, so that empty messages are bounded too."""
REPAIR_SHARE = 4
"""One part in so many of `hold_bytes` and `max_gaps` is for repairs, which may split gaps."""
STALL_S = 0.05
"""Called this much too late, we were stopped: the time does not count against repairs."""

Filled = tuple[int, int, Gap]


class ReceiverSession:
    """Follows one session; see the module's docstring for the states of a number."""

    def __init__(
        self,
        session: bytes,
        options: ReceiverOptions,
        *,
        random: Random,
        servers: Callable[[], Sequence[Hashable]],
        on_repaired: Callable[[float], None],
    ) -> None:
        self.session = session
        self.cursor = 0
        self.next_number = 0
        self.first_number = 0
        self.is_started = False
        self.is_ended = False
        self.last_heard_at = 0.0
        self.counts = RepairCounts()
        self.paths: list[PathCounts] = []
        self.gaps = GapTable()
        self.held_bytes = 0
        self._options = options
        self._fresh_bytes = options.hold_bytes - options.hold_bytes // REPAIR_SHARE
        self._fresh_gaps = options.max_gaps - options.max_gaps // REPAIR_SHARE - 1
        self._pacing = Pacing(random, options.retry_floor_s)
        self._servers = RequestServers(servers)
        self._on_repaired = on_repaired
        self._held: dict[int, Output] = {}
        self._is_full = False
        self._given_up: list[Output] = []
        self._chunk = 0  # messages that fitted the last full reply
        self._reply_at = 0.0
        self._asked: list[tuple[int, int, Hashable]] = []
        self._probes: list[tuple[bytes, Hashable]] = []

    # -- input ---------------------------------------------------------------------------------

    def start(self, first: int, next_number: int, now: float) -> None:
        """Begins: numbers from `first` on are wanted, those below `next_number` exist already."""
        self.is_started = True
        self.cursor = self.first_number = self.next_number = first
        self.last_heard_at = now
        if next_number > first:
            self._miss(first, next_number, 0, now, is_replay=True)

    def receive_data(
        self,
        first: int,
        messages: Sequence[bytes],
        received_at_ns: int,
        now: float,
        path: int = 0,
        server: Hashable | None = None,
    ) -> list[Output]:
        """Takes the messages of one packet; returns what can be handed out.

        `server` is who sent it in reply to a request; None: it came to the group.
        """
        self.last_heard_at = now
        stop = first + len(messages)
        is_reply = server is not None
        is_news = not is_reply and self._count_path(path, first, stop, now)
        if first == self.next_number and (not self.gaps.missing or not self._options.ordered):
            self.cursor = self.next_number = stop  # nothing missing: the usual case
            return [Run(first, messages, received_at_ns)]
        if stop <= self.first_number:
            return []  # from before our beginning
        outputs: list[Output] = []
        if first > self.next_number:
            self._miss(self.next_number, first, path, now)
        filled: list[Filled] = []
        known = min(stop, self.next_number)
        if first < known:
            filled, wanted = self._fill(first, known, messages, received_at_ns, is_reply, outputs)
            self._learn(filled, now, path, server)
            if not is_news:
                self.counts.duplicates += max(0, known - max(first, self.first_number)) - wanted
        if stop > known:
            fresh = max(first, known)
            run = Run(fresh, messages[fresh - first :], received_at_ns)
            self.next_number = stop
            if not self._accept(run, outputs, 0 if self._is_full else self._fresh_bytes):
                self.gaps.put_back(Gap(fresh, stop, now, FOREVER, path))
        if is_reply:
            self._servers.answered(server)
            self._reply_at = now
            self._learn_chunk(stop - first, filled)
            self._ask_for_rest(filled, now)
        self._settle(outputs, now)
        return outputs

    def receive_elsewhere(self, stop: int, now: float, path: int = 0) -> None:
        """Notes that everything up to `stop` came in order and was handed out by another way."""
        self.last_heard_at = now
        self._count_path(path, self.next_number, stop, now)
        self.cursor = self.next_number = stop

    def receive_horizon(
        self, next_number: int, count: int, now: float, path: int = 0
    ) -> list[Output]:
        """Takes a heartbeat or an end of session: every number below `next_number` exists."""
        self.last_heard_at = now
        if count == END_OF_SESSION_COUNT:
            self.is_ended = True
        self._count_path(path, next_number, next_number, now)
        outputs: list[Output] = []
        if next_number > self.next_number:
            self._miss(self.next_number, next_number, path, now)
            self._settle(outputs, now)
        return outputs

    def receive_absence(self, oldest: int, server: Hashable, now: float) -> list[Output]:
        """A server said that `oldest` is the first message it still has."""
        outputs: list[Output] = []
        self._reply_at = now
        known = self._servers.lacks_below(server, oldest)
        for gap in self.gaps.starting_in(known, oldest):
            if not self._servers.having(gap.first):
                self._keep_what_is_left(gap)
                self._give_up(gap, LossReason.EVICTED)
            elif gap.asked_of == server:
                self._ask(gap, now)  # of the next server
        self._settle(outputs, now)
        return outputs

    @property
    def is_in_order(self) -> bool:
        """True when nothing is missing and nothing is held: the next packet can be handed out."""
        return self.is_started and not self.gaps.missing and not self._held

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is to be called; None when nothing is missing."""
        return self.gaps.next_due() if self.gaps.missing else None

    def handle_timeout(self, now: float) -> list[Output]:
        """Asks again for what is due and gives up what is too late. Read the sockets before it."""
        due_at = self.gaps.next_due()
        if now < due_at or not self.gaps.missing:
            return []
        if now - due_at > STALL_S:
            self._forgive(now - due_at, now)
        outputs: list[Output] = []
        hopeful = []
        due = self.gaps.take_due(now)
        for gap in due:
            reason = self._why_hopeless(gap, now)
            if reason is None:
                hopeful.append(gap)
            else:
                self._give_up(gap, reason)
        for gap in hopeful:
            self._ask(gap, now)
        at_least = 0
        if len(hopeful) < len(due):  # the others may be as hopeless: their time has to run too
            at_least = REQUEST_WINDOW
            if now >= self._reply_at + self._options.deadline_s:  # nobody answers
                at_least = len(self.gaps)
                self._chunk = 0  # long gaps in one piece: no reply tells how much fits
        self._settle(outputs, now, at_least)
        return outputs

    def give_up_all(self, reason: LossReason) -> list[Output]:
        """Ends every repair; what was held behind the gaps is handed out."""
        outputs: list[Output] = []
        for gap in list(self.gaps):
            self._give_up(gap, reason)
        self._release(outputs)
        return outputs

    def requests_to_send(self) -> list[tuple[bytes, Hashable]]:
        """Request datagrams and the servers they go to.

        What has come since it was asked for is left out; neighbours share a request.
        """
        requests, self._probes = self._probes, []
        if self._asked:
            asked, self._asked = self._asked, []
            for first, stop, server in self._joined(asked):
                count = min(stop - first, MAX_MESSAGE_COUNT)
                requests.append((encode_header(self.session, first, count), server))
                self.counts.requests += 1
        return requests

    def probe(self, number: int) -> None:
        """Asks for one old message, only to learn from its content who is sending."""
        servers = self._servers.having(number)
        if servers and not self._probes:
            self._probes.append((encode_header(self.session, number, 1), servers[0]))
            self.counts.requests += 1

    # -- numbers that were missing ---------------------------------------------------------------

    def _fill(
        self,
        first: int,
        stop: int,
        messages: Sequence[bytes],
        received_at_ns: int,
        is_reply: bool,
        outputs: list[Output],
    ) -> tuple[list[Filled], int]:
        """Takes what was missing; returns the parts that were kept, and how many were wanted."""
        filled = []
        wanted = 0
        for low, high, gap in self.gaps.fill(first, stop):
            wanted += high - low
            run = Run(low, messages[low - first : high - first], received_at_ns, is_reply)
            is_refused_copy = self._is_full and gap.due_at == FOREVER and not is_reply
            if self._accept(run, outputs, 0 if is_refused_copy else self._options.hold_bytes):
                filled.append((low, high, gap))
            else:
                refused = Gap(low, high, gap.noticed_at, FOREVER, gap.path, gap.is_replay)
                self.gaps.put_back(refused)
        return filled, wanted

    def _learn(self, filled: list[Filled], now: float, path: int, server: Hashable | None) -> None:
        for low, high, gap in filled:
            if server is not None:
                self.counts.recovered += high - low
                if not gap.is_replay:
                    self._on_repaired(now - gap.noticed_at)
                if gap.asked_at is None or gap.asked_of != server:
                    continue  # an answer to an earlier request: it says nothing about the last
                if gap.asked_before is None:
                    self._pacing.reply_took(now - gap.asked_at)
                else:
                    self._pacing.late_reply_took(now - gap.asked_at, now - gap.asked_before)
                continue
            self.paths[path].first_arrivals += high - low
            if not gap.is_replay:
                self._pacing.straggler_took(now - gap.noticed_at, now)
                if gap.path == path:
                    self.counts.reordered += high - low

    def _accept(self, run: Run, outputs: list[Output], hold_bytes: int) -> bool:
        if not self._options.ordered or (run.first == self.cursor and not outputs):
            if self._options.ordered:
                self.cursor += len(run.messages)
            outputs.append(run)
            return True
        size = sum(map(len, run.messages)) + HELD_OVERHEAD_BYTES
        fills_front = not self.gaps.missing or run.first < self.gaps[0].first
        if self.held_bytes + size > hold_bytes and not fills_front:
            self._is_full = True
            self.counts.refused_to_hold += len(run.messages)
            return False
        self._held[run.first] = run
        self.held_bytes += size
        return True

    def _settle(self, outputs: list[Output], now: float, at_least: int = 0) -> None:
        """Ends every input: keeps the bound on gaps, hands out, asks for what may have its turn."""
        while len(self.gaps) > self._options.max_gaps:
            self._give_up(self.gaps[0], LossReason.OVERFLOW)
        self._release(outputs)
        if self.gaps.missing:
            self._open_window(now, at_least)

    def _release(self, outputs: list[Output]) -> None:
        if self._given_up:
            outputs += self._given_up
            self._given_up = []
        held = self._held
        while held:
            output = held.pop(self.cursor, None)
            if output is None:
                break
            if isinstance(output, Run):
                self.held_bytes -= sum(map(len, output.messages)) + HELD_OVERHEAD_BYTES
                self.cursor += len(output.messages)
            else:
                self.cursor += output.count
            outputs.append(output)
        if (
            self._is_full
            and self.held_bytes <= self._options.hold_bytes // 2
            and len(self.gaps) <= self._options.max_gaps // 2
        ):
            self._is_full = False

    # -- asking ----------------------------------------------------------------------------------

    def _miss(
        self, first: int, stop: int, path: int, now: float, *, is_replay: bool = False
    ) -> None:
        """Opens a gap, asking for it at once unless it may only be late or has to wait."""
        self.next_number = stop
        gap = Gap(first, stop, now, FOREVER, path, is_replay)
        if self._options.ordered and len(self.gaps) >= self._fresh_gaps:
            self._is_full = True
        if self._is_full:
            self.gaps.put_back(gap)
            return
        self.gaps.append(gap)
        wait = 0.0 if is_replay else self._pacing.first_after(now, len(self.paths))
        if wait:
            self.gaps.schedule(gap, now + wait)
        else:
            self._ask(gap, now)

    def _ask(self, gap: Gap, now: float) -> None:
        """Asks for a gap, or as much of it as one reply holds, and sets its timer."""
        server = None
        if self._options.attempts != 0:
            server = self._servers.choose(gap.first, gap.attempts + 1)
        if server is None:
            self._keep_what_is_left(gap)
            self.gaps.schedule(gap, now)  # given up by the next timeout
            return
        limit = self._request_limit
        if gap.count > limit and len(self.gaps) <= self._fresh_gaps:
            self.gaps.split(gap, gap.first + limit).wait()
        is_same = gap.attempts and gap.asked_of == server
        gap.asked_before = gap.asked_at if is_same else None
        gap.asked_at = now
        gap.attempts += 1
        gap.asked_of = server
        if gap.first_asked_at is None:
            gap.first_asked_at = now
        retry_at = now + self._pacing.retry_after(gap.attempts)
        self.gaps.schedule(gap, min(retry_at, self._deadline_of(gap, gap.first_asked_at)))
        self._asked.append((gap.first, gap.stop, server))

    @property
    def _request_limit(self) -> int:
        return self._chunk or MAX_MESSAGE_COUNT

    def _keep_what_is_left(self, gap: Gap) -> None:
        """Cuts off what some server may still have of a gap whose first number nobody has."""
        oldest = self._servers.oldest
        if gap.first < oldest < gap.stop:
            self.gaps.split(gap, oldest).wait()

    def _joined(self, asked: list[tuple[int, int, Hashable]]) -> list[tuple[int, int, Hashable]]:
        joined: list[tuple[int, int, Hashable]] = []
        for first, stop, server in asked:
            for low, high in self.gaps.missing_in(first, stop):
                if joined:
                    before, end, same = joined[-1]
                    if same == server and end == low and high - before <= self._request_limit:
                        joined[-1] = before, high, server
                        continue
                joined.append((low, high, server))
        return joined

    def _learn_chunk(self, count: int, filled: list[Filled]) -> None:
        was_cut = any(high < gap.stop and gap.attempts for _, high, gap in filled)
        if was_cut:
            self._chunk = count
        elif self._chunk and count >= self._chunk:  # everything asked for fitted: ask for more
            self._chunk = min(MAX_MESSAGE_COUNT, self._chunk + self._chunk // 4 + 1)

    def _ask_for_rest(self, filled: list[Filled], now: float) -> None:
        for _, high, gap in filled:
            if high < gap.stop and gap.attempts:  # a partial reply: the remainder at once
                rest = self.gaps.starting_at(high)
                if rest is not None:
                    rest.attempts = 0
                    self._ask(rest, now)

    def _open_window(self, now: float, at_least: int) -> None:
        """Asks for gaps that wait for their turn, as far as the window and the room allow.

        The first `at_least` gaps have their turn whether or not there is room.
        """
        window = REQUEST_WINDOW
        if self._is_full:
            room = self._options.hold_bytes - self.held_bytes
            window = min(window, max(1, room // DEFAULT_PACKET_BYTES))
        window = max(window, at_least)
        at = 0
        while at < len(self.gaps) and at < window:
            gap = self.gaps[at]
            if gap.due_at == FOREVER:
                if self._is_full and gap.stop == self.next_number and at >= max(1, at_least):
                    return  # it is still growing, by what finds no room
                self._ask(gap, now)  # a long one is split: its rest is next in the table
            at += 1

    # -- giving up -------------------------------------------------------------------------------

    def _deadline_of(self, gap: Gap, first_asked_at: float) -> float:
        if gap.is_replay:
            return max(first_asked_at, self._reply_at) + self._options.replay_deadline_s
        return first_asked_at + self._options.deadline_s

    def _why_hopeless(self, gap: Gap, now: float) -> LossReason | None:
        """Why a gap whose timer has fired is not asked for again."""
        attempts = self._options.attempts
        reason = LossReason.ENDED if self.is_ended else LossReason.DEADLINE
        if attempts == 0:
            return reason
        if not self._servers.having(gap.first):
            return LossReason.EVICTED
        if gap.first_asked_at is None:
            return None
        if attempts is not None and gap.attempts >= attempts and not gap.is_replay:
            return reason
        return reason if now >= self._deadline_of(gap, gap.first_asked_at) else None

    def _give_up(self, gap: Gap, reason: LossReason) -> None:
        """Moves a gap to the given up; `_release` hands them out when it is their turn."""
        self.gaps.remove(gap)
        lost = Lost(gap.first, gap.count, reason)
        if self._options.ordered:
            self._held[gap.first] = lost
        else:
            self._given_up.append(lost)

    def _forgive(self, stalled_s: float, now: float) -> None:
        for gap in self.gaps:
            if gap.first_asked_at is not None:
                gap.first_asked_at = min(now, gap.first_asked_at + stalled_s)
        self._reply_at = min(now, self._reply_at + stalled_s)

    # -- statistics ------------------------------------------------------------------------------

    def _count_path(self, path: int, first: int, stop: int, now: float) -> bool:
        while len(self.paths) <= path:
            self.paths.append(PathCounts())
        return self.paths[path].packet(first, stop, self.next_number, now)
