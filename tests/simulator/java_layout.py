"""What the Java consumer writes and reads in ZooKeeper: paths, payloads, and the order in which it assigns. Pure.

All that is different in another version of Kafka stands behind one object, `Layout`. Reading is as strict as Java's:
one registration or offset that Scala's parsers refuse is an exception, and with it the end of a rebalance attempt.

Source: kafka.utils.ZkUtils, kafka.consumer.TopicCount, kafka.consumer.PartitionAssignor (0.8.2.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from rebalance.errors import UnreadableNode, UnsupportedFilter
from rebalance.subscription import Subscription, java_string_hash
from rebalance.zookeeper import znodes
from rebalance.zookeeper.znodes import java_refusal
from tests.simulator.java_threads import Body, JavaFailure
from tests.simulator.java_zkclient import Listener, NoNode, ZkClient

__all__ = ["Decision", "Kafka082", "Layout", "ThreadsOfTopics", "java_range", "java_roundrobin", "in_java_order"]

ThreadsOfTopics: TypeAlias = Mapping[str, Sequence[str]]
"""Topic -> thread ids."""

Decision: TypeAlias = dict[tuple[str, int | str], str]
"""(topic, partition) -> the thread of this consumer that should own it."""

_LONG: Final = re.compile(rb"[+-]?[0-9]{1,19}")


class Layout(Protocol):
    """How one version of the Java consumer keeps a group in ZooKeeper."""

    def ids_path(self, group: str) -> str: ...

    def registration_path(self, group: str, consumer_id: str) -> str: ...

    def owner_path(self, group: str, topic: str, partition: int | str) -> str: ...

    def offset_path(self, group: str, topic: str, partition: int | str) -> str: ...

    def format_registration(self, subscription: Subscription, timestamp_ms: int) -> bytes: ...

    def parse_registration(self, path: str, data: bytes) -> Subscription: ...

    def read_partitions(self, zookeeper: ZkClient, topic: str) -> Body[list[int | str]]: ...

    def watch_topic(self, zookeeper: ZkClient, topic: str, changed: Listener) -> Body[None]: ...

    def parse_offset(self, path: str, data: bytes) -> int: ...


class Kafka082:
    """Kafka 0.8.2: JSON, partitions by number, the topic's own data to be watched."""

    ids_path = staticmethod(znodes.ids_path)
    registration_path = staticmethod(znodes.registration_path)
    owner_path = staticmethod(znodes.owner_path)
    offset_path = staticmethod(znodes.offset_path)

    def format_registration(self, subscription: Subscription, timestamp_ms: int) -> bytes:
        """What is written into the registration."""
        return znodes.format_registration(subscription.to_registration(timestamp_ms))

    def parse_registration(self, path: str, data: bytes) -> Subscription:
        """What a registration says; JavaFailure for one that Scala's JSON parser, or the code behind it, refuses."""
        refusal = java_refusal(data)
        if refusal is not None:
            raise JavaFailure(f"error constructing TopicCount: {path}: {refusal}")
        try:
            return Subscription.from_registration(znodes.parse_registration(data, path))
        except (UnreadableNode, UnsupportedFilter) as error:
            raise JavaFailure(f"error constructing TopicCount: {error}") from None

    def read_partitions(self, zookeeper: ZkClient, topic: str) -> Body[list[int | str]]:
        """The partitions of a topic, sorted; none without its node, or if that is no JSON that lists them."""
        try:
            data = yield from zookeeper.read(znodes.topic_path(topic))
            return list(znodes.parse_topic(topic, data))
        except (NoNode, UnreadableNode):
            return []

    def watch_topic(self, zookeeper: ZkClient, topic: str, changed: Listener) -> Body[None]:
        """Have `changed` called when the partitions of a topic may have changed."""
        yield from zookeeper.subscribe_data(znodes.topic_path(topic), changed)

    def parse_offset(self, path: str, data: bytes) -> int:
        """A stored offset, as `String.toLong` reads it; JavaFailure for other text."""
        if not _LONG.fullmatch(data) or not -(2**63) <= int(data) < 2**63:
            raise JavaFailure(f"NumberFormatException: {path} holds {data[:40]!r}")
        return int(data)


def java_range(
    consumer_id: str, mine: ThreadsOfTopics, partitions: Mapping[str, Sequence[int | str]], everybody: ThreadsOfTopics
) -> Decision:
    """What this consumer should own by the range rule.

    Raises:
        JavaFailure: it is not in the list that it read of the group.
    """
    decision: Decision = {}
    for topic, threads in mine.items():
        all_threads = everybody.get(topic)
        if all_threads is None:
            raise JavaFailure(f"NoSuchElementException: nobody consumes {topic}")
        share, larger = divmod(len(partitions[topic]), len(all_threads))
        for thread in threads:
            if thread not in all_threads:
                raise JavaFailure(f"assertion failed: {thread} is not among the consumers of {topic}")
            position = all_threads.index(thread)
            start = share * position + min(position, larger)
            for partition in partitions[topic][start : start + share + (position < larger)]:
                decision[topic, partition] = thread
    return decision


def java_roundrobin(
    consumer_id: str,
    mine: ThreadsOfTopics,
    partitions: Mapping[str, Sequence[int | str]],
    everybody: ThreadsOfTopics,
    order: str = "0.8",
) -> Decision:
    """What this consumer should own by the round robin rule, in the order of 0.8.2 to 0.11, or of 1.0 and 1.1.

    Raises:
        JavaFailure: the topics of the group do not all have the same threads, or there is none.
    """
    sets = [frozenset(threads) for threads in everybody.values()]
    if not sets:
        raise JavaFailure("NoSuchElementException: the group consumes no topic")
    if any(each != sets[0] for each in sets):
        raise JavaFailure("round-robin assignment is allowed only if all consumers subscribe to the same topics")
    ring = in_java_order(sets[0])
    dealt = sorted(
        ((topic, partition) for topic, numbers in partitions.items() for partition in numbers),
        key=lambda each: java_string_hash(f"{each[0]}-{each[1]}" if order == "1.0" else f"[{each[0]},{each[1]}]"),
    )
    owners = {each: ring[number % len(ring)] for number, each in enumerate(dealt)}
    return {each: thread for each, thread in owners.items() if thread.rpartition("-")[0] == consumer_id}


def in_java_order(names: Iterable[str]) -> list[str]:
    """Names in the order of Java's strings, by UTF-16 units."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
