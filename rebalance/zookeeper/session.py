"""Follows the ZooKeeper session of a member: registers under it, renews the lease, and ends it.

Each proof of the session is an `exists(registration)`: the stat in the answer names the session that owns the node, and
the lease counts from the moment the request was sent. If a server leaves this request unanswered for a third of the
session time-out, the connection is dropped for one to another server: our own requests keep the client from sending
pings, and so from noticing a silent server itself.

Source: docs/SEMANTICS.md, "The lease".

Creates the registration of a member: an ephemeral node whose version identifies the registration.

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
from typing import Protocol

from rebalance.errors import AccessRefused, ConsumerIdInUse, GroupRefused, NamespaceMissing, refusal_of
from rebalance.lease import Lease
from rebalance.loop import Loop, Timer
from rebalance.zookeeper import events, znodes
from rebalance.zookeeper.claims import Ask, Claims, Fence, create_parents
from rebalance.zookeeper.port.pipeline import Pipeline
from rebalance.zookeeper.port.requests import (
    Create,
    Delete,
    Exists,
    Fault,
    Multi,
    Reply,
    SessionChange,
    SetData,
    WatchEvent,
)

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

    def __init__(self, ask: Ask, loop: Loop, member: events.RegisteredMember) -> None:
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

    def __init__(self, ask: Ask, loop: Loop, member: events.RegisteredMember, attempt: Attempt, done: Done) -> None:
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


_UNREGISTER_AGAIN_S = 0.5


class SessionFollower(Protocol):
    """Is notified of changes of the session, on the coordinator's thread."""

    def watches_forgotten(self) -> None: ...

    def session_opened(self, fence: Fence) -> None: ...

    def session_resumed(self) -> None: ...

    def session_over(self) -> None: ...

    def group_event(self, event: events.Event) -> None: ...


