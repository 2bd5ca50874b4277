"""Changes of topics: what they return, how they are waited for, and the deletion by mark.

Also the results of creating, growing and deleting a topic, and how such changes are written and waited for.

Deletes topics by the mark that Kafka's own tools write; the controller acts on it.

The effect of a mark depends on the brokers:
- 0.8.0 reads no marks.
- Up to 0.10.1 a controller with `delete.topic.enable=false`, the default there, leaves the mark. It takes effect when
  brokers that are enabled to delete start, which may be years later.
- From 0.10.2 on such a controller removes the mark and keeps the topic. From 1.0 on deleting is enabled by default.
- A topic with a replica on a broker that is down stays in deletion until that broker is back.
- A controller that deletes topics keeps in memory what it has to delete. Deleting the mark does not withdraw it.

Source: kafka.admin.AdminUtils.deleteTopic, kafka.controller.TopicDeletionManager, KafkaController (0.8.1 to 3.9).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rebalance.errors import AccessRefused, RefusedNode, UnreadableNode, refusal_of
from rebalance.subscription import check_topic
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import (
    Create,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    SetData,
    Stat,
    ZooKeeperPort,
)
from zkconsumer.admin.offsets.group_offsets import warnings_of_offsets
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.topics.controller_calls import ControllerCalls, delete_by_brokers
from zkconsumer.admin.topics.topic_nodes import DELETIONS, REASSIGNMENT, TopicBrokers, is_reassigned, read_brokers
from zkconsumer.admin.values import JsonValue, NotFound, TopicRefused, TopicUnfinished, count_of, nearest
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, children, error_of, read_all, read_each
from zkconsumer_error import first_few

Progress = Callable[[str], object]
"""Called with a clause whenever a wait has come further."""
_POLL_S: Final = 0.2
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
_MAX_NODE_BYTES: Final = 1_000_000
"""ZooKeeper closes the connection of a client that writes more than 1 MiB (jute.maxbuffer)."""


@dataclass(frozen=True)
class AssignedPartition:
    """One partition and the brokers that will store it.

    Attributes:
        partition: Its number.
        replicas: Ids of brokers, the preferred leader first.
        leader: Id of the broker that leads it; None while it has no leader, or the call did not wait for one.
    """

    partition: int
    replicas: tuple[int, ...]
    leader: int | None = None


@dataclass(frozen=True)
class TopicChange(JsonValue):
    """A topic that was created, grown or deleted, or would be.

    Attributes:
        topic: Its name.
        partitions: The new partitions; all partitions of a topic that is deleted.
        config: The settings that were written.
        warnings: Warnings, a sentence each.
        written: The nodes were written; False with `dry_run`.
        done: The brokers have finished: each partition has a leader, or the topic is gone; False where that was not
            waited for.
    """

    topic: str
    partitions: tuple[AssignedPartition, ...]
    config: Mapping[str, str]
    warnings: tuple[str, ...]
    written: bool
    done: bool


def assigned(replicas: Mapping[int, Sequence[int]]) -> tuple[AssignedPartition, ...]:
    """Return partitions without leaders."""
    return tuple(AssignedPartition(number, tuple(ids)) for number, ids in sorted(replicas.items()))


def check_not_internal(topic: str, action: str) -> None:
    """Raise for the topics that brokers keep for themselves.

    Raises:
        TopicRefused: The topic is one of them.
        InvalidName: No topic can have this name.
    """
    check_topic(topic)
    if topic in _INTERNAL:
        raise TopicRefused(
            f"{topic} is an internal topic and cannot be {action}",
            "brokers create it when they need it, with a number of partitions from their settings",
        )


def read_topic(port: ZooKeeperPort, zookeeper: str, topic: str) -> tuple[bytes, Stat]:
    """Return data and stat of a topic's node.

    Args:
        zookeeper: The connection string, for the message of the error.

    Raises:
        NotFound: There is no such topic.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    [value] = read_all(port, [GetData(znodes.topic_path(topic))])
    if value is None:
        known = children(port, znodes.TOPICS) or []
        raise NotFound(f"topic {topic!r} does not exist in ZooKeeper at {zookeeper}", nearest(topic, known, "topic"))
    return value[0], value[1]


