"""Reads the brokers' nodes in ZooKeeper: registrations of brokers, topics, and states of partitions.

Source: docs/COMPATIBILITY.md; node formats in `rebalance.zookeeper.znodes`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rebalance.errors import GroupRefused, Kafka07Node, NoListener, RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes, znodes_07
from rebalance.zookeeper.generation import Generation
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData, ZooKeeperPort
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.generation import find_generation
from zkconsumer.cluster.topic_partitions import read_partitions
from zkconsumer.cluster.zookeeper_reads import error_of, read_all, read_each

__all__ = ["ClusterReader"]

log = logging.getLogger(__name__)

_LISTS_ITS_VERSIONS: Final = 3
"""The version of a broker's registration from which on it is of Kafka 0.10.0 or later."""
_REMEDY = "security.protocol chooses the listener"


def _why_left_out(error: UnreadableNode, protocol: str) -> str:
    return f"it has no {protocol} listener ({error.path}); {_REMEDY}" if isinstance(error, NoListener) else str(error)


def _broker(broker_id: int, data: bytes | None, protocol: str) -> Broker:
    """Return a registered broker, of whichever generation it is, with its address for a protocol.

    Raises:
        UnreadableNode: Its registration cannot be used.
    """
    try:
        node = znodes.parse_broker(broker_id, data, protocol)
    except Kafka07Node:
        node = znodes_07.parse_broker_07(broker_id, data)
        if protocol != znodes.PLAINTEXT:
            raise NoListener(znodes.broker_path(broker_id), f"Kafka 0.7 has no {protocol} listener", data) from None
        return Broker(node.id, node.host, node.port, generation="kafka07")
    if node.registration_version >= _LISTS_ITS_VERSIONS:
        return Broker(node.id, node.host, node.port, 2, "kafka011", 2)
    commit_version = 2 if node.registration_version >= 2 else 1  # 2 is the registration of 0.9
    return Broker(node.id, node.host, node.port, commit_version=commit_version)


