"""What brokers refuse members of their groups, as errors that name the setting; the other members are not harmed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from broker_groups import Running, config, wait_owned, wait_shares
from polling import consumer_of

from rebalance.brokers.assignor import RangeAssignor, RebalanceProtocol, Subscriptions
from rebalance.brokers.consumer_protocol import Assignment
from rebalance.brokers.leading import AssignmentRefused
from rebalance.errors import GroupRefused
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.cluster.metadata_reader import BrokersSilent
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
VERSIONS = ["4.3.1", *(pytest.param(version, marks=pytest.mark.slow)
                       for version in ("0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2", "3.9.2"))]  # fmt: skip
AT_ONCE_S = 15.0
"""Generous for an answer that waits for nothing, and less than a rebalance or a session lasts."""


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """Two partitions."""
    name = fresh_topic()
    cluster.create_topic(name, 2)
    return name


def refused(settings: ConsumerConfig, topic: str) -> Exception:
    """What the creation of the streams raises, soon."""
    began = time.monotonic()
    with ConsumerConnector(settings) as connector, pytest.raises(Exception) as raised:
        connector.create_message_streams({topic: 1})
    assert time.monotonic() - began < AT_ONCE_S
    return raised.value


def test_a_session_time_out_that_the_broker_does_not_allow(cluster: KafkaCluster, fresh_group: str, topic: str) -> None:
    error = refused(config(cluster, fresh_group, session_timeout_ms=400, heartbeat_interval_ms=100), topic)
    assert isinstance(error, GroupRefused)
    assert "session.timeout.ms is 400" in str(error)
    assert "group.min.session.timeout.ms" in str(error)


def test_no_assignor_in_common_leaves_the_group_unharmed(cluster: KafkaCluster, fresh_group: str, topic: str) -> None:
    with Running(cluster, fresh_group, topic) as a:
        error = refused(config(cluster, fresh_group, partition_assignment_strategy="sticky"), topic)
        assert isinstance(error, GroupRefused)
        assert "partition.assignment.strategy (sticky)" in str(error)
        wait_owned(a, [(topic, 0), (topic, 1)])
        assert a.told.all("lost") == []


def test_brokers_that_do_not_answer_are_named(fresh_group: str, unused_port: int) -> None:
    settings = ConsumerConfig(bootstrap_servers=f"127.0.0.1:{unused_port}", group_id=fresh_group)
    error = refused(settings, "clicks")
    assert isinstance(error, BrokersSilent)
    assert f"127.0.0.1:{unused_port}" in str(error)


@pytest.fixture
def unused_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def test_of_two_members_with_one_instance_id_the_older_one_fails_and_says_why(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    if version_tuple(cluster.version) < (2, 3):
        error = refused(config(cluster, fresh_group, group_instance_id="one"), topic)
        assert isinstance(error, GroupRefused)
        assert "group.instance.id" in str(error)
        assert "2.3" in str(error)
        return
    with (
        Running(cluster, fresh_group, topic, group_instance_id="one") as older,
        Running(cluster, fresh_group, topic, group_instance_id="one") as newer,
    ):
        wait_until(lambda: older.connector.status().error is not None, AT_ONCE_S, "the older one to be told")
        assert "group.instance.id, 'one'" in str(older.connector.status().error)
        wait_until(lambda: older.reader.errors, AT_ONCE_S, "its stream to raise")
        assert isinstance(older.reader.errors[0], GroupRefused)
        wait_owned(newer, [(topic, 0), (topic, 1)])


def test_a_polled_member_that_is_fenced_says_so_to_commits_as_well(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    if version_tuple(cluster.version) < (2, 3):
        pytest.skip("static members need Kafka 2.3")
    with consumer_of(cluster, fresh_group, topic, group_instance_id="one") as older:
        wait_until(lambda: older.poll(50) is not None and older.assignment(), AT_ONCE_S, "its partitions", interval_s=0)
        with Running(cluster, fresh_group, topic, group_instance_id="one") as newer:
            wait_owned(newer, [(topic, 0), (topic, 1)])
            with pytest.raises(GroupRefused, match=r"group.instance.id, 'one'"):
                wait_until(lambda: older.poll(50) is None, AT_ONCE_S, "an error", interval_s=0)
            for commit in (older.commit_sync, older.commit_async):
                with pytest.raises(GroupRefused):
                    commit()


class Raises(RangeAssignor):
    """An assignor with a bug."""

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> Mapping[str, Sequence[tuple[str, int]]]:
        raise ZeroDivisionError("no members")


def test_a_leader_whose_assignor_raises_fails_at_once_and_leaves_the_group_to_the_others(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    error = refused(config(cluster, fresh_group, partition_assignment_strategy=(Raises(),)), topic)
    assert isinstance(error, AssignmentRefused)
    assert "ZeroDivisionError" in str(error)
    began = time.monotonic()
    with Running(cluster, fresh_group, topic) as other:
        wait_owned(other, [(topic, 0), (topic, 1)], timeout_s=AT_ONCE_S)
    assert time.monotonic() - began < AT_ONCE_S, "the one that failed has left; nobody waits for its session"


class RaisesOnceShared(RangeAssignor):
    """An assignor that works for one member alone."""

    supported_protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> Mapping[str, Sequence[tuple[str, int]]]:
        if len(subscriptions) > 1:
            raise ZeroDivisionError("too many members")
        return super().assign(partitions_per_topic, subscriptions)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        pass


def test_a_leader_that_fails_later_raises_in_its_streams_and_the_others_go_on_without_it(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    strategy: Any = (RaisesOnceShared(),)
    with Running(cluster, fresh_group, topic, partition_assignment_strategy=strategy) as leader:
        wait_owned(leader, [(topic, 0), (topic, 1)])
        with Running(cluster, fresh_group, topic) as other:
            wait_shares([other], 2, timeout_s=AT_ONCE_S)
            wait_until(lambda: leader.reader.errors, AT_ONCE_S, "its stream to raise")
            assert isinstance(leader.reader.errors[0], AssignmentRefused)
            assert leader.connector.status().error is not None
