"""Last values that their stream brings too: taken once, where they are live."""

from types import SimpleNamespace
from typing import Any

import pytest

from onehop.transport.envelope import EventEncoder, encode_delivery
from onehop.transport.handover import HandoverQueue, QueueOptions
from onehop.transport.ledger import Ledger
from onehop.transport.unpacking import HISTORY, IntakeStream, Unpacker


@pytest.mark.parametrize(("sequence", "is_taken"), [(4, True), (5, False), (6, False)])
def test_a_last_value_from_our_beginning_on_is_left_to_its_stream(
    sequence: int, is_taken: bool
) -> None:
    ledger, queue = Ledger(), HandoverQueue(QueueOptions())
    account = ledger.open("me", 1, HISTORY, 1)
    account.expect(2)
    followed: Any = SimpleNamespace(receiver=None, is_identified=True)
    unpacker = Unpacker(queue, ledger, (), "event", first_live=lambda *_stream: 5)
    event = EventEncoder("me").encode("q.x", "value", None, 1, 2, None)
    delivery = encode_delivery("q", sequence, 1, event)
    unpacker.message(followed, IntakeStream(account, followed), 1, delivery, 3)

    assert (queue.take() is not None) == is_taken
    assert (account.delivered, account.filtered) == (int(is_taken), int(not is_taken))
