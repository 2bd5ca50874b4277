"""Reads how far groups in ZooKeeper are behind, again and again, without joining any of them.

Rules, and which failure each prevents:
- ZooKeeper is read level by level for all groups together, and each leader is asked once for the ends of the logs of
  all groups: the work grows with the cluster and not with groups times partitions.
- A round has a deadline. What is not known by then is unknown, and never counted as no lag.
- No watch is set and no node is written: a monitor that dies leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Final

from rebalance.subscription import OFFSETS_TOPIC
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetChildren, ZooKeeperPort
from simpleconsumer.consumer import LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.group_nodes import group_not_found
from zkconsumer.admin.groups.group_report import Members, PartitionRow, members_of, report
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.groups.many_groups import read_many_groups, read_topic_nodes
from zkconsumer.admin.lag.lag_report import LagChoice, LagReport, RateWindow, group_lag
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.topics.topic_nodes import listed_partitions
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer.cluster.topic_of_07 import Topic07
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all

__all__ = ["LagMonitor"]

_FULL_SCAN_S: Final = 300.0
"""How often a group is asked for its offsets of all topics in Kafka; in between for those that it has to do with."""
_SCANNED_A_ROUND: Final = 20_000
"""How many topics a round asks for beside those that groups with members read, summed over these groups."""


class LagMonitor:
    """Reads the lag of groups in ZooKeeper, Java members and both stores of offsets included.

    Args:
        port: A started ZooKeeper port.
        cluster: Whose brokers are asked.
        in_kafka: Reads the offsets in Kafka.
        zookeeper: The connection string, for messages.
        choice: Which groups and topics are read.

    Threads: One at a time.
    """

    def __init__(
        self, port: ZooKeeperPort, cluster: Cluster, in_kafka: OffsetsInKafka, zookeeper: str, choice: LagChoice
    ) -> None:
        self._port = port
        self._cluster = cluster
        self._in_kafka = in_kafka
        self._zookeeper = zookeeper
        self._choice = choice
        self._window = RateWindow()
        self._kafka_topics: dict[str, frozenset[str]] = {}
        self._scanned_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._registered: dict[str, frozenset[str]] = {}
        self._left: set[str] = set()

    def read(self) -> LagReport:
        """Return the lag of now, with rates from the second call on.

        Raises:
            NotFound: A group that was named has neither nodes in ZooKeeper nor offsets in Kafka.
            ZooKeeperSilent: ZooKeeper does not answer.
            AccessRefused: The list of groups may not be read.
        """
        started_at, read_at = time.monotonic(), time.time()
        deadline = started_at + self._choice.deadline_s
        groups = self._groups()
        nodes = self._with_kafka(read_many_groups(self._port, self._cluster, groups, deadline), deadline)
        self._check_named(nodes)
        nodes = self._with_log_ends(nodes, deadline)
        members = [members_of(each) for each in nodes]
        reports = [report(each, mine) for each, mine in zip(nodes, members, strict=True)]
        rates = self._window.add(started_at, ((found.group, row) for found in reports for row in found.partitions))
        lags = []
        for each, mine, found in zip(nodes, members, reports, strict=True):
            topics = [topic for topic in dict.fromkeys(row.topic for row in found.partitions)
                      if self._choice.keeps_topic(topic)]  # fmt: skip
            of_group = {topic: rates[found.group, topic] for topic in topics if (found.group, topic) in rates}
            lags.append(group_lag(found, _unowned(each, mine, found.partitions), of_group, topics, each))
        unit = nodes[0].lag_unit if nodes else "messages"
        return LagReport(read_at, time.monotonic() - started_at, tuple(lags), lag_unit=unit)

    def _groups(self) -> list[str]:
        if self._choice.groups:
            return list(dict.fromkeys(self._choice.groups))
        [listing] = read_all(self._port, [GetChildren(znodes.CONSUMERS)], min(READ_TIMEOUT_S, self._choice.deadline_s))
        names = sorted(listing[0]) if listing is not None else []
        kept = [name for name in names if self._choice.keeps_group(name)]
        memories: tuple[dict[str, Any], ...] = (self._kafka_topics, self._scanned_at, self._asked_at, self._registered)
        for memory in memories:
            for gone in memory.keys() - kept:
                del memory[gone]
        self._left.intersection_update(kept)
        return kept

    def _check_named(self, nodes: Sequence[GroupNodes]) -> None:
        for each in nodes if self._choice.groups else ():
            if not each.exists and not each.kafka_offsets:
                raise group_not_found(self._port, self._zookeeper, each.group, each.kafka_unknown)

    # -- the offsets in Kafka ------------------------------------------------------------------------------------------

    def _with_kafka(self, nodes: Sequence[GroupNodes], deadline: float) -> list[GroupNodes]:
        """Return the nodes with the offsets in Kafka; without the topic of offsets no broker is asked."""
        if not nodes or OFFSETS_TOPIC not in nodes[0].known_topics:
            return list(nodes)
        scanned = self._scanned(nodes)
        concerned = {topic for each in nodes for topic in self._topics_of(each)}
        known = nodes[0].known_topics if scanned else sorted(concerned)
        data = read_topic_nodes(self._port, [topic for topic in known if topic != OFFSETS_TOPIC], deadline)
        wanted: dict[str, list[TopicPartition]] = {}
        for each in nodes:
            asked = set(data) if each.group in scanned else self._topics_of(each)
            wanted[each.group] = listed_partitions({topic: data[topic] for topic in asked if topic in data})
        answers = self._in_kafka.fetch_each(wanted, max(0.1, (deadline - time.monotonic()) / 2))
        found = []
        for each in nodes:
            answer = answers[each.group]
            offsets = {(at.topic, str(at.partition)): n for at, n in answer.offsets.items() if n is not None}
            unknown = answer.unanswered
            unled = {name.topic for name in answer.unled}
            if unknown is None:
                # Those of other topics than were asked for are still there, as far as is known.
                kept = frozenset() if each.group in scanned else self._kafka_topics.get(each.group, frozenset())
                asked = {name.topic for name in wanted[each.group]} - unled
                self._kafka_topics[each.group] = (kept - asked) | {topic for topic, _ in offsets}
                if each.group in scanned:
                    self._scanned_at[each.group] = time.monotonic()
                    self._left.discard(each.group)
            # While the offsets are not known, the topics of those that were there before still count.
            hidden = data.keys() if unknown else unled
            in_kafka = self._kafka_topics.get(each.group, frozenset()) & data.keys() & hidden
            others = {*in_kafka, *(topic for topic, _ in offsets)} - each.topics.keys()
            found.append(dataclasses.replace(
                each, kafka_offsets=offsets, kafka_unknown=unknown, kafka_topics=in_kafka,
                kafka_unled=frozenset((at.topic, str(at.partition)) for at in answer.unled),
                kafka_answered=frozenset((at.topic, str(at.partition)) for at in answer.offsets),
                topics={**each.topics, **{topic: data[topic] for topic in others}},
            ))  # fmt: skip
        return found

    def _scanned(self, nodes: Sequence[GroupNodes]) -> set[str]:
        """Return the groups that are asked for all topics in this round.

        Nothing says which topics a group without members has read. Of one with members, offsets of other topics than it
        reads now are shown as well; among very many groups, they are asked for over several rounds. A group that a
        member has left is asked at once: what that member stored would be shown minutes later.
        """
        now = time.monotonic()
        due = []
        for each in nodes:
            if not self._registered.get(each.group, frozenset()) <= each.registrations.keys():
                self._left.add(each.group)
            self._registered[each.group] = frozenset(each.registrations)
            if each.group in self._left or now - self._scanned_at.get(each.group, -_FULL_SCAN_S) >= _FULL_SCAN_S:
                due.append(each)
        scanned = {each.group for each in due if not each.registrations or each.group in self._choice.groups}
        # Those that were asked longest ago come first: a group whose offset manager is dead does not hold up others.
        others = sorted((each.group for each in due if each.group not in scanned),
                        key=lambda group: self._asked_at.get(group, -_FULL_SCAN_S))  # fmt: skip
        scanned.update(others[: max(1, _SCANNED_A_ROUND // len(nodes[0].known_topics))])
        self._asked_at |= dict.fromkeys(scanned, now)
        return scanned

    def _topics_of(self, nodes: GroupNodes) -> set[str]:
        return {*nodes.topics, *self._kafka_topics.get(nodes.group, ())} - {OFFSETS_TOPIC}

    # -- the ends of logs ----------------------------------------------------------------------------------------------

    def _with_log_ends(self, nodes: Sequence[GroupNodes], deadline: float) -> list[GroupNodes]:
        """Return the nodes with the ends of their logs: one request a leader for all groups together."""
        topics: dict[str, bytes | None] = {}
        of_07: dict[str, Topic07] = {}
        for each in nodes:
            topics.update({topic: data for topic, data in each.topics.items() if self._choice.keeps_topic(topic)})
            of_07.update(each.topics_07)
        names = listed_partitions(dict(sorted(topics.items())), of_07)
        ends = self._cluster.log_ends(names, [LATEST], max(0.1, deadline - time.monotonic()))
        numbers = {(at.topic, str(at.partition)): _end(offsets) for at, offsets in ends.items()}
        by_topic: dict[str, dict[tuple[str, str], int | str]] = {}
        for name, end in numbers.items():
            by_topic.setdefault(name[0], {})[name] = end
        return [
            dataclasses.replace(
                each, log_ends={name: end for topic in each.topics for name, end in by_topic.get(topic, {}).items()}
            )
            for each in nodes
        ]


def _end(offsets: LogOffsets) -> int | str:
    if isinstance(offsets, str):
        return offsets
    return "the broker reports no offset" if offsets[0] is None else offsets[0]


def _unowned(nodes: GroupNodes, members: Members, rows: Sequence[PartitionRow]) -> list[tuple[str, int | str]]:
    """Return (topic, partition) of the partitions that a member subscribes to and nobody owns."""
    without_owner: dict[str, list[PartitionRow]] = {}
    for row in rows:
        if row.owner is None and not nodes.hides_owner(row.topic, str(row.partition)):
            without_owner.setdefault(row.topic, []).append(row)
    found: list[tuple[str, int | str]] = []
    for topic, of_topic in without_owner.items():
        if members.threads(topic):
            existing = {at.partition for at in listed_partitions({topic: nodes.topics.get(topic)}, nodes.topics_07)}
            found += [(topic, row.partition) for row in of_topic if row.partition in existing]
    return found
