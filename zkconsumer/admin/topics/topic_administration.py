"""The methods of `Admin` and `BrokerAdmin` that create, grow, delete, set and cut topics.

Topics of Kafka 0.7 are refused: it has no controller that would act on a node in ZooKeeper. A broker makes a topic when
the first message for it comes, with as many partitions as its own settings say.

Source: kafka.log.LogManager, kafka.server.KafkaZooKeeper (0.7.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rebalance.subscription import check_topic
from rebalance.zookeeper.port.requests import ZooKeeperPort
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.topics.broker_topics import BrokerTopicStore
from zkconsumer.admin.topics.controller_calls import ControllerCalls
from zkconsumer.admin.topics.record_deletion import TopicCut, cut_topic
from zkconsumer.admin.topics.setting_changes import TopicSettings, set_by_brokers, set_by_nodes
from zkconsumer.admin.topics.topic_changes import Progress, TopicChange, delete_topic
from zkconsumer.admin.topics.topic_creation import Growth, NewTopic, create_topic, grow_topic
from zkconsumer.admin.topics.topic_producers import TopicProducers, topic_producers
from zkconsumer.admin.values import TopicRefused
from zkconsumer.cluster.cluster import Cluster

_SETTINGS: Final = "num.partitions, or topic.partition.count.map for one topic, in the settings of the brokers"
_REMEDIES: Final = {
    "created": "send a message to it, for example with `zkconsumer produce --topic {topic}`; its number of "
               f"partitions is set by {_SETTINGS}",
    "set": "change log.retention.hours, topic.log.retention.hours and others of that kind in the settings of the "
           "brokers, and restart them",
    "cut": "change log.retention.hours in the settings of the brokers, and restart them",
    "described": "producers have no ids there",
    "grown": f"change {_SETTINGS}, and restart them",
    "deleted": "stop the brokers, delete the folders {topic}-* below the log.dir of each and the node "
               "/brokers/topics/{topic}, and start them again",
}  # fmt: skip


def refuse_07(cluster: Cluster, topic: str, what: str) -> None:
    """Raise in a cluster of Kafka 0.7.

    Args:
        cluster: That in which the topic is, or shall be.
        topic: The topic.
        what: The change that was asked for: `created`, `grown`, `deleted`, `set` or `cut`.

    Raises:
        TopicRefused: Says how that is done there.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    if cluster.generation().has_broker_nodes:
        raise TopicRefused(
            f"topic {topic!r} is not {what} here: the cluster is of Kafka 0.7, where a broker creates a topic when "
            "its first message arrives", _REMEDIES[what].format(topic=topic),
        )  # fmt: skip


class ZooKeeperTopicStore:
    """Changes topics of a cluster whose ZooKeeper is given.

    What the brokers have a request for, and answer, they do. The rest is done by the nodes that Kafka's own tools
    write, which works with every version up to 3.9.

    Args:
        port: The connection to ZooKeeper.
        calls: To the brokers of the cluster.
        zookeeper: The connection string, for the messages of errors.
        in_kafka: Asked which groups have offsets of a topic that is deleted.
    """

    def __init__(self, port: ZooKeeperPort, calls: ControllerCalls, zookeeper: str, in_kafka: OffsetsInKafka) -> None:
        self._port = port
        self._cluster = calls.cluster
        self._calls = calls
        self._zookeeper = zookeeper
        self._in_kafka = in_kafka

    def create(self, new: NewTopic, dry_run: bool, wait_s: float, progress: Progress | None) -> TopicChange:
        """Create a topic; see `TopicAdministration.create_topic`."""
        refuse_07(self._cluster, new.name, "created")
        return create_topic(self._port, new, dry_run, wait_s, progress, self._served("create"))

    def grow(self, growth: Growth, dry_run: bool, wait_s: float, progress: Progress | None) -> TopicChange:
        """Add partitions to a topic; see `TopicAdministration.grow_topic`."""
        refuse_07(self._cluster, growth.topic, "grown")
        return grow_topic(self._port, self._zookeeper, growth, dry_run, wait_s, progress, self._served("grow"))

    def delete(self, topic: str, dry_run: bool, wait_s: float, progress: Progress | None) -> TopicChange:
        """Delete a topic; see `TopicAdministration.delete_topic`."""
        refuse_07(self._cluster, topic, "deleted")
        return delete_topic(
            self._port, self._in_kafka, self._zookeeper, topic, dry_run, wait_s, progress, self._served("delete")
        )

    def set(self, topic: str, config: Mapping[str, object], unset: Collection[str], dry_run: bool) -> TopicSettings:
        """Change settings of a topic; see `TopicAdministration.set_topic`."""
        refuse_07(self._cluster, topic, "set")
        calls = self._served("set")
        if calls is not None:
            return set_by_brokers(calls, topic, config, unset, dry_run)
        return set_by_nodes(self._port, self._zookeeper, topic, config, unset, dry_run)

    def cut(self, topic: str, before: str | int, partitions: Sequence[int], dry_run: bool) -> TopicCut:
        """Delete messages of a topic; see `TopicAdministration.cut_topic`."""
        refuse_07(self._cluster, topic, "cut")
        return cut_topic(self._calls, topic, before, partitions, dry_run)

    def producers(self, topic: str, partitions: Sequence[int]) -> TopicProducers:
        """Return who has written to a topic; see `TopicAdministration.topic_producers`."""
        refuse_07(self._cluster, topic, "described")
        return topic_producers(self._calls, topic, partitions)

    def _served(self, what: str) -> ControllerCalls | None:
        return self._calls if self._calls.serves(what) else None


