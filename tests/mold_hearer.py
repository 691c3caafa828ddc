"""One receiver and a clock, so that a test reads as a story.

hearer = Hearer()
hearer.hear(1)
hearer.hear(3)
assert hearer.requests() == [(2, 1, "server")]
hearer.reply(2)
assert hearer.handed == [1, 2, 3]
"""

from collections.abc import Sequence
from random import Random

from onehop.transport.event import LossReason
from onehop.transport.mold import Lost, ReceiverOptions
from onehop.transport.mold.outputs import Output
from onehop.transport.mold.receiver import ReceiverSession
from onehop.transport.mold.wire import END_OF_SESSION_COUNT, HEARTBEAT_COUNT, decode_header

SESSION = b"SESSION001"


def message(number: int, size: int = 8) -> bytes:
    """What the sender put into message `number`."""
    return f"{number:<{size}}".encode()


class Hearer:
    """A `ReceiverSession` that starts at number 1 and notes what it hands out."""

    def __init__(
        self,
        options: ReceiverOptions | None = None,
        *,
        servers: Sequence[str] = ("server",),
        start: int = 1,
        heard: int = 1,
        seed: int = 0,
        size: int = 8,
    ) -> None:
        self.now = 100.0
        self.handed: list[int] = []
        self.recovered: list[int] = []
        self.lost: list[tuple[int, int, LossReason]] = []
        self.repair_s: list[float] = []
        self._size = size
        self.receiver = ReceiverSession(
            SESSION,
            options or ReceiverOptions(),
            random=Random(seed),
            servers=lambda: servers,
            on_repaired=self.repair_s.append,
        )
        self.receiver.start(start, heard, self.now)

    def hear(self, first: int, count: int = 1, *, path: int = 0) -> None:
        """A packet comes to the group."""
        self.take(
            self.receiver.receive_data(first, self._messages(first, count), 0, self.now, path)
        )

    def reply(self, first: int, count: int = 1, *, server: str = "server") -> None:
        """A server sends a packet."""
        messages = self._messages(first, count)
        self.take(self.receiver.receive_data(first, messages, 0, self.now, server=server))

    def beat(self, next_number: int) -> None:
        """A heartbeat comes to the group."""
        self.take(self.receiver.receive_horizon(next_number, HEARTBEAT_COUNT, self.now))

    def end(self, next_number: int) -> None:
        """An end of session comes to the group."""
        self.take(self.receiver.receive_horizon(next_number, END_OF_SESSION_COUNT, self.now))

    def absence(self, oldest: int, server: str = "server") -> None:
        """A server says that it has nothing below `oldest`."""
        self.take(self.receiver.receive_absence(oldest, server, self.now))

    def wait(self, seconds: float) -> list[tuple[float, int, int, object]]:
        """Lets time pass, timer by timer; returns `(when, first, count, server)` of requests."""
        asked = []
        started, stop = self.now, self.now + seconds
        while (due_at := self.receiver.next_timeout()) is not None and due_at <= stop:
            self.now = max(self.now, due_at)
            self.take(self.receiver.handle_timeout(self.now))
            asked += [(self.now - started, *request) for request in self.requests()]
        self.now = stop
        return asked

    def oversleep(self, seconds: float) -> None:
        """Is stopped for a while: the timers that fired meanwhile are handled in one go."""
        self.now += seconds
        self.take(self.receiver.handle_timeout(self.now))

    @property
    def lost_numbers(self) -> list[int]:
        """Every number given up, in the order of giving up."""
        return [n for first, count, _ in self.lost for n in range(first, first + count)]

    def requests(self) -> list[tuple[int, int, object]]:
        """What is asked for now: `(first, count, server)`."""
        found = []
        for data, server in self.receiver.requests_to_send():
            session, first, count = decode_header(data)
            assert session == SESSION
            found.append((first, count, server))
        return found

    def _messages(self, first: int, count: int) -> list[bytes]:
        return [message(number, self._size) for number in range(first, first + count)]

    def take(self, outputs: list[Output]) -> None:
        """Notes what was handed out."""
        for output in outputs:
            if isinstance(output, Lost):
                self.lost.append((output.first, output.count, output.reason))
                continue
            numbers = range(output.first, output.first + len(output.messages))
            assert list(output.messages) == [message(number, self._size) for number in numbers]
            self.handed += numbers
            if output.recovered:
                self.recovered += numbers
