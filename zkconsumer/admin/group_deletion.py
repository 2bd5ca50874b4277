"""Deletes groups: their nodes in ZooKeeper, and their offsets in Kafka.

Rules, and which failure each prevents:
- A group with members, or with a node of a session that lives, is never deleted: its consumers would go on without
  their registration.
- All groups are checked before the first one is deleted.
- Kafka is asked first: if its offset manager does not answer, the group stays where it can be seen.
- Nodes are deleted one by one at the version that was read, and never recursively: no node is deleted that was not
  looked at. The list of members goes first, and cannot go if somebody has joined meanwhile.

Source: kafka.admin.ConsumerGroupCommand --delete, AdminUtils.deleteConsumerGroupInZK (0.8.2.2), which deletes
recursively and leaves the offsets in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalance import znodes
from rebalance.errors import refusal_of
from rebalance.requests import Delete, Fault, GetChildren, GetData, ZooKeeperPort
from rebalance.zookeeper import call
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import GroupHasMembers, GroupNotDeleted
from zkconsumer.admin.findings import session_text
from zkconsumer.admin.group_nodes import group_not_found
from zkconsumer.admin.group_offsets import StoredOffsets, read_stored_offsets
from zkconsumer.admin.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.store_choice import KAFKA
from zkconsumer.admin.values import JsonValue
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all

__all__ = ["DeletedGroup", "DeletedGroups", "delete_groups"]

_SHOWN = 3
_MAX_NODES = 1_000_000


@dataclass(frozen=True)
class DeletedGroup(JsonValue):
    """What was deleted of one group, or would be.

    Attributes:
        group: Its name.
        nodes: Number of its nodes in ZooKeeper.
        offsets_in_zookeeper: Number of offsets there.
        offsets_in_kafka: Number of offsets in Kafka.
        expires: The offsets in Kafka count as none now, and the broker deletes them when it looks for expired offsets
            next: brokers before Kafka 1.1 delete no groups.
    """

    group: str
    nodes: int
    offsets_in_zookeeper: int
    offsets_in_kafka: int
    expires: bool = False


@dataclass(frozen=True)
class DeletedGroups(JsonValue):
    """The groups that were deleted, or would be.

    Attributes:
        groups: In the order in which they were named.
        deleted: They were deleted; False with `dry_run`.
    """

    groups: tuple[DeletedGroup, ...]
    deleted: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer groups delete --json`."""
        entries = [
            {"group": each.group, "nodes": each.nodes, "offset_count_in_zookeeper": each.offsets_in_zookeeper,
             "offset_count_in_kafka": each.offsets_in_kafka, "expires": each.expires}
            for each in self.groups
        ]  # fmt: skip
        return {"groups": entries, "deleted": self.deleted}


def delete_groups(
    port: ZooKeeperPort,
    in_kafka: OffsetsInKafka,
    zookeeper: str,
    groups: Sequence[str],
    store: str | None,
    dry_run: bool,
) -> DeletedGroups:
    """Delete groups that have no members.

    Args:
        zookeeper: The connection string, for the message of an error.
        store: Delete what is in that store alone; None: in both.
        dry_run: Check everything, and delete nothing.

    Raises:
        NotFound: There is no such group.
        GroupHasMembers: Consumers are in one of the groups, or own partitions.
        GroupNotDeleted: A node or an offset could not be deleted; says what is left.
    """
    stored = read_stored_offsets(port, in_kafka, groups, store)
    trees = {group: _tree(port, group) if store != KAFKA else {} for group in stored}
    for group, found in stored.items():
        if found.is_empty and found.kafka_unknown is None:
            raise group_not_found(port, zookeeper, group)
        if found.kafka_unknown is not None:
            raise GroupNotDeleted(
                f"no group was deleted: the offsets of group {group!r} in Kafka are not known ({found.kafka_unknown})",
                "try again once its offset manager answers, or delete what ZooKeeper has alone: store='zookeeper', "
                "--store zookeeper",
            )
        _check_unused(group, trees[group] or _tree(port, group))
    deleted = [_delete(port, in_kafka, found, trees[group], dry_run) for group, found in stored.items()]
    return DeletedGroups(tuple(deleted), not dry_run)


@dataclass(frozen=True)
class _Node:
    version: int
    session: int


