"""What is counted of each path when the same stream comes over several."""

from mold_hearer import Hearer

from onehop.transport.mold.paths import PathCounts


def test_a_path_counts_what_it_carries() -> None:
    path = PathCounts()
    assert path.packet(1, 4, 1, now=5.0)
    assert path.packet(4, 5, 4, now=6.0)
    assert (path.received, path.first_arrivals, path.missing) == (4, 4, 0)
    assert (path.next_number, path.last_heard_at) == (5, 6.0)


def test_only_what_no_path_had_brought_is_a_first_arrival() -> None:
    path = PathCounts()
    path.packet(1, 6, 4, now=0.0)
    path.packet(6, 8, 9, now=0.0)
    assert (path.received, path.first_arrivals) == (7, 2)


def test_a_path_joined_in_the_middle_has_missed_nothing() -> None:
    path = PathCounts()
    path.packet(100, 103, 100, now=0.0)
    assert path.missing == 0


def test_numbers_a_path_skips_are_missing_on_it() -> None:
    path = PathCounts()
    path.packet(1, 3, 1, now=0.0)
    assert path.packet(6, 8, 3, now=0.0)
    assert path.missing == 3


def test_a_heartbeat_tells_what_a_path_has_missed() -> None:
    path = PathCounts()
    path.packet(1, 3, 1, now=0.0)
    path.packet(6, 6, 3, now=0.0)
    assert (path.received, path.missing) == (2, 3)


def test_a_late_packet_is_no_longer_missing_and_no_news() -> None:
    path = PathCounts()
    path.packet(1, 3, 1, now=0.0)
    path.packet(6, 8, 3, now=0.0)
    assert not path.packet(3, 5, 8, now=0.0)
    assert path.missing == 1


def test_a_packet_packed_anew_is_news_from_where_the_path_was() -> None:
    path = PathCounts()
    path.packet(1, 5, 1, now=0.0)
    assert path.packet(3, 8, 5, now=0.0)
    path.packet(8, 9, 8, now=0.0)
    assert (path.next_number, path.missing) == (9, 0)


def test_the_first_copy_wins_and_the_second_only_counts() -> None:
    hearer = Hearer()
    for number in range(1, 6):
        hearer.hear(number, path=number % 2)
        hearer.hear(number, path=1 - number % 2)
    assert hearer.handed == [1, 2, 3, 4, 5]
    a, b = hearer.receiver.paths
    assert (a.received, b.received) == (5, 5)
    assert (a.first_arrivals, b.first_arrivals) == (2, 3)


def test_a_copy_on_another_path_is_no_duplicate() -> None:
    hearer = Hearer()
    for path in (0, 1, 2):
        hearer.hear(1, 3, path=path)
    assert hearer.receiver.counts.duplicates == 0
    hearer.hear(1, 3, path=1)
    assert hearer.receiver.counts.duplicates == 3


def test_what_one_path_loses_the_other_fills_and_nothing_is_asked_for() -> None:
    hearer = Hearer()
    hearer.hear(1, path=0)
    hearer.hear(1, path=1)
    hearer.hear(3, path=0)
    hearer.hear(2, path=1)
    hearer.hear(3, path=1)
    hearer.wait(1.0)
    assert hearer.handed == [1, 2, 3]
    assert hearer.receiver.counts.requests == 0
    assert hearer.receiver.counts.reordered == 0
    a, b = hearer.receiver.paths
    assert (a.missing, b.missing) == (1, 0)
    assert (a.first_arrivals, b.first_arrivals) == (2, 1)


def test_what_both_paths_lose_is_asked_for() -> None:
    hearer = Hearer()
    for path in (0, 1):
        hearer.hear(1, path=path)
    for path in (0, 1):
        hearer.hear(3, path=path)
    assert hearer.requests() == []
    asked = hearer.wait(0.001)
    assert [request[1:] for request in asked] == [(2, 1, "server")]
    hearer.reply(2)
    assert hearer.handed == [1, 2, 3]
    assert [path.missing for path in hearer.receiver.paths] == [1, 1]
