"""Deletes groups: their nodes in ZooKeeper, and their offsets in Kafka.

Rules, and which failure each prevents:
- A group with members, or with a node of a session that lives, is never deleted: its consumers would go on without
  their registration.
- All groups are checked before the first one is deleted.
- The list of members is deleted first. ZooKeeper refuses that if somebody has joined meanwhile; then nothing of the
  group is deleted, in Kafka neither.
- Offsets in Kafka are read again before they are deleted, and the group stays if one has changed.
- The other nodes are deleted after the offsets in Kafka: if its offset manager does not answer, the group stays where
  it can be seen.
- Nodes are deleted at the version that was read, and never recursively: no node is deleted that was not looked at. Two
  hundred go in one transaction: if somebody has written one of them, or joined, all of these stay (ZooKeeper 3.3 has no
  transactions, and deletes those before it).
- An error says what is deleted already: other groups, offsets in Kafka, nodes.

Source: kafka.admin.ConsumerGroupCommand --delete, AdminUtils.deleteConsumerGroupInZK (0.8.2.2), which deletes
recursively and leaves the offsets in Kafka.

Deletes a group's nodes in ZooKeeper: its stored offsets, or all of them.

Rule: nodes are deleted one by one and never recursively, so no node is deleted that was not looked at; the nodes of a
group that has members are never deleted.

Deletes groups that brokers coordinate.

Rules, and which failure each prevents:
- A group with members is never deleted. The coordinator refuses that, too, so nobody can join in between.
- All groups are checked before the first one is deleted.
- Brokers before Kafka 1.1 have no request for it. There -1 is stored for each offset, which every member takes for
  none; it expires as any offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalance.errors import refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Delete, Exists, Fault, GetChildren, GetData, Multi, ZooKeeperPort
from simpleconsumer.errors import BrokerError
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.broker_group_report import BrokerGroupState, CoordinatedGroup, shown_members
from zkconsumer.admin.groups.group_coordinators import NOT_AUTHORIZED, GroupCoordinators, check_code
from zkconsumer.admin.groups.group_nodes import group_not_found, members
from zkconsumer.admin.groups.group_report import unled_clause
from zkconsumer.admin.offsets.group_offsets import (
    StoredOffsets,
    keeps_offsets_of_deleted_topics,
    note_of_kept_offsets,
    read_stored_offsets,
    with_kept_offsets,
)
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.offsets.offset_changes import shown_offset
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER
from zkconsumer.admin.values import GroupHasMembers, GroupNotDeleted, JsonValue, count_of
from zkconsumer.admin.verify.findings import session_text
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, children, read_all
from zkconsumer_error import ErrorCode, first_few

_MAX_NODES = 1_000_000
_BATCH = 200
"""Nodes in one transaction: their paths must fit into a message of ZooKeeper, whose limit is a megabyte."""


@dataclass(frozen=True)
class DeletedGroup(JsonValue):
    """The nodes of one group that were deleted, or would be.

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
        notes: Notes, a sentence each: owner nodes that are left over, offsets in Kafka that stay.
    """

    groups: tuple[DeletedGroup, ...]
    deleted: bool
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer groups delete --json`."""
        entries = [
            {"group": each.group, "nodes": each.nodes, "offset_count_in_zookeeper": each.offsets_in_zookeeper,
             "offset_count_in_kafka": each.offsets_in_kafka, "expires": each.expires}
            for each in self.groups
        ]  # fmt: skip
        return {"groups": entries, "deleted": self.deleted, "notes": list(self.notes)}


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
        store: Delete from that store alone; None: from both.
        dry_run: Check everything, and delete nothing.

    Raises:
        NotFound: There is no such group.
        GroupHasMembers: Consumers are in one of the groups, or a session that lives has a node.
        GroupNotDeleted: A node or an offset could not be deleted, or has changed meanwhile; says what is deleted.
    """
    stored = read_stored_offsets(port, in_kafka, groups, store)
    is_kept = store != ZOOKEEPER and keeps_offsets_of_deleted_topics(port, in_kafka)
    trees = {group: _tree(port, group) if store != KAFKA else {} for group in stored}
    for group, found in stored.items():
        if found.is_empty and found.kafka_unknown is None:
            missing = group_not_found(port, zookeeper, group)
            raise with_kept_offsets(missing) if is_kept else missing
        if found.kafka_unknown is not None:
            raise GroupNotDeleted(
                f"no group was deleted: the offsets of group {group!r} in Kafka are not known ({found.kafka_unknown})",
                "try again when its offset manager answers, or delete only the group in ZooKeeper: "
                "store='zookeeper', --store zookeeper",
            )
        _check_unused(group, trees[group] or _tree(port, group))
    unled = unled_clause(name for found in stored.values() for name in found.kafka_unled)
    left_in_kafka = (
        []
        if unled is None
        else [f"brokers before 1.1 keep offsets that the groups may have in Kafka for topics without leaders: {unled}"]
    )
    notes = left_in_kafka + [note for group, tree in trees.items() for note in _left_behind(group, tree)]
    if store == ZOOKEEPER and in_kafka.exists():
        notes.append("if the groups have offsets in Kafka, these stay: lists no longer show the groups, but "
                     "`zkconsumer offsets get GROUP` does")  # fmt: skip
    notes += [note_of_kept_offsets(group) for group, found in stored.items() if is_kept and found.kafka]
    deleted: list[DeletedGroup] = []
    for group, found in stored.items():
        try:
            deleted.append(_delete(port, in_kafka, found, trees[group], store, dry_run))
        except GroupNotDeleted as error:
            raise _after_others(error, [each.group for each in deleted]) from None
    return DeletedGroups(tuple(deleted), not dry_run, tuple(notes))


def _after_others(error: GroupNotDeleted, deleted: Sequence[str]) -> GroupNotDeleted:
    if not deleted:
        return error
    shown = first_few(*map(repr, deleted), most=3, rest=", ...")
    verb = "was" if len(deleted) == 1 else "were"
    sentence = f"{error.sentence}; {count_of(len(deleted), 'group')} {verb} deleted before ({shown})"
    return GroupNotDeleted(sentence, error.remedy)


def _left_behind(group: str, tree: Mapping[str, _Node]) -> list[str]:
    """Return a sentence about the owner nodes of no session; nobody holds them."""
    depth = znodes.owner_path(group, "t", 0).count("/")
    owners = f"{znodes.group_path(group)}/owners/"
    paths = [path for path in tree if path.startswith(owners) and path.count("/") == depth]
    if not paths:
        return []
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return [f"group {group!r}: {paths[0]}{more} belongs to no session and does not prevent the deletion"]


@dataclass(frozen=True)
class _Node:
    version: int
    session: int


def _tree(port: ZooKeeperPort, group: str) -> dict[str, _Node]:
    """Return the nodes of a group: path -> version and session, a node after all that are above it.

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
            raise GroupNotDeleted(f"group {group!r} has more than {_MAX_NODES} nodes in ZooKeeper: it is not a group")
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
        shown = first_few(*members, most=3, rest=", ...")
        verb = "is" if len(members) == 1 else "are"
        remedy = "stop them first"
        persistent = [name for name, node in members.items() if not node.session]
        if persistent:
            remedy += (
                f"; the registration of {persistent[0]} is persistent and does not end with its consumer: if "
                f"no such consumer runs, delete {ids}/{persistent[0]}"
            )
        raise GroupHasMembers(f"no group was deleted: {count_of(len(members), 'consumer')} {verb} in group {group!r} "
                              f"({shown})", remedy)  # fmt: skip
    held = [(path, node.session) for path, node in tree.items() if node.session]
    if held:
        path, session = held[0]
        more = f", and {len(held) - 1} more nodes are held in the same way" if len(held) > 1 else ""
        raise GroupHasMembers(
            f"no group was deleted: {path} is held by session {session_text(session)}, although no consumer is "
            f"registered in group {group!r}{more}",
            "end the process that has the session, or release the claim first: release() of Admin, `zkconsumer "
            "release`",
        )


