"""From the messages of a stream to events: the envelope, pieces, topics; the long way.

message ──▶ decode ──▶ pieces put together ──▶ wanted? ──▶ queue
              └── malformed: lost, with the reason counted
"""

import time
from collections.abc import Callable, Mapping
from typing import Literal

from .envelope import SEQUENCE_HEADER, STREAM_HEADER, Piece, Whole, decode
from .errors import Malformed
from .event import Event, Loss, LossReason
from .gate import Gate
from .handover import HandoverQueue
from .ledger import Ledger, StreamAccount
from .mold.feed import Followed
from .mold.outputs import Lost
from .pieces import Assembler, Complete

Payload = Literal["event", "raw"]

HISTORY = "history.last"
"""The session with the last values of before our beginning."""
MAX_DIGITS = 20
"""Of a sequence number."""


class IntakeStream:
    """What a subscriber knows of one session beside the protocol."""

    __slots__ = ("account", "assembler", "epoch", "name", "receiver", "source")

    def __init__(self, account: StreamAccount, followed: Followed) -> None:
        self.account = account
        self.assembler: Assembler | None = None
        self.receiver = followed.receiver
        self.epoch = account.epoch
        self.source = account.source
        self.name = account.stream

    def loss(self, first: int, count: int, reason: LossReason) -> Loss:
        """What the application is told of numbers that will not come."""
        return Loss(self.source, self.epoch, self.name, first, count, reason, time.time_ns())


class Unpacker:
    """Makes events of messages and puts them into the queue; accounts for all others."""

    def __init__(
        self,
        entrance: HandoverQueue | Gate,
        ledger: Ledger,
        topics: tuple[str, ...],
        payload: Payload,
        first_live: Callable[[str, int], int],
    ) -> None:
        """`first_live` says from which number on a stream of an epoch comes to us."""
        self._entrance = entrance
        self._ledger = ledger
        self._topics = topics
        self._payload = payload
        self._first_live = first_live

    def lost(self, stream: IntakeStream, lost: Lost) -> None:
        """Takes numbers that will not come, and events of which they are pieces."""
        self._lose(stream, lost.first, lost.count, lost.reason)
        if stream.assembler is not None:
            for piece in stream.assembler.lose(lost.first, lost.count, lost.reason):
                self._lose(stream, piece.first, piece.count, lost.reason)

    def message(
        self, followed: Followed, stream: IntakeStream, number: int, message: bytes, at_ns: int
    ) -> None:
        """Takes a message of a stream."""
        if self._payload == "raw":
            event = Event(
                "", message, None, stream.source, stream.epoch, stream.name, number, 0, 0, at_ns
            )
            self._entrance.put(event, stream.account, number, 1, len(message), time.time_ns())
            return
        try:
            fields = decode(message)
        except Malformed as fault:
            self._ledger.ignored[fault.reason] += 1
            self._lose(stream, number, 1, LossReason.MALFORMED)
            return
        if isinstance(fields, Piece):
            self._piece(followed, stream, number, fields, at_ns)
        else:
            self._whole(followed, stream, number, 1, fields, len(message), at_ns)

    def _piece(
        self, followed: Followed, stream: IntakeStream, number: int, piece: Piece, at_ns: int
    ) -> None:
        if stream.assembler is None:
            stream.assembler = Assembler(followed.receiver.first_number)
        for result in stream.assembler.add(number, piece):
            if isinstance(result, Complete):
                try:
                    fields = decode(result.data)
                except Malformed as fault:
                    self._ledger.ignored[fault.reason] += 1
                    fields = None
                if isinstance(fields, Whole):
                    size = len(result.data)
                    self._whole(followed, stream, result.first, result.count, fields, size, at_ns)
                else:
                    self._lose(stream, result.first, result.count, LossReason.MALFORMED)
            elif result.reason is None:
                stream.account.filter(result.first, result.count)
            else:
                self._lose(stream, result.first, result.count, result.reason)

    def _whole(
        self,
        followed: Followed,
        stream: IntakeStream,
        first: int,
        count: int,
        fields: Whole,
        size: int,
        at_ns: int,
    ) -> None:
        topic, value, key, source, occurred_at_ns, sent_at_ns, headers = fields
        if not followed.is_identified:
            followed.is_identified = True
            stream.source = stream.account.source = source
        if (self._topics and not topic.startswith(self._topics)) or (
            stream.name == HISTORY and self._comes_live(stream, headers)
        ):
            stream.account.filter(first, count)
            return
        event = Event(
            topic, value, key, source, stream.epoch, stream.name, first + count - 1,
            occurred_at_ns, sent_at_ns, at_ns, headers,
        )  # fmt: skip
        self._entrance.put(event, stream.account, first, count, size, at_ns)

    def _comes_live(self, history: IntakeStream, headers: Mapping[str, str]) -> bool:
        """True when a last value is one of those that its stream brings us too."""
        sequence = headers.get(SEQUENCE_HEADER, "")
        if not sequence.isdecimal():  # of somebody who makes it up
            return True
        first = self._first_live(headers.get(STREAM_HEADER, ""), history.epoch)
        return int(sequence[:MAX_DIGITS]) >= first

    def _lose(self, stream: IntakeStream, first: int, count: int, reason: LossReason) -> None:
        stream.account.lose(first, count, reason)
        self._entrance.put_loss(stream.loss(first, count, reason), stream.account)

    def end(self, stream: IntakeStream) -> None:
        """Gives up events whose other pieces will not come."""
        if stream.assembler is not None:
            for piece in stream.assembler.end(LossReason.ENDED):
                self._lose(stream, piece.first, piece.count, LossReason.ENDED)
