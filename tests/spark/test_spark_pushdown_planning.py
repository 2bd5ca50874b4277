"""What is asked of a cluster, and what counts as lost, where the filters of a query leave only a part of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import DataLoss, NoMessageAtTime, OptionRefused
from zkconsumer.spark.options.options import SourceOptions, batch_options
from zkconsumer.spark.reading import connections
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.pushdown import PushedFilters, push_filters
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.streaming.stream_offsets import ALL_OFFSETS, Spans
from zkconsumer.testing import Fault, load
from zkconsumer.testing.embedded.cluster import EmbeddedCluster

Topic = Callable[[], str]


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    yield
    connections.close_all()


class EqualTo:
    """As Spark's own, which 4.0 does not have."""

    def __init__(self, column: str, value: object) -> None:
        self.attribute, self.value = (column,), value


def filters_of(offsets: Spans = ALL_OFFSETS, **columns: object) -> PushedFilters:
    pushed, rest = push_filters([EqualTo(column, value) for column, value in columns.items()])
    assert not rest
    return replace(pushed, offsets=offsets)


def options(cluster: EmbeddedCluster, topic: str, **given: str) -> SourceOptions:
    place = {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "kafkaConsumer.pollTimeoutMs": "3000"}
    return batch_options({**place, **given})


def planned(wanted: SourceOptions, filters: PushedFilters) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in plan_batch(wanted, filters)]


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Topic) -> str:
    """Three partitions of a hundred messages."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=3)
    load(embedded_cluster, name, 100)
    return name


def test_brokers_are_not_asked_about_partitions_that_do_not_pass(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    asked = {
        partition: [
            embedded_cluster.faults.add(replace(Fault.delay(0, api, topic), partition=partition), None)
            for api in ("offsets", "fetch")
        ]
        for partition in range(3)
    }

    def questions() -> list[bool]:
        return [any(embedded_cluster.faults.used(fault) for fault in asked[partition]) for partition in range(3)]

    for nothing in (filters_of(partition=7), filters_of(offsets=()), filters_of(topic="other")):
        assert planned(options(embedded_cluster, topic), nothing) == []
    assert questions() == [False, False, False]
    found = planned(options(embedded_cluster, topic), filters_of(partition=1, offsets=((10, 20), (50, 60))))
    assert found == [(1, 10, 20), (1, 50, 60)]
    assert questions() == [False, True, False]


def test_a_partition_without_a_leader_does_not_matter_where_it_is_filtered_out(
    embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    embedded_cluster.faults.add(replace(Fault.error(5, "offsets", topic), partition=0), None)  # no leader
    assert planned(options(embedded_cluster, topic), filters_of(partition=2)) == [(2, 0, 100)]


def test_json_of_offsets_is_about_all_partitions_whatever_the_filters_leave(
    embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    begin = options(embedded_cluster, topic, startingOffsets=f'{{"{topic}": {{"0": 5, "1": 6, "2": -2}}}}')
    assert planned(begin, filters_of(partition=1)) == [(1, 6, 100)]
    for wrong in ('{"0": 5, "1": 6}', '{"0": 5, "1": 6, "2": 7, "3": 8}'):
        with pytest.raises(OptionRefused, match=f"option startingOffsets: it .*{topic}/[23]"):
            plan_batch(options(embedded_cluster, topic, startingOffsets=f'{{"{topic}": {wrong}}}'),
                       filters_of(partition=1))  # fmt: skip


def test_a_group_is_known_by_its_offsets_of_any_partition(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    path = f"/consumers/{fresh_group}/offsets/{topic}/0"
    embedded_cluster.client.create(path, b"40", makepath=True)
    of_group = options(embedded_cluster, topic, startingOffsets="group", **{"group.id": fresh_group})
    assert planned(of_group, filters_of(partition=0)) == [(0, 40, 100)]
    assert planned(of_group, filters_of(partition=1)) == [(1, 0, 100)]


def test_only_offsets_that_the_query_asks_for_can_be_lost(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    beyond = f'{{"{topic}": {{"0": 150, "1": -1, "2": -1}}}}'
    wanted = options(embedded_cluster, topic, endingOffsets=beyond)
    assert planned(wanted, filters_of(partition=1)) == [(1, 0, 100)]
    assert planned(wanted, filters_of(partition=0, offsets=((0, 100),))) == [(0, 0, 100)]
    assert planned(wanted, filters_of(partition=0, offsets=((20, 30), (150, 2**63)))) == [(0, 20, 30)]
    with pytest.raises(DataLoss, match=f"{topic}/0: 50 offsets from 100 to 149 are not in the log"):
        plan_batch(wanted, filters_of(partition=0, offsets=((99, 101),)))
    left_out = replace(wanted, fail_on_data_loss=False)
    assert planned(left_out, filters_of(partition=0, offsets=((99, 101),))) == [(0, 99, 100)]


def test_filters_beyond_the_log_are_no_loss_and_inside_it_are_read_whole(
    embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    wanted = options(embedded_cluster, topic)
    assert planned(wanted, filters_of(offsets=((100, 2**63),))) == []
    ranges = plan_batch(wanted, filters_of(partition=0, offsets=((90, 2**63),)))
    assert [offset for each in ranges for batch in read_range(each, ("offset",), wanted)
            for offset in batch.column("offset").to_pylist()] == list(range(90, 100))  # fmt: skip


def test_ranges_are_split_as_the_options_say_and_the_last_of_each_span_tells_what_lies_across_its_end(
    embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    filters = filters_of(partition=0, offsets=((0, 10), (40, 80)))
    ranges = plan_batch(options(embedded_cluster, topic, maxRecordsPerPartition="20"), filters)
    assert [(each.start, each.end, each.is_last) for each in ranges] == [
        (0, 10, True), (40, 60, False), (60, 80, True),
    ]  # fmt: skip
    ranges = plan_batch(options(embedded_cluster, topic, minPartitions="5"), filters)
    assert len(ranges) == 5
    assert sum(each.end - each.start for each in ranges) == 50


def test_a_wrapper_that_cannot_be_read_is_one_row_of_the_part_that_is_asked_for(
    embedded_cluster: EmbeddedCluster, fresh_topic: Topic
) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name)
    load(embedded_cluster, name, 100, codec="gzip", batch=20)
    embedded_cluster.faults.add(Fault.corrupt(name, 0, 59), None)
    wanted = options(embedded_cluster, name, onMessageError="row")

    def rows(first: int, behind: int) -> list[tuple[int, bool]]:
        """Offset, and whether it cannot be read, of what Spark leaves of the range."""
        ranges = plan_batch(wanted, filters_of(offsets=((first, behind),)))
        found = [row for each in ranges for batch in read_range(each, ("offset", "error"), wanted)
                 for row in batch.to_pylist()]  # fmt: skip
        return [(row["offset"], row["error"] is not None) for row in found if first <= row["offset"] < behind]

    assert rows(38, 60) == [(38, False), (39, False), (59, True)]
    assert rows(50, 61) == [(59, True), (60, False)]
    assert rows(38, 50) == [(38, False), (39, False)]


def test_names_of_partitions_are_what_filters_are_asked_about() -> None:
    filters = filters_of(topic="clicks", partition=3)
    assert filters.accepts(TopicPartition("clicks", 3))
    assert not filters.accepts(TopicPartition("clicks", 4))
    assert not filters.accepts(TopicPartition("views", 3))


def test_times_are_looked_for_in_partitions_that_pass_alone(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    future = 2**52
    times = json.dumps({topic: {"0": 0, "1": future, "2": 0}})
    wanted = options(embedded_cluster, topic, startingOffsetsByTimestamp=times)
    with pytest.raises(NoMessageAtTime, match=f"{topic}/1"):
        planned(wanted, filters_of())
    assert planned(wanted, filters_of(((10, 20),), partition=2)) == [(2, 10, 20)]
    missing = options(embedded_cluster, topic, startingOffsetsByTimestamp=json.dumps({topic: {"1": future, "2": 0}}))
    with pytest.raises(OptionRefused, match=f"omits {topic}/0"):
        planned(missing, filters_of(partition=2))