def write(port: ZooKeeperPort, topic: str, operations: Sequence[Create | SetData]) -> None:
    """Write nodes of a topic, all or none; parents that are missing are created first.

    Raises:
        TopicRefused: Somebody else was faster, or the nodes are too large.
        AccessRefused: A node may not be written.
        TopicUnfinished: ZooKeeper did not say whether they are written.
    """
    for operation in operations:
        if len(operation.data) > _MAX_NODE_BYTES:
            raise TopicRefused(
                f"the node {operation.path} would have {len(operation.data):,} bytes; ZooKeeper accepts "
                f"{_MAX_NODE_BYTES:,}",
                "ask for fewer partitions or replicas",
            )
    _make_parents(port, [operation.path for operation in operations if isinstance(operation, Create)])
    reply = call(port, Multi(tuple(operations)), READ_TIMEOUT_S)
    if reply.fault is not None:
        raise TopicUnfinished(
            f"ZooKeeper did not say whether the nodes of topic {topic!r} were written: {reply.reason}",
            "check with `zkconsumer topics`, and try again",
        )
    for operation, result in zip(operations, reply.value, strict=True):
        if isinstance(result, Fault) and result is not Fault.ROLLED_BACK:
            _raise_fault(topic, operation, result)


def _raise_fault(topic: str, operation: Create | SetData, fault: Fault) -> None:
    if fault is Fault.NO_AUTH:
        raise AccessRefused.of_node("create" if isinstance(operation, Create) else "write", operation.path)
    if fault in (Fault.NODE_EXISTS, Fault.BAD_VERSION, Fault.NO_NODE):
        raise TopicRefused(f"topic {topic!r} was not changed: another client has written {operation.path} in the "
                           "meantime",
                           "check with `zkconsumer topics`, and try again")  # fmt: skip
    raise TopicRefused(f"topic {topic!r} was not changed: {refusal_of('write', operation.path, fault)}")


def _make_parents(port: ZooKeeperPort, paths: Sequence[str]) -> None:
    """Create the parents of nodes; brokers of 0.8.0 do not create `/brokers/topics` before the first topic."""
    folders: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")[1:-1]
        folders.update(dict.fromkeys("/" + each for each in itertools.accumulate(parts, "{}/{}".format)))
    stats = read_all(port, [Exists(folder) for folder in folders])
    for folder in (folder for folder, stat in zip(folders, stats, strict=True) if stat is None):
        reply = call(port, Create(folder), READ_TIMEOUT_S)
        if reply.fault is Fault.NO_AUTH:
            raise AccessRefused.of_node("create", folder, reply.reason)
        if reply.fault not in (None, Fault.NODE_EXISTS):
            raise TopicRefused(f"nothing was changed: {refusal_of('create', folder, reply.fault, reply.reason)}")


# -- waiting ---------------------------------------------------------------------------------------------------------


def poll(is_done: Callable[[], bool], wait_s: float) -> bool:
    """Return whether something is done before the wait is over."""
    deadline = time.monotonic() + wait_s
    while not is_done():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(_POLL_S, left_s))
    return True


def wait_for_leaders(port: ZooKeeperPort, change: TopicChange, wait_s: float, progress: Progress | None) -> TopicChange:
    """Return the change with the leaders of its partitions, once each has one.

    Args:
        wait_s: Longest wait, in seconds; with 0 nothing is waited for.

    Raises:
        TopicUnfinished: A partition has no leader in time.
    """
    if wait_s <= 0:
        return change
    paths = [znodes.partition_state_path(change.topic, each.partition) for each in change.partitions]
    leaders: list[int | None] = []

    def all_led() -> bool:
        live = set(children(port, znodes.BROKERS) or [])
        before = sum(leader is not None for leader in leaders)
        values = read_all(port, [GetData(path) for path in paths])
        leaders[:] = [_leader(path, value, live) for path, value in zip(paths, values, strict=True)]
        led = sum(leader is not None for leader in leaders)
        if progress is not None and led != before:
            progress(f"{led} of {count_of(len(paths), 'partition')} {'has' if led == 1 else 'have'} a leader")
        return led == len(paths)

    if not poll(all_led, wait_s):
        lacking = [each.partition for each, leader in zip(change.partitions, leaders, strict=True) if leader is None]
        raise TopicUnfinished(
            f"the nodes of topic {change.topic!r} are written, and {len(lacking)} of "
            f"{count_of(len(paths), 'partition')} ({_some(lacking)}) have no leader after {wait_s:g} s: "
            f"{_why_leaderless(read_brokers(port))}",
            f"check again with `zkconsumer topics {change.topic}`; the controller continues",
        )
    partitions = tuple(replace(each, leader=leader) for each, leader in zip(change.partitions, leaders, strict=True))
    return replace(change, partitions=partitions, done=True)


