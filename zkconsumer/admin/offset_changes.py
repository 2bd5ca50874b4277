"""Offsets of a group that are set by hand: what stands there, what shall, and writing it unless somebody was faster.

Rule: each node is written at the version at which its old value was read, all of a batch or none, so no commit that
came in between is lost unseen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from rebalance import znodes
from rebalance.errors import AccessRefused, UnreadableNode, refusal_of
from rebalance.requests import Create, Exists, Fault, GetData, Multi, SetData, ZooKeeperPort
from rebalance.zookeeper import call
from zkconsumer.admin.group_removal import members
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.tables import count_of
from zkconsumer.cli.zookeeper_access import READ_TIMEOUT_S, ask_all

__all__ = ["OffsetChange", "PartitionName", "plan_changes", "refuse_live_groups", "write_changes"]

PartitionName = tuple[str, str, str]
"""Group, topic, name of the partition's node."""

_BATCH = 200
"""Operations in one multi; ZooKeeper's default limit of a request is 1 MB."""
_SHOWN = 5


@dataclass(frozen=True)
class OffsetChange:
    """One offset that shall be written.

    Attributes:
        old: what stands there: an offset, text for data that is none, `None` without a node.
        version: of the node that was read, `None` without a node.
    """

    group: str
    topic: str
    partition: str
    old: int | str | None
    version: int | None
    new: int

    @property
    def path(self) -> str:
        """The path of the offset's node."""
        return znodes.offset_path(self.group, self.topic, self.partition)

    @property
    def is_needed(self) -> bool:
        """Whether the node holds anything else now."""
        return self.old != self.new

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {'none' if self.old is None else self.old} -> {self.new}"


def plan_changes(port: ZooKeeperPort, wanted: Iterable[tuple[PartitionName, int]]) -> list[OffsetChange]:
    """The changes, with what stands there now.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    pairs = list(wanted)
    values = ask_all(port, [GetData(znodes.offset_path(*name)) for name, _ in pairs])
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


def refuse_live_groups(port: ZooKeeperPort, groups: Sequence[str], force: bool) -> None:
    """Raise when somebody is in one of the groups; with `force` only warn.

    Raises:
        CliError: names the members.
    """
    live = {group: found for group in groups if (found := members(port, group))}
    if not live:
        return
    # A member's id begins with its group's name and an underscore.
    names = [name for found in live.values() for name in found]
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    verb = "is" if len(names) == 1 else "are"
    where = f"group {next(iter(live))!r}" if len(live) == 1 else f"groups {', '.join(live)}"
    sentence = f"{count_of(len(names), 'consumer')} {verb} in {where} ({shown})"
    if not force:
        raise CliError(f"no offset was set: {sentence} and would go on from their own positions",
                       "stop them first, or give --force")
    click.echo(f"warning: {sentence}; what is set counts when a partition is claimed next, and they may commit over "
               "it until then", err=True)


def write_changes(port: ZooKeeperPort, changes: Sequence[OffsetChange]) -> None:
    """Write the offsets that differ.

    Raises:
        CliError: an offset was changed by somebody else since it was read, or ZooKeeper did not take them; says how
            many are written.
    """
    needed = [change for change in changes if change.is_needed]
    _make_parents(port, needed)
    for first in range(0, len(needed), _BATCH):
        batch = needed[first:first + _BATCH]
        reply = call(port, Multi(tuple(_operation(change) for change in batch)), READ_TIMEOUT_S)
        if reply.fault is not None:
            raise CliError(f"ZooKeeper did not say whether the offsets were written: {reply.reason}",
                           "look with `zkconsumer offsets get`, and set them again")
        faults = {
            change: result
            for change, result in zip(batch, reply.value, strict=True)
            if isinstance(result, Fault) and result is not Fault.ROLLED_BACK
        }
        if faults:
            raise _refused(port, needed, faults)


def _operation(change: OffsetChange) -> Create | SetData:
    data = znodes.format_offset(change.new)
    if change.version is None:
        return Create(change.path, data)
    return SetData(change.path, data, change.version)


def _make_parents(port: ZooKeeperPort, changes: Sequence[OffsetChange]) -> None:
    """Make what stands above nodes that are not there yet; `/consumers` itself is missing before Kafka 0.8.1."""
    folders: dict[str, None] = {}
    for change in changes:
        if change.version is None:
            parts = change.path.split("/")[1:-1]
            folders.update(dict.fromkeys("/" + path for path in itertools.accumulate(parts, "{}/{}".format)))
    for folder in folders:
        reply = call(port, Create(folder), READ_TIMEOUT_S)
        # The rights on its parent are looked at first, also of a node that is there already.
        is_there = reply.fault is Fault.NO_AUTH and ask_all(port, [Exists(folder)]) != [None]
        if reply.fault not in (None, Fault.NODE_EXISTS) and not is_there:
            raise CliError(f"no offset was set: {refusal_of('create', folder, reply.fault, reply.reason)}")


def _refused(port: ZooKeeperPort, needed: Sequence[OffsetChange], faults: Mapping[OffsetChange, Fault]) -> CliError:
    """What became of the offsets; looked up, because ZooKeeper 3.3 writes a batch one by one."""
    now = plan_changes(port, [((change.group, change.topic, change.partition), change.new) for change in needed])
    written = sum(not change.is_needed for change in now)
    change, fault = next(iter(faults.items()))
    current = next(found.old for found in now if found.path == change.path)
    if fault in (Fault.BAD_VERSION, Fault.NO_NODE, Fault.NODE_EXISTS):
        what = (
            f"the offset of {change.topic}-{change.partition} in group {change.group!r} was changed by somebody else "
            f"meanwhile: it was {'none' if change.old is None else change.old}, it is "
            f"{'none' if current is None else current}"
        )
        remedy = "look who commits there, and set them again"
    else:
        what = f"{change.path} cannot be written: {fault.value}"
        remedy = ""
    if fault is Fault.NO_AUTH:
        refusal = AccessRefused.of_node("create" if change.version is None else "write", change.path)
        what, remedy = refusal.cause, refusal.remedy
    return CliError(f"{what}; {written} of {count_of(len(needed), 'offset')} are written", remedy)
