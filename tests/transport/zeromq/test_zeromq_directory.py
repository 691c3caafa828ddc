"""What a subscriber knows of publishers and streams, by hand."""

import pytest

from onehop.transport.mold.wire import encode_header, encode_packet
from onehop.transport.zeromq.directory import (
    FORGET_AFTER_S,
    MAX_PUBLISHERS,
    MAX_SESSIONS,
    MISSED_AFTER_S,
    Directory,
)
from onehop.transport.zeromq.wire import (
    EVERYONE,
    Announcement,
    encode_announcement,
    session_of,
)

NAME = b"0123456789abcdef"
EPOCH = b"abcdEFGH"
ORIGIN = ("abcdEFGH", 0)


def directory(*wanted: bytes, opened_at: float = 100.0) -> Directory:
    return Directory(NAME, wanted or (b"",), opened_at, b"ours")


def announcement(
    *streams: tuple[str, int, int],
    name: bytes = NAME,
    age_s: float = 60.0,
    epoch: bytes = EPOCH,
    clock: bytes = b"theirs",
    opened_at: float = 0.0,
    side: str = "tcp://*:5",
    part: int = 0,
    parts: int = 1,
) -> bytes:
    told = Announcement("me", epoch, clock, opened_at, age_s, side, b"", part, parts, streams)
    return encode_announcement(name, told)


def packet(index: int, number: int = 1) -> bytes:
    return encode_packet(session_of(EPOCH, index), number, [b"x"])


def test_data_of_a_publisher_that_was_not_announced_is_not_taken() -> None:
    known = directory()
    message = b"quotes\0" + packet(0)

    assert known.packet(message) is None
    assert known.receive(message, "host", 101.0) == ()
    assert known.ignored == {"unattached": 1}
    assert known.is_puzzled


def test_an_announcement_becomes_a_heartbeat_for_each_stream_that_is_wanted() -> None:
    known = directory(b"quotes\0", b"tr")
    told = announcement(("quotes", 0, 7), ("other", 1, 9), ("trades", 2, 3), ("quotesX", 3, 1))

    assert known.receive(told, "host", 101.0) == [
        (encode_header(session_of(EPOCH, 0), 7, 0), ORIGIN),
        (encode_header(session_of(EPOCH, 2), 3, 0), ORIGIN),
    ]
    assert [publisher.side for publisher in known.attached] == ["tcp://host:5"]
    assert known.identify(session_of(EPOCH, 0))[0::2] == ("me", "quotes")
    assert known.packet(b"quotes\0" + packet(0, 7)) == (packet(0, 7), ORIGIN)


def test_streams_that_are_announced_were_there_before_and_others_are_new() -> None:
    known = directory()
    known.receive(announcement(("quotes", 0, 7)), "host", 101.0)
    known.receive(b"trades\0" + packet(1, 5), "host", 102.0)

    assert not known.is_new(session_of(EPOCH, 0))
    assert known.is_new(session_of(EPOCH, 1))
    assert known.identify(session_of(EPOCH, 1)).stream == "trades"
    assert known.packet(b"trades\0" + packet(1, 6)) == (packet(1, 6), ORIGIN)


@pytest.mark.parametrize(("age_s", "is_new"), [(4.9, True), (5.1, False)])
def test_a_publisher_younger_than_the_subscriber_is_new(age_s: float, is_new: bool) -> None:
    known = directory(opened_at=100.0)
    known.receive(announcement(("quotes", 0, 7), age_s=age_s), "host", 105.0)

    assert known.is_new(session_of(EPOCH, 0)) is is_new


@pytest.mark.parametrize(("opened_at", "is_new"), [(100.1, True), (99.9, False)])
def test_on_one_machine_it_does_not_matter_how_late_that_is_read(
    opened_at: float, is_new: bool
) -> None:
    known = directory(opened_at=100.0)
    told = announcement(("quotes", 0, 7), age_s=0.0, clock=b"ours", opened_at=opened_at)
    known.receive(told, "host", 107.0)

    assert known.is_new(session_of(EPOCH, 0)) is is_new


def test_one_that_comes_back_tells_how_far_it_is_by_now() -> None:
    known = directory()
    known.receive(announcement(("quotes", 0, 7)), "host", 101.0)
    told = known.receive(announcement(("quotes", 0, 90), ("new", 1, 4)), "host", 160.0)

    assert [header[0] for header in told] == [
        encode_header(session_of(EPOCH, 0), 90, 0),
        encode_header(session_of(EPOCH, 1), 4, 0),
    ]
    assert len(known.attached) == 2
    assert not known.is_new(session_of(EPOCH, 0))
    assert known.is_new(session_of(EPOCH, 1))  # it began while we were away: all of it is wanted


