"""The servers of the simulated ZooKeeper together: one log, written by the leader, applied by each in its time.

Agreement itself is not simulated: with a majority within reach the leader's write is final at once, without one nothing
is written. `zookeeper_peers` decides which server leads, and which ones are within reach.

Source: PrepRequestProcessor, LearnerHandler and Leader of ZooKeeper 3.4.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rebalance.zookeeper.port.requests import Fault, Multi, Sync
from tests.simulator.pipe import Latency
from tests.simulator.schedule import Schedule
from tests.simulator.tree import Change, ChangeKind, Operation, Outcome, Tree
from tests.simulator.zookeeper_connection import CloseSession, Connection, Pending, Record
from tests.simulator.zookeeper_server import Server
from tests.simulator.zookeeper_sessions import Session, SessionTable

__all__ = ["Ensemble", "ZooKeeperSettings"]

_FIRST_SESSION: Final = 0x1000000


class ZooKeeperSettings(NamedTuple):
    """How the simulated ZooKeeper is set up.

    Attributes:
        tick_s: the unit of its times; sessions end at ticks.
        sync_limit: ticks after which a leader and a follower that receive nothing from each other part.
        min_session_s, max_session_s: limits of the session time-out; None for 2 and 20 ticks.
        client_latency: one way between a client and a server.
        peer_latency: one way between the leader and a follower: how far followers lag behind.
        election: how long it takes from the loss of a leader to the next one, and a lone server to start.
    """

    tick_s: float = 2.0
    sync_limit: int = 5
    min_session_s: float | None = None
    max_session_s: float | None = None
    client_latency: Latency = Latency(0.0002, 0.003)
    peer_latency: Latency = Latency(0.0002, 0.01)
    election: Latency = Latency(0.2, 1.0)

    def granted_s(self, asked_s: float) -> float:
        """The session time-out that a client gets that asks for `asked_s`."""
        low_s = 2 * self.tick_s if self.min_session_s is None else self.min_session_s
        high_s = 20 * self.tick_s if self.max_session_s is None else self.max_session_s
        return min(max(asked_s, low_s), high_s)


class Ensemble:
    """The servers, their log and their sessions.

    Attributes:
        servers: by number.
        leader: the server whose copy of the tree is the newest; None while there is none.
        sessions: the living ones.
        observers: called with each entry of the log as it is written, before any client sees it.
    """

    def __init__(self, schedule: Schedule, rng: random.Random, size: int, settings: ZooKeeperSettings) -> None:
        self.schedule = schedule
        self.rng = rng
        self.settings = settings
        self.observers: list[Callable[[Record], None]] = []
        self.servers = [Server(number, self, schedule, rng, settings.peer_latency) for number in range(size)]
        self.leader: Server | None = self.servers[0]
        self.sessions = SessionTable(schedule, settings.tick_s, self._session_expired)
        self.has_quorum = True
        self.newest_tree = self.servers[0].tree
        self._zxid = 0
        self._epoch = 0
        self._next_session = _FIRST_SESSION
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._overdue: list[Session] = []
        self._heard: list[dict[int, None]] = [{} for _ in self.servers]

    # -- servers speak to the leader --------------------------------------------------------------------------------

    def granted_s(self, asked_s: float) -> float:
        """The session time-out that a client gets that asks for `asked_s`."""
        return self.settings.granted_s(asked_s)

    def to_leader(self, server: Server, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call(*arguments)` run at the leader; a server without a leader does nothing."""
        if server is self.leader:
            call(*arguments)
        elif server.is_following:
            server.to_leader.send(call, *arguments)

    def _answer(self, server: Server, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call(*arguments)` run at a server, behind all that the leader has sent it so far."""
        if server is self.leader:
            call(*arguments)
        elif server.is_following:
            server.from_leader.send(call, *arguments)

    def heard_of(self, server: Server, session_id: int) -> None:
        """A client has sent something; a follower reports it to the leader twice a tick."""
        if server is self.leader:
            self.sessions.touch(session_id)
            return
        heard = self._heard[server.number]
        if not heard:
            half_tick_s = self.settings.tick_s / 2
            self.schedule.at((math.floor(self.schedule.now / half_tick_s) + 1) * half_tick_s, self._report, server)
        heard[session_id] = None

    def _report(self, server: Server) -> None:
        if server.is_frozen:
            self.schedule.after(self.settings.tick_s / 2, self._report, server)
            return
        heard = self._heard[server.number]
        self._heard[server.number] = {}
        self.to_leader(server, self._reported, heard)

    def _reported(self, heard: dict[int, None]) -> None:
        for session_id in heard:
            self.sessions.touch(session_id)

    # -- at the leader ----------------------------------------------------------------------------------------------

    def open_session(self, server: Server, connection: Connection) -> None:
        """A client without a session is at `server`."""
        if not self.has_quorum:
            self._backlog.append((self.open_session, (server, connection)))
            return
        session_id = self._next_session
        self._next_session += 1
        self.sessions.open(session_id, connection.timeout_s, server)
        self._write_down(session_id, opened=connection)

    def resume_session(self, server: Server, connection: Connection, session_id: int) -> None:
        """A client with a session is at `server` now."""
        session = self.sessions.get(session_id)
        if session is not None:
            session.owner = server
            session.timeout_s = connection.timeout_s
            self.sessions.touch(session_id)
        self._answer(server, server.resumed, connection, session_id, session is not None)

    def write(self, server: Server, pending: Pending) -> None:
        """A client's write, sync, or end of its session."""
        if not self.has_quorum:
            self._backlog.append((self.write, (server, pending)))
            return
        session_id = pending.connection.session_id
        session = self.sessions.get(session_id)
        request = pending.request
        if session is not None and session.owner is None:
            session.owner = server
        if session is None or session.owner is not server:
            self._refuse(pending, Fault.SESSION_EXPIRED if session is None else Fault.CONNECTION_LOSS)
        elif isinstance(request, Sync):
            self._answer(server, server.synced, pending, request.path)
        elif isinstance(request, CloseSession):
            self._close_session(session_id, pending)
        else:
            outcome = self._execute(request, session_id)
            pending.value, pending.fault = outcome.value, outcome.fault
            self._write_down(session_id, outcome.changes, pending=pending)

    def _refuse(self, pending: Pending, fault: Fault) -> None:
        """The session is over, or its client is at another server by now, which ends the connection here.

        In a multi it is the fault of the first operation, as with every operation that is refused.
        """
        if isinstance(pending.request, Multi) and pending.request.operations:
            pending.value = [fault, *[Fault.ROLLED_BACK] * (len(pending.request.operations) - 1)]
        else:
            pending.fault = fault
            pending.is_moved = fault is Fault.CONNECTION_LOSS
        self._write_down(pending.connection.session_id, pending=pending)

    def _close_session(self, session_id: int, pending: Pending | None = None) -> None:
        """End a session: all its ephemeral nodes go at one zxid, in any order."""
        tree = self._leaders_tree()
        paths = tree.ephemerals(session_id)
        if len(paths) > 1:
            self.rng.shuffle(paths)
        changes = tuple(Change(ChangeKind.DELETED, path) for path in paths)
        tree.replay(changes, self._zxid + 1)
        self.sessions.close(session_id)
        self._write_down(session_id, changes, closes=True, pending=pending)

    def _session_expired(self, session: Session) -> None:
        if self.can_write:
            self._close_session(session.session_id)
        else:
            self._overdue.append(session)

    # -- the log ----------------------------------------------------------------------------------------------------

    @property
    def can_write(self) -> bool:
        """Whether there is a leader with a majority that does its work."""
        return self.leader is not None and self.has_quorum and not self.leader.is_frozen

    def _leaders_tree(self) -> Tree:
        assert self.leader is not None, "the leader is asked while there is none"
        return self.leader.tree

    def _execute(self, request: Operation | Multi, session_id: int) -> Outcome:
        return self._leaders_tree().execute(request, session_id, self._zxid + 1, round(self.schedule.now * 1000))

    def _write_down(
        self,
        session_id: int,
        changes: tuple[Change, ...] = (),
        *,
        closes: bool = False,
        pending: Pending | None = None,
        opened: Connection | None = None,
    ) -> None:
        """Add an entry to the log, whose changes the leader's tree has already, and send it round."""
        self._zxid += 1
        record = Record(self._zxid, session_id, changes, closes=closes, pending=pending, opened=opened)
        leader = self.leader
        assert leader is not None
        leader.tree.zxid = self._zxid
        for observer in self.observers:
            observer(record)
        for server in self.servers:
            if server is not leader and server.is_following:
                server.from_leader.send(server.apply, record)
        leader.applied(record)

    def write_as_operator(self, request: Operation | Multi, session_id: int) -> Outcome | None:
        """Do a write at once, on behalf of a session or of none (0); None while nothing can be written."""
        if not self.can_write:
            return None
        outcome = self._execute(request, session_id)
        self._write_down(session_id, outcome.changes)
        return outcome

    def end_session(self, session_id: int) -> bool:
        """End a session from outside; False while nothing can be written, or when it is over.

        As a client with its password would: take the session over at any server, then close it.
        """
        if not self.can_write or self.sessions.get(session_id) is None:
            return False
        self.rng.choice([server for server in self.servers if server.is_following]).let_go(session_id)
        self._close_session(session_id)
        return True

    # -- a leader comes, goes, and resumes --------------------------------------------------------------------------

    def follow(self, leader: Server) -> None:
        """Go on under a leader that has the newest tree: every session gets its whole time-out anew."""
        self.leader = leader
        self.newest_tree = leader.tree
        if len(self.servers) > 1:
            self._epoch += 1
            self._zxid = max(self._zxid, self._epoch << 32)
        self.sessions.restart()

    def abandon(self) -> None:
        """There is no leader any more; what is not in the log is lost."""
        self.leader = None
        self._backlog.clear()

    def reset(self) -> None:
        """Lose all data and all sessions; not the number of the next session, which names none of the lost ones."""
        self._zxid = self._epoch = 0
        self.sessions.clear()
        self._overdue.clear()
        self.newest_tree = Tree()
        for server in self.servers:
            server.tree = Tree()

    def catch_up(self) -> None:
        """Do what waited for a majority, or for the leader to resume."""
        backlog, self._backlog = self._backlog, []
        for call, arguments in backlog:
            call(*arguments)
        overdue, self._overdue = self._overdue, []
        for session in overdue:
            # A session that is refreshed in this very moment may be faster, or not.
            self.schedule.after(self.settings.client_latency.draw(self.rng), self.sessions.check, session)
