"""Reads, stores and deletes the offsets that groups keep in Kafka, for administration.

Rules, and which failure each prevents:
- Without the topic `__consumer_offsets` no broker is asked: a question would create it.
- Every call has a deadline. An offset that is not known by then is unknown, which is not the same as none.
- A partition that the brokers do not know (its topic is being deleted, or never had a leader) is unknown alone: a topic
  that waits for a dead broker must not hide the offsets of all groups.
- A group is asked for by topic and partition, as brokers before 0.10.2 list nothing. All partitions of the cluster are
  asked for: ZooKeeper does not say what a group without members reads, and members may have read other topics before.

Reads the offsets in Kafka of many groups: all offset managers at the same time, each over one connection.

Rules, and which failure each prevents:
- The offset manager of a group is the leader of one partition of `__consumer_offsets`, which follows from the group's
  name: no broker has to be asked for it, which would cost a connection for each group.
- A broker that does not answer costs its time-out once, and not once for each of its groups.
- A partition that the broker does not know says nothing about the others: the rest of the request is asked for again,
  and the partition is not asked for on behalf of the next groups.
- A group that a broker refuses (it does not keep its offsets, or is still loading them) is returned, to be asked for
  again on its own.

Source: kafka.server.OffsetManager.partitionFor (0.8.2.2), GroupMetadataManager.partitionFor (1.1.1).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from rebalance.subscription import OFFSETS_TOPIC, java_string_hash
from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.admin.groups.group_nodes import group_not_found, read_group
from zkconsumer.admin.groups.group_report import unled_clause
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.topics.topic_nodes import listed_partitions, read_listed_partitions, read_topic_data
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import run_together
from zkconsumer.errors import ZkConsumerError
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetAnswer, OffsetManager, codes_of
from zkconsumer_error import ErrorCode

_PARTITIONS_A_REQUEST: Final = 1000
_MOST_THREADS: Final = 32
_LEAST_INT: Final = -(2**31)
Wanted = Mapping[str, Sequence[TopicPartition]]
Answers = dict[str, OffsetAnswer]


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that holds a group's offsets.

    >>> offsets_partition("group1", 50)
    40
    """
    number = java_string_hash(group)
    return (0 if number == _LEAST_INT else abs(number)) % partitions


