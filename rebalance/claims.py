"""Owner nodes through the port: claim, look, hand to another thread, release.

Each write is a multi that begins with a check of the registration, so that what was queued under an older session
fails. Rule: never delete or overwrite what another session owns; an owner node is read before it is deleted, and
deleted at the version that was read.

Source: docs/SEMANTICS.md, "Fencing".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rebalance import partition as p
from rebalance import znodes
from rebalance.handover import Partition
from rebalance.requests import Check, Create, Delete, Fault, GetData, Multi, Reply, Request, SetData, Sync, WatchEvent

__all__ = ["Ask", "Claims", "Fence", "create_parents"]

Ask = Callable[[Request, Callable[[Reply], None]], None]
"""Sends a request; the handler runs on the coordinator's thread."""

Told = Callable[[p.Event], None]


@dataclass(frozen=True, slots=True)
class Fence:
    """What every write begins with: my registration stands, in the version that names my session."""

    path: str
    version: int
    session_id: int

    def check(self) -> Check:
        """The operation that fails when the session that asked is not the one that registered."""
        return Check(self.path, self.version)


def create_parents(ask: Ask, paths: Iterable[str], done: Callable[[Reply], None]) -> None:
    """Create persistent nodes in this order, those that are there already being fine; `done` gets the last reply."""
    pending = list(paths)

    def next_one(reply: Reply | None) -> None:
        failed = reply is not None and reply.fault not in (None, Fault.NODE_EXISTS)
        if reply is not None and (failed or not pending):
            done(reply)
            return
        ask(Create(pending.pop(0)), next_one)

    next_one(None)


class Claims:
    """The owner nodes of one group for one member.

    Args:
        ask: sends requests.
        group: whose `/owners`.

    Threads: the coordinator's alone. `told` is called on it, once for each call.
    """

    def __init__(self, ask: Ask, group: str) -> None:
        self._ask = ask
        self._group = group
        self.fence: Fence | None = None

    def claim(self, partition: Partition, thread_id: str, told: Told) -> None:
        """Create the owner node: `Claimed`, `ClaimRefused`, `Fenced` or `ResultUnknown`."""
        if self.fence is None:
            told(p.Fenced())
        else:
            self._claim(self.fence, partition, thread_id, told, tries=3)

    def _claim(self, fence: Fence, partition: Partition, thread_id: str, told: Told, tries: int) -> None:
        """One try. The fence is that of the first: a session that came meanwhile must not claim for an older one."""
        path = znodes.owner_path(self._group, *partition)
        operations = (fence.check(), Create(path, thread_id.encode(), ephemeral=True))

        def answered(reply: Reply) -> None:
            fault = _second_fault(reply)
            if fault is None:
                told(p.Claimed(thread_id))
            elif fault is Fault.NODE_EXISTS:
                told(p.ClaimRefused())
            elif fault is Fault.NO_NODE and tries > 1:
                create_parents(self._ask, self._parents(partition[0]), again)
            else:
                told(p.ResultUnknown() if fault.is_unknown else p.Fenced())

        def again(reply: Reply) -> None:
            if reply.fault not in (None, Fault.NODE_EXISTS):
                told(p.ResultUnknown() if reply.fault.is_unknown else p.Fenced())
                return
            self._claim(fence, partition, thread_id, told, tries - 1)

        self._ask(Multi(operations), answered)

    def _parents(self, topic: str) -> list[str]:
        return [
            znodes.CONSUMERS,
            znodes.group_path(self._group),
            znodes.group_path(self._group) + "/owners",
            znodes.owners_path(self._group, topic),
        ]

    def inspect(
        self, partition: Partition, told: Told, watch: Callable[[WatchEvent], None] | None = None, sync: bool = False
    ) -> None:
        """Read the owner node: `OwnerRead`, `OwnerGone` or `ResultUnknown`.

        With `sync` the server catches up with its leader first: the write whose reply was lost may be ahead of it.
        """
        path = znodes.owner_path(self._group, *partition)
        fence = self.fence

        def answered(reply: Reply) -> None:
            if reply.fault is Fault.NO_NODE:
                told(p.OwnerGone())
            elif reply.fault is not None:
                told(p.ResultUnknown())
            else:
                data, stat = reply.value
                mine = fence is not None and stat.ephemeral_owner == fence.session_id
                told(p.OwnerRead(data.decode("utf-8", "replace"), mine, stat.version, stat.ephemeral_owner))

        if sync:
            # Replies of one session come in order, so the read sees what the sync waited for.
            self._ask(Sync(path), lambda reply: None)
        self._ask(GetData(path, watch), answered)

    def rethread(self, partition: Partition, thread_id: str, version: int, told: Told) -> None:
        """Set the data of my owner node: `Rethreaded`, `ReleaseRefused`, `Fenced` or `ResultUnknown`."""
        path = znodes.owner_path(self._group, *partition)

        def answered(reply: Reply) -> None:
            fault = _second_fault(reply)
            if fault is None:
                told(p.Rethreaded(thread_id, version + 1))
            else:
                told(_write_fault(fault))

        self._write(self.fence, SetData(path, thread_id.encode(), version), answered, told)

    def release(self, partition: Partition, told: Told) -> None:
        """Delete the owner node if this session owns it: `Released`, `ReleaseRefused`, `Fenced` or `ResultUnknown`.

        Whatever it holds: a node of this session that somebody wrote into would block everybody until it ends.
        """
        fence = self.fence
        path = znodes.owner_path(self._group, *partition)

        def looked(event: p.Event) -> None:
            match event:
                case p.OwnerGone():
                    told(p.Released())
                case p.OwnerRead(_, True, version):
                    self._write(fence, Delete(path, version), deleted, told)
                case p.OwnerRead():
                    told(p.ReleaseRefused())
                case _:
                    told(event)

        def deleted(reply: Reply) -> None:
            fault = _second_fault(reply)
            told(p.Released() if fault in (None, Fault.NO_NODE) else _write_fault(fault))

        self.inspect(partition, looked)

    def _write(
        self, fence: Fence | None, operation: SetData | Delete, answered: Callable[[Reply], None], told: Told
    ) -> None:
        if fence is None:
            told(p.Fenced())
            return
        self._ask(Multi((fence.check(), operation)), answered)


_FENCED = Fault.SESSION_EXPIRED


def _second_fault(reply: Reply) -> Fault | None:
    """Why a `[check, write]` multi failed; a failed check counts as an expired session."""
    if reply.fault is not None:
        return reply.fault
    check, write = reply.value
    if check in (Fault.NO_NODE, Fault.BAD_VERSION):
        return _FENCED
    return write if isinstance(write, Fault) else None


def _write_fault(fault: Fault) -> p.Event:
    if fault.is_unknown:
        return p.ResultUnknown()
    if fault in (Fault.NO_NODE, Fault.BAD_VERSION):
        return p.ReleaseRefused()
    return p.Fenced()
