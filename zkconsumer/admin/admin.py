"""`Admin`: inspects and changes the consumer groups of one cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from rebalance.subscription import check_group, check_topic
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import SessionChange, ZooKeeperPort
from simpleconsumer.closing import Closing
from zkconsumer.admin.acl_administration import AclAdministration
from zkconsumer.admin.acl_calls import AclCalls
from zkconsumer.admin.broker_groups import BrokerGroups
from zkconsumer.admin.groups.group_deletion import DeletedGroups, delete_groups
from zkconsumer.admin.groups.group_list import list_groups, with_broker_groups
from zkconsumer.admin.groups.group_nodes import read_entry_faults, read_group, read_log_ends
from zkconsumer.admin.groups.group_report import STRATEGIES, GroupReport, report
from zkconsumer.admin.groups.release import check_names, release_claim, trigger_rebalance
from zkconsumer.admin.lag_administration import LagAdministration
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka, read_group_and_kafka
from zkconsumer.admin.offsets.offset_administration import GroupOffsets, OffsetAdministration
from zkconsumer.admin.offsets.store_choice import check_store
from zkconsumer.admin.topics.controller_calls import ControllerCalls
from zkconsumer.admin.topics.topic_administration import TopicAdministration, ZooKeeperTopicStore
from zkconsumer.admin.topics.topic_nodes import read_topics
from zkconsumer.admin.topics.topic_report import TopicReport, topic_report
from zkconsumer.admin.values import GroupList, Released
from zkconsumer.admin.verify.findings import Verification
from zkconsumer.admin.verify.group_verifier import GroupVerifier, check_until_settled
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.config.zookeeper_tls import zookeeper_options

__all__ = ["Admin", "GroupOffsets", "connection_options"]

_BROKER_TIMEOUT_S: Final = 5.0
"""Longest wait for one answer of a broker."""


def connection_options(zookeeper: str, properties: Mapping[str, object] | None) -> tuple[dict[str, Any], float]:
    """Return the keyword arguments of `zookeeper_connection` for settings of the consumer, and its time-out in seconds.

    Raises:
        ConfigError: A property has a value that is not allowed, or names a file that cannot be used.
    """
    config = config_without_group(zookeeper, properties)
    return zookeeper_options(config), config.zookeeper_connection_timeout_ms / 1000


class Admin(OffsetAdministration, TopicAdministration, AclAdministration, LagAdministration, Closing):
    """Inspects and changes the consumer groups of one cluster, members of other clients included.

    A connection to ZooKeeper is opened by the constructor and closed by `close()`, or at the end of a `with` block.
    Brokers are asked when a method needs them. Offsets are those in ZooKeeper and in Kafka; a method that changes them
    has an argument `store`: `zookeeper`, `kafka` or `both`. Without it, those stores are changed in which the group has
    offsets; for a group without any it is ZooKeeper.

    Args:
        zookeeper: `host:port,host:port/chroot`, as `zookeeper.connect`.
        properties: Settings of the consumer by their names in Kafka. Those of `zookeeper.*` for TLS, SASL, credentials
            and access lists are used, `kafka.generation`, and those for TLS and SASL to brokers; the others are only
            checked.
        timeout_s: Longest wait for the connection, in seconds; if left out, `zookeeper.connection.timeout.ms` of the
            properties, and 6 without it.
        client_id: The name under which brokers log and count the requests.

    Attributes:
        broker_groups: The groups that brokers of the same cluster coordinate (Kafka 0.9 and later).

    Raises:
        ConfigError: A property has a value that is not allowed, or the brokers are of another generation than
            `kafka.generation` says.
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
        config = config_without_group(zookeeper, properties)
        options = zookeeper_options(config)
        given_s = config.zookeeper_connection_timeout_ms / 1000
        timeout_s = given_s if timeout_s is None else timeout_s
        forced = config.kafka_generation
        self._zookeeper = zookeeper
        self._session = 0
        self._stack = ExitStack()
        self._port: ZooKeeperPort = self._stack.enter_context(
            zookeeper_connection(zookeeper, timeout_s, self._session_changed, **options)
        )
        self._cluster = Cluster(
            self._port, client_id, _BROKER_TIMEOUT_S, forced_generation=forced, security=config.security
        )
        try:
            self._cluster.refuse_other_generation()
        except BaseException:
            self.close()
            raise
        self._in_kafka = OffsetsInKafka(self._port, self._cluster, client_id)
        calls = ControllerCalls(self._cluster, client_id, f"at the brokers of {zookeeper}")
        self._acl_calls = AclCalls(calls)
        self._topic_store = ZooKeeperTopicStore(self._port, calls, zookeeper, self._in_kafka)
        self.broker_groups = BrokerGroups(self._cluster, client_id, f"at the brokers of {zookeeper}")

    def _session_changed(self, change: SessionChange) -> None:
        if change.what == "connected":
            self._session = change.session_id

    # -- inspecting ----------------------------------------------------------------------------------------------------

    def groups(self) -> GroupList:
        """Return all groups: how many members and partitions they have, what they read, and where they have offsets.

        Groups in ZooKeeper are those with a node there. Groups that brokers coordinate are listed with them if
        the brokers serve that (Kafka 0.9 and later); `coordination` of a row says which it is, and a name that both
        kinds have has two rows. The offsets that a group in ZooKeeper stores in Kafka are no group of their own. An
        offset manager that does not answer within three seconds leaves `offsets_in_kafka` of its groups unknown, and a
        broker that does not answer leaves the groups out that it coordinates, which `unlisted` says.
        """
        return with_broker_groups(list_groups(self._port, self._in_kafka), self.broker_groups)

    def topics(self, *names: str) -> TopicReport:
        """Return the partitions of topics, of all topics when none is named: leaders, replicas, offsets, problems.

        Raises:
            NotFound: There is no such topic.
        """
        return topic_report(read_topics(self._port, self._cluster, self._zookeeper, names))

    def describe(self, group: str) -> GroupReport:
        """Return the members of a group, the owner of each partition, and its lag.

        Raises:
            NotFound: There is no such group.
        """
        check_group(group)
        nodes = read_group_and_kafka(self._port, self._zookeeper, self._in_kafka, group)
        return report(read_entry_faults(self._cluster, read_log_ends(self._cluster, nodes)))

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
        """Check that the thread to which a partition is assigned owns it; return what is wrong, and how to fix it.

        Args:
            strategies: The strategies that the group may use, of `STRATEGIES`; with none, owners are not compared with
                an assignment.
            least_members: Fewer registered consumers are a fault.
            patience_s: How long a rebalance may take before its signs count as faults; the default fits the four tries
                of a Java member.
            wait_s: Wait so long for the group to exist and to be without faults.
            trigger: Trigger a rebalance, once, when members lack partitions that nothing else keeps from them.
            with_logs: Ask the brokers for the offsets in Kafka, and whether their logs have the stored offsets.
            on_wait: Called once, when the group is checked again because a rebalance would explain what is wrong.
            on_trigger: Called with the members for which a rebalance was triggered.

        Raises:
            ValueError: A strategy is none of `STRATEGIES`.
            NotFound: There is no such group.
            RebalanceNotTriggered: ZooKeeper did not accept it.
        """
        check_group(group)
        unknown = [name for name in strategies if name not in STRATEGIES]
        if unknown:
            raise ValueError(f"strategies has {unknown[0]!r}; it must be some of {', '.join(STRATEGIES)}")
        started_at = time.monotonic()
        cluster = self._cluster if with_logs else None
        verifier = GroupVerifier(
            self._port,
            self._zookeeper,
            group,
            strategies,
            least_members,
            cluster,
            self._in_kafka,
            self.broker_groups.seen,
            on_wait,
        )

        def triggered(found: Verification) -> None:
            verifier.trigger(found)
            if on_trigger is not None:
                on_trigger(found.wakeable)

        found = check_until_settled(verifier.check, patience_s, wait_s, triggered if trigger else None)
        return verifier.concluded(found, time.monotonic() - started_at)

    # -- changing ------------------------------------------------------------------------------------------------------

    def delete_groups(self, *groups: str, store: str | None = None, dry_run: bool = False) -> DeletedGroups:
        """Delete groups without members: their nodes in ZooKeeper, and their offsets in Kafka.

        All groups are checked before the first one is deleted. From Kafka 1.1 on the offset manager deletes the group;
        before, its offsets count as none at once, and are deleted when the broker looks for expired offsets next.

        Args:
            groups: Names of groups, at least one.
            store: `zookeeper` or `kafka`: delete from that store alone.
            dry_run: Check everything, and delete nothing.

        Raises:
            ValueError: No group is named, or the store is none.
            NotFound: There is no such group.
            GroupHasMembers: Consumers are in one of the groups, or a session that lives owns partitions.
            GroupNotDeleted: A node or an offset could not be deleted, or it is not known what Kafka has of the group,
                or brokers coordinate a group of that name, too, and no store is named.
        """
        if not groups:
            raise ValueError("give the name of at least one group")
        for group in groups:
            check_group(group)
        check_store(store)
        if store is None:
            self.broker_groups.refuse_same_names(groups)
        return delete_groups(self._port, self._in_kafka, self._zookeeper, groups, store, dry_run)

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
            NotFound: There is no such group, topic or partition.
            ClaimNotReleased: Its owner may be alive, or the claim has changed in the meantime.
        """
        check_group(group)
        check_topic(topic)
        path = znodes.owner_path(group, topic, partition)
        generation = self._cluster.generation()
        found = release_claim(self._port, generation, self._zookeeper, group, path, claim, self._session, dry_run)
        if found.reason is None:
            check_names(self._port, group, topic, partition)
        return found

    def trigger_rebalance(self, group: str) -> None:
        """Have all members of a group rebalance once; members keep partitions that are assigned to them.

        Raises:
            NotFound: There is no such group.
            RebalanceNotTriggered: ZooKeeper did not accept it.
        """
        check_group(group)
        nodes = read_group(self._port, self._cluster, self._zookeeper, group)
        trigger_rebalance(self._port, group, nodes.generation)

    # -- closing -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection to ZooKeeper."""
        self._stack.close()