def _leader(path: str, value: tuple[bytes, object] | None, live: set[str]) -> int | None:
    if value is None:
        return None
    try:
        leader = znodes.parse_partition_state(path, value[0]).leader
    except UnreadableNode:
        return None
    return leader if str(leader) in live else None


def _why_leaderless(brokers: TopicBrokers) -> str:
    if brokers.controller is None:
        return "no broker is the controller now"
    if brokers.controller not in brokers.racks:
        return f"the controller, broker {brokers.controller}, is no longer registered"
    return f"the controller, broker {brokers.controller}, has not chosen leaders; its log (controller.log) says why"


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")


_REMOVES_MARKS = 4
"""Registration version from which a controller removes a mark that it does not act on (Kafka 0.10.2)."""


def delete_topic(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, zookeeper: str, topic: str, dry_run: bool, wait_s: float,
    progress: Progress | None, calls: ControllerCalls | None = None,
) -> TopicChange:  # fmt: skip
    """Mark a topic for deletion, and wait until it is gone.

    Args:
        calls: To the brokers, whose controller marks it when it is asked; None: the mark is written here.
        in_kafka: Asked which groups have offsets of it.
        zookeeper: The connection string, for the message of an error.

    Raises:
        NotFound: There is no such topic.
        TopicRefused: The topic may not be deleted, or the brokers do not delete topics.
        TopicUnfinished: It is not gone in time; says what hinders that.
    """
    check_not_internal(topic, "deleted")
    data, stat = read_topic(port, zookeeper, topic)
    brokers = read_brokers(port)
    if not brokers.can_delete:
        raise TopicRefused(f"topic {topic!r} cannot be deleted: brokers of Kafka 0.8.0 cannot delete topics",
                           "update the brokers to 0.8.2 or later")  # fmt: skip
    mark = f"{DELETIONS}/{topic}"
    [marked] = read_all(port, [Exists(mark)])
    warnings = [] if marked is None else [f"topic {topic!r} was already marked for deletion"]
    warnings += _obstacles(port, topic, data) + _readers(port, topic)
    warnings += warnings_of_offsets(port, in_kafka, topic, sorted(_replicas(topic, data)))
    change = TopicChange(topic, assigned(_replicas(topic, data)), {}, tuple(warnings), not dry_run, False)
    if dry_run:
        return change
    if calls is None:
        _mark(port, mark)
    else:
        delete_by_brokers(calls, topic, wait_s)
    return _wait(port, change, data, stat.czxid, wait_s, progress)


def _mark(port: ZooKeeperPort, path: str) -> None:
    reply = call(port, Create(path), READ_TIMEOUT_S)
    if reply.fault is Fault.NO_AUTH:
        raise AccessRefused.of_node("create", path, reply.reason)
    if reply.fault not in (None, Fault.NODE_EXISTS):
        raise TopicUnfinished(refusal_of("create", path, reply.fault, reply.reason), "check again, and try again")


