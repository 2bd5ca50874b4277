"""`spark.readStream.format("zkconsumer")` on real brokers of Kafka 0.8.2.2."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from spark_jobs import reads_streams

from rebalance.zookeeper import znodes
from zkconsumer.spark import commit_offsets, follow, source_metrics
from zkconsumer.spark.streaming.group_offsets import newest_finished
from zkconsumer.spark.streaming.stream_offsets import parse_stream_offsets
from zkconsumer.testing import KafkaCluster, load
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Topic = Callable[[], str]
DONE_S = 120
CROWDED = "Python worker failed to connect back"
"""Spark gives a new process ten seconds, which are not enough on a machine with much else to do: a run is repeated."""


class Job:
    """A query that can be run again and again on one checkpoint, into parquet or a function."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, folder: Path, **options: object) -> None:
        self.spark = spark
        self.cluster = cluster
        self.folder = folder
        self.checkpoint = str(folder / "checkpoint")
        self.options = {"zookeeper.connect": cluster.zookeeper_connect, "startingOffsets": "earliest",
                        **{name.replace("_", "."): str(value) for name, value in options.items()}}  # fmt: skip

    def start(self, sink: Callable[[DataFrame, int], None] | None = None, **trigger: Any) -> StreamingQuery:
        rows = self.spark.readStream.format("zkconsumer").options(**self.options).load()
        writer = rows.writeStream.option("checkpointLocation", self.checkpoint).trigger(**trigger)
        if sink is None:
            return writer.format("parquet").option("path", str(self.folder / "rows")).start()
        return writer.foreachBatch(sink).start()

    def run(self, sink: Callable[[DataFrame, int], None] | None = None, **trigger: Any) -> StreamingQuery:
        """Read what is there now, by `availableNow` unless another trigger is given."""
        for _ in range(3):
            query = self.start(sink, **(trigger or {"availableNow": True}))
            try:
                assert query.awaitTermination(DONE_S)
            except StreamingQueryException as error:
                if CROWDED not in str(error):
                    raise
            else:
                return query
        raise AssertionError(CROWDED)

    def rows(self) -> list[tuple[str, int, int, bytes]]:
        table = self.spark.read.parquet(str(self.folder / "rows"))
        return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in table.collect())

    def finished(self) -> dict[tuple[str, int], int]:
        """The ends in the checkpoint."""
        batch = newest_finished(self.checkpoint)
        return {} if batch is None else dict(parse_stream_offsets(batch.ends[0]).offsets)  # type: ignore[arg-type]

    def stored(self, group: str) -> dict[tuple[str, int], int]:
        """The ends in ZooKeeper."""
        found = {}
        for topic, partition in self.finished():
            path = znodes.offset_path(group, topic, partition)
            with contextlib.suppress(Exception):
                found[topic, partition] = int(self.cluster.client.get(path)[0])
        return found


def kept(start: Callable[[], StreamingQuery], batch: int = 0) -> StreamingQuery:
    """A query that goes on; returned when it has done a batch of that number."""

    def is_there(query: StreamingQuery) -> bool:
        progress = query.lastProgress
        return not query.isActive or (progress is not None and progress.batchId >= batch)

    for _ in range(3):
        query = start()
        wait_until(partial(is_there, query), DONE_S, "a batch", state=lambda query=query: query.status)  # type: ignore[misc]
        if CROWDED not in str(query.exception()):
            return query
    raise AssertionError(CROWDED)


