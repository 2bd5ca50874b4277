"""KafkaConsumer on real brokers: partitions that move between consumers, in order, by a crash, and while stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from itertools import groupby
from typing import Any

import pytest
from polling import PATIENCE_S, VERSIONS, Polling, Seen, consumer_of, offsets, poll_until, stored, threads_of

from simpleconsumer.types import TopicPartition
from zkconsumer import (
    CommitFailed,
    ConsumerClosed,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerRecord,
    KafkaConsumer,
    RebalanceCallbacks,
)
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import SteadyLoad, load
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def of_brokers(cluster: KafkaCluster) -> KafkaCluster:
    if cluster.version == "0.8.2.2":
        pytest.skip("these groups are in ZooKeeper")
    return cluster


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


class Committing(Seen):
    """Commits what is given up, behind the commits that nobody has waited for."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        super().__init__()
        self._consumer = consumer

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.commit_sync()
        super().on_partitions_revoked(partitions)


class Group:
    """Consumers of one topic, each polled by a thread of its own."""

    def __init__(self, cluster: KafkaCluster, topic: str, count: int, name: str, stack: ExitStack, **more: Any) -> None:
        self.cluster, self.topic, self.name, self.more = cluster, topic, name, more
        self.partitions = frozenset(TopicPartition(topic, number) for number in range(count))
        self.polling: list[Polling] = []
        self.seen: list[Seen] = []
        self.members: list[int] = []
        stack.callback(self.end)

    def add(self, *, commits: bool = False) -> int:
        """Add a member; one that `commits` does so as docs/USAGE.md shows it."""
        consumer = consumer_of(self.cluster, self.name, **self.more)
        seen = Committing(consumer) if commits else Seen()
        consumer.subscribe([self.topic], listener=seen)
        self.seen.append(seen)
        self.polling.append(Polling(consumer, consumer.commit_async) if commits else Polling(consumer))
        self.members.append(len(self.seen) - 1)
        return self.members[-1]

    def remove(self, number: int) -> dict[TopicPartition, str]:
        self.members.remove(number)
        self.polling[number].stop()
        return self.polling[number].consumer.close()

    def end(self) -> None:
        for number in list(self.members):
            self.remove(number)

    def await_shared(self) -> None:
        """Wait until the present members have all partitions, each some."""

        def is_shared() -> bool:
            held = [self.seen[number].held for number in self.members]
            return all(held) and sum(map(len, held)) == len(self.partitions) == len(frozenset().union(*held))

        wait_until(is_shared, PATIENCE_S, "the partitions to be shared", state=lambda: [one.calls for one in self.seen])

    def values(self) -> list[tuple[int | str, int]]:
        return sorted((record.partition, record.offset) for each in self.polling for record in each.records)


STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_graceful_handovers_repeat_nothing_and_lose_nothing(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, stack: ExitStack, strategy: str
) -> None:
    if cluster.version == "0.8.2.2" and "sticky" in strategy:
        pytest.skip("members in ZooKeeper have range and roundrobin")
    topic = fresh_topic()
    cluster.create_topic(topic, 6)
    more = {"partition_assignment_strategy": strategy, "max_poll_records": 7}
    group = Group(cluster, topic, 6, fresh_group, stack, **more)
    with SteadyLoad(cluster, [topic], 6, rate_per_s=300) as steady:
        group.add()
        group.await_shared()
        group.add()
        group.await_shared()
        group.add()
        group.await_shared()
        steady.grow(200)
        assert group.remove(0) == {}
        group.await_shared()
        steady.grow(200)
        steady.stop()
        sent = steady.acked
    wait_until(lambda: len(group.values()) >= len(sent), PATIENCE_S, "all records",
               state=lambda: (len(group.values()), len(sent)))  # fmt: skip
    group.end()
    assert group.values() == sorted((event.partition, event.offset) for event in sent)
    for seen in group.seen:
        assert seen.held == frozenset()  # each came and went once at a time, in pairs
        assert not seen.of("lost")
        assert all(partitions for _, partitions in seen.calls)
    if strategy == "cooperative-sticky":
        # What stays is not given up: each partition of the first member went away from it once.
        gone = [name for partitions in group.seen[0].of("revoked") for name in partitions]
        assert len(gone) == len(set(gone))
    for polling in group.polling:  # in order within a partition
        for _, mine in groupby(sorted(polling.records, key=lambda r: str(r.partition)), lambda r: r.partition):
            found = [record.offset for record in mine]
            assert found == sorted(found)
    assert not threads_of()


