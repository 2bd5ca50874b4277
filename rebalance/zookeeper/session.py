"""Follows the ZooKeeper session of a member: registers under it, renews the lease, and ends it.

Each proof of the session is an `exists(registration)`: the stat in the answer names the session that owns the node, and
the lease counts from the moment the request was sent. If a server leaves this request unanswered for a third of the
session time-out, the connection is dropped for one to another server: our own requests keep the client from sending
pings, and so from noticing a silent server itself.

Source: docs/SEMANTICS.md, "The lease".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from rebalance.errors import AccessRefused, refusal_of
from rebalance.lease import Lease
from rebalance.loop import Timer
from rebalance.zookeeper import events as e
from rebalance.zookeeper.claims import Claims, Fence
from rebalance.zookeeper.port.pipeline import Pipeline
from rebalance.zookeeper.port.requests import Delete, Exists, Multi, Reply, SessionChange
from rebalance.zookeeper.registered_member import RegisteredMember
from rebalance.zookeeper.registration import Attempt, Registrar

__all__ = ["SessionFollower", "SessionKeeper"]

log = logging.getLogger(__name__)

_UNREGISTER_AGAIN_S = 0.5


class SessionFollower(Protocol):
    """Is notified of changes of the session, on the coordinator's thread."""

    def watches_forgotten(self) -> None: ...

    def session_opened(self, fence: Fence) -> None: ...

    def session_resumed(self) -> None: ...

    def session_over(self) -> None: ...

    def group_event(self, event: e.Event) -> None: ...


class SessionKeeper:
    """Follows the session of one member and keeps its lease.

    Args:
        member: whose session.
        pipeline: sends requests, before those that wait, and drops a silent connection.
        lease: written here.
        claims: its fence is set here.
        follower: is notified.
        wall_clock_ms: for the timestamp in the registration only.

    Threads: the coordinator's alone.
    """

    def __init__(
        self,
        member: RegisteredMember,
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
            self._follower.group_event(e.SessionExpired())
        else:
            self._follower.group_event(e.RegistrationRefused(AccessRefused.of_credentials(change.reason)))

    def _suspended(self) -> None:
        self._follower.watches_forgotten()
        self._follower.group_event(e.SessionSuspended())

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
            log.info("session 0x%x of %s: time-out %.1f s granted", change.session_id % 2**64, self.member.consumer_id,
                     change.timeout_s)
        self.session_id, self.timeout_s = change.session_id, change.timeout_s
        if change.session_id not in self._sessions:
            self._sessions.append(change.session_id)
        self._follower.watches_forgotten()
        self.lease.start(change.session_id, change.timeout_s)
        self._follower.group_event(e.SessionOpened(change.session_id))
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
        make valid what was asked under the previous registration.
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
                self._follower.group_event(e.Registered(session_id))
            elif outcome is None:
                self._follower.group_event(e.RegistrationUnknown())
            else:
                self._follower.group_event(e.RegistrationRefused(outcome))

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
        stays behind would keep its share of the partitions from all others. As with owner nodes, its owner is read
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
            self._follower.group_event(e.Unregistered())

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
            self._follower.group_event(e.RegistrationGone())