def _tree(port: ZooKeeperPort, group: str) -> dict[str, _Node]:
    """Return the nodes of a group: path -> version and session, a node behind all that are above it.

    Raises:
        AccessRefused: A node may not be read.
    """
    found: dict[str, _Node] = {}
    level = [znodes.group_path(group)]
    while level:
        values = read_all(port, [GetData(path) for path in level])
        found |= {
            path: _Node(value[1].version, value[1].ephemeral_owner)
            for path, value in zip(level, values, strict=True) if value is not None
        }  # fmt: skip
        if len(found) > _MAX_NODES:
            raise GroupNotDeleted(f"group {group!r} has more than {_MAX_NODES} nodes in ZooKeeper: it is no group")
        listings = read_all(port, [GetChildren(path) for path in level])
        level = [f"{path}/{name}" for path, value in zip(level, listings, strict=True) if value is not None
                 for name in sorted(value[0])]  # fmt: skip
    return found


def _check_unused(group: str, tree: Mapping[str, _Node]) -> None:
    """Raise if somebody uses the group.

    Raises:
        GroupHasMembers: Consumers are registered, or a session that lives has a node.
    """
    ids = znodes.ids_path(group)
    members = {path.removeprefix(f"{ids}/"): node for path, node in tree.items() if path.startswith(f"{ids}/")}
    if members:
        shown = ", ".join(list(members)[:_SHOWN]) + (", ..." if len(members) > _SHOWN else "")
        verb = "is" if len(members) == 1 else "are"
        remedy = "stop them first"
        persistent = [name for name, node in members.items() if not node.session]
        if persistent:
            remedy += (f"; the registration of {persistent[0]} is persistent and does not end with its consumer: if "
                       f"none runs, delete {ids}/{persistent[0]}")
        raise GroupHasMembers(f"no group was deleted: {count_of(len(members), 'consumer')} {verb} in group {group!r} "
                              f"({shown})", remedy)  # fmt: skip
    held = [(path, node.session) for path, node in tree.items() if node.session]
    if held:
        path, session = held[0]
        more = f", and {len(held) - 1} nodes more are held so" if len(held) > 1 else ""
        raise GroupHasMembers(
            f"no group was deleted: {path} is held by session {session_text(session)}, though no consumer is "
            f"registered in group {group!r}{more}",
            "end the process that has the session, or release the claim first: release() of Admin, `zkconsumer "
            "release`",
        )


def _delete(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, found: StoredOffsets, tree: Mapping[str, _Node], dry_run: bool
) -> DeletedGroup:
    expires = False
    if not dry_run:
        expires = _delete_in_kafka(in_kafka, found)
        _delete_nodes(port, found.group, tree)
    return DeletedGroup(found.group, len(tree), len(found.zookeeper), len(found.kafka), expires)


def _delete_in_kafka(in_kafka: OffsetsInKafka, found: StoredOffsets) -> bool:
    """Delete the offsets in Kafka; return whether the broker deletes their records later.

    Raises:
        GroupNotDeleted: The offset manager did not take it.
    """
    if not found.kafka:
        return False
    expires = in_kafka.delete_group(found.group) is not None
    if expires:
        names = [TopicPartition(topic, int(name)) for topic, name in found.kafka]
        failed = in_kafka.store(found.group, dict.fromkeys(names))
        if failed:
            name, reason = next(iter(failed.items()))
            raise GroupNotDeleted(
                f"group {found.group!r} is not deleted: its offset of {name.topic}-{name.partition} in Kafka stays: "
                f"{reason}; {len(names) - len(failed)} of {count_of(len(names), 'offset')} in Kafka are deleted, and "
                "nothing in ZooKeeper", "delete the group again",
            )  # fmt: skip
    return expires


def _delete_nodes(port: ZooKeeperPort, group: str, tree: Mapping[str, _Node]) -> None:
    """Delete nodes, the list of members first.

    Raises:
        GroupNotDeleted: A node cannot be deleted; says how many are left.
    """
    ids = znodes.ids_path(group)
    paths = [*([ids] if ids in tree else []), *(path for path in reversed(list(tree)) if path != ids)]
    for number, path in enumerate(paths):
        # A parent's version does not change with its children, and it cannot be deleted while it has any.
        reply = call(port, Delete(path, tree[path].version), READ_TIMEOUT_S)
        if reply.fault in (None, Fault.NO_NODE):
            continue
        why = refusal_of("delete", path, reply.fault, reply.reason)
        if reply.fault in (Fault.NOT_EMPTY, Fault.BAD_VERSION):
            why = f"{path} was written by somebody else meanwhile"
        raise GroupNotDeleted(
            f"group {group!r} is not deleted: {why}; {number} of {len(paths)} nodes were deleted",
            "" if reply.fault is Fault.NO_AUTH else "look whether a consumer has joined, and delete the group again",
        )
