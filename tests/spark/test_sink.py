"""`df.write.format("zkconsumer")` and `writeStream`, read back by the source of this package."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from producing import produce
from pyspark.errors import PySparkException
from spark_jobs import reads_streams

from simpleconsumer.consumer import LATEST, SimpleConsumer
from zkconsumer.producer.partitioners import partition_082, partition_murmur2
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

pytestmark = pytest.mark.real
Topic = Callable[[], str]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "SPARK_WRITING.md"
PARTITIONS = 4
SLOW_TASKS = 2
ROWS_AT_ONCE = 1000


@pytest.fixture(scope="module")
def target() -> Iterator[EmbeddedCluster]:
    """Another cluster than the real one."""
    with EmbeddedCluster(2) as made:
        yield made


def write(rows: DataFrame, cluster: Any, topic: str | None = None, **options: object) -> DataFrameWriter:
    writer = rows.write.format("zkconsumer").mode("append").option("zookeeper.connect", cluster.zookeeper_connect)
    if topic is not None:
        writer = writer.option("topic", topic)
    return writer.options(**options)


def read(spark: SparkSession, cluster: Any, topic: str) -> DataFrame:
    reader = spark.read.format("zkconsumer").option("zookeeper.connect", cluster.zookeeper_connect)
    return reader.option("subscribe", topic).load()


def test_what_is_written_is_read_back_byte_for_byte(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    every_byte = bytes(range(256))
    sent = [
        (None if n % 3 == 0 else b"key %d" % n, None if n % 7 == 0 else b"%d " % n + every_byte[: n % 256], n % 3)
        for n in range(1500)
    ]
    table = spark.createDataFrame(sent, "key binary, value binary, partition int").coalesce(2)
    topics = {codec: fresh_topic() for codec in ("none", "gzip", "snappy", "lz4")}
    for codec, topic in topics.items():
        kafka_0822.create_topic(topic, partitions=3)
        write(table, kafka_0822, topic, **{"kafka.compression.type": codec, "kafka.acks": "all"}).save()
    rows = read(spark, kafka_0822, ",".join(topics.values())).select("key", "value", "partition", "topic")
    found = rows.collect()
    for topic in topics.values():
        assert sorted((tuple(row)[:3] for row in found if row.topic == topic), key=repr) == sorted(sent, key=repr)
    copy = fresh_topic()
    kafka_0822.create_topic(copy, partitions=3)
    write(rows, kafka_0822, copy).save()  # the option replaces the column `topic`
    copies = [tuple(row)[:3] for row in read(spark, kafka_0822, copy).select("key", "value", "partition").collect()]
    assert sorted(copies, key=repr) == sorted(sent * 4, key=repr)


def test_a_copy_of_what_the_source_reads_keeps_its_times(spark: SparkSession, fresh_topic: Topic) -> None:
    first, second = fresh_topic(), fresh_topic()
    with EmbeddedCluster(1, generation="4.3") as cluster:
        brokers = {"kafka.bootstrap.servers": f"127.0.0.1:{cluster.port(0)}"}
        for name in (first, second):
            cluster.create_topic(name, 1)

        def read_times(topic: str) -> DataFrame:
            rows = spark.read.format("zkconsumer").options(subscribe=topic, **brokers).load()
            return rows.select("key", "value", "partition", "timestamp")

        before_ms = int(time.time() * 1000) - 1
        table = spark.sql(
            "select 'a' as value, timestamp_millis(1500000000123) as timestamp union all "
            "select 'b', timestamp_micros(1000000000000999) union all select 'c', cast(null as timestamp)"
        )
        table.coalesce(1).write.format("zkconsumer").mode("append").options(topic=first, **brokers).save()
        copied = read_times(first).coalesce(1)
        copied.write.format("zkconsumer").mode("append").options(topic=second, **brokers).save()
        found = [
            {bytes(row.value): row.ms for row in read_times(topic).selectExpr("value", "unix_millis(timestamp) as ms")
             .collect()} for topic in (first, second)
        ]  # fmt: skip
        after_ms = int(time.time() * 1000) + 1
    assert found[0] == found[1]
    assert (found[0][b"a"], found[0][b"b"]) == (1_500_000_000_123, 1_000_000_000_000)
    assert before_ms <= found[0][b"c"] <= after_ms


def test_keys_choose_partitions_and_columns_choose_topics(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    first, second, hashed = fresh_topic(), fresh_topic(), fresh_topic()
    for name in (first, second, hashed):
        kafka_0822.create_topic(name, partitions=4)
    rows = [(f"kéy {n}", f"v{n}", first if n % 2 else second) for n in range(400)]
    table = spark.createDataFrame(rows, "key string, value string, topic string").coalesce(1)
    write(table, kafka_0822).save()
    for name in (first, second):
        found = read(spark, kafka_0822, name).orderBy("partition", "offset").collect()
        assert {bytes(row.value).decode() for row in found} == {value for _, value, topic in rows if topic == name}
        assert all(row.partition == partition_082(bytes(row.key).decode(), 4) for row in found)
        for partition in range(4):
            numbers = [int(bytes(row.value)[1:]) for row in found if row.partition == partition]
            assert numbers == sorted(numbers)
    as_bytes = table.selectExpr("cast(key as binary) as key", "value", "topic")
    write(as_bytes, kafka_0822, hashed, **{"partitioner.class": "murmur2"}).save()
    found = read(spark, kafka_0822, hashed).collect()
    assert len(found) == 400
    assert all(row.partition == partition_murmur2(bytes(row.key), 4) for row in found)


def test_errors_come_on_the_driver_or_name_the_row(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    good = spark.range(10).selectExpr("cast(id as string) as value").coalesce(1)
    for table, options, means in (
        (good, {"acsk": "1"}, "option acsk: no such option exists"),
        (good, {"subscribe": "t"}, "it is for reading; rows are written to the topic of option topic"),
        (good.selectExpr("value", "value as headers"), {}, "column 'headers' is string, not array<struct<key:string"),
        (good.selectExpr("1 as value"), {}, "column 'value' is int, not binary or string"),
        (good.selectExpr("value", "7 as partition"), {}, f"10 of 10 rows that were sent are not written; the first one "
         f"is row 0: topic '{topic}' has no partition 7; it has 0, 1"),
        (good.selectExpr("if(value = '3', repeat('x', 2000), value) as value"), {"message.max.bytes": "1000"},
         "task 0, attempt 0: 1 of 10 rows that were sent are not written; the first one is row 3: a message for "
         f"{topic} was not acknowledged: it has 2000 bytes, more than message.max.bytes = 1000; larger messages need"),
    ):  # fmt: skip
        with pytest.raises(PySparkException) as caught:
            write(table, kafka_0822, topic, **options).save()
        assert means in str(caught.value)
    with pytest.raises(PySparkException, match=r'overwrite .* write with mode\("append"\)'):
        write(good, kafka_0822, topic).mode("overwrite").save()
    with pytest.raises(PySparkException, match="row 2 of the task has no topic: its column 'topic' is null"):
        write(good.selectExpr("value", f"if(value = '2', null, '{topic}') as topic"), kafka_0822).save()


def copied(spark: SparkSession, source: Any, topic: str, target: Any, copy: str, folder: Path, **more: Any) -> Any:
    """A stream from a topic of one cluster to that of another one."""
    rows = spark.readStream.format("zkconsumer").option("zookeeper.connect", source.zookeeper_connect)
    rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").options(**more).load()
    writer = rows.select("key", "value").writeStream.format("zkconsumer")
    writer = writer.option("zookeeper.connect", target.zookeeper_connect).option("topic", copy).option("acks", "-1")
    return writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()


@reads_streams
def test_a_stream_goes_from_an_old_cluster_to_another_one_and_on_from_its_checkpoint(
    spark: SparkSession, kafka_0822: KafkaCluster, target: EmbeddedCluster, fresh_topic: Topic, tmp_path: Path
) -> None:
    topic, copy = fresh_topic(), fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    target.create_topic(copy, 3)

    def load(first: int) -> None:
        for partition in range(2):
            numbers = range(first + partition, first + 1000, 2)
            produce(kafka_0822, topic, partition, [(b"%d" % (n % 9), b"%d" % n) for n in numbers], "snappy")

    counts = []
    for first in (0, 1000):
        load(first)
        query = copied(spark, kafka_0822, topic, target, copy, tmp_path, maxOffsetsPerTrigger=400)
        assert query.awaitTermination(120)
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        assert len(progress) >= 3
        assert all(each["sink"]["numOutputRows"] == each["numInputRows"] for each in progress)
        counts.append(sum(each["sink"]["numOutputRows"] for each in progress))
    assert counts == [1000, 1000]
    found = read(spark, target, copy).collect()
    assert sorted(int(bytes(row.value)) for row in found) == list(range(2000))
    assert all(row.partition == partition_082(bytes(row.key), 3) for row in found)


@reads_streams
def test_the_programs_of_the_document_work(
    spark: SparkSession, kafka_0822: KafkaCluster, target: EmbeddedCluster, fresh_topic: Topic, tmp_path: Path
) -> None:
    topic, copy = fresh_topic(), fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    target.create_topic(copy, 2)
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        program = re.sub(r'"(zk1|old1):2181[^"]*"', repr(kafka_0822.zookeeper_connect), program)
        program = re.sub(r'"new1:2181[^"]*"', repr(target.zookeeper_connect), program)
        program = program.replace('"clicks"', f'"{topic}"').replace('"clicks-copy"', f'"{copy}"')
        program = program.replace('"checkpoints/', f'"{tmp_path}/')
        exec(compile(program, "documentation", "exec"), {})
    assert sorted(int(json.loads(row.value)["id"]) for row in read(spark, target, copy).collect()) == list(range(1000))


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Tasks get a thousand rows at a time."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, ROWS_AT_ONCE)
    yield
    spark.conf.set(name, before)


def slowly(rows: DataFrame, seconds: float) -> DataFrame:
    """Have each of two tasks take about this time, in which a fault falls."""
    wait_ms = seconds * 1000 / (rows.count() / SLOW_TASKS / ROWS_AT_ONCE)
    sleep = f"java_method('java.lang.Thread', 'sleep', {wait_ms:.0f}L)"
    return rows.where(f"if(id % {ROWS_AT_ONCE} = 0, {sleep} = 'null', true)")


@pytest.fixture(scope="module")
def mortal() -> Iterator[KafkaCluster]:
    """Two brokers for a test to kill; a leader that is not in sync is never elected."""
    settings = {"unclean.leader.election.enable": "false", "min.insync.replicas": 1}
    with KafkaCluster("0.8.2.2", brokers=2, settings=settings) as made:
        yield made


def kill(cluster: KafkaCluster, topic: str, replication: int, brokers: int) -> None:
    """When rows come, kill brokers with -9, one after the other when the replicas are in sync; start each again."""

    def has_rows() -> bool:
        leader = cluster.leader(topic, 0)
        assert leader is not None
        with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
            return broker.get_offsets_before(topic, 0, LATEST)[0] > 0

    def in_sync() -> bool:
        # Metadata of 0.8.2 does not follow changes of the in-sync replicas.
        states = [json.loads(cluster.client.get(f"/brokers/topics/{topic}/partitions/{number}/state")[0])
                  for number in range(PARTITIONS)]  # fmt: skip
        return all(len(state["isr"]) == replication for state in states)

    wait_until(has_rows, 120, "the first rows")
    for broker in range(brokers):
        wait_until(in_sync, 60, "replicas in sync")
        cluster.kill(broker)
        time.sleep(0.5)
        cluster.start(broker)


@pytest.mark.parametrize(
    ("acks", "replication", "rows", "brokers"),
    [
        ("-1", 2, 100_000, 1),
        pytest.param("1", 1, 100_000, 1, marks=pytest.mark.slow),
        pytest.param("-1", 2, 1_000_000, 2, marks=pytest.mark.slow),
        pytest.param("1", 1, 1_000_000, 2, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_while_brokers_are_killed(
    spark: SparkSession, mortal: KafkaCluster, fresh_topic: Topic, small_batches: None, acks: str, replication: int,
    rows: int, brokers: int,
) -> None:  # fmt: skip
    topic = fresh_topic()
    insync = {"min.insync.replicas": replication}
    mortal.create_topic(topic, partitions=PARTITIONS, replication=replication, config=insync)
    numbers = slowly(spark.range(rows, numPartitions=SLOW_TASKS), 4.0 * brokers)
    table = numbers.selectExpr("string(id) as key", "string(id) as value")
    killer = threading.Thread(target=kill, args=(mortal, topic, replication, brokers))
    killer.start()
    try:
        write(table, mortal, topic, acks=acks, **{"compression.codec": "snappy"}).save()
    finally:
        killer.join(120)
    assert not killer.is_alive()
    found = read(spark, mortal, topic)
    total, distinct = found.selectExpr("count(value)", "count(distinct value)").collect()[0]
    assert distinct == rows
    assert total < 2 * rows  # what repeats are batches whose acknowledgement was lost, not all rows
    assert found.where("key != value").count() == 0
