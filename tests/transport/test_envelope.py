from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgpack.fallback import Unpacker as PurePythonUnpacker

from onehop.transport.envelope import (
    MAX_EVENT_BYTES,
    MAX_HEADER_NAME_BYTES,
    MAX_HEADER_VALUE_BYTES,
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_NESTING,
    MAX_PIECES,
    MAX_SOURCE_BYTES,
    MAX_TOPIC_BYTES,
    PIECE_OVERHEAD_BYTES,
    EventEncoder,
    Piece,
    Whole,
    decode,
    encode_piece,
)
from onehop.transport.errors import LimitError, Malformed, UnsupportedValue

unhurried = settings(max_examples=200, deadline=None, database=None, derandomize=True)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(scalars, inner, max_size=4),
    max_leaves=20,
)


def encode(
    topic: str = "t",
    value: Any = None,
    key: str | None = None,
    occurred_at_ns: int = 3,
    headers: Mapping[str, str] | None = None,
    source: str = "s",
) -> bytes:
    return EventEncoder(source).encode(topic, value, key, occurred_at_ns, 4, headers)


def packed(**changes: Any) -> bytes:
    """A message as another program would write it, with no limit checked."""
    fields = {
        "version": 1, "topic": "t", "value": None, "key": None, "source": "s",
        "occurred_at_ns": 3, "sent_at_ns": 4, "headers": None,
    }  # fmt: skip
    data: bytes = msgpack.packb([*(fields | changes).values()])
    return data


def reason_of(data: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        decode(data)
    return caught.value.reason


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


BARE_BYTES = len(packed(value=b"x" * 0x10000)) - 0x10000


class Limit(NamedTuple):
    bound: int
    fields: Callable[[int], dict[str, Any]]
    """Fields of an event that has this much of what is limited."""
    reason: str


LENGTH, HEADERS = "bad_length", "bad_headers"
LIMITS = {
    "topic": Limit(MAX_TOPIC_BYTES, lambda n: {"topic": "x" * n}, LENGTH),
    "topic not ASCII": Limit(MAX_TOPIC_BYTES, lambda n: {"topic": "x" * (n - 2) + "é"}, LENGTH),
    "key": Limit(MAX_KEY_BYTES, lambda n: {"key": "x" * n}, LENGTH),
    "source": Limit(MAX_SOURCE_BYTES, lambda n: {"source": "x" * n}, LENGTH),
    "headers": Limit(MAX_HEADERS, lambda n: {"headers": {f"{i}": "" for i in range(n)}}, HEADERS),
    "header name": Limit(MAX_HEADER_NAME_BYTES, lambda n: {"headers": {"x" * n: ""}}, HEADERS),
    "header value": Limit(MAX_HEADER_VALUE_BYTES, lambda n: {"headers": {"h": "x" * n}}, HEADERS),
    "nesting": Limit(MAX_NESTING, lambda n: {"value": nested(n)}, "too_deep"),
    "event": Limit(MAX_EVENT_BYTES, lambda n: {"value": b"x" * (n - BARE_BYTES)}, "too_large"),
}  # fmt: skip
over_limits = pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())


# -- limits ----------------------------------------------------------------------------------------


@over_limits
def test_up_to_its_bound_everything_is_sent_and_read(limit: Limit) -> None:
    for amount in (limit.bound - 1, limit.bound):
        fields = limit.fields(amount)
        whole = decode(encode(**fields))

        assert isinstance(whole, Whole)
        assert {name: getattr(whole, name) for name in fields} == fields
        assert decode(packed(**fields)) == whole


@over_limits
def test_one_beyond_its_bound_nothing_is_sent_nor_read(limit: Limit) -> None:
    fields = limit.fields(limit.bound + 1)

    with pytest.raises(LimitError, match=str(limit.bound)):
        encode(**fields)
    assert reason_of(packed(**fields)) == limit.reason


@pytest.mark.parametrize("name", ["topic", "source"])
def test_a_name_may_not_be_empty(name: str) -> None:
    fields: dict[str, Any] = {name: ""}

    with pytest.raises(LimitError, match=f"{name} has 0 bytes, expected 1 to 255"):
        encode(**fields)
    assert reason_of(packed(**fields)) == "bad_length"


def test_a_header_name_may_not_be_empty() -> None:
    with pytest.raises(LimitError, match="header name has 0 bytes, expected 1 to 128"):
        encode(headers={"": "x"})
    assert reason_of(packed(headers={"": "x"})) == "bad_headers"


