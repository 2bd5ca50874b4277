"""Writes and reads owner nodes: claims, reads, moves to another thread, releases.

Each write is in a multi that starts with a check of the registration: a write that was queued under an older session
fails. The writes of one step share a multi. Rule: a node that another session owns is never deleted or overwritten; an
owner node is read before it is deleted, and deleted at the version that was read.

Source: docs/SEMANTICS.md, "Fencing".
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rebalance import partition as steps
from rebalance.errors import refusal_of
from rebalance.subscription import Partition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import (
    Check,
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Reply,
    Request,
    SetData,
    Stat,
    Sync,
    WatchEvent,
)

log = logging.getLogger(__name__)

_RESULT_UNKNOWN: Final = steps.ResultUnknown()
UNREAD: Final = "(an owner node that ZooKeeper does not let this client read)"
"""Takes the place of the thread id of a node that may not be read, in the log and in the status."""
UNREAD_OWNER: Final = steps.OwnerRead(UNREAD, False, 0, 0)
"""The report about a node that may not be read at all, where that means that another session owns it."""

MOST_WRITES: Final = 100
"""Owner nodes in one multi: some 90 KB at most; ZooKeeper refuses requests above 1 MiB."""

Ask = Callable[[Request, Callable[[Reply], None]], None]
"""Sends a request; the handler runs on the coordinator's thread."""

Report = Callable[[steps.Event], None]

IsOwned = Callable[[Partition], bool | None]
"""Whether there is an owner node; `None` when that could not be read."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The condition of every write: this member's registration stands, at the version that identifies it."""

    path: str
    version: int
    session_id: int

    def check(self) -> Check:
        """The operation that fails unless the registration under which it was asked still stands."""
        return Check(self.path, self.version)


def create_parents(ask: Ask, paths: Iterable[str], done: Callable[[Reply], None]) -> None:
    """Create persistent nodes, parents first; nodes that exist already are fine.

    `done` gets the first failure with its path, or the last reply. All requests are sent at once: ZooKeeper executes
    those of one session in order.
    """
    wanted = list(paths)
    failed: dict[int, Reply] = {}
    unanswered = len(wanted)

    def created(number: int, reply: Reply) -> None:
        if reply.fault is Fault.NO_AUTH:
            # Also the answer for a node that exists: the rights on its parent are checked first.
            ask(Exists(wanted[number]), lambda found: settled(number, reply if found.value is None else found))
        else:
            settled(number, reply)

    def settled(number: int, reply: Reply) -> None:
        nonlocal unanswered
        unanswered -= 1
        if reply.fault not in (None, Fault.NODE_EXISTS):
            failed[number] = reply._replace(path=wanted[number])
        if not unanswered:
            done(failed[min(failed)] if failed else reply)

    for number, path in enumerate(wanted):
        ask(Create(path), lambda reply, number=number: created(number, reply))  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class _Write:
    """One write, the fence under which it was decided, and who gets its result."""

    fence: Fence
    operation: Create | SetData | Delete
    answered: Callable[[Fault | None], None]