@pytest.mark.parametrize("joins", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_graceful_joins_repeat_nothing_with_the_documented_commits(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, stack: ExitStack, strategy: str, joins: int
) -> None:
    """Without waiting in the loop, and waiting in `on_partitions_revoked`."""
    if cluster.version == "0.8.2.2" and "sticky" in strategy:
        pytest.skip("members in ZooKeeper have range and roundrobin")
    topic = fresh_topic()
    cluster.create_topic(topic, 6)
    more = {"partition_assignment_strategy": strategy, "max_poll_records": 5, "enable_auto_commit": False}
    group = Group(cluster, topic, 6, fresh_group, stack, **more)
    group.add(commits=True)
    group.await_shared()
    with SteadyLoad(cluster, [topic], 6, rate_per_s=400) as steady:
        for _ in range(joins):
            steady.grow(100)
            group.add(commits=True)
            group.await_shared()
            if len(group.members) > 2:
                assert group.remove(group.members[0]) == {}
                group.await_shared()
        steady.stop()
        sent = steady.acked
    wait_until(lambda: len(set(group.values())) >= len(sent), PATIENCE_S, "all records")
    group.end()
    values = group.values()
    assert (len(values) - len(set(values)), len(set(values))) == (0, len(sent)), "repeated, and delivered"


def test_a_consumer_that_closes_commits_and_is_followed_at_the_exact_next_record(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    load(cluster, topic, 20)
    first = consumer_of(cluster, fresh_group, topic, max_poll_records=6)
    second = consumer_of(cluster, fresh_group, topic, max_poll_records=100)
    try:
        assert offsets(poll_until(first, 6)) == [0, 1, 2, 3, 4, 5]
        assert first.close(5000) == {}
        assert offsets(poll_until(second, 14)) == list(range(6, 20))
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_a_callback_commits_what_is_given_up_at_the_end(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, end: str
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    load(cluster, topic, 20)
    done: list[tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] = []

    class Commits(RebalanceCallbacks):
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.commit_sync()
            if end == "close":
                with pytest.raises(ConsumerClosed):
                    consumer.poll(100)
                with pytest.raises(ConsumerClosed):
                    consumer.subscribe(["another"])
            done.append((consumer.assignment(), frozenset(partitions)))

    with consumer_of(cluster, fresh_group, enable_auto_commit=False, max_poll_records=6) as consumer:
        consumer.subscribe([topic], listener=Commits())
        assert offsets(poll_until(consumer, 6)) == [0, 1, 2, 3, 4, 5]
        getattr(consumer, end)()
    name = TopicPartition(topic, 0)
    assert done == [(frozenset({name}), frozenset({name}))]
    assert stored(cluster, fresh_group, name) == {name: 6}


def test_records_in_hand_hold_up_a_partition_until_the_next_poll(
    of_brokers: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, stack: ExitStack
) -> None:
    """The first member works on its records while a second one joins: they are committed when they are done."""
    topic = fresh_topic()
    of_brokers.create_topic(topic, 2)
    load(of_brokers, topic, 20)
    seen = Seen()
    first = stack.enter_context(consumer_of(of_brokers, fresh_group, max_poll_records=15))
    first.subscribe([topic], listener=seen)
    found = poll_until(first, 15)
    second = stack.enter_context(consumer_of(of_brokers, fresh_group, topic))
    polling = Polling(second)
    stack.callback(polling.stop)
    member = first._poller.member
    assert member is not None
    wait_until(lambda: member.coordinator.state == "giving back", PATIENCE_S, "the rebalance")
    load(of_brokers, topic, 1, first=20)
    assert not polling.records
    found += poll_until(first, 1)
    wait_until(lambda: [found.extend(first.poll(50)), len(polling.records) + len(found) >= 42][1], PATIENCE_S, "all")
    assert sorted((each.partition, each.offset) for each in [*found, *polling.records]) == [
        (partition, offset) for partition in (0, 1) for offset in range(21)
    ]
    assert not seen.of("lost")


def test_a_seek_while_a_partition_moves_is_where_the_next_member_starts(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, stack: ExitStack
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 2)
    load(cluster, topic, 10)
    seen = Seen()
    first = stack.enter_context(consumer_of(cluster, fresh_group, max_poll_records=100))
    first.subscribe([topic], listener=seen)
    poll_until(first, 20)
    second = stack.enter_context(consumer_of(cluster, fresh_group, topic))
    polling = Polling(second)
    stack.callback(polling.stop)

    member = first._poller.member
    assert member is not None
    wait_until(
        lambda: any(not queue.is_live for name in first.assignment()
                    if (queue := member.delivery.queue_of(name)) is not None),
        PATIENCE_S, "a partition that moves away",
    )  # fmt: skip
    for name in first.assignment():
        first.seek(name, 8)
    found = []
    wait_until(lambda: [found.extend(first.poll(50)), len(polling.records) + len(found) >= 4][1], PATIENCE_S, "all")
    assert sorted((each.partition, each.offset) for each in [*found, *polling.records]) == [
        (0, 8), (0, 9), (1, 8), (1, 9),
    ]  # fmt: skip
    assert polling.records


def test_a_consumer_that_does_not_poll_is_left_out_and_joins_again_with_the_next_poll(
    of_brokers: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, stack: ExitStack
) -> None:
    topic = fresh_topic()
    of_brokers.create_topic(topic, 2)
    load(of_brokers, topic, 10)
    seen = Seen()
    first = stack.enter_context(
        consumer_of(
            of_brokers,
            fresh_group,
            max_poll_interval_ms=6000,
            session_timeout_ms=6000,
            request_timeout_ms=6000,
            max_poll_records=4,
        )
    )
    first.subscribe([topic], listener=seen)
    mine = poll_until(first, 4)
    second = stack.enter_context(consumer_of(of_brokers, fresh_group, topic))
    polling = Polling(second)
    stack.callback(polling.stop)
    wait_until(lambda: len(polling.records) >= 20, PATIENCE_S, "the other one to take over")
    assert sorted((r.partition, r.offset) for r in polling.records) == [(p, n) for p in (0, 1) for n in range(10)]
    assert first.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}  # it does not know yet
    with pytest.raises(CommitFailed):
        first.commit_sync()
    assert not first.poll(0)
    wait_until(lambda: [first.poll(50), seen.of("lost")][1], PATIENCE_S, "on_partitions_lost")
    assert seen.of("lost") == [frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)})]
    assert not seen.of("revoked")
    wait_until(lambda: [first.poll(50), first.assignment()][1], PATIENCE_S, "its share")
    load(of_brokers, topic, 3, first=10)
    wait_until(lambda: [mine.extend(first.poll(50)), len(mine) == 7][1], PATIENCE_S, "records of its share")
    assert len(mine[4:]) == 3


