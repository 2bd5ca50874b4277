"""The data of one ZooKeeper server: znodes, and the changes that one transaction makes to them.

`execute` is the leader's: it checks a request and either does all of it, at one zxid, or nothing. What it did comes
back as changes, which `replay` does again on the other servers, without a check, in the order of their zxids.

Source: PrepRequestProcessor and DataTree of ZooKeeper 3.4. Versions start at 0. `cversion` counts the children that
came and went. A delete moves the parent's `pzxid`, as a create does; a set moves `mzxid` alone. Of the rights there is
one, to read: a node that is closed can be read only by the session that owns it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from rebalance.zookeeper.port.requests import Check, Create, Delete, Fault, Multi, SetData, Stat

__all__ = ["Change", "ChangeKind", "Node", "Operation", "Outcome", "SetAccess", "Tree", "parent_of"]


@dataclass(frozen=True, slots=True)
class SetAccess:
    """Close a node, or open it again; only operators do. No watch reports it."""

    path: str
    is_closed: bool
    version: int = -1


Operation: TypeAlias = Create | SetData | Delete | Check | SetAccess


class ChangeKind(enum.Enum):
    """What happened to a node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CLOSED = "closed"
    OPENED = "opened"


class Change(NamedTuple):
    """One node that a transaction touched; the owner is that of an ephemeral node, else 0.

    A created node knows when that was, by the leader's clock.
    """

    kind: ChangeKind
    path: str
    data: bytes = b""
    owner: int = 0
    created_ms: int = 0


class Outcome(NamedTuple):
    """The reply to a write, and what it changed: nothing if it failed."""

    value: Any
    fault: Fault | None
    changes: tuple[Change, ...]


_SPECIAL: Final = ("/", "/zookeeper", "/zookeeper/quota")
"""Nodes that every server has and no client can delete."""


def parent_of(path: str) -> str:
    """The path of the node above; "/" is its own."""
    return path.rpartition("/")[0] or "/"


class Node:
    """One znode. Children are kept in the order of their creation; ZooKeeper promises none."""

    __slots__ = (
        "children", "created_ms", "cversion", "czxid", "data", "is_closed", "mzxid", "owner", "pzxid", "version",
    )  # fmt: skip

    def __init__(self, data: bytes, owner: int, zxid: int, created_ms: int = 0) -> None:
        self.data = data
        self.owner = owner
        self.is_closed = False
        self.version = self.cversion = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.created_ms = created_ms
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        """Its stat, as an answer has it."""
        return Stat(self.version, self.cversion, self.owner, self.czxid, self.pzxid, self.mzxid, self.created_ms)

    def hides_from(self, session_id: int) -> bool:
        """Whether a session may not read it."""
        return self.is_closed and (not self.owner or self.owner != session_id)

    def copy(self) -> Node:
        """An equal node that shares nothing that changes."""
        twin = Node(self.data, self.owner, self.czxid, self.created_ms)
        twin.is_closed = self.is_closed
        twin.version, twin.cversion = self.version, self.cversion
        twin.mzxid, twin.pzxid = self.mzxid, self.pzxid
        twin.children = dict(self.children)
        return twin


_Undo: TypeAlias = Callable[[], None]


