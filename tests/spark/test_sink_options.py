"""What options and columns of the Spark sink are taken, and how wrong ones are refused."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from zkconsumer.config.tables.producer_kinds import BrokerAddress
from zkconsumer.spark.errors import ColumnsRefused, OptionRefused
from zkconsumer.spark.source import ZkConsumerSource
from zkconsumer.spark.writing.sink_options import (
    SINK_OPTIONS,
    SinkColumns,
    SinkOptions,
    find_sink_option,
    sink_columns,
    sink_options,
    sink_settings,
)
from zkconsumer.spark.writing.sink_writers import ZkBatchWriter

PLACE = {"zookeeper.connect": "zk1:2181/kafka"}
VALUE = StructType().add("value", "binary")


def options(**given: str) -> SinkOptions:
    return sink_options(sink_settings({**PLACE, **given}, is_stream=False), {})


def refusal(**given: str) -> str:
    with pytest.raises(OptionRefused) as caught:
        options(**given)
    return str(caught.value)


def writer(**given: str) -> Any:
    return ZkConsumerSource({**PLACE, "topic": "t", **given}).writer(VALUE, overwrite=False)


def test_names_are_those_of_the_producer_of_0_7_and_of_sparks_own_sink() -> None:
    found = options(**{"Kafka.Request.Required.Acks": "-1", "kafka.compression.type": "Snappy", "num.retries": "7"})
    assert (found.config.request_required_acks, found.config.compression_codec) == (-1, "snappy")
    assert found.config.message_send_max_retries == 7
    assert options(**{"kafka.acks": "all"}).config.request_required_acks == -1
    by_list = sink_options(sink_settings({"kafka.bootstrap.servers": "b1:9092,b2:9093"}, is_stream=False), {})
    assert by_list.config.metadata_broker_list == (BrokerAddress("b1", 9092), BrokerAddress("b2", 9093))


def test_defaults_are_those_of_a_task_that_waits_for_acknowledgements() -> None:
    found = options()
    assert (found.topic, found.delivery_timeout_ms, found.is_07) == (None, 120_000, False)
    config = found.config
    assert (config.request_required_acks, config.compression_codec) == (1, "none")
    assert (config.batch_num_messages, config.queue_buffering_max_messages) == (10_000, 100_000)
    assert config.message_send_max_retries * config.retry_backoff_ms >= 120_000
    slower = options(**{"retry.backoff.ms": "500", "delivery.timeout.ms": "10000"}).config
    assert slower.message_send_max_retries == 21
    assert options(**{"queue.buffering.max.messages": "500"}).config.batch_num_messages == 500
    assert options(**{"batch.num.messages": "200000"}).config.queue_buffering_max_messages == 200_000


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("tpoic", "did you mean topic?"),
        ("request.requierd.acks", "did you mean request.required.acks?"),
        ("kafka.compresion.type", "did you mean compression.codec?"),
        ("subscribe", "it is for reading; rows are written to the topic of option topic"),
        ("assign", "it is for reading"),
        ("startingOffsets", "it is for reading, and has no effect on writing"),
        ("minPartitions", "it is for reading"),
        ("path", "call save() or start() without an argument"),
        ("kafka.transactional.id", "rows are written at least once"),
        ("kafka.key.serializer", "columns key and value are bytes or text"),
        ("serializer.class", "columns key and value are bytes or text"),
        ("producer.type", "as soon as a batch is full"),
        ("linger.ms", "as soon as a batch is full"),
        ("queue.enqueue.timeout.ms", "set delivery.timeout.ms"),
        ("kafka.batch.size", "set batch.num.messages or batch.max.bytes"),
        ("kafka.topic", "no such option exists; it is called topic here"),
        ("group.id", "it is a setting of consumers"),
        ("zzz", "the options are topic, delivery.timeout.ms"),
    ],
)
def test_an_unknown_option_is_refused_by_name(given: str, means: str) -> None:
    text = refusal(**{given: "1"})
    assert text.startswith(f"option {given}: ")
    assert means in text


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"topic": "no/topic"}, "option topic: "),
        ({"kafka.acks": "2"}, "option request.required.acks: "),
        ({"acks": "1", "request.required.acks": "-1"}, "acks is also given, with another value"),
        ({"compression.codec": "zip"}, "none, gzip, snappy, lz4 or zstd"),
        ({"includeHeaders": "yes"}, "option includeHeaders: 'yes' is neither true nor false"),
        ({"enable.idempotence": "true", "acks": "1"}, "-1, because enable.idempotence is true"),
        ({"delivery.timeout.ms": "0"}, "option delivery.timeout.ms: '0' is not a whole number from 1"),
        ({"metadata.broker.list": "b:9092"}, "option zookeeper.connect: "),
        ({"metadata.broker.list": "b"}, "'b' is not host:port"),
        ({"retry.backoff.ms": "soon"}, "option retry.backoff.ms: "),
        ({"checkpointLocation": "/tmp"}, "option checkpointLocation: it is for a stream only"),
    ],
)
def test_a_wrong_value_is_refused_by_name(given: dict[str, str], means: str) -> None:
    assert means in refusal(**given)


def test_no_cluster_is_named() -> None:
    with pytest.raises(OptionRefused, match=r"option metadata\.broker\.list: .*unless zookeeper\.connect is"):
        sink_options({}, {})


def test_acks_0_is_taken_if_the_option_says_it_and_not_from_a_file(tmp_path: Path) -> None:
    old = tmp_path / "producer.properties"
    old.write_text("metadata.broker.list=b1:9092\nrequest.required.acks=0\ncompression.codec=1\nproducer.type=async\n")
    with pytest.raises(OptionRefused, match="has 0, so messages could be lost without an error; set option"):
        ZkConsumerSource({"topic": "t", "config": str(old)}).writer(VALUE, overwrite=False)
    made = ZkConsumerSource({"topic": "t", "config": str(old), "kafka.acks": "0"}).writer(VALUE, overwrite=False)
    assert isinstance(made, ZkBatchWriter)
    config = made._options.config
    assert (config.request_required_acks, config.compression_codec) == (0, "gzip")
    assert config.metadata_broker_list == (BrokerAddress("b1", 9092),)


def test_an_option_replaces_what_the_file_says_about_the_cluster(tmp_path: Path) -> None:
    old = tmp_path / "consumer.properties"
    old.write_text("zookeeper.connect=zk9:2181\ngroup.id=g\nsocket.timeout.ms=5\nzookeeper.session.timeout.ms=7000\n")
    by_list = ZkConsumerSource({"topic": "t", "config": str(old), "metadata.broker.list": "b1:9092"})
    config = by_list.writer(VALUE, overwrite=False)._options.config  # type: ignore[attr-defined]
    assert (config.zookeeper_connect, config.zookeeper_session_timeout_ms) == (None, 7000)
    of_file = ZkConsumerSource({"topic": "t", "config": str(old)}).writer(VALUE, overwrite=False)
    assert of_file._options.config.zookeeper_connect == "zk9:2181"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["zookeeper.sasl.password", "kafka.zookeeper.auth"])
def test_secrets_are_refused_as_options_and_hidden_in_what_files_bring(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionRefused, match="it holds a secret") as caught:
        ZkConsumerSource({**PLACE, "topic": "t", name: "digest:user:S3CR3T"})
    assert "S3CR3T" not in str(caught.value)
    file = tmp_path / "producer.properties"
    file.write_text("zookeeper.connect=zk1\nzookeeper.auth=digest:user:S3CR3T\n")
    file.chmod(0o600)
    made = ZkConsumerSource({"topic": "t", "config": str(file)}).writer(VALUE, overwrite=False)
    assert "S3CR3T" not in repr(made._options)  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(made))._options == made._options  # type: ignore[attr-defined]


def test_overwrite_is_refused_for_a_table_and_complete_is_taken_for_a_stream() -> None:
    source = ZkConsumerSource({**PLACE, "topic": "t"})
    with pytest.raises(OptionRefused, match=r'option mode: overwrite .*write with mode\("append"\)'):
        source.writer(VALUE, overwrite=True)
    stream = ZkConsumerSource({**PLACE, "topic": "t", "checkpointLocation": "/c", "queryName": "q"})
    assert stream.streamWriter(VALUE, overwrite=True) is not None


def test_what_reads_is_still_refused_by_the_names_of_reading() -> None:
    with pytest.raises(OptionRefused, match="did you mean startingOffsets"):
        ZkConsumerSource({**PLACE, "subscribe": "t", "statingOffsets": "latest"})
    with pytest.raises(OptionRefused, match="option topic: no such option exists; it is called subscribe here"):
        ZkConsumerSource({**PLACE, "subscribe": "t", "topic": "t"}).schema()
    with pytest.raises(OptionRefused, match=r"it is called bootstrap\.servers here"):
        ZkConsumerSource({"metadata.broker.list": "b:9092", "subscribe": "t"}).schema()


def test_every_option_is_found_by_its_name_and_has_a_meaning() -> None:
    for option in SINK_OPTIONS:
        assert find_sink_option(option.name.upper()) == option
        assert option.meaning.endswith(".")
    assert len({option.name for option in SINK_OPTIONS}) == len(SINK_OPTIONS)


# -- columns -----------------------------------------------------------------------------------------------------------


def test_columns_have_the_names_and_types_of_sparks_own_sink() -> None:
    fields = [("value", "string"), ("topic", "string"), ("key", "binary"), ("partition", "int")]
    assert sink_columns(fields, None) == SinkColumns(
        ("value", "topic", "key", "partition"), "binary", "string", True, "int"
    )
    assert not sink_columns(fields, "all").has_topic
    assert sink_columns([("value", "string collate UNICODE")], "t").value == "string"


@pytest.mark.parametrize(
    ("fields", "means"),
    [
        ([("key", "binary")], "column 'value', the bytes or text to write, is missing"),
        ([("value", "int")], "column 'value' is int, not binary or string; cast it: selectExpr"),
        ([("value", "binary"), ("key", "bigint")], "column 'key' is bigint, not binary or string"),
        ([("value", "binary"), ("partition", "bigint")], "column 'partition' is bigint, not int or string"),
        ([("value", "binary"), ("topic", "binary")], "column 'topic' is binary, not string"),
        ([("value", "binary"), ("value", "binary")], "column 'value' appears twice"),
        ([("value", "binary"), ("headers", "array<string>")], "column 'headers' is array<string>, not array<str"),
        ([("value", "binary"), ("offset", "bigint")], "column 'offset' cannot be written: brokers set it"),
        ([("value", "binary"), ("timestamp", "bigint")], "column 'timestamp' is bigint, not timestamp; cast it"),
        ([("value", "binary"), ("timestamp", "timestamp_ntz")], "column 'timestamp' is timestamp_ntz, not timestamp"),
        ([("value", "binary"), ("Key", "binary")], "a sink has no column 'Key' (did you mean 'key'?)"),
        ([("value", "binary"), ("id", "bigint")], "a sink has no column 'id' (existing columns: key, value"),
    ],
)
def test_wrong_columns_are_named_with_a_remedy(fields: list[tuple[str, str]], means: str) -> None:
    with pytest.raises(ColumnsRefused) as caught:
        sink_columns(fields, "t")
    assert means in str(caught.value)
    assert caught.value.remedy


HEADERS = ("headers", "array<struct<key:string,value:binary>>")


def test_a_column_of_headers_has_the_type_of_the_source_and_is_refused_for_kafka_07() -> None:
    assert sink_columns([("value", "binary"), HEADERS], "t").has_headers
    assert not sink_columns([("value", "binary")], "t").has_headers
    with pytest.raises(
        ColumnsRefused,
        match=r"column 'headers' cannot be written: messages of Kafka 0\.7 have no "
        r"headers",
    ):
        sink_columns([("value", "binary"), HEADERS], "t", is_07=True)


def test_a_column_of_times_is_written_and_refused_for_kafka_07() -> None:
    fields = [("value", "binary"), ("timestamp", "timestamp")]
    assert sink_columns(fields, "t").has_times
    assert not sink_columns(fields[:1], "t").has_times
    with pytest.raises(
        ColumnsRefused, match=r"column 'timestamp' cannot be written: messages of Kafka 0\.7 have no times"
    ):
        sink_columns(fields, "t", is_07=True)


def test_a_topic_has_to_be_named() -> None:
    with pytest.raises(ColumnsRefused, match="no topic is named; set option topic, or add a column 'topic'"):
        sink_columns([("value", "binary")], None)


def test_acks_0_is_logged_as_lossy(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        writer(acks="0")
    assert "messages that a broker does not accept are lost without an error" in caplog.text


@pytest.mark.parametrize("named", ["none-such", ":x", ".a:b", "json:nothing", "nowhere_at_all:f", "json:"])
def test_a_partitioner_that_is_none_is_refused_on_the_driver(named: str) -> None:
    with pytest.raises(OptionRefused, match=r"option partitioner\.class: "):
        writer(**{"partitioner.class": named})
    source = ZkConsumerSource({**PLACE, "topic": "t", "kafka.partitioner.class": named})
    with pytest.raises(OptionRefused, match=r"option partitioner\.class: "):
        source.streamWriter(VALUE, overwrite=False)
    assert isinstance(writer(**{"partitioner.class": "murmur2"}), ZkBatchWriter)
