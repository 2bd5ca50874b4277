"""What a task of the Spark sink does on brokers of every version, and when brokers fail."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import TopicPartition
from zkconsumer import read_topic
from zkconsumer.producer.partitioners import partition_082
from zkconsumer.spark.errors import RowsNotWritten
from zkconsumer.spark.writing.sink_options import SinkColumns, SinkOptions, sink_columns, sink_options, sink_settings
from zkconsumer.spark.writing.sink_writers import WrittenRows, ZkBatchWriter, write_batches
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.real
Row = tuple[bytes | None, bytes | None]
BINARY = sink_columns([("key", "binary"), ("value", "binary")], "t")
VERSIONS = ("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2")


@pytest.fixture
def cluster(embedded_clusters: Callable[[int], EmbeddedCluster]) -> EmbeddedCluster:
    return embedded_clusters(2)


def options(cluster: EmbeddedCluster | KafkaCluster, topic: str, **more: str) -> SinkOptions:
    given = {"zookeeper.connect": cluster.zookeeper_connect, "topic": topic, **more}
    return sink_options(sink_settings(given, is_stream=False), {})


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    keys, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["k", "v"])


def stored(cluster: EmbeddedCluster | KafkaCluster, topic: str, partition: int) -> list[Row]:
    leader = cluster.leader(topic, partition)
    assert leader is not None
    found: list[Row] = []
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as consumer:
        while messages := consumer.fetch(topic, partition, len(found)):
            found += [(each.key, each.value) for each in messages]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_written_to_brokers_of_every_version(version: str, fresh_topic: Callable[[], str]) -> None:
    is_old = version in ("0.8.0", "0.8.1.1")
    codecs = ("none", "gzip", "snappy") if is_old else ("none", "gzip", "snappy", "lz4")
    rows: list[Row] = [
        (b"%d" % (n % 50) if n % 4 else None, b"%d " % n + bytes(range(256)) * (n % 5)) for n in range(3000)
    ]
    if version != "0.8.0":
        rows += [(b"tombstone", None)]
    with KafkaCluster(version) as cluster:
        for codec in codecs:
            topic = fresh_topic()
            cluster.create_topic(topic, 3)
            chosen = options(cluster, topic, **{"compression.codec": codec, "acks": "-1"})
            written = write_batches(chosen, BINARY, [batch(rows[:1000]), batch(rows[1000:])])
            logs = {TopicPartition(topic, number): stored(cluster, topic, number) for number in range(3)}
            assert written == {name: len(log) for name, log in logs.items() if log}
            assert sorted((row for log in logs.values() for row in log), key=repr) == sorted(rows, key=repr)
            for name, log in logs.items():
                assert all(key is None or partition_082(key, 3) == name.partition for key, _ in log)
        if version == "0.8.0":
            with pytest.raises(RowsNotWritten, match=r"1 of 1 rows that were sent are not written.*null"):
                write_batches(chosen, BINARY, [batch([(b"tombstone", None)])])


def test_a_task_without_rows_opens_nothing() -> None:
    nowhere = sink_options(sink_settings({"zookeeper.connect": "127.0.0.1:1", "topic": "t"}, is_stream=False), {})
    assert write_batches(nowhere, BINARY, []) == {}
    assert write_batches(nowhere, BINARY, [batch([(b"k", b"v")]).slice(0, 0)]) == {}


def test_a_task_that_fails_reads_no_further_rows_and_names_the_first(
    cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            taken.append(number)
            size = 3000 if number == 2 else 10
            yield batch([(None, b"x" * 10), (None, b"x" * size)])

    with pytest.raises(RowsNotWritten, match="1 of 6 rows that were sent are not written; the first one is row 5: a "
                       f"message for {topic} was not acknowledged: it has 3000 bytes, more than"):  # fmt: skip
        write_batches(options(cluster, topic, **{"message.max.bytes": "2000"}), BINARY, batches())
    assert taken == [0, 1, 2]
    assert len(stored(cluster, topic, 0)) == 5


@pytest.mark.parametrize("kind", ["silent", "refusing"])
def test_a_task_whose_brokers_make_no_progress_fails_in_time(
    cluster: EmbeddedCluster, fresh_topic: Callable[[], str], kind: str
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    fault = Fault.delay(60, "produce", topic) if kind == "silent" else Fault.error(6, "produce", topic)
    cluster.faults.add(fault, None)
    since = time.monotonic()
    small = {"delivery.timeout.ms": "1000", "queue.buffering.max.messages": "10", "batch.num.messages": "5"}
    with pytest.raises(RowsNotWritten, match="rows that were sent are not written; the first one is row 0: ") as caught:
        write_batches(options(cluster, topic, **small), BINARY, (batch([(None, b"x")] * 5) for _ in range(1000)))
    assert 0.9 < time.monotonic() - since < 20
    assert "a retry of the task writes all its rows again" in str(caught.value)
    # Rows that wait for room are not read: the queue has ten.
    assert int(str(caught.value).partition(" of ")[2].split()[0]) <= 30


def test_reading_rows_fails_and_nothing_claims_success(
    cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch([(None, b"x")])
        raise ZeroDivisionError("in the middle")

    with pytest.raises(ZeroDivisionError, match="in the middle"):
        write_batches(options(cluster, topic), BINARY, batches())


def test_rows_go_to_kafka_07_by_the_names_of_its_partitions(fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    columns = SinkColumns(("partition", "value"), None, "string", False, "string")
    with EmbeddedCluster(2, generation="0.7") as cluster:
        cluster.produce(topic, [b"first"], partition="0-0")
        cluster.produce(topic, [b"first"], partition="1-0")
        names = pa.array(["0-0", "1-0", "1-0"])
        rows = pa.RecordBatch.from_arrays([names, pa.array(["a", "b", "c"])], names=["partition", "value"])
        assert write_batches(options(cluster, topic), columns, [rows]) == {
            TopicPartition(topic, "0-0"): 1, TopicPartition(topic, "1-0"): 2
        }  # fmt: skip
        numbers = pa.RecordBatch.from_arrays([pa.array([65536], pa.int32()), pa.array(["d"])], names=["p", "v"])
        of_source = options(cluster, topic, **{"kafka.generation": "0.7"})
        as_numbers = SinkColumns(("partition", "value"), None, "string", False, "int")
        assert write_batches(of_source, as_numbers, [numbers]) == {TopicPartition(topic, "1-0"): 1}
        keyed = [(b"key %d" % n, b"%d" % n) for n in range(20)]
        written = write_batches(options(cluster, topic, **{"compression.codec": "gzip"}), BINARY, [batch(keyed)])
        names_07 = ("0-0", "0-1", "1-0", "1-1")
        assert written == Counter(TopicPartition(topic, names_07[partition_082(key, 4)]) for key, _ in keyed)
        with pytest.raises(RowsNotWritten, match=r"row 0: a message for .* has no value: Kafka 0\.7 stores no null"):
            write_batches(options(cluster, topic), BINARY, [batch([(b"k", None)])])
        found = [(str(each.partition), each.value) for each in read_topic(cluster.zookeeper_connect, topic)]
        assert Counter(place for place, _ in found) == Counter(
            ["0-0", "1-0", "0-0", "1-0", "1-0", "1-0", *(names_07[partition_082(key, 4)] for key, _ in keyed)]
        )
        assert {("0-0", b"a"), ("1-0", b"c"), ("1-0", b"d")} <= set(found)


def test_commits_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    given = {"zookeeper.connect": "zk", "topic": "t"}
    writer = ZkBatchWriter(sink_options(sink_settings(given, is_stream=False), {}), BINARY)
    done = WrittenRows({TopicPartition("t", 0): 3, TopicPartition("t", 1): 2})
    assert done.rows == 5
    with caplog.at_level("INFO"):
        writer.commit([done, WrittenRows({TopicPartition("t", 0): 4})])
        writer.abort([None, done])
    assert "the table is written: 9 rows, t/0 7, t/1 2" in caplog.text
    assert "not written completely; 1 of its 2 tasks ended, and their rows are in the topics (5" in caplog.text