def expected(topic: str, *counts: int) -> list[tuple[str, int, int, bytes]]:
    return [
        (topic, partition, n, b"%d:%d" % (partition, n)) for partition, count in enumerate(counts) for n in range(count)
    ]


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Topic) -> str:
    """Two partitions with a hundred messages each."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=2)
    load(kafka_0822, name, 100)
    return name


@pytest.fixture
def queries(spark: SparkSession) -> Iterator[None]:
    """Ends what a failed test left running."""
    yield
    for query in spark.streams.active:
        query.stop()


pytestmark = [
    pytest.mark.usefixtures("queries"),
    reads_streams,
]


def test_run_after_run_reads_each_message_once_and_stores_what_it_did(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_group: str, tmp_path: Path
):
    job = Job(spark, kafka_0822, tmp_path, subscribe=topic, maxOffsetsPerTrigger=60, group_id=fresh_group)
    query = job.run()
    assert job.rows() == expected(topic, 100, 100)
    # The last batch, too, and without any help: Spark asks once more where the next one would end.
    assert job.stored(fresh_group) == job.finished() == {(topic, 0): 100, (topic, 1): 100}
    sizes = [progress.numInputRows for progress in query.recentProgress]
    assert [size for size in sizes if size] == [60, 60, 60, 20]
    job.run()
    load(kafka_0822, topic, 5, partitions=[1], first=100)
    job.run()
    assert job.rows() == expected(topic, 100, 105)
    assert job.stored(fresh_group) == {(topic, 0): 100, (topic, 1): 105}


def test_the_progress_tells_the_lag_and_a_running_query_picks_up_new_partitions(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
):
    job = Job(spark, kafka_0822, tmp_path, subscribe=topic, maxOffsetsPerTrigger=150)
    query = kept(lambda: job.start(processingTime="100 milliseconds"))

    def lags() -> list[int]:
        found = []
        for progress in query.recentProgress:
            source = progress.sources[0]
            ends, latest = json.loads(source.endOffset)[topic], json.loads(source.latestOffset)[topic]
            found.append(sum(latest[name] - ends[name] for name in latest if name in ends))
        return found

    wait_until(lambda: lags()[-1:] == [0], DONE_S, "all to be read", state=lags)
    assert {200, 50} <= set(lags())
    figures = [source_metrics(progress)[0] for progress in query.recentProgress]
    assert {"100", "25", "0"} <= {each["maxOffsetsBehindLatest"] for each in figures}
    assert source_metrics(query)[0]["avgOffsetsBehindLatest"] == "0.0"
    kafka_0822.add_partitions(topic, 3)
    load(kafka_0822, topic, 30, partitions=[2])
    wait_until(lambda: job.finished().get((topic, 2)) == 30, DONE_S, "the new partition", state=job.finished)
    query.stop()
    assert job.rows() == expected(topic, 100, 100, 30)


def test_what_is_stored_is_never_ahead_of_the_checkpoint_and_a_failed_batch_is_read_again(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_group: str, tmp_path: Path
):
    job = Job(spark, kafka_0822, tmp_path, subscribe=topic, maxOffsetsPerTrigger=50, group_id=fresh_group)
    seen: Counter[tuple[int, int]] = Counter()
    ahead: list[tuple[int, dict[tuple[str, int], int]]] = []
    failing = {2}

    def sink(rows: DataFrame, batch: int) -> None:
        stored, finished = job.stored(fresh_group), job.finished()
        if any(at > finished.get(name, 0) for name, at in stored.items()):
            ahead.append((batch, stored))
        found = [(row.partition, row.offset) for row in rows.select("partition", "offset").collect()]
        if batch in failing:
            failing.remove(batch)
            raise RuntimeError("the sink is down")
        seen.update(found)

    with pytest.raises(Exception, match="the sink is down"):
        job.run(sink)
    assert job.stored(fresh_group) == job.finished() == {(topic, 0): 25, (topic, 1): 25}
    load(kafka_0822, topic, 50, first=100)
    job.run(sink)
    assert (ahead, failing) == ([], set())
    assert seen == Counter({(partition, n): 1 for partition in (0, 1) for n in range(150)})
    assert job.stored(fresh_group) == job.finished()


@pytest.mark.slow
def test_a_start_at_the_end_survives_a_failure_of_the_first_batch_with_data(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
):
    job = Job(spark, kafka_0822, tmp_path, subscribe=topic, startingOffsets="latest")
    seen: list[int] = []
    failing = [True]

    def sink(rows: DataFrame, batch: int) -> None:
        found = [row.offset for row in rows.select("offset").collect()]
        if found and failing:
            failing.clear()
            raise RuntimeError("the sink is down")
        seen.extend(found)

    job.run(sink)
    load(kafka_0822, topic, 10, partitions=[0], first=100)
    with pytest.raises(Exception, match="the sink is down"):
        job.run(sink)
    load(kafka_0822, topic, 10, partitions=[0], first=110)
    job.run(sink)
    assert sorted(seen) == list(range(100, 120))


def test_the_last_batch_of_a_stopped_query_is_stored_by_hand_or_by_a_listener(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_group: str, tmp_path: Path
):
    wanted = {(topic, 0): 100, (topic, 1): 100}
    by_hand = Job(spark, kafka_0822, tmp_path / "hand", subscribe=topic, group_id=fresh_group)
    for _ in range(2):  # the first batch only writes down the start
        query = by_hand.run(once=True)
    assert by_hand.finished() == wanted
    assert by_hand.stored(fresh_group) == {(topic, 0): 0, (topic, 1): 0}
    assert commit_offsets(query) == wanted
    assert by_hand.stored(fresh_group) == wanted

    group = f"{fresh_group}-b"
    by_listener = Job(spark, kafka_0822, tmp_path / "listener", subscribe=topic, group_id=group)
    listener = follow(spark)
    try:
        for _ in range(2):
            by_listener.run(once=True)
        wait_until(lambda: by_listener.stored(group) == wanted, DONE_S, "the listener to store the offsets")
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.slow
def test_a_pattern_that_matches_nothing_yet_reads_what_comes_from_its_beginning(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic, tmp_path: Path
):
    name = fresh_topic()
    job = Job(spark, kafka_0822, tmp_path, subscribePattern=name, startingOffsets="latest")
    job.run()
    kafka_0822.create_topic(name)
    load(kafka_0822, name, 20)
    job.run()
    assert job.rows() == expected(name, 20)


@pytest.mark.slow
def test_of_a_query_with_several_sources_each_is_stored_for_its_own_group(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_topic: Topic, fresh_group: str, tmp_path: Path
):
    other = fresh_topic()
    kafka_0822.create_topic(other)
    load(kafka_0822, other, 30)
    jobs = [
        Job(spark, kafka_0822, tmp_path, subscribe=name, group_id=f"{fresh_group}-{name}")
        for name in (topic, other, topic)
    ]
    jobs[2].options.pop("group.id")
    frames = [spark.readStream.format("zkconsumer").options(**job.options).load() for job in jobs]
    rows = spark.readStream.format("rate").load()
    rows = rows.selectExpr("cast(cast(value as string) as binary) value", "'rate' topic")
    for frame in [frames[0], *frames]:
        rows = rows.union(frame.select("value", "topic"))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = kept(writer.start, batch=2)
    query.stop()
    wanted = {(topic, 0): 100, (topic, 1): 100, (other, 0): 30}
    assert commit_offsets(query) == wanted
    for job, name in zip(jobs, (topic, other), strict=False):
        paths = {each: znodes.offset_path(f"{fresh_group}-{name}", *each) for each in wanted if each[0] == name}
        assert {each: int(kafka_0822.client.get(path)[0]) for each, path in paths.items()} == {
            each: at for each, at in wanted.items() if each[0] == name
        }, job.options


@pytest.mark.slow
def test_two_queries_at_once_each_read_everything(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_group: str, tmp_path: Path
):
    jobs = [
        Job(spark, kafka_0822, tmp_path / name, subscribe=topic, maxOffsetsPerTrigger=70, group_id=fresh_group)
        for name in ("one", "two")
    ]
    with ThreadPoolExecutor() as both:
        list(both.map(Job.run, jobs))
    assert [job.rows() for job in jobs] == [expected(topic, 100, 100)] * 2
    assert jobs[0].stored(fresh_group) == jobs[0].finished()


@pytest.mark.slow
def test_a_group_with_live_members_and_a_lost_range_end_the_query_with_their_names(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_group: str, tmp_path: Path
):
    job = Job(spark, kafka_0822, tmp_path, subscribe=topic, group_id=fresh_group)
    node = f"{znodes.ids_path(fresh_group)}/{fresh_group}_ann"
    kafka_0822.client.create(node, b"{}", ephemeral=True, makepath=True)
    with pytest.raises(Exception, match=f"1 consumer is in it .{fresh_group}_ann"):
        job.run()
    kafka_0822.client.delete(node)
    job.run()
    kafka_0822.delete_topic(topic)
    with pytest.raises(Exception, match=f"{topic}-0 from offset 100 on: it no longer exists"):
        job.run()


@reads_streams
def test_a_wrong_option_is_the_reason_why_a_query_ends(spark: SparkSession, tmp_path: Path) -> None:
    hides = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
    spark.conf.set(hides, "true")
    try:
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "clicks", "startingOffsets": "sometime"}
        rows = spark.readStream.format("zkconsumer").options(**options).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        with pytest.raises(StreamingQueryException) as told:
            writer.trigger(availableNow=True).start().awaitTermination(DONE_S)
    finally:
        spark.conf.unset(hides)
    assert "option startingOffsets: 'sometime' is not earliest, latest, group" in str(told.value)
    assert "UnboundLocalError" not in str(told.value)
