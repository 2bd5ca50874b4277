"""Finds the leader of a partition for tasks that lost their broker: in ZooKeeper, and from the brokers.

ZooKeeper is read first, because a broker that is asked about a deleted topic would create it again; where brokers alone
are known, they are asked so that they create none.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark.settings_files import open_source, security_here

__all__ = ["FoundLeader", "LeaderSearch", "search_leader"]


class FoundLeader:
    """The result of a search.

    Attributes:
        broker: The leader, None if it was not found.
        is_gone: There is no such topic any more.
        reason: Why it was not found, a clause.
        epoch: In which it leads; -1: not known.
    """

    __slots__ = ("broker", "epoch", "is_gone", "reason")

    def __init__(
        self, broker: Broker | None = None, *, is_gone: bool = False, reason: str = "", epoch: int = -1
    ) -> None:
        self.broker = broker
        self.epoch = epoch
        self.is_gone = is_gone
        self.reason = reason


LeaderSearch = Callable[[TopicPartition, int | None], FoundLeader]
"""Called with a partition and the id of the broker that replied that it does not lead it."""


def search_leader(config: ConsumerConfig) -> LeaderSearch:
    """Return a search that connects each time: it is needed rarely, and tasks should keep no sessions."""

    def search(name: TopicPartition, denied_by: int | None) -> FoundLeader:
        try:
            with open_source(config) as source:
                timeout_s, security = config.socket_timeout_ms / 1000, security_here(config)
                cluster = Cluster(source, config.client_id, timeout_s, security=security)
                if not cluster.reader.topic_exists(name.topic):
                    return FoundLeader(is_gone=True, reason=f"topic {name.topic!r} no longer exists")
                broker = cluster.leaders({name: denied_by}).get(name)
                epoch = cluster.directory.epochs.get(name, -1)
                return FoundLeader(broker, reason="" if broker else cluster.why_unled([name])[name], epoch=epoch)
        except ZkConsumerError as error:
            return FoundLeader(reason=f"its leader cannot be looked up: {error}")

    return search
