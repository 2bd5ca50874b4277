"""Faults of brokers with record batches, and readers of ours: everything comes once, or the reason is named."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from zkconsumer import MessageError, read_topic
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import Producer
from zkconsumer.testing import EmbeddedCluster, Fault

GENERATIONS = ["2.8", *(pytest.param(each, marks=pytest.mark.slow) for each in ("0.11", "1.1", "3.9", "4.3"))]
COUNT = 60
VALUES = [b"message-%d" % number for number in range(COUNT)]
COMMITTED = {"isolation.level": "read_committed"}


@pytest.fixture(scope="module", params=GENERATIONS)
def clusters(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, generation=request.param, zookeeper=False) as running:
        yield running


@pytest.fixture
def cluster(clusters: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield clusters
    clusters.restore()


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    """Some batches, plain and compressed, led by broker 0."""
    name = f"faults-{uuid.uuid4().hex[:10]}"
    cluster.create_topic(name, assignment={0: [0, 1]})
    for start in range(0, COUNT, 10):
        cluster.produce(name, VALUES[start : start + 10], codec="gzip" if start % 20 else "none")
    return name


def read(cluster: EmbeddedCluster, topic: str, **settings: str) -> list[bytes | None]:
    where = {"bootstrap.servers": cluster.broker_list, **settings}
    with read_topic(None, topic, properties=where) as reader:
        return [message.value for message in reader]


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 9, 56, 74, 75, 78, 100])
def test_an_error_that_passes_costs_nothing(cluster: EmbeddedCluster, topic: str, code: int) -> None:
    fault = cluster.faults.add(Fault.error(code, api="fetch", topic=topic, partition=0), times=2)
    assert read(cluster, topic) == VALUES
    assert cluster.faults.used(fault) == 2


@pytest.mark.parametrize("api", ["fetch", "metadata", "offsets"])
@pytest.mark.parametrize(
    "fault",
    [Fault.close(), Fault.close(after_bytes=6), Fault.close(after_bytes=40), Fault.stall(0.2, after_bytes=10),
     Fault.garbage(b"\xff" * 40), Fault.wrong_correlation_id(), Fault.delay(0.2)],
    ids=lambda fault: f"{fault.kind} {fault.count_bytes or ''}".strip(),
)  # fmt: skip
def test_connections_that_break_cost_nothing(cluster: EmbeddedCluster, topic: str, api: str, fault: Fault) -> None:
    # A reader that no broker answers at its start says so; one of two may fail.
    fault = cluster.faults.add(replace(fault, api=api), times=1 if api == "metadata" else 2)
    assert read(cluster, topic) == VALUES
    assert cluster.faults.used(fault) >= 1


@pytest.mark.parametrize("count_bytes", [1, 30, 90])
def test_a_batch_that_is_cut_off_comes_whole_next_time(cluster: EmbeddedCluster, topic: str, count_bytes: int) -> None:
    fault = cluster.faults.add(Fault.cut_tail(count_bytes, topic, 0))
    assert read(cluster, topic) == VALUES
    assert cluster.faults.used(fault) == 1


@pytest.mark.parametrize("offset", [5, 15])
def test_a_wrong_checksum_is_named(cluster: EmbeddedCluster, topic: str, offset: int) -> None:
    cluster.faults.add(Fault.corrupt(topic, 0, offset=offset), times=None)
    with pytest.raises(MessageError, match=topic):
        read(cluster, topic)
    cluster.faults.clear()
    assert read(cluster, topic) == VALUES


def test_leaders_that_move_under_a_reader_cost_nothing(cluster: EmbeddedCluster, topic: str) -> None:
    with read_topic(
        None, topic, properties={"bootstrap.servers": cluster.broker_list, "fetch.message.max.bytes": "300"}
    ) as reader:
        found = []
        for number, message in enumerate(reader):
            found.append(message.value)
            if number % 20 == 10:
                cluster.move_leader(topic, 0, 1 - (cluster.leader(topic, 0) or 0))
    assert found == VALUES


def test_what_an_unclean_election_lost_is_not_waited_for(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.elect_unclean(topic, 0, 40, broker_id=1)
    assert read(cluster, topic) == VALUES[:40]
    cluster.produce(topic, [b"new"])
    assert read(cluster, topic) == [*VALUES[:40], b"new"]


def test_transactions_are_read_through_faults(cluster: EmbeddedCluster) -> None:
    topic = f"faults-{uuid.uuid4().hex[:10]}"
    cluster.create_topic(topic)
    cluster.faults.add(Fault.error(51, api="add_partitions_to_txn"), times=2)
    cluster.faults.add(Fault.close(api="end_txn"), times=2)
    config = ProducerConfig(
        bootstrap_servers=cluster.broker_list, request_required_acks=-1, producer_type="async", transactional_id=topic
    )
    with Producer(config) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send_all([b"%d-%d" % (number, each) for each in range(5)], topic)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    fault = cluster.faults.add(Fault.close(api="fetch", after_bytes=120), times=2)
    kept = [b"%d-%d" % (number, each) for number in (0, 2) for each in range(5)]
    assert read(cluster, topic, **COMMITTED) == kept
    assert cluster.faults.used(fault) == 2
    assert len(read(cluster, topic)) == 20
