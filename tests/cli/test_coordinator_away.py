"""A group whose coordinator does not answer: streams, and `zkconsumer consume`, end in time and say why."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from tests.cli.command_line import Running, run
from zkconsumer import BrokersSilent, ConsumerConfig, ConsumerConnector, CoordinatorSilent
from zkconsumer.testing import EmbeddedCluster, Fault, KafkaCluster, load, wait_until

TOPIC = "clicks"
NOT_AVAILABLE = 15
MUCH_S = 25.0
"""Less than a rebalance and its time-out, and generous beside the five seconds that are asked for."""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(1, generation="3.9", zookeeper=False, settings=settings) as running:
        running.create_topic(TOPIC, 1)
        load(running, TOPIC, 10)
        yield running


def address(cluster: EmbeddedCluster) -> str:
    return f"127.0.0.1:{cluster.port(0)}"


def group() -> str:
    return f"g-{uuid.uuid4().hex}"


def consume(cluster: EmbeddedCluster, *options: str) -> list[str]:
    return ["consume", "--bootstrap-server", address(cluster), "--topic", TOPIC, "--group", group(), *options]


def test_streams_are_refused_with_the_reason(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault.error(NOT_AVAILABLE, "consumer_metadata"), times=None)
    config = ConsumerConfig(bootstrap_servers=address(cluster), group_id="billing", socket_timeout_ms=1000)
    began = time.monotonic()
    with ConsumerConnector(config) as connector, pytest.raises(CoordinatorSilent) as raised:
        connector.create_message_streams({TOPIC: 1})
    assert time.monotonic() - began < MUCH_S
    assert isinstance(raised.value, BrokersSilent)
    assert (raised.value.group, str(NOT_AVAILABLE) in str(raised.value)) == ("billing", True)


def test_streams_are_created_as_soon_as_it_answers(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault.error(NOT_AVAILABLE, "consumer_metadata"), times=3)
    config = ConsumerConfig(bootstrap_servers=address(cluster), group_id=group(), auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
        assert next(stream).offset == 0
        assert not [warning for warning in connector.status().warnings if "coordinator" in warning]


def test_a_command_with_a_time_out_ends_at_it(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault.error(NOT_AVAILABLE, "consumer_metadata"), times=None)
    began = time.monotonic()
    done = run(*consume(cluster, "--timeout-ms", "5000"))
    assert time.monotonic() - began < MUCH_S
    assert done.returncode == 1
    assert b"the coordinator of group" in done.stderr
    assert b"does not report the coordinator" in done.stderr


def test_a_command_without_a_time_out_says_why_nothing_comes(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault.error(NOT_AVAILABLE, "consumer_metadata"), times=None)
    with Running(*consume(cluster, "--count", "1", "--property", "socket.timeout.ms=4000")) as running:
        wait_until(lambda: "does not report the coordinator" in running.errors(), MUCH_S, "the reason",
                   state=running.errors)  # fmt: skip
        wait_until(lambda: running.process.poll() is not None, MUCH_S, "the end", state=running.errors)
        assert running.process.returncode == 1


def test_a_command_whose_coordinator_goes_away_is_not_done(cluster: EmbeddedCluster) -> None:
    options = ("--from-beginning", "--timeout-ms", "4000", "--property", "session.timeout.ms=1500",
               "--property", "heartbeat.interval.ms=300")  # fmt: skip
    with Running(*consume(cluster, *options)) as running:
        running.wait_lines(10)
        cluster.faults.add(Fault.error(NOT_AVAILABLE, "consumer_metadata"), times=None)
        cluster.faults.add(Fault.close("heartbeat"), times=None)
        wait_until(lambda: running.process.poll() is not None, MUCH_S, "the end", state=running.errors)
        assert running.process.returncode == 1
        assert "does not answer" in running.errors()


@pytest.mark.real
@pytest.mark.parametrize("version", ["0.8.2.2", pytest.param("0.8.1.1", marks=pytest.mark.slow)])
def test_a_cluster_of_08_without_topics_says_that_it_coordinates_no_groups(version: str) -> None:
    with KafkaCluster(version) as cluster:
        done = run("consume", "--bootstrap-server", cluster.broker_list, "--topic", TOPIC, "--group", group(),
                   "--timeout-ms", "5000")  # fmt: skip
    assert done.returncode == 1
    assert b"coordinates no groups" in done.stderr
