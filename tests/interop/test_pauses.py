"""`pause` and `resume` of a connector: what is owned and committed, who may call, what a rebalance does to it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from consuming import (
    COUNT,
    PATIENCE_S,
    BackgroundReader,
    member,
    offsets_of,
    owner_node_transactions,
    read,
    read_available,
    wait_owned,
    wait_stored,
)

from zkconsumer import ConnectorClosed, ConsumerConnector, ConsumerTimeout, PauseFailed, TopicPartition
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.waiting import Deadline, wait_until


def test_a_paused_partition_stays_owned_and_committed_and_goes_on_at_the_next_message(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    p0 = TopicPartition(topic, 0)
    with member(embedded_cluster, fresh_group, auto_commit_interval_ms=20) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        transactions = owner_node_transactions(embedded_cluster, fresh_group, topic)
        consumer.pause([p0])
        assert offsets_of(read(stream, COUNT), 1) == list(range(COUNT))
        assert read_available(stream) == []
        assert consumer.paused() == {p0}
        assert [each.paused for each in consumer.status().owned] == [True, False]
        wait_stored(embedded_cluster, fresh_group, topic, 1, COUNT)
        consumer.resume([p0])
        first = read(stream, 10)
        consumer.pause([p0])
        assert read_available(stream) == []
        wait_stored(embedded_cluster, fresh_group, topic, 0, 10)
        consumer.resume([p0])
        assert offsets_of(first + read(stream, COUNT - 10), 0) == list(range(COUNT))
        assert consumer.paused() == frozenset()
        assert owner_node_transactions(embedded_cluster, fresh_group, topic) == transactions


def test_the_loop_over_a_stream_may_pause_what_it_reads_and_another_thread_resume_it(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with member(embedded_cluster, fresh_group) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        came: dict[TopicPartition, list[int]] = {p0: [], p1: []}
        deadline = Deadline(PATIENCE_S)
        while min(map(len, came.values())) < COUNT and not deadline.expired:
            try:
                message = next(stream)
            except ConsumerTimeout:
                continue
            mine = TopicPartition(message.topic, message.partition)
            came[mine].append(message.offset)
            if message.offset % 10 == 3:
                consumer.pause([mine])
                threading.Timer(0.02, consumer.resume, [[mine]]).start()
        assert came == {p0: list(range(COUNT)), p1: list(range(COUNT))}


def test_what_is_paused_as_it_is_assigned_never_begins(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    class PausesAll:
        connector: ConsumerConnector

        def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
            self.connector.pause(positions)

    listener = PausesAll()
    with member(embedded_cluster, fresh_group, listener=listener) as consumer:
        listener.connector = consumer
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert read_available(stream) == []
        assert consumer.paused() == {(topic, 0), (topic, 1)}
        consumer.resume(consumer.paused())
        assert len(read(stream, 2 * COUNT)) == 2 * COUNT


def test_what_is_not_owned_is_named_and_nothing_is_done(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    mine, elsewhere = TopicPartition(topic, 0), TopicPartition("elsewhere", 7)
    with member(embedded_cluster, fresh_group) as consumer:
        with pytest.raises(PauseFailed, match="elsewhere/7: this member has not joined the group"):
            consumer.pause([elsewhere])
        consumer.create_message_streams({topic: 1})
        with pytest.raises(PauseFailed, match="not paused: elsewhere/7: this member does not own it") as raised:
            consumer.pause([mine, elsewhere])
        assert set(raised.value.reasons) == {elsewhere}
        assert consumer.paused() == frozenset()
        with pytest.raises(PauseFailed, match="not resumed: elsewhere/7"):
            consumer.resume([elsewhere])
        consumer.resume([mine])  # it is not paused: nothing to do
        consumer.pause([])
    with pytest.raises(ConnectorClosed):
        consumer.pause([mine])
    assert consumer.paused() == frozenset()


@pytest.mark.parametrize(
    "wrong", [TopicPartition("clicks", 0), "clicks", ["clicks"], [("clicks",)], [("clicks", None)]]
)
def test_what_is_no_collection_of_partitions_is_refused(embedded_cluster: EmbeddedCluster, wrong: object) -> None:
    connector = member(embedded_cluster, "group")
    for call in (connector.pause, connector.resume):
        with pytest.raises(TypeError, match=r"\[TopicPartition\('clicks', 0\)\]"):
            call(wrong)  # type: ignore[arg-type]


def test_a_rebalance_that_takes_a_partition_away_forgets_its_pause(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    with member(embedded_cluster, fresh_group, "a") as a:
        [stream] = a.create_message_streams({topic: 1})[topic]
        both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        a.pause(both)
        reader = BackgroundReader(stream)
        with member(embedded_cluster, fresh_group, "b") as b:
            b.create_message_streams({topic: 1})
            wait_owned(a, [(topic, 0)])
            assert a.paused() == {both[0]}
            with pytest.raises(PauseFailed, match=f"{topic}/1"):
                a.resume(both)
        wait_owned(a, both)
        assert a.paused() == {both[0]}
        wait_until(lambda: offsets_of(reader.messages, 1)[-1:] == [COUNT - 1], PATIENCE_S, "partition 1 to flow again")
        a.resume([both[0]])
        wait_until(lambda: offsets_of(reader.messages, 0)[-1:] == [COUNT - 1], PATIENCE_S, "partition 0 to flow again")


def test_a_pause_outlasts_a_move_of_the_leader_and_a_shutdown_is_not_held_up_by_it(
    embedded_clusters: Callable[[int], EmbeddedCluster], fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    cluster, name = embedded_clusters(2), fresh_topic()
    cluster.create_topic(name, partitions=1, replication=2)
    load(cluster, name, COUNT)
    p0 = TopicPartition(name, 0)
    with member(cluster, fresh_group) as consumer:
        [stream] = consumer.create_message_streams({name: 1})[name]
        taken = read(stream, 5)
        consumer.pause([p0])
        leader = cluster.leader(name, 0)
        assert leader is not None
        cluster.move_leader(name, 0, 1 - leader)
        assert read_available(stream) == []
        consumer.resume([p0])
        assert offsets_of(taken + read(stream, COUNT - 5), 0) == list(range(COUNT))
        consumer.pause([p0])
