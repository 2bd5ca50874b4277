"""Lists the groups of a cluster, with the stores in which each has offsets.

A group in ZooKeeper is listed if it has a node there, as each group has that ever had a member that is coordinated by
ZooKeeper. Offset managers are asked for the topics that ZooKeeper names for a group. If there are none, they are asked
for one partition of each topic, and for all partitions only of groups for which that finds no offset. Groups that
brokers coordinate are listed with them.
"""

from __future__ import annotations

import dataclasses

from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.broker_groups import BrokerGroups
from zkconsumer.admin.groups.group_nodes import read_groups
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.offsets.store_choice import ZOOKEEPER
from zkconsumer.admin.values import GroupList, count_of
from zkconsumer.cluster.zookeeper_connection import ClusterSilent


def list_groups(port: ZooKeeperPort, in_kafka: OffsetsInKafka) -> GroupList:
    """Return all groups that have a node in ZooKeeper.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    found, concerned = read_groups(port)
    if not found.groups or not in_kafka.exists():
        return found
    everywhere = in_kafka.all_partitions()
    of_topic: dict[str, list[TopicPartition]] = {}
    for name in everywhere:
        of_topic.setdefault(name.topic, []).append(name)
    wanted = {
        group: [name for topic in topics for name in of_topic.get(topic, ())] or everywhere
        for group, topics in concerned.items()
    }
    first = {topic: names[0] for topic, names in of_topic.items()}
    answers = in_kafka.fetch_each(
        {group: list(first.values()) if names is everywhere else names for group, names in wanted.items()}
    )
    without = {
        group: names for group, names in wanted.items()
        if names is everywhere and not any(offset is not None for offset in answers[group].offsets.values())
        and answers[group].unanswered is None
    }  # fmt: skip
    answers |= in_kafka.fetch_each(without)
    rows = []
    reasons: list[str] = []
    for row in found.groups:
        answer = answers[row.group]
        topics = {name.topic for name, offset in answer.offsets.items() if offset is not None}
        reason = answer.unanswered
        has_offsets = True if topics else None if reason is not None else False
        if has_offsets is None and reason is not None:
            reasons.append(reason)
        all_topics = tuple(sorted({*row.topics, *topics}))
        rows.append(dataclasses.replace(row, topics=all_topics, offsets_in_kafka=has_offsets))
    unknown = None
    if reasons:
        subject = f"{count_of(len(reasons), 'group')} of {len(rows)}"
        unknown = f"whether {subject} have offsets in Kafka is not known: {reasons[0]}"
    return dataclasses.replace(found, groups=tuple(rows), unknown=unknown)


def with_broker_groups(found: GroupList, brokers: BrokerGroups) -> GroupList:
    """Return the groups in ZooKeeper together with the groups that brokers coordinate, by name.

    A broker lists a group in ZooKeeper with offsets in Kafka as a group without members and type: it is left out.
    Groups in ZooKeeper are listed, too, where no broker answers.
    """
    names = {row.group for row in found.groups}
    try:
        listed = brokers.groups()
    except (ClusterSilent, AuthenticationFailed) as error:
        return dataclasses.replace(found, unlisted=(f"groups that brokers coordinate may be missing: {error}",))
    others = [row for row in listed.groups if row.protocol_type or row.members or row.group not in names]
    rows = sorted([*found.groups, *others], key=lambda row: (row.group, row.coordination != ZOOKEEPER))
    return dataclasses.replace(found, groups=tuple(rows), unlisted=listed.unlisted)
