"""`spark.read.format("zkconsumer")` on real brokers of Kafka 0.8.2.2."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from producing import produce

from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Topic = Callable[[], str]
ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (*sorted(ROOT.glob("docs/SPARK*.md")), ROOT / "README.md")
OF_07 = '"kafka.generation": "0.7"'


def read(spark: SparkSession, cluster: KafkaCluster, topic: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("zkconsumer").option("zookeeper.connect", cluster.zookeeper_connect)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    return reader.options(**options).load()


def test_a_batch_is_what_was_produced_byte_for_byte(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=4)
    sent: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for partition, codec in enumerate(("none", "gzip", "snappy", "none")):
        every_byte = bytes(range(256))
        sent[partition] = [
            (None if n % 3 == 0 else b"key %d" % n, None if n % 7 == 0 else every_byte[: n % 256] * (n % 5))
            for n in range(1000)
        ]
        for first in range(0, 1000, 250):
            produce(kafka_0822, topic, partition, sent[partition][first : first + 250], codec)
    table = read(spark, kafka_0822, topic)
    assert table.count() == 4000
    rows = table.collect()
    for partition, messages in sent.items():
        found = sorted((row for row in rows if row.partition == partition), key=lambda row: row.offset)
        assert [(row.key, row.value) for row in found] == messages
        assert [row.offset for row in found] == list(range(1000))
    assert {(row.topic, row.timestamp, row.timestampType) for row in rows} == {(topic, None, -1)}


def test_rows_come_in_the_columns_of_sparks_kafka_source(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 3)
    table = read(spark, kafka_0822, topic)
    assert table.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"),
    ]  # fmt: skip
    values = table.selectExpr("cast(value as string) as text", "offset").orderBy("offset").collect()
    assert [tuple(row) for row in values] == [("0:0", 0), ("0:1", 1), ("0:2", 2)]


def test_a_schema_makes_only_the_columns_that_it_names(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 3)
    place = {"zookeeper.connect": kafka_0822.zookeeper_connect, "subscribe": topic}
    reader = spark.read.format("zkconsumer").options(**place)
    rows = reader.schema("offset long, topic string").load().collect()
    assert sorted(tuple(row) for row in rows) == [(0, topic), (1, topic), (2, topic)]
    with pytest.raises(Exception, match="column 'ofset' does not exist \\(did you mean 'offset'\\?\\)"):
        reader.schema("ofset long").load().count()
    with pytest.raises(Exception, match="column 'value' is binary, not string; cast it after load"):
        reader.schema("value string").load().count()


def test_filters_choose_topics_and_each_action_is_of_one_plan(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    name = fresh_topic()
    for suffix in ("-a", "-b", "-test"):
        kafka_0822.create_topic(name + suffix, partitions=2)
        load(kafka_0822, name + suffix, 10)
    table = read(spark, kafka_0822, subscribePattern=f"{name}-.*", blacklist=".*-test")
    counts = {row["topic"]: row["count"] for row in table.groupBy("topic").count().collect()}
    assert counts == {f"{name}-a": 20, f"{name}-b": 20}
    load(kafka_0822, f"{name}-a", 1, partitions=[0], first=10)
    # What was planned; another load() would read the new message, too. Spark 4.0 plans each action anew.
    assert table.count() == (41 if pyspark.__version__.startswith("4.0.") else 40)
    assert read(spark, kafka_0822, f"{name}-a").count() == 21


def test_one_partition_is_read_by_several_tasks(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 1000, codec="gzip")
    table = read(spark, kafka_0822, topic, minPartitions=5)
    assert table.rdd.getNumPartitions() == 5
    assert sorted(row.offset for row in table.select("offset").collect()) == list(range(1000))


def test_offsets_say_where_to_begin_and_end(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic, fresh_group: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    load(kafka_0822, topic, 100)
    begin, end = f'{{"{topic}": {{"0": 10, "1": -2}}}}', f'{{"{topic}": {{"0": 20, "1": -1}}}}'
    table = read(spark, kafka_0822, topic, startingOffsets=begin, endingOffsets=end)
    places = sorted(tuple(row) for row in table.select("partition", "offset").collect())
    assert places == [*((0, n) for n in range(10, 20)), *((1, n) for n in range(100))]
    kafka_0822.client.create(f"/consumers/{fresh_group}/offsets/{topic}/1", b"95", makepath=True)
    of_group = read(spark, kafka_0822, topic, startingOffsets="group", **{"group.id": fresh_group})
    assert of_group.count() == 105


def test_sql_reads_a_topic(spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 7)
    spark.sql(
        f"create temporary view clicks using zkconsumer options ("
        f"`zookeeper.connect` '{kafka_0822.zookeeper_connect}', subscribe '{topic}')"
    )
    try:
        assert spark.sql("select count(*), max(offset) from clicks").collect() == [(7, 6)]
    finally:
        spark.catalog.dropTempView("clicks")


def test_an_empty_topic_and_a_filter_without_topics_are_empty_tables(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    assert read(spark, kafka_0822, topic).count() == 0
    assert read(spark, kafka_0822, subscribePattern=f"{topic}-none").collect() == []


def test_what_is_wrong_is_said_in_one_sentence_behind_sparks_own(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 10)
    with pytest.raises(Exception, match="option statingoffsets: no such option exists; did you mean startingOffsets"):
        read(spark, kafka_0822, topic, statingOffsets="earliest")
    with pytest.raises(Exception, match=f"topic '{topic}x' does not exist .*did you mean '{topic}'"):
        read(spark, kafka_0822, f"{topic}x").count()
    beyond = f'{{"{topic}": {{"0": 50}}}}'
    with pytest.raises(Exception, match=f"{topic}/0: 40 offsets from 10 to 49 are not in the log: the log has 0 to 10"):
        read(spark, kafka_0822, topic, endingOffsets=beyond).count()
    assert read(spark, kafka_0822, topic, endingOffsets=beyond, failOnDataLoss="false").count() == 10
    with pytest.raises(Exception, match=r"no ZooKeeper server answered at 127\.0\.0\.1:1 within"):
        spark.read.format("zkconsumer").options(
            **{"zookeeper.connect": "127.0.0.1:1", "subscribe": topic, "zookeeper.connection.timeout.ms": "300"}
        ).load().count()


def test_two_queries_at_once_and_a_limit_that_breaks_off(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topics = [fresh_topic(), fresh_topic()]
    for number, topic in enumerate(topics):
        kafka_0822.create_topic(topic, partitions=2)
        load(kafka_0822, topic, 500 * (number + 1))
    counts: dict[str, int] = {}

    def count(topic: str) -> None:
        small = {"fetch.message.max.bytes": "2000"}
        assert len(read(spark, kafka_0822, topic, **small).limit(3).collect()) == 3
        counts[topic] = read(spark, kafka_0822, topic, **small).count()

    threads = [threading.Thread(target=count, args=[topic]) for topic in topics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert counts == {topics[0]: 1000, topics[1]: 2000}


def documented() -> list[str]:
    """The programs of the documents that read a table."""
    texts = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    programs = re.findall(r"```python\n(.*?)```", texts, re.DOTALL)
    return [program for program in programs if 'spark.read.format("zkconsumer")' in program]


def test_the_programs_of_the_document_work(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 10)
    monkeypatch.chdir(tmp_path)
    # `test_spark_of_every_age.py` runs the one that reads brokers with TLS.
    batches = [program for program in documented() if OF_07 not in program and "kafka.security" not in program]
    assert batches
    if pyspark.__version__.startswith("4.0."):  # which refuses this option
        batches = [program for program in batches if "filterPushdown" not in program]
    settings = tmp_path / "consumer.properties"  # by its whole name, as Java was started in another folder
    settings.write_text(f"zookeeper.connect={kafka_0822.zookeeper_connect}\n", encoding="utf-8")
    for program in batches:
        program = re.sub(r'"zk1:2181[^"]*"', repr(kafka_0822.zookeeper_connect), program)
        program = program.replace('"consumer.properties"', repr(str(settings)))
        program = program.replace('"subscribe", "clicks"', f'"subscribe", "{topic}"')
        program = program.replace('subscribe="clicks"', f'subscribe="{topic}"')
        program = program.replace('"subscribe": "clicks"', f'"subscribe": "{topic}"')
        program = program.replace('parquet("clicks', f'parquet("{tmp_path}/clicks')
        exec(compile(program.replace('json("clicks', f'json("{tmp_path}/clicks'), "documentation", "exec"), {})
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")  # one of them turns it on
    assert spark.read.parquet(f"{tmp_path}/clicks").count() == 10


def test_the_programs_of_the_document_for_07_work(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    programs = [program for program in documented() if OF_07 in program]
    assert programs
    with EmbeddedCluster(2, generation="0.7") as cluster:
        cluster.produce("clicks", [b"first", b"second"], partition="0-0", codec="gzip")
        cluster.produce("clicks", [b"third"], partition="1-0")
        for program in programs:
            exec(compile(program.replace("zk1:2181", cluster.zookeeper_connect), "documentation", "exec"), {})
            lines = capsys.readouterr().out.splitlines()
            shown = [[cell.strip() for cell in line.split("|")] for line in lines if line[:1] == "|"]
            rows = [dict(zip(shown[0], row, strict=True)) for row in shown[1:]]
            assert [bytes.fromhex(row["value"].strip("[]")) for row in rows] == [b"first", b"second", b"third"]
            assert [(row["broker"], row["offset"], row["entry_index"]) for row in rows] == [
                ("0", "0", "0"), ("0", "0", "1"), ("1", "0", "0")
            ]  # fmt: skip
