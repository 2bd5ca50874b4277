"""The methods of `Admin` that create, grow and delete topics.

Topics of Kafka 0.7 are refused: it has no controller that would act on a node in ZooKeeper. A broker makes a topic when
the first message for it comes, with as many partitions as its own settings say.

Source: kafka.log.LogManager, kafka.server.KafkaZooKeeper (0.7.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rebalance.zookeeper.port.requests import ZooKeeperPort
from zkconsumer.admin.errors import TopicRefused
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.topics.topic_changes import Progress, TopicChange
from zkconsumer.admin.topics.topic_creation import NewTopic, create_topic
from zkconsumer.admin.topics.topic_deletion import delete_topic
from zkconsumer.admin.topics.topic_growth import Growth, grow_topic
from zkconsumer.cluster.cluster import Cluster

__all__ = ["TopicAdministration", "refuse_07"]


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


class TopicAdministration:
    """Creates, grows and deletes topics, by the nodes that Kafka's own tools write; a part of `Admin`.

    Brokers of Kafka 0.7 make topics on their own: there each method raises `TopicRefused`, which says how.
    """

    _port: ZooKeeperPort
    _cluster: Cluster
    _zookeeper: str
    _in_kafka: OffsetsInKafka

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication: int = 1,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
        config: Mapping[str, object] | None = None,
        rack_aware: bool = True,
        dry_run: bool = False,
        wait_s: float = 30.0,
        on_progress: Progress | None = None,
    ) -> TopicChange:
        """Create a topic, and wait until each of its partitions has a leader.

        Args:
            topic: Its name.
            partitions: How many.
            replication: Replicas of each partition.
            assignment: Partition -> ids of brokers, the preferred leader first; in place of the two numbers.
            config: Settings of the topic, by their names in Kafka, such as `retention.ms`.
            rack_aware: Spread replicas over racks when all brokers name theirs.
            dry_run: Check and assign everything, and write nothing.
            wait_s: Longest wait for the leaders, in seconds; 0 does not wait.
            on_progress: Called with a clause whenever more partitions have leaders.

        Raises:
            TopicRefused: The topic exists, its name collides with another one's, there are too few brokers, or another
                rule is broken; nothing was written.
            TopicUnfinished: The topic is written, and has no leaders in time.
        """
        refuse_07(self._cluster, topic, "created")
        new = NewTopic(topic, partitions, replication, assignment, dict(config or {}), rack_aware)
        return create_topic(self._port, new, dry_run, wait_s, on_progress)

    def grow_topic(
        self,
        topic: str,
        partitions: int,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
        rack_aware: bool = True,
        dry_run: bool = False,
        wait_s: float = 30.0,
        on_progress: Progress | None = None,
    ) -> TopicChange:
        """Add partitions to a topic, and wait until each new one has a leader.

        Messages with keys go to other partitions afterwards; `warnings` says so.

        Args:
            topic: Its name.
            partitions: How many it shall have, more than now.
            assignment: Partition -> ids of brokers, of all partitions; those that exist must stand there as they are.
            rack_aware: Spread replicas over racks when all brokers name theirs.
            dry_run: Check and assign everything, and write nothing.
            wait_s: Longest wait for the leaders, in seconds; 0 does not wait.
            on_progress: Called with a clause whenever more partitions have leaders.

        Raises:
            NotFound: There is no such topic.
            TopicRefused: It would not grow, is being moved or deleted, or another rule is broken; nothing was written.
            TopicUnfinished: The partitions are written, and have no leaders in time.
        """
        refuse_07(self._cluster, topic, "grown")
        growth = Growth(topic, partitions, assignment, rack_aware)
        return grow_topic(self._port, self._zookeeper, growth, dry_run, wait_s, on_progress)

    def delete_topic(
        self,
        topic: str,
        *,
        dry_run: bool = False,
        wait_s: float = 30.0,
        on_progress: Progress | None = None,
    ) -> TopicChange:
        """Delete a topic with all its messages, and wait until it is gone.

        Offsets that groups have stored stay, in Kafka on brokers before 0.10.2. `warnings` names the groups that have
        some in Kafka then.

        Args:
            topic: Its name.
            dry_run: Check everything, and write nothing.
            wait_s: Longest wait, in seconds; 0 does not wait.
            on_progress: Called with a clause when the deletion is under way.

        Raises:
            NotFound: There is no such topic.
            TopicRefused: It is a topic of the brokers, or they do not delete topics.
            TopicUnfinished: It is marked for deletion and not gone in time; says what hinders that.
        """
        refuse_07(self._cluster, topic, "deleted")
        return delete_topic(self._port, self._in_kafka, self._zookeeper, topic, dry_run, wait_s, on_progress)
