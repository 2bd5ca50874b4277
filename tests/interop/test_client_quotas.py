"""Consumers under the quotas of real brokers: slower, and nothing else.

1.1.1 holds answers back; 3.9.2 and 4.3.1 answer at once, and read nothing for a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from client_quotas import set_quota

from simpleconsumer import KAFKA011, SimpleConsumer
from zkconsumer import KafkaConsumer, read_topic
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]
VALUES = [b"%04d" % number + b"x" * 996 for number in range(600)]


@pytest.fixture(scope="module", params=["1.1.1", "3.9.2", "4.3.1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param) as started:
        for number in range(0, len(VALUES), 20):
            started.produce("t", VALUES[number : number + 20], partitions=1)
        set_quota(started, "slow", consumer_byte_rate=40_000)
        set_quota(started, "very-slow", consumer_byte_rate=20_000)
        set_quota(started, "busy", request_percentage=1.0)
        yield started


def consumer_of(cluster: KafkaCluster, client_id: str, **settings: object) -> KafkaConsumer:
    return KafkaConsumer(
        "t", bootstrap_servers=cluster.broker_list, client_id=client_id, group_id=f"g-{time.monotonic_ns()}",
        auto_offset_reset="earliest", **settings,
    )  # fmt: skip


def polled(consumer: KafkaConsumer, timeout_s: float) -> list[bytes | None]:
    found: list[bytes | None] = []
    end = time.monotonic() + timeout_s
    while len(found) < len(VALUES) and time.monotonic() < end:
        found += [record.value for record in consumer.poll(500)]
    return found


def is_in_force(cluster: KafkaCluster, client_id: str) -> bool:
    with SimpleConsumer("127.0.0.1", cluster.port(0), client_id=client_id, timeout_s=60, dialect=KAFKA011) as broker:
        seen: list[object] = []
        broker.report_throttles(seen.append)
        broker.fetch("t", 0, 0, max_bytes=500_000)
        broker.topic_metadata(["t"])
        return bool(seen)


def test_a_consumer_under_a_byte_quota_reads_all_at_its_rate(
    cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    wait_until(lambda: is_in_force(cluster, "slow"), 60, "the quota")
    caplog.clear()
    with consumer_of(cluster, "slow", request_timeout_ms=20_000) as consumer:
        started = time.monotonic()
        assert polled(consumer, 90) == VALUES
        seconds, figures = time.monotonic() - started, consumer.metrics()
    print(cluster.version, f"{seconds:.1f} s", figures)
    assert figures["throttled.fetch"] >= 1
    assert not [name for name in figures if name.startswith("errors.")]
    assert figures["requests.metadata"] < 15
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_consumer_whose_first_fetch_takes_longer_than_its_time_out_goes_on(cluster: KafkaCluster) -> None:
    """At 20 kB/s the first fetch alone, of 600 kB, is held back for 20 s and more by 1.1.1; the time-out is 5 s."""
    with consumer_of(cluster, "very-slow", request_timeout_ms=11_000) as consumer:
        started = time.monotonic()
        found = polled(consumer, 120)
        figures = consumer.metrics()
        print(cluster.version, len(found), f"{time.monotonic() - started:.1f} s", figures)
        assert found == VALUES
    assert not [name for name in figures if name.startswith("errors.")]


def test_a_consumer_under_a_request_quota_reads_all(cluster: KafkaCluster) -> None:
    wait_until(lambda: is_in_force(cluster, "busy"), 60, "the quota")
    with consumer_of(cluster, "busy") as consumer:
        assert polled(consumer, 60) == VALUES
        consumer.commit_sync()
        end = time.monotonic() + 60
        while not any(name.startswith("throttled.") for name in consumer.metrics()) and time.monotonic() < end:
            consumer.seek_to_beginning()
            consumer.poll(200)
        figures = consumer.metrics()
    print(cluster.version, figures)
    assert any(name.startswith("throttled.") for name in figures)
    assert not [name for name in figures if name.startswith("errors.")]


def test_a_simple_consumer_and_a_reader_without_a_group_read_all(cluster: KafkaCluster) -> None:
    with SimpleConsumer("127.0.0.1", cluster.port(0), client_id="slow", timeout_s=60, dialect=KAFKA011) as broker:
        found: list[bytes | None] = []
        while len(found) < len(VALUES):
            found += [message.value for message in broker.fetch("t", 0, len(found), max_bytes=300_000)]
        assert broker.connects == 1
    assert found == VALUES
    given = {"bootstrap.servers": cluster.broker_list, "client.id": "slow"}
    with read_topic(None, "t", properties=given, stall_timeout_s=5) as reader:
        assert [message.value for message in reader] == VALUES
