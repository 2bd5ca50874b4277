"""One of ours and one Java member of each version in a group: the same assignment, nothing lost, nothing twice."""

from __future__ import annotations

import pytest
from consuming import member, produce, read
from kazoo.exceptions import NoNodeError

from rebalance.subscription import assign_range, assign_roundrobin
from zkconsumer.testing.kafka import KafkaCluster, kafka_versions
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]
VERSIONS = [version for version in kafka_versions() if (0, 8) <= version_tuple(version) < (2,)]
TOPICS = {"first": 5, "topic-2": 12}  # partitions; from ten on the orders of numbers and of text differ
JAVA, OURS = "group_java", "group_ours"
THREADS = {topic: [f"{name}-{number}" for name in (JAVA, OURS) for number in range(2)] for topic in TOPICS}
PATIENCE = {"rebalance.backoff.ms": 2000}  # Kafka's default


def owners(cluster: KafkaCluster) -> dict[tuple[str, int], str]:
    found = {}
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            try:
                data, _ = cluster.client.get(f"/consumers/group/owners/{topic}/{partition}")
            except NoNodeError:
                continue
            found[topic, partition] = data.decode()
    return found


def expected(strategy: str, order: str) -> dict[tuple[str, int], str]:
    partitions = {topic: range(count) for topic, count in TOPICS.items()}
    if strategy == "range":
        return assign_range(partitions, THREADS)
    return assign_roundrobin(partitions, THREADS, order)


def order_of(version: str) -> str:
    return "1.0" if version_tuple(version) >= (1,) else "0.8"


CASES = [(version, "range") for version in VERSIONS]
CASES += [(version, "roundrobin") for version in VERSIONS if version_tuple(version) >= (0, 8, 2)]


@pytest.mark.parametrize(("version", "strategy"), CASES)
def test_a_java_member_and_one_of_ours_share_alike(version: str, strategy: str) -> None:
    order = order_of(version)
    counts = dict.fromkeys(TOPICS, 2)
    settings = {**PATIENCE, "partition.assignment.strategy": strategy}
    with KafkaCluster(version) as cluster:
        for topic, partitions in TOPICS.items():
            cluster.create_topic(topic, partitions=partitions)
        with JavaMember(cluster, "group", topics=counts, consumer_id="java", settings=settings) as java:
            wait_until(lambda: len(owners(cluster)) == sum(TOPICS.values()), 30, "the Java member to own all")
            with member(
                cluster, "group", "ours", partition_assignment_strategy=strategy, roundrobin_order=order
            ) as ours:
                streams = [stream for each in ours.create_message_streams(counts).values() for stream in each]
                table = expected(strategy, order)
                wait_until(lambda: owners(cluster) == table, 30, f"owners {table}", state=lambda: owners(cluster))
                sent = {place: produce(cluster, *place, ["{}-{}".format(*place)])[0] for place in table}
                mine = [place for place, thread in table.items() if thread.startswith(OURS)]
                got = {(each.topic, each.partition): each.value.decode() for each in read(streams, len(mine))}
                assert got == {place: sent[place] for place in mine}
                there = java.wait_messages(len(table) - len(mine))
                assert {(each.topic, each.partition) for each in there} == set(table) - set(mine)
                assert len(there) == len(table) - len(mine)
            wait_until(
                lambda: (
                    {thread.rpartition("-")[0] for thread in owners(cluster).values()} == {JAVA}
                    and len(owners(cluster)) == sum(TOPICS.values())
                ),
                30,
                "the Java member to own all again",
                state=lambda: owners(cluster),
            )
            assert java.gave_up == 0
            java.stop()
            assert len(java.messages) == len(table) - len(mine)
