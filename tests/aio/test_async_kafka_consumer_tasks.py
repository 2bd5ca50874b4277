"""AsyncKafkaConsumer and its tasks: cancelled, waiting for each other, and ended; on a broker in this process."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import ConcurrentConsumerUse, ConsumerClosed
from zkconsumer.aio import AsyncKafkaConsumer, AsyncRebalanceCallbacks
from zkconsumer.testing import EmbeddedCluster, load

PATIENCE_S = 20.0
TOPIC = "hundred"
NAME = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(1, generation="3.9", zookeeper=False, settings=settings) as running:
        running.create_topic(TOPIC, 1)
        load(running, TOPIC, 100)
        yield running


def consumer_of(cluster: EmbeddedCluster, *topics: str, **more: Any) -> AsyncKafkaConsumer:
    settings: dict[str, Any] = {"group_id": f"g-{uuid.uuid4().hex}", "auto_offset_reset": "earliest",
                                "heartbeat_interval_ms": 200, "enable_auto_commit": False}  # fmt: skip
    return AsyncKafkaConsumer(*topics, bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", **settings | more)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE_S):
            await main

    asyncio.run(bounded())


async def poll_until_fetched(consumer: AsyncKafkaConsumer, listener: object | None = None) -> None:
    """Join, and have all records fetched of which none was returned."""
    await consumer.subscribe([TOPIC], listener=listener)
    async with asyncio.timeout(PATIENCE_S):
        while not await consumer.assignment():
            await consumer.poll(100)
        await consumer.seek(NAME, 0)
        while not await consumer.poll(100):
            pass
        await consumer.seek(NAME, 0)
        await asyncio.sleep(0.3)


async def committed(consumer: AsyncKafkaConsumer) -> int | None:
    found = (await consumer.committed([NAME]))[NAME]
    return None if found is None else found.offset


def after_records(consumer: AsyncKafkaConsumer, then: Callable[[], object]) -> None:
    """Have something happen when records have reached the loop, and not yet the task."""
    settle = consumer._calls._settle

    def settled(call: Any, result: object, error: BaseException | None) -> None:
        settle(call, result, error)
        if result and error is None and hasattr(result, "partitions"):
            then()

    consumer._calls._settle = settled  # type: ignore[method-assign]


def test_a_poll_that_is_cancelled_when_its_records_are_there_loses_nothing(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster, max_poll_records=10) as consumer:
            await poll_until_fetched(consumer)
            task = asyncio.create_task(consumer.poll(5000))

            def cancel() -> None:
                if task.cancel():
                    time.sleep(0.1)  # the commit has its chance

            after_records(consumer, cancel)
            committing = asyncio.create_task(consumer.commit())
            with pytest.raises(asyncio.CancelledError):
                await task
            await committing
            assert await committed(consumer) in (None, 0)
            assert next(iter(await consumer.poll(5000))).offset == 0

    run(main())


def test_a_commit_of_another_task_counts_only_what_the_iteration_has_returned(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            await poll_until_fetched(consumer)
            after_records(consumer, lambda: time.sleep(0.1))

            async def commits() -> None:
                while True:
                    await consumer.commit()

            committing = [asyncio.create_task(commits()) for _ in range(2)]
            assert (await anext(consumer)).offset == 0
            for each in committing:
                each.cancel()
            assert await committed(consumer) in (None, 0, 1)

    run(main())


def test_calls_that_wait_when_a_poll_begins_do_not_wait_for_records(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with consumer_of(cluster) as consumer:
            await poll_until_fetched(consumer)
            await consumer.seek_to_end()
            begun = loop.time()
            position = asyncio.create_task(consumer.position(NAME))
            await asyncio.sleep(0)
            poll = asyncio.create_task(consumer.poll(30_000))
            await asyncio.sleep(0)
            await consumer.pause(NAME)
            assert loop.time() < begun + 15
            assert await position == 100
            poll.cancel()

    run(main())


def test_an_iteration_goes_on_while_others_call_without_end(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            await poll_until_fetched(consumer)

            async def calls() -> None:
                while True:
                    await consumer.position(NAME)

            callers = [asyncio.create_task(calls()) for _ in range(3)]
            found = []
            async with asyncio.timeout(PATIENCE_S):
                async for record in consumer:
                    found.append(record.offset)
                    if len(found) == 100:
                        break
            assert found == list(range(100))
            for caller in callers:
                caller.cancel()

    run(main())


class Calls(AsyncRebalanceCallbacks):
    """Calls a function when partitions come, or are given up."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, object]], kind: str) -> None:
        self.call = call
        self.kind = kind
        self.results: list[object] = []

    async def _calls(self, kind: str) -> None:
        if kind == self.kind:
            try:
                self.results.append(await self.call())
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.results.append(error)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await self._calls("assigned")

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._calls("revoked")


