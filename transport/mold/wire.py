"""MoldUDP64 on the wire: headers, message blocks, requests. No state.

    downstream packet   session(10) sequence(8) count(2)  then `count` blocks: length(2) data
    heartbeat           count 0, sequence = the next number to be sent, no blocks
    end of session      count 0xFFFF, sequence as in a heartbeat, no blocks
    request             session(10) first wanted(8) how many(2): a header and nothing else

All numbers are big-endian. The sequence number is that of the first message; the following ones
count up by themselves. Nothing may stand behind the last block.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ..errors import LimitError, Malformed

SESSION_BYTES = 10
HEADER = Struct(">10sQH")
HEADER_BYTES = HEADER.size
LENGTH = Struct(">H")
LENGTH_BYTES = LENGTH.size

HEARTBEAT_COUNT = 0
END_OF_SESSION_COUNT = 0xFFFF
MAX_MESSAGE_COUNT = 0xFFFE
MAX_MESSAGE_BYTES = 0xFFFF
MAX_SEQUENCE = 0xFFFF_FFFF_FFFF_FFFF

DEFAULT_PACKET_BYTES = 1400
"""Fits an Ethernet frame with room for IPv6, VLAN tags and a tunnel header."""


class Header(NamedTuple):
    """The 20 bytes in front of every packet, and the whole of a request."""

    session: bytes
    sequence: int
    message_count: int


def encode_header(session: bytes, sequence: int, count: int) -> bytes:
    """The 20 bytes of a header, a heartbeat, an end of session or a request."""
    return HEADER.pack(session, sequence, count)


def encode_block(message: bytes) -> bytes:
    """One message with its length in front."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise LimitError(
            f"message of {len(message)} bytes; a block holds at most {MAX_MESSAGE_BYTES}"
        )
    return LENGTH.pack(len(message)) + message


def encode_packet(session: bytes, sequence: int, messages: Sequence[bytes]) -> bytes:
    """A downstream packet that holds `messages`, the first of them numbered `sequence`."""
    if len(messages) > MAX_MESSAGE_COUNT:
        raise LimitError(f"{len(messages)} messages; a packet holds at most {MAX_MESSAGE_COUNT}")
    blocks = b"".join([encode_block(message) for message in messages])
    return encode_header(session, sequence, len(messages)) + blocks


def decode_header(data: bytes) -> Header:
    """Reads the header; raises `Malformed` when there is none."""
    if len(data) < HEADER_BYTES:
        raise Malformed(
            "short_header", f"datagram has {len(data)} bytes, a header has {HEADER_BYTES}"
        )
    return Header(*HEADER.unpack_from(data))


def decode_messages(data: bytes, header: Header) -> list[bytes]:
    """Reads the blocks behind `header`; raises `Malformed` unless they fit it to the last byte."""
    _, sequence, count = header
    if sequence == 0:
        raise Malformed("bad_sequence", "number 0; the first message of a session is number 1")
    if count in (HEARTBEAT_COUNT, END_OF_SESSION_COUNT):
        if len(data) > HEADER_BYTES:
            raise Malformed("trailing_bytes", f"{len(data) - HEADER_BYTES} bytes and no block")
        return []
    if sequence + count - 1 > MAX_SEQUENCE:
        raise Malformed("bad_sequence", f"{count} messages from number {sequence}")
    messages = []
    at = HEADER_BYTES
    end = len(data)
    for found in range(count):
        if at == end:
            raise Malformed("wrong_count", f"header says {count} messages, found {found}")
        start = at + LENGTH_BYTES
        if start > end:
            raise Malformed("truncated_block", f"length at byte {at} is cut off at byte {end}")
        at = start + ((data[start - 2] << 8) | data[start - 1])
        if at > end:
            raise Malformed("truncated_block", f"block ends at byte {at}, datagram has {end}")
        messages.append(data[start:at])
    if at != end:
        raise Malformed("trailing_bytes", f"{end - at} bytes behind the last block")
    return messages
