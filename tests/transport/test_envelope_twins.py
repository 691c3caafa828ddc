"""The compiled checks of the usual event against the plain ones, which are the specification."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onehop.transport import envelope
from onehop.transport.datagrams import COMPILED
from onehop.transport.envelope import EventEncoder, Piece, PlainEncoder, Whole, decode
from onehop.transport.errors import OnehopError

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(not COMPILED, reason="no compiled modules here to compare with"),
]

scalars = (
    st.none() | st.booleans() | st.integers(-(2**64), 2**65) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5)
)  # fmt: skip
values = scalars | st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3),
    max_leaves=8,
)
texts = st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(["x" * 255, "x" * 1025])
thorough = settings(max_examples=500, deadline=None, database=None, derandomize=True)


def outcome(act: Any) -> object:
    try:
        result = act()
    except OnehopError as fault:
        return type(fault), str(fault)
    return repr(result)  # NaN is equal to nothing


def both(monkeypatch: pytest.MonkeyPatch, act: Any) -> tuple[object, object]:
    compiled = outcome(act)
    with monkeypatch.context() as patch:
        patch.setattr(EventEncoder, "encode", PlainEncoder.encode)
        patch.setattr(envelope, "_decode_usual", lambda *_: None)
        return compiled, outcome(act)


@thorough
@given(topic=texts, value=values, key=texts, occurred=st.integers(-(2**64), 2**65) | st.floats())
def test_both_encode_the_same_or_refuse_for_the_same_reason(
    topic: Any, value: Any, key: Any, occurred: Any
) -> None:
    encoder = EventEncoder("me")
    with pytest.MonkeyPatch.context() as patch:
        compiled, plain = both(patch, lambda: encoder.encode(topic, value, key, occurred, 1, None))
    assert compiled == plain


@thorough
@given(
    fields=st.tuples(
        st.sampled_from([1, 2, True]), texts, values, texts, texts,
        st.integers(-(2**63), 2**64 - 1) | st.floats() | st.booleans(), st.integers(0, 2**63),
        st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    ),
    cut=st.integers(0, 60) | st.none(),
)  # fmt: skip
def test_both_decode_the_same_or_refuse_for_the_same_reason(
    fields: tuple[Any, ...], cut: int | None
) -> None:
    try:
        data = msgpack.packb(fields)[:cut]
    except (OverflowError, ValueError):
        return
    with pytest.MonkeyPatch.context() as patch:
        compiled, plain = both(patch, lambda: decode(data))
    assert compiled == plain


def test_the_usual_event_is_read_by_the_compiled_module_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = EventEncoder("me")
    usual = encoder.encode("quotes.AAPL", {"price": 101.5}, "AAPL", 1, 2, None)
    unusual = encoder.encode("quotes.AAPL", [1], "AAPL", 1, 2, None)

    def plain(_fields: object) -> Whole | Piece:
        raise AssertionError

    monkeypatch.setattr(envelope, "_whole", plain)
    assert isinstance(decode(usual), Whole)
    with pytest.raises(AssertionError):
        decode(unusual)
