"""`async for` over the same subscriber, on the stock event loop and on uvloop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import uvloop
from loopback import PATIENCE_S, Stranger, is_read, new_url, until, values

from onehop.transport import (
    Closed,
    Event,
    LocalError,
    Loss,
    Subscriber,
    loop_face,
    open_publisher,
    open_subscriber,
)
from onehop.transport.arrival import Arrival
from onehop.transport.memory import Faults, MemoryNetwork

pytestmark = pytest.mark.twin

Run = Callable[[Coroutine[Any, Any, None]], None]
open_quick = partial(open_publisher, linger_s=0.0)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["stock", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's coroutine on one of the loops; what the loop complains of fails the test."""

    def run_it(main: Coroutine[Any, Any, None]) -> None:
        complaints: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=request.param, debug=True) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
            runner.get_loop().slow_callback_duration = PATIENCE_S
            runner.run(asyncio.wait_for(main, PATIENCE_S))
        assert complaints == []

    return run_it


async def take(events: AsyncIterator[Event], count: int) -> list[Event]:
    return [await anext(events) for _ in range(count)]


def test_async_for_takes_events_in_order(run: Run) -> None:
    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            for n in range(200):
                publisher.publish("t", n)
            await publisher.drain()
            received = []
            async for event in events:
                received.append(event)
                if len(received) == 200:
                    break
            assert values(received) == list(range(200))
            assert events.ledger.delivered == 200

    run(main())


def test_an_event_that_comes_later_wakes_the_loop(run: Run) -> None:
    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            for n in range(3):
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.01)
                assert not waiting.done()
                publisher.publish("t", n)
                assert (await waiting).value == n

    run(main())


def test_gaps_are_repaired_while_the_loop_waits(run: Run) -> None:
    async def main() -> None:
        url = new_url()
        lossy = f"{url}?loss=0.1&seed=3"
        async with open_subscriber(lossy, start="first") as events, open_quick(url) as publisher:
            for n in range(300):
                publisher.publish("t", n)
            assert values(await take(events, 300)) == list(range(300))
            assert events.ledger.recovered > 0

    run(main())


def test_losses_come_between_events_and_silence_ends_them(run: Run) -> None:
    async def main() -> None:
        with MemoryNetwork() as network:
            url = network.url
            async with open_subscriber(url, attempts=0) as events, open_quick(url) as publisher:
                publisher.publish("t", 1)
                await take(events, 1)
                network.faults = Faults(loss=1.0)
                publisher.publish("t", 2)
                network.faults = Faults()
                publisher.publish("t", 3)
                items = [item async for item in events.with_losses(timeout_s=0.2)]
        loss, event = items
        assert isinstance(loss, Loss)
        assert isinstance(event, Event)
        assert (loss.first, loss.count, event.value) == (2, 1, 3)

    run(main())


def test_a_consumer_that_never_pauses_leaves_other_tasks_their_turn(run: Run) -> None:
    async def tick(ticks: list[float]) -> None:
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.001)

    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            publisher.publish_many(("t", n) for n in range(300))
            ticks: list[float] = []
            ticking = asyncio.create_task(tick(ticks))
            async for event in events:
                busy_until = time.monotonic() + 0.001
                while time.monotonic() < busy_until:
                    pass
                if event.value == 299:
                    break
            ticking.cancel()
            assert len(ticks) > 20, "0.3 s of work, with a pause every few milliseconds"

    run(main())


def test_a_loop_that_is_blocked_loses_nothing(run: Run) -> None:
    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            publisher.publish("t", 0)
            await take(events, 1)
            for n in range(1, 6001):  # more than the socket's buffer: the caretaker reads
                publisher.publish("t", n, headers={"filler": "x" * 1000})
                if n % 100 == 0:
                    time.sleep(0.005)  # noqa: ASYNC251, the fault this test is about
            received = await take(events, 6000)
            assert values(received) == list(range(1, 6001))
            assert (events.ledger.kernel_drops, events.ledger.recovered) == (0, 0)

    run(main())


def test_what_the_caretaker_read_just_before_the_wait_is_not_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url()

    found: list[Any] = []

    async def main() -> None:
        with open_subscriber(url) as events, open_quick(url) as publisher:
            publisher.publish("t", "before")
            found.append((await anext(events)).value)

            def arrive(loop: asyncio.AbstractEventLoop) -> Arrival:
                """The caretaker comes when the task is about to wait, and nobody can be told."""
                monkeypatch.setattr(loop_face, "Arrival", Arrival)
                publisher.publish("t", "then")
                while not events._has_items():
                    events._attended = False
                    events._read_for_application()
                return Arrival(loop)

            monkeypatch.setattr(loop_face, "Arrival", arrive)
            found.append((await anext(events)).value)

    run(main())
    assert found == ["before", "then"]


