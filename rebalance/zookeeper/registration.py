"""Creates the registration of a member: an ephemeral node whose version identifies the registration.

One multi creates the node, then sets the same data `k` times; `k` is 1 plus the number of the registration modulo 16.
Every write of the member starts with `check(registration, k)`: a request that was queued under an older registration,
and is sent under a newer one, fails. The creation itself has nothing to check, and may be applied under a later session
than the one that asked for it. Therefore each registration has its own number, the second one of a session too, and no
write is fenced with a registration before it was read. A Java member writes its node once, so its version is 0; `k` is
never 0, and that distinguishes the two. Rule: a node of another living session is never touched; the member waits for
its end, for a limited time.

Source: docs/SEMANTICS.md, "Fencing".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rebalance.errors import AccessRefused, ConsumerIdInUse, GroupRefused, NamespaceMissing, refusal_of
from rebalance.loop import Loop
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Ask, Fence, create_parents
from rebalance.zookeeper.port.requests import Create, Delete, Exists, Fault, Multi, Reply, SetData, WatchEvent
from rebalance.zookeeper.registered_member import RegisteredMember

__all__ = ["REGISTRATIONS_MODULO", "Attempt", "Done", "Registrar"]

log = logging.getLogger(__name__)

REGISTRATIONS_MODULO = 16

Done = Callable[[Fence | Exception | None, float], None]
"""`done(fence, sent_at)` when the registration stands, seen by a read that was sent at `sent_at`; `done(error, 0)` when
it never can; `done(None, 0)` when the connection was lost."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to register.

    Attributes:
        session_id: the session that is to own the node.
        number: of this registration among those of the member.
        data: content of the node.
        patience_s: how long another session may keep the node before that is an error.
        old_sessions: earlier sessions of this member; the end of one is waited for without a limit.
        standing: version of a registration that this session made before; if it still stands it is good as it is.
    """

    session_id: int
    number: int
    data: bytes
    patience_s: float
    old_sessions: frozenset[int] = frozenset()
    standing: int | None = None

    @property
    def version(self) -> int:
        """The version that the node is to have, 1 to 16; 0 is that of a Java member."""
        return self.number % REGISTRATIONS_MODULO + 1


class Registrar:
    """Registers one member, again for each session.

    Args:
        ask: sends requests.
        loop: for the watch on a node of another session.
        member: who is registered.

    Threads: the coordinator's alone.
    """

    def __init__(self, ask: Ask, loop: Loop, member: RegisteredMember) -> None:
        self._ask = ask
        self._loop = loop
        self._member = member
        self._run: _Run | None = None

    def register(self, attempt: Attempt, done: Done) -> None:
        """Register; a later call makes an earlier one fall silent."""
        self.abandon()
        self._run = _Run(self._ask, self._loop, self._member, attempt, done)
        self._ask(Exists("/"), self._run.namespace_read)

    def abandon(self) -> None:
        """Report nothing of an attempt that is under way."""
        if self._run is not None:
            self._run.silent = True


class _Run:
    """One call of `register`, from the first request to the report."""

    def __init__(self, ask: Ask, loop: Loop, member: RegisteredMember, attempt: Attempt, done: Done) -> None:
        self.silent = False
        self._ask = ask
        self._loop = loop
        self._group = member.group
        self._path = znodes.registration_path(member.group, member.consumer_id)
        self._chroot = member.chroot
        self._attempt = attempt
        self._give_up_at = loop.clock() + attempt.patience_s
        self._done = done
        # The node at the right version may be the previous one, which somebody else has written.
        self._is_mine_at_version = attempt.standing is None
        self._holder = 0
        self._waiting = False

    def _report(self, outcome: Fence | Exception | None, sent_at: float = 0.0) -> None:
        if not self.silent:
            self.silent = True
            self._done(outcome, sent_at)

    def _unknown(self, reply: Reply) -> bool:
        if reply.fault in (None, Fault.NODE_EXISTS, Fault.NO_NODE):
            return False
        if reply.fault in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED):
            self._report(None)
        else:
            self._refused(reply.path or self._path, reply.fault, reply.reason)
        return True

    def _refused(self, path: str, fault: Fault, reason: str) -> None:
        if fault is Fault.NO_AUTH:
            self._report(AccessRefused.of_node("create", path, reason))
        else:
            self._report(GroupRefused(self._group, refusal_of("create", path, fault, reason)))

    def namespace_read(self, reply: Reply) -> None:
        if self.silent or self._unknown(reply):
            return
        if reply.value is None:
            self._report(NamespaceMissing(self._chroot or "/"))
            return
        self._create()

    def _create(self, clear_version: int | None = None) -> None:
        clear = () if clear_version is None else (Delete(self._path, clear_version),)
        data = self._attempt.data
        sets = tuple(SetData(self._path, data) for _ in range(self._attempt.version))
        create = Create(self._path, data, ephemeral=True)
        position = len(clear)
        self._ask(Multi((*clear, create, *sets)), lambda reply: self._created(reply, position))

    def _created(self, reply: Reply, position: int) -> None:
        if self.silent or self._unknown(reply):
            return
        results = reply.value or []
        fault = next((item for item in results if isinstance(item, Fault) and item is not Fault.ROLLED_BACK), None)
        if fault is Fault.NO_NODE and position == 0:
            group = znodes.group_path(self._group)
            parents = [znodes.CONSUMERS, group, znodes.ids_path(self._group), f"{group}/owners", f"{group}/offsets"]
            create_parents(self._ask, parents, self._parents_made)
        elif fault in (None, Fault.NODE_EXISTS, Fault.NO_NODE, Fault.BAD_VERSION):
            self._is_mine_at_version |= fault is None
            self._read()
        else:
            self._refused(self._path, fault, reply.reason)

    def _parents_made(self, reply: Reply) -> None:
        if not self.silent and not self._unknown(reply):
            self._create()

    def _read(self) -> None:
        self._ask(Exists(self._path, self._node_changed), self._answered)

    def _answered(self, reply: Reply) -> None:
        if self.silent or self._unknown(reply):
            return
        stat = reply.value
        if stat is None:
            self._create()
        elif stat.ephemeral_owner == self._attempt.session_id and self._is_good(stat.version):
            self._report(Fence(self._path, stat.version, self._attempt.session_id), reply.sent_at)
        elif stat.ephemeral_owner == self._attempt.session_id:
            # This session owns it, but its version is that of another registration: only a new node differs from it.
            self._create(clear_version=stat.version)
        else:
            self._wait_for(stat.ephemeral_owner)

    def _is_good(self, version: int) -> bool:
        return version == self._attempt.standing or (version == self._attempt.version and self._is_mine_at_version)

    def _wait_for(self, holder: int) -> None:
        left_s = self._give_up_at - self._loop.clock()
        is_old = holder in self._attempt.old_sessions
        if left_s <= 0 and not is_old:
            self._report(ConsumerIdInUse(self._path, holder))
            return
        if holder != self._holder:
            whose = "an older session of this member" if is_old else "another session"
            log.warning("%s is held by %s (0x%x); waiting until that session ends", self._path, whose, holder % 2**64)
        self._holder = holder
        if not self._waiting:
            self._waiting = True
            self._loop.call_later(min(max(left_s, 0.05), 1.0), self._waited)

    def _waited(self) -> None:
        self._waiting = False
        if not self.silent:
            self._read()

    def _node_changed(self, _: WatchEvent) -> None:
        self._loop.post(self._changed)

    def _changed(self) -> None:
        if not self.silent and self._waiting:
            self._read()