class ClusterReader:
    """Reads `/brokers`, many nodes at a time, with a deadline.

    Args:
        port: A started ZooKeeper port.
        timeout_s: For each five hundred nodes.
        protocol: The `security.protocol` of the addresses that brokers are asked at.

    Attributes:
        refused: Path -> why it cannot be read, a sentence; of the broker and state nodes that were read last.
        left_out: Broker id -> why it cannot be asked, a clause; of the brokers that were read last.
        epochs: The epochs of the leaders that were read last.

    Threads: Any but the coordinator's; each call blocks its caller alone.
    """

    def __init__(self, port: ZooKeeperPort, timeout_s: float, protocol: str = znodes.PLAINTEXT) -> None:
        self._protocol = protocol
        self._port = port
        self._timeout_s = timeout_s
        self.refused: Mapping[str, str] = {}
        self.left_out: Mapping[int, str] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self._reported: frozenset[str] = frozenset()
        self._reported_brokers: frozenset[int] = frozenset()

    def _read_each(self, root: str, paths: Sequence[str]) -> list[Any]:
        """Return data and stats of nodes; a node that may not be read is logged once, and the others are returned."""
        values = read_each(self._port, [GetData(path) for path in paths], self._timeout_s)
        refused = {value.path: str(value) for value in values if isinstance(value, RefusedNode)}
        for path in sorted(refused.keys() - self._reported):
            log.warning("%s; that node is left out", refused[path])
        self._reported = self._reported - set(paths) | refused.keys()
        self.refused = {
            **{path: sentence for path, sentence in self.refused.items() if not path.startswith(root)}, **refused
        }
        return values

    def topics(self) -> list[str]:
        """Return the topics, sorted.

        Raises:
            ZooKeeperSilent: No answer in time.
            AccessRefused: The list of topics may not be read.
        """
        [listing] = read_all(self._port, [GetChildren(znodes.TOPICS)], self._timeout_s)
        return [] if listing is None else sorted(listing[0])

    def partitions(self, topics: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
        """Return the partitions of those of the topics that exist; see `read_partitions`."""
        return read_partitions(self._port, topics, self._timeout_s)

    def brokers(self) -> list[Broker]:
        """Return the brokers that are registered and have a listener of the protocol, by id.

        Raises:
            ZooKeeperSilent: No answer in time.
        """
        found, _ = self._brokers()
        return found

    def _brokers(self) -> tuple[list[Broker], list[UnreadableNode | RefusedNode]]:
        [listing] = read_each(self._port, [GetChildren(znodes.BROKERS)], self._timeout_s)
        if isinstance(listing, RefusedNode):
            self.refused = {listing.path: str(listing)}
            raise error_of(listing)
        names = listing[0] if listing is not None else []
        ids = znodes.broker_ids(names)
        brokers: list[Broker] = []
        unreadable: list[UnreadableNode | RefusedNode] = []
        left_out: dict[int, str] = {}
        refused: dict[int, str] = {}
        values = self._read_each(znodes.BROKERS, [znodes.broker_path(each) for each in ids])
        for broker_id, value in zip(ids, values, strict=True):
            if value is None:
                continue
            if isinstance(value, RefusedNode):
                unreadable.append(value)
                refused[broker_id] = str(value)  # `_read_each` has logged it
                continue
            try:
                brokers.append(_broker(broker_id, value[0], self._protocol))
            except UnreadableNode as error:
                unreadable.append(error)
                left_out[broker_id] = _why_left_out(error, self._protocol)
        for broker_id in sorted(left_out.keys() - self._reported_brokers):
            log.warning("broker %d is left out: %s", broker_id, left_out[broker_id])
        self._reported_brokers = frozenset(left_out)
        self.left_out = left_out | refused
        return brokers, unreadable

    def usable_brokers(self, group: str) -> list[Broker]:
        """Return the brokers that are registered, for a start in which there is no other way than to reach them.

        Raises:
            GroupRefused: There are brokers, and none of them has a listener of the protocol.
            ZooKeeperSilent: No answer in time.
        """
        brokers, unreadable = self._brokers()
        if not brokers and any(isinstance(error, NoListener) for error in unreadable):
            raise GroupRefused(group, f"no broker of the cluster has a listener of {self._protocol}; {_REMEDY}")
        if not brokers and not unreadable:
            log.warning("no broker is registered under %s; waiting for a broker", znodes.BROKERS)
        return brokers

    def find_generation(self, group: str, forced: str) -> Generation:
        """Return the generation of Kafka with which a member has to work; called before anything is registered.

        Args:
            forced: The value of `kafka.generation`.

        Raises:
            GroupRefused: See `usable_brokers` and `zkconsumer.cluster.generation.find_generation`.
            ZooKeeperSilent: No answer in time.
        """
        return find_generation(self._port, group, forced, self.usable_brokers(group), self._timeout_s)

    def topic_exists(self, topic: str) -> bool:
        """Return True if the topic exists in ZooKeeper; brokers create a topic that they are asked about."""
        return topic in self.existing([topic])

    def existing(self, topics: Sequence[str]) -> set[str]:
        """Return those of the topics that exist in ZooKeeper.

        Raises:
            ZooKeeperSilent: No answer in time.
        """
        requests = [Exists(znodes.topic_path(topic)) for topic in topics]
        # A node that may not be read exists (from ZooKeeper 3.9 on `exists` needs the right to read as well).
        stats = read_each(self._port, requests, self._timeout_s)
        return {topic for topic, stat in zip(topics, stats, strict=True) if stat is not None}

    def leaders(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the broker ids in the state nodes of partitions, without partitions that have no leader.

        Raises:
            ZooKeeperSilent: No answer in time.
        """
        paths = [znodes.partition_state_path(topic, int(number)) for topic, number in partitions]
        found: dict[TopicPartition, int] = {}
        self.epochs = {}
        values = self._read_each(znodes.TOPICS, paths)
        for partition, path, value in zip(partitions, paths, values, strict=True):
            if value is None or isinstance(value, RefusedNode):
                continue
            try:
                leader, epoch, _ = znodes.parse_partition_state(path, value[0])
            except UnreadableNode as error:
                log.warning("%s", error)
                continue
            if leader is not None and leader >= 0:
                found[partition], self.epochs[partition] = leader, epoch
        return found
