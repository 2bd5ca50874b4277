"""What creating, growing and deleting a topic returns, and how such changes are written and waited for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rebalance.errors import AccessRefused, UnreadableNode, refusal_of
from rebalance.subscription import check_topic
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Exists, Fault, GetData, Multi, SetData, Stat, ZooKeeperPort
from zkconsumer.admin.errors import NotFound, TopicRefused, TopicUnfinished
from zkconsumer.admin.phrases import count_of, nearest
from zkconsumer.admin.topics.topic_brokers import TopicBrokers, read_brokers
from zkconsumer.admin.values import JsonValue
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, children, read_all

__all__ = [
    "AssignedPartition", "Progress", "TopicChange", "assigned", "check_not_internal", "poll", "read_topic",
    "wait_for_leaders", "write",
]  # fmt: skip

Progress = Callable[[str], object]
"""Called with a clause whenever a wait has come further."""

_POLL_S: Final = 0.2
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
_MAX_NODE_BYTES: Final = 1_000_000
"""ZooKeeper closes the connection of a client that writes more than 1 MiB (jute.maxbuffer)."""


@dataclass(frozen=True)
class AssignedPartition:
    """One partition and the brokers that shall keep it.

    Attributes:
        partition: Its number.
        replicas: Ids of brokers, the preferred leader first.
        leader: Id of the broker that leads it; None while nobody does, or where that was not waited for.
    """

    partition: int
    replicas: tuple[int, ...]
    leader: int | None = None


@dataclass(frozen=True)
class TopicChange(JsonValue):
    """A topic that was created, grown or deleted, or would be.

    Attributes:
        topic: Its name.
        partitions: Those that are new; of a topic that is deleted all.
        config: The settings that were written.
        warnings: What you should know about it, a sentence each.
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
            f"{topic} is an internal topic and is not {action}",
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
                f"{_MAX_NODE_BYTES:,}", "ask for fewer partitions or replicas"
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


def wait_for_leaders(
    port: ZooKeeperPort, change: TopicChange, wait_s: float, progress: Progress | None
) -> TopicChange:
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
        leaders[:] = [
            _leader(path, value, live) for path, value in zip(paths, values, strict=True)
        ]
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
    partitions = tuple(
        replace(each, leader=leader) for each, leader in zip(change.partitions, leaders, strict=True)
    )
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
