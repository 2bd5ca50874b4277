"""Adds partitions to topics by changing the node that Kafka's own tools change; the controller acts on it.

Source: kafka.admin.AdminUtils.addPartitions (0.8.0 to 2.0), kafka.zk.AdminZkClient.addPartitions (2.8, 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetData, SetData, ZooKeeperPort
from zkconsumer.admin.errors import TopicRefused
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.topics.controller_calls import ControllerCalls, grow_by_brokers
from zkconsumer.admin.topics.replica_assignment import (
    MAX_PARTITIONS,
    Start,
    assign_replicas,
    check_assignment,
    check_count,
    check_numbers,
)
from zkconsumer.admin.topics.topic_brokers import DELETIONS, REASSIGNMENT, is_reassigned, read_brokers
from zkconsumer.admin.topics.topic_changes import (
    Progress,
    TopicChange,
    assigned,
    check_not_internal,
    read_topic,
    wait_for_leaders,
    write,
)
from zkconsumer.cluster.topic_payloads import format_grown_topic
from zkconsumer.cluster.zookeeper_reads import read_all

__all__ = ["KEYS_MOVE", "Growth", "added_replicas", "check_more", "grow_topic"]

KEYS_MOVE = (
    "messages with keys go to other partitions from now on: producers choose a partition by the hash of the key and "
    "the number of partitions, so the order of the messages of one key is not kept across the change"
)

_Replicas = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Growth:
    """A topic that shall get more partitions.

    Attributes:
        topic: Its name.
        partitions: How many it shall have.
        assignment: Partition -> ids of brokers, of all partitions; None: as Kafka's tools assign them.
        rack_aware: Whether replicas are spread over racks when the brokers name theirs.
    """

    topic: str
    partitions: int
    assignment: _Replicas | None = None
    rack_aware: bool = True


def grow_topic(
    port: ZooKeeperPort, zookeeper: str, growth: Growth, dry_run: bool, wait_s: float, progress: Progress | None,
    calls: ControllerCalls | None = None,
) -> TopicChange:  # fmt: skip
    """Add partitions to a topic, and wait until they have leaders.

    Args:
        calls: To the brokers that add them; None: they act on the topic's node.

    Raises:
        NotFound: There is no such topic.
        TopicRefused: The topic would not grow, or breaks a rule; nothing was written.
        TopicUnfinished: A new partition has no leader in time.
    """
    topic = growth.topic
    check_not_internal(topic, "grown by others")
    check_count("the number of partitions", growth.partitions, MAX_PARTITIONS)
    data, stat = read_topic(port, zookeeper, topic)
    present = _present(topic, data)
    check_more(present, growth)
    _check_idle(port, topic, data)
    added = added_replicas(present, growth, read_brokers(port).racks)
    change = TopicChange(topic, assigned(added), {}, (KEYS_MOVE,), not dry_run, False)
    if calls is not None:
        grow_by_brokers(calls, topic, growth.partitions, added, wait_s, dry_run)
    if dry_run:
        return change
    if calls is None:
        write(port, topic, [SetData(znodes.topic_path(topic), format_grown_topic(topic, data, added), stat.version)])
    return wait_for_leaders(port, change, wait_s, progress)


def added_replicas(
    present: _Replicas, growth: Growth, racks: Mapping[int, str | None]
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of the new partitions of a topic.

    Args:
        present: The replicas of those that exist, by number.
        racks: Broker id -> its rack, None if it names none.

    Raises:
        TopicRefused: The topic would not grow, or the assignment cannot be.
    """
    check_more(present, growth)
    if growth.assignment is None:
        return _assigned(present, growth, racks)
    return _given(present, growth.partitions, growth.assignment, racks)


def check_more(present: _Replicas, growth: Growth) -> None:
    """Raise TopicRefused unless a topic gets more partitions than it has."""
    if growth.partitions <= len(present):
        raise TopicRefused(
            f"topic {growth.topic!r} has {count_of(len(present), 'partition')}, so {growth.partitions} would not be "
            "more", "partitions can be added and never removed",
        )  # fmt: skip


def _present(topic: str, data: bytes) -> dict[int, tuple[int, ...]]:
    try:
        present = znodes.parse_replicas(topic, data)
    except UnreadableNode as error:
        raise TopicRefused(f"topic {topic!r} cannot be grown: {error}") from error
    if not present or list(present) != list(range(len(present))) or not all(present.values()):
        shown = ", ".join(map(str, list(present)[:10])) or "none"
        raise TopicRefused(f"topic {topic!r} cannot be grown: its node lists the partitions {shown}; they must be 0, "
                           "1, 2, ..., each with replicas")  # fmt: skip
    return present


def _check_idle(port: ZooKeeperPort, topic: str, data: bytes) -> None:
    doomed, reassignment = read_all(port, [Exists(f"{DELETIONS}/{topic}"), GetData(REASSIGNMENT)])
    if doomed is not None:
        raise TopicRefused(f"topic {topic!r} is marked for deletion, so the controller gives it no partitions")
    if is_reassigned(topic, data, None if reassignment is None else reassignment[0]):
        raise TopicRefused(f"partitions of topic {topic!r} are being moved to other brokers", "wait until that is done")


def _assigned(
    present: _Replicas, growth: Growth, racks: Mapping[int, str | None]
) -> dict[int, tuple[int, ...]]:
    # As Kafka's tools do it: go on from the broker that leads partition 0, or from the next one that is registered.
    first = next((place for place, broker in enumerate(sorted(racks)) if broker >= present[0][0]), 0)
    numbers = range(len(present), growth.partitions)
    return assign_replicas(racks, numbers, len(present[0]), Start(first, first), growth.rack_aware)


def _given(
    present: _Replicas, total: int, assignment: _Replicas, racks: Mapping[int, str | None]
) -> dict[int, tuple[int, ...]]:
    check_numbers(assignment)
    if len(assignment) != total:
        raise TopicRefused(
            f"the replica assignment has {count_of(len(assignment), 'partition')}, but {total} are requested",
            "name the replicas of all partitions, existing partitions first",
        )
    moved = [number for number, replicas in present.items() if tuple(assignment[number]) != tuple(replicas)]
    if moved:
        replicas = ":".join(map(str, present[moved[0]]))
        raise TopicRefused(
            f"the replica assignment moves partition {moved[0]}, which exists with the replicas {replicas}",
            "name its current replicas; use kafka-reassign-partitions.sh to move partitions",
        )
    added = {number: replicas for number, replicas in assignment.items() if number not in present}
    return check_assignment(added, racks, len(present[0]))
