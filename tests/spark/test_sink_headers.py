"""Headers and times of rows that a task of the Spark sink writes, and rows on brokers with TLS and SASL."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from kafka_peers import next_messages

from simpleconsumer.types import Headers, TopicPartition
from zkconsumer import read_topic
from zkconsumer.spark.errors import RowsNotWritten
from zkconsumer.spark.header_column import header_array
from zkconsumer.spark.settings_files import settings_of_files
from zkconsumer.spark.writing.sink_options import (
    SinkOptions,
    sink_columns,
    sink_options,
    sink_setting_options,
    sink_settings,
)
from zkconsumer.spark.writing.sink_writers import write_batches
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.real
PASSWORD = "secret-of-alice"
Row = tuple[bytes | None, bytes | None, Headers]
COLUMNS = sink_columns(
    [("key", "binary"), ("value", "binary"), ("headers", "array<struct<key:string,value:binary>>")], "t"
)
ROWS: list[Row] = [
    (b"k", b"v", (("n", b"1"), ("null", None), ("n", b""))),
    (None, b"no key", ()),
    (b"tombstone", None, (("naïve", bytes(range(256))),)),
    (None, None, (("", b"no name"),)),
    *((b"%d" % n, b"x" * n, (("n", b"%d" % n),) if n % 3 else ()) for n in range(500)),
]


def options(topic: str, **given: str) -> SinkOptions:
    settings = sink_settings({"topic": topic, **given}, is_stream=False)
    return sink_options(settings, settings_of_files(settings, sink_setting_options))


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    keys, values, headers = zip(*rows, strict=True)
    of_headers = header_array([each or None for each in headers])
    arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), of_headers]
    return pa.RecordBatch.from_arrays(arrays, names=["key", "value", "headers"])


def stored(topic: str, count: int, settings: dict[str, str]) -> list[Row]:
    """What confluent-kafka reads of partition 0."""
    consumer = Consumer({"group.id": topic, "auto.offset.reset": "earliest", **settings})
    try:
        consumer.subscribe([topic])
        return [(each.key(), each.value(), tuple(each.headers() or ())) for each in next_messages(consumer, count)]
    finally:
        consumer.close()


@pytest.mark.parametrize("version", ["2.8.2", "4.3.1"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_headers_are_stored_as_they_are_in_the_column(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], version: str, codec: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic)
    brokers = f"127.0.0.1:{cluster.port(0)}"
    given = {"kafka.bootstrap.servers": brokers, "kafka.compression.type": codec, "includeHeaders": "true",
             "kafka.acks": "all", "kafka.enable.idempotence": "true"}  # fmt: skip
    written = write_batches(options(topic, **given), COLUMNS, [batch(ROWS[:100]), batch(ROWS[100:])])
    assert written == {TopicPartition(topic, 0): len(ROWS)}
    assert stored(topic, len(ROWS), {"bootstrap.servers": brokers}) == ROWS


@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.2"])
def test_brokers_before_0_11_store_the_rows_without_headers_and_the_first_other_one_is_named(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], version: str
) -> None:
    cluster, topic = kafka_clusters(version, 2 if version == "0.8.2.2" else 1), fresh_topic()
    cluster.create_topic(topic)
    to_it = options(topic, **{"zookeeper.connect": cluster.zookeeper_connect})
    rows: list[Row] = [(b"k", b"plain", ()), (b"k", b"plain", ()), *ROWS[:1], (b"k", b"plain", ())]
    with pytest.raises(RowsNotWritten) as caught:
        write_batches(to_it, COLUMNS, [batch(rows)])
    assert "1 of 4 rows that were sent are not written; the first one is row 2" in str(caught.value)
    assert "it has headers, which brokers only store from Kafka 0.11 on" in str(caught.value)
    plain = [row for row in rows if not row[2]]
    assert write_batches(to_it, COLUMNS, [batch(plain)]) == {TopicPartition(topic, 0): 3}


TIMED = sink_columns([("value", "binary"), ("timestamp", "timestamp")], "t")


def timed_batch(times_ms: Sequence[int | None]) -> pa.RecordBatch:
    moments = pa.array([None if each is None else each * 1000 for each in times_ms], pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([pa.array([b"v"] * len(times_ms)), moments], names=["value", "timestamp"])


@pytest.mark.parametrize("version", ["0.10.2.2", "4.3.1"])
def test_times_are_stored_as_they_are_in_the_column_and_null_is_now(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic, config={"retention.ms": -1})
    brokers = f"127.0.0.1:{cluster.port(0)}"
    given = {"kafka.bootstrap.servers": brokers, "kafka.compression.type": "snappy"}
    before_ms = int(time.time() * 1000) - 1
    wanted = [1_500_000_000_123, None, 0, *range(10**12, 10**12 + 500)]
    written = write_batches(options(topic, **given), TIMED, [timed_batch(wanted[:2]), timed_batch(wanted[2:])])
    assert written == {TopicPartition(topic, 0): len(wanted)}
    found = [each.timestamp_ms or 0 for each in read_topic(None, topic, properties={"bootstrap.servers": brokers})]
    assert before_ms <= found[1] <= time.time() * 1000 + 1
    assert [*found[:1], None, *found[2:]] == wanted


def test_brokers_before_0_10_store_the_rows_without_times_and_the_first_other_one_is_named(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = kafka_clusters("0.8.2.2", 2), fresh_topic()
    cluster.create_topic(topic)
    to_it = options(topic, **{"zookeeper.connect": cluster.zookeeper_connect})
    with pytest.raises(RowsNotWritten, match=r"2 of 4 rows .* the first one is row 1: ") as caught:
        write_batches(to_it, TIMED, [timed_batch([None, 7, 7, None])])
    assert "it has the time 7 (timestamp_ms), but brokers only store times from Kafka 0.10 on" in str(caught.value)
    assert write_batches(to_it, TIMED, [timed_batch([None, None])]) == {TopicPartition(topic, 0): 2}


def test_an_embedded_broker_of_0_8_stores_no_headers(
    embedded_clusters: Callable[[int], EmbeddedCluster], fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = embedded_clusters(1), fresh_topic()
    cluster.create_topic(topic)
    to_it = options(topic, **{"zookeeper.connect": cluster.zookeeper_connect})
    with pytest.raises(
        RowsNotWritten,
        match=r"2 of 2 rows .* it has headers, which brokers only store from Kafka "
        r"0\.11 on",
    ):
        write_batches(to_it, COLUMNS, [batch(ROWS[:1] * 2)])


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("version", ["2.8.2", "4.3.1"])
def test_rows_go_to_a_broker_with_tls_and_sasl(
    secured_clusters: Callable[[str], KafkaCluster], fresh_topic: Callable[[], str], tmp_path: Path, version: str,
    mechanism: str,
) -> None:  # fmt: skip
    cluster, topic = secured_clusters(version), fresh_topic()
    cluster.create_topic(topic)
    authority = str(cluster.certificates.authority.certificate)
    file = tmp_path / "secured.properties"
    file.touch(0o600)
    file.write_text(f"sasl.username=alice\nsasl.password={PASSWORD}\n")
    brokers = cluster.addresses("SASL_SSL")
    to_it = options(topic, **{
        "kafka.bootstrap.servers": brokers, "config": str(file), "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism, "kafka.ssl.truststore.location": authority,
        "kafka.ssl.truststore.type": "PEM", "kafka.compression.type": "zstd",
    })  # fmt: skip
    assert PASSWORD not in repr(to_it)
    assert write_batches(to_it, COLUMNS, [batch(ROWS)]) == {TopicPartition(topic, 0): len(ROWS)}
    login = {"bootstrap.servers": brokers, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
             "sasl.username": "alice", "sasl.password": PASSWORD, "ssl.ca.location": authority}  # fmt: skip
    assert stored(topic, len(ROWS), login) == ROWS
    file.write_text("sasl.username=alice\nsasl.password=wrong-secret\n")
    with pytest.raises(RowsNotWritten) as caught:
        write_batches(options(topic, **{
            "kafka.bootstrap.servers": brokers, "config": str(file), "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism, "kafka.ssl.ca.location": authority,
        }), COLUMNS, [batch(ROWS)])  # fmt: skip
    assert "the credentials were refused" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)
