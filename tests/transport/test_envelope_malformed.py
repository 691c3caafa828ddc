"""Bytes that are no event: each ends in `Malformed` with a reason, at a bounded cost."""

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onehop.transport.envelope import MAX_EVENT_BYTES, MAX_PIECES, decode
from onehop.transport.errors import Malformed

REASONS = {
    "bad_headers", "bad_length", "bad_messagepack", "bad_piece", "bad_value", "not_an_array",
    "bad_delivery", "too_deep", "too_large", "unknown_version", "wrong_length", "wrong_type",
}  # fmt: skip

FIELDS = [1, "quotes.AAPL", {"p": [1.5, None]}, "AAPL", "quotes", 3, 4, {"trace": "7"}]
GOOD: bytes = msgpack.packb(FIELDS)
EXTENSIONS = {
    "fixext 1": b"\xd4\x05a",
    "fixext 16": b"\xd8\x05" + bytes(16),
    "ext 8": b"\xc7\x03\x05abc",
    "timestamp 32": b"\xd6\xff\x00\x00\x00\x01",
    "timestamp 64": b"\xd7\xff" + bytes(8),
    "timestamp 96": b"\xc7\x0c\xff" + bytes(12),
}
fuzzing = settings(max_examples=400, deadline=None, database=None, derandomize=True)


def reason_of(data: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        decode(data)
    assert caught.value.reason in REASONS
    assert str(caught.value).startswith(f"{caught.value.reason}: ")
    return caught.value.reason


def outcome_of(data: bytes) -> str:
    try:
        decode(data)
    except Malformed as fault:
        return fault.reason
    return "read"


def peak_bytes_of(data: bytes) -> int:
    tracemalloc.start()
    try:
        reason_of(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def with_field(place: int, encoded: bytes) -> bytes:
    fields = [msgpack.packb(field) for field in FIELDS]
    fields[place] = encoded
    return b"\x98" + b"".join(fields)


def test_an_event_cut_at_any_byte_is_malformed() -> None:
    for size in range(len(GOOD)):
        assert reason_of(GOOD[:size]) == "bad_messagepack", size


def test_a_large_event_cut_short_is_malformed() -> None:
    large = msgpack.packb([*FIELDS[:2], b"x" * 100_000, *FIELDS[3:]])

    for size in (2048, 2049, 50_000, len(large) - 1):
        assert reason_of(large[:size]) == "bad_messagepack", size


@pytest.mark.parametrize("extra", [b"\x00", b"\xc1", GOOD, b"x" * 4096])
def test_trailing_bytes_are_malformed(extra: bytes) -> None:
    assert reason_of(GOOD + extra) == "bad_messagepack"


@pytest.mark.parametrize(
    ("place", "wrong", "reason"),
    [
        (1, [None, True, 1, 1.5, b"t", ["t"], {"t": "t"}], "wrong_type"),
        (3, [True, 1, 1.5, b"k", ["k"], {"k": "k"}], "wrong_type"),
        (4, [None, True, 1, 1.5, b"s", ["s"], {"s": "s"}], "wrong_type"),
        (5, [None, True, "3", 3.0, b"3", [3], {3: 3}], "wrong_type"),
        (6, [None, True, "4", 4.0, b"4", [4], {4: 4}], "wrong_type"),
        (7, [False, 1, 1.5, "h", b"h", [], [["h", "v"]]], "wrong_type"),
        (7, [{1: "v"}, {b"h": "v"}, {None: "v"}, {"h": 1}, {"h": None}, {"h": []}], "bad_headers"),
    ],
)
def test_a_field_of_another_type_is_malformed(place: int, wrong: list[Any], reason: str) -> None:
    for value in wrong:
        assert reason_of(with_field(place, msgpack.packb(value))) == reason, value


@pytest.mark.parametrize(
    "fields",
    [
        [1, 7, 1, 1, b"x"],
        [1, "s", "1", 1, b"x"],
        [1, "s", 1, None, b"x"],
        [1, "s", 1, 1, "text"],
        [1, "s", 1, 1, b""],
        [1, "s" * 256, 1, 1, msgpack.packb(FIELDS)],
        [1, "s", 1, 1, msgpack.packb([1, "s", 1, 1, msgpack.packb(FIELDS)])],
        [1, "s", 1, 1, msgpack.packb([1, 0, 2, b"a piece"])],
        [1, "s", 1, 1, b"x" * (MAX_EVENT_BYTES + 1)],
    ],
)
def test_a_delivery_holds_a_whole_event_and_nothing_else(fields: list[Any]) -> None:
    assert reason_of(msgpack.packb(fields)) == "bad_delivery"


def test_a_delivery_of_what_is_no_event_is_malformed_for_that() -> None:
    fields = [*FIELDS[:1], 7, *FIELDS[2:]]
    assert reason_of(msgpack.packb([1, "s", 1, 1, msgpack.packb(fields)])) == "wrong_type"


@pytest.mark.parametrize("version", [0, 2, -1, 2**64 - 1, True, 1.0, None, "1", [1], {1: 1}])
def test_another_version_is_malformed(version: Any) -> None:
    assert reason_of(with_field(0, msgpack.packb(version))) == "unknown_version"


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", b"bytes", {1: 2}, []])
def test_a_message_that_is_no_array_is_malformed(value: Any) -> None:
    assert reason_of(msgpack.packb(value)) == "not_an_array"


@pytest.mark.parametrize("fields", [[1], FIELDS[:3], FIELDS[:7], [*FIELDS, None], [1] * 16])
def test_another_number_of_fields_is_malformed(fields: list[Any]) -> None:
    assert reason_of(msgpack.packb(fields)) == "wrong_length"


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (["0", 2, b"x"], "wrong_type"),
        ([True, 2, b"x"], "wrong_type"),
        ([0, 2.0, b"x"], "wrong_type"),
        ([0, 2, "x"], "wrong_type"),
        ([0, 2, None], "wrong_type"),
        ([0, 2, b""], "bad_piece"),
        ([-1, 2, b"x"], "bad_piece"),
        ([2, 2, b"x"], "bad_piece"),
        ([0, 1, b"x"], "bad_piece"),
        ([0, 0, b"x"], "bad_piece"),
        ([0, MAX_PIECES + 1, b"x"], "bad_piece"),
    ],
)
def test_a_piece_that_cannot_be_is_malformed(piece: list[Any], reason: str) -> None:
    assert reason_of(msgpack.packb([1, *piece])) == reason


