"""Says what becomes of the offsets in Kafka that groups have of topics that are deleted, or were.

What a broker does with them depends on its version:

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

from collections.abc import Sequence
from typing import Final

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import NotFound
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.topics.topic_brokers import json_fields
from zkconsumer.cluster.zookeeper_reads import children, read_each
from zkconsumer_error import first_few

__all__ = ["keeps_offsets_of_deleted_topics", "note_of_kept_offsets", "warnings_of_offsets", "with_kept_offsets"]

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
    """Return the sentence about offsets that are left behind when a group, or all its offsets, are deleted."""
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
        found.append(f"it is not known whether {count_of(len(unknown), 'group')} of {len(groups)} "
                     f"{'has' if len(unknown) == 1 else 'have'} offsets of it in Kafka: {reason}")
    return found
