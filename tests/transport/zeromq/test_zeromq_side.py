"""The messages of the side channel: what is read as it was written, and what is not read at all."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.transport import Malformed
from onehop.transport.zeromq.side import (
    MAX_GROUP_BYTES,
    MAX_PREFETCH,
    MAX_WINDOW,
    Ask,
    Credit,
    Done,
    Downstream,
    Farewell,
    Join,
    Leave,
    Opened,
    Refused,
    Upstream,
    decode_downstream,
    decode_upstream,
    encode_side,
)

NAME = b"0123456789abcdef"
SESSION = b"SESSION001"
JOIN = Join(NAME, "workers", ("jobs.",), "key", True, 30.0, 64, "live")
UPSTREAM: list[Upstream] = [
    Credit(NAME, 5, 0.5, (b"q\0",), {SESSION: 7}),
    Ask(NAME, ("a.", "b")),
    JOIN,
    Done(NAME, SESSION, ((1, 5), (7, 7))),
    Leave(NAME),
]
DOWNSTREAM: list[Downstream] = [Opened(SESSION, "group", 1), Refused("no"), Farewell()]


@pytest.mark.parametrize("message", UPSTREAM)
def test_what_a_subscriber_says_is_read_as_it_was_written(message: Upstream) -> None:
    data = encode_side(message)
    assert data[:1] == b"\xff"
    assert decode_upstream(data[1:]) == message


@pytest.mark.parametrize("message", DOWNSTREAM)
def test_what_a_publisher_says_is_read_as_it_was_written(message: Downstream) -> None:
    assert decode_downstream(encode_side(message)[1:]) == message


@pytest.mark.parametrize(
    "fields",
    [
        ["credit", b"short", 5, 0.5, [], {}],
        ["credit", NAME, 0, 0.5, [], {}],
        ["credit", NAME, MAX_WINDOW + 1, 0.5, [], {}],
        ["credit", NAME, 5, -0.1, [], {}],
        ["credit", NAME, 5, 3601.0, [], {}],
        ["credit", NAME, 5, float("nan"), [], {}],
        ["credit", NAME, 5, 0.5, ["text"], {}],
        ["credit", NAME, 5, 0.5, [], {b"short": 1}],
        ["credit", NAME, 5, 0.5, [], {SESSION: -1}],
        ["credit", NAME, 5, 0.5, [], {SESSION: True}],
        ["join", NAME, "", [], "", True, 30.0, 1, "live"],
        ["join", NAME, "g" * (MAX_GROUP_BYTES + 1), [], "", True, 30.0, 1, "live"],
        ["join", NAME, "g", [], "topic", True, 30.0, 1, "live"],
        ["join", NAME, "g", [], "", True, 30.0, MAX_PREFETCH + 1, "live"],
        ["join", NAME, "g", [], "", True, 30.0, 0, "live"],
        ["join", NAME, "g", [], "", True, 30.0, 1, 7],
        ["done", NAME, SESSION, [[1]]],
        ["done", NAME, SESSION, [[-1, 1]]],
        ["leave"],
        ["what", NAME],
        [NAME],
        [],
        7,
    ],
)
def test_a_message_with_a_wrong_field_is_malformed(fields: object) -> None:
    with pytest.raises(Malformed):
        decode_upstream(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize(("group", "prefetch"), [("g", 1), ("g" * MAX_GROUP_BYTES, MAX_PREFETCH)])
def test_a_join_is_taken_up_to_its_bounds(group: str, prefetch: int) -> None:
    join = msgspec.structs.replace(JOIN, group=group, prefetch=prefetch)
    assert decode_upstream(encode_side(join)[1:]) == join


@given(st.binary(max_size=100))
def test_no_bytes_make_the_readers_fail_otherwise(data: bytes) -> None:
    for read in (decode_upstream, decode_downstream):
        try:
            read(data)
        except Malformed as fault:
            assert fault.reason == "bad_side_message"  # noqa: PT017, anything else is raised