class Tree:
    """All znodes as of one zxid.

    Attributes:
        nodes: by path; to be read only.
        zxid: of the last transaction that was applied.
    """

    __slots__ = ("_ephemerals", "nodes", "zxid")

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Node] = {path: Node(b"", 0, 0) for path in _SPECIAL}
        self._ephemerals: dict[int, dict[str, None]] = {}
        for path in _SPECIAL[1:]:
            parent = self.nodes[parent_of(path)]
            parent.children[path.rpartition("/")[2]] = None
            parent.cversion = -1  # these children were there from the start

    def ephemerals(self, owner: int) -> list[str]:
        """The paths of a session's ephemeral nodes, the oldest first."""
        return list(self._ephemerals.get(owner, ()))

    def copy(self) -> Tree:
        """An equal tree that shares nothing that changes."""
        twin = Tree()
        twin.zxid = self.zxid
        twin.nodes = {path: node.copy() for path, node in self.nodes.items()}
        twin._ephemerals = {owner: dict(paths) for owner, paths in self._ephemerals.items()}
        return twin

    # -- the leader's -----------------------------------------------------------------------------------------------

    def execute(self, request: Operation | Multi, session_id: int, zxid: int, now_ms: int = 0) -> Outcome:
        """Check the request of a session and carry it out at `zxid`, or return why not; a fault uses up a zxid, too."""
        self.zxid = zxid
        if isinstance(request, Multi):
            return self._execute_all(request.operations, session_id, zxid, now_ms)
        fault = self._refusal(request, session_id)
        if fault is not None:
            return Outcome(None, fault, ())
        value, change = self._do(request, session_id, zxid, now_ms)
        return Outcome(value, None, () if change is None else (change,))

    def _execute_all(self, operations: tuple[Operation, ...], session_id: int, zxid: int, now_ms: int) -> Outcome:
        values: list[Any] = []
        changes: list[Change] = []
        undos: list[_Undo] = []
        for operation in operations:
            fault = self._refusal(operation, session_id)
            if fault is not None:
                for undo in reversed(undos):
                    undo()
                failed: list[Fault] = [Fault.ROLLED_BACK] * len(operations)
                failed[len(values)] = fault
                return Outcome(failed, None, ())
            undos.append(self._undo(operation))
            value, change = self._do(operation, session_id, zxid, now_ms)
            values.append(value)
            if change is not None:
                changes.append(change)
        return Outcome(values, None, tuple(changes))

    def _refusal(self, operation: Operation, session_id: int) -> Fault | None:
        """Why it cannot be done now."""
        nodes = self.nodes
        path = operation.path
        node = nodes.get(path)
        if isinstance(operation, Create):
            if node is not None:
                return Fault.NODE_EXISTS
            parent = nodes.get(parent_of(path))
            if parent is None:
                return Fault.NO_NODE
            return Fault.NO_CHILDREN_FOR_EPHEMERALS if parent.owner else None
        if isinstance(operation, Delete) and path in _SPECIAL:
            return Fault.OTHER
        if node is None:
            return Fault.NO_NODE
        if isinstance(operation, Check) and node.hides_from(session_id):
            return Fault.NO_AUTH
        if operation.version not in (-1, node.version):
            return Fault.BAD_VERSION
        if isinstance(operation, Delete) and node.children:
            return Fault.NOT_EMPTY
        return None

    def _do(self, operation: Operation, session_id: int, zxid: int, now_ms: int) -> tuple[Any, Change | None]:
        path = operation.path
        if isinstance(operation, Create):
            owner = session_id if operation.ephemeral else 0
            self._create(path, operation.data, owner, zxid, now_ms)
            return path, Change(ChangeKind.CREATED, path, operation.data, owner, now_ms)
        if isinstance(operation, SetData):
            self._set(path, operation.data, zxid)
            return self.nodes[path].stat(), Change(ChangeKind.CHANGED, path, operation.data)
        if isinstance(operation, Delete):
            self._delete(path, zxid)
            return True, Change(ChangeKind.DELETED, path)
        if isinstance(operation, SetAccess):
            self.nodes[path].is_closed = operation.is_closed
            return True, Change(ChangeKind.CLOSED if operation.is_closed else ChangeKind.OPENED, path)
        return True, None

    def _undo(self, operation: Operation) -> _Undo:
        """What puts everything back that the operation is about to touch."""
        path = operation.path
        node = self.nodes.get(path)
        if isinstance(operation, SetData) and node is not None:
            kept = (node.data, node.version, node.mzxid)

            def unset() -> None:
                node.data, node.version, node.mzxid = kept

            return unset
        if isinstance(operation, SetAccess) and node is not None:
            was_closed = node.is_closed

            def unclose() -> None:
                node.is_closed = was_closed

            return unclose
        if isinstance(operation, Check):
            return lambda: None
        parent = self.nodes[parent_of(path)]
        counted = (parent.cversion, parent.pzxid)

        def put_back() -> None:
            if node is None:
                self._delete(path, 0)
            else:
                self._insert(path, node)
            parent.cversion, parent.pzxid = counted

        return put_back

    # -- every server's ---------------------------------------------------------------------------------------------

    def replay(self, changes: tuple[Change, ...], zxid: int) -> None:
        """Do what the leader did at `zxid`."""
        for kind, path, data, owner, created_ms in changes:
            if kind is ChangeKind.CREATED:
                self._create(path, data, owner, zxid, created_ms)
            elif kind is ChangeKind.CHANGED:
                self._set(path, data, zxid)
            elif kind is ChangeKind.DELETED:
                self._delete(path, zxid)
            else:
                self.nodes[path].is_closed = kind is ChangeKind.CLOSED
        self.zxid = zxid

    def _create(self, path: str, data: bytes, owner: int, zxid: int, created_ms: int) -> None:
        parent = self._insert(path, Node(data, owner, zxid, created_ms))
        parent.cversion += 1
        parent.pzxid = zxid

    def _insert(self, path: str, node: Node) -> Node:
        self.nodes[path] = node
        above, _, name = path.rpartition("/")
        parent = self.nodes[above or "/"]
        parent.children[name] = None
        if node.owner:
            self._ephemerals.setdefault(node.owner, {})[path] = None
        return parent

    def _set(self, path: str, data: bytes, zxid: int) -> None:
        node = self.nodes[path]
        node.data = data
        node.version += 1
        node.mzxid = zxid

    def _delete(self, path: str, zxid: int) -> None:
        owner = self.nodes.pop(path).owner
        above, _, name = path.rpartition("/")
        parent = self.nodes[above or "/"]
        del parent.children[name]
        parent.cversion += 1
        parent.pzxid = zxid
        if owner:
            paths = self._ephemerals[owner]
            del paths[path]
            if not paths:
                del self._ephemerals[owner]