def test_a_key_and_a_header_value_may_be_empty() -> None:
    whole = decode(encode(key="", headers={"h": ""}))

    assert isinstance(whole, Whole)
    assert (whole.key, whole.headers) == ("", {"h": ""})


# -- round trip ------------------------------------------------------------------------------------


@unhurried
@given(
    st.text(min_size=1, max_size=60),
    values,
    st.none() | st.text(max_size=60),
    st.integers(0, 2**63 - 1),
    st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=60), max_size=5),
)
def test_what_is_encoded_is_decoded(
    topic: str, value: Any, key: str | None, at_ns: int, headers: dict[str, str]
) -> None:
    data = EventEncoder("quotes").encode(topic, value, key, at_ns, at_ns + 1, headers)

    assert decode(data) == Whole(topic, value, key, "quotes", at_ns, at_ns + 1, headers)


def test_not_a_number_and_the_infinities_pass() -> None:
    whole = decode(encode(value=[float("inf"), float("-inf"), float("nan")]))

    assert isinstance(whole, Whole)
    assert repr(whole.value) == "[inf, -inf, nan]"


def test_a_tuple_comes_as_a_list_and_a_buffer_as_bytes() -> None:
    whole = decode(encode(value=((1, 2), bytearray(b"ab"), memoryview(b"cd"))))

    assert isinstance(whole, Whole)
    assert whole.value == [[1, 2], b"ab", b"cd"]


def test_an_independent_reader_sees_a_plain_array() -> None:
    reader = PurePythonUnpacker()
    reader.feed(encode("quotes.AAPL", {"price": 101.5}, "AAPL", 3, {"trace": "7"}, "quotes"))

    assert list(reader) == [
        [1, "quotes.AAPL", {"price": 101.5}, "AAPL", "quotes", 3, 4, {"trace": "7"}]
    ]


def test_the_bytes_of_an_event_are_these() -> None:
    # array of 8 | 1 | "t" | true | nil | "s" | 3 | 4 | nil
    assert encode("t", True) == b"\x98\x01\xa1t\xc3\xc0\xa1s\x03\x04\xc0"


@pytest.mark.parametrize(("place", "pieces"), [(0, 2), (1, 2), (MAX_PIECES - 1, MAX_PIECES)])
def test_a_piece_is_decoded_as_encoded(place: int, pieces: int) -> None:
    data = encode_piece(place, pieces, b"x" * 70_000)

    assert decode(data) == Piece(place, pieces, b"x" * 70_000)
    assert len(data) <= 70_000 + PIECE_OVERHEAD_BYTES


# -- what cannot be sent ---------------------------------------------------------------------------


class Local:
    pass


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({1, 2}, "set"),
        (Local(), "Local"),
        ([Decimal("1.5")], "Decimal"),
        (1 + 2j, "complex"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime"),
        (2**64, "65 bits, expected"),
        ({"deep": [-(2**63) - 1]}, "64 bits, expected"),
        ({10**5000: 1}, "16610 bits"),
        ("\ud800", r"'\\ud800'"),
        (msgpack.ExtType(5, b""), "ExtType"),
        ([msgpack.Timestamp(1)], "Timestamp"),
        ({"a": {(1, 2): 3}}, "tuple as a map key"),
        ({msgpack.Timestamp(1): 3}, "Timestamp as a map key"),
        (memoryview(b"abcd")[::2], "memoryview"),
    ],
)
def test_an_unsupported_value_is_named_and_the_encoder_goes_on(value: Any, seen: str) -> None:
    encoder = EventEncoder("s")

    with pytest.raises(UnsupportedValue, match=seen):
        encoder.encode("t", value, None, 3, 4, None)
    assert encoder.encode("t", 1, None, 3, 4, None) == encode("t", 1)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(LimitError, match="nests deeper than 32"):
        encode(value=endless)


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"topic": 5}, "topic is a int, expected text"),
        ({"topic": "\udc80"}, "topic is not UTF-8 text: .*'\\\\udc80'"),
        ({"key": b"k"}, "key is a bytes, expected text"),
        ({"source": None}, "source is a NoneType, expected text"),
        ({"headers": {1: "a"}}, "header name is a int, expected text"),
        ({"headers": {"a": 1}}, "header 'a' is a int, expected text"),
        ({"occurred_at_ns": 1.5}, "occurred_at_ns is a float, expected whole nanoseconds"),
        ({"occurred_at_ns": True}, "occurred_at_ns is a bool, expected whole nanoseconds"),
    ],
)
def test_a_field_of_another_type_is_named(fields: dict[str, Any], seen: str) -> None:
    with pytest.raises(LimitError, match=seen):
        encode(**fields)
