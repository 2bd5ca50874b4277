"""What asynchronous streams hand over, count as done and raise: without servers, fed by the test."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from simpleconsumer.dialect import KAFKA08
from simpleconsumer.errors import CrcMismatch
from simpleconsumer.types import Message
from tests.aio.fed_streams import AsyncFeed, later
from tests.fetching.feeding import Drained, chunk, with_bad_crc
from zkconsumer import ConcurrentStreamUse, ConsumerTimeout, DecoderFailed, ForeignEventLoop
from zkconsumer.fetching.partition_queue import Chunk

DEADLINE_S = 20.0


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


async def offsets_of(stream: Any, count: int) -> list[int]:
    return [(await anext(stream)).offset for _ in range(count)]


# -- messages that are there, and messages that come ------------------------------------------------------------------


def test_messages_come_in_order_and_the_last_one_is_in_hand_until_the_next_is_asked_for() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 3))
        queue.push(chunk(3, 5))
        assert await offsets_of(feed.stream, 4) == [0, 1, 2, 3]
        assert queue.done_position() == 3
        assert feed.stream.handed is queue.in_hand
        assert (await anext(feed.stream)).value == b"value 4"
        assert queue.done_position() == 4

    run(main)


def test_messages_that_are_there_suspend_nobody() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        feed.queue().push(chunk(0, 5))
        await anext(feed.stream)  # the first one gives way
        turns = []
        asyncio.get_running_loop().call_soon(turns.append, 1)
        assert await offsets_of(feed.stream, 3) == [1, 2, 3]
        assert turns == []

    run(main)


def test_a_task_that_never_waits_gives_way_to_time_outs() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        for first in range(0, 200_000, 20_000):
            queue.push(chunk(first, first + 20_000))
        taken = 0

        async def work() -> None:
            nonlocal taken
            async for _ in feed.stream:
                taken += 1
                time.sleep(0.001)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await work()
        assert 0 < taken < 100
        # What was asked for is done, and nothing else: the cancellation comes between two messages.
        assert (queue.done_position(), feed.stream.handed) == (taken, None)
        assert await offsets_of(feed.stream, 1) == [taken]

    run(main)


def test_a_waiting_task_is_woken_by_another_thread() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        for first in range(0, 30, 3):
            later(queue.push, chunk(first, first + 3), after_s=random.random() * 0.02)
            assert await offsets_of(feed.stream, 3) == [first, first + 1, first + 2]

    run(main)


def test_no_wakeup_is_lost_between_the_look_and_the_wait() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        wanted, seen = 3000, asyncio.Queue[int]()
        asked = threading.Semaphore(0)

        def push() -> None:
            for offset in range(wanted):
                asked.acquire()
                queue.push(chunk(offset, offset + 1))

        threading.Thread(target=push, daemon=True).start()
        for offset in range(wanted):
            asked.release()
            seen.put_nowait((await anext(feed.stream)).offset)
            assert seen.get_nowait() == offset

    run(main)


def test_a_stream_without_a_lease_hands_over_when_the_lease_is_back() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        feed.lease.until = 0.0
        feed.queue().push(chunk(0, 1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.15):
                await anext(feed.stream)
        later(setattr, feed.lease, "until", float("inf"))
        assert await offsets_of(feed.stream, 1) == [0]

    run(main)


# -- ends --------------------------------------------------------------------------------------------------------------


def test_the_end_ends_a_waiting_task_and_all_later_ones() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        later(feed.inner._end)
        assert [message async for message in feed.stream] == []
        assert [message async for message in feed.stream] == []

    run(main)


def test_a_failure_is_raised_every_time() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        later(feed.inner._fail, RuntimeError("the group is gone"))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the group is gone"):
                await anext(feed.stream)

    run(main)


def test_break_leaves_the_message_in_hand_and_the_iteration_goes_on() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 5))
        async for message in feed.stream:
            if message.offset == 2:
                break
        assert queue.done_position() == 2
        assert [await offsets_of(feed.stream, 1), queue.done_position()] == [[3], 3]

    run(main)


def test_a_generator_over_the_stream_that_is_closed_leaves_its_message_in_hand() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 5))

        async def values() -> Any:
            async for message in feed.stream:
                yield message.value

        generator = values()
        assert [await anext(generator), await anext(generator)] == [b"value 0", b"value 1"]
        await generator.aclose()
        assert queue.done_position() == 1

    run(main)


@pytest.mark.parametrize("timeout_ms", [0, 30])
def test_the_time_out_is_raised_and_other_tasks_run_meanwhile(timeout_ms: int) -> None:
    async def main() -> None:
        feed = AsyncFeed(consumer_timeout_ms=timeout_ms)
        queue = feed.queue()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        for _ in range(5):
            with pytest.raises(ConsumerTimeout, match=str(timeout_ms)):
                await anext(feed.stream)
        assert turns >= 5
        queue.push(chunk(0, 1))
        assert await offsets_of(feed.stream, 1) == [0]
        other.cancel()

    run(main)


def test_a_closed_loop_is_reported_when_there_is_something_to_read() -> None:
    feeds: list[AsyncFeed] = []

    async def main() -> None:
        feeds.append(AsyncFeed())

    asyncio.run(main())
    feeds[0].queue().push(chunk(0, 1))
    assert feeds[0].loop_closed.is_set()
    assert not feeds[0].inner._is_being_read()


# -- cancellation ------------------------------------------------------------------------------------------------------


def test_a_cancelled_wait_takes_no_message() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 1))
        await anext(feed.stream)
        waiting = asyncio.create_task(anext(feed.stream))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert queue.done_position() == 1  # asked for the next one
        queue.push(chunk(1, 2))  # wakes the task, which is cancelled before it runs
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (queue.done_position(), queue.in_hand) == (1, None)
        assert await offsets_of(feed.stream, 1) == [1]

    run(main)


def test_wait_for_and_a_message_at_the_same_moment_lose_nothing() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        seen: list[int] = []
        for offset in range(300):
            later(queue.push, chunk(offset, offset + 1), after_s=random.random() * 0.002)
            while len(seen) <= offset:
                try:
                    seen.append((await asyncio.wait_for(anext(feed.stream), random.random() * 0.002)).offset)
                except TimeoutError:
                    assert feed.stream.handed is None
        assert seen == list(range(300))

    run(main)


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_the_message_of_a_task_that_is_cancelled_or_fails_comes_again(how: str) -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 4))
        started = asyncio.Event()

        async def work() -> None:
            async for message in feed.stream:
                message.value = b"changed"
                if message.offset == 1:
                    started.set()
                    if how == "failed":
                        raise ValueError("cannot work on it")
                    await asyncio.sleep(DEADLINE_S)

        task = asyncio.create_task(work())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert queue.done_position() == 1
        again = await anext(feed.stream)
        assert (again.offset, again.value, queue.done_position()) == (1, b"value 1", 1)
        assert await offsets_of(feed.stream, 2) == [2, 3]
        assert task.cancelled() or isinstance(task.exception(), ValueError)

    run(main)


def test_an_exception_that_nobody_looks_at_is_still_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        feed = AsyncFeed()
        feed.queue().push(chunk(0, 2))

        async def work() -> None:
            await anext(feed.stream)
            raise ValueError("cannot work on it")

        task = asyncio.create_task(work())
        await asyncio.wait([task])
        assert await offsets_of(feed.stream, 1) == [0]
        feed.inner._reader = None
        del task

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        run(main)
        import gc

        gc.collect()
    assert "Task exception was never retrieved" in caplog.text


def test_the_message_of_a_task_that_has_returned_is_done_when_the_next_task_asks() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 4))

        async def one() -> Message:
            return await anext(feed.stream)

        assert [(await asyncio.create_task(one())).offset for _ in range(4)] == [0, 1, 2, 3]
        assert queue.done_position() == 3

    run(main)


def test_the_message_of_a_cancelled_task_that_was_committed_does_not_come_again() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 3))
        started = asyncio.Event()

        async def work() -> None:
            await anext(feed.stream)
            queue.committed = 1
            started.set()
            await asyncio.sleep(DEADLINE_S)

        task = asyncio.create_task(work())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert await offsets_of(feed.stream, 1) == [1]

    run(main)


def test_a_revoked_message_of_a_cancelled_task_is_not_counted_as_done() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 3))
        task = asyncio.create_task(offsets_of(feed.stream, 4))  # the last one never comes
        other = feed.queue(1)
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        assert queue.done_position() == 3  # it asked for the fourth

        queue = feed.queue(2)
        queue.push(chunk(0, 3))

        async def work() -> None:
            await anext(feed.stream)
            await asyncio.sleep(DEADLINE_S)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.02)
        drained = Drained()
        queue.end(drained)
        assert drained.positions == []
        task.cancel()
        await asyncio.wait([task])
        other.push(chunk(0, 1))
        assert (await anext(feed.stream)).partition == 1
        assert drained.positions == [0]

    run(main)


# -- who reads ---------------------------------------------------------------------------------------------------------


def test_a_second_task_is_refused_while_one_waits() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        first = asyncio.create_task(anext(feed.stream))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        with pytest.raises(ConcurrentStreamUse, match="another task"):
            await anext(feed.stream)
        queue.push(chunk(0, 1))
        assert (await first).offset == 0

    run(main)


def test_a_second_task_is_refused_while_another_works_on_a_message() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 4))
        assert await offsets_of(feed.stream, 1) == [0]

        async def steal() -> None:
            await anext(feed.stream)

        with pytest.raises(ConcurrentStreamUse):
            await asyncio.create_task(steal())
        assert queue.done_position() == 0
        assert await offsets_of(feed.stream, 1) == [1]

    run(main)


def test_the_task_that_asks_is_the_reader_though_wait_for_runs_another_one() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        feed.queue().push(chunk(0, 2))
        await asyncio.wait_for(anext(feed.stream), 1)
        assert feed.inner._reader is asyncio.current_task()
        assert feed.inner._is_being_read()
        assert (await asyncio.wait_for(asyncio.create_task(anext(feed.stream)), 1)).offset == 1  # type: ignore[arg-type]

    run(main)


def test_another_loop_is_refused_with_a_sentence() -> None:
    async def feed_of() -> AsyncFeed:
        return AsyncFeed()

    with asyncio.Runner() as one, asyncio.Runner() as two:
        feed = one.run(feed_of())
        feed.queue().push(chunk(0, 1))

        async def steal() -> None:
            await anext(feed.stream)

        with pytest.raises(ForeignEventLoop, match="stream thread-0 belongs to another event loop; create a connector"):
            two.run(steal())
        one.run(steal())


def test_another_loop_is_refused_while_the_task_that_reads_works_on_its_message() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        feed.queue().push(chunk(0, 3))
        first = await anext(feed.stream)
        caught: list[BaseException] = []

        async def ask() -> None:
            await anext(feed.stream)

        def steal() -> None:
            try:
                asyncio.run(ask())
            except BaseException as error:  # noqa: BLE001 - looked at below
                caught.append(error)

        thief = threading.Thread(target=steal)
        thief.start()
        thief.join(DEADLINE_S)  # the loop of this task stands still meanwhile, in this very task
        [error] = caught
        assert isinstance(error, ForeignEventLoop)
        assert feed.stream.handed is first
        assert (await anext(feed.stream)).offset == first.offset + 1

    run(main)


def test_a_task_goes_on_when_its_loop_runs_in_another_thread() -> None:
    loop = asyncio.new_event_loop()
    offsets: list[int] = []

    async def reader() -> None:
        feed = AsyncFeed()
        feed.queue().push(chunk(0, 4))
        for _ in range(2):
            offsets.append((await anext(feed.stream)).offset)
        await asyncio.sleep(0.05)
        for _ in range(2):
            offsets.append((await anext(feed.stream)).offset)

    task = loop.create_task(reader())
    loop.run_until_complete(asyncio.sleep(0))
    other = threading.Thread(target=lambda: loop.run_until_complete(task))
    other.start()
    other.join(DEADLINE_S)
    loop.close()
    assert offsets == [0, 1, 2, 3]


# -- errors about one message ------------------------------------------------------------------------------------------


def test_an_unreadable_message_is_raised_once_and_the_next_one_follows() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        data = with_bad_crc(chunk(0, 4).data, 1)
        queue.push(Chunk(data, 4, KAFKA08))
        found: list[object] = []
        while len(found) < 4:
            try:
                async for message in feed.stream:
                    found.append(message.offset)
                    if len(found) == 4:
                        break
            except CrcMismatch as error:
                found.append((error.offset, queue.done_position()))
        assert found == [0, (1, 1), 2, 3]

    run(main)


def test_a_task_that_died_of_an_unreadable_message_leaves_the_next_one_to_the_next_task() -> None:
    async def main() -> None:
        feed = AsyncFeed(value_decoder=int)
        queue = feed.queue()
        queue.push(chunk(0, 2))
        for offset in range(2):
            task = asyncio.create_task(anext(feed.stream))  # type: ignore[arg-type]
            with pytest.raises(DecoderFailed) as raised:
                await task
            assert raised.value.offset == offset

    run(main)


# -- batches -----------------------------------------------------------------------------------------------------------


def test_batches_and_messages_take_turns_and_a_cancelled_batch_comes_again() -> None:
    async def main() -> None:
        feed = AsyncFeed()
        queue = feed.queue()
        queue.push(chunk(0, 20))
        batches = feed.stream.batches(max_messages=5)
        first = await anext(batches)
        assert (first.offset, first.next_offset, queue.done_position()) == (0, 5, 0)
        assert (await anext(feed.stream)).offset == 5

        async def work() -> None:
            async for batch in batches:
                assert batch.offset == 6
                await asyncio.sleep(DEADLINE_S)

        feed.inner._finish()
        task = asyncio.create_task(work())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        assert queue.done_position() == 6
        assert [batch.offset for batch in [await anext(batches), await anext(batches)]] == [6, 11]
        later(feed.inner._end_reading)
        assert [batch.offset async for batch in batches] == [16]

    run(main)


# -- the storm ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_random_cancellations_lose_nothing_and_count_nothing_unprocessed_as_done(seed: int) -> None:
    rng = random.Random(seed)
    total, partitions = 400, 2

    async def main() -> None:
        feed = AsyncFeed(consumer_timeout_ms=rng.choice([-1, 3]))
        queues = [feed.queue(number) for number in range(partitions)]
        processed: list[set[int]] = [set() for _ in queues]
        repeats = 0

        def push() -> None:
            at = [0] * partitions
            while min(at) < total:
                number = rng.randrange(partitions)
                last = min(total, at[number] + rng.randrange(1, 9))
                if at[number] < last:
                    queues[number].push(chunk(at[number], last))
                at[number] = last
                time.sleep(rng.random() * 0.001)

        async def work() -> None:
            nonlocal repeats
            source: Any = feed.stream.batches(max_messages=3) if rng.random() < 0.3 else feed.stream
            async for item in source:
                number = int(item.partition)
                if rng.random() < 0.2:
                    await asyncio.sleep(rng.choice([0, 0.0005]))
                if rng.random() < 0.02:
                    raise ValueError("cannot work on it")
                new = set(range(item.offset, item.next_offset))
                repeats += len(new & processed[number])
                processed[number] |= new

        threading.Thread(target=push, daemon=True).start()
        while min(map(len, processed)) < total:
            task = asyncio.create_task(work())
            for _ in range(rng.randrange(5)):
                await asyncio.sleep(rng.choice([0, 0, 0.001]))
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and not isinstance(task.exception(), ValueError | ConsumerTimeout | None):
                raise AssertionError from task.exception()
            for queue, done in zip(queues, processed, strict=True):
                position = queue.done_position()
                assert done >= set(range(position)), "counts as done and was not processed"
        # A message is processed twice only if the cancellation hit between the work and the question for the next one,
        # which does not happen without an `await` in between.
        assert repeats == 0

    run(main)
