"""Records each change to a group's nodes as an event when the leader writes it, before any client can see it.

| node | event |
|---|---|
| owner node created by a member | `claimed` |
| owner node of no member created, deleted | `occupied`, `vacated` |
| owner node deleted, or written by another than its owner | `owner_gone`; who did it stands in `id` |
| offset node written | `offset_node` with the writer; of a member `commit`, too; -1 for none that can be read |
| registration created, deleted | `registered`, `unregistered`; who did it stands in `id` |
| a node of one member deleted or set by another member | `touched`; at which version stands in `offset`, -1 for any |

Who did it: "expired", "closed", "ended" (its session: by its time-out, in order, from outside), "released", "hand",
or the id of the member.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Delete, Multi, SetData
from tests.simulator.tree import Change, ChangeKind
from tests.simulator.zookeeper_connection import Record
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.checks import OPERATOR
from zkconsumer.testing.history.events import partition_of

__all__ = ["TreeWatch"]

_PARTITION: Final = re.compile(r"[0-9]+(-[0-9]+)?")
_NOWHERE: Final[Place] = ("", -1)
"""The place of what happens to a registration."""


class _Holder(NamedTuple):
    session_id: int
    member: str


class TreeWatch:
    """Follows the nodes of one group.

    Args:
        group: whose.
        member_of: session id -> the name of the member, "" for none.
        place: (topic, partition) -> its name in the history.
        write: records an event: kind, member, place, offset, id.
        end_of: how a session that is closed ends: "expired", "closed" or "ended".
    """

    def __init__(
        self,
        group: str,
        member_of: Callable[[int], str],
        place: Callable[[str, int | str], Place],
        write: Callable[[str, str, Place, int, str], None],
        end_of: Callable[[int], str],
    ) -> None:
        root = znodes.group_path(group)
        self._owners = f"{root}/owners/"
        self._offsets = f"{root}/offsets/"
        self._ids = f"{root}/ids/"
        self._member_of = member_of
        self._place = place
        self._write = write
        self._end_of = end_of
        self._holders: dict[str, _Holder] = {}

    def observe(self, record: Record) -> None:
        """Process an entry of ZooKeeper's log."""
        for change in record.changes:
            path = change.path
            if change.kind in (ChangeKind.CLOSED, ChangeKind.OPENED):
                continue
            if path.startswith(self._owners):
                self._owner_written(change, record)
            elif path.startswith(self._offsets):
                self._offset_written(change, record)
            elif path.startswith(self._ids):
                self._registration_written(change, record)

    def wiped(self) -> None:
        """All nodes are gone."""
        holders, self._holders = self._holders, {}
        for path, holder in holders.items():
            if path.startswith(self._owners):
                self._gone(path, holder, OPERATOR)

    def holder(self, topic: str, partition: int | str) -> str:
        """The member whose session owns the owner node, "" without one or for an operator's."""
        holder = self._holders.get(f"{self._owners}{topic}/{partition}")
        return "" if holder is None else holder.member

    def _who(self, record: Record, holder: _Holder) -> str:
        if record.closes:
            return self._end_of(record.session_id)
        if record.session_id == holder.session_id:
            return "released"
        return self._member_of(record.session_id) or OPERATOR

    def _owner_written(self, change: Change, record: Record) -> None:
        path = change.path
        if path.count("/") != self._owners.count("/") + 1:
            return
        if change.kind is ChangeKind.CREATED:
            holder = self._holders[path] = _Holder(change.owner, self._member_of(change.owner) if change.owner else "")
            place = self._place_of(path, self._owners)
            if place is not None:
                self._write("claimed" if holder.member else "occupied", holder.member, place, -1, "")
            return
        known = self._holders.get(path)
        if known is None:
            return
        holder = known
        who = self._who(record, holder)
        if change.kind is ChangeKind.DELETED:
            del self._holders[path]
            self._gone(path, holder, who)
        self._check_touch(path, record, holder)

    def _gone(self, path: str, holder: _Holder, who: str) -> None:
        place = self._place_of(path, self._owners)
        if place is not None:
            self._write("owner_gone" if holder.member else "vacated", holder.member, place, -1, who)

    def _check_touch(self, path: str, record: Record, holder: _Holder) -> None:
        writer = self._member_of(record.session_id)
        if writer and not record.closes and record.session_id != holder.session_id:
            place = self._place_of(path, self._owners) or _NOWHERE
            self._write("touched", writer, place, _version(record, path), holder.member or OPERATOR)

    def _registration_written(self, change: Change, record: Record) -> None:
        if change.kind is ChangeKind.CREATED:
            holder = self._holders[change.path] = _Holder(
                change.owner, self._member_of(change.owner) if change.owner else ""
            )
            if holder.member:
                self._write("registered", holder.member, _NOWHERE, -1, "")
            return
        known = self._holders.get(change.path)
        if known is not None:
            self._check_touch(change.path, record, known)
            if change.kind is ChangeKind.DELETED:
                del self._holders[change.path]
                if known.member:
                    self._write("unregistered", known.member, _NOWHERE, -1, self._who(record, known))

    def _offset_written(self, change: Change, record: Record) -> None:
        place = self._place_of(change.path, self._offsets)
        if place is None:
            return
        try:
            offset = -1 if change.kind is ChangeKind.DELETED else znodes.parse_offset(change.path, change.data)
        except UnreadableNode:
            offset = -1
        writer = self._member_of(record.session_id)
        self._write("offset_node", writer, place, offset, "" if writer else OPERATOR)
        if writer:
            self._write("commit", writer, place, offset, "")

    def _place_of(self, path: str, root: str) -> Place | None:
        topic, _, partition = path[len(root) :].partition("/")
        return self._place(topic, partition_of(partition)) if _PARTITION.fullmatch(partition) else None


def _version(record: Record, path: str) -> int:
    """At which version a client asked to delete or set a node; -1 for any."""
    request = None if record.pending is None else record.pending.request
    operations = request.operations if isinstance(request, Multi) else (request,)
    return next((each.version for each in operations if isinstance(each, (SetData, Delete)) and each.path == path), -1)
