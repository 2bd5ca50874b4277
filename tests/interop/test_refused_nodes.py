"""Whole connectors where a node of ZooKeeper may not be read: messages, log, status and the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from consuming import COUNT, member, read
from kazoo.client import KazooClient

from rebalance.zookeeper import znodes
from simpleconsumer.types import Message, TopicPartition
from tests.access_lists import unread
from zkconsumer import ConsumerConnector, ConsumerTimeout, ZooKeeperRefused
from zkconsumer.cli.describe import describe
from zkconsumer.cli.groups import groups
from zkconsumer.cli.verify import verify
from zkconsumer.cluster.registry import ClusterReader
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.testing import ClosedNodes, EmbeddedCluster, JavaMember, KafkaCluster, load, wait_until

SOON_S = 15.0
TEAM = "team:secret"
CREATOR = {"zookeeper_auth": f"digest:{TEAM}", "zookeeper_acl": "creator"}


@pytest.fixture
def closed(embedded_cluster: EmbeddedCluster) -> Iterator[ClosedNodes]:
    with ClosedNodes(embedded_cluster.zookeeper_connect) as made:
        yield made


@pytest.fixture
def group_of_team(embedded_cluster: EmbeddedCluster, fresh_group: str) -> Iterator[str]:
    """A group with nodes that others may not read. They are deleted, as other tests on the cluster read all groups."""
    yield fresh_group
    client = KazooClient(embedded_cluster.zookeeper_connect, auth_data=[("digest", TEAM)])
    client.start(SOON_S)
    client.delete(znodes.group_path(fresh_group), recursive=True)
    client.stop()
    client.close()


def warned(connector: ConsumerConnector, path: str) -> None:
    wait_until(
        lambda: any(path in warning for warning in connector.status().warnings),
        SOON_S,
        f"the status to name {path}",
        state=connector.status,
    )


def owned(connector: ConsumerConnector) -> list[tuple[str, int | str]]:
    return sorted((row.topic, row.partition) for row in connector.status().owned if row.state == "owned")


def verified(cluster: EmbeddedCluster, group: str) -> tuple[int, list[dict[str, Any]]]:
    got = CliRunner().invoke(verify, [group, "--zookeeper", cluster.zookeeper_connect, "--json", "--patience", "0"])
    assert got.exit_code in (0, 1), (got.exception, got.stderr)
    return got.exit_code, json.loads(got.stdout)["findings"]


def test_a_member_with_the_acl_creator_among_open_ones_is_named_and_stops_no_delivery(
    embedded_cluster: EmbeddedCluster, topic: str, group_of_team: str, caplog: pytest.LogCaptureFixture
) -> None:
    with member(embedded_cluster, group_of_team, "ann") as ann:
        [stream] = ann.create_message_streams({topic: 1})[topic]
        assert len(read(stream, 10)) == 10
        with member(embedded_cluster, group_of_team, "shut", **CREATOR) as shut:
            shut.create_message_streams({topic: 1})
            path = znodes.registration_path(group_of_team, f"{group_of_team}_shut")
            warned(ann, path)
            assert unread(path) in ann.status().warnings
            assert f"{group_of_team}_shut" in ann.status().registrations
            assert any(path in record.getMessage() for record in caplog.records)
            status, findings = verified(embedded_cluster, group_of_team)
            assert status == 1
            assert ("refused-node", path) in [(each["kind"], each["path"]) for each in findings]
            # All messages come: what was held is held and delivered.
            assert len(read(stream, 2 * COUNT - 10)) == 2 * COUNT - 10
            assert len(owned(ann)) == 2
            # Who comes now does not pretend that all is well.
            caplog.clear()
            with member(embedded_cluster, group_of_team, "late") as late:
                late.create_message_streams({topic: 1})
                assert owned(late) == []
                assert any(path in warning for warning in late.status().warnings)
                assert any(path in record.getMessage() for record in caplog.records)
        wait_until(lambda: not ann.status().warnings, SOON_S, "the group to go on", state=ann.status)
        load(embedded_cluster, topic, 5)
        assert len(read(stream, 10)) == 10
        assert verified(embedded_cluster, group_of_team) == (0, [])


def test_after_the_death_of_another_its_partitions_come_when_the_registration_can_be_read(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, closed: ClosedNodes
) -> None:
    with member(embedded_cluster, fresh_group, "ann") as ann:
        [stream] = ann.create_message_streams({topic: 1})[topic]
        with member(embedded_cluster, fresh_group, "bob") as bob:
            bob.create_message_streams({topic: 1})
            wait_until(lambda: len(owned(ann)) == len(owned(bob)) == 1, SOON_S, "a share for each")
            path = znodes.registration_path(fresh_group, f"{fresh_group}_stranger")
            closed.create(path, b'{"version":1,"subscription":{"other":1},"pattern":"static","timestamp":"1"}')
            warned(ann, path)
        kept = owned(ann)
        assert len(read(stream, COUNT)) == COUNT
        with pytest.raises(ConsumerTimeout):
            next(stream)
        assert owned(ann) == kept
        got = CliRunner().invoke(describe, [fresh_group, "--zookeeper", embedded_cluster.zookeeper_connect, "--json"])
        assert got.exit_code == 0, got.output
        assert unread(path) in json.loads(got.stdout)["problems"]
        closed.open(path)
        assert len(read(stream, COUNT)) == COUNT
        assert len(owned(ann)) == 2


def test_a_topic_that_may_not_be_read_is_named_and_the_other_is_delivered(
    embedded_cluster: EmbeddedCluster,
    topic: str,
    fresh_group: str,
    fresh_topic: Callable[[], str],
    closed: ClosedNodes,
) -> None:
    other = fresh_topic()
    embedded_cluster.create_topic(other, partitions=2)
    load(embedded_cluster, other, COUNT)
    path = znodes.topic_path(topic)
    closed.close(path)
    with member(embedded_cluster, fresh_group, "ann") as ann:
        streams = ann.create_message_streams({topic: 1, other: 1})
        assert {message.topic for message in read(streams[other][0], 2 * COUNT)} == {other}
        warned(ann, path)
        assert ("refused-node", path) in [
            (each["kind"], each["path"]) for each in verified(embedded_cluster, fresh_group)[1]
        ]
        closed.open(path)
        assert len(read(streams[topic][0], 2 * COUNT)) == 2 * COUNT
        wait_until(lambda: not ann.status().warnings, SOON_S, "all to be well", state=ann.status)


def test_an_offset_that_may_not_be_read_is_named_by_the_status_of_its_partition(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, closed: ClosedNodes
) -> None:
    with member(embedded_cluster, fresh_group, "first") as first:
        [stream] = first.create_message_streams({topic: 1})[topic]
        read(stream, 2 * COUNT)
    closed.close(znodes.offset_path(fresh_group, topic, 1))
    load(embedded_cluster, topic, 5)
    with member(embedded_cluster, fresh_group, "ann", zookeeper_connection_timeout_ms=2000) as ann:
        [stream] = ann.create_message_streams({topic: 1})[topic]
        assert {message.partition for message in read(stream, 5)} == {0}
        [troubled] = [row for row in ann.status().owned if row.partition == 1]
        assert troubled.error == f"its offset cannot be read: {unread(znodes.offset_path(fresh_group, topic, 1))}"
        closed.open(znodes.offset_path(fresh_group, topic, 1))
        assert [(message.partition, message.offset) for message in read(stream, 5)] == [
            (1, COUNT + number) for number in range(5)
        ]
        assert all(row.error is None for row in ann.status().owned)


@pytest.mark.embedded_cluster(brokers=2)
def test_a_broker_that_may_not_be_read_holds_up_what_it_leads_and_nothing_else(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, closed: ClosedNodes
) -> None:
    leaders = {number: embedded_cluster.leader(topic, number) for number in (0, 1)}
    assert set(leaders.values()) == {0, 1}
    hidden = next(number for number, leader in leaders.items() if leader == 1)
    path = znodes.broker_path(1)
    closed.close(path)
    settings = {"zookeeper_connection_timeout_ms": 3000}
    with member(embedded_cluster, fresh_group, "ann", **settings) as ann:
        [stream] = ann.create_message_streams({topic: 1})[topic]
        assert {message.partition for message in read(stream, COUNT)} == {1 - hidden}
        warned(ann, path)
        closed.open(path)
        assert {message.partition for message in read(stream, COUNT)} == {hidden}
        wait_until(lambda: not ann.status().warnings, SOON_S, "all to be well", state=ann.status)


def test_brokers_and_leaders_are_read_around_what_may_not_be_read_and_each_is_named_once(
    embedded_cluster: EmbeddedCluster,
    topic: str,
    fresh_topic: Callable[[], str],
    closed: ClosedNodes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = fresh_topic()
    embedded_cluster.create_topic(other, partitions=1)
    with zookeeper_connection(embedded_cluster.zookeeper_connect) as port:
        cluster = ClusterReader(port, 10.0)
        state, node = znodes.partition_state_path(topic, 0), znodes.topic_path(other)
        closed.close(state)
        closed.close(node)
        places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        for _ in range(3):
            assert set(cluster.leaders(places)) == {TopicPartition(topic, 1)}
        assert cluster.refused == {state: unread(state)}
        assert [record.getMessage() for record in caplog.records].count(f"{unread(state)}; that node is left out") == 1
        assert cluster.existing([topic, other, "nowhere"]) == {topic, other}
        closed.open(state)
        assert set(cluster.leaders(places)) == set(places)
        assert cluster.refused == {}


def test_a_list_of_brokers_that_may_not_be_read_is_said_at_the_start_and_named_later(fresh_group: str) -> None:
    with EmbeddedCluster() as cluster, ClosedNodes(cluster.zookeeper_connect) as closed:
        cluster.create_topic("clicks")
        closed.close(znodes.BROKERS)
        with (
            pytest.raises(ZooKeeperRefused, match=re.escape(unread(znodes.BROKERS))),
            member(cluster, fresh_group) as ann,
        ):
            ann.create_message_streams({"clicks": 1})
        closed.open(znodes.BROKERS)
        load(cluster, "clicks", 5)
        with member(cluster, fresh_group, zookeeper_connection_timeout_ms=2000) as ann:
            cluster.stop(0)
            [stream] = ann.create_message_streams({"clicks": 1})["clicks"]
            closed.close(znodes.BROKERS)
            warned(ann, znodes.BROKERS)
            closed.open(znodes.BROKERS)
            cluster.start(0)
            assert len(read(stream, 5)) == 5
            wait_until(lambda: not ann.status().warnings, SOON_S, "all to be well", state=ann.status)


def test_verify_without_the_right_to_read_the_members_does_not_call_the_group_empty(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, closed: ClosedNodes
) -> None:
    with member(embedded_cluster, fresh_group, "ann") as ann:
        ann.create_message_streams({topic: 1})
        closed.close(znodes.ids_path(fresh_group))
        status, findings = verified(embedded_cluster, fresh_group)
        assert status == 1
        assert [(each["kind"], each["path"]) for each in findings] == [("refused-node", znodes.ids_path(fresh_group))]


def test_a_group_that_may_not_be_read_does_not_hide_the_others(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, closed: ClosedNodes
) -> None:
    with member(embedded_cluster, fresh_group, "ann") as ann, member(embedded_cluster, f"{fresh_group}-2") as bob:
        ann.create_message_streams({topic: 1})
        bob.create_message_streams({topic: 1})
        path = znodes.ids_path(fresh_group)
        closed.close(path)
        got = CliRunner().invoke(groups, ["--zookeeper", embedded_cluster.zookeeper_connect, "--json"])
        assert got.exit_code == 0, got.output
        assert unread(path) in got.stderr
        rows = {row["group"]: row for row in json.loads(got.stdout)["groups"]}
        assert (rows[fresh_group]["member_count"], rows[fresh_group]["owned"]) == (None, 2)
        assert (rows[f"{fresh_group}-2"]["member_count"], rows[f"{fresh_group}-2"]["owned"]) == (1, 2)


def test_members_with_the_same_credentials_share_and_have_nothing_to_complain_of(
    embedded_cluster: EmbeddedCluster, topic: str, group_of_team: str
) -> None:
    with member(embedded_cluster, group_of_team, "one", **CREATOR) as one:
        one.create_message_streams({topic: 1})
        with member(embedded_cluster, group_of_team, "two", **CREATOR) as two:
            two.create_message_streams({topic: 1})
            wait_until(lambda: len(owned(one)) == len(owned(two)) == 1, SOON_S, "a share for each")
            assert one.status().warnings == two.status().warnings == ()


@pytest.mark.catalogue("A13")
def test_java_members_own_nothing_while_a_registration_may_not_be_read_and_ours_keep_what_they_have(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 4)
    load(kafka_0822, topic, 5)
    quick = {"rebalance.max.retries": 2, "rebalance.backoff.ms": 200}
    with (
        ClosedNodes(kafka_0822.zookeeper_connect) as closed,
        member(kafka_0822, fresh_group, "ann") as ann,
        JavaMember(kafka_0822, fresh_group, topics={topic: 1}, consumer_id="java", settings=quick) as java,
    ):
        [stream] = ann.create_message_streams({topic: 1})[topic]
        wait_until(lambda: len(owned(ann)) == 2 and len(java_owns(kafka_0822, java, topic)) == 2, SOON_S, "a share")
        kept = owned(ann)
        path = znodes.registration_path(fresh_group, f"{fresh_group}_stranger")
        closed.create(path, b'{"version":1,"subscription":{"other":1},"pattern":"static","timestamp":"1"}')
        wait_until(lambda: java.gave_up == 1, SOON_S, "the Java member to give up", state=java.log)
        assert java_owns(kafka_0822, java, topic) == []
        warned(ann, path)
        assert owned(ann) == kept, "nobody owns what Java let go of"
        # It hears of nothing when the node can be read again; ours take nothing that is its share.
        attempts = java.rebalance_attempts
        closed.open(path)
        wait_until(lambda: not ann.status().warnings, SOON_S, "ours to go on", state=ann.status)
        assert java.rebalance_attempts == attempts
        assert owned(ann) == kept
        # The registration's end is a change of the group.
        closed.delete(path)
        wait_until(lambda: len(java_owns(kafka_0822, java, topic)) == 2, SOON_S, "its share", state=java.log)
        load(kafka_0822, topic, 5)
        places = {(topic, partition, 5 + number) for _, partition in kept for number in range(5)}
        wait_until(lambda: places.discard(place_of(read(stream, 1)[0])) or not places, SOON_S, "ours to go on")


def place_of(message: Message) -> tuple[str, int | str, int]:
    return message.topic, message.partition, message.offset


def java_owns(cluster: KafkaCluster, java: JavaMember, topic: str) -> list[str]:
    folder = znodes.owners_path(java.group, topic)
    if not cluster.client.exists(folder):
        return []
    threads = {name: cluster.client.get(f"{folder}/{name}")[0].decode() for name in cluster.client.get_children(folder)}
    return sorted(name for name, thread in threads.items() if thread.startswith(java.id))