class SessionKeeper:
    """Follows the session of one member and keeps its lease.

    Args:
        member: whose session.
        pipeline: sends requests before the waiting ones, and drops a silent connection.
        lease: written here.
        claims: its fence is set here.
        follower: is notified.
        wall_clock_ms: for the timestamp in the registration only.

    Threads: the coordinator's alone.
    """

    def __init__(
        self,
        member: events.RegisteredMember,
        pipeline: Pipeline,
        lease: Lease,
        claims: Claims,
        follower: SessionFollower,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.member = member
        self.lease = lease
        self.session_id = 0
        self.timeout_s = 0.0
        self.connected = False
        self.refused: str | None = None
        self._pipeline = pipeline
        self._ask = pipeline.ask_first
        self._loop = pipeline.loop
        self._claims = claims
        self._follower = follower
        self._wall_clock_ms = wall_clock_ms
        self._registrar = Registrar(self._ask, self._loop, member)
        self._is_open = False
        self._sessions: list[int] = []
        self._number = -1  # of the last registration, modulo what fits into a version
        self._has_stood = False
        self._asked_at: float | None = None
        self._timer: Timer | None = None
        self._closed = False

    def changed(self, change: SessionChange) -> None:
        """Handle a change of the session."""
        if self._closed:
            return
        self._asked_at = None
        self.connected = change.what == "connected"
        if self._is_open and change.what in ("connected", "expired"):
            # Between two connections there was none, even if that was not reported.
            self._suspended()
        self._is_open = self.connected
        if change.what == "connected":
            self._open(change)
        elif change.what == "suspended":
            self._suspended()
        elif change.what == "expired":
            self._end()
            self._follower.group_event(events.SessionExpired())
        else:
            self._follower.group_event(events.RegistrationRefused(AccessRefused.of_credentials(change.reason)))

    def _suspended(self) -> None:
        self._follower.watches_forgotten()
        self._follower.group_event(events.SessionSuspended())

    def close(self) -> None:
        """Do nothing more; the port ends the session itself."""
        self._closed = True
        self._registrar.abandon()
        if self._timer is not None:
            self._timer.cancel()

    def _open(self, change: SessionChange) -> None:
        resumed = change.session_id == self.session_id and self._claims.fence is not None
        if change.session_id != self.session_id:
            if self.session_id:
                self._end()
            self._number, self._has_stood = self._number + 1, False
            log.info(
                "session 0x%x of %s: time-out %.1f s granted",
                change.session_id % 2**64,
                self.member.consumer_id,
                change.timeout_s,
            )
        self.session_id, self.timeout_s = change.session_id, change.timeout_s
        if change.session_id not in self._sessions:
            self._sessions.append(change.session_id)
        self._follower.watches_forgotten()
        self.lease.start(change.session_id, change.timeout_s)
        self._follower.group_event(events.SessionOpened(change.session_id))
        if resumed:
            self.prove()
            self._follower.session_resumed()

    def _end(self) -> None:
        self.lease.end()
        self._claims.fence = None
        self._registrar.abandon()
        self.session_id = 0
        self._follower.session_over()

    def register(self) -> None:
        """Make the registration stand under the present session.

        A second registration under the same session gets another number: its creation may be sent late, and must not
        make requests valid that were sent under the previous registration.
        """
        session_id, standing = self.session_id, self._claims.fence
        registration = self.member.subscription.to_registration(self._wall_clock_ms())

        def done(outcome: Fence | Exception | None, sent_at: float) -> None:
            if session_id != self.session_id or self._closed:
                return
            if isinstance(outcome, Fence):
                self._claims.fence = outcome
                self._number, self._has_stood = outcome.version - 1, True
                self.lease.start(session_id, self.timeout_s)
                self.lease.renew(outcome.session_id, sent_at)
                self._prove_later()
                self._follower.session_opened(outcome)
                self._follower.group_event(events.Registered(session_id))
            elif outcome is None:
                self._follower.group_event(events.RegistrationUnknown())
            else:
                self._follower.group_event(events.RegistrationRefused(outcome))

        self._registrar.register(
            Attempt(
                session_id=session_id,
                number=self._number + self._has_stood,
                data=self.member.generation.value.format_registration(registration),
                patience_s=self.registration_patience_s,
                old_sessions=frozenset(self._sessions) - {session_id},
                standing=None if standing is None else standing.version,
            ),
            done,
        )

    @property
    def registration_patience_s(self) -> float:
        """How long another session may keep the registration: that of a dead process ends earlier."""
        return max(self.timeout_s * 1.5, 5.0)

    def unregister(self) -> None:
        """Delete the registration while the session goes on: this member takes no part for a while.

        All writes that it fenced must be answered. It is tried again until the answer is known: a registration that
        is left over would keep its share of the partitions from all others. As with owner nodes, its owner is read
        first.
        """
        if self._claims.fence is not None:
            self._unregister(self._claims.fence)

    def _unregister(self, fence: Fence) -> None:
        if self._claims.fence is not fence:
            return

        def is_answer(reply: Reply) -> bool:
            if self._closed or self._claims.fence is not fence:
                return False
            if reply.fault is not None and reply.fault.is_unknown:
                self._loop.call_later(_UNREGISTER_AGAIN_S, self._unregister, fence)
                return False
            return True

        def owner_read(reply: Reply) -> None:
            if not is_answer(reply):
                return
            if reply.value is not None and reply.value.ephemeral_owner == fence.session_id:
                self._ask(Multi((fence.check(), Delete(fence.path, fence.version))), deleted)
            else:
                deleted(reply)

        def deleted(reply: Reply) -> None:
            if not is_answer(reply):
                return
            self._claims.fence = None
            self.lease.end()
            self._follower.session_over()
            self._follower.group_event(events.Unregistered())

        self._ask(Exists(fence.path), owner_read)

    def _prove_later(self, delay_s: float | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self.timeout_s / 4 if delay_s is None else delay_s, self.prove)

    def prove(self) -> None:
        """Read the own registration, unless a request for it is unanswered."""
        self._prove_later()
        self._check_answers()
        fence = self._claims.fence
        if fence is None or not self.connected or self._asked_at is not None:
            return
        asked_at = self._asked_at = self._loop.clock()
        self._loop.call_later(self.timeout_s / 3, self._check_silence, asked_at)
        self._ask(Exists(fence.path), lambda reply: self._proved(fence, asked_at, reply))

    def _note_refusal(self, fence: Fence, reply: Reply) -> None:
        """Log and keep that the member may not read its own registration any more: without it there is no lease."""
        was_refused, self.refused = self.refused, None
        if reply.fault is not None and reply.fault.is_refusal:
            refusal = refusal_of("read", fence.path, reply.fault, reply.reason)
            self.refused = f"nothing is delivered while this member cannot read its registration: {refusal}"
            if was_refused is None:
                log.warning("%s", self.refused)

    def _check_silence(self, asked_at: float) -> None:
        if self._asked_at == asked_at:
            self._drop_connection(asked_at, "ZooKeeper has not answered")

    def _check_answers(self) -> None:
        """Leave a server that is cut off from its leader: it answers reads and leaves writes unanswered."""
        since = self._pipeline.waiting_since()
        if since is not None and self._loop.clock() - since > self.timeout_s:
            self._drop_connection(since, "ZooKeeper has left a request unanswered")

    def _drop_connection(self, since: float, reason: str) -> None:
        if not self.connected or self._closed:
            return
        log.warning("%s for %.1f s; trying another server", reason, self._loop.clock() - since)
        self._asked_at = None
        self.connected = False
        self._pipeline.port.drop_connection()

    def _proved(self, fence: Fence, asked_at: float, reply: Reply) -> None:
        if self._asked_at == asked_at:
            self._asked_at = None
        if self._claims.fence is not fence or self._closed:
            return
        self._note_refusal(fence, reply)
        if reply.fault is not None:
            return
        stat = reply.value
        if stat is not None and stat.ephemeral_owner == fence.session_id and stat.version == fence.version:
            self.lease.renew(stat.ephemeral_owner, reply.sent_at)
            if self.lease.confirmed_at is not None:
                self._prove_later(max(0.0, self.lease.confirmed_at - self._loop.clock()))
        elif self.connected:
            # Without a connection the group is read as soon as ZooKeeper answers again, which shows the same.
            log.warning("the registration %s was deleted or belongs to another session; registering again", fence.path)
            self._follower.group_event(events.RegistrationGone())
