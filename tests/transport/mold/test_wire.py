"""The bytes of MoldUDP64, against hand-written ones and an independent codec."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moldudp.codec.const import MOLDPKT_SIZE
from moldudp.codec.decoder import MoldUDPDecoder
from moldudp.codec.encoder import MoldUDPEncoder
from moldudp.msg.msgpub import MsgPublisher
from moldudp.msg.msgsub import MsgSubscriber

from onehop.transport.errors import LimitError, Malformed
from onehop.transport.mold.wire import (
    END_OF_SESSION_COUNT,
    HEADER_BYTES,
    HEARTBEAT_COUNT,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGE_COUNT,
    MAX_SEQUENCE,
    Header,
    decode_header,
    decode_messages,
    encode_block,
    encode_header,
    encode_packet,
)

SESSION = b"SESSION001"
SESSION_HEX = "53455353494f4e303031"

sequences = st.integers(1, MAX_SEQUENCE - MAX_MESSAGE_COUNT)
bodies = st.lists(st.binary(max_size=60), min_size=1, max_size=12)


def decode(data: bytes) -> list[bytes]:
    return decode_messages(data, decode_header(data))


def why_malformed(data: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        decode(data)
    return caught.value.reason


# -- the specification, by hand ------------------------------------------------------------------


def test_a_packet_of_three_messages_is_these_bytes() -> None:
    packet = encode_packet(SESSION, 258, [b"AB", b"", b"C"])
    assert packet.hex() == f"{SESSION_HEX}00000000000001020003" + "00024142" + "0000" + "000143"


def test_a_heartbeat_is_these_bytes() -> None:
    heartbeat = encode_header(SESSION, 7, HEARTBEAT_COUNT)
    assert heartbeat.hex() == f"{SESSION_HEX}00000000000000070000"


def test_an_end_of_session_is_these_bytes() -> None:
    end = encode_header(SESSION, 2**40, END_OF_SESSION_COUNT)
    assert end.hex() == f"{SESSION_HEX}0000010000000000ffff"


def test_a_request_is_these_bytes() -> None:
    request = encode_header(b"FEED      ", 10, 300)
    assert request.hex() == "46454544202020202020000000000000000a012c"


def test_a_packet_written_by_hand_is_read() -> None:
    data = bytes.fromhex(f"{SESSION_HEX}00000000000000050002" + "0003616263" + "0000")
    assert decode_header(data) == Header(SESSION, 5, 2)
    assert decode(data) == [b"abc", b""]


def test_a_zero_length_message_is_a_message() -> None:
    assert decode(encode_packet(SESSION, 1, [b""])) == [b""]


@pytest.mark.parametrize("count", [HEARTBEAT_COUNT, END_OF_SESSION_COUNT])
def test_heartbeat_and_end_of_session_hold_no_message(count: int) -> None:
    assert decode(encode_header(SESSION, 9, count)) == []


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_a_datagram_shorter_than_a_header_is_malformed(size: int) -> None:
    assert why_malformed(bytes(size)) == "short_header"


def test_a_block_cut_in_its_data_is_truncated() -> None:
    assert why_malformed(encode_packet(SESSION, 1, [b"abc", b"def"])[:-1]) == "truncated_block"


def test_a_block_cut_in_its_length_is_truncated() -> None:
    assert why_malformed(encode_packet(SESSION, 1, [b"abc", b""])[:-1]) == "truncated_block"


def test_a_count_above_the_blocks_is_wrong() -> None:
    data = encode_header(SESSION, 1, 3) + encode_block(b"a") + encode_block(b"b")
    assert why_malformed(data) == "wrong_count"


def test_bytes_behind_the_last_block_are_malformed() -> None:
    assert why_malformed(encode_packet(SESSION, 1, [b"a"]) + b"\0") == "trailing_bytes"


def test_a_count_below_the_blocks_leaves_trailing_bytes() -> None:
    data = encode_header(SESSION, 1, 1) + encode_block(b"a") + encode_block(b"b")
    assert why_malformed(data) == "trailing_bytes"


@pytest.mark.parametrize("count", [HEARTBEAT_COUNT, END_OF_SESSION_COUNT])
def test_bytes_behind_a_heartbeat_or_end_of_session_are_malformed(count: int) -> None:
    assert why_malformed(encode_header(SESSION, 1, count) + b"\0") == "trailing_bytes"


@pytest.mark.parametrize("count", [HEARTBEAT_COUNT, END_OF_SESSION_COUNT, 1])
def test_number_zero_is_no_number(count: int) -> None:
    assert why_malformed(encode_header(SESSION, 0, count) + encode_block(b"a")) == "bad_sequence"


def test_numbers_end_at_64_bits() -> None:
    assert decode(encode_packet(SESSION, MAX_SEQUENCE, [b"a"])) == [b"a"]
    assert why_malformed(encode_packet(SESSION, MAX_SEQUENCE, [b"a", b"b"])) == "bad_sequence"


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    try:
        messages = decode(data)
    except Malformed:
        return
    header = decode_header(data)
    assert HEADER_BYTES + sum(2 + len(message) for message in messages) == len(data)
    assert header.message_count in (len(messages), END_OF_SESSION_COUNT)


# -- limits --------------------------------------------------------------------------------------


def test_a_block_holds_what_two_bytes_of_length_can_say() -> None:
    assert encode_block(bytes(MAX_MESSAGE_BYTES))[:2] == b"\xff\xff"
    with pytest.raises(LimitError, match="65536 bytes"):
        encode_block(bytes(MAX_MESSAGE_BYTES + 1))


def test_a_packet_holds_one_message_less_than_the_end_of_session_mark() -> None:
    packet = encode_packet(SESSION, 1, [b""] * MAX_MESSAGE_COUNT)
    assert len(decode(packet)) == MAX_MESSAGE_COUNT == END_OF_SESSION_COUNT - 1
    with pytest.raises(LimitError, match="65535 messages"):
        encode_packet(SESSION, 1, [b""] * (MAX_MESSAGE_COUNT + 1))


# -- an independent codec ------------------------------------------------------------------------


class Collector(MsgSubscriber, MsgPublisher):  # type: ignore[misc]  # the partner has no types
    """Takes what the partner decodes, and the packets it encodes."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.heartbeats = 0
        self.packets: list[bytes] = []

    def on_msgblk(self, msg: bytes) -> None:
        self.messages.append(bytes(msg))

    def on_hb(self) -> None:
        self.heartbeats += 1

    def publish(self, buffer: bytearray) -> None:
        self.packets.append(bytes(buffer))


