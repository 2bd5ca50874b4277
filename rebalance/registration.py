"""The registration of this member: one ephemeral node whose version says which of its registrations it is.

Creating it is one multi: create, then set the same data `k` times, `k` = its number modulo 16. Every write of the
member begins with `check(registration, k)`, so a request that was queued under an older registration and is sent under
a newer one fails. The creation itself has nothing to check, and may land under a later session than the one that asked.
So each registration has a number of its own, the second one of a session, too: nothing is asked behind it before it
was seen to stand. Rule: another living session's node is waited for, a while, and never touched.

Source: docs/SEMANTICS.md, "Fencing".
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rebalance import znodes
from rebalance.claims import Ask, Fence, create_parents
from rebalance.errors import AccessRefused, ConsumerIdInUse, GroupRefused, NamespaceMissing, refusal_of
from rebalance.loop import Loop
from rebalance.requests import Create, Delete, Exists, Fault, Multi, Reply, SetData, WatchEvent

__all__ = ["REGISTRATIONS_MODULO", "Registrar"]

log = logging.getLogger(__name__)

REGISTRATIONS_MODULO = 16


class Registrar:
    """Registers one member, again for each session.

    Args:
        ask: sends requests.
        loop: for the watch on a node that is in the way.
        group, consumer_id: where.
        chroot: for the sentence about a missing one.

    Threads: the coordinator's alone.
    """

    def __init__(self, ask: Ask, loop: Loop, group: str, consumer_id: str, chroot: str = "") -> None:
        self._ask = ask
        self._loop = loop
        self._group = group
        self._path = znodes.registration_path(group, consumer_id)
        self._chroot = chroot
        self._run: _Run | None = None

    def register(
        self,
        session_id: int,
        number: int,
        old_sessions: frozenset[int],
        data: bytes,
        patience_s: float,
        done: Callable[[Fence | Exception | None, float], None],
        standing: int | None = None,
    ) -> None:
        """Make the registration stand under `session_id`, as the `number`-th of this member.

        One that this session has made before, and that still stands at the version `standing`, is good as it is.

        `done(fence, sent_at)` when it does (the fence was seen on a read sent at `sent_at`), `done(error, 0)` when it
        never can, `done(None, 0)` when the connection went away. A later call makes an earlier one fall silent.
        """
        if self._run is not None:
            self._run.silent = True
        version = number % REGISTRATIONS_MODULO
        self._run = _Run(self, session_id, version, old_sessions, data, patience_s, done, standing)
        self._ask(Exists("/"), self._run.namespace_seen)

    def abandon(self) -> None:
        """Fall silent: nobody waits for the registration any more."""
        if self._run is not None:
            self._run.silent = True


class _Run:
    """One call of `register`, from the first question to the answer."""

    def __init__(
        self,
        registrar: Registrar,
        session_id: int,
        version: int,
        old_sessions: frozenset[int],
        data: bytes,
        patience_s: float,
        done: Callable[[Fence | Exception | None, float], None],
        standing: int | None,
    ) -> None:
        self.silent = False
        self._ask = registrar._ask
        self._loop = registrar._loop
        self._group = registrar._group
        self._path = registrar._path
        self._chroot = registrar._chroot
        self._session_id = session_id
        self._version = version
        self._old_sessions = old_sessions
        self._data = data
        self._give_up_at = self._loop.clock() + patience_s
        self._done = done
        self._standing = standing
        # What stands at the right version may be the one before that somebody has written into.
        self._is_mine_at_version = standing is None
        self._holder = 0
        self._waiting = False

    def _tell(self, outcome: Fence | Exception | None, sent_at: float = 0.0) -> None:
        if not self.silent:
            self.silent = True
            self._done(outcome, sent_at)

    def _unknown(self, reply: Reply) -> bool:
        if reply.fault in (None, Fault.NODE_EXISTS, Fault.NO_NODE):
            return False
        if reply.fault in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED):
            self._tell(None)
        else:
            self._refused(reply.path or self._path, reply.fault, reply.reason)
        return True

    def _refused(self, path: str, fault: Fault, reason: str) -> None:
        if fault is Fault.NO_AUTH:
            self._tell(AccessRefused.of_node("create", path, reason))
        else:
            self._tell(GroupRefused(self._group, refusal_of("create", path, fault, reason)))

    def namespace_seen(self, reply: Reply) -> None:
        if self.silent or self._unknown(reply):
            return
        if reply.value is None:
            self._tell(NamespaceMissing(self._chroot or "/"))
            return
        self._create()

    def _create(self, clear_version: int | None = None) -> None:
        clear = () if clear_version is None else (Delete(self._path, clear_version),)
        sets = tuple(SetData(self._path, self._data) for _ in range(self._version))
        create = Create(self._path, self._data, ephemeral=True)
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
            self._look()
        else:
            self._refused(self._path, fault, reply.reason)

    def _parents_made(self, reply: Reply) -> None:
        if not self.silent and not self._unknown(reply):
            self._create()

    def _look(self) -> None:
        self._ask(Exists(self._path, self._node_changed), self._looked)

    def _looked(self, reply: Reply) -> None:
        if self.silent or self._unknown(reply):
            return
        stat = reply.value
        if stat is None:
            self._create()
        elif stat.ephemeral_owner == self._session_id and self._is_good(stat.version):
            self._tell(Fence(self._path, stat.version, self._session_id), reply.sent_at)
        elif stat.ephemeral_owner == self._session_id:
            # Mine, but its version names another registration: only a fresh node can be told from it.
            self._create(clear_version=stat.version)
        else:
            self._wait_for(stat.ephemeral_owner)

    def _is_good(self, version: int) -> bool:
        return version == self._standing or (version == self._version and self._is_mine_at_version)

    def _wait_for(self, holder: int) -> None:
        left_s = self._give_up_at - self._loop.clock()
        if left_s <= 0 and holder not in self._old_sessions:
            self._tell(ConsumerIdInUse(self._path, holder))
            return
        if holder != self._holder:
            mine = "an older session of this member" if holder in self._old_sessions else "another session"
            log.warning("%s is held by %s (0x%x); waiting until it ends", self._path, mine, holder % 2**64)
        self._holder = holder
        if not self._waiting:
            self._waiting = True
            self._loop.call_later(min(max(left_s, 0.05), 1.0), self._waited)

    def _waited(self) -> None:
        self._waiting = False
        if not self.silent:
            self._look()

    def _node_changed(self, _: WatchEvent) -> None:
        self._loop.post(self._changed)

    def _changed(self) -> None:
        if not self.silent and self._waiting:
            self._look()
