"""Reads how far groups are behind that brokers coordinate, again and again, without joining any of them.

Rules, and which failure each prevents:
- Each broker is asked for its groups over one connection, and each leader once for the ends of the logs of all groups:
  the work grows with the cluster and not with groups times partitions.
- What a broker does not answer is unknown, which is said, and never counted as no lag.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.group_types import CONSUMER_PROTOCOL
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.broker_group_report import BrokerGroupState, LogRange
from zkconsumer.admin.broker_lag import broker_group_lag, rows_of
from zkconsumer.admin.group_coordinators import GroupCoordinators
from zkconsumer.admin.groups_of_brokers import read_groups_of_brokers
from zkconsumer.admin.lag_choice import LagChoice
from zkconsumer.admin.lag_rates import RateWindow
from zkconsumer.admin.lag_report import LagReport
from zkconsumer.cluster.log_ends import LogOffsets

__all__ = ["BrokerLagMonitor", "log_ranges"]

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
    return "the leader names no offsets" if start is None or end is None else (start, end)
