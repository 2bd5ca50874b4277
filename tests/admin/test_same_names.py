"""What `verify` says about a group in ZooKeeper when brokers coordinate one of the same name."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator

import pytest

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaConsumer
from zkconsumer.admin import Admin, Verification
from zkconsumer.admin.groups.broker_group_report import CLASSIC, CoordinatedGroup, CoordinatedMember
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.verify.broker_group_findings import same_name_findings
from zkconsumer.admin.verify.findings import Finding
from zkconsumer.testing import EmbeddedCluster, load

PATIENCE_MS = 20_000
NODES = GroupNodes(
    group="g",
    registrations={"g_ann": b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'},
    owners={},
    offsets={},
    known_topics=("clicks", "views"),
    topics={"clicks": b'{"version":1,"partitions":{"0":[0]}}', "views": b'{"version":1,"partitions":{"0":[0]}}'},
)


def of_brokers(*topics: str, state: str = "Stable") -> CoordinatedGroup:
    assigned = tuple(TopicPartition(topic, 0) for topic in topics) if state == "Stable" else ()
    member = CoordinatedMember("m-1", None, "app", "10.0.0.7", topics if assigned else None, None, assigned)
    return CoordinatedGroup("g", state, "consumer", CLASSIC, "range", Broker(1, "b1", 9092), (member,))


def found(nodes: GroupNodes, other: CoordinatedGroup | None) -> Finding | None:
    findings = list(same_name_findings(nodes, other))
    assert len(findings) <= 1
    return findings[0] if findings else None


def test_members_of_both_that_read_a_topic_are_a_fault_that_names_it() -> None:
    finding = found(NODES, of_brokers("clicks", "other"))
    assert finding is not None
    assert (finding.kind, finding.path, finding.fault, finding.passing) == (
        "members-of-both-kinds", "/consumers/g/ids", True, True
    )  # fmt: skip
    assert finding.sentence == (
        "brokers also coordinate a group of that name, with 1 member (m-1 of 10.0.0.7): both groups read 'clicks', "
        "so each message is delivered twice, and both groups store offsets"
    )


def test_members_that_read_other_topics_are_no_fault() -> None:
    finding = found(NODES, of_brokers("views"))
    assert finding is not None
    assert (finding.kind, finding.fault) == ("same-name", False)


def test_while_the_brokers_group_rebalances_its_topics_are_not_known() -> None:
    finding = found(NODES, of_brokers(state="PreparingRebalance"))
    assert finding is not None
    assert (finding.kind, finding.fault, finding.passing) == ("members-of-both-kinds", True, True)
    assert finding.sentence.endswith("; it is not known yet whether both read the same topics")


def test_a_group_that_has_moved_is_said_to_be_at_the_brokers() -> None:
    finding = found(dataclasses.replace(NODES, registrations={}), of_brokers("clicks"))
    assert finding is not None
    assert (finding.kind, finding.fault) == ("same-name", False)
    assert "--bootstrap-server" in finding.remedy


@pytest.mark.parametrize("other", [None, dataclasses.replace(of_brokers("clicks"), members=(), state="Empty")])
def test_without_members_there_nothing_is_said(other: CoordinatedGroup | None) -> None:
    assert found(NODES, other) is None


# -- a cluster whose brokers and whose ZooKeeper both have groups ------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation="2.8", settings={"group.min.session.timeout.ms": 100}) as running:
        yield running


def kinds(found: Verification) -> set[tuple[str, bool]]:
    return {(each.kind, each.fault) for each in found.findings if each.kind in ("members-of-both-kinds", "same-name")}


def test_the_members_of_a_move_that_was_not_finished_are_found(cluster: EmbeddedCluster) -> None:
    topic, group = f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 1)
    load(cluster, topic, 5)
    brokers = f"127.0.0.1:{cluster.port(0)}"
    with (
        Admin(cluster.zookeeper_connect) as admin,
        ConsumerConnector(ConsumerConfig(cluster.zookeeper_connect, group, auto_offset_reset="smallest")) as old,
        KafkaConsumer(topic, bootstrap_servers=brokers, group_id=group, auto_offset_reset="earliest") as new,
    ):
        [stream] = old.create_message_streams({topic: 1})[topic]
        assert [next(stream).offset for _ in range(5)] == list(range(5))
        assert kinds(admin.verify(group, patience_s=5)) == set()
        assert [record.offset for record in new.poll(PATIENCE_MS)] == list(range(5))  # each message comes twice
        both = admin.verify(group, patience_s=0)
        assert kinds(both) == {("members-of-both-kinds", True)}
        assert f"both groups read {topic!r}" in both.faults[0].sentence
        assert kinds(admin.verify(group, patience_s=0, with_logs=False)) == set()  # no broker is asked
        old.shutdown()
        assert kinds(admin.verify(group, patience_s=0)) == {("same-name", False)}