def test_nothing_new_is_taken_until_all_parts_have_come() -> None:
    known = directory()
    known.receive(announcement(("a", 0, 1), part=1, parts=3), "", 101.0)
    known.receive(announcement(("b", 1, 1), part=0, parts=3), "", 101.0)
    known.receive(announcement(("b", 1, 1), part=0, parts=3), "", 101.0)  # twice
    assert known.attached == []
    assert known.receive(b"unknown\0" + packet(7), "", 101.0) == ()
    assert known.ignored == {"unattached": 1}
    known.receive(announcement(("c", 2, 1), part=2, parts=3), "", 101.0)
    assert len(known.attached) == 1
    assert [known.is_new(session_of(EPOCH, index)) for index in (0, 1, 2)] == [False] * 3


def test_parts_of_an_answer_to_an_older_hello_do_not_count() -> None:
    known = directory()
    known.receive(announcement(("a", 0, 1), part=0, parts=2), "", 101.0)
    known.hello()
    known.receive(announcement(("b", 1, 1), part=1, parts=2), "", 102.0)
    assert known.attached == []
    known.receive(announcement(("a", 0, 1), part=0, parts=2), "", 102.0)
    assert len(known.attached) == 1


def test_what_is_told_to_everyone_is_a_heartbeat_and_makes_streams_known() -> None:
    known = directory(b"a\0", b"b\0")
    told = announcement(("a", 0, 9), ("b", 1, 4), ("c", 2, 5), name=EVERYONE)
    assert known.receive(told, "", 101.0) == ()
    assert known.is_puzzled  # who is that?
    known.receive(announcement(("a", 0, 7)), "", 101.0)
    assert [header for header, _ in known.receive(told, "", 102.0)] == [
        encode_header(session_of(EPOCH, 0), 9, 0),
        encode_header(session_of(EPOCH, 1), 4, 0),
    ]
    assert not known.is_new(session_of(EPOCH, 0))
    assert known.is_new(session_of(EPOCH, 1))


def test_only_the_host_of_a_tcp_address_is_left_to_the_subscriber() -> None:
    known = directory()
    known.receive(announcement(side="ipc:///tmp/a*b.side"), "host", 101.0)
    assert known.attached[0].side == "ipc:///tmp/a*b.side"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "malformed"),
        (b"no nul in it", "malformed"),
        (b"quotes\0short", "malformed"),
        (b"other\0" + packet(0), "malformed"),  # the session of quotes under another name
        (b"\xff", "not_for_us"),
        (b"\xffsomebody else 16" + bytes(50), "not_for_us"),
        (b"\xff" + NAME + b"rubbish", "bad_announcement"),
        (b"\xc3\x28\0" + packet(1), "malformed"),
        (b"q\0" + encode_packet(b"strange000", 1, [b"x"]), "unattached"),
    ],
)
def test_rubbish_is_counted_by_reason(message: bytes, reason: str) -> None:
    known = directory()
    known.receive(announcement(("quotes", 0, 1)), "host", 101.0)

    assert known.packet(message) is None
    assert known.receive(message, "host", 101.0) == ()
    assert known.ignored == {reason: 1}


def test_the_publisher_unheard_for_longest_is_forgotten_at_the_bound() -> None:
    known = directory()
    for number in range(MAX_PUBLISHERS):
        known.receive(announcement(("q", 0, 1), epoch=b"%08d" % number), "host", 101.0)
    known.receive(announcement(("q", 0, 1), name=EVERYONE, epoch=b"00000000"), "host", 102.0)
    assert known.forgotten == []
    known.receive(announcement(("q", 0, 1)), "host", 102.0)

    assert known.forgotten == [("00000001", 0)]
    assert known.identify(b"0000000100").source == ""
    assert not known.is_new(b"0000000100")
    assert known.identify(session_of(EPOCH, 0)).source == "me"


def test_publishers_unheard_for_a_minute_are_forgotten_when_another_comes() -> None:
    known = directory()
    known.receive(announcement(("q", 0, 1), epoch=b"dead0000"), "host", 101.0)
    known.receive(announcement(("q", 0, 1), epoch=b"alive000"), "host", 101.0)
    known.receive(announcement(name=EVERYONE, epoch=b"alive000"), "host", 150.0)
    known.receive(announcement(("q", 0, 1)), "host", 101.5 + FORGET_AFTER_S)

    assert known.forgotten == [("dead0000", 0)]


def test_streams_of_the_dead_make_room_and_beyond_the_bound_they_wait() -> None:
    known = directory()
    lives = MAX_SESSIONS // 1024
    for number in range(lives):
        streams = [(f"s{index}", index, 1) for index in range(1024)]
        known.receive(announcement(*streams, epoch=b"%08d" % number), "", 101.0)
    assert known.ignored == {}
    assert known.receive(announcement(("one more", 0, 1)), "", 102.0) == []
    assert known.receive(b"two more\0" + packet(5), "", 102.0) == ()
    assert known.ignored == {"too_many_streams": 2}
    later = 102.0 + MISSED_AFTER_S
    for number in range(1, lives):  # all but the first live
        known.receive(announcement(name=EVERYONE, epoch=b"%08d" % number), "", later)
    told = known.receive(announcement(("one more", 0, 1), name=EVERYONE), "", later)
    assert len(told) == 1
    assert known.forgotten == [("00000000", 0)]
