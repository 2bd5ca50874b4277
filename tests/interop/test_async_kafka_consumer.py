"""AsyncKafkaConsumer in real groups: polls, commits, callbacks, cancelled tasks, and the end of a loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
from polling import PATIENCE_S, VERSIONS, consumer_of, offsets, settings_of, stored

from simpleconsumer.types import TopicPartition
from zkconsumer import ConcurrentConsumerUse, ConsumerClosed, ConsumerRecord, ForeignEventLoop, NotSubscribed
from zkconsumer.aio import AsyncKafkaConsumer, AsyncRebalanceCallbacks
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def hundred(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of one partition with a hundred records."""
    name = fresh_topic()
    cluster.create_topic(name, 1)
    load(cluster, name, 100)
    return name


def run(main: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE_S):
            await main

    asyncio.run(bounded())


def consumer_for_tasks(cluster: KafkaCluster, group: str | None, *topics: str, **more: Any) -> AsyncKafkaConsumer:
    return AsyncKafkaConsumer(*topics, **settings_of(cluster, group, **more))


async def poll_until(consumer: AsyncKafkaConsumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    found: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found.extend(await consumer.poll(200))
    return found


def test_records_come_once_and_in_order_and_are_committed_at_the_end(
    cluster: KafkaCluster, hundred: str, fresh_group: str
) -> None:
    name = TopicPartition(hundred, 0)

    async def main() -> None:
        async with consumer_for_tasks(cluster, fresh_group, hundred, max_poll_records=7) as consumer:
            assert offsets(await poll_until(consumer, 100)) == list(range(100))
            assert await consumer.assignment() == {name}
            assert await consumer.position(name) == 100
            assert (await consumer.end_offsets([name]), await consumer.beginning_offsets([name])) == (
                {name: 100}, {name: 0},
            )  # fmt: skip

    run(main())
    assert stored(cluster, fresh_group, name) == {name: 100}


def test_a_commit_in_an_iteration_counts_the_records_that_were_returned(
    cluster: KafkaCluster, hundred: str, fresh_group: str
) -> None:
    name = TopicPartition(hundred, 0)

    async def main() -> None:
        consumer = consumer_for_tasks(cluster, fresh_group, hundred, enable_auto_commit=False)
        found = []
        async for record in consumer:
            found.append(record.offset)
            if len(found) == 42:
                await consumer.commit()
            if len(found) == 60:
                await consumer.close()
        assert found == list(range(60))  # the end of the consumer ends the iteration
        with pytest.raises(ConsumerClosed):
            await consumer.poll()

    run(main())
    assert stored(cluster, fresh_group, name) == {name: 42}


def test_cancelled_polls_lose_and_repeat_nothing(cluster: KafkaCluster, hundred: str, fresh_group: str) -> None:
    async def main() -> None:
        drawn = random.Random(19)
        found: list[ConsumerRecord[Any, Any]] = []
        cancelled = 0
        async with consumer_for_tasks(cluster, fresh_group, hundred, max_poll_records=3) as consumer:
            await poll_until_assigned(consumer)
            await consumer.seek_to_beginning()
            while len(found) < 100:
                task = asyncio.create_task(consumer.poll(500))
                await asyncio.sleep(drawn.choice([0.0, 0.0002, 0.001, 0.005]))  # cancelled at some step of the poll
                if task.cancel():
                    cancelled += 1
                try:
                    found.extend(await task)
                except asyncio.CancelledError:
                    if cancelled % 3 == 0:
                        found.extend(await consumer.poll(200))
        assert offsets(found) == list(range(100))
        assert cancelled

    run(main())


async def poll_until_assigned(consumer: AsyncKafkaConsumer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await consumer.assignment():
            await consumer.poll(100)


def test_other_tasks_are_not_kept_waiting_by_a_poll(cluster: KafkaCluster, hundred: str, fresh_group: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with consumer_for_tasks(cluster, fresh_group, hundred) as consumer:
            await poll_until(consumer, 100)
            waiting = asyncio.create_task(consumer.poll(60_000), name="the poll")
            await asyncio.sleep(0)
            begun = loop.time()
            await consumer.commit()
            await consumer.pause(TopicPartition(hundred, 0))
            assert await consumer.paused()
            await consumer.resume(TopicPartition(hundred, 0))
            assert not waiting.done()
            assert loop.time() < begun + 30  # the poll waits for a minute
            with pytest.raises(ConcurrentConsumerUse, match="task 'the poll'"):
                await consumer.poll()
            load(cluster, hundred, 1, first=100)
            assert offsets(await waiting) == [100]

    run(main())


class CommitsInCallbacks(AsyncRebalanceCallbacks):
    def __init__(self) -> None:
        self.consumer: AsyncKafkaConsumer | None = None
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        assert self.consumer is not None
        for name in partitions:
            await self.consumer.seek(name, 90)
        self.calls.append(("assigned", frozenset(partitions)))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        assert self.consumer is not None
        await asyncio.sleep(0.01)
        await self.consumer.commit()
        self.calls.append(("revoked", frozenset(partitions)))


def test_callbacks_await_the_calls_of_their_consumer(cluster: KafkaCluster, hundred: str, fresh_group: str) -> None:
    name = TopicPartition(hundred, 0)
    callbacks = CommitsInCallbacks()

    async def main() -> None:
        async with consumer_for_tasks(cluster, fresh_group, enable_auto_commit=False) as consumer:
            callbacks.consumer = consumer
            await consumer.subscribe([hundred], listener=callbacks)
            assert offsets(await poll_until(consumer, 10)) == list(range(90, 100))

    run(main())
    assert callbacks.calls == [("assigned", frozenset({name})), ("revoked", frozenset({name}))]
    assert stored(cluster, fresh_group, name) == {name: 100}


def test_the_callback_of_a_commit_runs_on_the_loop(cluster: KafkaCluster, hundred: str, fresh_group: str) -> None:
    async def main() -> None:
        done = asyncio.Event()
        async with consumer_for_tasks(cluster, fresh_group, hundred, enable_auto_commit=False) as consumer:
            await poll_until(consumer, 100)

            def committed(offsets: Any, error: Exception | None) -> None:
                assert error is None
                asyncio.get_running_loop().call_soon(done.set)

            await consumer.commit_async(callback=committed)
            async with asyncio.timeout(PATIENCE_S):
                while not done.is_set():
                    await consumer.poll(100)

    run(main())


@pytest.mark.parametrize("end", ["return", "cancelled"])
def test_a_loop_that_ends_takes_its_member_out_of_the_group(
    cluster: KafkaCluster, hundred: str, fresh_group: str, end: str
) -> None:
    async def main() -> None:
        consumer = consumer_for_tasks(cluster, fresh_group, hundred)
        await poll_until(consumer, 100)
        if end == "cancelled":
            asyncio.get_running_loop().call_later(0.1, asyncio.current_task().cancel)  # type: ignore[union-attr]
            await consumer.poll(60_000)

    if end == "cancelled":
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(main())
    else:
        asyncio.run(main())
    name = TopicPartition(hundred, 0)
    found: list[ConsumerRecord[Any, Any]] = []
    with consumer_of(cluster, fresh_group, hundred) as other:
        # The session would last for 30 s and more.
        def has_partition() -> bool:
            found.extend(other.poll(100))
            return name in other.assignment()

        wait_until(has_partition, 20.0, "the partition")
        position = other.position(name)
    if end == "cancelled":
        assert (found, position) == ([], 100)  # the second poll had begun: what the first had returned was done
    else:
        assert found or position < 100  # what was in hand comes again


def test_one_consumer_belongs_to_one_loop(cluster: KafkaCluster, hundred: str, fresh_group: str) -> None:
    consumer = consumer_for_tasks(cluster, fresh_group)

    async def other() -> None:
        with pytest.raises(ForeignEventLoop):
            await consumer.assignment()

    async def main() -> None:
        with pytest.raises(NotSubscribed):
            await consumer.poll(100)
        await asyncio.to_thread(lambda: asyncio.run(other()))
        await consumer.close()
        assert await consumer.close() == {}

    run(main())