def fetch_offsets_of_groups(
    cluster: Cluster, client_id: str, wanted: Wanted, timeout_s: float, deadline: float
) -> tuple[Answers, list[str]]:
    """Return the offsets of groups, and the groups that have to be asked for on their own.

    Args:
        cluster: It has the topic of offsets.
        client_id: The name under which brokers log and count the requests.
        wanted: Group -> partitions.
        timeout_s: Longest wait for one answer.
        deadline: For all, on the clock `time.monotonic`.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    count = len(cluster.partitions([OFFSETS_TOPIC]).get(OFFSETS_TOPIC, ()))
    if not count:
        return {}, list(wanted)
    places = {group: TopicPartition(OFFSETS_TOPIC, offsets_partition(group, count)) for group in wanted}
    leaders = cluster.leaders(list(dict.fromkeys(places.values())))
    answers: Answers = {}
    of_broker: dict[Broker, list[str]] = {}
    for group, place in places.items():
        if place in leaders:
            of_broker.setdefault(leaders[place], []).append(group)
        else:
            answers[group] = _unknown(wanted[group], f"no broker leads {place.topic}-{place.partition}")
    if not of_broker:
        return answers, []
    again: list[str] = []
    calls = [
        partial(
            _ask, broker, client_id, {group: wanted[group] for group in groups}, timeout_s, deadline, cluster.security
        )
        for broker, groups in of_broker.items()
    ]
    for found, refused in run_together(calls, _MOST_THREADS, "zkconsumer-offset-managers"):
        answers |= found
        again += refused
    return answers, again


def _ask(
    broker: Broker, client_id: str, wanted: Wanted, timeout_s: float, deadline: float, security: Security
) -> tuple[Answers, list[str]]:
    """Return the offsets that one broker keeps, and the groups that it refused."""
    answers: Answers = {}
    again: list[str] = []
    reason: str | None = None
    unled: dict[TopicPartition, str] = {}
    dialect = dialect_of(broker)
    with SimpleConsumer(broker.host, broker.port, timeout_s, client_id, dialect=dialect, security=security) as consumer:
        for group, names in wanted.items():
            if reason is None and time.monotonic() >= deadline:
                reason = f"its offset manager, broker {broker.id}, was not asked in time"
            if reason is not None:
                answers[group] = _unknown(names, reason)
                continue
            try:
                found = _fetch(consumer, group, names, unled)
                mine = {name: unled[name] for name in names if name in unled and name not in found}
                answers[group] = OffsetAnswer(found, mine, frozenset(mine))
            except BrokerError:
                again.append(group)
            except (SimpleConsumerError, AuthenticationFailed) as error:
                reason = f"its offset manager, broker {broker.id}: {error}"
                answers[group] = _unknown(names, reason)
    return answers, again


def _fetch(
    consumer: SimpleConsumer, group: str, names: Sequence[TopicPartition], unled: dict[TopicPartition, str]
) -> dict[TopicPartition, int | None]:
    """Return the offsets of a group.

    Args:
        unled: Partition -> why the broker does not know it; these are not asked for, and more of them are added.
    """
    found: dict[TopicPartition, int | None] = {}
    for first in range(0, len(names), _PARTITIONS_A_REQUEST):
        while asked := [name for name in names[first : first + _PARTITIONS_A_REQUEST] if name not in unled]:
            try:
                rows = consumer.fetch_offsets(group, asked, version=1)
            except BrokerError as error:
                codes = codes_of(error)
                if {*codes.values()} != {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} or not codes.keys() & set(asked):
                    raise
                unled |= {name: str(BrokerError(code, name.topic, name.partition)) for name, code in codes.items()}
                continue
            found |= {name: None if row.offset < 0 else row.offset for name, row in rows.items()}
            break
    return found


def _unknown(names: Sequence[TopicPartition], reason: str) -> OffsetAnswer:
    return OffsetAnswer({}, dict.fromkeys(names, reason))


READ_TIMEOUT_S: Final = 3.0
"""Longest wait for one offset manager: an administrator waits, and a cluster may have none just now."""
GROUPS_TIMEOUT_S: Final = 30.0
"""Longest wait for the offset managers of many groups together; one that does not answer costs three seconds."""
_WRITE_TIMEOUT_S: Final = 10.0
_BACKOFF_S: Final = 0.2
_THREADS: Final = 8


class OffsetsInKafka:
    """The offsets of groups in Kafka.

    Args:
        port: A started ZooKeeper port.
        cluster: Whose brokers are asked.
        client_id: The name under which brokers log and count the requests.

    Attributes:
        cluster: Whose brokers are asked.
    """

    def __init__(self, port: ZooKeeperPort, cluster: Cluster, client_id: str) -> None:
        self._port = port
        self.cluster = cluster
        self._client_id = client_id

    def exists(self) -> bool:
        """Return whether the cluster keeps offsets in Kafka at all."""
        return self.cluster.reader.topic_exists(OFFSETS_TOPIC)

    def all_partitions(self) -> list[TopicPartition]:
        """Return all partitions that a group could have offsets of."""
        topics = [topic for topic in self.cluster.topics() if topic != OFFSETS_TOPIC]
        return read_listed_partitions(self._port, self.cluster, topics)

    def fetch(self, group: str, names: Sequence[TopicPartition]) -> OffsetAnswer:
        """Return the stored offsets of a group; None for all in a cluster that keeps no offsets in Kafka."""
        return self.fetch_each({group: names})[group]

    def fetch_each(
        self, wanted: Mapping[str, Sequence[TopicPartition]], timeout_s: float = GROUPS_TIMEOUT_S
    ) -> dict[str, OffsetAnswer]:
        """Return the stored offsets of many groups.

        Args:
            wanted: Group -> partitions.
            timeout_s: Longest wait for all of them together, in seconds; a manager that does not answer costs three.
        """
        if not any(wanted.values()) or not self.exists():
            return {group: OffsetAnswer(dict.fromkeys(names), {}) for group, names in wanted.items()}
        if len(wanted) == 1:
            return self._fetch_singly(wanted, min(READ_TIMEOUT_S, timeout_s))
        deadline = time.monotonic() + timeout_s
        answer_s = min(READ_TIMEOUT_S, timeout_s)
        found, again = fetch_offsets_of_groups(self.cluster, self._client_id, wanted, answer_s, deadline)
        left_s = min(READ_TIMEOUT_S, max(deadline - time.monotonic(), 0.1))
        return found | self._fetch_singly({group: wanted[group] for group in again}, left_s)

    def _fetch_singly(
        self, wanted: Mapping[str, Sequence[TopicPartition]], timeout_s: float
    ) -> dict[str, OffsetAnswer]:
        """Return the offsets of groups, asking again what the managers refuse, until the time is over."""
        deadline = time.monotonic() + timeout_s
        brokers = self.cluster.brokers() if wanted else []

        def fetch_one(group: str) -> OffsetAnswer:
            names = wanted[group]
            if time.monotonic() >= deadline:
                return OffsetAnswer({}, dict.fromkeys(names, "its offset manager was not asked in time"))
            manager = self._manager(group, timeout_s, brokers)
            try:
                return manager.fetch(names, deadline)
            except ZkConsumerError as error:
                return OffsetAnswer({}, dict.fromkeys(names, str(error)))
            finally:
                manager.close()

        if len(wanted) < 2:
            return {group: fetch_one(group) for group in wanted}
        found = run_together([partial(fetch_one, group) for group in wanted], _THREADS, "zkconsumer-offset-managers")
        return dict(zip(wanted, found, strict=True))

    def store(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, str]:
        """Store offsets, or delete those that are None; return partition -> why not, a clause, for failures alone."""
        manager = self._manager(group, _WRITE_TIMEOUT_S, self.cluster.brokers())
        deadline = time.monotonic() + _WRITE_TIMEOUT_S
        kept = {name: offset for name, offset in offsets.items() if offset is not None}
        deleted = [name for name in offsets if name not in kept]
        try:
            failed = manager.commit(kept, lambda: None, deadline) if kept else {}
            return failed | (manager.forget(deleted, deadline) if deleted else {})
        finally:
            manager.close()

    def delete_group(self, group: str) -> str | None:
        """Delete what the offset manager keeps of a group; return why it is not deleted, a clause."""
        manager = self._manager(group, _WRITE_TIMEOUT_S, self.cluster.brokers())
        try:
            return manager.delete_group(time.monotonic() + _WRITE_TIMEOUT_S)
        finally:
            manager.close()

    def _manager(self, group: str, timeout_s: float, brokers: Sequence[Broker]) -> OffsetManager:
        settings = ChannelSettings(self._client_id, _BACKOFF_S, timeout_s, ends_at_deadline=True, retries_unknown=False,
                                   security=self.cluster.security)  # fmt: skip
        return OffsetManager(group, lambda: brokers, settings)


def read_group_and_kafka(port: ZooKeeperPort, zookeeper: str, store: OffsetsInKafka, group: str) -> GroupNodes:
    """Return the nodes of a group with the offsets that it has in Kafka; it may have nothing else.

    Args:
        zookeeper: The connection string, for the message of the error.

    Raises:
        NotFound: The group does not exist in ZooKeeper and has no offsets in Kafka.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    nodes = read_kafka_offsets(port, store, read_group(port, store.cluster, zookeeper, group, must_exist=False))
    if not nodes.exists and not nodes.kafka_offsets:
        raise group_not_found(port, zookeeper, group, nodes.kafka_unknown or unled_clause(nodes.kafka_unled))
    return nodes


