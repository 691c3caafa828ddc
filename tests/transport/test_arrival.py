"""What a task waits for: it goes on within the callback that has the news."""

import asyncio
import contextvars

import pytest

from onehop.transport import Event
from onehop.transport.arrival import Arrival


async def turn() -> None:
    await asyncio.sleep(0)


def test_the_task_goes_on_inside_the_callback() -> None:
    seen: list[str] = []

    async def wait(arrival: Arrival) -> None:
        await arrival
        seen.append("task")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        arrival = Arrival(loop)
        task = asyncio.create_task(wait(arrival))
        await turn()

        def read() -> None:
            arrival.tell()
            seen.append("callback")

        loop.call_soon(read)
        await task

    asyncio.run(main())
    assert seen == ["task", "callback"]


def test_what_has_come_is_what_the_task_gets() -> None:
    async def wait(arrival: Arrival) -> Event | None:
        return await arrival

    async def main() -> None:
        loop = asyncio.get_running_loop()
        arrival, event = Arrival(loop), Event("t", 1)
        task = asyncio.create_task(wait(arrival))
        await turn()
        before = arrival.is_waiting
        loop.call_soon(arrival.tell, event)
        assert await task is event
        assert (before, arrival.is_waiting) == (True, False)

    asyncio.run(main())


def test_one_that_is_told_before_it_is_awaited_does_not_wait() -> None:
    async def main() -> None:
        arrival = Arrival(asyncio.get_running_loop())
        arrival.tell()
        arrival.tell()
        await arrival

    asyncio.run(main())


@pytest.mark.parametrize("message", [None, "enough"])
def test_a_task_that_is_cancelled_while_it_waits_hears_of_it(message: str | None) -> None:
    async def wait(arrival: Arrival) -> None:
        await arrival

    async def main() -> None:
        loop = asyncio.get_running_loop()
        arrival = Arrival(loop)
        task = asyncio.create_task(wait(arrival))
        await turn()
        assert task.cancel(message) if message else task.cancel()
        arrival.tell()  # too late
        with pytest.raises(asyncio.CancelledError, match=message):
            await task
        assert task.cancelled()

    asyncio.run(main())


def test_news_and_a_cancellation_in_one_turn_cancel() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        arrival = Arrival(loop)
        reached: list[int] = []

        async def wait() -> None:
            await arrival
            reached.append(1)
            await turn()
            reached.append(2)

        task = asyncio.create_task(wait())
        await turn()
        loop.call_soon(arrival.tell)
        loop.call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reached == [1]
        assert arrival.cancel() is False

    asyncio.run(main())


def test_it_can_be_given_a_timeout() -> None:
    async def wait(arrival: Arrival) -> None:
        await arrival

    async def main() -> None:
        arrival = Arrival(asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(arrival), 0.001)

    asyncio.run(main())


def test_the_task_keeps_its_context() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

    async def wait(arrival: Arrival) -> str:
        name.set("task")
        await arrival
        return name.get()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        arrival = Arrival(loop)
        task = asyncio.create_task(wait(arrival))
        await turn()
        loop.call_soon(arrival.tell)
        assert await task == "task"
        assert name.get() == "nobody"

    asyncio.run(main())


def test_an_exception_of_the_task_stays_in_the_task() -> None:
    async def wait(arrival: Arrival) -> None:
        await arrival
        raise ValueError("of the application")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        arrival = Arrival(loop)
        task = asyncio.create_task(wait(arrival))
        await turn()
        loop.call_soon(arrival.tell)
        with pytest.raises(ValueError, match="of the application"):
            await task

    asyncio.run(main())
