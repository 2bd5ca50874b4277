"""Refuses to create, grow or delete a topic of Kafka 0.7, whose brokers make topics on their own.

There is no controller that would act on a node in ZooKeeper: a broker makes a topic when the first message for it
comes, with as many partitions as its own settings say.

Source: kafka.log.LogManager, kafka.server.KafkaZooKeeper (0.7.2).
"""

from __future__ import annotations

from typing import Final

from zkconsumer.admin.errors import TopicRefused
from zkconsumer.cluster.cluster import Cluster

__all__ = ["refuse_07"]

_SETTINGS: Final = "num.partitions, or topic.partition.count.map for one topic, in the settings of the brokers"
_REMEDIES: Final = {
    "created": "send a message to it, as `zkconsumer produce --topic {topic}` does; how many partitions it gets is "
               f"said by {_SETTINGS}",
    "grown": f"change {_SETTINGS}, and restart them",
    "deleted": "stop the brokers, delete the folders {topic}-* below the log.dir of each and the node "
               "/brokers/topics/{topic}, and start them again",
}  # fmt: skip


def refuse_07(cluster: Cluster, topic: str, what: str) -> None:
    """Raise in a cluster of Kafka 0.7.

    Args:
        cluster: That in which the topic is, or shall be.
        topic: The topic.
        what: What should happen to it: `created`, `grown` or `deleted`.

    Raises:
        TopicRefused: Says how that is done there.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    if cluster.generation().has_broker_nodes:
        raise TopicRefused(
            f"topic {topic!r} is not {what} here: the cluster is of Kafka 0.7, where a broker makes a topic when the "
            "first message for it comes", _REMEDIES[what].format(topic=topic),
        )  # fmt: skip
