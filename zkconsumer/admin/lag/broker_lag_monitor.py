"""Reads how far groups are behind that brokers coordinate, again and again, without joining any of them.

Rules, and which failure each prevents:
- Each broker is asked for its groups over one connection, and each leader once for the ends of the logs of all groups:
  the work grows with the cluster and not with groups times partitions.
- What a broker does not answer is unknown, which is said, and never counted as no lag.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.group_types import CONSUMER_PROTOCOL
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.broker_group_report import (
    BROKERS,
    BrokerGroupReport,
    BrokerGroupState,
    BrokerPartitionRow,
    LogRange,
    broker_group_report,
)
from zkconsumer.admin.groups.group_coordinators import GroupCoordinators
from zkconsumer.admin.groups.group_report import PartitionRow
from zkconsumer.admin.groups.groups_of_brokers import read_groups_of_brokers
from zkconsumer.admin.lag.lag_report import (
    GroupLag,
    LagChoice,
    LagReport,
    Rates,
    RateWindow,
    TopicLag,
    catch_up_s,
    known_sum,
)
from zkconsumer.admin.offsets.store_choice import KAFKA
from zkconsumer.cluster.log_ends import LogOffsets

__all__ = ["BrokerLagMonitor", "broker_group_lag", "log_ranges", "rows_of"]


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
    topics = tuple(_topic_lag(topic, rows, rates.get(topic, Rates()), _unowned(rows, wanted) if is_known else None)
                   for topic, rows in by_topic.items())  # fmt: skip
    lag = None if unknown is not None else known_sum([each.lag for each in topics])
    # Without its offsets it is not known of which partitions a group has some: of one at least, or there were no group.
    lag_unknown = max(sum(each.lag_unknown for each in topics), 0 if unknown is None else 1)
    return GroupLag(
        report.group, None if found.group.members is None else len(report.members),
        sum(row.owner is not None for row in kept) if is_known else None,
        _unowned(kept, wanted) if is_known else None,
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


def _unowned(rows: Iterable[BrokerPartitionRow], wanted: Collection[TopicPartition]) -> int:
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
        """Return the lag of now, with rates from the second call on.

        Args:
            others: Groups in ZooKeeper: what they store in Kafka is listed as a group without members, which is left
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