class Claims:
    """The owner nodes of one group for one member.

    Args:
        ask: sends requests.
        group: whose `/owners`.
        later: runs a call at the end of the present step.

    Attributes:
        refused: path of an owner node -> why it may not be created, set or deleted, as a sentence.

    Threads: the coordinator's alone. `report` is called on it, once for each call.
    """

    def __init__(self, ask: Ask, group: str, later: Callable[[Callable[[], None]], None]) -> None:
        self._ask = ask
        self._group = group
        self._later = later
        self._waiting: list[_Write] = []
        self._unread = 0
        self._deletes: list[_Write] = []
        self.fence: Fence | None = None
        self.refused: dict[str, str] = {}

    def claim(self, partition: Partition, thread_id: str, report: Report) -> None:
        """Create the owner node: `Claimed`, `ClaimRefused`, `Fenced` or `ResultUnknown`."""

        def answered(fault: Fault | None) -> None:
            if fault is None:
                report(steps.Claimed(thread_id))
            elif fault is Fault.NODE_EXISTS:
                report(steps.ClaimRefused())
            else:
                report(steps.ResultUnknown() if fault.is_unknown else steps.Fenced())

        create = Create(znodes.owner_path(self._group, *partition), thread_id.encode(), ephemeral=True)
        self._write(self.fence, create, answered, report)

    def list_owned(self, topics: Iterable[str], done: Callable[[IsOwned], None]) -> None:
        """List the owner nodes of some topics; `done(is_owned)` when all are read.

        Without a watch: one on all partitions of a topic would notify each member of each claim of every other.
        """
        names: dict[str, frozenset[str] | None] = {}
        waiting = sorted(set(topics))
        unanswered = set(waiting)

        def listed(topic: str, reply: Reply) -> None:
            is_read = reply.fault in (None, Fault.NO_NODE)
            names[topic] = frozenset(reply.value[0] if reply.fault is None else ()) if is_read else None
            unanswered.discard(topic)
            if not unanswered:
                done(is_owned)

        def is_owned(partition: Partition) -> bool | None:
            found = names[partition[0]]
            return None if found is None else str(partition[1]) in found

        for topic in waiting:
            self._ask(GetChildren(znodes.owners_path(self._group, topic)), functools.partial(listed, topic))

    def inspect(
        self,
        partition: Partition,
        report: Report,
        watch: Callable[[WatchEvent], None] | None = None,
        sync: bool = False,
        unread: steps.Event = _RESULT_UNKNOWN,
    ) -> None:
        """Read the owner node: `OwnerRead`, `OwnerGone` or `ResultUnknown`.

        With `sync` the server catches up with its leader first: it may not have the write whose reply was lost.
        Of a node that may not be read, ZooKeeper up to 3.8 still reports the owner; `unread` is reported where it does
        not.
        """
        path = znodes.owner_path(self._group, *partition)
        fence = self.fence

        def found(thread_id: str, stat: Stat) -> None:
            mine = fence is not None and stat.ephemeral_owner == fence.session_id
            report(steps.OwnerRead(thread_id, mine, stat.version, stat.ephemeral_owner))

        def answered(reply: Reply) -> None:
            if reply.fault is Fault.NO_NODE:
                report(steps.OwnerGone())
            elif reply.fault is Fault.NO_AUTH:
                self._ask(Exists(path, watch), stat_read)
            elif reply.fault is not None:
                report(steps.ResultUnknown())
            else:
                data, stat = reply.value
                found(data.decode("utf-8", "replace"), stat)

        def stat_read(reply: Reply) -> None:
            if reply.fault is Fault.NO_AUTH:
                report(unread)
            elif reply.fault is not None:
                report(steps.ResultUnknown())
            elif reply.value is None:
                report(steps.OwnerGone())
            else:
                found(UNREAD, reply.value)

        if sync:
            # Replies of one session come in order, so the read sees the data of the sync.
            self._ask(Sync(path), lambda reply: None)
        self._ask(GetData(path, watch), answered)

    def move_to_thread(self, partition: Partition, thread_id: str, version: int, report: Report) -> None:
        """Set the data of the owner node: `MovedToThread`, `ReleaseRefused`, `Fenced` or `ResultUnknown`."""

        def answered(fault: Fault | None) -> None:
            report(steps.MovedToThread(thread_id, version + 1) if fault is None else _write_fault(fault))

        change = SetData(znodes.owner_path(self._group, *partition), thread_id.encode(), version)
        self._write(self.fence, change, answered, report)

    def release(self, partition: Partition, report: Report) -> None:
        """Delete the owner node if this session owns it: `Released`, `ReleaseRefused`, `Fenced` or `ResultUnknown`.

        Whatever its data: a node of this session that somebody else has written would block all others until the
        session ends.
        """
        fence = self.fence
        self._unread += 1

        def stat_read(event: steps.Event) -> None:
            self._unread -= 1
            match event:
                case steps.OwnerGone():
                    report(steps.Released())
                case steps.OwnerRead(_, True, version) if fence is not None:
                    delete = Delete(znodes.owner_path(self._group, *partition), version)
                    self._deletes.append(_Write(fence, delete, deleted))
                case steps.OwnerRead():
                    report(steps.ReleaseRefused())
                case _:
                    report(event)
            self._send_deletes()

        def deleted(fault: Fault | None) -> None:
            report(steps.Released() if fault in (None, Fault.NO_NODE) else _write_fault(fault))

        self.inspect(partition, stat_read)

    def _send_deletes(self) -> None:
        """Delete when all nodes that are released together are read: their answers come one by one."""
        if not self._unread or len(self._deletes) >= MOST_WRITES:
            deletes, self._deletes = self._deletes, []
            for write in deletes:
                self._send_later(write)

    # -- writes --------------------------------------------------------------------------------------------------------

    def _write(
        self,
        fence: Fence | None,
        operation: Create | SetData,
        answered: Callable[[Fault | None], None],
        report: Report,
    ) -> None:
        """Write together with the other writes of this step, each under the fence under which it was decided."""
        if fence is None:
            report(steps.Fenced())
        else:
            self._send_later(_Write(fence, operation, answered))

    def _send_later(self, write: _Write) -> None:
        if not self._waiting:
            self._later(self._send_waiting)
        self._waiting.append(write)

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, group in itertools.groupby(waiting, key=lambda write: write.fence):
            writes = list(group)
            for first in range(0, len(writes), MOST_WRITES):
                self._send(writes[first : first + MOST_WRITES], tries=3)

    def _send(self, writes: list[_Write], tries: int) -> None:
        """Send one multi, under the fence of the first try: a later registration must not write for an older one."""
        operations = (writes[0].fence.check(), *(write.operation for write in writes))
        self._ask(Multi(operations), lambda reply: self._answered(writes, tries, reply))

    def _answered(self, writes: list[_Write], tries: int, reply: Reply) -> None:
        faults = _faults(reply, len(writes))
        if not any(faults) or reply.fault is not None or faults[0] is _FENCED:
            for write, fault in zip(writes, faults, strict=True):
                self._report(write, fault)
        elif tries > 1 and any(
            fault is Fault.NO_NODE and isinstance(write.operation, Create)
            for write, fault in zip(writes, faults, strict=True)
        ):
            self._make_parents(writes, tries)
        elif len(writes) > 1:
            # Nothing was written, and ZooKeeper names only the first of several writes that fail.
            for write in writes:
                self._send([write], tries)
        else:
            self._report(writes[0], faults[0])

    def _report(self, write: _Write, fault: Fault | None, parent: str = "") -> None:
        """Report the result of a write, and log one that is not permitted: it would look like a lost registration.

        `parent` is the parent node that could not be created. An access list of a topic's node concerns all of its
        partitions, so the log names only the first.
        """
        path = write.operation.path
        if fault is None or fault not in _REFUSALS:
            self.refused.pop(path, None)
        elif path not in self.refused:
            above = f"{path.rpartition('/')[0]}/"
            is_logged = any(other.startswith(above) for other in self.refused)
            self.refused[path] = refusal_of(_ACTIONS[type(write.operation)], parent or path, fault)
            if not is_logged:
                log.warning("%s", self.refused[path])
        write.answered(fault)

    def _make_parents(self, writes: list[_Write], tries: int) -> None:
        def made(reply: Reply) -> None:
            if reply.fault in (None, Fault.NODE_EXISTS):
                self._send(writes, tries - 1)
            elif len(writes) > 1:
                for write in writes:
                    self._send([write], tries)
            else:
                self._report(writes[0], reply.fault, reply.path)

        root = znodes.group_path(self._group)
        topics = {write.operation.path.rsplit("/", 1)[0]: None for write in writes}
        create_parents(self._ask, [znodes.CONSUMERS, root, f"{root}/owners", *topics], made)


_FENCED = Fault.SESSION_EXPIRED
_REFUSALS = (Fault.NO_AUTH, Fault.NO_CHILDREN_FOR_EPHEMERALS, Fault.OTHER)
_ACTIONS: Final[Mapping[type, str]] = {Create: "create", SetData: "write", Delete: "delete"}


def _faults(reply: Reply, count: int) -> list[Fault | None]:
    """Why each write of a `[check, write...]` multi failed; a failed check counts as an expired session."""
    if reply.fault is not None:
        return [reply.fault] * count
    check, *results = reply.value
    if check in (Fault.NO_NODE, Fault.BAD_VERSION):
        return [_FENCED] * count
    return [result if isinstance(result, Fault) else None for result in results]


def _write_fault(fault: Fault) -> steps.Event:
    if fault.is_unknown:
        return steps.ResultUnknown()
    if fault in (Fault.NO_NODE, Fault.BAD_VERSION):
        return steps.ReleaseRefused()
    return steps.Fenced()
