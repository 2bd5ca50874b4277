"""What to set here instead of options of Spark's own source and sink: each hint is taken."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.foreign_options import READING, WRITING, Foreign, hint_of
from zkconsumer.spark.options.option_table import OPTIONS, find_option, unknown_option
from zkconsumer.spark.options.options import batch_options, stream_options
from zkconsumer.spark.settings_files import with_settings_files
from zkconsumer.spark.writing.sink_options import find_sink_option, sink_options, sink_settings, unknown_sink_option

PLACE = {"zookeeper.connect": "zk1:2181/kafka"}
READ = {**PLACE, "subscribe": "clicks"}
BY_LIST = {"subscribe": "clicks", "bootstrap.servers": "b1:9092"}
VALUES = {
    "startingOffsets": "earliest", "failOnDataLoss": "false", "commitOffsets": "false", "partitioner.class": "murmur2",
    "compression.codec": "gzip", "topic": "clicks", "group.id": "lake", "subscribe": "clicks",
    "subscribePattern": "clicks.*", "fetch.wait.max.ms": "100",
}  # fmt: skip
"""Those that are no numbers; others are given one that all of them take."""
NUMBER = "2000000"


def words(text: str) -> list[str]:
    return text.split()


OF_SPARK = words("""
    assign subscribePattern subscribe startingTimestamp startingOffsetsByTimestamp startingOffsets
    endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs
    fetchOffset.numRetries groupIdPrefix fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger
    maxTriggerDelay minPartitions includeHeaders maxRecordsPerPartition startingOffsetsByTimestampStrategy
    kafka.bootstrap.servers kafka.group.id
""")
OF_CONSUMERS = words("""
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset check.crcs
    client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms enable.auto.commit
    enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    metadata.max.age.ms metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms send.buffer.bytes
    session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    value.deserializer
""")
OF_PRODUCERS = words("""
    acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms delivery.timeout.ms
    enable.idempotence enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
    retry.backoff.ms send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    transaction.timeout.ms transactional.id value.serializer
""")


def names_of(table: Iterable[Foreign]) -> list[tuple[str, Foreign]]:
    return [(name, row) for row in table for name in row.names]


@pytest.mark.parametrize(("name", "row"), names_of(READING), ids=[name for name, _ in names_of(READING)])
def test_a_hint_of_the_source_names_options_that_are_taken(name: str, row: Foreign) -> None:
    for given in (name, name.upper(), f"kafka.{name.removeprefix('kafka.')}"):
        assert find_option(given) is None, "it is an option, and needs no hint"
        assert unknown_option(given + ("x" if name.endswith(".") else "")) == f"no such option exists; {row.hint}"
    for option in row.options:
        place = BY_LIST if option == "bootstrap.servers" else READ
        place = PLACE if option.startswith("subscribe") else place
        stream_options({**place, option: VALUES.get(option, place.get(option, NUMBER))})


@pytest.mark.parametrize(("name", "row"), names_of(WRITING), ids=[name for name, _ in names_of(WRITING)])
def test_a_hint_of_the_sink_names_options_that_are_taken(name: str, row: Foreign) -> None:
    assert find_sink_option(name) is None, "it is an option, and needs no hint"
    dotted = name + ("x" if name.endswith(".") else "")
    assert unknown_sink_option(dotted) == f"no such option of a sink exists; {row.hint}"
    for option in row.options:
        sink_options(sink_settings({**PLACE, option: VALUES.get(option, NUMBER)}, is_stream=False), {})


@pytest.mark.parametrize("name", [*OF_SPARK, *(f"kafka.{name}" for name in OF_CONSUMERS)])
def test_every_name_of_sparks_source_and_of_kafkas_consumer_is_an_option_or_has_a_hint(name: str) -> None:
    assert find_option(name) is not None or hint_of(name, READING)


@pytest.mark.parametrize("name", ["topic", *(f"kafka.{name}" for name in OF_PRODUCERS)])
def test_every_name_of_kafkas_producer_is_an_option_or_has_a_hint(name: str) -> None:
    assert find_sink_option(name) is not None or hint_of(name, WRITING)


def test_settings_have_the_prefix_of_spark_if_that_is_wanted(tmp_path: Path) -> None:
    for option in OPTIONS:
        is_prefixed = find_option(f"Kafka.{option.name}") is option
        assert is_prefixed == (option.is_setting and option.name != "group.id"), option.name
    found = batch_options({"kafka.zookeeper.connect": "zk1", "subscribe": "t", "kafka.fetch.wait.max.ms": "77"})
    assert (found.config.zookeeper_connect, found.config.fetch_wait_max_ms) == ("zk1", 77)
    with pytest.raises(OptionRefused, match=r"fetch\.wait\.max\.ms is also given, with another value"):
        batch_options({**READ, "fetch.wait.max.ms": "5", "kafka.fetch.wait.max.ms": "77"})
    file = tmp_path / "consumer.properties"
    file.write_text("zookeeper.connect=zk9\nfetch.wait.max.ms=5\nisolation.level=read_uncommitted\n")
    given = {"config": str(file), "subscribe": "t", "kafka.fetch.wait.max.ms": "77", "kafka.zookeeper.connect": "zk1",
             "kafka.isolation.level": "read_committed"}  # fmt: skip
    config = batch_options(with_settings_files(given)).config
    assert (config.zookeeper_connect, config.fetch_wait_max_ms, config.isolation_level) == ("zk1", 77, "read_committed")