def _delete(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, found: StoredOffsets, tree: Mapping[str, _Node], store: str | None,
    dry_run: bool,
) -> DeletedGroup:  # fmt: skip
    expires = False
    if not dry_run:
        ids = znodes.ids_path(found.group)
        deletion = _NodeDeletion(port, found.group, tree)
        if ids in tree:
            deletion.delete([ids])
        else:
            _check_none_joined(port, found.group)
        if store != ZOOKEEPER:
            expires = _delete_in_kafka(in_kafka, found, deletion)
        deletion.delete([path for path in reversed(list(tree)) if path != ids])
    return DeletedGroup(found.group, len(tree), len(found.zookeeper), len(found.kafka), expires)


def _check_none_joined(port: ZooKeeperPort, group: str) -> None:
    names = members(port, group)
    if names:
        raise GroupNotDeleted(f"group {group!r} is not deleted: {names[0]} has joined in the meantime", "stop it first")


def _delete_in_kafka(in_kafka: OffsetsInKafka, found: StoredOffsets, deletion: _NodeDeletion) -> bool:
    """Delete the offsets in Kafka; return whether the broker deletes their records later.

    Args:
        deletion: The deletion in ZooKeeper so far; learns of the deletion in Kafka.

    Raises:
        GroupNotDeleted: The offset manager did not take it, or an offset has changed since it was read.
    """
    if not found.kafka:
        # A broker from Kafka 1.1 on deletes also the offsets of topics that do not exist any more, which nobody can
        # read. Without the topic of the offsets the question would create it.
        if in_kafka.exists():
            in_kafka.delete_group(found.group)
        return False
    names = {TopicPartition(topic, int(name)): offset for (topic, name), offset in found.kafka.items()}
    _check_unchanged(in_kafka, found.group, names, deletion)
    expires = in_kafka.delete_group(found.group) is not None
    if expires:
        failed = in_kafka.store(found.group, dict.fromkeys(names))
        if failed:
            name, reason = next(iter(failed.items()))
            raise GroupNotDeleted(
                f"group {found.group!r} is not deleted: its offset of {name.topic}-{name.partition} in Kafka stays: "
                f"{reason}; {len(names) - len(failed)} of {count_of(len(names), 'offset')} in Kafka are deleted, and "
                f"{deletion.so_far()}", "delete the group again",
            )  # fmt: skip
    deletion.in_kafka = len(names)
    return expires


