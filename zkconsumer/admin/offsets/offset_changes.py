"""Sets and deletes offsets of groups, in ZooKeeper and in Kafka.

Sets and deletes offsets in ZooKeeper: reads the old values, and writes unless somebody has changed them meanwhile.

Rule: each node is written at the version at which its old value was read, all nodes of a batch or none, so that no
commit that came in between is overwritten unnoticed.

Sets and deletes offsets of groups in Kafka, and changes both stores in the right order.

Rules, and which failure each prevents:
- Kafka's protocol cannot compare: offsets in Kafka are read again just before they are written, and nothing is written
  in either store if one has changed. Commits of a member within that round trip are overwritten.
- Kafka takes each group for itself: those of all groups are read again before the first one is written.
- Kafka is written first: if its offset manager does not answer, nothing is written in ZooKeeper.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rebalance.errors import AccessRefused, UnreadableNode, refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Delete, Exists, Fault, GetData, Multi, SetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.group_nodes import members
from zkconsumer.admin.offsets.kafka_offsets import GROUPS_TIMEOUT_S, OffsetsInKafka
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER
from zkconsumer.admin.values import GroupHasMembers, JsonValue, OffsetsNotSet, count_of, typed
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, read_all
from zkconsumer.offsets.offset_manager import OffsetAnswer
from zkconsumer_error import first_few

PartitionName = tuple[str, str, str]
"""Group, topic, name of the partition's node."""
_BATCH = 200
"""Operations in one multi; ZooKeeper's default limit of a request is 1 MB."""
FORCE = "stop them first, or set the offsets nevertheless: force=True, --force"


@dataclass(frozen=True)
class OffsetChange:
    """One offset to set or delete.

    Attributes:
        group: The group.
        topic: The topic.
        partition: The name of its node.
        old: The offset before; a text for data that is no offset, None without an offset.
        version: Version of the node that was read, None without a node.
        new: The offset to be set, None to delete it.
        store: Where it is stored, `zookeeper` or `kafka`.
    """

    group: str
    topic: str
    partition: str
    old: int | str | None
    version: int | None
    new: int | None
    store: str = ZOOKEEPER

    @property
    def path(self) -> str:
        """The path of the offset's node."""
        return znodes.offset_path(self.group, self.topic, self.partition)

    @property
    def is_needed(self) -> bool:
        """Whether the store holds anything else."""
        return self.old != self.new

    def __str__(self) -> str:
        return self.line()

    def line(self, names_store: bool = False) -> str:
        """Return the change as a line, such as `clicks-0 in Kafka: 5 -> 7`.

        Args:
            names_store: Name ZooKeeper, too.
        """
        where = " in Kafka" if self.store == KAFKA else " in ZooKeeper" if names_store else ""
        return f"{self.topic}-{self.partition}{where}: {shown_offset(self.old)} -> {shown_offset(self.new)}"


