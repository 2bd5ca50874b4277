"""Rebalance callbacks run inside of `poll`, `close` and `unsubscribe` alone; every other call leaves them waiting."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from tests.interop.polling import Polling, Seen
from zkconsumer import KafkaConsumer
from zkconsumer.aio import AsyncKafkaConsumer
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(1, generation="2.8", zookeeper=False, settings=settings) as made:
        yield made


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    """Two partitions with 25 records each."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 2)
    for number in range(2):
        cluster.produce(name, [b"%d" % value for value in range(25)], partition=number)
    return name


def settings_of(cluster: EmbeddedCluster, group: str, **more: Any) -> dict[str, Any]:
    found = {"bootstrap_servers": f"127.0.0.1:{cluster.port(0)}", "group_id": group, "auto_offset_reset": "earliest",
             "heartbeat_interval_ms": 100, "enable_auto_commit": False, "max_poll_records": 10}  # fmt: skip
    return found | more


class Commits(Seen):
    """Commits what is given up, as docs/USAGE.md shows it."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        super().__init__()
        self._consumer = consumer

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        super().on_partitions_revoked(partitions)
        self._consumer.commit_sync()


def has_waiting_callback(consumer: KafkaConsumer) -> bool:
    return not consumer._poller._joined.listening._calls.empty()


CALLS: dict[str, Callable[[KafkaConsumer, TopicPartition, TopicPartition], object]] = {
    "position": lambda consumer, mine, other: consumer.position(mine),
    "position after a seek": lambda consumer, mine, other: (consumer.seek_to_end(other), consumer.position(other))[1],
    "position after a seek back": lambda consumer, mine, other: (
        consumer.seek_to_beginning(other), consumer.position(other))[1],
    "seek": lambda consumer, mine, other: consumer.seek(other, 3),
    "pause": lambda consumer, mine, other: consumer.pause(other),
    "resume": lambda consumer, mine, other: consumer.resume(other),
    "paused": lambda consumer, mine, other: consumer.paused(),
    "commit_async": lambda consumer, mine, other: consumer.commit_async({mine: 0}),
    "commit_sync": lambda consumer, mine, other: consumer.commit_sync({mine: 0}),
    "committed": lambda consumer, mine, other: consumer.committed([mine, other]),
    "beginning_offsets": lambda consumer, mine, other: consumer.beginning_offsets([mine]),
    "end_offsets": lambda consumer, mine, other: consumer.end_offsets([other]),
    "offsets_for_times": lambda consumer, mine, other: consumer.offsets_for_times({mine: 0}),
    "partitions_for_topic": lambda consumer, mine, other: consumer.partitions_for_topic(mine.topic),
    "list_topics": lambda consumer, mine, other: consumer.list_topics(),
    "group_metadata": lambda consumer, mine, other: consumer.group_metadata(),
    "current_lag": lambda consumer, mine, other: consumer.current_lag(mine),
    "metrics": lambda consumer, mine, other: consumer.metrics(),
    "assignment": lambda consumer, mine, other: consumer.assignment(),
    "enforce_rebalance": lambda consumer, mine, other: consumer.enforce_rebalance(),
    "subscribe": lambda consumer, mine, other: consumer.subscribe([mine.topic, "another"],
                                                                  listener=consumer._poller._events.callbacks),
}  # fmt: skip


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_partition_that_moves_away_is_given_up_by_the_next_poll_and_by_no_other_call(
    cluster: EmbeddedCluster, group: str, topic: str, strategy: str
) -> None:
    """Records are in hand meanwhile: a callback would commit them, and they are not done."""
    settings = settings_of(cluster, group, partition_assignment_strategy=strategy)
    with KafkaConsumer(**settings) as consumer, KafkaConsumer(topic, **settings) as second:
        seen = Commits(consumer)
        consumer.subscribe([topic], listener=seen)
        records = wait_until(lambda: consumer.poll(100), PATIENCE_S, "records")
        [mine] = records.partitions()
        other = TopicPartition(topic, 1 - int(mine.partition))
        polling = Polling(second)
        try:
            wait_until(lambda: has_waiting_callback(consumer), PATIENCE_S, "a partition that moves away")
            before = list(seen.calls)
            for name, call in CALLS.items():
                call(consumer, mine, other)
                assert seen.calls == before, name
                assert consumer.assignment() == {mine, other}, name
            with KafkaConsumer(**settings) as probe:
                found = probe.committed([mine])[mine]
            assert found is not None
            assert found.offset == 0, "the application has committed that itself"
            wait_until(lambda: (consumer.poll(10), seen.of("revoked"))[1], PATIENCE_S, "on_partitions_revoked")
        finally:
            polling.stop()


def test_listeners_hear_nothing_of_partitions_that_are_assigned_by_hand_later(
    cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    seen = Seen()
    with KafkaConsumer(**settings_of(cluster, group)) as consumer:
        consumer.subscribe([topic], listener=seen)
        wait_until(lambda: consumer.poll(100), PATIENCE_S, "records")
        consumer.unsubscribe()
        assert len(seen.calls) == 2
        consumer.assign([TopicPartition(topic, 0)])
        wait_until(lambda: consumer.poll(100), PATIENCE_S, "records")
        consumer.assign([TopicPartition(topic, 1)])
        wait_until(lambda: consumer.poll(100), PATIENCE_S, "records")
    assert len(seen.calls) == 2


@pytest.mark.parametrize("has_group", [True, False])
def test_the_position_of_a_partition_that_is_assigned_by_hand_needs_no_poll(
    cluster: EmbeddedCluster, group: str, topic: str, has_group: bool
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    settings = settings_of(cluster, group)
    with KafkaConsumer(**settings if has_group else {**settings, "group_id": None}) as consumer:
        consumer.assign([first, second])
        assert consumer.position(first, timeout_ms=PATIENCE_S * 1000) == 0
        if has_group:
            consumer.commit_sync({second: 7})
            consumer.assign([first])
            consumer.assign([first, second])
            assert consumer.position(second, timeout_ms=PATIENCE_S * 1000) == 7


def test_tasks_that_do_not_poll_run_no_callbacks(cluster: EmbeddedCluster, group: str, topic: str) -> None:
    calls: list[Collection[TopicPartition]] = []

    class Callbacks:
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            calls.append(partitions)

    async def run() -> None:
        settings = settings_of(cluster, group)
        async with AsyncKafkaConsumer(**settings) as consumer, AsyncKafkaConsumer(topic, **settings) as second:
            await consumer.subscribe([topic], listener=Callbacks())
            while not (records := await consumer.poll(100)):
                pass
            [mine] = records.partitions()
            other = TopicPartition(topic, 1 - int(mine.partition))
            polling = asyncio.create_task(second.poll(PATIENCE_S * 1000))
            while not has_waiting_callback(consumer._consumer):
                await asyncio.sleep(0.01)
            await consumer.seek_to_end(other)
            await consumer.position(other)
            await consumer.commit({mine: 0})
            assert not calls
            while not calls:
                await consumer.poll(10)
            polling.cancel()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
