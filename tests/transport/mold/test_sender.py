"""The sending side: numbering, packing, heartbeats and the end."""

import pytest

from onehop.transport.errors import Closed, ConfigurationError, LimitError
from onehop.transport.mold import RingOptions, SenderOptions, SenderSession
from onehop.transport.mold.sender import MAX_PACKET_BYTES, MIN_PACKET_BYTES
from onehop.transport.mold.wire import (
    END_OF_SESSION_COUNT,
    HEADER_BYTES,
    HEARTBEAT_COUNT,
    MAX_MESSAGE_COUNT,
    decode_header,
    decode_messages,
    encode_header,
)

SESSION = b"SESSION001"


def opened(options: SenderOptions | None = None) -> SenderSession[str]:
    """A session at time 0 whose opening heartbeats have gone out."""
    sender: SenderSession[str] = SenderSession(SESSION, options or SenderOptions(), 0.0)
    sender.datagrams_to_send(0.0)
    sender.handle_timeout(0.0)
    sender.datagrams_to_send(0.0)
    return sender


def contents(datagrams: list[bytes]) -> list[tuple[int, list[bytes]]]:
    found = []
    for data in datagrams:
        header = decode_header(data)
        assert header.session == SESSION
        found.append((header.sequence, decode_messages(data, header)))
    return found


def empty_packets(sender: SenderSession[str], until: float) -> list[tuple[float, int, int]]:
    """Heartbeats and ends of session as `(when, number, count)`, each made as it is due."""
    found = []
    while (now := sender.next_timeout()) <= until:
        sender.handle_timeout(now)
        for data in sender.datagrams_to_send(now):
            header = decode_header(data)
            found.append((now, header.sequence, header.message_count))
    return found


def test_messages_are_numbered_from_one() -> None:
    sender = opened()
    assert [sender.send(b"m", 0.0) for _ in range(3)] == [1, 2, 3]
    assert sender.next_number == 4


def test_messages_sent_together_share_a_packet() -> None:
    sender = opened()
    for message in (b"a", b"", b"c"):
        sender.send(message, 0.0)
    assert contents(sender.datagrams_to_send(0.0)) == [(1, [b"a", b"", b"c"])]
    assert sender.datagrams_to_send(0.0) == []


def test_a_caller_who_asks_after_each_message_gets_a_packet_for_each() -> None:
    sender = opened()
    packets = []
    for message in (b"a", b"b"):
        sender.send(message, 0.0)
        packets += sender.datagrams_to_send(0.0)
    assert contents(packets) == [(1, [b"a"]), (2, [b"b"])]


def test_a_caller_may_take_full_packets_and_leave_the_one_being_filled() -> None:
    sender = opened(SenderOptions(packet_bytes=64))
    sender.send(bytes(40), 0.0)
    assert sender.full_datagrams_to_send() == []
    sender.send(b"b", 0.0)
    assert contents(sender.full_datagrams_to_send()) == [(1, [bytes(40)])]
    assert contents(sender.datagrams_to_send(0.0)) == [(2, [b"b"])]


@pytest.mark.parametrize(("room", "packed"), [(19, [2, 1]), (20, [3]), (21, [3])])
def test_a_packet_is_filled_to_its_last_byte_and_not_beyond(room: int, packed: list[int]) -> None:
    packet_bytes = HEADER_BYTES + 42 + room
    sender = opened(SenderOptions(packet_bytes=packet_bytes))
    for size in (40, 8, 8):
        sender.send(bytes(size), 0.0)
    datagrams = sender.datagrams_to_send(0.0)
    assert [len(messages) for _, messages in contents(datagrams)] == packed
    assert max(len(data) for data in datagrams) <= packet_bytes


def test_a_packet_counts_one_message_less_than_the_end_of_session_mark() -> None:
    ring = RingOptions(max_messages=MAX_MESSAGE_COUNT + 2)
    sender = opened(SenderOptions(packet_bytes=MAX_PACKET_BYTES, ring=ring))
    sender._packet_bytes = 10**6  # no datagram is that large; the count is bounded all the same
    for _ in range(MAX_MESSAGE_COUNT + 1):
        sender.send(b"", 0.0)
    counts = [decode_header(data).message_count for data in sender.datagrams_to_send(0.0)]
    assert counts == [MAX_MESSAGE_COUNT, 1]


