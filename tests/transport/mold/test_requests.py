"""The request desk: who gets what, and which requests are one."""

import pytest
from mold_clerk import BLOCK_BYTES, NOW, ONE, SESSION, Clerk

from onehop.transport.mold import RingOptions
from onehop.transport.mold.wire import (
    END_OF_SESSION_COUNT,
    HEADER_BYTES,
    MAX_MESSAGE_COUNT,
    Header,
    decode_header,
    encode_block,
    encode_header,
)

# -- answers -------------------------------------------------------------------------------------


def test_a_request_is_answered_to_its_sender_with_what_it_asked_for() -> None:
    clerk = Clerk()
    clerk.ask(5, 3, by="a")
    clerk.ask(90, 1, by="b")
    assert clerk.replies() == [("a", 5, 3), ("b", 90, 1)]
    assert clerk.replies() == []
    assert clerk.desk.counts == {"requests": 2, "served": 2, "retransmitted": 4}


def test_nothing_is_answered_before_replies_are_asked_for() -> None:
    clerk = Clerk()
    assert clerk.desk.next_timeout() is None
    clerk.ask(5)
    assert clerk.desk.next_timeout() == NOW
    clerk.replies()
    assert clerk.desk.next_timeout() is None


def test_the_answer_is_one_packet_that_fits() -> None:
    clerk = Clerk(packet_bytes=HEADER_BYTES + 3 * BLOCK_BYTES)
    clerk.ask(5, 50)
    assert clerk.replies() == [("a", 5, 3)]


def test_a_request_that_overlaps_what_is_not_sent_yet_gets_what_there_is() -> None:
    clerk = Clerk(messages=10)
    clerk.ask(9, MAX_MESSAGE_COUNT)
    assert clerk.replies() == [("a", 9, 2)]


def test_a_request_for_the_future_is_counted_and_not_answered() -> None:
    clerk = Clerk(messages=10)
    clerk.ask(11)
    assert clerk.replies() == []
    assert clerk.desk.counts["future"] == 1
    assert clerk.desk.next_timeout() is None


def test_a_request_for_the_evicted_past_is_answered_with_the_oldest_number() -> None:
    clerk = Clerk(messages=20, ring=RingOptions(max_messages=5))
    clerk.ask(15)
    clerk.ask(16)
    assert clerk.replies() == [("a", 16, 0), ("a", 16, 1)]
    assert clerk.desk.counts["evicted"] == 1
    assert clerk.desk.counts["served"] == 1


def test_what_is_evicted_while_a_request_waits_is_said_to_be() -> None:
    clerk = Clerk(messages=5, ring=RingOptions(max_messages=5))
    clerk.ask(1)
    clerk.add(1, NOW)
    assert clerk.replies() == [("a", 2, 0)]


class StoreWithHole:
    """Numbers 1 to 9, of which 4 to 6 are missing."""

    first = 1
    next = 10

    def sent_at(self, number: int) -> float:
        return float("-inf") if 4 <= number <= 6 else NOW

    def blocks(self, first: int, count: int, packet_bytes: int) -> list[bytes]:
        stop = min(first + count, 4 if first < 4 else 10)
        return [] if 4 <= first <= 6 else [encode_block(b"x")] * (stop - first)


def test_a_request_that_begins_in_a_hole_is_counted_and_not_answered() -> None:
    clerk = Clerk()
    clerk.desk.serve(b"HOLE      ", StoreWithHole())
    for first in (2, 4, 6, 7):
        clerk.desk.receive_request(encode_header(b"HOLE      ", first, 9), "a", NOW)
    headers = [decode_header(data) for data, _ in clerk.desk.replies(NOW)]
    assert headers == [Header(b"HOLE      ", 2, 2), Header(b"HOLE      ", 7, 3)]
    assert clerk.desk.counts["hole"] == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode_header(SESSION, 1, 1)[:-1],
        encode_header(SESSION, 1, 1) + b"\0",
        encode_header(SESSION, 0, 1),
        encode_header(SESSION, 1, 0),
        encode_header(SESSION, 1, END_OF_SESSION_COUNT),
    ],
    ids=["empty", "short", "long", "number zero", "none wanted", "end of session"],
)
def test_a_malformed_request_is_counted_and_not_answered(data: bytes) -> None:
    clerk = Clerk()
    clerk.desk.receive_request(data, "a", NOW)
    assert clerk.replies() == []
    assert clerk.desk.counts == {"malformed": 1}
    assert clerk.desk.requesters == {}


def test_a_request_for_a_foreign_session_is_counted_and_not_answered() -> None:
    clerk = Clerk()
    clerk.desk.receive_request(encode_header(b"ELSEWHERE ", 1, 1), "a", NOW)
    assert clerk.replies() == []
    assert clerk.desk.counts == {"foreign_session": 1}


def test_a_session_that_is_forgotten_is_foreign_even_to_waiting_requests() -> None:
    clerk = Clerk()
    clerk.ask(5)
    clerk.desk.forget(SESSION)
    assert clerk.replies() == []
    clerk.ask(6)
    assert clerk.desk.counts["foreign_session"] == 2


# -- coalescing ----------------------------------------------------------------------------------


def test_the_same_request_within_the_window_is_one_request() -> None:
    clerk = Clerk(coalesce_s=0.5)
    clerk.ask(5)
    assert clerk.replies() == [("a", 5, 1)]
    clerk.ask(5, at=NOW + 0.49)
    assert clerk.replies(NOW + 0.49) == []
    assert clerk.desk.counts["coalesced"] == 1
    clerk.ask(5, at=NOW + 0.5)
    assert clerk.replies(NOW + 0.5) == [("a", 5, 1)]


def test_the_same_request_from_two_addresses_is_two_requests() -> None:
    clerk = Clerk(coalesce_s=0.5)
    clerk.ask(5, by="a")
    clerk.ask(5, by="b")
    assert clerk.replies() == [("a", 5, 1), ("b", 5, 1)]


def test_another_range_is_another_request() -> None:
    clerk = Clerk(coalesce_s=0.5)
    clerk.ask(5, 1)
    clerk.ask(5, 2)
    clerk.ask(6, 1)
    assert len(clerk.replies()) == 3


def test_a_request_that_waits_is_not_taken_a_second_time() -> None:
    clerk = Clerk(coalesce_s=0.0, requester_bytes_per_s=ONE, burst_bytes=ONE, packet_bytes=ONE)
    clerk.ask(1)
    clerk.ask(2)
    assert clerk.replies() == [("a", 1, 1)]
    for _ in range(5):
        clerk.ask(2, at=NOW + 0.5)
    assert clerk.replies(NOW + 0.5) == []
    assert clerk.replies(NOW + 10.0) == [("a", 2, 1)]
    assert clerk.desk.counts["coalesced"] == 5


def test_the_memory_of_requests_is_bounded_and_a_flood_is_still_answered() -> None:
    clerk = Clerk(messages=2000, coalesce_s=10.0)
    for first in range(1, 1001):
        clerk.ask(first)
    assert len(clerk.replies()) == 1000