def test_close_during_a_rebalance_leaves_in_order(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """Consumers that come and close at once, some while others join: the last one has everything, once."""
    topic = fresh_topic()
    cluster.create_topic(topic, 2)
    load(cluster, topic, 10)
    found: list[ConsumerRecord[Any, Any]] = []
    for milliseconds in (0, 30, 100, 300, 700):
        consumers = [consumer_of(cluster, fresh_group, topic, max_poll_records=1) for _ in range(2)]
        threads = [threading.Thread(target=lambda one=one: found.extend(one.poll(milliseconds))) for one in consumers]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        for consumer in consumers:
            assert consumer.close(10_000) == {}
    with consumer_of(cluster, fresh_group, topic) as last:
        wait_until(
            lambda: [found.extend(last.poll(100)), len(found) >= 20][1], PATIENCE_S, "all records",
            state=lambda: (sorted((each.partition, each.offset) for each in found), last.assignment(),
                           [last.position(each) for each in last.assignment()]),
        )  # fmt: skip
    assert sorted((record.partition, record.offset) for record in found) == [(p, n) for p in (0, 1) for n in range(10)]
    wait_until(lambda: not threads_of(), PATIENCE_S, "the threads to end", state=threads_of)


@pytest.mark.slow
def test_a_group_that_commits_to_both_stores_is_taken_over_by_brokers(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """The way from ZooKeeper: `offsets.storage=kafka`, then `bootstrap_servers`; each record comes once."""
    cluster = kafka_clusters("1.1.1", 1)
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    load(cluster, topic, 10)
    config = ConsumerConfig(
        cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", offsets_storage="kafka",
        dual_commit_enabled=True,
    )  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert [next(stream).offset for _ in range(4)] == [0, 1, 2, 3]
    with consumer_of(cluster, fresh_group, topic) as consumer:
        assert offsets(poll_until(consumer, 6)) == [4, 5, 6, 7, 8, 9]


def test_enforce_rebalance_has_the_group_assigned_anew(
    of_brokers: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    of_brokers.create_topic(topic, 1)
    load(of_brokers, topic, 3)
    seen = Seen()
    with consumer_of(of_brokers, fresh_group, partition_assignment_strategy="range") as consumer:
        consumer.subscribe([topic], listener=seen)
        poll_until(consumer, 3)
        before = consumer.group_metadata()
        assert before.generation_id >= 1
        assert before.member_id
        consumer.enforce_rebalance("a test")
        wait_until(lambda: [consumer.poll(50), len(seen.of("assigned")) == 2][1], PATIENCE_S, "another assignment")
        assert consumer.group_metadata().generation_id == before.generation_id + 1
