"""What travels over ZeroMQ, byte by byte."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.transport import LimitError, Malformed
from onehop.transport.zeromq.wire import (
    MAX_PARTS,
    MAX_STREAMS,
    STREAMS_PER_PART,
    Announcement,
    decode_announcement,
    encode_announcement,
    prefix_of,
    session_of,
    stream_of,
    subscriptions,
)

NAME = b"0123456789abcdef"
EPOCH = b"abcdEFGH"
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


def test_a_stream_is_the_first_segment_of_the_topic() -> None:
    assert [stream_of(topic) for topic in ("quotes.AAPL.bid", "quotes", ".x", "a.")] == [
        "quotes", "quotes", "", "a",
    ]  # fmt: skip


def test_sessions_of_one_epoch_differ_by_two_alphanumerics() -> None:
    sessions = {session_of(EPOCH, index) for index in range(MAX_STREAMS)}

    assert len(sessions) == MAX_STREAMS
    assert session_of(EPOCH, 0) == EPOCH + b"00"
    assert session_of(EPOCH, MAX_STREAMS - 1) == EPOCH + b"zz"


def test_a_nul_in_a_stream_is_refused() -> None:
    with pytest.raises(LimitError, match="has a NUL in it"):
        prefix_of("a\0b")


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([], [b""]),
        (["quotes."], [b"quotes\0"]),
        (["quotes.AAPL", "quotes.MSFT"], [b"quotes\0"]),
        (["quo", "trades.X"], [b"quo", b"trades\0"]),
    ],
)
def test_the_sender_filters_by_stream(topics: list[str], expected: list[bytes]) -> None:
    assert subscriptions(topics) == expected


@given(
    texts,
    st.floats(0, 1e9),
    st.integers(0, MAX_PARTS - 1),
    st.lists(st.tuples(texts, st.integers(0, MAX_STREAMS - 1), st.integers(1, 2**64 - 1))),
)
def test_an_announcement_is_read_as_it_was_written(
    source: str, age_s: float, part: int, streams: list[tuple[str, int, int]]
) -> None:
    told = Announcement(
        source, EPOCH, b"c", 5.5, age_s, "tcp://*:5", b"k" * 40, part, MAX_PARTS, tuple(streams)
    )
    message = encode_announcement(NAME, told)

    assert message[:17] == b"\xff" + NAME
    assert decode_announcement(message[17:]) == told


@pytest.mark.parametrize(
    ("count", "is_good"), [(STREAMS_PER_PART, True), (STREAMS_PER_PART + 1, False)]
)
def test_a_part_has_a_bound(count: int, is_good: bool) -> None:
    streams = tuple((f"s{index}", index, 1) for index in range(count))
    message = encode_announcement(
        NAME, Announcement("me", EPOCH, b"", 0.0, 0.0, "", b"", 0, 1, streams)
    )
    if is_good:
        assert decode_announcement(message[17:]).streams == streams
    else:
        with pytest.raises(Malformed):
            decode_announcement(message[17:])


GOOD = [1, "me", EPOCH, b"clock", 7.5, 0.5, "tcp://*:5", b"", 0, 1, [["quotes", 0, 1]]]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 2), (1, 5), (1, "x" * 256), (2, b"short"), (2, b"abcd EFG"), (2, "abcdEFGH"),
        (3, "clock"), (3, b"x" * 65), (4, 7), (4, float("inf")), (5, 1), (5, float("nan")),
        (6, None), (6, "x" * 513), (7, ""), (7, b"k" * 39), (8, 1), (8, -1), (8, False),
        (9, 0), (9, MAX_PARTS + 1),
        (10, {}), (10, [5]), (10, [["q", 0]]),
        (10, [["q", -1, 1]]), (10, [["q", MAX_STREAMS, 1]]), (10, [["q", 0, 0]]),
        (10, [["q", 0, True]]), (10, [["a\0b", 0, 1]]), (10, [[b"q", 0, 1]]),
    ],
)  # fmt: skip
def test_an_announcement_with_a_wrong_field_is_malformed(place: int, value: object) -> None:
    fields = list(GOOD)
    decode_announcement(msgpack.packb(fields))
    fields[place] = value

    with pytest.raises(Malformed):
        decode_announcement(msgpack.packb(fields))


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_otherwise(data: bytes) -> None:
    try:
        decode_announcement(data)
    except Malformed as fault:
        assert fault.reason == "bad_announcement"  # noqa: PT017, anything else is raised