def test_a_message_may_fill_a_packet_and_not_more() -> None:
    sender = opened()
    sender.send(bytes(sender.max_message_bytes), 0.0)
    assert [len(data) for data in sender.datagrams_to_send(0.0)] == [1400]
    with pytest.raises(LimitError, match="holds at most 1378"):
        sender.send(bytes(sender.max_message_bytes + 1), 0.0)
    assert sender.next_number == 2


def test_a_session_opens_with_heartbeats_so_that_a_lost_first_packet_is_noticed() -> None:
    sender: SenderSession[str] = SenderSession(SESSION, SenderOptions(), 0.0)
    sender.send(b"a", 0.0)
    found = contents(sender.datagrams_to_send(0.0))
    assert found == [(1, []), (1, []), (1, []), (1, [b"a"])]


def test_heartbeats_follow_a_message_in_a_burst_and_name_the_next_number() -> None:
    sender = opened()
    sender.send(b"a", 10.0)
    sender.datagrams_to_send(10.0)
    beats = empty_packets(sender, 10.0165)
    assert [round((now - 10.0) * 1000) for now, _, _ in beats] == [1, 2, 4, 8, 16]
    assert {(number, count) for _, number, count in beats} == {(2, HEARTBEAT_COUNT)}


def test_an_idle_session_beats_once_a_second() -> None:
    sender = opened()
    sender.send(b"a", 0.0)
    sender.datagrams_to_send(0.0)
    assert len(empty_packets(sender, 100.0)) == pytest.approx(100 + 10, abs=2)


def test_a_heartbeat_never_overtakes_a_message() -> None:
    sender = opened()
    sender.send(b"a", 5.0)
    sender.handle_timeout(6.0)
    assert contents(sender.datagrams_to_send(6.0)) == [(1, [b"a"]), (2, [])]


def test_no_heartbeat_before_it_is_due() -> None:
    sender = opened()
    sender.send(b"a", 5.0)
    sender.datagrams_to_send(5.0)
    sender.handle_timeout(5.0009)
    assert sender.datagrams_to_send(5.0009) == []


def test_the_end_of_session_takes_the_place_of_heartbeats() -> None:
    sender = opened()
    sender.send(b"a", 5.0)
    sender.handle_timeout(6.0)
    sender.send(b"b", 6.5)
    sender.end(7.0)
    found = [decode_header(data)[1:] for data in sender.datagrams_to_send(7.0)]
    assert found == [(1, 1), (2, 0), (2, 1), *[(3, END_OF_SESSION_COUNT)] * 3]
    later = empty_packets(sender, 10.0)
    assert {(number, count) for _, number, count in later} == {(3, END_OF_SESSION_COUNT)}
    assert [round((now - 7.0) * 1000) for now, _, _ in later[:5]] == [1, 2, 4, 8, 16]


def test_after_the_end_nothing_can_be_sent_but_requests_are_answered() -> None:
    sender = opened()
    sender.send(b"a", 5.0)
    sender.end(5.0)
    sender.end(5.0)
    assert len(sender.datagrams_to_send(5.0)) == 4
    with pytest.raises(Closed, match="has ended"):
        sender.send(b"b", 5.0)
    sender.receive_request(encode_header(SESSION, 1, 1), "a", 6.0)
    assert [(contents([data]), address) for data, address in sender.replies(6.0)] == [
        ([(1, [b"a"])], "a")
    ]


def test_a_request_is_due_at_once() -> None:
    sender = opened()
    sender.receive_request(encode_header(SESSION, 1, 1), "a", 0.0)
    assert sender.next_timeout() == 0.0
    sender.replies(0.0)
    assert sender.next_timeout() > 0.0


@pytest.mark.parametrize("size", [MIN_PACKET_BYTES - 1, MAX_PACKET_BYTES + 1])
def test_a_packet_size_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(ConfigurationError, match=f"packet_bytes is {size}"):
        SenderOptions(packet_bytes=size)


@pytest.mark.parametrize("size", [MIN_PACKET_BYTES, MAX_PACKET_BYTES])
def test_a_packet_size_at_the_bounds_is_taken(size: int) -> None:
    assert opened(SenderOptions(packet_bytes=size)).max_message_bytes == size - 22


def test_a_session_name_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected 10 bytes"):
        SenderSession(b"SHORT", SenderOptions(), 0.0)