def test_what_the_caretaker_read_for_a_blocked_loop_wakes_the_waiting_task(run: Run) -> None:
    async def main() -> None:
        url = new_url(payload="raw")
        async with open_subscriber(url) as events:
            with Stranger(url) as stranger:
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.01)
                stranger.send_packet(b"SESSION001", 1, b"one")
                until(lambda: is_read(url))  # blocks the loop until the caretaker has read
                assert (await asyncio.wait_for(waiting, 0.5)).value == b"one"

    run(main())


# -- ending ----------------------------------------------------------------------------------------


def test_a_cancelled_task_leaves_the_subscriber_usable_and_loses_no_event(run: Run) -> None:
    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            for n in range(20):
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)
                publisher.publish("t", n)
                if n % 2:
                    await asyncio.sleep(0.001)  # it may be done, or just woken
                waiting.cancel()
                try:
                    taken = await waiting
                except asyncio.CancelledError:
                    taken = await anext(events)
                assert taken.value == n
            assert events.ledger.delivered == 20

    run(main())


def test_timeouts_lose_no_event(run: Run) -> None:
    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            received: list[object] = []

            def publish() -> None:
                for n in range(500):
                    publisher.publish("t", n)
                    time.sleep(0)

            sending = threading.Thread(target=publish)
            sending.start()
            while len(received) < 500:
                try:
                    async with asyncio.timeout(0.0003):
                        received.append((await anext(events)).value)
                except TimeoutError:
                    pass
            sending.join()
            assert received == list(range(500))

    run(main())


async def close_in_a_task(events: Subscriber) -> None:
    await asyncio.sleep(0.01)
    events.close()


async def close_in_a_thread(events: Subscriber) -> None:
    await asyncio.sleep(0.01)
    await asyncio.to_thread(events.close)


@pytest.mark.parametrize("close", [close_in_a_task, close_in_a_thread])
@pytest.mark.parametrize("has_heard", [False, True])
def test_close_ends_async_for_at_once(
    run: Run, close: Callable[[Subscriber], Coroutine[Any, Any, None]], has_heard: bool
) -> None:
    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            if has_heard:
                publisher.publish("t", 1)
                await take(events, 1)
            started = time.monotonic()
            closing = asyncio.create_task(close(events))
            assert [event async for event in events] == []
            await closing
            assert time.monotonic() - started < 5

    run(main())


def test_a_loop_lets_go_of_a_closed_subscriber(run: Run) -> None:
    async def main() -> None:
        url = new_url()
        async with open_subscriber(url) as events, open_quick(url) as publisher:
            publisher.publish("t", 1)
            assert values(await take(events, 1)) == [1]
            descriptors = [port.fileno() for port in events._intake.ports]
        loop = asyncio.get_running_loop()
        assert not any(loop.remove_reader(descriptor) for descriptor in descriptors)

    run(main())


def test_a_subscriber_stays_with_its_loop_and_has_one_waiting_task(run: Run) -> None:
    async def wait_twice(events: Subscriber) -> None:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.01)
        with pytest.raises(LocalError, match="another task waits"):
            await anext(events)
        waiting.cancel()

    async def wait_again(events: Subscriber) -> None:
        with pytest.raises(Closed, match="another event loop"):
            await anext(events)

    with open_subscriber(new_url()) as events:
        run(wait_twice(events))
        run(wait_again(events))


def test_a_reply_that_nobody_waits_for_does_not_keep_the_loop_busy(run: Run) -> None:
    async def main() -> None:
        url = new_url(payload="raw")
        async with open_subscriber(url) as events:
            with Stranger(url) as stranger:
                waiting = asyncio.ensure_future(take(events, 3))
                await asyncio.sleep(0)
                stranger.send_packet(b"SESSION001", 1, b"one")
                stranger.send_packet(b"SESSION001", 3, b"three")
                asker = (await asyncio.to_thread(stranger.take_request))[3]
                stranger.send_packet(b"SESSION001", 2, b"two", to=asker)
                assert values(await waiting) == [b"one", b"two", b"three"]
                waiting_on = asyncio.ensure_future(anext(events))
                stranger.send(b"junk", asker)
                junk = partial(until, lambda: events.ledger.ignored.get("short_header") == 1)
                await asyncio.to_thread(junk)
                waiting_on.cancel()

    run(main())