def test_a_callback_cannot_iterate(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            callbacks = Calls(consumer.__anext__, "assigned")
            await poll_until_fetched(consumer, callbacks)
            assert [type(each) for each in callbacks.results] == [ConcurrentConsumerUse]

    run(main())


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_a_callback_waits_for_a_task_that_commits(cluster: EmbeddedCluster, kind: str) -> None:
    async def main() -> None:
        wanted, done = asyncio.Event(), asyncio.Event()

        async def work(consumer: AsyncKafkaConsumer) -> None:
            await wanted.wait()
            await consumer.commit({NAME: 42})
            done.set()

        async def drain() -> None:
            wanted.set()
            async with asyncio.timeout(PATIENCE_S / 2):
                await done.wait()

        callbacks = Calls(drain, kind)
        async with consumer_of(cluster) as consumer:
            worker = asyncio.create_task(work(consumer))
            await poll_until_fetched(consumer, callbacks)
        assert callbacks.results == [None]
        await worker

    run(main())


def test_a_loop_that_ends_waits_for_a_close_that_was_cancelled(cluster: EmbeddedCluster) -> None:
    consumer = consumer_of(cluster)

    async def main() -> None:
        await poll_until_fetched(consumer)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()

    asyncio.run(main())
    assert consumer._consumer._poller.has_left


def test_a_second_close_waits_for_the_first(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        consumer = consumer_of(cluster)
        await poll_until_fetched(consumer)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        assert await consumer.close() == {}
        assert consumer._consumer._poller.has_left
        with pytest.raises(ConsumerClosed):
            await consumer.assignment()

    run(main())


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_a_callback_that_hangs_does_not_keep_close(cluster: EmbeddedCluster, kind: str) -> None:
    async def main() -> None:
        consumer = consumer_of(cluster)
        callbacks = Calls(asyncio.Event().wait, kind)
        if kind == "assigned":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await poll_until_fetched(consumer, callbacks)
        else:
            await poll_until_fetched(consumer, callbacks)
        async with asyncio.timeout(PATIENCE_S):
            await consumer.close(1000)
        assert consumer._consumer._poller.has_left

    run(main())


def test_a_callback_that_is_cancelled_before_its_first_step_is_over(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        consumer = consumer_of(cluster)
        loop = asyncio.get_running_loop()

        def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(coroutine, loop=loop, **more)
            if getattr(coroutine, "__name__", "") == "_answer":
                task.cancel()
            return task

        loop.set_task_factory(factory)
        await consumer.subscribe([TOPIC], listener=Calls(asyncio.Event().wait, "assigned"))
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(RuntimeError, match="was cancelled"):
                await consumer.poll(1000 * PATIENCE_S)
            await consumer.close()

    run(main())


def threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Those of consumers that are not of tests before: the test kit keeps idle producers."""
    return [each for each in threading.enumerate()
            if each.name.startswith("zkconsumer-") and not each.name.startswith("zkconsumer-producer")
            and each not in before]  # fmt: skip


def test_consumers_that_were_closed_or_dropped_leave_no_threads(cluster: EmbeddedCluster) -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        for number in range(6):
            consumer = consumer_of(cluster, TOPIC)
            await consumer.poll(50)
            if number % 2:
                await consumer.close()
        del consumer
        async with asyncio.timeout(PATIENCE_S):
            while threads(before):
                gc.collect()
                await asyncio.sleep(0.05)

    run(main())
