"""The statistics of a producer, and the same figures as metrics of Prometheus, which docs/OPERATIONS.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.interop.scrapes import scraped
from zkconsumer.producer import MessageNotSent, MessagesNotSent, Producer, ProducerConfig
from zkconsumer.prometheus import ProducerCollector, serve
from zkconsumer.testing import EmbeddedCluster, Fault

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "OPERATIONS.md"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, zookeeper=False) as made:
        yield made


def producer(cluster: EmbeddedCluster, **settings: object) -> Producer:
    own = {"metadata.broker.list": f"127.0.0.1:{cluster.port(0)}", "retry.backoff.ms": 5}
    return Producer(ProducerConfig.from_properties({**own, **settings}))


def test_messages_batches_and_requests_are_counted(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("counted", 1)
    with producer(cluster, **{"batch.num.messages": 4}) as made:
        made.send_all([b"12345"] * 10, topic="counted")
        found = made.statistics()
    assert (found.sent_messages, found.failed_messages) == (10, 0)
    assert found.topics["counted"].sent_bytes == 50
    assert (found.batch_messages.count, found.batch_messages.total, found.batch_messages.largest) == (3, 10, 4)
    assert found.batch_messages.up_to[2] == 1
    assert found.batch_messages.up_to[5] == 3
    assert round(found.batch_messages.mean, 2) == 3.33
    requests = found.request_seconds[0]
    assert 1 <= requests.count <= 3
    assert 0 < requests.largest <= requests.total
    assert (found.waiting_messages, found.waiting_bytes, found.retried_batches) == (0, 0, 0)
    assert found.client_id == "zkconsumer-producer"
    assert json.loads(found.to_json())["topics"]["counted"]["sent_messages"] == 10


def test_failures_retries_and_repeats_are_counted(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("troubled", 1)
    with producer(cluster, **{"message.send.max.retries": 2, "message.max.bytes": 100}) as made:
        for fault in (Fault.error(6, api="produce"), Fault.wrong_correlation_id(api="produce")):
            cluster.faults.add(fault)
            made.send("troubled", b"a")
        found = made.statistics()
        assert (found.retried_batches, found.repeated_messages, found.failed_requests) == (2, 1, {0: 1})
        cluster.faults.add(Fault.error(6, api="produce", topic="troubled"), times=3)
        with pytest.raises(MessageNotSent):
            made.send("troubled", b"b")
        with pytest.raises(MessageNotSent, match="101 bytes"):
            made.send("troubled", b"x" * 101)
        found = made.statistics()
    assert (found.sent_messages, found.failed_messages) == (2, 2)


def test_what_waits_is_shown(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("waiting", 1)
    settings = {"producer.type": "async", "queue.buffering.max.ms": 60_000}
    with producer(cluster, **settings) as made:
        made.send("waiting", b"12345")
        found = made.statistics()
        assert (found.waiting_messages, found.waiting_bytes) == (1, 31)


def test_the_endpoint_has_the_figures_of_the_statistics(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("scraped", 1)
    with producer(cluster, **{"client.id": "p"}) as first, producer(cluster, **{"client.id": "p"}) as second:
        first.send("scraped", b"12345")
        with serve(first, second, port=0) as server:
            found = scraped(server.port)
    sent = frozenset({("client_id", "p"), ("topic", "scraped")})
    assert found["producer_sent_messages_total", sent] == 1
    assert found["producer_sent_bytes_total", sent] == 5
    assert found["producer_request_seconds_count", frozenset({("client_id", "p"), ("broker", "0")})] == 1
    assert found["producer_batch_messages_bucket", frozenset({("client_id", "p"), ("le", "1")})] == 1
    assert found["producer_waiting_messages", frozenset({("client_id", "p-2")})] == 0


def test_every_metric_is_documented(cluster: EmbeddedCluster) -> None:
    registry = CollectorRegistry()
    with producer(cluster) as made:
        registry.register(ProducerCollector(made))
        text = generate_latest(registry).decode()
    named = {name.removesuffix("_created") for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)}
    documented = set(re.findall(r"^\| `(zkconsumer_producer_\w+)`", OPERATIONS.read_text(), re.MULTILINE))
    assert documented == named


@pytest.mark.real
@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1", "0.8.2.2"])
def test_what_old_brokers_do_not_have_is_refused_by_name(kafka_clusters: object, version: str) -> None:
    cluster = kafka_clusters(version, 1)  # type: ignore[operator]
    cluster.create_topic("old", 1)
    address = {"metadata.broker.list": f"127.0.0.1:{cluster.port(0)}", "message.send.max.retries": 0}
    with Producer(ProducerConfig.from_properties(address)) as made:
        if version == "0.8.0":
            with pytest.raises(TypeError, match=r"Kafka 0\.8\.0, whose consumers cannot read a null"):
                made.send("old", None, key=b"k")
        else:
            assert made.send("old", None, key=b"k").result().offset == 0
    with Producer(ProducerConfig.from_properties({**address, "compression.codec": "lz4"})) as made:
        if version == "0.8.2.2":
            assert made.send_all([b"a" * 100] * 10, topic="old").sent == 10
        else:
            with pytest.raises(MessagesNotSent, match=r"Kafka 0\.8\.0 and 0\.8\.1 do not support lz4"):
                made.send_all([b"a" * 100] * 10, topic="old")
