"""One server of the simulated ZooKeeper: its connections, its watches, and its copy of the tree.

It answers reads from its own copy, which may lag behind the leader's, and hands writes and syncs to the leader. The
answers of one connection come in the order of its requests; a watch event comes before any answer that shows the
change. Watches belong to the connection and end with it.

Source: FinalRequestProcessor, CommitProcessor, WatchManager and ZooKeeperServer of ZooKeeper 3.4.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, GetData, Request
from tests.simulator.pipe import Latency, Pipe
from tests.simulator.schedule import Schedule
from tests.simulator.tree import Change, ChangeKind, Tree, parent_of
from tests.simulator.zookeeper_connection import (
    CloseSession,
    Connection,
    Link,
    Pending,
    Read,
    Record,
    WatchKind,
)

__all__ = ["Server"]

_Watches: TypeAlias = dict[str, dict[Connection, None]]


class Leadership(Protocol):
    """What a server needs of its ensemble."""

    def granted_s(self, asked_s: float) -> float: ...

    def heard_of(self, server: Server, session_id: int) -> None: ...

    def to_leader(self, server: Server, call: Callable[..., None], *arguments: Any) -> None: ...

    def open_session(self, server: Server, connection: Connection) -> None: ...

    def resume_session(self, server: Server, connection: Connection, session_id: int) -> None: ...

    def write(self, server: Server, pending: Pending) -> None: ...


class Server:
    """One server.

    Args:
        number: its number, from 0.
        ensemble: where the leader is found.
        schedule, rng: of the simulation.
        latency: of the pipes to and from the leader.

    Attributes:
        tree: its copy of the data; `tree.zxid` tells how far it is.
        is_up, is_frozen, is_isolated: what happened to its process and to its link to the other servers.
        is_following: whether it is part of the present leader's ensemble; true of the leader itself.
        is_serving: whether it takes clients.
        links: of all clients to it.
    """

    def __init__(
        self, number: int, ensemble: Leadership, schedule: Schedule, rng: random.Random, latency: Latency
    ) -> None:
        self.number = number
        self.tree = Tree()
        self.is_up = self.is_following = self.is_serving = True
        self.is_frozen = self.is_isolated = False
        self.links: dict[Link, None] = {}
        self.to_leader = Pipe(schedule, rng, latency)
        self.from_leader = Pipe(schedule, rng, latency)
        self._ensemble = ensemble
        self._connections: dict[Connection, None] = {}
        self._by_session: dict[int, Connection] = {}
        self._data_watches: _Watches = {}
        self._child_watches: _Watches = {}

    # -- requests of clients ----------------------------------------------------------------------------------------

    def connect(self, connection: Connection, session_id: int, last_zxid: int, asked_s: float) -> None:
        """A client asks for a session, a new one (0) or its old one."""
        if not self.is_serving or last_zxid > self.tree.zxid:
            # A client that has seen more than this server would go back in time here.
            connection.link.down.send(connection.client.hung_up, connection, self.is_up)
            return
        connection.open = True
        connection.timeout_s = self._ensemble.granted_s(asked_s)
        self._connections[connection] = None
        if session_id:
            self.let_go(session_id)
            self._ensemble.to_leader(self, self._ensemble.resume_session, self, connection, session_id)
        else:
            self._ensemble.to_leader(self, self._ensemble.open_session, self, connection)

    def receive(self, connection: Connection, request: Request | CloseSession) -> None:
        """A client asks for something."""
        if not connection.open:
            connection.client.lost_goodbye |= isinstance(request, CloseSession)
            return
        mishaps = connection.client.mishaps
        if mishaps.lose_request is not None and mishaps.loses_request(request):
            self.close(connection)
            return
        self._ensemble.heard_of(self, connection.session_id)
        if isinstance(request, (GetData, Exists, GetChildren)):
            if connection.queue:
                connection.queue.append(request)
            else:
                self._read(connection, request)
            return
        pending = Pending(connection, request)
        connection.queue.append(pending)
        self._ensemble.to_leader(self, self._ensemble.write, self, pending)

    def ping(self, connection: Connection) -> None:
        """A client sends a ping."""
        if connection.open:
            self._ensemble.heard_of(self, connection.session_id)
            connection.link.down.send(connection.client.ponged, connection)

    def hung_up(self, connection: Connection) -> None:
        """A client has closed its end; its session goes on."""
        self._forget(connection)

    def forget_link(self, link: Link) -> None:
        """A client process is gone for good."""
        self.links.pop(link, None)

    # -- from the leader --------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Apply the next entry of the log."""
        self.tree.replay(record.changes, record.zxid)
        self.applied(record)

    def applied(self, record: Record) -> None:
        """Notify clients of an entry that is in the tree: first those that watch, then the one that asked for it."""
        if record.changes:
            self._fire(record.changes)
        pending = record.pending
        if pending is not None and pending.connection.link.server is self:
            self._complete(pending, applied=bool(record.changes))
        if record.closes:
            self.let_go(record.session_id)
        opened = record.opened
        if opened is not None and opened.link.server is self and opened.open:
            self._accept(opened, record.session_id)

    def resumed(self, connection: Connection, session_id: int, is_alive: bool) -> None:
        """The leader's answer about the session that a client wants to resume."""
        if not connection.open:
            return
        if is_alive:
            self._accept(connection, session_id)
        else:
            connection.link.down.send(connection.client.accepted, connection, 0, 0.0)
            self.close(connection)

    def _accept(self, connection: Connection, session_id: int) -> None:
        connection.session_id = session_id
        self._by_session[session_id] = connection
        connection.link.down.send(connection.client.accepted, connection, session_id, connection.timeout_s)

    def synced(self, pending: Pending, path: str) -> None:
        """Everything that the leader had when it was asked has arrived."""
        pending.value = path
        self._complete(pending, applied=False)

    def _complete(self, pending: Pending, applied: bool) -> None:
        connection = pending.connection
        if not connection.open:
            return
        queue = connection.queue
        head = queue.popleft()
        assert head is pending, f"server {self.number} answers {pending.request} while {head} waits before it"
        if pending.is_moved or (applied and connection.client.mishaps.loses_reply(pending.request)):
            self.close(connection)
            return
        self._answer(connection, pending.value, pending.fault)
        while queue and not isinstance(waiting := queue[0], Pending):
            queue.popleft()
            self._read(connection, waiting)

    # -- reads and watches ------------------------------------------------------------------------------------------

    def _answer(self, connection: Connection, value: Any, fault: Fault | None) -> None:
        connection.link.down.send(connection.client.answered, connection, value, fault, self.tree.zxid)

    def _read(self, connection: Connection, request: Read) -> None:
        path = request.path
        node = self.tree.nodes.get(path)
        if isinstance(request, Exists):
            if request.watch is not None:
                self._arm(connection, path)
            self._answer(connection, None if node is None else node.stat(), None)
        elif node is None:
            self._answer(connection, None, Fault.NO_NODE)
        elif node.hides_from(connection.session_id):
            self._answer(connection, None, Fault.NO_AUTH)
        elif isinstance(request, GetData):
            if request.watch is not None:
                self._arm(connection, path)
            self._answer(connection, (node.data, node.stat()), None)
        else:
            if request.watch is not None:
                self._child_watches.setdefault(path, {})[connection] = None
                connection.child_watches.add(path)
            self._answer(connection, (list(node.children), node.stat()), None)

    def _arm(self, connection: Connection, path: str) -> None:
        self._data_watches.setdefault(path, {})[connection] = None
        connection.data_watches.add(path)

    def _fire(self, changes: tuple[Change, ...]) -> None:
        for kind, path, *_ in changes:
            if kind in (ChangeKind.CLOSED, ChangeKind.OPENED):
                continue
            data = self._data_watches.pop(path, None)
            if data is not None:
                self._notify(data, kind, path)
                for connection in data:
                    connection.data_watches.discard(path)
            if kind is ChangeKind.CHANGED:
                continue
            if kind is ChangeKind.DELETED:
                self._fire_children(path, kind, data)
            self._fire_children(parent_of(path), None, None)

    def _fire_children(self, path: str, kind: WatchKind, notified: dict[Connection, None] | None) -> None:
        watchers = self._child_watches.pop(path, None)
        if watchers is not None:
            for connection in watchers:
                connection.child_watches.discard(path)
            # A deletion is one event, whichever watches of a connection it fires.
            self._notify([each for each in watchers if notified is None or each not in notified], kind, path)

    def _notify(self, watchers: dict[Connection, None] | list[Connection], kind: WatchKind, path: str) -> None:
        for connection in watchers:
            delay_s = connection.client.mishaps.watch_delay_s(path)
            if delay_s:
                connection.link.down.delay(delay_s)
            connection.link.down.send(connection.client.watch_fired, connection, kind, path)

    # -- the end of connections -------------------------------------------------------------------------------------

    def close(self, connection: Connection) -> None:
        """Hang up on a client; what was sent before arrives before."""
        self._forget(connection)
        connection.link.down.send(connection.client.hung_up, connection, True)

    def let_go(self, session_id: int) -> None:
        """Hang up on the client of a session, if it is here."""
        connection = self._by_session.get(session_id)
        if connection is not None:
            self.close(connection)

    def drop_clients(self) -> None:
        """Hang up on all clients and take no more."""
        self.is_serving = False
        for connection in list(self._connections):
            self.close(connection)

    def _forget(self, connection: Connection) -> None:
        connection.open = False
        connection.queue.clear()
        self._connections.pop(connection, None)
        if self._by_session.get(connection.session_id) is connection:
            del self._by_session[connection.session_id]
        for watches, paths in (
            (self._data_watches, connection.data_watches),
            (self._child_watches, connection.child_watches),
        ):
            for path in paths:
                watchers = watches[path]
                del watchers[connection]
                if not watchers:
                    del watches[path]
            paths.clear()