@dataclass(frozen=True)
class OffsetChanges(JsonValue):
    """Offsets that were set or deleted, or would be.

    Attributes:
        changes: All of them, also unchanged ones.
        written: They were set; False with `dry_run`.
        new_groups: Groups that did not exist before.
        notes: Differences from the request, a sentence each: such as an offset that was moved to a bound of its log.
    """

    changes: tuple[OffsetChange, ...]
    written: bool
    new_groups: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer offsets set --json`."""
        entries = [
            {"group": each.group, "topic": each.topic, "partition": each.partition,
             "old": None if isinstance(each.old, str) else each.old, "new": each.new, "store": each.store,
             **({"old_text": each.old} if isinstance(each.old, str) else {})}
            for each in self.changes
        ]  # fmt: skip
        return {"changes": typed(entries), "written": self.written, "notes": list(self.notes)}


def shown_offset(offset: int | str | None) -> str:
    """Return an offset as messages show it."""
    return "none" if offset is None else str(offset)


def plan_changes(port: ZooKeeperPort, wanted: Iterable[tuple[PartitionName, int | None]]) -> list[OffsetChange]:
    """Return the changes in ZooKeeper, with the offsets that are stored now.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    pairs = list(wanted)
    values = read_all(port, [GetData(znodes.offset_path(*name)) for name, _ in pairs])
    return [
        OffsetChange(*name, _old(name, value), None if value is None else value[1].version, new)
        for (name, new), value in zip(pairs, values, strict=True)
    ]


def _old(name: PartitionName, value: tuple[bytes, object] | None) -> int | str | None:
    if value is None:
        return None
    try:
        return znodes.parse_offset(znodes.offset_path(*name), value[0])
    except UnreadableNode as error:
        return f"unreadable {error.excerpt!r}"


def check_no_members(port: ZooKeeperPort, groups: Sequence[str], warn: Callable[[str], object] | None) -> None:
    """Raise, or warn, when one of the groups has members.

    Args:
        warn: Called with a sentence about them; None: raise.

    Raises:
        GroupHasMembers: Names the members.
    """
    live = {group: found for group in groups if (found := members(port, group))}
    if not live:
        return
    # A member's id starts with the name of its group and an underscore.
    names = [name for found in live.values() for name in found]
    verb = "is" if len(names) == 1 else "are"
    where = f"group {next(iter(live))!r}" if len(live) == 1 else f"groups {', '.join(live)}"
    sentence = f"{count_of(len(names), 'consumer')} {verb} in {where} ({first_few(*names, rest=', ...')})"
    if warn is None:
        sentence += " and would continue from their own positions"
        raise GroupHasMembers(f"no offset was set: {sentence}", FORCE)
    warn(f"{sentence}; a new offset takes effect when its partition is claimed next; until then they may overwrite it")


def write_changes(port: ZooKeeperPort, changes: Sequence[OffsetChange]) -> None:
    """Write the offsets that differ.

    Raises:
        OffsetsNotSet: An offset was changed by somebody else since it was read, or ZooKeeper did not take them; says
            how many are written.
    """
    needed = [change for change in changes if change.is_needed and change.store == ZOOKEEPER]
    _make_parents(port, needed)
    for first in range(0, len(needed), _BATCH):
        batch = needed[first : first + _BATCH]
        reply = call(port, Multi(tuple(_operation(change) for change in batch)), READ_TIMEOUT_S)
        if reply.fault is not None:
            raise OffsetsNotSet(
                f"ZooKeeper did not say whether the offsets were written: {reply.reason}",
                "read the offsets, and set them again",
            )
        faults = {
            change: result
            for change, result in zip(batch, reply.value, strict=True)
            if isinstance(result, Fault) and result is not Fault.ROLLED_BACK
        }
        if faults:
            raise _refused(port, needed, faults)


def delete_empty_nodes(port: ZooKeeperPort, changes: Sequence[OffsetChange]) -> None:
    """Delete the nodes of topics that have no offset any more; one that somebody has written to meanwhile stays."""
    topics = {(change.group, change.topic) for change in changes if change.new is None and change.store == ZOOKEEPER}
    for group, topic in sorted(topics):
        call(port, Delete(znodes.offsets_path(group, topic)), READ_TIMEOUT_S)


def _operation(change: OffsetChange) -> Create | SetData | Delete:
    if change.new is None:
        return Delete(change.path, -1 if change.version is None else change.version)
    data = znodes.format_offset(change.new)
    if change.version is None:
        return Create(change.path, data)
    return SetData(change.path, data, change.version)


def _make_parents(port: ZooKeeperPort, changes: Sequence[OffsetChange]) -> None:
    """Create the parents of nodes that do not exist yet; `/consumers` itself is missing before Kafka 0.8.1."""
    folders: dict[str, None] = {}
    for change in changes:
        if change.version is None and change.new is not None:
            parts = change.path.split("/")[1:-1]
            folders.update(dict.fromkeys("/" + path for path in itertools.accumulate(parts, "{}/{}".format)))
    for folder in folders:
        reply = call(port, Create(folder), READ_TIMEOUT_S)
        # ZooKeeper checks the rights on the parent first, also for a node that exists already.
        exists = reply.fault is Fault.NO_AUTH and read_all(port, [Exists(folder)]) != [None]
        if reply.fault not in (None, Fault.NODE_EXISTS) and not exists:
            raise OffsetsNotSet(f"no offset was set: {refusal_of('create', folder, reply.fault, reply.reason)}")


def _refused(
    port: ZooKeeperPort, needed: Sequence[OffsetChange], faults: Mapping[OffsetChange, Fault]
) -> OffsetsNotSet:
    """Return the error about a batch; the written nodes are read, because ZooKeeper 3.3 writes a batch one by one."""
    now = plan_changes(port, [((change.group, change.topic, change.partition), change.new) for change in needed])
    written = sum(not change.is_needed for change in now)
    change, fault = next(iter(faults.items()))
    current = next(found.old for found in now if found.path == change.path)
    if fault in (Fault.BAD_VERSION, Fault.NO_NODE, Fault.NODE_EXISTS):
        what = (
            f"the offset of {change.topic}-{change.partition} in group {change.group!r} was changed by another "
            f"client in the meantime: it was {shown_offset(change.old)}, it is {shown_offset(current)}"
        )
        remedy = "find out which client commits there, and set the offsets again"
    else:
        what = f"{change.path} cannot be written: {fault.value}"
        remedy = ""
    if fault is Fault.NO_AUTH:
        refusal = AccessRefused.of_node("create" if change.version is None else "write", change.path)
        what, remedy = refusal.cause, refusal.remedy
    verb = "was" if len(needed) == 1 else "were"
    return OffsetsNotSet(f"{what}; {written} of {count_of(len(needed), 'offset')} {verb} written", remedy)


_GROUP_S: Final = 0.2
"""Longest wait for the offsets of one group among many, on average."""
_UNWRITTEN: Final = "check that the topic exists and its offset manager answers, and set the offsets again"


def plan_kafka_changes(
    group: str, wanted: Mapping[TopicPartition, int | None], stored: Mapping[tuple[str, str], int]
) -> list[OffsetChange]:
    """Return the changes in Kafka.

    Args:
        wanted: Partition -> offset to be set, None to delete it.
        stored: (topic, partition's name) -> offset that is stored now.
    """
    return [
        OffsetChange(group, topic, str(number), stored.get((topic, str(number))), None, new, KAFKA)
        for (topic, number), new in wanted.items()
    ]


def write_both(port: ZooKeeperPort, in_kafka: OffsetsInKafka, changes: Sequence[OffsetChange]) -> None:
    """Write the offsets that differ, in Kafka and then in ZooKeeper.

    Raises:
        OffsetsNotSet: An offset was changed by somebody else since it was read, or a store did not take it; says how
            many are written.
    """
    _write_kafka(in_kafka, changes)
    try:
        write_changes(port, changes)
    except OffsetsNotSet as error:
        in_both = sum(change.is_needed for change in changes if change.store == KAFKA)
        if not in_both:
            raise
        verb = "was" if in_both == 1 else "were"
        sentence = f"{error.sentence}; {count_of(in_both, 'offset')} in Kafka {verb} written before"
        raise OffsetsNotSet(sentence, error.remedy) from None
    delete_empty_nodes(port, changes)


def _write_kafka(in_kafka: OffsetsInKafka, changes: Sequence[OffsetChange]) -> None:
    """Write the offsets in Kafka that differ, group by group, after those of all groups were read again.

    Raises:
        OffsetsNotSet: An offset was changed by somebody else since it was read, or the offset manager did not take it;
            says how many are written, and of which groups.
    """
    groups: dict[str, dict[TopicPartition, OffsetChange]] = {}
    for change in changes:
        if change.is_needed and change.store == KAFKA:
            groups.setdefault(change.group, {})[TopicPartition(change.topic, int(change.partition))] = change
    progress = _Progress(sum(map(len, groups.values())))
    if len(groups) > 1:
        # A refusal by one group's manager must not come after other groups were written.
        wanted = {group: list(found) for group, found in groups.items()}
        answers = in_kafka.fetch_each(wanted, max(GROUPS_TIMEOUT_S, _GROUP_S * len(groups)))
        for group, answer in answers.items():
            _check_unchanged(group, groups[group], answer, progress)
    for group, needed in groups.items():
        _check_unchanged(group, needed, in_kafka.fetch(group, list(needed)), progress)
        failed = in_kafka.store(group, {name: change.new for name, change in needed.items()})
        progress.written[group] = len(needed) - len(failed)
        if failed:
            raise progress.error(group, failed, _UNWRITTEN)


def _check_unchanged(
    group: str, needed: Mapping[TopicPartition, OffsetChange], answer: OffsetAnswer, progress: _Progress
) -> None:
    if answer.unknown:
        raise progress.error(
            group, {name: f"it cannot be read ({reason})" for name, reason in answer.unknown.items()}, _UNWRITTEN
        )
    changed = {
        name: (f"another client has changed it in the meantime: it was {shown_offset(change.old)}, it is "
               f"{shown_offset(answer.offsets.get(name))}")
        for name, change in needed.items() if answer.offsets.get(name) != change.old
    }  # fmt: skip
    if changed:
        raise progress.error(
            group, changed, "read the offsets, find out which client commits there, and set them again"
        )


class _Progress:
    """How much is written in Kafka.

    Args:
        total: Number of offsets that shall be written.

    Attributes:
        written: Group -> number of its offsets that are written.
    """

    def __init__(self, total: int) -> None:
        self.written: dict[str, int] = {}
        self._total = total

    def error(self, group: str, failed: Mapping[TopicPartition, str], remedy: str) -> OffsetsNotSet:
        """Return the error about offsets of a group.

        Args:
            failed: Partition -> why its offset is not written, a clause; at least one.
        """
        name, reason = next(iter(failed.items()))
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        written = sum(self.written.values())
        groups = [each for each, count in self.written.items() if count and each != group]
        of_groups = ""
        if groups:
            of_groups = f", including all of {first_few(*map(repr, groups), most=3, rest=', ...')}"
        return OffsetsNotSet(
            f"the offset of {name.topic}-{name.partition} of group {group!r} in Kafka is not written: {reason}"
            f"{more}; {written} of {count_of(self._total, 'offset')} in Kafka {'was' if self._total == 1 else 'were'} "
            f"written{of_groups}, and none in ZooKeeper",
            remedy,
        )
