"""Reads the partitions of topics, of whichever generation each is: JSON in its node, or a child for each broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalance.errors import RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes, znodes_07
from rebalance.zookeeper.generation import Generation
from rebalance.zookeeper.port.requests import GetChildren, GetData, ZooKeeperPort
from zkconsumer.cluster.topic_of_07 import Topic07
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all, read_each

__all__ = ["read_partitions", "read_topics_07"]


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
    return {topic: znodes.broker_ids(names)
            for topic, names in children.items() if "partitions" not in names}


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
    return {
        topic: Topic07(znodes_07.partition_names(counts[topic]), tuple(problems[topic])) for topic in brokers
    }
