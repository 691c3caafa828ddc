"""Whom a receiver asks."""

from collections.abc import Hashable

from mold_hearer import Hearer

from onehop.transport.mold.servers import SILENT_AFTER, TRY_AGAIN_EVERY, RequestServers


def asked(servers: RequestServers, attempts: int) -> list[Hashable | None]:
    return [servers.choose(1, attempt) for attempt in range(1, attempts + 1)]


def test_attempts_go_round_the_list() -> None:
    assert asked(RequestServers(lambda: "abc"), 7) == list("abcabca")


def test_a_list_that_grows_is_seen() -> None:
    addresses = ["a"]
    servers = RequestServers(lambda: addresses)
    assert asked(servers, 2) == ["a", "a"]
    addresses.append("b")
    assert asked(servers, 2) == ["a", "b"]


def test_a_server_without_the_number_is_not_asked_for_it() -> None:
    servers = RequestServers(lambda: "ab")
    assert servers.lacks_below("a", 5) == 0
    assert servers.lacks_below("a", 9) == 5
    assert servers.choose(8, 1) == "b"
    assert servers.choose(9, 1) == "a"
    servers.lacks_below("b", 7)
    assert servers.choose(6, 1) is None
    assert servers.oldest == 7


def test_a_silent_server_gets_few_requests_while_another_answers() -> None:
    servers = RequestServers(lambda: ("dead", "alive"))
    turns: list[Hashable | None] = []
    for _ in range(200):
        for attempt in (1, 2, 3, TRY_AGAIN_EVERY):
            turns.append(servers.choose(1, attempt))
            servers.answered("alive")
    # The attempt that tries again falls on an even turn here: the living one's.
    assert turns.count("dead") == SILENT_AFTER


def test_a_silent_server_is_tried_again_and_is_back_when_it_answers() -> None:
    servers = RequestServers(lambda: ("alive", "back"))
    for _ in range(3 * SILENT_AFTER):
        servers.choose(1, 2)
        servers.answered("alive")
    assert servers.choose(1, 2) == "alive"
    assert servers.choose(1, TRY_AGAIN_EVERY) == "back"
    servers.answered("back")
    assert servers.choose(1, 2) == "back"


def test_when_all_are_silent_all_are_asked() -> None:
    servers = RequestServers(lambda: "ab")
    assert set(asked(servers, 6 * SILENT_AFTER)[-6:]) == {"a", "b"}


def test_a_reply_of_another_server_says_nothing_about_the_last_request() -> None:
    hearer = Hearer(servers=("slow", "quick"))
    hearer.hear(1)
    hearer.hear(3)
    hearer.requests()
    hearer.wait(0.0045)  # asked the one, then the other
    hearer.reply(2, server="slow")
    assert hearer.receiver._pacing.rtt_s is None
