"""`Admin`: inspects and changes the consumer groups of one cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from rebalance import znodes
from rebalance.requests import SessionChange, ZooKeeperPort
from rebalance.subscription import check_group, check_topic
from zkconsumer.admin.assignment_preview import STRATEGIES
from zkconsumer.admin.findings import Verification
from zkconsumer.admin.group_nodes import only_topic, read_group, read_groups, read_log_ends
from zkconsumer.admin.group_report import GroupNodes, GroupReport, PartitionRow, report
from zkconsumer.admin.group_verifier import GroupVerifier
from zkconsumer.admin.kafka_offsets import read_kafka_offsets
from zkconsumer.admin.offset_changes import OffsetChange, OffsetChanges, check_no_members, plan_changes, write_changes
from zkconsumer.admin.offset_target import OffsetTarget, parse_target
from zkconsumer.admin.rebalance_trigger import trigger_rebalance
from zkconsumer.admin.release import check_names, release_claim
from zkconsumer.admin.repeated_checks import check_until_settled
from zkconsumer.admin.stored_offsets import ExportedOffsets, export_offsets, lines_of, plan_target, topic_partitions
from zkconsumer.admin.topic_administration import TopicAdministration
from zkconsumer.admin.topic_nodes import read_topics
from zkconsumer.admin.topic_report import TopicReport, topic_report
from zkconsumer.admin.values import GroupList, JsonValue, Released
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.cluster.zookeeper_reads import children
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.zookeeper_options import zookeeper_options

__all__ = ["Admin", "GroupOffsets", "connection_options"]

log = logging.getLogger(__name__)

CONNECTION_TIMEOUT_S: Final = 6.0
"""Longest wait for the connection to ZooKeeper, as the default of `zookeeper.connection.timeout.ms`."""
_BROKER_TIMEOUT_S: Final = 5.0
"""Longest wait for one answer of a broker."""


@dataclass(frozen=True)
class GroupOffsets(JsonValue):
    """The stored offsets of a group.

    Attributes:
        group: Its name.
        partitions: By topic and number; also partitions without a stored offset that the group owns or subscribes to.
    """

    group: str
    partitions: tuple[PartitionRow, ...]


def connection_options(zookeeper: str, properties: Mapping[str, object] | None) -> tuple[dict[str, Any], float]:
    """Return the keyword arguments of `zookeeper_connection` for settings of the consumer, and its time-out in seconds.

    Raises:
        ConfigError: A property has a value that is not allowed, or names a file that cannot be used.
    """
    if not properties:
        return {}, CONNECTION_TIMEOUT_S
    entries = {"group.id": "none", **properties}
    config = ConsumerConfig.from_properties(entries, zookeeper_connect=zookeeper)
    return zookeeper_options(config), config.zookeeper_connection_timeout_ms / 1000


class Admin(TopicAdministration):
    """Inspects and changes the consumer groups of one cluster, members of other clients included.

    A connection to ZooKeeper is opened by the constructor and closed by `close()`, or at the end of a `with` block.
    Brokers are asked when a method needs them. `describe` and `offsets` read the offsets in ZooKeeper and in Kafka, the
    other methods those in ZooKeeper.

    Args:
        zookeeper: `host:port,host:port/chroot`, as `zookeeper.connect`.
        properties: Settings of the consumer by their names in Kafka. Those of `zookeeper.*` for TLS, SASL, credentials
            and access lists are used, the others are only checked.
        timeout_s: Longest wait for the connection, in seconds; if left out, `zookeeper.connection.timeout.ms` of the
            properties, and 6 without it.
        client_id: The name under which brokers log and count the requests.

    Raises:
        ConfigError: A property has a value that is not allowed.
        ZooKeeperUnavailable: No server of the ensemble opened a session in time.
        ZooKeeperRefused: ZooKeeper refuses the credentials.
        NamespaceMissing: The chroot does not exist.

    Every method raises `ZkConsumerError` when ZooKeeper does not answer or refuses a node, and `InvalidName` for names
    that Kafka does not allow.

    Threads: One at a time.
    """

    def __init__(
        self,
        zookeeper: str,
        *,
        properties: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
        client_id: str = "zkconsumer-admin",
    ) -> None:
        options, given_s = connection_options(zookeeper, properties)
        timeout_s = given_s if timeout_s is None else timeout_s
        self._zookeeper = zookeeper
        self._session = 0
        self._stack = ExitStack()
        self._port: ZooKeeperPort = self._stack.enter_context(
            zookeeper_connection(zookeeper, timeout_s, self._session_changed, **options)
        )
        self._client_id = client_id
        self._cluster = Cluster(self._port, client_id, _BROKER_TIMEOUT_S)

    def _session_changed(self, change: SessionChange) -> None:
        if change.what == "connected":
            self._session = change.session_id

    # -- inspecting ----------------------------------------------------------------------------------------------------

    def groups(self) -> GroupList:
        """Return all groups: how many members they have, how many partitions they own, and what they read."""
        return read_groups(self._port)

    def topics(self, *names: str) -> TopicReport:
        """Return the partitions of topics, of all topics when none is named: leaders, replicas, offsets, problems.

        Raises:
            NotFound: There is no such topic.
        """
        return topic_report(read_topics(self._port, self._cluster, self._zookeeper, names))

    def describe(self, group: str) -> GroupReport:
        """Return the members of a group, who owns which partition, and how far behind it is.

        Raises:
            NotFound: There is no such group.
        """
        check_group(group)
        return report(read_log_ends(self._cluster, self._read(group)))

    def _read(self, group: str) -> GroupNodes:
        """Return the nodes of a group, with the offsets that it has in Kafka."""
        nodes = read_group(self._port, self._zookeeper, group)
        return read_kafka_offsets(self._port, self._cluster, self._client_id, nodes)

    def offsets(self, group: str, topic: str | None = None) -> GroupOffsets:
        """Return the stored offsets of a group, of one topic or of all, and how far behind they are.

        Raises:
            NotFound: There is no such group, or it has nothing to do with the topic.
        """
        check_group(group)
        nodes = self._read(group)
        if topic is not None:
            nodes = only_topic(nodes, topic)
        found = report(read_log_ends(self._cluster, nodes))
        return GroupOffsets(group, tuple(row for row in found.partitions if topic in (None, row.topic)))

    def verify(
        self,
        group: str,
        *,
        strategies: Sequence[str] = STRATEGIES,
        least_members: int = 1,
        patience_s: float = 20.0,
        wait_s: float = 0.0,
        trigger: bool = False,
        with_logs: bool = True,
        on_wait: Callable[[], None] | None = None,
        on_trigger: Callable[[Sequence[str]], None] | None = None,
    ) -> Verification:
        """Return whether each partition is owned by the thread to which it is assigned, and what would mend it.

        Args:
            strategies: Those that the group may use, of `STRATEGIES`; with none, owners are not compared with an
                assignment.
            least_members: Fewer registered consumers are a fault.
            patience_s: How long a rebalance may take before its signs count as faults; the default fits the four tries
                of a Java member.
            wait_s: Wait so long for the group to exist and to be without faults.
            trigger: Trigger a rebalance, once, when members lack partitions that nothing else keeps from them.
            with_logs: Ask the brokers whether their logs have the stored offsets.
            on_wait: Called once, when the group is checked again because a rebalance would explain what is wrong.
            on_trigger: Called with the members for which a rebalance was triggered.

        Raises:
            NotFound: There is no such group.
            RebalanceNotTriggered: ZooKeeper did not take it.
        """
        check_group(group)
        started_at = time.monotonic()
        cluster = self._cluster if with_logs else None
        verifier = GroupVerifier(self._port, self._zookeeper, group, strategies, least_members, cluster, on_wait)

        def triggered(found: Verification) -> None:
            verifier.trigger(found)
            if on_trigger is not None:
                on_trigger(found.wakeable)

        found = check_until_settled(verifier.check, patience_s, wait_s, triggered if trigger else None)
        return verifier.concluded(found, time.monotonic() - started_at)

    def export_offsets(self, *groups: str) -> ExportedOffsets:
        """Return the stored offsets of groups, of all groups when none is named, as lines of text.

        Raises:
            NotFound: There is no such group.
        """
        return export_offsets(self._port, self._zookeeper, groups)

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_offsets(
        self,
        group: str,
        topic: str,
        target: str | int | OffsetTarget,
        partitions: Sequence[int] = (),
        *,
        force: bool = False,
        dry_run: bool = False,
        warn: Callable[[str], object] = log.warning,
    ) -> OffsetChanges:
        """Set the stored offsets of a topic; all are checked before the first one is written.

        Args:
            target: `earliest`, `latest`, an offset, or a time such as `2014-03-01T12:00:00Z` (UTC without a zone).
            partitions: These partitions alone; all of the topic when there are none.
            force: Also while the group has members, and beyond the bounds of the log.
            dry_run: Check everything, and write nothing.
            warn: Called with a sentence when the group has members and that does not prevent the call.

        Raises:
            ValueError: The target is none of the four.
            NotFound: There is no such topic or partition.
            GroupHasMembers: Consumers are in the group.
            OffsetsNotSet: A log does not have the target, or somebody else has changed an offset meanwhile.
        """
        check_group(group)
        check_topic(topic)
        wanted = target if isinstance(target, OffsetTarget) else parse_target(str(target))
        check_no_members(self._port, [group], warn if force or dry_run else None)
        names = topic_partitions(self._port, topic, partitions)
        changes = plan_target(self._port, self._cluster, group, names, wanted, force)
        new_groups = () if children(self._port, znodes.group_path(group)) is not None else (group,)
        return replace(self._write(changes, dry_run), new_groups=new_groups)

    def import_offsets(
        self,
        text: str,
        *,
        source: str = "the text",
        force: bool = False,
        dry_run: bool = False,
        warn: Callable[[str], object] = log.warning,
    ) -> OffsetChanges:
        """Set the offsets that lines of text name, as `export_offsets` and Kafka's ExportZkOffsets write them.

        Args:
            text: One line for each offset: `/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`.
            source: Where the text comes from, for the messages of errors.
            force: Also while groups have members.
            dry_run: Check everything, and write nothing.
            warn: Called with a sentence when groups have members and that does not prevent the call.

        Raises:
            GroupHasMembers: Consumers are in one of the groups.
            OffsetsNotSet: A line cannot be used, or somebody else has changed an offset meanwhile.
        """
        lines = lines_of(text, source)
        groups = list(dict.fromkeys(line.group for line in lines))
        check_no_members(self._port, groups, warn if force or dry_run else None)
        return self._write(plan_changes(self._port, [(line[:3], line.offset) for line in lines]), dry_run)

    def _write(self, changes: Sequence[OffsetChange], dry_run: bool) -> OffsetChanges:
        if not dry_run:
            write_changes(self._port, changes)
        return OffsetChanges(tuple(changes), not dry_run)

    def release(
        self, group: str, topic: str, partition: int | str, *, claim: int | None = None, dry_run: bool = False
    ) -> Released:
        """Release the claim on a partition, if its owner is dead; the members rebalance, and one of them claims it.

        Args:
            partition: Its number, or the name of its node.
            claim: The number of the claim, for which you vouch that nobody works under it though its session lives; it
                stands in the remedy of the error that was raised without it.
            dry_run: Change nothing.

        Raises:
            NotFound: There is no such group or topic.
            ClaimNotReleased: Its owner may be alive, or the claim has changed meanwhile.
        """
        check_group(group)
        check_topic(topic)
        path = znodes.owner_path(group, topic, partition)
        found = release_claim(self._port, self._zookeeper, group, path, claim, self._session, dry_run)
        if found.reason is None:
            check_names(self._port, group, topic)
        return found

    def trigger_rebalance(self, group: str) -> None:
        """Have all members of a group rebalance once; members that own what is assigned to them keep it.

        Raises:
            NotFound: There is no such group.
            RebalanceNotTriggered: ZooKeeper did not take it.
        """
        check_group(group)
        read_group(self._port, self._zookeeper, group)
        trigger_rebalance(self._port, group)

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection to ZooKeeper."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
