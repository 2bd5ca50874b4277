"""Creating, growing, deleting and moving topics by writing the znodes that Kafka's own tools write.

One JVM start of TopicCommand costs a second; these nodes cost milliseconds, and the controller acts on them all the
same.
Source: Kafka 0.8.2.2, AdminUtils.scala, ReassignPartitionsCommand.scala, PreferredReplicaLeaderElectionCommand.scala.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from rebalance.zookeeper.znodes import format_grown_topic, format_topic, format_topic_config

REASSIGN = "/admin/reassign_partitions"
ELECTION = "/admin/preferred_replica_election"


def topic_path(topic: str) -> str:
    """The path of a topic's replica assignment."""
    return f"/brokers/topics/{topic}"


def deletion_path(topic: str) -> str:
    """The path of the mark that asks the controller to delete a topic."""
    return f"/admin/delete_topics/{topic}"


def create(
    client: KazooClient, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, object]
) -> None:
    """Write a new topic; the configuration first, so that the leader finds it when it makes the log.

    Raises:
        kazoo's NodeExistsError: the topic exists.
    """
    path = f"/config/topics/{topic}"
    data = format_topic_config(config)
    try:
        client.create(path, data, makepath=True)
    except NodeExistsError:
        client.set(path, data)
    client.create(topic_path(topic), format_topic(assignment), makepath=True)


def assignment_of(client: KazooClient, topic: str) -> dict[int, list[int]]:
    """Partition -> replicas as ZooKeeper has it; empty if there is no such topic."""
    try:
        data, _ = client.get(topic_path(topic))
    except NoNodeError:
        return {}
    return {int(p): list(replicas) for p, replicas in json.loads(data)["partitions"].items()}


def grow(client: KazooClient, topic: str, added: Mapping[int, Sequence[int]]) -> None:
    """Add partitions to an existing topic, keeping all other fields of its node."""
    data, stat = client.get(topic_path(topic))
    client.set(topic_path(topic), format_grown_topic(topic, data, added), version=stat.version)


def mark_for_deletion(client: KazooClient, topic: str) -> None:
    """Ask the controller to delete a topic."""
    try:
        client.create(deletion_path(topic), makepath=True)
    except NodeExistsError:
        pass  # asked already


def reassign(client: KazooClient, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Ask the controller for another set or order of replicas; the node vanishes when it is done."""
    entry = {"topic": topic, "partition": partition, "replicas": list(replicas)}
    client.create(REASSIGN, _json({"version": 1, "partitions": [entry]}), makepath=True)


def elect_preferred(client: KazooClient, topic: str, partition: int) -> None:
    """Ask the controller to make the first replica the leader; the node vanishes when it is done."""
    entry = {"topic": topic, "partition": partition}
    client.create(ELECTION, _json({"version": 1, "partitions": [entry]}), makepath=True)


def leader_in_zookeeper(client: KazooClient, topic: str, partition: int) -> int | None:
    """Leader according to the partition's state node; None if there is none (or no such node)."""
    try:
        data, _ = client.get(f"{topic_path(topic)}/partitions/{partition}/state")
    except NoNodeError:
        return None
    leader = int(json.loads(data)["leader"])
    return leader if leader >= 0 else None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
