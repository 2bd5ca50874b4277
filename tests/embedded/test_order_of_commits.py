"""All commits of one consumer take effect, and are reported, in the order in which they were asked for."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import CommitFailed, ConsumerConfig, KafkaConsumer, OffsetAndMetadata
from zkconsumer.aio import AsyncConsumerConnector, AsyncKafkaConsumer
from zkconsumer.aio.call_thread import off_loop
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
SLOW_S = 0.2
COUNT = 50


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(1, generation="2.8", zookeeper=False, settings=settings) as made:
        yield made


@pytest.fixture
def cluster(running: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield running
    running.faults.clear()


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    """Two partitions with 25 records each."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 2)
    for number in range(2):
        cluster.produce(name, [b"%d" % value for value in range(COUNT // 2)], partition=number)
    return name


def settings_of(cluster: EmbeddedCluster, group: str, **more: Any) -> dict[str, Any]:
    found = {"bootstrap_servers": f"127.0.0.1:{cluster.port(0)}", "group_id": group, "auto_offset_reset": "earliest",
             "heartbeat_interval_ms": 100, "enable_auto_commit": False}  # fmt: skip
    return found | more


def of_brokers(cluster: EmbeddedCluster, group: str, **more: Any) -> KafkaConsumer:
    return KafkaConsumer(**settings_of(cluster, group, **more))


def read_all(consumer: KafkaConsumer, count: int = COUNT) -> None:
    left = [count]

    def come() -> bool:
        left[0] -= len(consumer.poll(100))
        return left[0] <= 0

    wait_until(come, PATIENCE_S, f"{count} records", interval_s=0.0)


def stored(cluster: EmbeddedCluster, group: str, *partitions: TopicPartition) -> list[OffsetAndMetadata | None]:
    with of_brokers(cluster, group) as other:
        found = other.committed(partitions)
    return [found[each] for each in partitions]


class Interceptor:
    """Keeps what it sees of commits."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.seen.append({name.partition: each.offset for name, each in offsets.items()})


# -- one consumer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscribed", [True, False], ids=["subscribed", "assigned"])
def test_a_synchronous_commit_does_not_overtake_asynchronous_ones(
    cluster: EmbeddedCluster, group: str, topic: str, subscribed: bool
) -> None:
    """Callbacks and interceptors hear of the earlier ones before it returns."""
    at = TopicPartition(topic, 0)
    seen: list[Any] = []
    with of_brokers(cluster, group, interceptor_classes=[Interceptor(seen)]) as consumer:
        if subscribed:
            consumer.subscribe([topic])
            read_all(consumer)
        else:
            consumer.assign([at])
            read_all(consumer, COUNT // 2)
        cluster.faults.add(Fault.delay(SLOW_S, api="offset_commit"), times=2)
        for offset in (0, 2, 1):
            consumer.commit_async({at: offset}, lambda offsets, error: seen.append((offsets[at].offset, error)))
        consumer.commit_sync({at: 5})
        assert [each for each in seen if isinstance(each, tuple)] == [(0, None), (2, None), (1, None)]
        assert [each for each in seen if isinstance(each, dict)] == [{0: 0}, {0: 2}, {0: 1}, {0: 5}]
        assert seen.index((1, None)) < seen.index({0: 5})
        assert stored(cluster, group, at) == [OffsetAndMetadata(5, leader_epoch=0)]
        consumer.commit_async({at: 3})
    assert stored(cluster, group, at) == [OffsetAndMetadata(3, leader_epoch=0)]  # of `close` none goes on before it


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_the_end_waits_for_commits_that_nobody_has_waited_for(
    cluster: EmbeddedCluster, group: str, topic: str, end: str
) -> None:
    """Also for those of the last callback."""
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    seen: list[tuple[int, Exception | None]] = []

    def done(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        seen.append((next(iter(offsets.values())).offset, error))

    class Commits:
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.commit_async({other: 4}, done)

    with of_brokers(cluster, group) as consumer:
        consumer.subscribe([topic], listener=Commits())
        read_all(consumer)
        cluster.faults.add(Fault.delay(SLOW_S, api="offset_commit"), times=3)
        consumer.commit_async({at: 3}, done)
        getattr(consumer, end)()
        assert seen == [(3, None), (4, None)]
    assert [each and each.offset for each in stored(cluster, group, at, other)] == [3, 4]


def test_many_asynchronous_commits_are_stored_together_and_each_is_reported(
    cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    seen: list[int] = []
    with of_brokers(cluster, group) as consumer:
        consumer.assign([at, other])
        slow = cluster.faults.add(Fault.delay(SLOW_S, api="offset_commit"), times=None)
        consumer.commit_async({other: 7})
        for offset in range(200, 0, -1):
            consumer.commit_async({at: offset}, lambda offsets, error: seen.append(offsets[at].offset))
        consumer.commit_sync({at: 9})
        assert seen == list(range(200, 0, -1))
        assert cluster.faults.used(slow) < 10, "what waits is sent together"
    assert stored(cluster, group, at, other) == [OffsetAndMetadata(9), OffsetAndMetadata(7)]


def test_each_commit_stores_its_own_text(cluster: EmbeddedCluster, group: str, topic: str) -> None:
    """Also while others of the same offset wait; one that brokers do not take fails alone."""
    at = TopicPartition(topic, 0)
    seen: list[Any] = []

    def done(offsets: object, error: Exception | None) -> None:
        seen.append(None if error is None else type(error))

    with of_brokers(cluster, group) as consumer:
        consumer.assign([at])
        cluster.faults.add(Fault.delay(SLOW_S, api="offset_commit"))
        consumer.commit_async({at: OffsetAndMetadata(5, "first")}, done)
        consumer.commit_async({at: OffsetAndMetadata(5, "second")}, done)
        consumer.commit_async({at: OffsetAndMetadata(5, "x" * 5000)}, done)
        consumer.close()
    assert seen == [None, None, CommitFailed]
    assert stored(cluster, group, at) == [OffsetAndMetadata(5, "second")]


def test_a_commit_that_fails_does_not_let_a_later_one_pass_and_says_so_first(
    cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    at = TopicPartition(topic, 0)
    seen: list[Any] = []
    with of_brokers(cluster, group) as consumer:
        consumer.assign([at])
        read_all(consumer, COUNT // 2)
        cluster.faults.add(Fault.error(28, api="offset_commit"))  # INVALID_COMMIT_OFFSET_SIZE
        consumer.commit_async({at: 3}, lambda offsets, error: seen.append(type(error)))
        consumer.commit_sync({at: 5})
        assert seen == [CommitFailed]
        cluster.faults.add(Fault.delay(SLOW_S, api="offset_commit"))
        cluster.faults.add(Fault.error(16, api="offset_commit"), times=2)  # NOT_COORDINATOR: it is tried again
        consumer.commit_async({at: 1}, lambda offsets, error: seen.append(error))
        consumer.commit_sync({at: 4})
        assert seen == [CommitFailed, None]
    assert stored(cluster, group, at) == [OffsetAndMetadata(4, leader_epoch=0)]


def test_a_callback_may_commit_and_one_that_raises_costs_no_other_its_call(
    cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    at = TopicPartition(topic, 0)
    seen: list[int] = []
    with of_brokers(cluster, group) as consumer:
        consumer.assign([at])

        def raises(offsets: object, error: Exception | None) -> None:
            raise LookupError("mine")

        def commits(offsets: object, error: Exception | None) -> None:
            seen.append(2)
            consumer.commit_sync({at: 9})

        consumer.commit_async({at: 1}, raises)
        consumer.commit_async({at: 2}, commits)
        consumer.commit_async({at: 3}, lambda offsets, error: seen.append(3))
        with pytest.raises(LookupError, match="mine"):
            consumer.commit_sync({at: 4})
        consumer.commit_sync({at: 8})
        assert seen == [2, 3]
    assert stored(cluster, group, at) == [OffsetAndMetadata(9)], "the callback's own commit was asked for last"


def test_interceptors_see_auto_commits_those_of_a_rebalance_and_that_of_the_end(
    cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    seen: list[Any] = []
    more: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 50}
    consumer = of_brokers(cluster, group, interceptor_classes=[Interceptor(seen)], **more)
    consumer.subscribe([topic])
    read_all(consumer)
    wait_until(lambda: (consumer.poll(10), {0: 25, 1: 25} in seen)[1], PATIENCE_S, "an auto-commit", state=lambda: seen)
    assert seen[0] in ({0: 0}, {1: 0}, {0: 0, 1: 0}), "where it has started"
    consumer.close()

    del seen[:]
    consumer = of_brokers(cluster, group, interceptor_classes=[Interceptor(seen)], **more | {
        "auto_commit_interval_ms": 1_000_000})  # fmt: skip
    consumer.subscribe([topic])
    wait_until(lambda: (consumer.poll(10), consumer.assignment())[1], PATIENCE_S, "an assignment")
    cluster.produce(topic, [b"more"], partition=0)
    read_all(consumer, 1)
    assert not seen
    consumer.poll(0)
    consumer.enforce_rebalance()
    wait_until(lambda: (consumer.poll(10), seen)[1], PATIENCE_S, "the commit of a rebalance")
    assert seen[0][0] == 26
    wait_until(lambda: (consumer.poll(10), consumer.assignment())[1], PATIENCE_S, "an assignment")
    cluster.produce(topic, [b"more"], partition=0)
    del seen[:]
    read_all(consumer, 1)
    consumer.close()
    assert seen[-1] == {0: 27, 1: 25}, "the commit of close"


# -- rebalances --------------------------------------------------------------------------------------------------------


class Work:
    """A consumer of a group that is polled by a thread of its own, and commits without waiting after each poll.

    Args:
        values: What all members of the group have read.
        is_sync: Whether it commits once more, and waits, when partitions are revoked, as docs/USAGE.md shows it.
    """

    def __init__(
        self, consumer: KafkaConsumer, topic: str, values: list[tuple[int | str, int]], *, is_sync: bool
    ) -> None:
        self.consumer, self.values, self.is_sync = consumer, values, is_sync
        self.held: frozenset[TopicPartition] = frozenset()
        consumer.subscribe([topic], listener=self)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.held |= frozenset(partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self.is_sync:
            self.consumer.commit_sync()
        self.held -= frozenset(partitions)

    def _run(self) -> None:
        while not self._is_over.is_set():
            records = self.consumer.poll(20)
            self.values.extend((record.partition, record.offset) for record in records)
            self.consumer.commit_async()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        self.consumer.close()


@pytest.mark.parametrize("is_sync", [True, False], ids=["sync when revoked", "async alone"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_move_behind_all_commits_that_were_asked_for(
    cluster: EmbeddedCluster, group: str, topic: str, strategy: str, is_sync: bool
) -> None:
    values: list[tuple[int | str, int]] = []
    members: list[Work] = []
    cluster.faults.add(Fault.delay(0.03, api="offset_commit"), times=None)

    def join() -> None:
        consumer = of_brokers(cluster, group, max_poll_records=2, partition_assignment_strategy=strategy)
        members.append(Work(consumer, topic, values, is_sync=is_sync))
        wait_until(lambda: sum(len(each.held) for each in members) == 2 and members[-1].held, PATIENCE_S, "a share",
                   state=lambda: [each.held for each in members])  # fmt: skip

    join()
    try:
        for number in (1, 2):
            for partition in range(2):
                cluster.produce(topic, [b"%d" % value for value in range(100)], partition=partition)
            join()
            wait_until(lambda: len(set(values)) == COUNT + number * 200, PATIENCE_S, "all records")  # noqa: B023
            members.pop(0).stop()
            wait_until(lambda: len(members[0].held) == 2, PATIENCE_S, "all partitions")
    finally:
        for each in members:
            each.stop()
    assert len(values) == len(set(values)), "nothing is repeated"


# -- asyncio -----------------------------------------------------------------------------------------------------------


def test_commits_of_the_tasks_of_a_loop_take_effect_in_the_order_of_the_calls(
    cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    at = TopicPartition(topic, 0)

    async def polled() -> list[int]:
        seen: list[int] = []
        async with AsyncKafkaConsumer(**settings_of(cluster, group)) as consumer:
            await consumer.assign([at])
            await consumer.commit_async({at: 50}, lambda offsets, error: seen.append(offsets[at].offset))
            async with asyncio.TaskGroup() as tasks:
                for offset in range(40, 0, -1):
                    tasks.create_task(consumer.commit({at: offset}))
            seen.append((await consumer.committed([at]))[at].offset)  # type: ignore[union-attr]
        return seen

    assert asyncio.run(polled()) == [50, 1]


def test_commits_of_a_callback_do_not_overtake_those_that_other_tasks_have_asked_for(
    cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    at = TopicPartition(topic, 0)

    async def run() -> int:
        tasks: list[asyncio.Task[None]] = []

        class Callbacks:
            async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
                await consumer.commit({at: 9})

        async with AsyncKafkaConsumer(**settings_of(cluster, group)) as consumer:
            start = consumer._calls._start

            def started(*arguments: Any) -> None:
                """In the last moment before the callback another task asks for a commit."""
                if not tasks:
                    tasks.append(asyncio.create_task(consumer.commit({at: 3})))
                    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, start, *arguments)
                else:
                    start(*arguments)

            consumer._calls._start = started  # type: ignore[method-assign]
            await consumer.subscribe([topic], listener=Callbacks())
            while not tasks:
                await consumer.poll(100)
            await asyncio.gather(*tasks)
            found = (await consumer.committed([at]))[at]
        assert found is not None
        return found.offset

    assert asyncio.run(run()) == 9


def test_commits_of_streams_by_several_tasks_take_effect_in_the_order_of_the_calls(
    cluster: EmbeddedCluster, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever thread of those that wait for them comes first."""
    at, waits = TopicPartition(topic, 0), list[Callable[[], None]]()
    config = ConsumerConfig(
        bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", group_id=group, auto_offset_reset="smallest",
        auto_commit_enable=False, heartbeat_interval_ms=100,
    )  # fmt: skip

    async def backwards(wait: Callable[[], None]) -> None:
        waits.append(wait)
        await asyncio.sleep(0)  # until all of them are here
        while waits[-1] is not wait:
            await asyncio.sleep(0)
        waits.pop()
        await off_loop(wait)

    async def run() -> None:
        async with AsyncConsumerConnector(config) as connector:
            await connector.create_message_streams({topic: 1})
            with monkeypatch.context() as patched:
                patched.setattr("zkconsumer.aio.connector.off_loop", backwards)
                await asyncio.gather(*(connector.commit_offsets({at: offset}) for offset in (9, 8, 7, 6)))  # type: ignore[arg-type]

    asyncio.run(run())
    assert [each and each.offset for each in stored(cluster, group, at)] == [6]
