"""Requests that begin in a hole: moved on, put off or refused."""

from onehop.transport.mold.holes import LOWEST_FOR_S, MAX_REQUESTERS, Holes
from onehop.transport.mold.store import MemoryStore, Shelf
from onehop.transport.mold.wire import decode_header, encode_header

SESSION = b"SESSION001"


def shelf_with(*numbers: int, lost: range = range(0)) -> Shelf:
    store = MemoryStore(1_000_000)
    for number in numbers:
        store.keep(SESSION, number, [b"message"], 0.0)
    if lost:
        store.lose(SESSION, lost.start, len(lost))
    shelf = store.shelf(SESSION)
    assert shelf is not None
    return shelf


class Requester:
    """Asks, and remembers what became of it."""

    def __init__(self, shelf: Shelf, holes: Holes[str] | None = None, name: str = "me") -> None:
        self.holes: Holes[str] = holes or Holes()
        self._shelf = shelf
        self._name = name

    def ask(self, first: int, count: int, now: float) -> str:
        request = encode_header(SESSION, first, count)
        steered, refusal = self.holes.steer(request, self._shelf, self._name, now)
        if refusal is not None:
            header = decode_header(refusal)
            assert header.message_count == 0
            return f"refused below {header.sequence}"
        header = decode_header(steered)
        return f"{header.sequence}+{header.message_count}"

    def ask_until(self, first: int, count: int, start: float, seconds: float) -> str:
        """Asks as often as a receiver does; returns the last answer."""
        steps = int(seconds / 0.05)
        return [self.ask(first, count, start + step * 0.05) for step in range(steps + 1)][-1]


def test_a_request_for_what_is_here_is_left_alone() -> None:
    assert Requester(shelf_with(1, 2, 3)).ask(2, 2, 0.0) == "2+2"


def test_a_request_that_begins_in_a_hole_is_moved_on_within_its_range() -> None:
    requester = Requester(shelf_with(1, 2, 6, 7))
    assert requester.ask(3, 10, 0.0) == "6+7"
    assert requester.ask(3, 4, 0.0) == "6+1"
    assert requester.ask(3, 3, 0.0) == "3+3"


def test_what_may_still_come_is_never_refused() -> None:
    requester = Requester(shelf_with(1, 9))
    assert requester.ask_until(2, 3, 0.0, 10.0) == "2+3"
    assert requester.holes.refused == 0


def test_what_is_lost_is_refused_once_it_has_been_the_lowest_for_a_while() -> None:
    requester = Requester(shelf_with(1, 9, lost=range(2, 9)))
    assert requester.ask_until(2, 3, 0.0, LOWEST_FOR_S - 0.05) == "2+3"
    assert requester.ask(2, 3, LOWEST_FOR_S + 0.001) == "refused below 9"
    assert requester.holes.refused == 1


def test_the_end_of_what_is_known_ends_a_hole() -> None:
    requester = Requester(shelf_with(1, lost=range(2, 9)))
    assert requester.ask_until(2, 65534, 0.0, 0.3) == "refused below 9"


def test_nothing_is_refused_while_lower_numbers_are_asked_for() -> None:
    requester = Requester(shelf_with(1, 2, 3, 9, lost=range(4, 9)))
    for step in range(20):
        now = step * 0.05
        assert requester.ask(2, 1, now) == "2+1"
        assert requester.ask(4, 3, now) == "4+3"
    assert requester.ask_until(4, 3, 1.0, 0.25) == "4+3"
    assert requester.ask_until(4, 3, 1.3, 0.3) == "refused below 9"


def test_requesters_are_told_apart() -> None:
    shelf = shelf_with(1, 2, 3, 9, lost=range(4, 9))
    mine = Requester(shelf)
    other = Requester(shelf, mine.holes, "other")
    for step in range(10):
        other.ask(2, 1, step * 0.05)
        last = mine.ask(4, 3, step * 0.05)
    assert last == "refused below 9"


def test_a_forgotten_requester_begins_anew() -> None:
    requester = Requester(shelf_with(1, 9, lost=range(2, 9)))
    requester.ask(2, 3, 0.0)
    for number in range(MAX_REQUESTERS - 1):
        Requester(requester._shelf, requester.holes, f"other {number}").ask(2, 3, 0.2)
    assert requester.ask(2, 3, 0.2) == "2+3"
    assert requester.ask(2, 3, 0.3) == "refused below 9"
    for number in range(MAX_REQUESTERS):
        Requester(requester._shelf, requester.holes, f"other {number}").ask(2, 3, 0.2)
    assert requester.ask(2, 3, 0.3) == "2+3"


def test_other_requests_are_for_the_desk() -> None:
    shelf = shelf_with(5, 6, lost=range(1, 5))
    requester = Requester(shelf)
    assert requester.ask(1, 2, 0.0) == "1+2"
    assert requester.ask(7, 2, 0.0) == "7+2"
    assert requester.holes.steer(b"short", shelf, "me", 0.0) == (b"short", None)
