"""What is done and what is delivered again of messages that a task takes for another: `create_task(anext(stream))`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from simpleconsumer.types import Message
from tests.aio.fed_streams import AsyncFeed, later
from tests.fetching.feeding import chunk
from zkconsumer.member.delivery import _explicit_position

DEADLINE_S = 20.0


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


def task_of(stream: Any) -> asyncio.Task[Message]:
    return asyncio.create_task(anext(stream))


@pytest.mark.parametrize("has_to_wait", [False, True])
def test_what_another_task_took_counts_for_nobody_until_the_next_is_asked_for(has_to_wait: bool) -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        here = asyncio.current_task()
        for offset in range(4):
            later(queue.push, chunk(offset, offset + 1), after_s=0.02 if has_to_wait else 0.0).join(not has_to_wait)
            get = task_of(feed.stream)
            await asyncio.wait([get])
            assert [_explicit_position(queue, reader) for reader in (here, get, None)] == [offset] * 3
            assert feed.inner._is_being_read()  # a shutdown of another task waits for this one
            assert get.result().offset == offset
        queue.push(chunk(4, 5))
        assert (await anext(feed.stream)).offset == 4
        assert _explicit_position(queue, here) == 5
        assert _explicit_position(queue, get) == 4

    run(main)


@pytest.mark.parametrize("has_to_wait", [False, True])
def test_what_wait_for_returned_counts_for_the_task_that_called_it(has_to_wait: bool) -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        for offset in range(3):
            later(queue.push, chunk(offset, offset + 1), after_s=0.02 if has_to_wait else 0.0)
            assert (await asyncio.wait_for(anext(feed.stream), 5)).offset == offset
            assert _explicit_position(queue, asyncio.current_task()) == offset + 1

    run(main)


def test_what_another_task_waits_for_with_wait_for_does_not_count_for_the_one_that_asked() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()

        async def wait(task: asyncio.Task[Message]) -> None:
            await asyncio.wait_for(task, 5)

        waiting = asyncio.create_task(wait(task_of(feed.stream)))
        later(queue.push, chunk(0, 1))
        await waiting
        assert _explicit_position(queue, asyncio.current_task()) == 0

    run(main)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_second_end_does_not_count_what_another_task_took(is_done: bool) -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 2))
        await anext(feed.stream)
        await task_of(feed.stream)
        feed.inner._settle(is_done)
        assert queue.done_position() == 1
        assert not feed.inner._is_being_read()

    run(main)


def test_what_a_task_never_looked_at_before_it_returned_comes_again_and_once() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 4))
        seen = []

        async def work(count: int) -> None:
            for _ in range(count):
                message = await task_of(feed.stream)
                seen.append(message.offset)
            await asyncio.wait([task_of(feed.stream)])  # and a stop that comes first

        await asyncio.create_task(work(1))
        assert seen == [0]
        await asyncio.create_task(work(1))
        assert seen == [0, 1]
        # A program that makes a new task for each message gets on.
        for _ in range(3):
            await asyncio.create_task(work(0))
        assert queue.done_position() == 3

    run(main)


def test_a_helper_task_that_returns_its_message_gets_it_once() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        feed.queue().push(chunk(0, 4))

        async def one() -> Message:
            return await task_of(feed.stream)

        assert [(await asyncio.create_task(one())).offset for _ in range(4)] == [0, 1, 2, 3]

    run(main)
