"""Deletes topics by the mark that Kafka's own tools write; the controller acts on it.

What a mark does depends on the brokers:
- 0.8.0 reads no marks.
- Up to 0.10.1 a controller with `delete.topic.enable=false`, the default there, leaves the mark. It takes effect when
  brokers that are enabled to delete start, which may be years later.
- From 0.10.2 on such a controller removes the mark and keeps the topic. From 1.0 on deleting is enabled by default.
- A topic with a replica on a broker that is down stays in deletion until that broker is back.
- A controller that deletes topics keeps in memory what it has to delete. Deleting the mark does not withdraw it.

Source: kafka.admin.AdminUtils.deleteTopic, kafka.controller.TopicDeletionManager, KafkaController (0.8.1 to 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rebalance.errors import AccessRefused, RefusedNode, UnreadableNode, refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Exists, Fault, GetChildren, GetData, ZooKeeperPort
from zkconsumer.admin.errors import TopicRefused, TopicUnfinished
from zkconsumer.admin.offsets.deleted_topics import warnings_of_offsets
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.topics.controller_calls import ControllerCalls, delete_by_brokers
from zkconsumer.admin.topics.topic_brokers import DELETIONS, REASSIGNMENT, is_reassigned, read_brokers
from zkconsumer.admin.topics.topic_changes import Progress, TopicChange, assigned, check_not_internal, poll, read_topic
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, children, error_of, read_all, read_each
from zkconsumer_error import first_few

__all__ = ["delete_topic"]

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
    check_not_internal(topic, "deleted by others")
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
            "false on that broker", "set delete.topic.enable=true on the brokers, and restart them"
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
    return (f"delete.topic.enable is probably false on the controller, broker {brokers.controller} (the default before "
            "Kafka 1.0)")


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
    """Return sentences about the groups that own partitions of a topic now, and about those that cannot be asked."""
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
