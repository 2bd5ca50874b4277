"""Members of ours that learn the order of roundrobin from real Java members of 0.8.2.2, 0.9.0.1 and 1.1.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from consuming import member, produce, read
from kazoo.exceptions import NoNodeError

from rebalance.subscription import assign_roundrobin
from zkconsumer import ConsumerConnector
from zkconsumer.admin import Admin
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

VERSIONS = ["0.8.2.2", pytest.param("0.9.0.1", marks=pytest.mark.slow), "1.1.1"]
ONE_VERSION = ["0.8.2.2", *(pytest.param(version, marks=pytest.mark.slow) for version in ("0.9.0.1", "1.1.1"))]
"""For a test of half a minute."""
TOPICS = {"first": 5, "topic-2": 12}
"""Topics whose partitions the two orders sort differently."""
ROUNDROBIN = {"partition.assignment.strategy": "roundrobin"}
OTHER = {"0.8": "1.0", "1.0": "0.8"}
WAIT_S = 45.0


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param) as running:
        for topic, partitions in TOPICS.items():
            running.create_topic(topic, partitions=partitions)
        yield running


@pytest.fixture
def order(cluster: KafkaCluster) -> str:
    return "1.0" if cluster.version.startswith("1.") else "0.8"


def owners(cluster: KafkaCluster, group: str) -> dict[tuple[str, int], str]:
    found = {}
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            try:
                data, _ = cluster.client.get(f"/consumers/{group}/owners/{topic}/{partition}")
            except NoNodeError:
                continue
            found[topic, partition] = data.decode()
    return found


def table(group: str, names: str, order: str) -> dict[tuple[str, int], str]:
    """The owners that an order names for members with one stream for each topic."""
    threads = [f"{group}_{name}-0" for name in names.split()]
    partitions = {topic: range(count) for topic, count in TOPICS.items()}
    return assign_roundrobin(partitions, dict.fromkeys(TOPICS, threads), order)


def wait_for(cluster: KafkaCluster, group: str, expected: Mapping[tuple[str, int], str], what: str) -> None:
    wait_until(
        lambda: owners(cluster, group) == expected, WAIT_S, what,
        interval_s=0.1,  # each look is seventeen requests
        state=lambda: owners(cluster, group),
    )  # fmt: skip


def java_member(cluster: KafkaCluster, group: str, name: str = "java") -> JavaMember:
    return JavaMember(
        cluster,
        group,
        topics=dict.fromkeys(TOPICS, 1),
        consumer_id=name,
        settings=ROUNDROBIN | {"rebalance.backoff.ms": 2000},
    )


def our_member(cluster: KafkaCluster, group: str, name: str, **settings: object) -> ConsumerConnector:
    return member(cluster, group, name, partition_assignment_strategy="roundrobin", **settings)


def join(ours: ConsumerConnector) -> list:
    return [stream for each in ours.create_message_streams(dict.fromkeys(TOPICS, 1)).values() for stream in each]


def test_a_member_that_joins_java_members_takes_their_order(
    cluster: KafkaCluster, fresh_group: str, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = fresh_group
    with java_member(cluster, group) as java:
        wait_for(cluster, group, table(group, "java", order), "the Java member to own all")
        with our_member(cluster, group, "ours") as ours:
            streams = join(ours)
            wait_for(cluster, group, table(group, "java ours", order), "both to assign alike")
            sent = {
                place: produce(cluster, *place, ["{}-{} {}".format(*place, group)])[0]
                for place, owner in owners(cluster, group).items()
                if owner == f"{group}_ours-0"
            }
            got = read(streams, len(sent))
            assert sorted(message.value.decode() for message in got) == sorted(sent.values())
            named = [each for each in ours.status().warnings if "roundrobin.order is 1.0, because " in each]
            assert len(named) == (order == "1.0")
            assert ("roundrobin.order is 1.0, because " in caplog.text) == (order == "1.0")
        wait_for(cluster, group, table(group, "java", order), "the Java member to own all again")
        assert java.gave_up == 0


def test_a_java_member_that_joins_members_of_ours_is_made_way_for(
    cluster: KafkaCluster, fresh_group: str, order: str
) -> None:
    group = fresh_group
    with our_member(cluster, group, "a") as one, our_member(cluster, group, "b") as other:
        join(one)
        join(other)
        wait_for(cluster, group, table(group, "a b", "0.8"), "the members of ours to own all")
        with java_member(cluster, group) as java:
            wait_for(cluster, group, table(group, "a b java", order), "all to assign alike")
            assert java.gave_up == 0
        wait_for(cluster, group, table(group, "a b", "0.8"), "the order of 0.8 without the Java member")
        with our_member(cluster, group, "c") as third:
            join(third)
            wait_for(cluster, group, table(group, "a b c", "0.8"), "the third to assign like the others")
            assert [each.status().warnings for each in (one, other, third)] == [(), (), ()]


def test_members_that_start_together_settle(cluster: KafkaCluster, fresh_group: str, order: str) -> None:
    group = fresh_group
    java = [java_member(cluster, group, name) for name in ("j", "k")]
    for each in java:
        each.launch()
    try:
        with our_member(cluster, group, "a") as one, our_member(cluster, group, "z") as other:
            join(one)
            join(other)
            wait_for(cluster, group, table(group, "a j k z", order), "all to assign alike")
            assert [each.gave_up for each in java] == [0, 0]
    finally:
        for each in java:
            each.close()


@pytest.mark.parametrize("cluster", ONE_VERSION, indirect=True)
def test_an_explicit_setting_of_the_other_order_is_obeyed_and_named(
    cluster: KafkaCluster, fresh_group: str, order: str
) -> None:
    group = fresh_group
    settings = {"rebalance_backoff_ms": 1000, "rebalance_max_retries": 2}
    with our_member(cluster, group, "a", roundrobin_order=OTHER[order], **settings) as ours:
        join(ours)
        wait_for(cluster, group, table(group, "a", OTHER[order]), "the member of ours to own all")
        java = java_member(cluster, group)
        java.launch()  # it never gets its streams
        sentence = f"{java.id} did not claim the partitions that roundrobin.order {OTHER[order]} assigns"
        try:
            wait_until(
                lambda: any(sentence in each for each in ours.status().warnings),
                WAIT_S,
                "the warning",
                state=lambda: ours.status().warnings,
            )
            assert owners(cluster, group).keys() < table(group, "a", order).keys(), "nobody reads the rest"
            with Admin(cluster.zookeeper_connect) as admin:
                assert "order-of-java" in {finding.kind for finding in admin.verify(group, patience_s=1.0).findings}
        finally:
            java.close()
