"""Reads the lag of groups again and again, of groups in ZooKeeper and of groups that brokers coordinate.

Reads the lag of groups in ZooKeeper, again and again, without joining them.

Rules, and which failure each prevents:
- ZooKeeper is read level by level for all groups together, and each leader is asked once for the ends of the logs of
  all groups: the work grows with the cluster and not with groups times partitions.
- A round has a deadline. A lag that is not known by then is unknown, and never counted as no lag.
- No watch is set and no node is written: a monitor that dies leaves no trace.

Reads the lag of groups that brokers coordinate, again and again, without joining them.

Rules, and which failure each prevents:
- Each broker is asked for its groups over one connection, and each leader once for the ends of the logs of all groups:
  the work grows with the cluster and not with groups times partitions.
- A lag that no broker answers is shown as unknown, and never counted as no lag.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from rebalance.subscription import OFFSETS_TOPIC
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetChildren, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import CONSUMER_PROTOCOL, TopicPartition
from zkconsumer.admin.groups.broker_group_report import (
    BROKERS,
    BrokerGroupReport,
    BrokerGroupState,
    BrokerPartitionRow,
    LogRange,
    broker_group_report,
)
from zkconsumer.admin.groups.group_coordinators import GroupCoordinators
from zkconsumer.admin.groups.group_nodes import group_not_found, read_many_groups, read_topic_nodes
from zkconsumer.admin.groups.group_report import Members, PartitionRow, members_of, report
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.groups.groups_of_brokers import read_groups_of_brokers
from zkconsumer.admin.lag_report import (
    GroupLag,
    LagChoice,
    LagReport,
    Rates,
    RateWindow,
    TopicLag,
    catch_up_s,
    group_lag,
    known_sum,
)
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.offsets.store_choice import KAFKA
from zkconsumer.admin.topics.topic_nodes import listed_partitions
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer.cluster.registry import Topic07
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, read_all

_FULL_SCAN_S: Final = 300.0
"""How often a group is asked for its offsets of all topics in Kafka; in between only for topics that it reads."""
_SCANNED_A_ROUND: Final = 20_000
"""How many topics a round asks for in addition to those read by groups with members, summed over these groups."""


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
        """Return the current lag, from the second call on with rates.

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
            # While the offsets are not known, the topics of earlier offsets still count.
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
        member has left is asked at once: the last commits of that member would be shown minutes later.
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
        # Groups that were asked longest ago come first: a group whose offset manager is dead does not hold up others.
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


def rows_of(found: BrokerGroupState) -> list[PartitionRow]:
    """Return the partitions of a group; the owner is the id of a member."""
    return [_partition_row(row) for row in broker_group_report(found).partitions]


def broker_group_lag(
    found: BrokerGroupState, rates: Mapping[str, Rates], keeps_topic: Callable[[str], bool], unknown: str | None = None
) -> GroupLag:
    """Return the lag of a group.

    Args:
        found: The group, its offsets, and the logs of its partitions.
        rates: Topic -> rates.
        keeps_topic: Which topics count.
        unknown: Why its offsets are not known, a clause; None if they are.
    """
    report = broker_group_report(found)
    # While a group rebalances, its coordinator does not say what the members subscribe to and have.
    is_known = found.group.members is not None and not found.group.is_rebalancing
    wanted = found.subscribed if found.group.members else set()
    by_topic: dict[str, list[BrokerPartitionRow]] = {}
    for row in report.partitions:
        if keeps_topic(row.topic):
            by_topic.setdefault(row.topic, []).append(row)
    kept = [row for rows in by_topic.values() for row in rows]
    topics = tuple(_topic_lag(topic, rows, rates.get(topic, Rates()), _unowned_of(rows, wanted) if is_known else None)
                   for topic, rows in by_topic.items())  # fmt: skip
    lag = None if unknown is not None else known_sum([each.lag for each in topics])
    # Without its offsets it is not known of which partitions a group has some: of one at least, or there were no group.
    lag_unknown = max(sum(each.lag_unknown for each in topics), 0 if unknown is None else 1)
    return GroupLag(
        report.group, None if found.group.members is None else len(report.members),
        sum(row.owner is not None for row in kept) if is_known else None,
        _unowned_of(kept, wanted) if is_known else None,
        lag, lag_unknown, topics, tuple(_partition_row(row) for row in kept),
        _problems(report, unknown), BROKERS,
    )  # fmt: skip


def _problems(report: BrokerGroupReport, unknown: str | None) -> tuple[str, ...]:
    first = () if unknown is None else (f"its offsets are not known: {unknown}",)
    return (*first, *report.problems)


