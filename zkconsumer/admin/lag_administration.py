"""The methods of `Admin` that read the lag of groups, in ZooKeeper or of brokers, and which kind a group is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from rebalance.subscription import check_group
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, ZooKeeperPort
from zkconsumer.admin.broker_groups import BrokerGroups
from zkconsumer.admin.lag_monitor import BrokerLagMonitor, LagMonitor
from zkconsumer.admin.lag_report import LagChoice, LagReport
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import ClusterSilent, read_all


class LagReader(Protocol):
    """Reads the lag of groups repeatedly."""

    def read(self) -> LagReport:
        """Return the current lag, from the second call on with rates."""


class LagAdministration:
    """Reads the lag of all groups without joining any; a part of `Admin`."""

    _port: ZooKeeperPort
    _cluster: Cluster
    _in_kafka: OffsetsInKafka
    _zookeeper: str
    broker_groups: BrokerGroups

    def is_coordinated_by_brokers(self, group: str) -> bool:
        """Return whether a group that has no node in ZooKeeper has, or had, members that brokers coordinate.

        Then `broker_groups` shows and changes it.
        """
        path = znodes.group_path(group)
        return read_all(self._port, [Exists(path)]) == [None] and self.broker_groups.is_coordinated(group)

    def lag(self, *groups: str) -> LagReport:
        """Return the lag of groups, of all groups of the cluster if none is named.

        Each leader is asked once for the ends of the logs of all groups. Rates are not known: `lag_monitor` has them.

        Raises:
            NotFound: There is no such group.
        """
        return self.lag_monitor(LagChoice(groups)).read()

    def lag_monitor(self, choice: LagChoice | None = None) -> LagReader:
        """Return a monitor, whose `read()` returns the current lag, from the second call on with rates.

        Groups that brokers coordinate count, too; `coordination` of a group says which it is.

        Args:
            choice: Which groups and topics it reads; all without one.
        """
        chosen = choice or LagChoice()
        for group in chosen.groups:
            check_group(group)

        def in_zookeeper(part: LagChoice) -> LagMonitor:
            return LagMonitor(self._port, self._cluster, self._in_kafka, self._zookeeper, part)

        return _BothKinds(chosen, in_zookeeper, self.broker_groups.lag_monitor, self.is_coordinated_by_brokers)


class _BothKinds:
    """The lag of groups in ZooKeeper and of groups that brokers coordinate.

    Args:
        choice: Which groups and topics are read.
        in_zookeeper: Makes a monitor of groups in ZooKeeper.
        of_brokers: Makes one of groups that brokers coordinate.
        is_of_brokers: Returns whether a group is one of those.

    Threads: One at a time.
    """

    def __init__(
        self,
        choice: LagChoice,
        in_zookeeper: Callable[[LagChoice], LagMonitor],
        of_brokers: Callable[[LagChoice], BrokerLagMonitor],
        is_of_brokers: Callable[[str], bool],
    ) -> None:
        self._choice = choice
        self._make = in_zookeeper, of_brokers
        self._is_of_brokers = is_of_brokers
        self._named: tuple[str, ...] = ()
        self._zookeeper, self._brokers = in_zookeeper(choice), of_brokers(choice)

    def read(self) -> LagReport:
        """Return the current lag, from the second call on with rates."""
        if not self._choice.groups:
            return self._all()
        named = tuple(group for group in self._choice.groups if self._is_of_brokers(group))
        if named != self._named:
            self._named = named
            self._brokers = self._make[1](dataclasses.replace(self._choice, groups=named))
            others = tuple(group for group in self._choice.groups if group not in named)
            self._zookeeper = self._make[0](dataclasses.replace(self._choice, groups=others))
        if not named:
            return self._zookeeper.read()
        second = self._brokers.read()
        return second if len(named) == len(self._choice.groups) else _both(self._zookeeper.read(), second)

    def _all(self) -> LagReport:
        first = self._zookeeper.read()
        try:
            return _both(first, self._brokers.read({each.group for each in first.groups}))
        except ClusterSilent as error:
            problem = f"groups that brokers coordinate may be missing: {error}"
            return dataclasses.replace(first, problems=(*first.problems, problem))


def _both(first: LagReport, second: LagReport) -> LagReport:
    """Return groups in ZooKeeper and groups of brokers, by name."""
    groups = sorted([*first.groups, *second.groups], key=lambda each: each.group)
    return dataclasses.replace(
        first, duration_s=first.duration_s + second.duration_s, groups=tuple(groups),
        problems=(*first.problems, *second.problems),
    )  # fmt: skip