def _check_unchanged(
    in_kafka: OffsetsInKafka, group: str, names: Mapping[TopicPartition, int], deletion: _NodeDeletion
) -> None:
    answer = in_kafka.fetch(group, list(names))
    for name, offset in names.items():
        now = answer.offsets.get(name)
        if name not in answer.unknown and now == offset:
            continue
        why = f"cannot be read again ({answer.unknown[name]})" if name in answer.unknown else (
            f"was changed by another client in the meantime: it was {offset}, it is {shown_offset(now)}")  # fmt: skip
        raise GroupNotDeleted(
            f"group {group!r} is not deleted: its offset of {name.topic}-{name.partition} in Kafka {why}; "
            f"no offset in Kafka is deleted, and {deletion.so_far()}",
            "find out which client commits there, and delete the group again",
        )


class _NodeDeletion:
    """Deletes the nodes of one group.

    Args:
        tree: Its nodes.

    Attributes:
        in_kafka: Number of its offsets in Kafka that are deleted, for the message of an error.
    """

    def __init__(self, port: ZooKeeperPort, group: str, tree: Mapping[str, _Node]) -> None:
        self.in_kafka = 0
        self._port = port
        self._group = group
        self._tree = tree
        self._deleted = 0

    def so_far(self) -> str:
        """Return how many nodes are deleted, a clause."""
        return f"{self._deleted} of {count_of(len(self._tree), 'node')} in ZooKeeper"

    def delete(self, paths: Sequence[str]) -> None:
        """Delete nodes, in this order.

        Raises:
            GroupNotDeleted: A node cannot be deleted; says what is deleted.
        """
        for first in range(0, len(paths), _BATCH):
            batch = paths[first : first + _BATCH]
            if len(batch) == 1 or not self._delete_together(batch):
                for path in batch:
                    self._delete_one(path)

    def _delete_together(self, paths: Sequence[str]) -> bool:
        """Delete nodes in one transaction; return False if they have to be deleted one by one.

        A node that is gone makes the transaction fail, as does a lost connection, after which nobody knows its result.
        """
        reply = call(self._port, Multi(tuple(self._deletion(path) for path in paths)), READ_TIMEOUT_S)
        if reply.fault is not None:
            return False
        faults = {
            path: result for path, result in zip(paths, reply.value, strict=True)
            if isinstance(result, Fault) and result is not Fault.ROLLED_BACK
        }  # fmt: skip
        if any(fault is Fault.NO_NODE for fault in faults.values()):
            return False
        if faults:  # ZooKeeper 3.3 has deleted those before it
            left = read_all(self._port, [Exists(path) for path in paths])
            self._deleted += sum(value is None for value in left)
            raise self._error(*next(iter(faults.items())), "")
        self._deleted += len(paths)
        return True

    def _delete_one(self, path: str) -> None:
        reply = call(self._port, self._deletion(path), READ_TIMEOUT_S)
        if reply.fault not in (None, Fault.NO_NODE):
            raise self._error(path, reply.fault, reply.reason)
        self._deleted += 1

    def _deletion(self, path: str) -> Delete:
        # A parent's version does not change with its children, and it cannot be deleted while it has any.
        return Delete(path, self._tree[path].version)

    def _error(self, path: str, fault: Fault, reason: str) -> GroupNotDeleted:
        why = refusal_of("delete", path, fault, reason)
        if fault in (Fault.NOT_EMPTY, Fault.BAD_VERSION):
            why = f"{path} was written by another client in the meantime"
        kafka = f"{count_of(self.in_kafka, 'offset')} in Kafka" if self.in_kafka else "nothing in Kafka"
        return GroupNotDeleted(
            f"group {self._group!r} is not deleted: {why}; deleted were {self.so_far()}, and {kafka}",
            "" if fault is Fault.NO_AUTH else "check whether a consumer has joined, and delete the group again",
        )


