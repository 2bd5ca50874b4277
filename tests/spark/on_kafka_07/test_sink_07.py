"""`df.write.format("zkconsumer")` and `writeStream` on Kafka 0.7, embedded and real, read back by the source."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka_07 import Both
from pyspark.errors import PySparkException

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from zkconsumer.producer.partitioners import partition_07
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession

pytestmark = pytest.mark.real
Topic = Callable[[], str]
CODECS = ("none", "gzip", "snappy")
ROWS = 1200
EVERY_BYTE = bytes(range(256))


def write(rows: DataFrame, cluster: Both, topic: str | None = None, **options: object) -> DataFrameWriter:
    writer = rows.write.format("zkconsumer").mode("append").option("zookeeper.connect", cluster.zookeeper_connect)
    return (writer if topic is None else writer.option("topic", topic)).options(**options)


def read(spark: SparkSession, cluster: Both, topic: str) -> list[Row]:
    place = {"zookeeper.connect": cluster.zookeeper_connect, "kafka.generation": "0.7", "subscribe": topic}
    table = spark.read.format("zkconsumer").options(**place).load()
    return table.orderBy("partition", "offset", "entry_index").collect()


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read_back_byte_for_byte(spark: SparkSession, cluster: Both, topic: str, codec: str) -> None:
    sent = [b"%d " % number + EVERY_BYTE[: number % 256] for number in range(ROWS)]
    table = spark.createDataFrame([(value,) for value in sent], "value binary").coalesce(2)
    write(table, cluster, topic, **{"compression.codec": codec}).save()
    found = read(spark, cluster, topic)
    assert sorted(bytes(row.value) for row in found) == sorted(sent)
    assert {row.key for row in found} == {None}


def test_keys_choose_partitions_in_order_and_columns_choose_topics_and_partitions(
    spark: SparkSession, cluster: Both, topic: str, fresh_topic: Topic
) -> None:
    other = fresh_topic()
    cluster.create_topic(other)
    names = [str(name) for name in cluster.partitions(topic)]
    numbers = {name: index for index, name in enumerate(names)}
    rows = [(f"kéy {n}", f"{n}", topic) for n in range(ROWS)]
    rows_of_other = [(None, f"{n}", other, names[n % len(names)]) for n in range(ROWS)]
    write(
        spark.createDataFrame(rows, "key string, value string, topic string").coalesce(1), cluster,
        **{"partitioner.class": "0.7"},
    ).save()  # fmt: skip
    write(
        spark.createDataFrame(rows_of_other, "key string, value string, topic string, partition string").coalesce(1),
        cluster,
    ).save()  # fmt: skip

    def values(name: str, index: int) -> list[int]:
        # The source numbers partitions by broker and number: 65536 times the broker, plus the number.
        broker, number = names[index].split("-")
        place = int(broker) * 65536 + int(number)
        return [int(bytes(row.value)) for row in read(spark, cluster, name) if row.partition == place]

    for index in numbers.values():
        chosen = [int(value) for key, value, _ in rows if partition_07(str(key), len(names)) == index]
        assert values(topic, index) == chosen
        assert values(other, index) == list(range(index, ROWS, len(names)))


def test_what_kafka_07_cannot_store_fails_and_names_the_row(spark: SparkSession, cluster: Both, topic: str) -> None:
    good = spark.range(10).selectExpr("cast(id as string) as value").coalesce(1)
    for table, options, means in (
        (good.selectExpr("if(value = '3', null, value) as value"), {}, "1 of 10 rows that were sent are not written; "
         "the first one is row 3"),
        (good.selectExpr("value", "'7-7' as partition"), {}, f"row 0: topic '{topic}' has no partition '7-7'; it has "),
        (good, {"compression.codec": "lz4"}, "compression.codec is 'lz4'; it must be none, gzip or snappy with Kafka"),
        (good, {"acks": "all"}, "request.required.acks is -1; it must be 0 or 1 with Kafka 0.7, which has no replicas"),
    ):  # fmt: skip
        with pytest.raises(PySparkException) as caught:
            write(table, cluster, topic, **options).save()
        assert means in str(caught.value)


def test_a_stream_writes_each_batch_once(spark: SparkSession, cluster: Both, topic: str, tmp_path: Path) -> None:
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    lines.mkdir()
    for first in (0, 100):
        text = "\n".join(str(number) for number in range(first, first + 100))
        (lines / f"{first}.txt").write_text(text, encoding="utf-8")
        rows = spark.readStream.text(str(lines)).selectExpr(
            "cast(value as binary) as value", "if(value % 2 = 0, value, null) as key",
            "if(value % 5 = 0, '1-0', null) as partition",
        )  # fmt: skip
        writer = rows.writeStream.format("zkconsumer")
        place = {"zookeeper.connect": cluster.zookeeper_connect, "topic": topic}
        query = writer.options(**place).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    rows_read = read(spark, cluster, topic)
    assert sorted(int(bytes(row.value)) for row in rows_read) == list(range(200))
    found = {int(bytes(row.value)): row.partition for row in rows_read}
    assert {found[number] for number in range(0, 200, 5)} == {65536}  # the first partition of broker 1


def test_a_broker_that_is_stopped_and_started_costs_no_row(spark: SparkSession, cluster: Both, topic: str) -> None:
    def end(name: str) -> int:
        with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA07) as broker:
            return broker.get_offsets_before(topic, name, LATEST)[0]

    def restart() -> None:
        wait_until(lambda: end("0-0") > 0, 60, "the first rows")
        cluster.stop(0)
        cluster.start(0)

    rows = spark.range(100_000, numPartitions=2).selectExpr(
        "string(id) as value", "if(id % 1000 = 0, java_method('java.lang.Thread', 'sleep', 60L), '') as slow"
    ).where("slow is not null").select("value")  # fmt: skip
    restarter = threading.Thread(target=restart)
    restarter.start()
    try:
        write(rows, cluster, topic).save()
    finally:
        restarter.join(120)
    assert not restarter.is_alive()
    assert {int(bytes(row.value)) for row in read(spark, cluster, topic)} == set(range(100_000))