@given(sequences, bodies)
def test_the_partner_reads_our_packets(sequence: int, messages: list[bytes]) -> None:
    collector = Collector()
    partner = MoldUDPDecoder(collector)
    partner.buffer(encode_packet(SESSION, sequence, messages))
    partner.decode()
    assert (partner.session(), partner.seq(), partner.count()) == (SESSION, sequence, len(messages))
    assert collector.messages == messages


def test_the_partner_knows_our_heartbeat() -> None:
    collector = Collector()
    partner = MoldUDPDecoder(collector)
    partner.buffer(encode_header(SESSION, 12, HEARTBEAT_COUNT))
    partner.decode()
    assert (partner.seq(), collector.heartbeats) == (12, 1)


@given(sequences, bodies)
def test_we_read_the_partners_packets(sequence: int, messages: list[bytes]) -> None:
    collector = Collector()
    partner = MoldUDPEncoder(collector)
    partner.session(SESSION)
    partner.seq(sequence)
    for message in messages:
        partner.add_msg(message)
    partner.process()
    found: list[bytes] = []
    for packet in collector.packets:
        header = decode_header(packet)
        assert header.session == SESSION
        assert header.sequence == sequence + len(found)
        found += decode_messages(without_padding(packet, header), header)
    assert found == messages


def without_padding(packet: bytes, header: Header) -> bytes:
    """The partner fills each datagram to its full size with zeros, which the protocol forbids."""
    assert len(packet) == MOLDPKT_SIZE
    end = HEADER_BYTES
    for _ in range(header.message_count):
        end += 2 + int.from_bytes(packet[end : end + 2], "big")
    assert not any(packet[end:])
    return packet[:end]
