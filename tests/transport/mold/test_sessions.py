"""Session names and the epochs they stand for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.transport.errors import ConfigurationError
from onehop.transport.mold import epoch_of, new_session, parse_session, show_session
from onehop.transport.mold.sessions import ALPHANUMERICS

MAX_INT64 = 2**63 - 1


def test_a_new_session_is_ten_alphanumerics() -> None:
    for _ in range(100):
        session = new_session()
        assert len(session) == 10
        assert session.decode().isalnum()


def test_new_sessions_differ() -> None:
    assert len({new_session() for _ in range(1000)}) == 1000


def test_new_sessions_use_every_letter() -> None:
    assert {letter for _ in range(1000) for letter in new_session()} == set(ALPHANUMERICS)


@pytest.mark.parametrize(
    ("name", "session"), [("A", b"A         "), ("NINECHARS", b"NINECHARS "), ("TENLETTERS",) * 2]
)
def test_a_name_is_padded_with_spaces(name: str, session: bytes | str) -> None:
    expected = session.encode() if isinstance(session, str) else session
    assert parse_session(name) == expected
    assert show_session(expected) == name


@pytest.mark.parametrize("name", ["", "ELEVENCHARS", "ÄÖÜ"])
def test_a_name_that_does_not_fit_the_wire_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected 1 to 10 ASCII"):
        parse_session(name)


def test_a_session_that_is_no_text_can_still_be_shown() -> None:
    assert show_session(b"\xff\x00IS BAD  ") == "\\xff\x00IS BAD"


def test_an_epoch_is_the_session_read_in_base_62() -> None:
    assert epoch_of(b"0000000000") == 0
    assert epoch_of(b"0000000010") == 62
    assert epoch_of(b"zzzzzzzzzz") == 62**10 - 1


@given(st.binary(min_size=10, max_size=10))
def test_the_epoch_of_any_session_fits_a_signed_64_bit_integer(session: bytes) -> None:
    assert 0 <= epoch_of(session) <= MAX_INT64
    assert epoch_of(session) == epoch_of(session)


def test_foreign_sessions_have_epochs_of_their_own() -> None:
    assert epoch_of(b"FEED A    ") != epoch_of(b"FEED B    ")
