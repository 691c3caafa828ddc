"""Two groups that carry the same, and faults met by the thread that reads while nobody waits."""

import threading

import pytest
from loopback import new_url, take

from onehop.transport import open_publisher, open_subscriber
from onehop.transport.intake import Intake


def test_the_counts_of_the_paths_add_up() -> None:
    first, second = new_url(), new_url()
    url = f"{first}?b={second.removeprefix('multicast://')}"
    with open_subscriber(url) as events, open_publisher(url, source="both") as publisher:
        for number in range(200):
            publisher.publish("t", number)
        assert [event.value for event in take(events, 200)] == list(range(200))
        events.receive(0.01)  # the last copy may be on its way
        paths = events.paths
        assert [(path.source, path.path) for path in paths] == [("both", 0), ("both", 1)]
        assert [path.received for path in paths] == [200, 200]
        assert sum(path.first_arrivals for path in paths) == 200
        assert [path.missing for path in paths] == [0, 0]
        assert events.ledger.duplicates == 0  # a second path's copy is none


def test_what_the_caretaker_meets_is_raised_to_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_failed = threading.Event()

    def fail(*_: object) -> bool:
        has_failed.set()
        raise RuntimeError("the disk is on fire")

    with open_subscriber(new_url()) as events:
        with monkeypatch.context() as patch:
            patch.setattr(Intake, "pump", fail)
            assert has_failed.wait(5)  # nobody reads: the caretaker does
            events._caretaker.join(5)
        with pytest.raises(RuntimeError, match="the disk is on fire"):
            events.receive(1)