class TopicAdministration:
    """Creates, grows, deletes, sets and cuts topics; a part of `Admin` and of `BrokerAdmin`.

    Brokers of Kafka 0.7 make topics on their own: there each method raises `TopicRefused`, which says how.
    """

    _topic_store: ZooKeeperTopicStore | BrokerTopicStore

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
            assignment: Partition -> ids of brokers, the preferred leader first; replaces the two numbers.
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
        new = NewTopic(topic, partitions, replication, assignment, dict(config or {}), rack_aware)
        return self._topic_store.create(new, dry_run, wait_s, on_progress)

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
            assignment: Partition -> ids of brokers, of all partitions; existing ones must stand there as they are.
            rack_aware: Spread replicas over racks when all brokers name theirs.
            dry_run: Check and assign everything, and write nothing.
            wait_s: Longest wait for the leaders, in seconds; 0 does not wait.
            on_progress: Called with a clause whenever more partitions have leaders.

        Raises:
            NotFound: There is no such topic.
            TopicRefused: It would not grow, is being moved or deleted, or another rule is broken; nothing was written.
            TopicUnfinished: The partitions are written, and have no leaders in time.
        """
        growth = Growth(topic, partitions, assignment, rack_aware)
        return self._topic_store.grow(growth, dry_run, wait_s, on_progress)

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
        return self._topic_store.delete(topic, dry_run, wait_s, on_progress)

    def set_topic(
        self,
        topic: str,
        config: Mapping[str, object] | None = None,
        *,
        unset: Collection[str] = (),
        dry_run: bool = False,
    ) -> TopicSettings:
        """Change settings of a topic; settings that are not named stay as they are.

        Args:
            topic: Its name.
            config: The new values, by their names in Kafka, such as `retention.ms`.
            unset: Settings that are taken away from the topic, so that the brokers' own are in force.
            dry_run: Check everything, and write nothing.

        Raises:
            NotFound: There is no such topic.
            TopicRefused: A setting or a value is not allowed; nothing was written.
            TopicNotAuthorized: The brokers do not let this user change the settings.
        """
        check_topic(topic)
        return self._topic_store.set(topic, config or {}, unset, dry_run)

    def cut_topic(
        self, topic: str, before: str | int, *, partitions: Sequence[int] = (), dry_run: bool = False
    ) -> TopicCut:
        """Delete the messages below an offset: the log of each partition starts there. Kafka 0.11 and later.

        Args:
            topic: Its name.
            before: The offset of the first message that stays; `latest` deletes all; a time such as
                `2014-03-01T12:00:00Z` stands for the first message at or after it.
            partitions: The partitions that are cut; all without any.
            dry_run: Check everything, and delete nothing.

        Raises:
            ValueError: `before` is none of these.
            NotFound: There is no such topic or partition.
            TopicRefused: A log ends before the offset, the topic is compacted, or the brokers are too old; nothing was
                deleted.
            TopicNotAuthorized: The brokers do not let this user delete messages.
            TopicUnfinished: Some leaders have not done it in time.
        """
        check_topic(topic)
        return self._topic_store.cut(topic, before, partitions, dry_run)

    def topic_producers(self, topic: str, *, partitions: Sequence[int] = ()) -> TopicProducers:
        """Return which producers with an id have written to a topic, and when last. Kafka 2.8 and later.

        Args:
            topic: Its name.
            partitions: The partitions that are asked for; all without any.

        Raises:
            NotFound: There is no such topic or partition.
            TopicRefused: The brokers are too old.
            TopicNotAuthorized: They do not let this user read the topic.
        """
        check_topic(topic)
        return self._topic_store.producers(topic, partitions)