log = logging.getLogger(__name__)


def stored_offsets(port: ZooKeeperPort, group: str, matches: Callable[[str], bool]) -> list[str]:
    """Return the paths of the offset nodes of the topics that match."""
    topics = children(port, f"{znodes.group_path(group)}/offsets") or []
    return [
        f"{znodes.offsets_path(group, topic)}/{name}"
        for topic in topics
        if matches(topic)
        for name in children(port, znodes.offsets_path(group, topic)) or []
    ]


def delete_offsets(port: ZooKeeperPort, group: str, matches: Callable[[str], bool]) -> int:
    """Delete the offset nodes of the topics that match, and return how many there were.

    Raises:
        GroupHasMembers: The group has members, which would write them again.
    """
    live = members(port, group)
    if live:
        count, verb = count_of(len(live), "consumer"), "is" if len(live) == 1 else "are"
        sentence = f"the offsets of group {group!r} are not deleted: {count} {verb} in it ({', '.join(live[:3])})"
        raise GroupHasMembers(sentence, "stop them first")
    paths = stored_offsets(port, group, matches)
    for path in paths:
        _delete_node(port, path)
    return len(paths)


def remove_group(port: ZooKeeperPort, group: str) -> None:
    """Delete all nodes of a group without members."""
    if members(port, group):
        return
    root = znodes.group_path(group)
    for kind in ("offsets", "owners"):
        for topic in children(port, f"{root}/{kind}") or []:
            names = children(port, f"{root}/{kind}/{topic}") or []
            _delete_all(port, [f"{root}/{kind}/{topic}/{name}" for name in names if kind == "offsets"])
            _delete_node(port, f"{root}/{kind}/{topic}")
    _delete_all(port, [f"{root}/offsets", f"{root}/owners", f"{root}/ids", root])


def _delete_all(port: ZooKeeperPort, paths: Iterable[str]) -> None:
    for path in paths:
        _delete_node(port, path)


def _delete_node(port: ZooKeeperPort, path: str) -> None:
    reply = call(port, Delete(path), READ_TIMEOUT_S)
    if reply.fault not in (None, Fault.NO_NODE):
        log.warning("%s is not deleted: %s", path, refusal_of("delete", path, reply.fault, reply.reason))


def check_without_members(group: CoordinatedGroup, what: str) -> None:
    """Raise if a group has members, or may have some.

    Args:
        what: The clause for errors, such as `group 'billing' is not deleted`.

    Raises:
        GroupHasMembers: Names them.
    """
    if group.members:
        verb = "is" if len(group.members) == 1 else "are"
        raise GroupHasMembers(
            f"{what}: {count_of(len(group.members), 'member')} {verb} in it ({shown_members(group.members)}), and its "
            f"state is {group.state}", "stop them first; the broker does not delete a group that has members"
        )  # fmt: skip


def delete_broker_groups(
    coordinators: GroupCoordinators, states: Sequence[BrokerGroupState], *, dry_run: bool
) -> DeletedGroups:
    """Delete groups that have no members.

    Raises:
        GroupHasMembers: Members are in one of them.
        GroupNotDeleted: A coordinator has not deleted one; says which are deleted.
    """
    for state in states:
        check_without_members(state.group, f"group {state.group.group!r} is not deleted")
    rows: list[DeletedGroup] = []
    for state in states:
        expires = False
        if not dry_run:
            expires = _delete_at_broker(coordinators, state, [row.group for row in rows])
        rows.append(DeletedGroup(state.group.group, 0, 0, len(state.offsets), expires))
    return DeletedGroups(tuple(rows), not dry_run)


def _delete_at_broker(coordinators: GroupCoordinators, state: BrokerGroupState, done: Sequence[str]) -> bool:
    """Delete one group; return whether its offsets stay until they expire."""
    group = state.group.group
    before = f"; deleted before: {', '.join(done)}" if done else ""
    code = coordinators.delete_group(group)
    if code is None:
        _, codes = coordinators.delete_offsets(group, list(state.offsets))
        code = next((each for each in codes.values() if each), 0)
        if not code:
            return True
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
        raise GroupHasMembers(f"group {group!r} is not deleted: a member has joined it in the meantime{before}",
                              "stop its members first")  # fmt: skip
    if code not in (
        0,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ):  # it was there a moment ago: an answer was lost, or somebody else has deleted it
        if code in NOT_AUTHORIZED:
            check_code(code, group)
        raise GroupNotDeleted(f"group {group!r} is not deleted: {BrokerError(code, None, None)}{before}")
    return False