@pytest.mark.parametrize("extension", EXTENSIONS.values(), ids=EXTENSIONS.keys())
def test_an_extension_type_is_malformed_wherever_it_stands(extension: bytes) -> None:
    assert reason_of(extension) == "not_an_array"
    for place in range(len(FIELDS)):
        reason_of(with_field(place, extension))
    assert reason_of(with_field(2, extension)) == "bad_value"
    assert reason_of(with_field(2, b"\x91" + extension)) == "bad_value"
    assert reason_of(with_field(2, b"\x81\xa1k" + extension)) == "bad_value"
    assert reason_of(with_field(2, b"\x81" + extension + b"\x01")) == "bad_value"


@pytest.mark.parametrize(
    "value",
    [
        b"\x81\x91\x01\x02",  # {[1]: 2}
        b"\x81\x80\x02",  # {{}: 2}
        b"\xa2\xff\xfe",  # text that is not UTF-8
        b"\xa3\xed\xa0\x80",  # a lone surrogate
        b"\xc1",  # the one byte MessagePack never uses
    ],
)
def test_what_has_no_form_here_is_malformed(value: bytes) -> None:
    assert reason_of(with_field(2, value)) == "bad_messagepack"


@pytest.mark.parametrize("code", [0xC6, 0xC9, 0xDB, 0xDD, 0xDF])  # bin, ext, str, array, map 32
@pytest.mark.parametrize("padding", [0, 4096])
def test_a_declared_length_costs_nothing_until_the_bytes_are_there(code: int, padding: int) -> None:
    data = with_field(2, bytes([code]) + b"\xff\xff\xff\xff" + bytes(padding))

    assert peak_bytes_of(data) < 1_000_000


@pytest.mark.parametrize(
    ("size", "most_bytes"),
    # A packet may cost its square, 8 bytes an item; beyond a packet nothing is built on trust.
    [(1400, 4_000_000), (65_507, 1_000_000), (MAX_EVENT_BYTES, 4_000_000)],
)
@pytest.mark.parametrize("code", [0xDD, 0xDF])  # array 32, map 32
def test_lists_that_each_declare_the_rest_cost_a_bounded_amount(
    code: int, size: int, most_bytes: int
) -> None:
    level = bytes([code]) + (size // 4).to_bytes(4, "big") + (b"\x01" if code == 0xDF else b"")
    levels = min(size // len(level) - 1, 1000)
    data = (b"\x98\x01\xa1t" + level * levels).ljust(size, b"\x01")

    assert peak_bytes_of(data) < most_bytes


@pytest.mark.parametrize("levels", [33, 400, 990, 1023, 1100, 2040, 100_000])
@pytest.mark.parametrize("place", range(len(FIELDS)))
def test_endless_nesting_is_malformed_wherever_it_stands(place: int, levels: int) -> None:
    reason_of(with_field(place, b"\x91" * levels + b"\x01"))


@fuzzing
@given(st.binary(max_size=200))
def test_random_bytes_are_malformed_and_nothing_else(data: bytes) -> None:
    reason_of(data)


@fuzzing
@given(st.data())
def test_a_damaged_event_is_read_or_malformed_and_nothing_else(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        if not damaged:
            break
    assert outcome_of(bytes(damaged)) in REASONS | {"read"}
