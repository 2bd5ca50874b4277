"""The ZooKeeper port of one simulated process: behaves as `rebalance.zookeeper.port.kazoo_port` on kazoo does.

What kazoo does, and this does likewise:

- What is outstanding when a connection is lost is answered `CONNECTION_LOSS`, whether it was applied or not. What is
  asked after that waits and goes out over the next connection, also when that has another session by then. What waits
  when the old session turns out to be over is answered `SESSION_EXPIRED`, and so is what is asked in that moment.
- The reply to a create or a sync takes one more turn through the callback thread's queue than others, so what comes
  right behind it may overtake it; a create inside a multi does not.
- All watches are forgotten when a connection is lost. Of equal watches on one path only one is kept.
- Servers are tried in a random order, a server that is behind what was seen refuses, and after every round there is a
  pause that grows. Only answers count as seen, events do not.
- A ping is sent after a third of the session time-out without a request; a second third of silence ends the connection.
  Requests keep pings away, so a process that asks often does not notice a server that fell silent.

Source: kazoo 2.11 (client.py, protocol/connection.py, retry.py), rebalance/zookeeper/port/kazoo_port.py.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from rebalance.zookeeper.port.requests import (
    Fault,
    GetChildren,
    Multi,
    Read,
    Reply,
    Request,
    SessionChange,
    Watch,
    WatchEvent,
    read_singly,
)
from tests.simulator.port_callbacks import Callbacks
from tests.simulator.port_settings import PortSettings
from tests.simulator.process import Process
from tests.simulator.schedule import Event
from tests.simulator.tree import ChangeKind
from tests.simulator.zookeeper_connection import (
    CLOSE,
    CloseSession,
    Connection,
    Link,
    LinkedServer,
    Mishaps,
    WatchKind,
)

__all__ = ["PortSettings", "SimulatedPort"]

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class _State(enum.Enum):
    CLOSED = "closed"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    EXPIRED = "expired"


_Asked: TypeAlias = tuple[Request | CloseSession | None, Callable[[Reply], None] | None, float]
"""A request (None: drop the connection here), its callback, and when it was passed in."""

_Watches: TypeAlias = dict[str, dict[Watch, None]]


class SimulatedPort:
    """The port of one process.

    Args:
        process: whose; it is paused and killed with it.
        links: to the servers it knows.
        rng: of the simulation.
        settings: see there.

    Attributes:
        session_id: of the present session, 0 without one: as the client library knows it, ahead of its callbacks.
        mishaps: what is to go wrong once.
        lost_goodbye: whether the connection was lost before the server read the end of the session, which is sent once.
    """

    def __init__(self, process: Process, links: Sequence[Link], rng: random.Random, settings: PortSettings) -> None:
        self.session_id = 0
        self.links = tuple(links)
        self.mishaps = Mishaps()
        self.lost_goodbye = False
        self._process = process
        self._schedule = process.schedule
        self._rng = rng
        self._settings = settings
        self._state = _State.CLOSED
        self._on_session: Callable[[SessionChange], None] = lambda change: None
        self._is_closing = False
        self._waits_to_close = False
        self._connection: Connection | None = None
        self._round: list[Link] = []
        self._pause_s = _FIRST_PAUSE_S
        self._timer: Event | None = None
        self._granted_s = settings.session_timeout_s
        self._last_zxid = 0
        self._refused_since_s: float | None = None
        self._known: set[LinkedServer] = set()
        self._changes = 0
        self._queue: deque[_Asked] = deque()
        self._pending: deque[_Asked] = deque()
        self._data_watches: _Watches = {}
        self._child_watches: _Watches = {}
        self._callbacks = Callbacks(process, rng, settings.extra_turn, settings.behind)
        self._last_send_s = 0.0
        self._ping_is_out = False
        process.attach(self)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection with a session, whether reported or not."""
        return self._state is _State.CONNECTED

    @property
    def server(self) -> int | None:
        """The number of the server it is connected to, None without a connection."""
        return self._connection.link.server.number if self._connection is not None and self.is_connected else None

    # -- what the coordination calls --------------------------------------------------------------------------------

    def start(self, on_session: Callable[[SessionChange], None]) -> None:
        """Start to connect; `on_session` receives every change from now on."""
        self._on_session = on_session
        if self._state is _State.CLOSED and not self._is_closing:
            self._state = _State.CONNECTING
            self._process.after(0.0, self._begin_round)

    def send(self, request: Request, done: Callable[[Reply], None]) -> None:
        """Send a request; `done` is called once with the reply, never before this returns.

        Raises:
            ValueError: a path of it is not one of ZooKeeper's.
            RuntimeError: the process is paused or gone, so it cannot ask.
        """
        process = self._process
        if process.is_paused or process.is_gone:
            raise RuntimeError(f"{process.name} is {'gone' if process.is_gone else 'paused'} and asks for {request}")
        for part in request.operations if isinstance(request, Multi) else (request,):
            _check_path(part.path)
        sent_at = process.clock()
        if self._state is _State.CONNECTED:
            self._transmit((request, done, sent_at))
        elif self._state is _State.CONNECTING:
            self._queue.append((request, done, sent_at))
        else:
            fault = Fault.SESSION_EXPIRED if self._state is _State.EXPIRED else Fault.CONNECTION_LOSS
            process.after(0.0, self._callbacks.call, done, Reply(None, fault, sent_at, fault.value))

    def read(self, requests: Sequence[Read], done: Callable[[list[Reply]], None]) -> None:
        """Send reads without watches; the server answers each on its own, as a real one does."""
        read_singly(self, requests, done)

    def drop_connection(self) -> None:
        """Give up the present connection, behind what was sent; without one, the next as soon as there is one."""
        if self._state is _State.CONNECTED:
            self._process.after(0.0, self._drop, self._connection)
        elif self._state is _State.CONNECTING:
            self._queue.append((None, None, 0.0))

    def close(self, timeout_s: float) -> None:
        """End the session; session changes and watches are reported no more, pending requests are still answered.

        It is only started: virtual time does not pass in a call, so nothing can be waited for. Without a connection the
        next one is waited for, as long as the session may last.
        """
        if self._is_closing:
            return
        self._is_closing = True
        if self._state is _State.CONNECTED:
            self._transmit((CLOSE, None, 0.0))
        elif self._state is _State.CONNECTING and self.session_id:
            self._waits_to_close = True
            self._queue.append((CLOSE, None, 0.0))
            self._process.after(self._granted_s, self._close_no_more)
        elif self._connection is not None:
            self._queue.append((CLOSE, None, 0.0))
        else:
            self._end()

    def _close_no_more(self) -> None:
        if self._waits_to_close:
            self._waits_to_close = False
            self._hang_up()
            self._end()

    # -- the process ------------------------------------------------------------------------------------------------

    def paused(self) -> None:
        """What arrives waits in the socket."""
        for link in self.links:
            link.down.hold()

    def resumed(self) -> None:
        """What waited comes in its order; a session change that follows from it may overtake it."""
        for link in self.links:
            link.down.release()
        if self._settings.overtaking and self._rng.random() < self._settings.overtaking:
            self._callbacks.fall_behind()

    def killed(self) -> None:
        """The machine closes the sockets."""
        self._is_closing = True
        self._waits_to_close = False
        self._hang_up()
        self._end()

    def _end(self) -> None:
        self._state = _State.CLOSED
        self._fail_all(Fault.CONNECTION_LOSS)
        for link in self.links:
            link.up.send(link.server.forget_link, link)

    # -- session changes ----------------------------------------------------------------------------------------------

    def _notify(self, change: SessionChange) -> None:
        if not self._is_closing:
            self._on_session(change)

    def _tell_connected(self, changes: int, change: SessionChange) -> None:
        # Not after a later change: "connected" would then be the last report of a lost connection.
        if self._changes == changes:
            self._notify(change)

    # -- connecting -------------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        self._round = list(self.links)
        self._rng.shuffle(self._round)
        self._try_next()

    def _try_next(self) -> None:
        if self._is_closing and not self._waits_to_close:
            self._end()
        elif self._state is _State.CLOSED:
            return
        elif self._round:
            self._try(self._round.pop())
        else:
            pause_s = self._pause_s * self._rng.uniform(0.6, 1.4)
            self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S, self._settings.session_timeout_s / 10)
            self._process.after(pause_s, self._begin_round)

    def _try(self, link: Link) -> None:
        self._state = _State.CONNECTING
        connection = self._connection = Connection(self, link)
        if link.is_cut:
            self._timer = self._process.after(link.up.latency.draw(self._rng), self._failed, connection)
            return
        asked_s = self._settings.session_timeout_s
        # The connection itself may take the whole time-out, the server's answer over it a share of it.
        is_stalled = link.stalled_up or link.stalled_down
        patience_s = asked_s if is_stalled else asked_s / len(self.links)
        self._timer = self._process.after(patience_s, self._failed, connection)
        link.up.send(link.server.connect, connection, self.session_id, self._last_zxid, asked_s)

    def _failed(self, connection: Connection) -> None:
        if connection is self._connection and self._state is _State.CONNECTING:
            self._hang_up()
            self._try_next()

    def accepted(self, connection: Connection, session_id: int, timeout_s: float) -> None:
        """A server took the connection; a time-out of 0 means that the session is over."""
        if connection is not self._connection:
            return
        self._schedule.cancel(self._timer)
        self._waits_to_close = False
        self._refused_since_s = None
        self._pause_s = _FIRST_PAUSE_S
        if timeout_s <= 0:
            self._expired()
            return
        self.session_id, self._granted_s = session_id, timeout_s
        self._state = _State.CONNECTED
        self._changes += 1
        change = SessionChange("connected", session_id, timeout_s)
        server = connection.link.server
        if server in self._known:
            self._notify(change)
        else:
            self._known.add(server)
            wait_s = self._settings.version_answer.draw(self._rng)
            self._process.after(wait_s, self._tell_connected, self._changes, change)
        self._ping_is_out = False
        self._last_send_s = self._schedule.now
        self._listen_for_silence()
        while self._queue and self._state is _State.CONNECTED:
            asked = self._queue.popleft()
            if asked[0] is None:
                self._drop(connection)
            else:
                self._transmit(asked)

    def hung_up(self, connection: Connection, listening: bool) -> None:
        """The server has closed the connection, or refused it: by its process (`listening`), or without one."""
        if connection is not self._connection:
            return
        if self._state is _State.CONNECTED:
            self._drop(connection)
            return
        if listening:
            self._resumption_refused()
        self._failed(connection)

    def cut_off(self, link: Link) -> None:
        """The network has broken the connections of a link; each side notices when it looks."""
        connection = self._connection
        if connection is not None and connection.link is link:
            link.up.send(link.server.hung_up, connection)
            link.down.send(self.hung_up, connection, False)

    def _resumption_refused(self) -> None:
        """Servers that lost their data refuse clients that have seen more: forget after a while what was seen."""
        now = self._process.clock()
        if self._refused_since_s is None:
            self._refused_since_s = now
        elif now - self._refused_since_s > 2 * self._granted_s:
            self._last_zxid = 0

    # -- losing -----------------------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        self._schedule.cancel(self._timer)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.link.up.send(connection.link.server.hung_up, connection)

    def _drop(self, connection: Connection | None) -> None:
        if connection is not self._connection or self._state is not _State.CONNECTED:
            return
        self._hang_up()
        self.lost_goodbye |= self._is_closing
        self._state = _State.CONNECTING
        self._changes += 1
        if self._settings.overtaking and self._rng.random() < self._settings.overtaking:
            self._callbacks.fall_behind()
        self._fail_all(Fault.CONNECTION_LOSS)
        self._notify(SessionChange("suspended"))
        self._forget_watches()
        self._try_next()

    def _expired(self) -> None:
        self._hang_up()
        self._state = _State.EXPIRED
        self._changes += 1
        self.session_id = self._last_zxid = 0
        self._notify(SessionChange("expired"))
        self._fail_all(Fault.SESSION_EXPIRED)
        self._forget_watches()
        self._try_next()

    def fall_behind(self, for_s: float) -> None:
        """Pass on answers and watch events later, but session changes at once."""
        if self._settings.overtaking:
            self._callbacks.fall_behind(for_s)

    def refuse(self, reason: str) -> None:
        """Credentials no longer count: the connection is given up, and none is made any more."""
        if self._is_closing or self._state not in (_State.CONNECTING, _State.CONNECTED):
            return
        self._hang_up()
        self._state = _State.CLOSED
        self._changes += 1
        self._notify(SessionChange("refused", reason=reason))
        self._fail_all(Fault.NO_AUTH)
        self._forget_watches()

    def _fail_all(self, fault: Fault) -> None:
        failed = [*self._pending, *self._queue]
        self._pending.clear()
        self._queue.clear()
        for request, done, sent_at in failed:
            if done is not None:
                self._callbacks.reply(request, done, Reply(None, fault, sent_at, fault.value))

    def _forget_watches(self) -> None:
        self._data_watches.clear()
        self._child_watches.clear()

    # -- over a connection ------------------------------------------------------------------------------------------

    def _transmit(self, asked: _Asked) -> None:
        connection = self._connection
        assert connection is not None
        self._pending.append(asked)
        self._last_send_s = self._schedule.now
        link = connection.link
        link.up.send(link.server.receive, connection, asked[0])

    def answered(self, connection: Connection, value: Any, fault: Fault | None, zxid: int) -> None:
        """The server's answer to the oldest request."""
        if connection is not self._connection:
            return
        request, done, sent_at = self._pending.popleft()
        self._last_zxid = zxid
        if done is None:
            self._hang_up()
            self._end()
            return
        moved_s = self.mishaps.moves_s(request)
        if moved_s is not None:
            value, fault = None, Fault.CONNECTION_LOSS
            self._process.after(moved_s, self._drop, connection)
        watch = getattr(request, "watch", None)
        if watch is not None and fault is None and not self._is_closing:
            watches = self._child_watches if isinstance(request, GetChildren) else self._data_watches
            watches.setdefault(request.path, {})[watch] = None  # type: ignore[union-attr]
        if isinstance(request, Multi) and value and value[0] in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED):
            # The server refuses the session, not the multi: it is at another server by now, or over.
            value, fault = None, value[0]
            if fault is Fault.CONNECTION_LOSS:
                self.drop_connection()
        self._callbacks.reply(request, done, Reply(value, fault, sent_at, _reason(value, fault)))

    def watch_fired(self, connection: Connection, kind: WatchKind, path: str) -> None:
        """A node (or with None its children) changed that this connection watched."""
        if connection is not self._connection or self._is_closing:
            return
        fired: list[Watch] = []
        if kind is not None:
            fired += self._data_watches.pop(path, ())
        if kind is None or kind is ChangeKind.DELETED:
            fired += self._child_watches.pop(path, ())
        if len(fired) > 1:
            self._rng.shuffle(fired)
        for watch in fired:
            self._callbacks.call(watch, WatchEvent(path))

    # -- pings ------------------------------------------------------------------------------------------------------

    def _listen_for_silence(self) -> None:
        """Come back when a ping is due, as far as is known by now."""
        jitter_s = self._rng.uniform(0.01, 0.4)
        due_s = max(self._last_send_s + self._granted_s / 3 - jitter_s, self._schedule.now + jitter_s)
        self._timer = self._process.after(due_s - self._schedule.now, self._quiet, self._connection)

    def _quiet(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        now = self._schedule.now
        if now < self._process.resumed_at_s + connection.link.down.latency.high_s:
            # What waited in the socket is read first.
            self._timer = self._process.after(connection.link.down.latency.high_s, self._quiet, connection)
        elif now - self._last_send_s < self._granted_s / 3 - 0.4:
            self._listen_for_silence()
        elif self._ping_is_out:
            self._drop(connection)
        else:
            self._ping_is_out = True
            self._last_send_s = now
            connection.link.up.send(connection.link.server.ping, connection)
            self._listen_for_silence()

    def ponged(self, connection: Connection) -> None:
        """The server has answered a ping."""
        if connection is self._connection:
            self._ping_is_out = False


def _check_path(path: str) -> None:
    if not path.startswith("/") or "//" in path or (path.endswith("/") and path != "/"):
        raise ValueError(f"{path!r} is no path of ZooKeeper's: they begin with /, and no name in them is empty")


def _reason(value: Any, fault: Fault | None) -> str:
    if fault is not None:
        return fault.value
    if type(value) is list and Fault in map(type, value):
        return "; ".join(item.value for item in value if isinstance(item, Fault))
    return ""
