"""One program of Spark on Kafka 4 by its brokers, with TLS and SASL, and on Kafka 0.8.2 by its ZooKeeper.

What confluent-kafka has written is read, byte for byte. The program is `examples/spark_table.py`.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from spark_jobs import ROOT

from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real
Topic = Callable[[], str]
DOCUMENT = ROOT / "docs" / "SPARK.md"
PASSWORD = "secret-of-alice"
PARTITIONS = 3
OLD = {"api.version.request": False, "broker.version.fallback": "0.8.2.2"}
Message = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def table(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """What the example makes of the options."""
    found: DataFrame = runpy.run_path(str(ROOT / "examples" / "spark_table.py"))["table"](spark, options)
    return found


def messages(has_headers: bool) -> list[Message]:
    every_byte = bytes(range(256))
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None, [("n", b"1"), ("null", None), ("n", b"")], [("naïve", every_byte)],
    ]  # fmt: skip
    return [
        (None if n % 4 == 0 else b"key %d" % (n % 9), None if n % 11 == 5 else b"%d " % n + every_byte[: n % 256],
         headers[n % 3] if has_headers else None)
        for n in range(600)
    ]  # fmt: skip


def produce(topic: str, sent: list[Message], settings: dict[str, Any]) -> None:
    """Write them with confluent-kafka, number n to partition n % PARTITIONS."""
    failed: list[object] = []
    producer = Producer({"linger.ms": 50, "acks": "all", **settings})
    for n, (key, value, headers) in enumerate(sent):
        more = {"headers": headers} if headers else {}
        producer.produce(topic, value, key, partition=n % PARTITIONS,
                         on_delivery=lambda error, _: failed.append(error) if error else None, **more)  # fmt: skip
    assert producer.flush(60) == 0
    assert failed == []


def rows(found: DataFrame) -> list[list[Message]]:
    """Key, value and headers of each partition, in the order of its offsets."""
    collected = found.select("partition", "offset", "key", "value", "headers").orderBy("partition", "offset").collect()
    parts: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    for row in collected:
        assert row.offset == len(parts[row.partition])
        headers = row.headers and [(each.key, _bytes(each.value)) for each in row.headers]
        parts[row.partition].append((_bytes(row.key), _bytes(row.value), headers))
    return parts


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def parts_of(sent: list[Message]) -> list[list[Message]]:
    return [sent[number::PARTITIONS] for number in range(PARTITIONS)]


def secrets(folder: Path, text: str) -> str:
    file = folder / "secrets.properties"
    file.touch(0o600)
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_kafka_4_is_read_over_tls_with_headers_and_zstd(
    spark: SparkSession, secured_clusters: Callable[[str], KafkaCluster], fresh_topic: Topic, tmp_path: Path,
    mechanism: str,
) -> None:  # fmt: skip
    cluster, topic, sent = secured_clusters("4.3.1"), fresh_topic(), messages(has_headers=True)
    cluster.create_topic(topic, partitions=PARTITIONS)
    authority, brokers = str(cluster.certificates.authority.certificate), cluster.addresses("SASL_SSL")
    produce(topic, sent, {
        "bootstrap.servers": brokers, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": PASSWORD, "ssl.ca.location": authority, "compression.type": "zstd",
    })  # fmt: skip
    options = {
        "kafka.bootstrap.servers": brokers, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": mechanism,
        "kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": authority,
        "config": secrets(tmp_path, f"sasl.username=alice\nsasl.password={PASSWORD}\n"), "subscribe": topic,
    }  # fmt: skip
    found = table(spark, options)
    assert rows(found) == parts_of(sent)
    assert found.where("exists(headers, each -> each.key = 'null')").count() == 200
    view = f"view_{mechanism.replace('-', '_')}"
    given = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    spark.sql(f"create temporary view {view} using zkconsumer options ({given}, 'includeHeaders' 'true')")
    assert rows(spark.table(view)) == parts_of(sent)
    spark.catalog.dropTempView(view)


@pytest.mark.parametrize("codec", ["snappy", "gzip"])
def test_kafka_0_8_2_is_read_by_the_same_program(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic, codec: str
) -> None:
    topic, sent = fresh_topic(), messages(has_headers=False)
    kafka_0822.create_topic(topic, partitions=PARTITIONS)
    brokers = ",".join(f"127.0.0.1:{kafka_0822.port(number)}" for number in range(2))
    produce(topic, sent, {"bootstrap.servers": brokers, "compression.type": codec, **OLD})
    found = table(spark, {"zookeeper.connect": kafka_0822.zookeeper_connect, "subscribe": topic})
    assert rows(found) == parts_of(sent)


def test_the_program_of_the_document_reads_both(
    spark: SparkSession, secured_clusters: Callable[[str], KafkaCluster], kafka_0822: KafkaCluster, fresh_topic: Topic,
    tmp_path: Path,
) -> None:  # fmt: skip
    new, topic = secured_clusters("4.3.1"), fresh_topic()
    for cluster in (new, kafka_0822):
        cluster.create_topic(topic, partitions=PARTITIONS)
    produce(topic, messages(has_headers=True), {"bootstrap.servers": new.addresses()})
    produce(topic, messages(has_headers=False), {"bootstrap.servers": f"127.0.0.1:{kafka_0822.port(0)}", **OLD})
    file = secrets(tmp_path, f"sasl.username=alice\nsasl.password={PASSWORD}\n")
    [program] = re.findall(r"```python\n([^`]*kafka\.bootstrap\.servers[^`]*)```", DOCUMENT.read_text(encoding="utf-8"))
    for shown, meant in (
        ("zk1:2181/kafka", kafka_0822.zookeeper_connect), ("b1:9093,b2:9093", new.addresses("SASL_SSL")),
        ("ca.pem", str(new.certificates.authority.certificate)), ("secrets.properties", file), ("clicks", topic),
    ):  # fmt: skip
        assert f'"{shown}"' in program
        program = program.replace(f'"{shown}"', repr(meant))
    names: dict[str, Any] = {}
    exec(compile(program, "docs/SPARK.md", "exec"), names)
    both = names["both"]
    assert both.count() == 1200
    assert both.where("headers is not null").count() == 400
