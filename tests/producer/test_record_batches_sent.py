"""Producers send record batches to brokers of Kafka 0.11 and later: headers, zstd, times; older ones refuse by name."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import Message
from tests.cli.command_line import run
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import KeyedMessage, MessageNotSent, MessagesNotSent, Producer
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster

SLOW = pytest.mark.slow
OTHERS = ("0.11.0.3", "1.1.1", "2.8.2", "3.9.2")
WAIT_S = 60.0


@pytest.fixture(scope="module", params=["4.3.1", *(pytest.param(each, marks=SLOW) for each in OTHERS)])
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


def producer(cluster: KafkaCluster, **settings: Any) -> Producer:
    return Producer(ProducerConfig(metadata_broker_list=f"127.0.0.1:{cluster.port(min(cluster.brokers))}", **settings))


def stored(cluster: KafkaCluster, topic: str) -> list[Message]:
    with SimpleConsumer("127.0.0.1", cluster.port(min(cluster.brokers)), dialect=KAFKA011) as consumer:
        found: list[Message] = []
        while messages := consumer.fetch(topic, 0, len(found), 4_000_000):
            found += messages
    return found


def read_by_confluent(cluster: KafkaCluster, topic: str, count: int) -> list[tuple[Any, ...]]:
    address = f"127.0.0.1:{cluster.port(min(cluster.brokers))}"
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False,
                         "auto.offset.reset": "earliest"})  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[Any, ...]] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            for each in consumer.consume(count, 1.0):
                assert each.error() is None, each.error()
                found.append((each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1]))
        return found
    finally:
        consumer.close()


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.real
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_in_each_codec_is_read_back_with_headers_and_times(cluster: KafkaCluster, codec: str) -> None:
    topic = f"sent-{codec}"
    cluster.create_topic(topic, 1)
    headers = (("trace", b"\x00\x01"), ("trace", None), ("größe", b""))
    before_ms = int(time.time() * 1000)
    with producer(cluster, compression_codec=codec, producer_type="async") as made:
        if codec == "zstd" and version_tuple(cluster.version) < (2, 1):
            with pytest.raises(MessageNotSent, match=r"zstd needs brokers of Kafka 2\.1 or later"):
                made.send(topic, b"x").result(WAIT_S)
            return
        futures = [made.send(topic, b"first", key=b"k", headers=headers), made.send(topic, None, key=b"k")]
        assert [each.result(WAIT_S).offset for each in futures] == [0, 1]
        made.send_all([KeyedMessage(topic, b"key", b"with", headers=[("n", b"1")]), KeyedMessage(topic, b"without")])
        assert made.send_all([b"%d" % number * 30 for number in range(2500)], topic).sent == 2500
    after_ms = int(time.time() * 1000)
    messages = stored(cluster, topic)
    expected = [
        (b"k", b"first", headers), (b"k", None, ()), (b"key", b"with", (("n", b"1"),)), (None, b"without", ()),
        *((None, b"%d" % number * 30, ()) for number in range(2500)),
    ]  # fmt: skip
    assert [(each.key, each.value, each.headers) for each in messages] == expected
    times = [each.timestamp_ms for each in messages]
    assert all(each is not None and before_ms - 1 <= each <= after_ms + 1 for each in times)
    assert read_by_confluent(cluster, topic, len(messages)) == [
        (*row, stamp) for row, stamp in zip(expected, times, strict=True)
    ]


@pytest.mark.real
def test_the_command_sends_headers_with_every_line(cluster: KafkaCluster) -> None:
    cluster.create_topic("lines", 1)
    address = f"127.0.0.1:{cluster.port(min(cluster.brokers))}"
    done = run("produce", "--brokers", address, "--topic", "lines", "--header", "name=a=b", "--header", "empty=",
               stdin=b"a\nb\n")  # fmt: skip
    assert done.returncode == 0, done.stderr
    headers = (("name", b"a=b"), ("empty", b""))
    assert [(each.value, each.headers) for each in stored(cluster, "lines")] == [(b"a", headers), (b"b", headers)]


@pytest.mark.real
def test_the_command_sends_the_headers_of_each_line_and_behind_them_those_of_every_line(cluster: KafkaCluster) -> None:
    cluster.create_topic("parsed", 1)
    address = f"127.0.0.1:{cluster.port(min(cluster.brokers))}"
    lines = b"a:1,b:NIL\tk1\tv1\nNIL\tNIL\tv2\nnothing\nc:\xff\tk3\tNIL\n"
    done = run(
        "produce", "--bootstrap-server", address, "--topic", "parsed", "--property", "parse.headers=true", "--property",
        "parse.key=true", "--property", "null.marker=NIL", "--header", "all=x", "--partition", "0", stdin=lines,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"line 3 was not sent: it has no headers delimiter" in done.stderr
    assert [(each.key, each.value, each.headers) for each in stored(cluster, "parsed")] == [
        (b"k1", b"v1", (("a", b"1"), ("b", None), ("all", b"x"))),
        (None, b"v2", (("all", b"x"),)),
        (b"k3", None, (("c", b"\xff"), ("all", b"x"))),
    ]


@pytest.mark.real
def test_what_consume_writes_as_json_is_sent_to_another_topic_with_its_headers(cluster: KafkaCluster) -> None:
    for topic in ("original", "copy"):
        cluster.create_topic(topic, 1)
    headers = (("trace", b"\x00\xff"), ("trace", None), ("größe", "größe".encode()), ("", b""))
    with producer(cluster) as made:
        made.send_all([
            KeyedMessage("original", b"\xfe", b"with", headers=headers), KeyedMessage("original", b"k", None),
            KeyedMessage("original", None, b"headers alone", headers=headers[1:2]),
        ])  # fmt: skip
    address = f"127.0.0.1:{cluster.port(min(cluster.brokers))}"
    read = run("consume", "--bootstrap-server", address, "--topic", "original", "--until-end", "--json")
    assert read.returncode == 0, read.stderr
    done = run("produce", "--bootstrap-server", address, "--topic", "copy", "--from-json", stdin=read.stdout)
    assert done.returncode == 0, done.stderr
    first, second = stored(cluster, "original"), stored(cluster, "copy")
    assert [(each.key, each.value, each.headers) for each in first] == [
        (b"\xfe", b"with", headers), (b"k", None, ()), (None, b"headers alone", headers[1:2]),
    ]  # fmt: skip
    assert [(each.key, each.value, each.headers) for each in second] == [
        (each.key, each.value, each.headers) for each in first
    ]
    printed = run("consume", "--bootstrap-server", address, "--topic", "copy", "--until-end", "-f", "%h;")
    assert printed.stdout == b"trace=\x00\xff,trace=NULL," + "größe=größe,=;;trace=NULL;".encode()


def test_a_broker_without_headers_refuses_exactly_the_messages_that_have_some(
    embedded: EmbeddedCluster, topic: str
) -> None:
    address = f"127.0.0.1:{embedded.port(min(embedded.brokers))}"
    messages = [
        KeyedMessage(topic, b"k", b"%d" % number, partition=0, headers=[("h", b"v")] if number % 3 == 1 else None)
        for number in range(10)
    ]
    with Producer(ProducerConfig(metadata_broker_list=address)) as made:
        with pytest.raises(MessagesNotSent) as raised:
            made.send_all(messages)
        with pytest.raises(MessageNotSent, match=r"it has headers, which brokers only store from Kafka 0\.11 on"):
            made.send(messages[1])
    assert [number for number, _ in raised.value.failures] == [1, 4, 7]
    assert raised.value.sent == 7


@pytest.mark.parametrize("headers", [[("h", "text")], [(b"h", b"v")], ["h"], [("a", b"b", b"c")]])
def test_headers_of_other_types_are_refused_at_once(embedded: EmbeddedCluster, topic: str, headers: Any) -> None:
    address = f"127.0.0.1:{embedded.port(min(embedded.brokers))}"
    with Producer(ProducerConfig(metadata_broker_list=address)) as made, pytest.raises(TypeError, match="the header"):
        made.send(topic, b"v", headers=headers)
