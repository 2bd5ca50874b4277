"""Creates topics and adds partitions by the nodes that Kafka's own tools write.

Creates topics by the nodes that Kafka's own tools write; the controller acts on them.

Rules, and which failure each prevents:
- Settings and partitions are written in one transaction. Kafka's tools write the settings first and then the
  partitions, so that two tools at once can give one topic the settings of the other.
- Brokers up to 0.8.2 accept `a.b` together with `a_b`, and their metrics then mix the two. Such names are refused here,
  as Kafka's tools from 0.9 on refuse them.
- Names, settings and sizes are checked before anything is written: a controller that cannot read a node logs an error
  and leaves the topic as it is, for good.

Source: kafka.admin.AdminUtils, kafka.admin.TopicCommand (0.8.2.2, 0.9.0.1, 1.1.0), kafka.zk.AdminZkClient (2.8, 3.9).

Adds partitions to topics by changing the node that Kafka's own tools change; the controller acts on it.

Source: kafka.admin.AdminUtils.addPartitions (0.8.0 to 2.0), kafka.zk.AdminZkClient.addPartitions (2.8, 3.9).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Create, Exists, GetData, SetData, ZooKeeperPort
from rebalance.zookeeper.znodes import format_grown_topic, format_topic, format_topic_config
from zkconsumer.admin.topics.controller_calls import ControllerCalls, create_by_brokers, grow_by_brokers
from zkconsumer.admin.topics.topic_changes import (
    Progress,
    TopicChange,
    assigned,
    check_not_internal,
    read_topic,
    wait_for_leaders,
    write,
)
from zkconsumer.admin.topics.topic_nodes import DELETIONS, REASSIGNMENT, TopicBrokers, is_reassigned, read_brokers
from zkconsumer.admin.topics.topic_plans import (
    MAX_PARTITIONS,
    Start,
    assign_replicas,
    check_assignment,
    check_count,
    check_numbers,
    check_settings,
    texts_of,
)
from zkconsumer.admin.values import TopicRefused, count_of
from zkconsumer.cluster.zookeeper_connection import children, read_all

_MAX_NEW_NAME: Final = 249
"""The folder of a partition is named `topic-partition`, and a file name has 255 characters at most."""
_MAX_REPLICAS: Final = 10_000


@dataclass(frozen=True)
class NewTopic:
    """A topic that shall be created.

    Attributes:
        name: Its name.
        partitions: How many; ignored with an assignment.
        replication: Replicas of each partition; ignored with an assignment.
        assignment: Partition -> ids of brokers, the preferred leader first; None: as Kafka's tools assign them.
        config: Its settings, by their names in Kafka.
        rack_aware: Whether replicas are spread over racks when the brokers name theirs.
    """

    name: str
    partitions: int = 1
    replication: int = 1
    assignment: Mapping[int, Sequence[int]] | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    rack_aware: bool = True


def create_topic(
    port: ZooKeeperPort, topic: NewTopic, dry_run: bool, wait_s: float, progress: Progress | None,
    calls: ControllerCalls | None = None,
) -> TopicChange:  # fmt: skip
    """Create a topic, and wait until its partitions have leaders.

    Args:
        calls: To the brokers that create it; None: they act on its nodes.

    Raises:
        TopicRefused: The topic exists, or breaks a rule; nothing was written.
        TopicUnfinished: It has no leaders in time.
    """
    _check_name(port, topic.name)
    brokers = read_brokers(port)
    replicas = chosen_replicas(topic, brokers.racks)
    checks = calls is not None and calls.serves("check")  # then the brokers say best which settings they know
    settings = texts_of(topic.config) if checks else _settings(topic, brokers)
    change = TopicChange(topic.name, assigned(replicas), settings, (), not dry_run, False)
    if calls is not None and (checks or not dry_run):
        create_by_brokers(calls, topic.name, replicas, 0, settings, wait_s, dry_run)
    if dry_run:
        return change
    if calls is None:
        _write_nodes(port, topic.name, replicas, settings, brokers)
    return wait_for_leaders(port, change, wait_s, progress)


def _write_nodes(
    port: ZooKeeperPort, name: str, replicas: Mapping[int, Sequence[int]], settings: Mapping[str, str],
    brokers: TopicBrokers,
) -> None:  # fmt: skip
    operations: list[Create | SetData] = []
    if brokers.has_settings:
        path = znodes.topic_config_path(name)
        data = format_topic_config(settings)
        # A topic of this name that an operator has removed may have left its settings there.
        [left] = read_all(port, [GetData(path)])
        operations.append(Create(path, data) if left is None else SetData(path, data, left[1].version))
    operations.append(Create(znodes.topic_path(name), format_topic(replicas)))
    write(port, name, operations)


def _check_name(port: ZooKeeperPort, name: str) -> None:
    check_not_internal(name, "created")
    known = children(port, znodes.TOPICS) or []
    [doomed] = read_all(port, [Exists(f"{DELETIONS}/{name}")])
    if doomed is not None:
        raise TopicRefused(f"topic {name!r} is marked for deletion", "wait until it is deleted")
    check_new_name(name, known)


def check_new_name(name: str, known: Collection[str], where: str = "") -> None:
    """Raise for a name that a new topic may not have.

    Args:
        known: The topics that exist.
        where: The name of the cluster in error texts, with a blank before it.

    Raises:
        TopicRefused: It is too long, a topic has it, or one has it but for `.` and `_`.
        InvalidName: No topic can have this name.
    """
    check_not_internal(name, "created")
    if len(name) > _MAX_NEW_NAME:
        raise TopicRefused(
            f"the name {name[:20]}... has {len(name)} characters; a new topic may have {_MAX_NEW_NAME}, because "
            "brokers name folders after topic and partition"
        )
    if name in known:
        raise TopicRefused(f"topic {name!r} exists already{where}", f"`zkconsumer topics {name}` shows it")
    alike = [other for other in known if other.replace(".", "_") == name.replace(".", "_")]
    if alike:
        raise TopicRefused(
            f"the names {name!r} and {alike[0]!r} (which exists{where}) collide, because brokers write `_` "
            "for `.` in the names of metrics",
            "choose another name",
        )


def chosen_replicas(topic: NewTopic, racks: Mapping[int, str | None]) -> dict[int, tuple[int, ...]]:
    """Return the replicas of each partition of a new topic: given ones, or as Kafka's tools choose them.

    Args:
        racks: Broker id -> its rack, None if it names none.

    Raises:
        TopicRefused: Too few brokers, an assignment that cannot be, or numbers that no topic has.
    """
    if topic.assignment is not None:
        check_numbers(topic.assignment)
        check_count("the number of partitions", len(topic.assignment), MAX_PARTITIONS)
        return check_assignment(topic.assignment, racks)
    count = check_count("the number of partitions", topic.partitions, MAX_PARTITIONS)
    replication = check_count("the replication factor", topic.replication, _MAX_REPLICAS)
    places = max(1, len(racks))
    start = Start(random.randrange(places), random.randrange(places))
    return assign_replicas(racks, range(count), replication, start, topic.rack_aware)


def _settings(topic: NewTopic, brokers: TopicBrokers) -> dict[str, str]:
    if topic.config and not brokers.has_settings:
        raise TopicRefused("brokers of Kafka 0.8.0 do not support settings of topics", "leave the settings out")
    return check_settings(topic.config, brokers.registration_version)


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
    check_not_internal(topic, "grown")
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


def added_replicas(present: _Replicas, growth: Growth, racks: Mapping[int, str | None]) -> dict[int, tuple[int, ...]]:
    """Return the replicas of the new partitions of a topic.

    Args:
        present: The replicas of existing partitions, by number.
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
    has, wanted = count_of(len(present), "partition"), growth.partitions
    if wanted <= len(present):
        raise TopicRefused(
            f"topic {growth.topic!r} has {has}, so it cannot grow to {wanted}",
            "partitions can be added, but never removed",
        )


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


def _assigned(present: _Replicas, growth: Growth, racks: Mapping[int, str | None]) -> dict[int, tuple[int, ...]]:
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
