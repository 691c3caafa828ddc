import copy
import pickle

import pytest

from onehop.transport.event import NO_HEADERS, Event, Loss, LossReason


def test_an_event_cannot_be_changed() -> None:
    event = Event("quotes.AAPL", 101.5)

    with pytest.raises(AttributeError):
        event.value = 0  # type: ignore[misc]
    with pytest.raises(TypeError):
        event.headers["a"] = "b"  # type: ignore[index]


def test_what_is_not_given_is_unknown() -> None:
    event = Event("quotes.AAPL", None)

    assert (event.key, event.source, event.epoch, event.stream, event.sequence) == (
        None, "", 0, "", 0,
    )  # fmt: skip
    assert (event.occurred_at_ns, event.sent_at_ns, event.received_at_ns) == (0, 0, 0)
    assert event.headers == {}


def test_an_event_without_headers_can_be_copied_and_pickled() -> None:
    event = Event("quotes.AAPL", {"price": 101.5})

    assert copy.deepcopy(event) == event
    assert pickle.loads(pickle.dumps(event)) == event
    assert pickle.loads(pickle.dumps(event)).headers is NO_HEADERS


def test_no_headers_reads_as_an_empty_map() -> None:
    assert not NO_HEADERS
    assert list(NO_HEADERS) == []
    assert NO_HEADERS.get("trace") is None
    assert repr(NO_HEADERS) == "{}"
    with pytest.raises(KeyError, match="trace"):
        NO_HEADERS["trace"]


@pytest.mark.parametrize(("first", "count", "last"), [(1, 1, 1), (5, 3, 7), (2**63, 2, 2**63 + 1)])
def test_a_loss_knows_its_last_number(first: int, count: int, last: int) -> None:
    assert Loss("quotes", 1, "", first, count, LossReason.DEADLINE, 0).last == last


def test_loss_reasons_are_the_words_of_the_ledger() -> None:
    assert {str(reason) for reason in LossReason} == {
        "evicted", "deadline", "overflow", "stale", "ended", "malformed",
    }  # fmt: skip
