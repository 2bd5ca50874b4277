"""Client quotas: brokers that throttle a reader are obeyed, and cost time alone.

The embedded brokers throttle as those of their versions do: from 2.0 on they answer at once and read no request for a
while; before, they hold the answer back. `tests/interop/test_client_quotas.py` has real quotas of real brokers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from simpleconsumer import KAFKA011, KAFKA08, ConnectionFailed, SimpleConsumer, throttling
from simpleconsumer.calls import broker_client
from simpleconsumer.errors import Throttled
from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaConsumer, read_topic
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.waiting import wait_until

VALUES = [b"%03d" % number for number in range(100)]
MUTES = ["2.8", "4.3"]
HOLDS = ["0.9", "1.1"]


def cluster_of(generation: str) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation=generation, zookeeper=False) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", VALUES, partition=0)
        yield cluster


@pytest.fixture(params=MUTES)
def muting(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    yield from cluster_of(request.param)


@pytest.fixture(params=HOLDS)
def holding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.setattr(broker_client, "_LATE_S", 0.2)  # an answer that late has the broker asked something else
    yield from cluster_of(request.param)


def consumer_of(cluster: EmbeddedCluster, **settings: object) -> KafkaConsumer:
    return KafkaConsumer(
        "t", bootstrap_servers=cluster.broker_list, group_id="g", auto_offset_reset="earliest", **settings
    )  # fmt: skip


def polled(consumer: KafkaConsumer, count: int, timeout_s: float = 20.0) -> list[bytes | None]:
    found: list[bytes | None] = []
    end = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < end:
        found += [record.value for record in consumer.poll(200)]
    return found


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# -- from 2.0 on: an answer without partitions, and a connection that is not read


def test_a_fetch_waits_as_long_as_the_broker_says_and_is_answered_then(muting: EmbeddedCluster) -> None:
    fault = muting.faults.add(Fault.throttle(0.3, api="fetch"), times=2)
    with SimpleConsumer("127.0.0.1", muting.port(0), dialect=KAFKA011) as broker:
        started = time.monotonic()
        assert [message.value for message in broker.fetch("t", 0, 0)] == VALUES
        assert time.monotonic() - started >= 0.6
        assert broker.connects == 1
    assert muting.faults.used(fault) == 2
    assert muting.faults.early_requests == 0


def test_a_fetch_that_is_throttled_beyond_its_deadline_says_so(muting: EmbeddedCluster) -> None:
    muting.faults.add(Fault.throttle(60, api="fetch"))
    with SimpleConsumer("127.0.0.1", muting.port(0), timeout_s=2, dialect=KAFKA011) as broker:
        started = time.monotonic()
        with pytest.raises(Throttled, match=r"127\.0\.0\.1:\d+: throttles this client, .*quota.* 60 s.*deadline"):
            broker.fetch("t", 0, 0)
        assert time.monotonic() - started < 10
        assert broker.throttled_s > 50
        with pytest.raises(Throttled):  # nor is anything else asked over it
            broker.topic_metadata(["t"])
        assert broker.connects == 1


def test_any_request_waits_after_an_answer_that_says_so(muting: EmbeddedCluster) -> None:
    muting.faults.add(Fault.throttle(0.3, api="offsets"))
    with SimpleConsumer("127.0.0.1", muting.port(0), dialect=KAFKA011) as broker:
        assert broker.get_offsets_before("t", 0, -1) == [100]
        assert 0 < broker.throttled_s <= 0.3
        assert broker.get_offsets_before("t", 0, -2) == [0]
        assert broker.throttled_s == 0
    assert muting.faults.early_requests == 0


def test_a_consumer_that_is_throttled_waits_keeps_its_connection_and_says_so(
    muting: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fault = muting.faults.add(Fault.throttle(0.2, api="fetch", topic="t"), times=6)
    with consumer_of(muting) as consumer:
        found = polled(consumer, 1, 0.5)
        before = consumer.metrics()["requests.metadata"]
        assert found + polled(consumer, 100) == VALUES
        assert muting.faults.used(fault) == 6
        figures = consumer.metrics()
        assert figures["throttled.fetch"] == 6
        assert figures["throttle-time-ms.fetch"] == 1200
        assert not [name for name in figures if name.startswith("errors.")]
        assert figures["requests.metadata"] <= before + 1
    assert muting.faults.early_requests == 0
    [said] = [line for line in messages(caplog) if "throttle" in line]
    assert "client.id" in said
    assert "quota" in said
    assert messages(caplog) == [said]


def test_a_partition_says_in_the_status_that_it_is_throttled(muting: EmbeddedCluster) -> None:
    muting.faults.add(Fault.throttle(30, api="fetch", topic="t"))
    config = ConsumerConfig(group_id="s", bootstrap_servers=muting.broker_list, auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({"t": 1})
        wait_until(
            lambda: "throttles" in str([owned.error for owned in connector.status().owned]), 10, "the status to say it",
            state=connector.status,
        )  # fmt: skip
        figures = connector.statistics()
        assert figures.throttled == {"fetch": 1}
        assert figures.throttle_ms == {"fetch": 30_000}
        started = time.monotonic()
    assert time.monotonic() - started < 10  # closing does not wait for the broker


def test_a_reader_without_a_group_does_not_take_a_throttle_for_a_stall(muting: EmbeddedCluster) -> None:
    muting.faults.add(Fault.throttle(4, api="fetch", topic="t"))
    given = {"bootstrap.servers": muting.broker_list}
    with read_topic(None, "t", properties=given, stall_timeout_s=2) as reader:
        assert [message.value for message in reader] == VALUES


# -- before 2.0: an answer that is held back


def test_a_fetch_is_not_given_up_while_its_broker_holds_the_answer_back(holding: EmbeddedCluster) -> None:
    """The time-out of a request is 1 s, and the broker throttles for 2.5 s: it answers other requests meanwhile."""
    fault = holding.faults.add(Fault.throttle(2.5, api="fetch", topic="t"))
    with consumer_of(holding, request_timeout_ms=1000, session_timeout_ms=6000) as consumer:
        assert polled(consumer, 100, 30) == VALUES
        figures = consumer.metrics()
    assert holding.faults.used(fault) == 1
    assert figures["throttled.fetch"] == 1
    assert 2000 <= figures["throttle-time-ms.fetch"] < 10_000
    assert not [name for name in figures if name.startswith("errors.")]


def test_a_broker_that_answers_nothing_is_not_taken_for_one_that_throttles(holding: EmbeddedCluster) -> None:
    with consumer_of(holding, request_timeout_ms=2000, session_timeout_ms=6000) as consumer:
        assert polled(consumer, 100) == VALUES
        before = consumer.metrics().get("errors.broker_connection", 0)
        holding.pause(0)
        wait_until(
            lambda: consumer.poll(100) is not None
            and consumer.metrics().get("errors.broker_connection", 0) > before, 20, "a time-out",
        )  # fmt: skip
        holding.resume(0)


def test_a_reader_without_a_group_does_not_take_an_answer_that_is_held_back_for_a_stall(
    holding: EmbeddedCluster,
) -> None:
    holding.faults.add(Fault.throttle(3, api="fetch", topic="t"))
    given = {"bootstrap.servers": holding.broker_list}
    with read_topic(None, "t", properties=given, stall_timeout_s=1.5) as reader:
        assert [message.value for message in reader] == VALUES


def test_a_simple_consumer_keeps_its_deadline_and_asks_for_less_the_next_time(holding: EmbeddedCluster) -> None:
    holding.faults.add(Fault.throttle(20, api="fetch"))
    with SimpleConsumer("127.0.0.1", holding.port(0), timeout_s=1, dialect=KAFKA08) as broker:
        with pytest.raises(ConnectionFailed, match="no answer within 1 s"):
            broker.fetch("t", 0, 0, max_bytes=100_000, version=1)
        assert broker.pace.most_bytes == 12_500
        assert [message.value for message in broker.fetch("t", 0, 0, max_bytes=100_000, version=1)] == VALUES


# -- how large an answer may be


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_answer_is_no_larger_than_fetch_max_bytes(partitions: int) -> None:
    """Also where `max.partition.fetch.bytes` is larger; the first batch comes whole."""
    with EmbeddedCluster(1, generation="2.8", zookeeper=False) as cluster:
        cluster.create_topic("t", partitions=partitions)
        for number in range(100):
            cluster.produce("t", [b"%03d" % number + b"x" * 997], partition=number % partitions)
        cluster.produce("t", [b"y" * 30_000], partition=0)
        with consumer_of(cluster, fetch_max_bytes=10_000, max_partition_fetch_bytes=1024 * 1024) as consumer:
            found = polled(consumer, 101)
            fetches = consumer.metrics()["requests.fetch"]
        assert sorted(value[:3] for value in found if value) == [*(b"%03d" % number for number in range(100)), b"yyy"]
        assert fetches >= 11


def test_partitions_for_which_a_small_answer_has_no_room_are_not_taken_for_finished() -> None:
    """After many throttled fetches an answer holds one batch: fifteen of sixteen partitions come empty each time."""
    with EmbeddedCluster(1, generation="2.8", zookeeper=False) as cluster:
        cluster.create_topic("t", partitions=16)
        for number in range(48):
            cluster.produce("t", [b"%02d" % number + b"x" * 30_000], partition=number % 16)
        cluster.faults.add(Fault.throttle(0.02, api="fetch", topic="t"), times=14)
        with read_topic(None, "t", properties={"bootstrap.servers": cluster.broker_list}) as reader:
            found = sorted(message.value[:2] for message in reader if message.value)
        assert found == [b"%02d" % number for number in range(48)]


@pytest.mark.parametrize("generation", ["0.9", "1.1"])
def test_fetches_become_smaller_after_an_answer_that_was_held_back_for_long(
    generation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers of 0.9 know no limit of an answer, but of each partition. A message that is larger comes all the same."""
    monkeypatch.setattr(throttling, "_LONG_MS", 100)
    monkeypatch.setattr(broker_client, "_LATE_S", 0.05)  # version 0, which is sent to 0.9, does not say it
    with EmbeddedCluster(1, generation=generation, zookeeper=False) as cluster:
        cluster.create_topic("t", partitions=2)
        values = [b"%03d" % number + b"x" * 997 for number in range(80)]
        for number, value in enumerate(values):
            cluster.produce("t", [value], partition=number % 2)
        cluster.produce("t", [b"z" * 9_000], partition=0)
        fault = cluster.faults.add(Fault.throttle(1.5, api="fetch", topic="t"))
        with consumer_of(cluster, max_partition_fetch_bytes=10_000, max_poll_records=1) as consumer:
            found = polled(consumer, 81)
            fetches = consumer.metrics()["requests.fetch"]
        assert sorted(value[:3] for value in found if value) == [*(value[:3] for value in values), b"zzz"]
        assert cluster.faults.used(fault) == 1
        assert fetches >= 10  # it would be six or seven
