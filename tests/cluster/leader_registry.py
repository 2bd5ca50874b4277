"""Brokers and a registry with which leaders are looked up in tests."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simpleconsumer.types import Broker, TopicPartition
from tests.fetching.feeding import ScriptedBroker
from zkconsumer.cluster.leaders import BrokerDirectory

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Registry:
    """Brokers, topics and leaders as ZooKeeper has them."""

    def __init__(self, *brokers: Broker) -> None:
        self.brokers = list(brokers)
        self.topics = {"t"}
        self.leaders: dict[TopicPartition, int] = {}

    def read_leaders(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {name: self.leaders[name] for name in partitions if name in self.leaders}

    def directory(self, timeout_s: float = 30.0) -> BrokerDirectory:
        return BrokerDirectory(
            "zkconsumer-test",
            timeout_s,
            lambda: list(self.brokers),
            self.topics.intersection,
            self.read_leaders,
            random.Random(1),
        )


@contextmanager
def reporting(*rows: tuple[int, int]) -> Iterator[ScriptedBroker]:
    """A broker with id 0 that reports (error code, leader) of partitions 0, 1, ... of each topic."""
    with ScriptedBroker() as broker:
        broker.on_metadata = lambda topics: broker.metadata({name: dict(enumerate(rows)) for name in topics})
        yield broker


def refusing() -> Broker:
    """A broker id 7 at an address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Broker(7, "127.0.0.1", server.getsockname()[1])
