"""What the Java consumer of Kafka 0.7.2 writes and reads in ZooKeeper. Pure.

Source: kafka.utils.ZkUtils, kafka.consumer.TopicCount, kafka.cluster.Partition (0.7.2).
"""

from __future__ import annotations

import re
from typing import Final

from rebalance.errors import UnreadableNode, UnsupportedFilter
from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.znodes_07 import GENERATION_07
from tests.simulator.java_layout import Kafka082, in_java_order
from tests.simulator.java_threads import Body, JavaFailure
from tests.simulator.java_zkclient import Listener, NoNode, ZkClient

__all__ = ["Kafka072"]

_COUNT: Final = re.compile(rb"[0-9]{1,6}")


class Kafka072(Kafka082):
    """Kafka 0.7.2: text, partitions by broker and number, the children of the topic to be watched."""

    def format_registration(self, subscription: Subscription, timestamp_ms: int) -> bytes:
        """What is written into the registration; there is no time in it, so it is the same each time."""
        registration = subscription.to_registration(timestamp_ms)
        if subscription.is_wildcard:
            [(regex, streams)] = registration.subscription
            mark = "*" if registration.pattern == znodes.WHITE_LIST else "!"
            return f"{mark}{streams}{mark}{regex}".encode()
        return ("{ " + ",".join(f'"{topic}": {count}' for topic, count in registration.subscription) + " }").encode()

    def parse_registration(self, path: str, data: bytes) -> Subscription:
        """What a registration says; JavaFailure for one that `constructTopicCount` refuses."""
        refusal = GENERATION_07.java_refusal(data)
        if refusal is not None:
            raise JavaFailure(f"error constructing TopicCount: {path}: {refusal}")
        try:
            return Subscription.from_registration(GENERATION_07.parse_registration(data, path))
        except (UnreadableNode, UnsupportedFilter) as error:
            raise JavaFailure(f"error constructing TopicCount: {error}") from None

    def read_partitions(self, zookeeper: ZkClient, topic: str) -> Body[list[int | str]]:
        """The partitions of a topic in the order of text; a broker that goes while it is read is an exception."""
        path = znodes.topic_path(topic)
        try:
            brokers = yield from zookeeper.children(path)
        except NoNode:
            return []
        names: list[str] = []
        for broker in brokers:
            data = yield from zookeeper.read(f"{path}/{broker}")
            if not _COUNT.fullmatch(data):
                raise JavaFailure(f"NumberFormatException: {path}/{broker} holds {data[:40]!r}")
            names += [f"{broker}-{number}" for number in range(int(data))]
        return list(in_java_order(names))

    def watch_topic(self, zookeeper: ZkClient, topic: str, changed: Listener) -> Body[None]:
        """Have `changed` called when a broker of a topic comes or goes."""
        yield from zookeeper.subscribe_children(znodes.topic_path(topic), changed)