def read_kafka_offsets(port: ZooKeeperPort, store: OffsetsInKafka, nodes: GroupNodes) -> GroupNodes:
    """Return the nodes of a group with the offsets that it has stored in Kafka.

    The group is asked for all topics, as nothing in ZooKeeper says of which it has offsets in Kafka.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    if OFFSETS_TOPIC not in nodes.known_topics or nodes.generation.has_broker_nodes:
        return nodes
    others = [topic for topic in nodes.known_topics if topic != OFFSETS_TOPIC and topic not in nodes.topics]
    topics = {**nodes.topics, **read_topic_data(port, others)}
    # Topics that the group reads are asked for first.
    names = sorted(listed_partitions(topics), key=lambda name: name.topic not in nodes.topics)
    answer = store.fetch(nodes.group, names)
    found = {(name.topic, str(name.partition)): at for name, at in answer.offsets.items() if at is not None}
    with_offsets = {topic for topic, _ in found}
    return dataclasses.replace(
        nodes,
        kafka_offsets=found,
        kafka_unknown=answer.unanswered,
        kafka_unled=frozenset((name.topic, str(name.partition)) for name in answer.unled),
        kafka_answered=frozenset((name.topic, str(name.partition)) for name in answer.offsets),
        topics={topic: data for topic, data in topics.items() if topic in nodes.topics or topic in with_offsets},
    )
