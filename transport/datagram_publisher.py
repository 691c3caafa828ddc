"""A publisher whose packets are datagrams: multicast, and the network in memory."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .datagrams import Address
from .envelope import EventEncoder
from .errors import ConfigurationError, LimitError
from .mold.requests import RequesterCounts
from .mold.sender import SenderSession
from .mold.sessions import epoch_of, show_session
from .pieces import split
from .ports import Port
from .publisher import Publisher, PublisherSnapshot

REPLIES_AT_ONCE = 64
"""Made before those who publish get their turn: some tenths of a millisecond."""


class DatagramPublisher(Publisher):
    """One MoldUDP64 session on one port."""

    def __init__(
        self,
        port: Port,
        groups: Sequence[Address],
        session: SenderSession[Address],
        *,
        url: str,
        source: str,
        payload: str = "event",
        linger_s: float = 1.0,
        count_subscribers: Callable[[], int] | None = None,
    ) -> None:
        self._encode = EventEncoder(source).encode  # first: it refuses sources
        super().__init__(
            url, source, epoch_of(session.session), linger_s, number=self._encode_and_send
        )
        self._port = port
        self._groups = tuple(groups)
        self._session = session
        self._is_raw = payload == "raw"
        self._counter = count_subscribers
        try:
            with self._lock:
                self._send(session.datagrams_to_send(time.monotonic()), is_first=True)
        except OSError:
            os.close(self._wake_fd)
            raise
        self._service.start()

    @property
    def stats(self) -> PublisherSnapshot:
        """What has been done up to now."""
        with self._lock:
            session, counts = self._session, self._session.desk.counts
            return PublisherSnapshot(
                source=self.source,
                epoch=self.epoch,
                session=show_session(session.session),
                sent=session.next_number - 1,
                events=self._events,
                requests=counts["requests"],
                requests_served=counts["served"],
                retransmitted=counts["retransmitted"],
                evicted=counts["evicted"],
                ignored_requests=session.desk.ignored,
                send_errors=self._send_errors,
                ring_first=session.ring.first,
                ring_bytes=session.ring.size_bytes,
                subscribers=None if self._counter is None else self._counter(),
            )

    @property
    def requesters(self) -> dict[Address, RequesterCounts]:
        """Who asked for how much: the receiver that loses most stands out."""
        with self._lock:
            return self._session.desk.requesters

    @property
    def address(self) -> Address:
        """Where requests for this publisher's messages go."""
        return self._port.address

    def _encode_and_send(
        self,
        topic: str,
        value: Any,
        key: str | None,
        headers: Mapping[str, str] | None,
        occurred_at_ns: int | None,
        now: float,
    ) -> int:
        session = self._session
        if self._is_raw:
            if not isinstance(value, bytes):
                raise LimitError(f"payload=raw sends bytes, not {type(value).__name__}")
            return session.send(value, now)
        data = self._encode(topic, value, key, occurred_at_ns, time.time_ns(), headers)
        if len(data) <= session.max_message_bytes:
            return session.send(data, now)
        for piece in split(data, session.max_message_bytes):
            number = session.send(piece, now)
        return number

    def _send_full(self) -> None:
        self._send(self._session.full_datagrams_to_send())

    def _send_all(self, now: float) -> None:
        self._send(self._session.datagrams_to_send(now))

    def _count_subscribers(self) -> int:
        if self._counter is None:
            raise ConfigurationError(
                "a multicast publisher cannot know its subscribers; open them first, or open "
                "them with start='first'"
            )
        return self._counter()

    def _fds(self) -> list[int]:
        return [self._port.fileno()]

    def _next_timeout(self) -> float:
        return self._session.next_timeout()

    def _end(self, now: float) -> None:
        self._session.end(now)
        self._send(self._session.datagrams_to_send(now))

    def _free(self) -> None:
        self._port.close()

    def _send(self, packets: Sequence[bytes], is_first: bool = False) -> None:
        if not packets:
            return
        datagrams = [(packet, group) for packet in packets for group in self._groups]
        while datagrams:
            try:
                sent = self._port.send(datagrams)
            except OSError:
                if is_first:
                    raise
                sent = 0
            if sent == len(datagrams):
                return
            self._send_errors += 1  # one is refused; it is in the ring, the others get their try
            datagrams = datagrams[sent + 1 :]

    def _answer(self) -> None:
        requests = self._port.receive()
        with self._lock:
            now = time.monotonic()
            for data, address, _ in requests:
                self._session.receive_request(data, address, now)
            replies = self._session.replies(now, REPLIES_AT_ONCE)
            self._session.handle_timeout(now)
            if self._batches:  # heartbeats, and what was packed before them, even so
                self._send(self._session.full_datagrams_to_send())
            else:
                self._send(self._session.datagrams_to_send(now))
        while replies:
            try:
                sent = self._port.send(replies)
            except OSError:
                sent = 0
            if sent < len(replies):
                self._send_errors += 1
            replies = replies[sent + 1 :] if sent < len(replies) else []
