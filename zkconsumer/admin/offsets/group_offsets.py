"""Finds the stored offsets of groups that a change or an export is about.

Reads the offsets of groups in ZooKeeper and in Kafka, before they are exported, changed or deleted.

Finds the offsets that shall be deleted, and refuses those of topics that the group consumes.

Says what becomes of the offsets in Kafka that groups have of topics that are deleted, or were.

The behaviour of a broker depends on its version:

| broker | asked for them | a commit of -1 | the topic is created again |
|---|---|---|---|
| 0.8.2 | refuses: it does not know the partition | takes effect | they count again |
| 0.9.0 to 0.10.1 | names them | refused | they count again |
| from 0.10.2 on | has none: it deletes them with the topic | | |

Nothing lists the topics of which a group has offsets, so those of deleted topics are found by nobody who does not know
their names. They expire (`offsets.retention.minutes`, a day).

Source: kafka.server.KafkaApis (0.8.2.2, 0.9.0.1), KAFKA-2000 (0.10.2.0); tests/interop/test_deleted_topics.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.group_nodes import read_group, read_offsets
from zkconsumer.admin.groups.group_report import members_of
from zkconsumer.admin.groups.group_state import Name
from zkconsumer.admin.offsets.kafka_offsets import GROUPS_TIMEOUT_S, OffsetsInKafka
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER, chosen_stores
from zkconsumer.admin.topics.topic_nodes import json_fields
from zkconsumer.admin.values import GroupHasMembers, NotFound, count_of, nearest
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import children, read_each
from zkconsumer_error import first_few

_GROUP_S: Final = 0.2
"""Longest wait for the offsets of one group among many, on average."""


@dataclass(frozen=True)
class StoredOffsets:
    """The stored offsets of one group.

    Attributes:
        group: Its name.
        exists: It has a node in ZooKeeper.
        zookeeper: (topic, partition's name) -> data of the offset's node.
        kafka: (topic, partition's name) -> offset.
        kafka_unled: Partitions whose offset in Kafka is not known, as brokers do not know them: their topic is being
            deleted, or never had a leader.
        kafka_unknown: Why not all other offsets in Kafka are known, a clause; None when they are.
    """

    group: str
    exists: bool
    zookeeper: Mapping[Name, bytes]
    kafka: Mapping[Name, int] = field(default_factory=dict)
    kafka_unknown: str | None = None
    kafka_unled: frozenset[Name] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether the group is not known anywhere."""
        return not self.exists and not self.kafka

    def names(self) -> list[Name]:
        """Return the partitions with an offset in either store, by topic and number; names of Kafka 0.7 as text."""
        return sorted({*self.zookeeper, *self.kafka}, key=_place)

    def offset(self, store: str, name: Name) -> int | None:
        """Return the offset in one store, None without one.

        Raises:
            UnreadableNode: ZooKeeper holds something that is no offset.
        """
        if store == KAFKA:
            return self.kafka.get(name)
        if name not in self.zookeeper:
            return None
        return znodes.parse_offset(znodes.offset_path(self.group, *name), self.zookeeper[name])

    def differs(self, name: Name) -> bool:
        """Return whether both stores have an offset of a partition, and not the same."""
        try:
            zookeeper = self.offset(ZOOKEEPER, name)
        except UnreadableNode:
            return False
        return zookeeper is not None and self.kafka.get(name, zookeeper) != zookeeper

    def stores(self, store: str | None) -> tuple[str, ...]:
        """Return the stores in which offsets of the group are changed, as `chosen_stores`.

        Raises:
            OffsetsNotSet: The offsets in Kafka are not known, and ZooKeeper alone was not chosen.
        """
        return chosen_stores(store, self.group, bool(self.zookeeper), bool(self.kafka), self.kafka_unknown)


def _place(name: Name) -> tuple[str, bool, str]:
    topic, partition = name
    is_number = partition.isascii() and partition.isdigit()
    return topic, not is_number, partition.zfill(19) if is_number else partition


def read_stored_offsets(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, groups: Sequence[str], store: str | None = None
) -> dict[str, StoredOffsets]:
    """Return the offsets of some groups.

    Args:
        store: Read that store alone.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
        AccessRefused: An offset may not be read.
    """
    known = set(children(port, znodes.CONSUMERS) or [])
    found = {
        group: StoredOffsets(
            group, group in known, read_offsets(port, group) if group in known and store != KAFKA else {}
        )
        for group in dict.fromkeys(groups)
    }
    if store == ZOOKEEPER or not in_kafka.exists():
        return found
    # Partitions that do not exist are not asked for: a broker of 0.8.2 refuses the whole request.
    everywhere = in_kafka.all_partitions()
    # A change or an export must know all of them, however many there are.
    timeout_s = max(GROUPS_TIMEOUT_S, _GROUP_S * len(found))
    for group, answer in in_kafka.fetch_each(dict.fromkeys(found, everywhere), timeout_s).items():
        offsets = {(name.topic, str(name.partition)): at for name, at in answer.offsets.items() if at is not None}
        unled = frozenset((name.topic, str(name.partition)) for name in answer.unled)
        found[group] = dataclasses.replace(
            found[group], kafka=offsets, kafka_unknown=answer.unanswered, kafka_unled=unled
        )
    return found


def chosen_offsets(
    stored: StoredOffsets, stores: Sequence[str], topic: str | None, partitions: Sequence[int | str]
) -> list[Name]:
    """Return the partitions whose offset shall be deleted.

    Args:
        stores: The stores that are changed.
        topic: This topic alone; None: all.
        partitions: These partitions alone; all when there are none.

    Raises:
        NotFound: The group has no such offset there.
    """
    there = {ZOOKEEPER: stored.zookeeper, KAFKA: stored.kafka}
    names = [name for name in stored.names() if any(name in there[store] for store in stores)]
    where = " or ".join({ZOOKEEPER: "ZooKeeper", KAFKA: "Kafka"}[store] for store in sorted(stores, reverse=True))
    if topic is not None:
        topics = sorted({name[0] for name in names})
        names = [name for name in names if name[0] == topic]
        if not names:
            raise NotFound(
                f"group {stored.group!r} has no offset for topic {topic!r} in {where}", nearest(topic, topics, "topic")
            )
    missing = sorted(set(map(str, partitions)) - {name for _, name in names})
    if missing:
        having = ", ".join(name for _, name in names)
        raise NotFound(
            f"group {stored.group!r} has no offset of partition {', '.join(missing)} of topic {topic!r} in {where}",
            f"it has offsets for {having}",
        )
    return [name for name in names if not partitions or name[1] in set(map(str, partitions))]


def check_not_consumed(
    port: ZooKeeperPort, cluster: Cluster, zookeeper: str, group: str, topics: Collection[str]
) -> list[str]:
    """Raise if the group consumes one of the topics: its members would store the offsets again.

    An owner node of no session is a leftover: nobody works under it, and it does not prevent the deletion.

    Returns:
        A sentence about each topic with such leftovers.

    Raises:
        GroupHasMembers: Names the member, or the owner.
    """
    nodes = read_group(port, cluster, zookeeper, group, must_exist=False)
    found = members_of(nodes)
    owners = {topic for (topic, _), (_, session) in nodes.owners.items() if session}
    leftovers = {topic: name for (topic, name), (_, session) in nodes.owners.items() if not session}
    notes: list[str] = []
    for topic in sorted(topics):
        names = [
            row.consumer_id for row in found.rows
            if row.problem or found.subscriptions[row.consumer_id].matches(topic)
        ]  # fmt: skip
        if names:
            what = f"{names[0]} subscribes to {topic!r}"
            if names[0] in found.unclear:
                what = f"the subscription of {names[0]} is not known"
        elif topic in owners:
            what = f"partitions of {topic!r} have an owner"
        else:
            if topic in leftovers:
                path = znodes.owner_path(group, topic, leftovers[topic])
                notes.append(f"group {group!r}: {path} belongs to no session and does not prevent the deletion")
            continue
        raise GroupHasMembers(
            f"no offset of group {group!r} is deleted: {what}, so the offsets would be stored again",
            "stop the members of the group first",
        )
    return notes


_DELETES_THEM: Final = 4
"""Brokers from 0.10.2 on register with this version or a later one."""
_TIMEOUT_S: Final = 10.0


def keeps_offsets_of_deleted_topics(port: ZooKeeperPort, in_kafka: OffsetsInKafka) -> bool:
    """Return whether the cluster has offsets in Kafka, and a broker that keeps those of deleted topics.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
        AccessRefused: The list of brokers may not be read.
    """
    if not in_kafka.exists():
        return False
    ids = znodes.broker_ids(children(port, znodes.BROKERS) or [])
    values = read_each(port, [GetData(znodes.broker_path(each)) for each in ids]) if ids else []
    versions = [json_fields(value[0]).get("version", 1) for value in values if isinstance(value, tuple)]
    return any(isinstance(version, int) and version < _DELETES_THEM for version in versions)


def note_of_kept_offsets(group: str) -> str:
    """Return the sentence about offsets that are left over when a group, or all its offsets, are deleted."""
    return (
        f"group {group!r}: brokers before Kafka 0.10.2 keep offsets of topics that no longer exist, and do not list "
        "them; if there are such offsets, they stay until they expire (offsets.retention.minutes, a day)"
    )


def with_kept_offsets(error: NotFound, topic: str | None = None) -> NotFound:
    """Return the error about a group, or its offsets of a topic, with what cannot be seen.

    Args:
        topic: The topic, which does not exist; None: the group has no offset of any topic.
    """
    of_topic = "topics that no longer exist" if topic is None else f"topic {topic!r}, which does not exist,"
    remedy = (
        f"offsets in Kafka of {of_topic} are not found: brokers before Kafka 0.10.2 keep them and do not list them. "
        "Wait until they expire (offsets.retention.minutes, a day), or create the topic with the same partitions, "
        "delete the offsets, and delete the topic"
    )
    return NotFound(error.sentence, f"{error.remedy}; {remedy}" if error.remedy else remedy)


def warnings_of_offsets(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, topic: str, partitions: Sequence[int]
) -> list[str]:
    """Return a sentence about the groups that have offsets in Kafka of a topic that is to be deleted, if they stay.

    Groups that have a node in ZooKeeper are asked for, ten seconds at most.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    groups = children(port, znodes.CONSUMERS) or []
    if not groups or not keeps_offsets_of_deleted_topics(port, in_kafka):
        return []
    names = [TopicPartition(topic, number) for number in partitions]
    answers = in_kafka.fetch_each(dict.fromkeys(groups, names), _TIMEOUT_S)
    having = [group for group in groups if any(at is not None for at in answers[group].offsets.values())]
    found = []
    if having:
        shown = first_few(*having, rest=", ...")
        verb = "has" if len(having) == 1 else "have"
        found.append(
            f"{count_of(len(having), 'group')} {verb} offsets of it in Kafka ({shown}); brokers before Kafka 0.10.2 "
            "keep them, and members would skip messages of a topic of the same name that is created later; delete "
            f"these offsets while the topic exists: zkconsumer offsets delete GROUP --topic {topic}"
        )
    unknown = [group for group in groups if group not in having and answers[group].unknown]
    if unknown:
        reason = next(iter(answers[unknown[0]].unknown.values()))
        found.append(
            f"it is not known whether {count_of(len(unknown), 'group')} of {len(groups)} "
            f"{'has' if len(unknown) == 1 else 'have'} offsets of it in Kafka: {reason}"
        )
    return found
