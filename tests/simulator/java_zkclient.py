"""ZkClient, the ZooKeeper client of the Java consumer, on a simulated port. Pure.

What it does that matters to a group:

- Every call blocks, and is made again after a lost connection or session until it has an answer: whether it was
  applied or not, and under whatever session there is by then.
- Watches are one-shot, armed by any read of a path that has listeners. A watch that fires is answered by
  `exists` and a read of the same path, which arm it anew, on the one event thread; then the listeners are called there.
- After an expired session every state listener is called for the new one, and then every listener of every path
  once, whether anything changed or not. A connection that is lost and comes back is not reported.

Differences from the real one: a node whose children have listeners, and whose data is set, counts as deleted here;
the data of such nodes is never set. A thread that waits for a connection asks then, instead of passing on a request
that waits.

Source: org.I0Itec.zkclient.ZkClient 0.3, org.apache.zookeeper.ClientCnxn 3.4.6.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from rebalance.zookeeper.port.requests import (
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Reply,
    SessionChange,
    SetData,
    ZooKeeperPort,
)
from tests.simulator.java_threads import Body, JavaFailure, JavaThread, Monitor, Threads
from tests.simulator.java_watches import Watches
from tests.simulator.pipe import Latency
from tests.simulator.port import PortSettings
from zkconsumer.testing.proxy.zookeeper_exchanges import Connected, Entry, Exchange, Fired

__all__ = ["Listener", "NoNode", "NodeExists", "ZkClient", "java_port"]

_RECONNECT_PAUSE: Final = Latency(0.0, 1.0)
_AT_ONCE: Final = Latency(0.0, 0.0)
_LEAST_PAUSE_S: Final = 0.001
_CLOSING: Final = Latency(0.001, 0.02)

Listener: TypeAlias = Callable[[Any], Body[None]]
"""Called on the event thread: with the children or the data, or None when the node is not there."""

_Request: TypeAlias = Create | Delete | Exists | GetChildren | GetData | SetData

_KINDS: Final = {
    Create: "create",
    Delete: "delete",
    Exists: "exists",
    GetChildren: "children",
    GetData: "get",
    SetData: "set",
}


class NoNode(JavaFailure):
    """ZkNoNodeException."""


class NodeExists(JavaFailure):
    """ZkNodeExistsException.

    Attributes:
        stored: what the node holds, if that was read.
    """

    def __init__(self, path: str, stored: str = "") -> None:
        super().__init__(path, stored)
        self.stored = stored


def java_port(session_timeout_s: float) -> PortSettings:
    """How the port of a Java member behaves: its client keeps replies, events and changes in order."""
    return PortSettings(session_timeout_s, overtaking=0.0, extra_turn=_AT_ONCE, version_answer=_AT_ONCE)


class ZkClient:
    """One client.

    Args:
        port: not started.
        threads: of the process.
        rng: how long it pauses before it connects anew.

    Attributes:
        is_connected: whether it believes to be.
        session_id: of the session that it knows of, 0 for none.
        heard: called with what passes, and the name of the thread; None for no listener.
    """

    def __init__(self, port: ZooKeeperPort, threads: Threads, rng: random.Random) -> None:
        self.is_connected = False
        self.session_id = 0
        self.heard: Callable[[str, Entry], None] | None = None
        self._port = port
        self._threads = threads
        self._process = threads.process
        self._rng = rng
        self._losses = 0
        self._connection_changed = Monitor()
        self._changes: deque[SessionChange] = deque()
        self._held_until_s = 0.0
        self._watches = Watches(port, self._fired)
        self._fired_at: dict[str, float] = {}
        self._child_listeners: dict[str, list[Listener]] = {}
        self._data_listeners: dict[str, list[Listener]] = {}
        self._session_listeners: list[Callable[[], Body[None]]] = []
        self._events: deque[Callable[[], Body[None]]] = deque()
        self._event_added = Monitor()
        self._event_thread: JavaThread | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    def connect(self, timeout_s: float) -> Body[None]:
        """Connect; JavaFailure if there is no session after `timeout_s`."""
        self._event_thread = self._threads.start("event", self._run_events())
        self._port.start(self._session_changed)
        deadline_s = self._process.clock() + timeout_s
        self._process.after(timeout_s, self._connection_changed.notify_all)
        while not self.is_connected:
            if self._process.clock() >= deadline_s:
                raise JavaFailure(f"unable to connect to zookeeper server within timeout: {timeout_s:g} s")
            yield self._connection_changed.wait

    def close(self, timeout_s: float) -> Body[None]:
        """End the session; threads that still wait for an answer go on waiting."""
        if self._event_thread is not None:
            self._event_thread.stop()
        self._record(Exchange("close", is_answered=True))
        self._port.close(timeout_s)
        yield self._threads.sleep(_CLOSING.draw(self._rng))

    @property
    def is_idle(self) -> bool:
        """Whether it is connected and has no event to handle."""
        return self.is_connected and not self._events and not self._changes

    # -- calls ------------------------------------------------------------------------------------------------------

    def exists(self, path: str, watch: bool | None = None) -> Body[bool]:
        """Whether there is such a node; watched, if not said otherwise, when a listener is subscribed to the path."""
        watched = self._has_listeners(path) if watch is None else watch
        request = Exists(path, self._watches.data_fired if watched else None)
        return (yield from self._ask(request)) is not None

    def children(self, path: str, watch: bool | None = None) -> Body[list[str]]:
        """The names below a node; watched as with `exists`."""
        watched = self._has_listeners(path) if watch is None else watch
        names, _ = yield from self._ask(GetChildren(path, self._watches.children_fired if watched else None))
        return list(names)

    def read(self, path: str, watch: bool | None = None) -> Body[bytes]:
        """The data of a node; watched as with `exists`."""
        watched = self._has_listeners(path) if watch is None else watch
        data, _ = yield from self._ask(GetData(path, self._watches.data_fired if watched else None))
        return bytes(data)

    def write(self, path: str, data: bytes) -> Body[None]:
        """Set the data of a node, whatever it holds."""
        yield from self._ask(SetData(path, data))

    def delete(self, path: str) -> Body[bool]:
        """Delete a node, whatever its owner; False without it."""
        try:
            yield from self._ask(Delete(path))
        except NoNode:
            return False
        return True

    def create_ephemeral(self, path: str, data: bytes) -> Body[None]:
        """Create an ephemeral node."""
        yield from self._ask(Create(path, data, ephemeral=True))

    def create_persistent(self, path: str, data: bytes) -> Body[None]:
        """Create a persistent node."""
        yield from self._ask(Create(path, data))

    def create_with_parents(self, path: str) -> Body[None]:
        """Create a persistent node without data and what is missing above it, unless it is there."""
        try:
            yield from self._ask(Create(path), is_null=True)
        except NodeExists:
            return
        except NoNode:
            yield from self.create_with_parents(path.rpartition("/")[0])
            yield from self.create_with_parents(path)

    # -- listeners --------------------------------------------------------------------------------------------------

    def subscribe_sessions(self, listener: Callable[[], Body[None]]) -> None:
        """Call `listener` on the event thread for each new session after an expired one."""
        if listener not in self._session_listeners:
            self._session_listeners.append(listener)

    def subscribe_children(self, path: str, listener: Listener) -> Body[list[str]]:
        """Listen to the children of a path; returns those of now, none without the node."""
        listeners = self._child_listeners.setdefault(path, [])
        if listener not in listeners:
            listeners.append(listener)
        yield from self.exists(path, watch=True)
        try:
            return (yield from self.children(path, watch=True))
        except NoNode:
            return []

    def subscribe_data(self, path: str, listener: Listener) -> Body[None]:
        """Listen to the data of a path."""
        listeners = self._data_listeners.setdefault(path, [])
        if listener not in listeners:
            listeners.append(listener)
        yield from self.exists(path, watch=True)

    def unsubscribe_all(self) -> None:
        """Listen to nothing any more."""
        self._child_listeners.clear()
        self._data_listeners.clear()
        self._session_listeners.clear()

    def _has_listeners(self, path: str) -> bool:
        return path in self._data_listeners or path in self._child_listeners

    # -- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, request: _Request, is_null: bool = False) -> Body[Any]:
        while True:
            while not self.is_connected:
                yield self._connection_changed.wait
            reply: Reply = yield self._step(request, is_null)
            fault = reply.fault
            if fault is None:
                return reply.value
            if fault is Fault.NO_NODE:
                raise NoNode(request.path)
            if fault is Fault.NODE_EXISTS:
                raise NodeExists(request.path)
            if fault not in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED):
                raise JavaFailure(f"{request.path}: {fault.value}")
            if self.is_connected:
                yield self._threads.sleep(_LEAST_PAUSE_S)  # the change is reported in a moment

    def _step(self, request: _Request, is_null: bool) -> Callable[[Callable[[Any], None]], None]:
        """Send, and note a watch that was armed before any other code sees the answer."""
        exchange = _exchange(request, is_null)

        def start(go_on: Callable[[Any], None]) -> None:
            losses = self._losses
            self._record(exchange)

            def answered(reply: Reply) -> None:
                _fill(exchange, reply)
                if reply.fault is None and getattr(request, "watch", None) is not None:
                    # The answer may be one of an earlier connection: then the port has forgotten the watch.
                    self._watches.armed(request, reply, is_forgotten=losses != self._losses and self.is_connected)
                go_on(reply)

            self._port.send(request, answered)

        return start

    def _record(self, entry: Entry) -> None:
        if self.heard is not None:
            current = self._threads.current
            self.heard("client" if current is None else current.name, entry)

    # -- the session ------------------------------------------------------------------------------------------------

    def _session_changed(self, change: SessionChange) -> None:
        """A change that the port reports; the Java client waits up to a second before it connects anew."""
        now = self._process.schedule.now
        if change.what == "suspended" and not self._changes:
            self._held_until_s = now + _RECONNECT_PAUSE.draw(self._rng)
            self._lose()
        elif self._changes or now < self._held_until_s:
            if not self._changes:
                self._process.after(self._held_until_s - now, self._catch_up)
            self._changes.append(change)
        else:
            self._handle(change)

    def _catch_up(self) -> None:
        changes, self._changes = self._changes, deque()
        for change in changes:
            self._handle(change)

    def _handle(self, change: SessionChange) -> None:
        if change.what == "connected":
            self._connected(change)
        elif change.what == "suspended":
            self._lose()
        elif change.what == "expired":
            self._lose()
            self._record(Connected(0, self.session_id, 0))
            self.session_id = 0
            self._expired()

    def _lose(self) -> None:
        self._losses += 1
        self.is_connected = False

    def _connected(self, change: SessionChange) -> None:
        self._record(Connected(change.session_id, self.session_id, int(change.timeout_s * 1000)))
        self.session_id = change.session_id
        self.is_connected = True
        if self._watches.paths:
            self._record(Exchange("set_watches", paths=self._watches.paths, is_answered=True))
            self._watches.look_again()
        self._connection_changed.notify_all()

    def _expired(self) -> None:
        self._watches.clear()
        for listener in self._session_listeners:
            self._add_event(listener)
        for path in list(self._child_listeners):
            self._fire_children(path)
        for path in list(self._data_listeners):
            self._fire_data(path)

    # -- the event thread -------------------------------------------------------------------------------------------

    def _add_event(self, event: Callable[[], Body[None]]) -> None:
        self._events.append(event)
        self._event_added.notify_all()

    def _fired(self, path: str, happened: str) -> None:
        """A watch was set off; a deletion, which sets off both watches of a node, is one event."""
        if happened == "data changed" and path in self._child_listeners:
            happened = "deleted"
        self._record(Fired(happened, path))
        if happened != "data changed" and self._fired_at.get(path) != self._process.schedule.now:
            self._fired_at[path] = self._process.schedule.now
            self._fire_children(path)
        if happened != "children changed":
            self._fire_data(path)

    def _fire_children(self, path: str) -> None:
        for listener in self._child_listeners.get(path, ()):
            self._add_event(partial(self._call_children_listener, path, listener))

    def _fire_data(self, path: str) -> None:
        for listener in self._data_listeners.get(path, ()):
            self._add_event(partial(self._call_data_listener, path, listener))

    def _run_events(self) -> Body[None]:
        while True:
            while not self._events:
                yield self._event_added.wait
            try:
                yield from self._events[0]()
            except JavaFailure as failure:
                self._threads.failures.append(f"event: {failure!r}")
            self._events.popleft()

    def _call_children_listener(self, path: str, listener: Listener) -> Body[None]:
        try:
            yield from self.exists(path)
            names = yield from self.children(path)
        except NoNode:
            yield from listener(None)
        else:
            yield from listener(names)

    def _call_data_listener(self, path: str, listener: Listener) -> Body[None]:
        yield from self.exists(path, watch=True)
        try:
            data = yield from self.read(path, watch=True)
        except NoNode:
            yield from listener(None)
        else:
            yield from listener(data)


def _exchange(request: _Request, is_null: bool) -> Exchange:
    """The request as a recorder records it."""
    flags = ("ephemeral",) if getattr(request, "ephemeral", False) else ()
    if getattr(request, "watch", None) is not None:
        flags = ("watch",)
    data = None if is_null else getattr(request, "data", None)
    return Exchange(_KINDS[type(request)], request.path, flags, data)


def _fill(exchange: Exchange, reply: Reply) -> None:
    exchange.is_answered = True
    exchange.fault = reply.fault
    if reply.fault is None:
        if exchange.kind == "exists" and reply.value is None:
            exchange.fault = Fault.NO_NODE
        elif exchange.kind == "get":
            exchange.data = reply.value[0]
        elif exchange.kind == "children":
            exchange.children = tuple(reply.value[0])
