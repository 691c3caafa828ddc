"""Sharing work, without sockets: who gets what, when it is taken back, and whether it adds up."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.transport.datagrams import Address
from onehop.transport.envelope import ATTEMPT_HEADER, EventEncoder, Whole, decode
from onehop.transport.mold import RequestOptions, RingOptions
from onehop.transport.mold.requests import RequestDesk
from onehop.transport.mold.sender import SenderOptions
from onehop.transport.mold.wire import decode_header, decode_messages
from onehop.transport.zeromq.groups import (
    MAX_FAILURES,
    MAX_GROUPS,
    MAX_MEMBERS,
    SUBSCRIBED_S,
    Groups,
)
from onehop.transport.zeromq.side import Join

TIMEOUT_S = 10.0


def name_of(member: str) -> bytes:
    return member.encode().ljust(16, b"_")


class Shop:
    """A publisher with one group, and what its members have in hand."""

    def __init__(self, ring: RingOptions | None = None, **terms: object) -> None:
        self.now = 0.0
        self.desk: RequestDesk[Address] = RequestDesk(RequestOptions(), 0.0)
        sender = SenderOptions(packet_bytes=32 * 1024, opening_heartbeats=0)
        self.groups = Groups(ring or RingOptions(), self.desk, sender)
        self.terms = Join(name_of("x"), "g", (), "", True, TIMEOUT_S, 64, "live")
        self.terms = msgspec.structs.replace(self.terms, **terms)
        self.group = self.groups.open(self.terms)
        self.in_hand: dict[str, dict[int, object]] = {}
        self.attempts: list[int] = []
        self._encoder = EventEncoder("me")
        self._sent = 0

    def join(self, *members: str, **terms: object) -> None:
        for member in members:
            join = msgspec.structs.replace(self.terms, name=name_of(member), **terms)
            self.groups.join(join, (member, 0), self.now)
            self.in_hand[member] = {}
        self.deliver()

    def publish(self, *values: object, topic: str = "jobs.x", key: str | None = None) -> None:
        for value in values:
            self._sent += 1
            data = self._encoder.encode(topic, value, key, 0, 0, None)
            self.group.offer(topic, key, "jobs", self._sent, data, self.now)
        self.deliver()

    def deliver(self) -> None:
        for packet, (member, *_) in self.group.packets(self.now):
            header = decode_header(packet)
            for number, message in enumerate(decode_messages(packet, header), header.sequence):
                event = decode(message)
                assert isinstance(event, Whole)
                self.attempts.append(int(event.headers[ATTEMPT_HEADER]))
                self.in_hand[str(member)][number] = event.value
        assert self.group.snapshot().is_balanced

    def done(self, member: str, *numbers: int) -> None:
        session = self.group.members[name_of(member)].session.session
        ranges = [(number, number) for number in numbers or self.in_hand[member]]
        self.groups.done(name_of(member), session, ranges, self.now)
        for first, _ in ranges:
            self.in_hand[member].pop(first, None)
        self.deliver()

    def leave(self, member: str, *, is_clean: bool = False) -> None:
        self.groups.leave(name_of(member), self.now, is_clean=is_clean)
        del self.in_hand[member]
        self.deliver()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.group.handle_timeout(self.now)
        self.deliver()

    def values(self, member: str) -> list[object]:
        return list(self.in_hand[member].values())


def test_each_event_goes_to_one_member_and_the_idle_ones_take_turns() -> None:
    shop = Shop()
    shop.join("a", "b")
    for number in range(6):
        shop.publish(number)
        for member in ("a", "b"):
            if shop.in_hand[member]:
                shop.done(member)
    snapshot = shop.group.snapshot()
    assert (snapshot.accepted, snapshot.acknowledged, snapshot.handed_out) == (6, 6, 6)


def test_one_that_does_nothing_keeps_one_event_from_the_others() -> None:
    shop = Shop()
    shop.join("stuck", "quick")
    done: list[object] = []
    shop.publish(*range(100))
    while shop.in_hand["quick"]:
        done += shop.values("quick")
        shop.done("quick")
    assert len(shop.in_hand["stuck"]) == 1
    assert len(done) == 99


def test_a_member_may_have_more_as_it_does_more_and_never_more_than_its_prefetch() -> None:
    shop = Shop()
    shop.join("a", prefetch=5)
    shop.publish(*range(100))
    seen = []
    for _ in range(6):
        seen.append(len(shop.in_hand["a"]))
        shop.done("a")
    assert seen == [1, 2, 4, 5, 5, 5]


def test_what_a_member_had_goes_to_another_when_it_dies_and_before_what_is_new() -> None:
    shop = Shop()
    shop.join("a")
    shop.publish("one", "two")
    shop.leave("a")
    shop.publish("three")
    shop.join("b")
    assert shop.values("b") == ["one"]
    shop.done("b")
    assert shop.values("b") == ["two", "three"]
    assert shop.attempts == [1, 2, 1, 1]
    assert shop.group.snapshot().taken_back == 1


def test_one_that_says_nothing_for_too_long_loses_its_work_and_gets_no_more() -> None:
    shop = Shop()
    shop.join("stuck", "quick")
    shop.publish("one", "two")
    shop.done("quick")
    shop.wait(TIMEOUT_S - 0.1)
    assert shop.group.snapshot().taken_back == 0
    shop.wait(0.1)
    assert len(shop.in_hand["quick"]) == 1
    for number in range(10):
        shop.done("quick")
        shop.publish(number)
    assert shop.group.snapshot().members[name_of("stuck").decode()] == 0


def test_one_that_is_late_is_believed_as_long_as_nobody_else_has_it() -> None:
    shop = Shop()
    shop.join("slow")
    shop.publish("one")
    shop.wait(TIMEOUT_S)
    snapshot = shop.group.snapshot()
    assert (snapshot.waiting, snapshot.outstanding) == (1, 0), "it gets nothing until it speaks"
    shop.done("slow", 1)
    snapshot = shop.group.snapshot()
    assert (snapshot.acknowledged, snapshot.taken_back, shop.groups.late) == (1, 0, 0)
    shop.publish("two")
    assert shop.values("slow") == ["two"]


def test_one_that_is_too_late_is_counted() -> None:
    shop = Shop()
    shop.join("slow")
    shop.publish("one")
    shop.wait(TIMEOUT_S)
    shop.join("other")
    assert shop.values("other") == ["one"]
    shop.done("slow", 1)
    assert shop.groups.late == 1
    shop.done("other")
    assert shop.group.snapshot().acknowledged == 1


def test_of_one_that_works_on_only_the_forgotten_event_is_taken_back() -> None:
    shop = Shop()
    shop.join("a")
    shop.publish(*range(20))
    while shop.in_hand["a"]:  # its window grows
        shop.done("a")
    shop.publish("forgotten", "next", "last")
    _, following, _ = shop.in_hand["a"]
    shop.now += TIMEOUT_S / 2
    shop.done("a", following)
    shop.wait(TIMEOUT_S / 2)
    assert shop.group.snapshot().taken_back == 1
    assert shop.values("a") == ["forgotten", "last", "forgotten"], "nobody else is there"


def test_an_event_that_stops_every_member_is_given_up_in_the_end() -> None:
    shop = Shop()
    shop.publish("poison", "good")
    for number in range(MAX_FAILURES):
        shop.join(f"m{number}")
        assert shop.values(f"m{number}") == ["poison"]
        shop.leave(f"m{number}")
    shop.join("last")
    assert shop.values("last") == ["good"]
    assert shop.group.snapshot().lost == {"failed": 1}


def test_leaving_in_order_is_no_failure_of_the_event() -> None:
    shop = Shop()
    shop.publish("good")
    for number in range(MAX_FAILURES + 1):
        shop.join(f"m{number}")
        shop.leave(f"m{number}", is_clean=True)
    assert shop.group.snapshot().lost == {}


def test_without_acknowledgement_what_a_dead_member_had_is_lost_and_counted() -> None:
    shop = Shop(acknowledges=False)
    shop.join("a")
    shop.publish("one", "two")
    shop.leave("a")
    snapshot = shop.group.snapshot()
    assert (snapshot.lost, snapshot.waiting) == ({"ended": 1}, 1)


def test_more_than_is_kept_gives_way_the_oldest_first() -> None:
    shop = Shop(RingOptions(max_messages=3))
    shop.publish(*range(5))
    assert shop.group.snapshot().lost == {"overflow": 2}
    shop.join("a")
    assert shop.values("a") == [2]


def test_bytes_are_bounded_too() -> None:
    shop = Shop(RingOptions(max_bytes=1000))
    shop.publish(*(b"x" * 400 for _ in range(5)))
    assert shop.group.snapshot().waiting == 2


def test_topics_are_the_groups() -> None:
    shop = Shop(topics=("jobs.",))
    shop.publish("yes", topic="jobs.a")
    shop.publish("no", topic="other.a")
    assert shop.group.snapshot().accepted == 1


@pytest.mark.parametrize(
    "difference",
    [{"topics": ("other",)}, {"order_by": "key"}, {"acknowledges": False}, {"timeout_s": 1.0}],
)
def test_members_must_agree(difference: dict[str, object]) -> None:
    shop = Shop()
    join = msgspec.structs.replace(shop.terms, **difference)
    why = shop.groups.why_not(join)
    assert why is not None
    assert "all members of a group must agree" in why
    assert shop.groups.why_not(msgspec.structs.replace(shop.terms, prefetch=7)) is None


def test_a_member_that_never_subscribes_is_let_go() -> None:
    shop = Shop()
    shop.join("real", "stranger")
    shop.groups.subscribed(name_of("real"))
    shop.groups.subscribed(name_of("nobody"))
    assert shop.group.strangers(SUBSCRIBED_S) == []
    assert shop.group.strangers(SUBSCRIBED_S + 0.1) == [name_of("stranger")]


def test_groups_and_members_are_bounded() -> None:
    shop = Shop()
    for number in range(MAX_MEMBERS):
        assert (
            shop.groups.why_not(msgspec.structs.replace(shop.terms, name=b"%016d" % number)) is None
        )
        shop.join(f"{number:016d}")
    assert "is the most" in str(shop.groups.why_not(shop.terms))
    for number in range(1, MAX_GROUPS):
        shop.groups.open(msgspec.structs.replace(shop.terms, group=f"g{number}"))
    assert "is the most" in str(shop.groups.why_not(msgspec.structs.replace(shop.terms, group="x")))


def test_an_event_larger_than_a_packet_is_one_event() -> None:
    shop = Shop()
    join = msgspec.structs.replace(shop.terms, name=name_of("a"))
    shop.groups.join(join, ("a", 0), 0.0)
    data = EventEncoder("me").encode("t", b"x" * 100_000, None, 0, 0, None)
    shop.group.offer("t", None, "t", 1, data, 0.0)
    member = shop.group.members[name_of("a")]
    assert list(member.outstanding) == [member.session.next_number - 1] == [4]
    shop.groups.done(name_of("a"), member.session.session, [(4, 4)], 0.0)
    assert shop.group.snapshot().acknowledged == 1


@given(st.integers(0, 2**32), st.sampled_from(["", "key"]))
def test_whatever_happens_every_event_is_done_once_or_accounted_for(
    seed: int, order_by: str
) -> None:
    """Members come, work, forget, die, leave and are late; in the end one does all that is left."""
    random = Random(seed)
    shop = Shop(order_by=order_by)
    done: list[object] = []
    for number in range(300):
        step = random.random()
        member = random.choice(list(shop.in_hand) or ["none"])
        if step < 0.4:
            shop.publish(number, key=random.choice(["k", "l", None]))
        elif step < 0.5 and len(shop.in_hand) < 5:
            shop.join(f"m{number}")
        elif step < 0.8 and member != "none" and shop.in_hand[member]:
            some = random.sample(sorted(shop.in_hand[member]), 1)
            done += [shop.in_hand[member][n] for n in some]
            shop.done(member, *some)
        elif step < 0.85 and member != "none":
            shop.leave(member, is_clean=random.random() < 0.5)
        else:
            shop.wait(random.random() * TIMEOUT_S)
    for member in list(shop.in_hand):
        shop.leave(member, is_clean=True)
    shop.join("last")
    while shop.in_hand["last"]:
        done += shop.values("last")
        shop.done("last")
    snapshot = shop.group.snapshot()
    assert (snapshot.waiting, snapshot.outstanding) == (0, 0)
    assert snapshot.accepted == snapshot.acknowledged + sum(snapshot.lost.values())
    assert len(set(done)) >= snapshot.acknowledged