def _wait(
    port: ZooKeeperPort, change: TopicChange, data: bytes, created_zxid: int, wait_s: float, progress: Progress | None
) -> TopicChange:
    topic = change.topic
    if wait_s <= 0:
        return change
    if progress is not None:
        partitions = count_of(len(change.partitions), "partition")
        progress(f"{DELETIONS}/{topic} is written; the controller deletes {partitions}")
    mark, path = f"{DELETIONS}/{topic}", znodes.topic_path(topic)
    left = {"topic": True}

    def is_decided() -> bool:
        # The controller removes the topic first and the mark last.
        found, marked = read_all(port, [Exists(path), Exists(mark)])
        # A client that asks for the deleted topic may have created it again already.
        left.update(topic=found is not None and found.czxid == created_zxid)
        return marked is None

    if not poll(is_decided, wait_s):
        raise TopicUnfinished(
            f"topic {topic!r} is marked for deletion but still exists after {wait_s:g} s: {_why(port, topic, data)}",
            _remedy(port, mark),
        )
    if left["topic"]:
        raise TopicRefused(
            f"topic {topic!r} was not deleted: the controller has removed the mark, because delete.topic.enable is "
            "false on that broker",
            "set delete.topic.enable=true on the brokers, and restart them",
        )
    return replace(change, done=True)


def _remedy(port: ZooKeeperPort, mark: str) -> str:
    """Return what can be done about a deletion that waits: a controller that has read the mark needs it no more."""
    brokers = read_brokers(port)
    if brokers.controller is None:
        return (f"the mark {mark} stays, and takes effect when a broker becomes the controller; delete that node "
                "before to cancel the deletion")  # fmt: skip
    if brokers.registration_version >= _REMOVES_MARKS:
        return ("remove the obstacle: the controller has started the deletion, and finishes it then, even if the "
                f"mark {mark} is deleted; the deletion cannot be cancelled")  # fmt: skip
    return (f"the mark {mark} stays, and takes effect when nothing prevents the deletion; if delete.topic.enable is "
            "true on the controller, the deletion has started and cannot be cancelled, even by deleting the mark; if "
            "it is false there, delete that node to cancel the deletion")  # fmt: skip


def _why(port: ZooKeeperPort, topic: str, data: bytes) -> str:
    found = _obstacles(port, topic, data)
    if found:
        return "; ".join(found)
    brokers = read_brokers(port)
    if brokers.controller is None:
        return "no broker is the controller now"
    return (
        f"delete.topic.enable is probably false on the controller, broker {brokers.controller} (the default before "
        "Kafka 1.0)"
    )


def _obstacles(port: ZooKeeperPort, topic: str, data: bytes) -> list[str]:
    """Return what keeps the controller from deleting a topic, a sentence each."""
    found = []
    keepers = {broker for replicas in _replicas(topic, data).values() for broker in replicas}
    dead = sorted(keepers - set(read_brokers(port).racks))
    if dead:
        noun, verb = ("broker", "is") if len(dead) == 1 else ("brokers", "are")
        found.append(f"{noun} {', '.join(map(str, dead))} with replicas of it {verb} not registered; the deletion "
                     "waits until they are back")  # fmt: skip
    [reassignment] = read_all(port, [GetData(REASSIGNMENT)])
    if is_reassigned(topic, data, None if reassignment is None else reassignment[0]):
        found.append("its partitions are being moved to other brokers; it is deleted after that")
    return found


def _readers(port: ZooKeeperPort, topic: str) -> list[str]:
    """Return sentences about the groups that own partitions of a topic now, and about groups that cannot be asked."""
    groups = children(port, znodes.CONSUMERS) or []
    listings = read_each(port, [GetChildren(znodes.owners_path(group, topic)) for group in groups])
    reading = [group for group, found in zip(groups, listings, strict=True) if isinstance(found, tuple) and found[0]]
    hidden = [found for found in listings if isinstance(found, RefusedNode)]
    sentences = []
    if reading:
        shown = first_few(*reading, rest=", ...")
        verb = "reads" if len(reading) == 1 else "read"
        sentences.append(f"{count_of(len(reading), 'group')} {verb} it now ({shown}); if auto.create.topics.enable "
                         "is true, a client that asks for a deleted topic creates it again")  # fmt: skip
    if hidden:
        verb = "reads" if len(hidden) == 1 else "read"
        sentences.append(f"whether {count_of(len(hidden), 'more group')} {verb} it is not known: {error_of(hidden[0])}")
    return sentences


def _replicas(topic: str, data: bytes) -> Mapping[int, tuple[int, ...]]:
    try:
        return znodes.parse_replicas(topic, data)
    except UnreadableNode:
        return {}
