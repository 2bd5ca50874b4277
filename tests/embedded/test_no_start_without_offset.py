"""`auto.offset.reset=none`: the listener may seek first, then all partitions without a position are named at once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import KafkaConsumer, RebalanceCallbacks
from zkconsumer.polling.errors import NoOffsetForPartition, OffsetOutOfRange
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
COUNT = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(2, generation="2.8", zookeeper=False, settings=settings) as made:
        yield made


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def partitions(cluster: EmbeddedCluster) -> list[TopicPartition]:
    """Four partitions with 25 records each, on two brokers."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, COUNT)
    for number in range(COUNT):
        cluster.produce(name, [b"%d" % value for value in range(25)], partition=number)
    return [TopicPartition(name, number) for number in range(COUNT)]


def consumer_of(cluster: EmbeddedCluster, group: str | None, **more: Any) -> KafkaConsumer:
    found: dict[str, Any] = {"bootstrap_servers": f"127.0.0.1:{cluster.port(0)}", "auto_offset_reset": "none",
                             "heartbeat_interval_ms": 100, "enable_auto_commit": False}  # fmt: skip
    return KafkaConsumer(**found | ({} if group is None else {"group_id": group}) | more)


class Seeks(RebalanceCallbacks):
    """Seeks offsets that the application keeps."""

    def __init__(self, consumer: KafkaConsumer, kept: dict[TopicPartition, int]) -> None:
        self.consumer, self.kept = consumer, kept
        self.calls: list[frozenset[TopicPartition]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(frozenset(partitions))
        for name in partitions:
            if name in self.kept:
                self.consumer.seek(name, self.kept[name])


def first_error(consumer: KafkaConsumer, kind: type[Exception]) -> Any:
    """Return what polls raise first; records do not count."""
    with pytest.raises(kind) as caught:
        wait_until(lambda: consumer.poll(100) and None, PATIENCE_S, "an error")
    return caught.value


@pytest.mark.parametrize("auto_commit", [False, True])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_offsets_that_are_kept_elsewhere_are_sought_before_anything_is_missed(
    cluster: EmbeddedCluster, group: str, partitions: list[TopicPartition], strategy: str, auto_commit: bool
) -> None:
    more = {"partition_assignment_strategy": strategy, "enable_auto_commit": auto_commit, "auto_commit_interval_ms": 50}
    with consumer_of(cluster, group, **more) as consumer:
        seeks = Seeks(consumer, dict.fromkeys(partitions, 20))
        consumer.subscribe([partitions[0].topic], listener=seeks)
        found: list[tuple[int | str, int]] = []
        wait_until(lambda: (found.extend((each.partition, each.offset) for each in consumer.poll(100)),
                            len(found) >= 5 * COUNT)[1], PATIENCE_S, "records")  # fmt: skip
    assert sorted(found) == [(number, offset) for number in range(COUNT) for offset in range(20, 25)]
    assert seeks.calls == [frozenset(partitions)]


@pytest.mark.parametrize("auto_commit", [False, True])
def test_all_partitions_without_an_offset_are_named_at_once_and_nothing_is_committed_of_them(
    cluster: EmbeddedCluster, group: str, partitions: list[TopicPartition], auto_commit: bool
) -> None:
    sought, committed, *missing = partitions
    with consumer_of(cluster, group) as other:
        other.assign([committed])
        other.commit_sync({committed: 20})
    with consumer_of(cluster, group, enable_auto_commit=auto_commit, auto_commit_interval_ms=20) as consumer:
        seeks = Seeks(consumer, {sought: 20})
        consumer.subscribe([sought.topic], listener=seeks)
        error = first_error(consumer, NoOffsetForPartition)
        assert set(error.partitions) == set(missing)
        assert seeks.calls == [frozenset(partitions)], "it could have sought the others"
        for name in missing:
            with pytest.raises(NoOffsetForPartition) as caught:
                consumer.position(name, timeout_ms=PATIENCE_S * 1000)
            assert set(caught.value.partitions) == set(missing)
        assert (consumer.position(sought), consumer.position(committed)) == (20, 20)
        until = time.monotonic() + 0.3  # some auto-commits
        while time.monotonic() < until:
            with pytest.raises(NoOffsetForPartition):
                consumer.poll(0)
        consumer.seek(missing[0], 20)
        assert set(first_error(consumer, NoOffsetForPartition).partitions) == set(missing[1:])
    with consumer_of(cluster, group) as other:
        stored = other.committed(partitions)
    assert stored[missing[1]] is None, "it would be read from there by whoever comes next"
    assert (stored[sought], stored[missing[0]]) == (None, None) or auto_commit


@pytest.mark.parametrize("has_group", [True, False])
def test_assigned_partitions_without_an_offset_are_named_at_once(
    cluster: EmbeddedCluster, group: str, partitions: list[TopicPartition], has_group: bool
) -> None:
    with consumer_of(cluster, group if has_group else None) as consumer:
        consumer.assign(partitions)
        consumer.seek(partitions[0], 20)
        for _ in range(2):
            assert set(first_error(consumer, NoOffsetForPartition).partitions) == set(partitions[1:])
        for name in partitions:
            consumer.seek(name, 24)
        found: list[int | str] = []
        wait_until(lambda: (found.extend(each.partition for each in consumer.poll(100)), len(found) == COUNT)[1],
                   PATIENCE_S, "records", state=lambda: found)  # fmt: skip


@pytest.mark.parametrize("read_before", [False, True])
def test_an_offset_behind_the_end_of_the_log_is_refused_soon(
    cluster: EmbeddedCluster, group: str, partitions: list[TopicPartition], read_before: bool
) -> None:
    """No election has taken place that could have cut the log off."""
    with consumer_of(cluster, group) as consumer:
        consumer.assign(partitions[:1])
        consumer.seek(partitions[0], 20)
        if read_before:
            wait_until(lambda: consumer.poll(100), PATIENCE_S, "records")
        consumer.seek(partitions[0], 1000)
        before = time.monotonic()
        error = first_error(consumer, OffsetOutOfRange)
        assert time.monotonic() - before < 4.0
        assert (error.partition, error.offset, error.log_start, error.log_end) == (partitions[0], 1000, 0, 25)
        consumer.seek(partitions[0], 24)
        assert [each.offset for each in wait_until(lambda: consumer.poll(100), PATIENCE_S, "records")] == [24]
