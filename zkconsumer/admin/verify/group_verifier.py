"""Verifies one group of a cluster, any number of times, and triggers a rebalance where that would help.

Source: kafka.tools.VerifyConsumerRebalance (0.8.2.2), which calls every sound group broken (KAFKA-3952).

Checks a group repeatedly until it is settled: a rebalance under way is no fault, one that does not end is.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Sync, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.broker_group_report import CoordinatedGroup
from zkconsumer.admin.groups.group_nodes import group_not_found, read_group
from zkconsumer.admin.groups.group_state import EntryFault, GroupNodes, Name
from zkconsumer.admin.groups.release import trigger_rebalance
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka, read_kafka_offsets
from zkconsumer.admin.verify.broker_group_findings import same_name_findings
from zkconsumer.admin.verify.entry_faults import THOROUGH, find_entry_faults
from zkconsumer.admin.verify.findings import Finding, Verification
from zkconsumer.admin.verify.offset_findings import LogRange, offset_findings, storage_findings
from zkconsumer.admin.verify.verification import partitions_of, verify_group
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S
from zkconsumer_error import ZkConsumerError


class GroupVerifier:
    """Reads and verifies one group.

    Args:
        zookeeper: The connection string, for the messages of errors.
        strategies: The strategies that the group may use; with none, owners are not compared with an assignment.
        least_members: Fewer registered consumers are a fault.
        cluster: Asked whether the logs have the stored offsets; None: they are not compared.
        in_kafka: The offsets in Kafka, which are read if `cluster` is given.
        of_brokers: Returns the group of a name that brokers coordinate, None if there is none or it is not known. It is
            called if `cluster` is given.
        on_wait: Called once, when the group is checked again because a rebalance would explain what is wrong.
    """

    def __init__(
        self,
        port: ZooKeeperPort,
        zookeeper: str,
        group: str,
        strategies: Sequence[str],
        least_members: int,
        cluster: Cluster | None,
        in_kafka: OffsetsInKafka,
        of_brokers: Callable[[str], CoordinatedGroup | None],
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        self._port = port
        self._zookeeper = zookeeper
        self._group = group
        self._strategies = strategies
        self._least_members = least_members
        self._cluster = cluster
        self._in_kafka = in_kafka
        self._of_brokers = of_brokers
        self._on_wait = on_wait
        self._sessions: Mapping[str, int] | None = None
        self._changes = 0
        self._triggered_for: tuple[str, ...] = ()
        self._looked_at: dict[tuple[TopicPartition, int], EntryFault | None] = {}

    def check(self, is_last: bool) -> Verification:
        """Return what is wrong now. During a rebalance the brokers are asked by the last check alone.

        Raises:
            NotFound: There is no such group.
            ZooKeeperSilent: ZooKeeper does not answer.
        """
        # After this the server, whichever it is, has caught up with its leader.
        call(self._port, Sync(znodes.group_path(self._group)), READ_TIMEOUT_S)
        must_exist = self._cluster is None
        nodes = read_group(self._port, self._in_kafka.cluster, self._zookeeper, self._group, must_exist)
        if not nodes.exists:
            nodes = read_kafka_offsets(self._port, self._in_kafka, nodes)
            if not nodes.kafka_offsets:
                raise group_not_found(self._port, self._zookeeper, self._group, nodes.kafka_unknown)
        self._changes += self._sessions not in (None, nodes.sessions)
        self._sessions = nodes.sessions
        found = verify_group(nodes, self._strategies, self._least_members)
        if found.is_passing and self._on_wait is not None:
            self._on_wait()
            self._on_wait = None
        logs: dict[Name, LogRange] = {}
        other: CoordinatedGroup | None = None
        if self._cluster is not None and (is_last or not found.is_passing):
            nodes = read_kafka_offsets(self._port, self._in_kafka, nodes)
            logs = _read_logs(self._cluster, nodes)
            nodes = self._with_entry_faults(self._cluster, nodes, logs)
            other = self._of_brokers(self._group)
        return dataclasses.replace(found, findings=(
            *found.findings, *offset_findings(nodes, logs), *storage_findings(nodes), *same_name_findings(nodes, other)
        ))  # fmt: skip

    def _with_entry_faults(self, cluster: Cluster, nodes: GroupNodes, logs: Mapping[Name, LogRange]) -> GroupNodes:
        """Return the nodes with what is wrong at stored positions of Kafka 0.7; a position is looked at once."""
        if not nodes.generation.has_broker_nodes:
            return nodes
        positions: dict[TopicPartition, int] = {}
        for (topic, name), log in logs.items():
            position = nodes.offset_in_zookeeper((topic, name))
            if position is not None and not isinstance(log, str) and log[0] < position < log[1]:
                positions[TopicPartition(topic, name)] = position
        new = {name: position for name, position in positions.items() if (name, position) not in self._looked_at}
        found = find_entry_faults(cluster, new, THOROUGH)
        self._looked_at |= {(name, position): found.get(name) for name, position in new.items()}
        faults = {name: self._looked_at[name, position] for name, position in positions.items()}
        return dataclasses.replace(nodes, entry_faults={
            (name.topic, str(name.partition)): fault for name, fault in faults.items() if fault is not None
        })  # fmt: skip

    def trigger(self, found: Verification) -> None:
        """Trigger a rebalance for the members that lack partitions.

        Raises:
            RebalanceNotTriggered: ZooKeeper did not accept it.
        """
        trigger_rebalance(self._port, self._group, self._in_kafka.cluster.generation())
        self._triggered_for = found.wakeable

    def concluded(self, found: Verification, checked_s: float) -> Verification:
        """Return the last result, with what was seen over all checks.

        Args:
            checked_s: How long the group was checked, in seconds.
        """
        found = dataclasses.replace(found, triggered_for=self._triggered_for)
        if self._changes < 2 or not found.is_passing:
            return found
        unrest = Finding(
            "unrest", znodes.ids_path(self._group),
            f"members came and went {self._changes} times in {checked_s:.0f} s",
            "check in their logs why they restart or lose their sessions", passing=True,
        )  # fmt: skip
        return dataclasses.replace(found, findings=(*found.findings, unrest))


def _read_logs(cluster: Cluster, nodes: GroupNodes) -> dict[Name, LogRange]:
    """Return the bounds of the logs of the partitions with a stored offset."""
    partitions, _ = partitions_of(nodes)
    wanted = [
        TopicPartition(topic, number) for topic, name in sorted({*nodes.offsets, *nodes.kafka_offsets})
        if (number := nodes.partition_of(name)) is not None and number in partitions.get(topic, ())
    ]  # fmt: skip
    found = cluster.log_ends(wanted, [EARLIEST, LATEST])
    return {(name.topic, str(name.partition)): _log_range(offsets) for name, offsets in found.items()}


def _log_range(offsets: tuple[int | None, ...] | str) -> LogRange:
    if isinstance(offsets, str):
        return offsets
    start, end = offsets
    return "the broker reports no offsets" if start is None or end is None else (start, end)


_PAUSE_S = 0.5


def check_until_settled(
    check: Callable[[bool], Verification],
    patience_s: float,
    wait_s: float = 0.0,
    trigger: Callable[[Verification], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Verification:
    """Return the last result: that of the first check without faults, or the one when the time is over.

    Args:
        check: Checks the group; called with True when this is the last check.
        patience_s: How long a fault may last that a rebalance explains.
        wait_s: How long any fault may last, also a group that does not exist and a ZooKeeper that does not answer.
        trigger: Triggers a rebalance; called once, when `patience_s` is over and a rebalance would give a member what
            it lacks. Then `patience_s` starts again.

    Raises:
        ZkConsumerError: The group could not be read, at the end.
    """
    patience_ends = clock() + patience_s
    deadline = max(patience_ends, clock() + wait_s)
    while True:
        started_at = clock()
        is_last = started_at >= deadline
        found, failure = _try(check, is_last)
        if found is not None and not found.faults:
            return found
        now = clock()
        if trigger is not None and found is not None and found.wakeable and now >= patience_ends:
            trigger(found)
            trigger, deadline = None, max(deadline, now + patience_s)
        elif is_last or not (wait_s > 0 or (found is not None and found.is_passing)):
            if found is None:
                assert failure is not None
                raise failure
            return found
        # Checks take half of the time at most, however large the group is; the last one is when the time is over.
        sleep(max(0.05, min(max(_PAUSE_S, now - started_at), deadline - now)))


def _try(check: Callable[[bool], Verification], is_last: bool) -> tuple[Verification | None, Exception | None]:
    try:
        return check(is_last), None
    except ZkConsumerError as error:
        return None, error
