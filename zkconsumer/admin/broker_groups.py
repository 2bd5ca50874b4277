"""`BrokerGroups`: inspects and changes the groups that the brokers of one cluster coordinate.

`BrokerAdmin` does the same for a cluster that is given by some of its brokers, without ZooKeeper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from simpleconsumer.closing import Closing
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.acl_administration import AclAdministration
from zkconsumer.admin.acl_calls import AclCalls
from zkconsumer.admin.groups.broker_group_report import (
    BROKERS,
    DEAD,
    BrokerGroupReport,
    BrokerGroupState,
    CoordinatedGroup,
    LogRange,
    broker_group_report,
    shown_members,
)
from zkconsumer.admin.groups.group_coordinators import GroupCoordinators
from zkconsumer.admin.groups.group_deletion import DeletedGroups, delete_broker_groups
from zkconsumer.admin.groups.groups_of_brokers import GroupsOfBrokers, read_groups_of_brokers
from zkconsumer.admin.lag_monitor import BrokerLagMonitor, log_ranges
from zkconsumer.admin.lag_report import LagChoice, LagReport
from zkconsumer.admin.offsets.broker_group_offsets import BrokerGroupOffsets
from zkconsumer.admin.topics.broker_topics import BrokerTopicStore
from zkconsumer.admin.topics.controller_calls import ControllerCalls
from zkconsumer.admin.topics.topic_administration import TopicAdministration
from zkconsumer.admin.values import (
    CoordinatorUnavailable,
    GroupHasMembers,
    GroupList,
    GroupNotDeleted,
    GroupRow,
    NotFound,
    OffsetsNotSet,
    count_of,
    nearest,
)
from zkconsumer.admin.verify.broker_group_findings import verify_broker_group
from zkconsumer.admin.verify.findings import Verification
from zkconsumer.admin.verify.group_verifier import check_until_settled
from zkconsumer.cluster.cluster import Cluster, metadata_reader
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.config.connection_settings import config_without_group

_LOOK_S: Final = 3.0
"""Longest wait for a coordinator where its answer is worth having, and not needed."""
_NOTHING: Final = "it has no members and no offsets"


class BrokerGroups(BrokerGroupOffsets):
    """Inspects and changes the groups that the brokers of one cluster coordinate: Kafka 0.9 and later.

    Groups of the classic protocol, and of that of KIP-848 (Kafka 4.0). Their offsets are those in Kafka.

    Args:
        cluster: The cluster.
        client_id: The name under which brokers log and count the requests.
        where: The name of the cluster in error texts, such as `at localhost:9092`.

    Every method raises `CoordinatorUnavailable` when no broker coordinates the group or the one that does is silent for
    fifteen seconds, `GroupNotAuthorized` when brokers do not let this user see or change a group, and
    `AuthenticationFailed` when they refuse the credentials.

    Threads: One at a time.
    """

    def __init__(self, cluster: Cluster, client_id: str, where: str) -> None:
        self._cluster = cluster
        self._coordinators = GroupCoordinators(cluster, client_id)
        self._where = where

    # -- inspecting ----------------------------------------------------------------------------------------------------

    def groups(self) -> GroupList:
        """Return all groups that brokers coordinate: state, type, coordinator, members, partitions and topics.

        A broker that does not answer leaves its groups out, which `unlisted` says.
        """
        return group_rows(read_groups_of_brokers(self._coordinators))

    def describe(self, group: str) -> BrokerGroupReport:
        """Return the members of a group, the partitions of each, and the lag.

        Raises:
            NotFound: There is no such group.
        """
        return broker_group_report(self.read(group))

    def lag(self, *groups: str) -> LagReport:
        """Return the lag of groups, of all groups of consumers if none is named.

        Each leader is asked once for the ends of the logs of all groups. Rates are not known: `lag_monitor` has them.

        Raises:
            NotFound: There is no such group.
        """
        return self.lag_monitor(LagChoice(groups)).read()

    def lag_monitor(self, choice: LagChoice | None = None) -> BrokerLagMonitor:
        """Return a monitor, whose `read()` returns the current lag, from the second call on with rates.

        Args:
            choice: Which groups and topics it reads; all without one.
        """
        read = partial(self.read, with_logs=False)
        return BrokerLagMonitor(self._coordinators, read, choice or LagChoice())

    def verify(
        self,
        group: str,
        *,
        least_members: int = 1,
        patience_s: float = 20.0,
        wait_s: float = 0.0,
        with_logs: bool = True,
        on_wait: Callable[[], None] | None = None,
    ) -> Verification:
        """Return what is wrong with a group: its state, who has which partition, and its offsets.

        Args:
            least_members: Fewer members are a fault.
            patience_s: How long a rebalance may take before its signs count as faults.
            wait_s: Wait so long for the group to exist and to be without faults.
            with_logs: Ask the leaders whether their logs have the stored offsets.
            on_wait: Called once, when the group is checked again because a rebalance would explain what is wrong.

        Raises:
            NotFound: There is no such group.
        """
        waits = [on_wait]

        def check(is_last: bool) -> Verification:
            found = verify_broker_group(self.read(group, with_logs=with_logs), least_members)
            if found.is_passing and not is_last and (say := waits.pop() if waits else None) is not None:
                say()
            return found

        return check_until_settled(check, patience_s, wait_s)

    def is_coordinated(self, group: str) -> bool:
        """Return whether a group has, or had, members that brokers coordinate; not one that has only stored offsets.

        While that is not known, as no coordinator answers within three seconds, the answer is False.
        """
        found = self.seen(group)
        return found is not None and found.state != DEAD and bool(found.protocol_type)

    def seen(self, group: str) -> CoordinatedGroup | None:
        """Return a group as its coordinator sees it; None if none answers soon, or brokers coordinate no groups."""
        try:
            if not self._coordinators.brokers() or not self._coordinators.exist():
                return None
            return self._coordinators.describe(group, _LOOK_S)
        except (CoordinatorUnavailable, ClusterSilent, AuthenticationFailed):
            return None

    def refuse_same_names(self, groups: Collection[str]) -> None:
        """Raise if brokers coordinate a group that is to be deleted as one in ZooKeeper: the offsets in Kafka are its.

        Raises:
            GroupNotDeleted: They coordinate one of that name, with or without members.
        """
        for group in groups:
            if self.is_coordinated(group):
                raise GroupNotDeleted(
                    f"no group was deleted: brokers also coordinate a group {group!r}, and the offsets in Kafka "
                    "belong to it",
                    "choose the store: zookeeper deletes only the group in ZooKeeper (store='zookeeper', --store "
                    "zookeeper); to delete the other group, give --bootstrap-server instead of --zookeeper",
                )

    def name_members(self, error: OffsetsNotSet, groups: Collection[str]) -> None:
        """Raise if members are why Kafka has taken no offsets of one of the groups, which ZooKeeper has, too.

        Args:
            error: Of the attempt.

        Raises:
            GroupHasMembers: Names them.
        """
        for group in sorted(groups):
            found = self.seen(group)
            if found is not None and found.members:
                raise GroupHasMembers(
                    f"{error.sentence}; brokers coordinate a group of that name with "
                    f"{count_of(len(found.members), 'member')} ({shown_members(found.members)}), and accept no "
                    "offsets from other clients",
                    "stop these members first, or choose the store: zookeeper (store='zookeeper', --store zookeeper)",
                ) from error

    def read(self, group: str, *, with_logs: bool = True) -> BrokerGroupState:
        """Return everything that is known of a group.

        Raises:
            NotFound: There is no such group.
        """
        found = self._described(group)
        offsets = self._coordinators.fetch_offsets(group)
        if found.state == DEAD and not offsets:
            raise self._not_found(group, found)
        stored = {name: row.offset for name, row in offsets.items()}
        topics = sorted({*found.topics, *(name.topic for name in stored)})
        partitions = self._cluster.partitions(topics)
        state = BrokerGroupState(found, stored, partitions)
        return BrokerGroupState(found, stored, partitions, self._logs(state) if with_logs else {})

    # -- changing ------------------------------------------------------------------------------------------------------

    def delete_groups(self, *groups: str, dry_run: bool = False) -> DeletedGroups:
        """Delete groups without members, and their offsets.

        All groups are checked before the first one is deleted. Brokers before Kafka 1.1 delete no groups: there their
        offsets count as none, and stay until they expire.

        Args:
            groups: Names of groups, at least one.
            dry_run: Check everything, and delete nothing.

        Raises:
            ValueError: No group is named.
            NotFound: There is no such group.
            GroupHasMembers: Members are in one of the groups; names them.
            GroupNotDeleted: The coordinator has not deleted one of them.
        """
        if not groups:
            raise ValueError("give the name of at least one group")
        states = [self.read(group, with_logs=False) for group in dict.fromkeys(groups)]
        return delete_broker_groups(self._coordinators, states, dry_run=dry_run)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _described(self, group: str) -> CoordinatedGroup:
        if not self._coordinators.exist():
            raise NotFound(
                f"group {group!r} does not exist {self._where}: the cluster has no topic __consumer_offsets, so its "
                "brokers have never coordinated a group", "check that this is the right cluster"
            )  # fmt: skip
        return self._coordinators.describe(group)

    def _not_found(self, group: str, found: CoordinatedGroup) -> NotFound:
        known = sorted(read_groups_of_brokers(self._coordinators).groups)
        said = f" (its coordinator says: {found.reason})" if found.reason else ""
        return NotFound(f"group {group!r} does not exist {self._where}: {_NOTHING}{said}",
                        nearest(group, known, "group"))  # fmt: skip

    def _logs(self, state: BrokerGroupState) -> dict[TopicPartition, LogRange]:
        names = [name for name in state.concerned if state.exists(name)]
        return log_ranges(self._cluster.log_ends(names, [EARLIEST, LATEST]))


def group_rows(found: GroupsOfBrokers) -> GroupList:
    """Return the groups that brokers coordinate, as rows by name."""
    rows = []
    for name, group in sorted(found.groups.items()):
        offsets = found.offsets.get(name, {})
        has_offsets = None if name in found.unknown_offsets else bool(offsets)
        topics = tuple(sorted({*group.topics, *(at.topic for at in offsets)}))
        members = None if group.members is None else len(group.members)
        owned = None if group.members is None or group.is_rebalancing else len(group.owners)
        rows.append(
            GroupRow(name, members, owned, topics, False, has_offsets, BROKERS, group.state, group.protocol_type,
                     group.group_type, group.coordinator.id)
        )  # fmt: skip
    return GroupList(tuple(rows), unlisted=found.unlisted)


_ANSWER_S: Final = 5.0
"""Longest wait for one answer of a broker."""
_TOO_OLD: Final = "no broker is of Kafka 0.9 or later, so groups are in ZooKeeper: give --zookeeper, or use Admin"


class BrokerAdmin(BrokerGroups, TopicAdministration, AclAdministration, Closing):
    """Inspects and changes groups that brokers coordinate, topics and access lists: Kafka 0.9 to 4.x, no ZooKeeper.

    Brokers are first asked when a method needs them, and each question has a connection of its own.

    Args:
        brokers: Some brokers of the cluster, `host:port,host:port`, as `bootstrap.servers`.
        properties: Settings of the consumer by their names in Kafka. Those for TLS and SASL are used; the others are
            only checked.
        client_id: The name under which brokers log and count the requests.

    Raises:
        ConfigError: A property has a value that is not allowed.

    Every method raises `BrokersSilent` when no broker answers, besides what `BrokerGroups` names.

    Threads: One at a time.
    """

    def __init__(
        self, brokers: str, *, properties: Mapping[str, object] | None = None, client_id: str = "zkconsumer-admin"
    ) -> None:
        given = {name: value for name, value in (properties or {}).items() if name != "zookeeper.connect"}
        config = config_without_group(None, {**given, "bootstrap.servers": brokers}, client_id)
        reader = metadata_reader(config, _ANSWER_S)
        assert reader is not None
        cluster = Cluster(reader, config.client_id, _ANSWER_S, security=config.security)
        super().__init__(cluster, config.client_id, config.where)
        calls = ControllerCalls(cluster, config.client_id, config.where)
        self._topic_store = BrokerTopicStore(calls)
        self._acl_calls = AclCalls(calls)

    def groups(self) -> GroupList:
        """Return all groups that brokers coordinate; `unlisted` says if all brokers are too old to do that."""
        found = super().groups()
        if found.groups or self._coordinators.brokers():
            return found
        return dataclasses.replace(found, unlisted=(*found.unlisted, _TOO_OLD))

    def close(self) -> None:
        """Do nothing: no connection is kept between two calls."""
