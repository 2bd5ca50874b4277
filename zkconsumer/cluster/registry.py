"""Reads the brokers' nodes in ZooKeeper: registrations of brokers, topics, and states of partitions.

Source: docs/COMPATIBILITY.md; node formats in `rebalance.zookeeper.znodes`.

Reads the partitions of topics, of whichever generation each is: JSON in its node, or a child for each broker.

The partitions of one topic of Kafka 0.7, as reports show them, and why one is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rebalance.errors import GroupRefused, Kafka07Node, NoListener, RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes, znodes_07
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData, ZooKeeperPort
from rebalance.zookeeper.znodes_07 import Generation
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.generation import find_generation
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, error_of, read_all, read_each


def why_away(missing: Iterable[int | str], known: Iterable[int | str]) -> str:
    """Return why partitions are missing, a clause that names brokers of Kafka 0.7 that are away; empty without any.

    >>> why_away(["1-0"], ["0-0", "0-1"])
    ', because broker 1 is not registered with it'

    Args:
        missing: Partitions that a topic does not have.
        known: The partitions that it has.
    """
    away = sorted(_brokers_in(missing) - _brokers_in(known))
    if not away:
        return ""
    brokers = f"broker {away[0]} is" if len(away) == 1 else f"brokers {', '.join(map(str, away))} are"
    return f", because {brokers} not registered with it"


def _brokers_in(partitions: Iterable[int | str]) -> set[int]:
    names = [each for each in partitions if isinstance(each, str) and znodes_07.is_partition(each)]
    return {znodes_07.broker_and_number(each)[0] for each in names}


def no_partition(topic: str, missing: Sequence[int | str], known: Sequence[int | str]) -> str:
    """Return that a topic does not have some partitions, a sentence.

    Args:
        missing: The partitions.
        known: The partitions that it has.
    """
    away = why_away(missing, known)
    now = " now" if away else ""
    return f"topic {topic!r} has no partition {', '.join(map(str, missing))}{now}{away}"


class Topic07(NamedTuple):
    """One topic of Kafka 0.7, for reports: a node that cannot be read is named, and hides nothing else.

    Attributes:
        partitions: Those of the brokers that are registered below it, in the order of text.
        problems: Nodes that cannot be read, a sentence each.
    """

    partitions: tuple[str, ...]
    problems: tuple[str, ...] = ()

    def why_missing(self, name: str) -> str:
        """Return why there is no partition of a name, a clause."""
        if not znodes_07.is_partition(name):
            return "the partition does not exist"
        broker, _ = znodes_07.broker_and_number(name)
        if any(znodes_07.broker_and_number(each)[0] == broker for each in self.partitions):
            return f"broker {broker} does not have this partition of the topic"
        return f"broker {broker} is not registered with the topic; the partition returns with it, at the same position"


def read_partitions(
    port: ZooKeeperPort, topics: Sequence[str], timeout_s: float = READ_TIMEOUT_S
) -> dict[str, tuple[int | str, ...]]:
    """Return the partitions of those of the topics that exist, in the order of their generation.

    A topic of Kafka 0.7 has no data; its partitions are those of the brokers that are registered below it.

    Raises:
        UnreadableNode: The node of a topic cannot be understood.
        ZooKeeperSilent: No answer in time.
        AccessRefused: The node of a topic may not be read.
    """
    values = read_all(port, [GetData(znodes.topic_path(topic)) for topic in topics], timeout_s)
    data = {topic: value[0] for topic, value in zip(topics, values, strict=True) if value is not None}
    of_07 = _brokers_of(port, [topic for topic in data if not data[topic]], timeout_s)
    counts = _partition_counts(port, of_07, timeout_s)
    return {
        topic: znodes_07.partition_names(counts[topic]) if topic in of_07 else znodes.parse_topic(topic, data[topic])
        for topic in data
    }


def _brokers_of(port: ZooKeeperPort, topics: Sequence[str], timeout_s: float) -> dict[str, list[int]]:
    """Return topic -> ids of its brokers; without a topic whose children are those of Kafka 0.8."""
    values = read_all(port, [GetChildren(znodes.topic_path(topic)) for topic in topics], timeout_s)
    children = {topic: [] if value is None else value[0] for topic, value in zip(topics, values, strict=True)}
    return {topic: znodes.broker_ids(names) for topic, names in children.items() if "partitions" not in names}


def _partition_counts(
    port: ZooKeeperPort, brokers: dict[str, list[int]], timeout_s: float
) -> dict[str, dict[int, int]]:
    """Return topic -> broker -> how many partitions it has, without brokers that are gone by now."""
    places = [(topic, broker) for topic, ids in brokers.items() for broker in ids]
    paths = [znodes_07.topic_broker_path(topic, broker) for topic, broker in places]
    found: dict[str, dict[int, int]] = {topic: {} for topic in brokers}
    values = read_all(port, [GetData(path) for path in paths], timeout_s)
    for (topic, broker), path, value in zip(places, paths, values, strict=True):
        if value is not None:
            found[topic][broker] = znodes_07.parse_partition_count_07(path, value[0])
    return found


def read_topics_07(
    port: ZooKeeperPort, data: Mapping[str, bytes | None], generation: Generation, timeout_s: float = READ_TIMEOUT_S
) -> dict[str, Topic07]:
    """Return those of the topics that are of Kafka 0.7, for reports.

    A topic of 0.7 has no data, and its children are brokers. Without any child it is of the generation of the cluster:
    topics stay when all of their brokers are gone.

    Args:
        port: A started ZooKeeper port.
        data: Topic -> data of its node, None without one.
        generation: That of the cluster.
        timeout_s: For each five hundred reads.

    Raises:
        ZooKeeperSilent: No answer in time.
    """
    empty = [topic for topic, held in data.items() if not held]
    listings = read_each(port, [GetChildren(znodes.topic_path(topic)) for topic in empty], timeout_s)
    brokers: dict[str, list[int]] = {}
    problems: dict[str, list[str]] = {}
    for topic, listing in zip(empty, listings, strict=True):
        if listing is None:
            continue  # there is no such topic
        names = listing[0] if isinstance(listing, tuple) else []
        ids = znodes.broker_ids(names)
        if ids or (generation.has_broker_nodes and "partitions" not in names):
            brokers[topic] = ids
            problems[topic] = [str(listing)] if isinstance(listing, RefusedNode) else []
    places = [(topic, broker) for topic, ids in brokers.items() for broker in ids]
    paths = [znodes_07.topic_broker_path(topic, broker) for topic, broker in places]
    counts: dict[str, dict[int, int]] = {topic: {} for topic in brokers}
    values = read_each(port, [GetData(path) for path in paths], timeout_s)
    for (topic, broker), path, value in zip(places, paths, values, strict=True):
        if value is None:
            continue  # the broker is gone by now
        try:
            if isinstance(value, RefusedNode):
                problems[topic].append(str(value))
            else:
                counts[topic][broker] = znodes_07.parse_partition_count_07(path, value[0])
        except UnreadableNode as error:
            problems[topic].append(str(error))
    return {topic: Topic07(znodes_07.partition_names(counts[topic]), tuple(problems[topic])) for topic in brokers}


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
            **{path: sentence for path, sentence in self.refused.items() if not path.startswith(root)},
            **refused,
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
