"""What one task reads while brokers die, leaders move, logs are cut and messages are bad; without Spark around it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient

from rebalance.errors import NamespaceMissing
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.errors import DataLoss, GroupHasNoOffsets, PartitionUnreadable, PlanningFailed, TopicMissing
from zkconsumer.spark.options.options import SourceOptions, batch_options
from zkconsumer.spark.reading import connections
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.bounds import PlannedRange
from zkconsumer.spark.reading.connections import FoundLeader, Prefetcher
from zkconsumer.spark.reading.range_fetcher import RangeFetcher
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.testing import Fault, load
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

ALL_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
WITH_ERRORS = (*ALL_COLUMNS, "error")
TEN_MB = 10 * 1024 * 1024


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    yield
    connections.close_all()


def options(cluster: Cluster, topic: str, **given: str) -> SourceOptions:
    settings = {"refresh.leader.backoff.ms": "20", "kafkaConsumer.pollTimeoutMs": "60000"}
    return batch_options({"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, **settings, **given})


def rows(wanted: SourceOptions, columns: Sequence[str] = ALL_COLUMNS) -> list[dict[str, object]]:
    """All rows of a batch, range by range."""
    return [row for each in plan_batch(wanted) for row in range_rows(each, wanted, columns)]


def range_rows(
    wanted: PlannedRange, chosen: SourceOptions, columns: Sequence[str] = ALL_COLUMNS
) -> list[dict[str, object]]:
    return [row for batch in read_range(wanted, tuple(columns), chosen) for row in batch.to_pylist()]


def small_fetches(cluster: Cluster, topic: str, **given: str) -> Iterator[Any]:
    """The record batches of a topic of one partition, which many small requests fetch."""
    wanted = options(cluster, topic, **{"fetch.message.max.bytes": "1000", **given})
    [whole] = plan_batch(wanted)
    return read_range(whole, ALL_COLUMNS, wanted)


def offsets(found: list[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in found]


def filled(cluster: EmbeddedCluster, topic: str, count: int = 1000, **how: object) -> str:
    cluster.create_topic(topic, partitions=1)
    load(cluster, topic, count, **how)  # type: ignore[arg-type]
    return topic


def produce(cluster: Cluster, topic: str, values: list[bytes], **how: object) -> int:
    leader = cluster.leader(topic, 0)
    assert leader is not None
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
        return broker.produce(topic, 0, values, **how)  # type: ignore[arg-type]


# -- good days ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("parts", [1, 7])
def test_ranges_of_one_partition_are_the_partition(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], codec: str, parts: int
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000, codec=codec, batch=60)
    wanted = options(embedded_cluster, topic, minPartitions=str(parts), **{"fetch.message.max.bytes": "4000"})
    found = rows(wanted)
    assert len(plan_batch(wanted)) == parts
    assert offsets(found) == list(range(1000))
    assert [row["value"] for row in found] == [b"0:%d" % n for n in range(1000)]
    assert {(row["topic"], row["partition"], row["timestamp"], row["timestampType"]) for row in found} == {
        (topic, 0, None, -1)
    }


def test_a_part_of_a_partition_begins_and_ends_inside_of_wrappers(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100, codec="gzip", batch=50)
    bounds = {"startingOffsets": f'{{"{topic}": {{"0": 30}}}}', "endingOffsets": f'{{"{topic}": {{"0": 70}}}}'}
    assert offsets(rows(options(embedded_cluster, topic, **bounds))) == list(range(30, 70))


def test_only_the_columns_asked_for_are_made(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 10)
    found = rows(options(embedded_cluster, topic), ["partition", "topic"])
    assert found == [{"partition": 0, "topic": topic}] * 10


def test_large_partitions_are_split_by_a_sample_of_their_bytes(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000, value=lambda partition, n: b"x" * 974)
    ranges = plan_batch(options(embedded_cluster, topic, maxBytesPerPartition="100000"))
    assert len(ranges) == 10
    assert len(plan_batch(options(embedded_cluster, topic))) == 1


def test_messages_of_ten_megabytes_are_fetched_with_their_own_size(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, config={"max.message.bytes": 2 * TEN_MB})
    sizes = [100, TEN_MB, 100, TEN_MB, TEN_MB, 100]
    for size in sizes:
        produce(embedded_cluster, topic, [b"x" * size])
    found = rows(options(embedded_cluster, topic))
    assert [len(row["value"]) for row in found] == sizes  # type: ignore[arg-type]


def test_a_topic_without_messages_and_a_filter_without_topics_read_nothing(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=3)
    assert plan_batch(options(embedded_cluster, topic)) == []
    place = {"zookeeper.connect": embedded_cluster.zookeeper_connect}
    assert plan_batch(batch_options({**place, "subscribePattern": f"{topic}-none"})) == []


def test_a_missing_topic_and_a_missing_partition_are_named_and_not_created(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1)
    with pytest.raises(TopicMissing, match=rf"topic '{topic}s' does not exist .*did you mean '{topic}'"):
        plan_batch(options(embedded_cluster, f"{topic}s"))
    place = {"zookeeper.connect": embedded_cluster.zookeeper_connect}
    with pytest.raises(TopicMissing, match=r"partition 7 .*does not exist.*the topic has 1"):
        plan_batch(batch_options({**place, "assign": f'{{"{topic}": [0, 7]}}'}))
    with pytest.raises(TopicMissing):
        plan_batch(options(embedded_cluster, f"{topic}s"))


def test_assigned_partitions_and_no_others(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=3)
    load(embedded_cluster, topic, 5)
    place = {"zookeeper.connect": embedded_cluster.zookeeper_connect}
    wanted = batch_options({**place, "assign": f'{{"{topic}": [2, 1]}}'})
    assert {row["partition"] for row in rows(wanted)} == {1, 2}


def test_a_group_says_where_to_begin_and_where_to_end(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100)
    embedded_cluster.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0", b"40", makepath=True)
    group = {"group.id": fresh_group}
    begin = options(embedded_cluster, topic, startingOffsets="group", **group)
    end = options(embedded_cluster, topic, endingOffsets="group", **group)
    assert offsets(rows(begin)) == list(range(40, 100))
    assert offsets(rows(end)) == list(range(40))


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_a_group_without_any_offset_is_refused(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str, option: str
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 10)
    with pytest.raises(GroupHasNoOffsets, match=rf"group '{fresh_group}' has no offset of {topic}/0, nor of any other"):
        plan_batch(options(embedded_cluster, topic, **{option: "group", "group.id": fresh_group}))


def test_connections_are_used_again_only_after_a_read_to_the_end(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    wanted = options(embedded_cluster, topic, **{"fetch.message.max.bytes": "2000"})
    [whole] = plan_batch(wanted)
    assert whole.leader is not None

    def taken() -> SimpleConsumer:
        assert whole.leader is not None
        return connections.take(whole.leader, wanted.config)

    connections.close_all()
    first = taken()
    connections.give_back(first, wanted.config)
    range_rows(whole, wanted)
    assert taken() is first
    connections.give_back(first, wanted.config)
    broken_off = read_range(whole, ALL_COLUMNS, wanted)
    next(broken_off)
    broken_off.close()  # type: ignore[attr-defined]
    assert taken() is not first


# -- leaders and brokers -----------------------------------------------------------------------------------------------


@pytest.mark.embedded_cluster(brokers=2)
def test_a_leader_that_moves_in_the_middle_costs_no_message_and_repeats_none(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    found: list[dict[str, object]] = []
    for number, batch in enumerate(small_fetches(embedded_cluster, topic)):
        found += batch.to_pylist()
        if number in (3, 10):
            leader = embedded_cluster.leader(topic, 0)
            embedded_cluster.move_leader(topic, 0, 1 if leader == 0 else 0)
    assert offsets(found) == list(range(1000))


@pytest.mark.embedded_cluster(brokers=2)
def test_connections_that_break_and_answers_that_make_no_sense_cost_no_message(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    faults = embedded_cluster.faults
    closed = faults.add(Fault.close(api="fetch", topic=topic, after_bytes=100), times=2)
    wrong = faults.add(Fault.wrong_correlation_id(api="fetch", topic=topic), times=1)
    garbage = faults.add(Fault.garbage(b"\xff" * 40, api="fetch", topic=topic), times=1)
    refused = faults.add(Fault.error(-1, "fetch", topic), times=2)
    assert offsets(rows(options(embedded_cluster, topic, **{"fetch.message.max.bytes": "1000"}))) == list(range(1000))
    assert [faults.used(each) for each in (closed, wrong, garbage, refused)] == [2, 1, 1, 2]


def test_a_broker_that_comes_back_goes_on_where_it_was(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    reading = small_fetches(embedded_cluster, topic)
    found = next(reading).to_pylist()
    embedded_cluster.kill(0, expire=True)
    back = threading.Timer(1.0, embedded_cluster.start, [0])
    back.start()
    try:
        for batch in reading:
            found += batch.to_pylist()
    finally:
        back.join()
    assert offsets(found) == list(range(1000))


def test_a_broker_that_stays_away_is_an_error_with_the_place_after_a_while(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    reading = small_fetches(embedded_cluster, topic, **{"kafkaConsumer.pollTimeoutMs": "1500"})
    next(reading)
    embedded_cluster.kill(0, expire=True)
    with pytest.raises(PartitionUnreadable, match=rf"{topic}/0 at \d+ .*no message arrived for 1\.5 s"):
        for _ in reading:
            pass


@pytest.mark.embedded_cluster(brokers=2)
def test_a_broker_that_falls_silent_is_left_for_the_next_leader(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, assignment={0: [0, 1]})
    load(embedded_cluster, topic, 1000)
    reading = small_fetches(embedded_cluster, topic, **{"socket.timeout.ms": "1000"})
    found = next(reading).to_pylist()
    embedded_cluster.pause(0)
    embedded_cluster.move_leader(topic, 0, 1)
    for batch in reading:
        found += batch.to_pylist()
    assert offsets(found) == list(range(1000))


def test_a_cluster_below_a_chroot(zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str]) -> None:
    with EmbeddedCluster(1, zookeeper=zookeeper, chroot="/deep/kafka") as cluster:
        topic = filled(cluster, fresh_topic(), 10)
        assert cluster.zookeeper_connect.endswith("/deep/kafka")
        assert offsets(rows(options(cluster, topic))) == list(range(10))
        elsewhere = {"zookeeper.connect": cluster.zookeeper_connect + "/nowhere", "subscribe": topic}
        with pytest.raises(NamespaceMissing, match="/deep/kafka/nowhere"):
            plan_batch(batch_options(elsewhere))


def test_a_cluster_of_kafka_07_is_refused_without_its_option(
    zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str]
) -> None:
    chroot = f"/{fresh_topic()}"
    client = KazooClient(zookeeper.connect)
    client.start()
    try:
        client.create(f"{chroot}/brokers/ids/0", b"127.0.0.1-1400000000000:127.0.0.1:9092", makepath=True)
        place = {"zookeeper.connect": zookeeper.connect + chroot, "subscribe": "clicks"}
        with pytest.raises(PlanningFailed, match=rf"{chroot} are of Kafka 0\.7.*set option kafka\.generation to 0\.7"):
            plan_batch(batch_options(place))
    finally:
        client.stop()
        client.close()


def test_what_lasts_is_not_waited_for(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 10)
    wanted = options(embedded_cluster, topic)
    [whole] = plan_batch(wanted)
    embedded_cluster.faults.add(Fault.error(29, "fetch", topic), times=None)
    with pytest.raises(PartitionUnreadable, match=rf"{topic}/0 at 0 \(broker 0 at .*TopicAuthorizationFailed"):
        range_rows(whole, wanted)


def test_planning_names_the_partitions_that_nobody_leads(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 10)
    embedded_cluster.faults.add(Fault.error(6, "offsets", topic), times=None)
    wanted = options(embedded_cluster, topic, **{"kafkaConsumer.pollTimeoutMs": "500"})
    with pytest.raises(
        PlanningFailed,
        match=rf"after 0\.5 s no broker has answered for {topic}/0 "
        r"\(.*NotLeaderForPartition",
    ):
        plan_batch(wanted)


def test_planning_waits_for_a_leader_that_is_being_elected(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 10)
    fault = embedded_cluster.faults.add(Fault.error(6, "offsets", topic), times=3)
    assert offsets(rows(options(embedded_cluster, topic))) == list(range(10))
    assert embedded_cluster.faults.used(fault) == 3


# -- logs that are not what they were ----------------------------------------------------------------------------------


def test_gaps_of_compaction_are_no_loss(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    log = embedded_cluster.log(topic, 0)
    log.roll()
    produce(embedded_cluster, topic, [b"last"])
    log.remove([*range(100, 300), *range(301, 400, 2), *range(800, 1000)])
    kept = [*range(100), 300, *range(302, 400, 2), *range(400, 800), 1000]
    wanted = options(embedded_cluster, topic, minPartitions="6", **{"fetch.message.max.bytes": "1000"})
    assert offsets(rows(wanted)) == kept


def test_a_range_whose_last_messages_are_compacted_away_ends(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    embedded_cluster.log(topic, 0).remove(range(500, 999))
    found = rows(options(embedded_cluster, topic, endingOffsets=f'{{"{topic}": {{"0": 900}}}}', minPartitions="9"))
    assert offsets(found) == list(range(500))


def test_an_empty_answer_or_two_are_asked_again_and_a_third_is_believed(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100)
    wanted = options(embedded_cluster, topic)
    [whole] = plan_batch(wanted)
    everything = Fault.cut_tail(1_000_000, topic, 0)
    passing = embedded_cluster.faults.add(everything, times=2)
    assert offsets(range_rows(whole, wanted)) == list(range(100))
    assert embedded_cluster.faults.used(passing) == 2
    embedded_cluster.faults.reset()
    embedded_cluster.faults.add(everything, times=None)  # as where compaction has taken all up to the end of the log
    assert range_rows(whole, wanted) == []


def test_retention_that_overtakes_a_task_is_lost_data(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, config={"segment.bytes": 2000})
    load(embedded_cluster, topic, 1000, batch=20)
    strict = options(embedded_cluster, topic)
    [whole] = plan_batch(strict)
    embedded_cluster.log(topic, 0).delete_head(500)
    earliest = embedded_cluster.log(topic, 0).start_offset
    assert earliest > 0
    message = rf"{topic}/0: {earliest} offsets from 0 to {earliest - 1} are not in the log: the log has {earliest}"
    with pytest.raises(DataLoss, match=message):
        range_rows(whole, strict)
    with caplog.at_level(logging.WARNING, "zkconsumer.spark.reading.record_batches"):
        found = range_rows(whole, options(embedded_cluster, topic, failOnDataLoss="false"))
    assert offsets(found) == list(range(earliest, 1000))
    assert f"{earliest} offsets that are not in the log were omitted" in caplog.text


def fetched_range(wanted: PlannedRange, chosen: SourceOptions, doubt_s: float, fail: bool) -> list[object]:
    """What a fetcher makes of a range, with less doubt than it has in a task."""

    def search(name: TopicPartition, denied_by: int | None) -> FoundLeader:
        return FoundLeader(wanted.leader)

    fetcher = RangeFetcher(
        wanted, chosen.config, search, patience_s=30, max_bytes=chosen.max_message_bytes, fail_on_data_loss=fail,
        doubt_s=doubt_s,
    )  # fmt: skip
    return list(fetcher.fetch())


def test_a_log_that_stays_cut_is_lost_data(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    wanted = options(embedded_cluster, topic)
    [whole] = plan_batch(wanted)
    embedded_cluster.log(topic, 0).truncate(600)
    with pytest.raises(
        DataLoss, match=f"{topic}/0: 400 offsets from 600 to 999 are not in the log: the log has 0 to 600"
    ):
        fetched_range(whole, wanted, doubt_s=0.3, fail=True)
    assert [type(each).__name__ for each in fetched_range(whole, wanted, 0.3, fail=False)] == [
        "FetchedSet", "LostOffsets"
    ]  # fmt: skip


def test_a_log_that_seems_cut_for_a_moment_is_waited_for(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    wanted = options(embedded_cluster, topic, **{"fetch.message.max.bytes": "4000"})
    [whole] = plan_batch(wanted)
    fault = embedded_cluster.faults.add(Fault.error(1, "fetch", topic), times=5)
    assert offsets(range_rows(whole, wanted)) == list(range(1000))
    assert embedded_cluster.faults.used(fault) == 5


def test_a_topic_that_is_deleted_behind_the_plan_is_lost_data_and_not_made_anew(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    wanted = options(embedded_cluster, topic)
    [whole] = plan_batch(wanted)
    embedded_cluster.delete_topic(topic)
    with pytest.raises(DataLoss, match=f"{topic}/0: 1000 offsets .*topic '{topic}' no longer exists"):
        range_rows(whole, wanted)
    assert range_rows(whole, options(embedded_cluster, topic, failOnDataLoss="false")) == []
    assert embedded_cluster.client.exists(f"/brokers/topics/{topic}") is None


# -- bad messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_corrupt_message_is_an_error_with_its_place(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], codec: str
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100, codec=codec, batch=10)
    embedded_cluster.log(topic, 0).corrupt(59)
    with pytest.raises(PartitionUnreadable, match=rf"{topic}/0 at 59 \(broker 0 at 127.0.0.1:\d+\): CrcMismatch"):
        rows(options(embedded_cluster, topic))


def test_a_corrupt_message_can_be_skipped_and_is_counted(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100)
    embedded_cluster.log(topic, 0).corrupt(60)
    embedded_cluster.log(topic, 0).corrupt(70)
    with caplog.at_level(logging.WARNING, "zkconsumer.spark.reading.record_batches"):
        found = rows(options(embedded_cluster, topic, onMessageError="skip"))
    assert offsets(found) == [n for n in range(100) if n not in (60, 70)]
    assert "2 messages that cannot be read were skipped" in caplog.text


@pytest.mark.parametrize("parts", ["1", "13"])
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_corrupt_message_can_be_a_row_with_its_place_and_what_is_wrong(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], codec: str, parts: str
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100, codec=codec, batch=10)
    embedded_cluster.log(topic, 0).corrupt(59)
    found = rows(options(embedded_cluster, topic, onMessageError="row", minPartitions=parts), WITH_ERRORS)
    [bad] = [row for row in found if row["error"] is not None]
    assert (bad["topic"], bad["partition"], bad["offset"], bad["key"], bad["value"]) == (topic, 0, 59, None, None)
    assert "CrcMismatch" in str(bad["error"])
    lost = range(59, 60) if codec == "none" else range(50, 60)  # a wrapper goes as a whole
    assert [row["offset"] for row in found if row["error"] is None] == [n for n in range(100) if n not in lost]


@pytest.mark.parametrize("parts", ["1", "13"])
@pytest.mark.parametrize("found", [2**63 - 1, 59 - 2**63, 70, 60, 3])
def test_a_damaged_offset_is_one_bad_message_whatever_it_says(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], found: int, parts: str
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100)
    embedded_cluster.log(topic, 0).damage_offset(59, found)
    with pytest.raises(PartitionUnreadable, match=rf"{topic}/0 at 59 .*: DamagedOffset: offset {found} "):
        rows(options(embedded_cluster, topic, minPartitions=parts))
    all_rows = rows(options(embedded_cluster, topic, onMessageError="row", minPartitions=parts), WITH_ERRORS)
    assert [row["offset"] for row in all_rows] == list(range(100))
    assert [row["offset"] for row in all_rows if row["error"] is not None] == [59]


def test_a_message_that_is_larger_than_any_fetch_is_an_error_of_that_message(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 3)
    produce(embedded_cluster, topic, [b"x" * 50_000])
    load(embedded_cluster, topic, 3)
    small = {"maxMessageBytes": "10000", "fetch.message.max.bytes": "5000"}
    with pytest.raises(PartitionUnreadable, match=rf"{topic}/0 at 3 .*MessageTooLarge: .*50026 bytes"):
        rows(options(embedded_cluster, topic, **small))
    found = rows(options(embedded_cluster, topic, onMessageError="row", **small), WITH_ERRORS)
    assert [row["error"] is None for row in found] == [True] * 3 + [False] + [True] * 3


def test_a_set_that_breaks_off_is_fetched_again(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 100)
    cut = embedded_cluster.faults.add(Fault.cut_tail(30, topic, 0), times=3)
    assert offsets(rows(options(embedded_cluster, topic))) == list(range(100))
    assert embedded_cluster.faults.used(cut) == 3


# -- one step ahead ----------------------------------------------------------------------------------------------------


def test_one_item_is_made_ahead_and_no_more() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    ahead = Prefetcher(items(), lambda: None, "ahead")  # type: ignore[arg-type]
    taken = iter(ahead)
    for number in range(3):
        assert next(taken) == number
        wait_until(lambda number=number: len(made) == number + 2, 10, "the next item")  # type: ignore[misc]
        assert len(made) == number + 2
    ahead.close()


def test_an_error_comes_behind_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("two")

    ahead = Prefetcher(items(), lambda: None, "ahead")  # type: ignore[arg-type]
    taken = iter(ahead)
    assert next(taken) == 1
    with pytest.raises(ValueError, match="two"):
        next(taken)
    ahead.close()


def test_a_task_that_is_given_up_ends_its_fetch_at_once(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = filled(embedded_cluster, fresh_topic(), 1000)
    reading = small_fetches(embedded_cluster, topic)
    next(reading)
    embedded_cluster.faults.add(Fault.delay(20, "fetch", topic), times=None)
    began = time.monotonic()
    reading.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 15
    assert [thread.name for thread in threading.enumerate() if topic in thread.name] == []


# -- connections -------------------------------------------------------------------------------------------------------


def test_no_more_than_so_many_idle_connections_are_kept() -> None:
    config = batch_options({"zookeeper.connect": "zk1", "subscribe": "a"}).config
    kept = [connections.take(Broker(n, "127.0.0.1", 1000 + n), config) for n in range(connections.MOST_KEPT + 3)]
    for consumer in kept:
        connections.give_back(consumer, config)
    assert connections.take(Broker(0, "127.0.0.1", 1000), config) is not kept[0]
    assert connections.take(Broker(9, "127.0.0.1", 1009), config) is kept[9]


def test_a_connection_of_other_settings_is_another_one() -> None:
    place = {"zookeeper.connect": "zk1", "subscribe": "a"}
    config, patient = (batch_options({**place, "socket.timeout.ms": each}).config for each in ("1000", "2000"))
    broker = Broker(1, "127.0.0.1", 1)
    consumer = connections.take(broker, config)
    connections.give_back(consumer, config)
    assert connections.take(broker, patient) is not consumer
    assert connections.take(broker, config) is consumer