def _topic_lag(topic: str, rows: Sequence[BrokerPartitionRow], rates: Rates, unowned: int | None) -> TopicLag:
    lag = known_sum([row.lag for row in rows])
    return TopicLag(
        topic, len(rows), unowned, lag, sum(row.lag is None for row in rows), rates.consumed_per_s,
        rates.produced_per_s, catch_up_s(lag, rates.consumed_per_s, rates.produced_per_s),
    )  # fmt: skip


def _unowned_of(rows: Iterable[BrokerPartitionRow], wanted: Collection[TopicPartition]) -> int:
    """Return the number of partitions to which a member subscribes, and which nobody has."""
    return sum(row.owner is None and TopicPartition(row.topic, row.partition) in wanted for row in rows)


def _partition_row(row: BrokerPartitionRow) -> PartitionRow:
    return PartitionRow(row.topic, row.partition, row.offset, row.log_end, row.lag, row.owner, row.problems,
                        offset_in_kafka=row.offset, storage=None if row.offset is None else KAFKA)  # fmt: skip


_LEAST_S: Final = 1.0


class BrokerLagMonitor:
    """Reads the lag of groups that brokers coordinate; made by `BrokerGroups.lag_monitor`.

    Args:
        coordinators: Whose groups are read.
        read: Returns a group by its name, without its logs.
        choice: Which groups and topics are read.

    Threads: One at a time.
    """

    def __init__(
        self, coordinators: GroupCoordinators, read: Callable[[str], BrokerGroupState], choice: LagChoice
    ) -> None:
        self._coordinators = coordinators
        self._read = read
        self._choice = choice
        self._window = RateWindow()

    def read(self, others: Collection[str] = ()) -> LagReport:
        """Return the current lag, from the second call on with rates.

        Args:
            others: Groups in ZooKeeper: their offsets in Kafka are listed as a group without members, which is left
                out.

        Raises:
            NotFound: There is no group of a name that was given.
            CoordinatorUnavailable: The coordinator of such a group does not answer in time.
            ClusterSilent: No broker answers.
        """
        started_at, read_at = time.monotonic(), time.time()
        states, unknown, unlisted = self._named() if self._choice.groups else self._all(others)
        left_s = max(_LEAST_S, self._choice.deadline_s - (time.monotonic() - started_at))
        states = self._with_logs(states, left_s)
        rows = ((each.group.group, row) for each in states for row in rows_of(each))
        rates = self._window.add(started_at, rows)
        lags = []
        for each in states:
            name = each.group.group
            of_group = {topic: found for (group, topic), found in rates.items() if group == name}
            lags.append(broker_group_lag(each, of_group, self._choice.keeps_topic, unknown.get(name)))
        return LagReport(read_at, time.monotonic() - started_at, tuple(lags), unlisted)

    def _named(self) -> tuple[list[BrokerGroupState], Mapping[str, str], tuple[str, ...]]:
        return [self._read(group) for group in dict.fromkeys(self._choice.groups)], {}, ()

    def _all(self, others: Collection[str]) -> tuple[list[BrokerGroupState], Mapping[str, str], tuple[str, ...]]:
        """Return all groups of consumers, why offsets of some are not known, and why groups may be missing."""
        found = read_groups_of_brokers(self._coordinators)
        groups = [
            each for name, each in sorted(found.groups.items())
            if each.protocol_type in ("", CONSUMER_PROTOCOL) and self._choice.keeps_group(name)
            and (each.protocol_type or each.members or name not in others)
        ]  # fmt: skip
        topics = {name.topic for each in groups for name in found.offsets.get(each.group, ())}
        topics.update(topic for each in groups for topic in each.topics)
        partitions = self._coordinators.cluster.partitions(sorted(topics)) if topics else {}
        states = [BrokerGroupState(each, found.offsets.get(each.group, {}), partitions) for each in groups]
        return states, found.unknown_offsets, found.unlisted

    def _with_logs(self, states: Iterable[BrokerGroupState], deadline_s: float) -> list[BrokerGroupState]:
        concerned = [(each, [name for name in each.concerned if each.exists(name)]) for each in states]
        wanted = {name for _, names in concerned for name in names if self._choice.keeps_topic(name.topic)}
        ends = self._coordinators.cluster.log_ends(sorted(wanted, key=str), [EARLIEST, LATEST], deadline_s)
        logs = log_ranges(ends)
        return [
            dataclasses.replace(each, logs={name: logs[name] for name in names if name in logs})
            for each, names in concerned
        ]


def log_ranges(ends: Mapping[TopicPartition, LogOffsets]) -> dict[TopicPartition, LogRange]:
    """Return start and end of each log, or why they are not known."""
    return {name: _range(found) for name, found in ends.items()}


def _range(found: LogOffsets) -> LogRange:
    if isinstance(found, str):
        return found
    start, end = found
    return "the leader reports no offsets" if start is None or end is None else (start, end)
