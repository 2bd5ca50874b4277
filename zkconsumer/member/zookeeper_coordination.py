"""The coordination of a member by ZooKeeper: the session, the check of the cluster, the offsets.

Rule: changes of the session are held back until the cluster is checked, so that nothing is registered before.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rebalance import partition as steps
from rebalance.errors import GroupRefused
from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.ports import MemberParts
from rebalance.rebalance_statistics import Counters
from rebalance.subscription import Partition, Subscription
from rebalance.takeover import MemberPartition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.coordinator import Coordinator
from rebalance.zookeeper.machine import GroupState
from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.port.pipeline import CountedPort, Pipeline
from rebalance.zookeeper.port.requests import SessionChange
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import wait_for_session
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.zookeeper_tls import zookeeper_options
from zkconsumer.member.coordination import member_of
from zkconsumer.member.membership import MemberFaults
from zkconsumer.offsets.commits import CommitNotes
from zkconsumer.offsets.offset_stores import member_offsets
from zkconsumer.status import BlockedClaim
from zkconsumer.wakeup import Latch

log = logging.getLogger(__name__)

_REFUSAL_S: Final = 2.0
"""Time for the last read of a registration, and for the refusal to reach the caller."""


class ZooKeeperCoordination:
    """How ZooKeeper coordinates the group of a member; see `zkconsumer.member.coordination.Coordination`.

    Args:
        config: Settings.
        consumer_id: As in `/consumers/[group]/ids`.
        subscription: The subscription of the member.
        lease: Until when the streams may deliver.
        on_generation: Called with the generation of the cluster, `0.7` or `0.8`, before anything is registered.
        loop: The coordinator's.
        counters: Counts requests and errors.
        faults: The callbacks for faults.
        resets: Replaces `auto.offset.reset`, and applies also for partitions that appear later.
    """

    coordinator: Coordinator

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        subscription: Subscription,
        lease: Lease,
        on_generation: Callable[[str], None],
        loop: Loop,
        counters: Counters,
        faults: MemberFaults,
        *,
        resets: str | None = None,
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._subscription = subscription
        self._resets = resets
        self._lease = lease
        self._on_generation = on_generation
        self._loop = loop
        options = zookeeper_options(config)
        self._tls = options.get("tls")
        self._kazoo = KazooPort(
            str(config.zookeeper_address), config.zookeeper_session_timeout_ms / 1000,
            lambda error: faults.port_failed("the ZooKeeper client has failed", error), **options,
        )  # fmt: skip
        self.port = CountedPort(self._kazoo, counters)
        self.cluster = Cluster(
            self.port, config.client_id, config.socket_timeout_ms / 1000,
            config.zookeeper_connection_timeout_ms / 1000, counters, security=config.security,
        )  # fmt: skip
        self.directory = self.cluster.directory
        self._pipeline = Pipeline(self.port, loop)
        self.notes = CommitNotes()
        self.offsets = member_offsets(config, self._pipeline.ask, loop, lease, self.cluster, counters)
        self._connected = Latch()
        self._deadline = 0.0
        self._gate = threading.Lock()
        self._held_change: SessionChange | None = None
        self._gate_open = False

    def coordinate(self, parts: MemberParts) -> None:
        """Make the coordinator."""
        member = member_of(self._config, self._consumer_id, self._subscription)
        if self._resets is not None:
            member = replace(member, reset_policy=self._resets, resets_later_ones=True)
        self.coordinator = Coordinator(
            member, self._pipeline, parts, self._lease, random.Random(), lambda: int(time.time() * 1000)
        )

    # -- joining -------------------------------------------------------------------------------------------------------

    def connect(self, connected: Latch) -> None:
        """Wait for the first session."""
        timeout_s = self._config.zookeeper_connection_timeout_ms / 1000
        self._deadline = lease_clock() + timeout_s
        self._connected = connected
        self.port.start(self._session_changed)
        wait_for_session(self._kazoo, connected, self._config.zookeeper, timeout_s, self._tls)

    def check_cluster(self) -> None:
        """Find out how the group is written in ZooKeeper; nothing is registered before."""
        if self._is_refused():
            return
        config = self._config
        found = self.cluster.reader.find_generation(config.group_id, config.kafka_generation)
        for name, value, known in (
            ("partition.assignment.strategy", config.partition_assignment_strategy, found.strategies),
            ("offsets.storage", config.offsets_storage, found.storages),
        ):
            if value not in known:
                raise GroupRefused(
                    config.group_id,
                    f"{name} is {value}, but members of Kafka {found.name} support only {' and '.join(known)}",
                )
        if found.name == "0.7" and config.kafka_generation == "auto":
            log.info(
                "group %s is of Kafka 0.7, but the defaults are those of 0.8; set kafka.generation=0.7 for the "
                "defaults of 0.7, which also allows any word as auto.offset.reset",
                config.group_id,
            )
        self._on_generation(found.name)
        self.coordinator.member.generation.value = found

    def open(self) -> None:
        """Report the change of the session that was held back, and all later ones."""
        with self._gate:
            self._gate_open = True
            if self._held_change is not None:
                self.coordinator.session_changed(self._held_change)

    def await_settled(self, settled: Latch) -> None:
        """Wait as long as the connection may take, and longer if another session has this consumer id.

        That one ends soon if its process has died; if not, the caller must know.
        """
        is_settled = settled.wait(max(0.0, self._deadline - lease_clock()))
        if not is_settled and self.coordinator.machine.state is GroupState.REGISTERING:
            settled.wait(self.coordinator.session.registration_patience_s + _REFUSAL_S)

    def _session_changed(self, change: SessionChange) -> None:
        """Hold changes back until the cluster is checked. Threads: any."""
        with self._gate:
            if not self._gate_open:
                self._held_change = change
                if change.what in ("connected", "refused"):
                    self._connected.set()
                return
        self.coordinator.session_changed(change)

    def _is_refused(self) -> bool:
        with self._gate:
            return self._held_change is not None and self._held_change.what == "refused"

    # -- for the status ------------------------------------------------------------------------------------------------

    def registrations(self) -> tuple[str, ...]:
        """Return the members of the group as last read."""
        snapshot = self.coordinator.machine.snapshot
        if snapshot is None:
            return ()
        kinds = (snapshot.members, snapshot.unreadable, snapshot.untranslatable, snapshot.refused_members)
        return tuple(sorted({name for kind in kinds for name in kind}))

    def generation(self) -> int:
        """Return the zxid of the last join or leave that this member has seen."""
        snapshot = self.coordinator.machine.snapshot
        return snapshot.group_version if snapshot is not None else 0

    def refused_nodes(self) -> list[str]:
        """Return which nodes of brokers may not be read."""
        return list(self.cluster.reader.refused.values())

    def blocked(self, now: float) -> tuple[BlockedClaim, ...]:
        """Return the claims that wait for owner nodes of other members."""
        blocked = [(partition, entry) for partition, entry in self.coordinator.partitions.items()
                   if entry.machine.state is steps.PartitionState.BLOCKED]  # fmt: skip
        blocked.sort(key=lambda item: (item[0][0], str(item[0][1]).zfill(12)))
        return tuple(_blocked(self._config.group_id, partition, entry, now) for partition, entry in blocked)


def _blocked(group: str, partition: Partition, entry: MemberPartition, now: float) -> BlockedClaim:
    holder = entry.machine.holder or ("", 0)
    return BlockedClaim(
        topic=partition[0],
        partition=partition[1],
        path=znodes.owner_path(group, *partition),
        holder=holder[0],
        holder_session=holder[1],
        since_s=round(now - entry.since, 3),
    )
