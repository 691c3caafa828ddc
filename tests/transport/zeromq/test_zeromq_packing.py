"""How many events share a message: counted by a plain reader of the frames."""

import asyncio
import struct
import time
from collections.abc import Iterator

import pytest
import zmq

from onehop.transport import Publisher, open_publisher

WAIT_S = 10.0


class Reader:
    """Counts the events in each message of the stream `q`."""

    def __init__(self, publisher: Publisher) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.subscribe(b"q\0")
        self._socket.connect(publisher.url.removeprefix("zmq+").partition("?")[0])
        give_up_at = time.monotonic() + WAIT_S
        while not self._socket.poll(20):  # until it is subscribed
            assert time.monotonic() < give_up_at
            publisher.publish("q.x", "anybody?")
        while self._socket.poll(50):
            self._socket.recv()

    def counts(self, events: int) -> list[int]:
        found: list[int] = []
        while sum(found) < events:
            assert self._socket.poll(int(WAIT_S * 1e3)), f"{sum(found)} of {events}"
            (count,) = struct.unpack_from(">H", self._socket.recv(), 2 + 18)
            if count:
                found.append(count)
        return found

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with open_publisher("zmq+tcp://127.0.0.1:0?hwm=1000000", "me", linger_s=0.0) as publisher:
        yield publisher


@pytest.fixture
def reader(publisher: Publisher) -> Iterator[Reader]:
    reader = Reader(publisher)
    yield reader
    reader.close()


def test_events_that_come_one_by_one_go_one_by_one(publisher: Publisher, reader: Reader) -> None:
    for number in range(50):
        publisher.publish("q.x", number)
        time.sleep(0.0002)

    assert reader.counts(50) == [1] * 50


def test_a_few_in_a_row_are_not_kept_waiting(publisher: Publisher, reader: Reader) -> None:
    for number in range(10):
        publisher.publish("q.x", number)

    assert reader.counts(10) == [1] * 10


def test_a_flood_is_packed_and_its_end_is_sent_without_another_event(
    publisher: Publisher, reader: Reader
) -> None:
    for number in range(20_000):
        publisher.publish("q.x", number)
    ended_at = time.monotonic()
    counts = reader.counts(20_000)
    took_s = time.monotonic() - ended_at

    assert sum(counts) == 20_000
    assert len(counts) < 19_000
    assert took_s < 10  # no heartbeat, nor anything else, had to come


def test_what_is_published_in_one_turn_of_a_loop_goes_together(
    publisher: Publisher, reader: Reader
) -> None:
    async def speak() -> None:
        for number in range(100):
            publisher.publish("q.x", number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        publisher.publish("q.x", "the next turn")
        await asyncio.sleep(0.01)

    asyncio.run(speak())
    counts = reader.counts(101)

    assert counts[-1] == 1
    assert len(counts) <= 4  # the service thread may have come in between


def test_a_batch_goes_together(publisher: Publisher, reader: Reader) -> None:
    with publisher.batch():
        for number in range(100):
            publisher.publish("q.x", number)

    assert reader.counts(100) == [100]


def test_events_that_follow_each_other_do_not_each_wake_the_service_thread(
    publisher: Publisher, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes = 0
    wake = publisher._wake

    def count() -> None:
        nonlocal wakes
        wakes += 1
        wake()

    monkeypatch.setattr(publisher, "_wake", count)
    until = time.monotonic() + 0.5
    published = 0
    while time.monotonic() < until:
        publisher.publish("q.x", published)
        published += 1
        time.sleep(0.0005)
    assert published > 100
    assert wakes < published / 5
    assert sum(reader.counts(published)) == published
