"""A request desk over a ring, for tests that read as a queue of people with wishes."""

from onehop.transport.mold import RequestDesk, RequestOptions, RingOptions
from onehop.transport.mold.ring import RetransmitRing
from onehop.transport.mold.wire import (
    HEADER_BYTES,
    decode_header,
    decode_messages,
    encode_block,
    encode_header,
)

SESSION = b"SESSION001"
NOW = 1000.0
OLD = NOW - 30.0
BLOCK_BYTES = 102
ONE = HEADER_BYTES + BLOCK_BYTES
"""Bytes of a reply with one message."""


class Clerk:
    """A desk over a ring of messages of 100 bytes, each named by its number."""

    def __init__(
        self,
        *,
        messages: int = 100,
        ring: RingOptions | None = None,
        sent_at: float = NOW,
        **options: float,
    ) -> None:
        self.ring = RetransmitRing(ring or RingOptions())
        self.desk: RequestDesk[str] = RequestDesk(RequestOptions(**options), NOW)  # type: ignore[arg-type]
        self.desk.serve(SESSION, self.ring)
        self.add(messages, sent_at)

    def add(self, messages: int, sent_at: float) -> None:
        for _ in range(messages):
            self.ring.append(encode_block(b"%-100d" % self.ring.next), sent_at)

    def ask(self, first: int, count: int = 1, *, by: str = "a", at: float = NOW) -> None:
        self.desk.receive_request(encode_header(SESSION, first, count), by, at)

    def replies(self, at: float = NOW) -> list[tuple[str, int, int]]:
        """Who gets which numbers now: `(address, first, count)`; a count of 0 says no."""
        found = []
        for data, address in self.desk.replies(at):
            header = decode_header(data)
            numbers = [int(message) for message in decode_messages(data, header)]
            assert numbers == list(range(header.sequence, header.sequence + len(numbers)))
            found.append((address, header.sequence, header.message_count))
        return found

    def served_over(self, seconds: float, by: str) -> int:
        """Messages that one address gets while its waiting requests are answered as they can."""
        served, now = 0, NOW
        while now <= NOW + seconds:
            served += sum(count for address, _, count in self.replies(now) if address == by)
            due_at = self.desk.next_timeout()
            if due_at is None:
                break
            assert due_at > now
            now = due_at
        return served
