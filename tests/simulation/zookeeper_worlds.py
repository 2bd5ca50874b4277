"""One interface over two ZooKeepers, the real one through `KazooPort` and the simulated one, to compare them.

A world has sessions by name. Each keeps a transcript of all that its port reports, in its order. What differs from run
to run by nature is written in its own terms: sessions by their name and number, zxids by their rank.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.port.requests import (
    Create,
    Exists,
    Fault,
    GetChildren,
    Multi,
    Reply,
    Request,
    SessionChange,
    Stat,
    Sync,
    ZooKeeperPort,
)
from tests.simulator.pipe import INSTANT
from tests.simulator.port import PortSettings
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule
from tests.simulator.zookeeper import SimulatedZooKeeper
from tests.simulator.zookeeper_ensemble import ZooKeeperSettings
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

TIMEOUT_S = 40.0


class Session:
    """The requests and reports of one port: the transcript, and the replies by number."""

    def __init__(self, name: str, port: ZooKeeperPort) -> None:
        self.name = name
        self.port = port
        self.transcript: list[Any] = []
        self.replies: dict[int, Reply] = {}
        self.changes: list[SessionChange] = []
        self.ids: list[int] = []
        self._asked = 0

    def start(self) -> None:
        self.port.start(self._changed)

    def _changed(self, change: SessionChange) -> None:
        self.changes.append(change)
        if change.what != "connected":
            self.transcript.append(change.what)
        elif change.session_id in self.ids:
            self.transcript.append("connected again")
        else:
            self.ids.append(change.session_id)
            self.transcript.append("connected anew")

    def watch(self, label: str) -> Callable[[Any], None]:
        """A watch that writes its label down; equal for equal labels."""
        return _Watch(self.transcript, label)

    def send(self, request: Request) -> int:
        """Send a request; the number of its reply."""
        self._asked += 1
        number = self._asked

        def done(reply: Reply) -> None:
            self.replies[number] = reply
            # kazoo passes these on a little later than other replies: what they come behind is not fixed.
            if not isinstance(request, (Create, Sync)):
                self.transcript.append(("reply", number, reply.fault))

        self.port.send(request, done)
        return number

    @property
    def state(self) -> str:
        return self.changes[-1].what if self.changes else "none"


class _Watch:
    def __init__(self, transcript: list[Any], label: str) -> None:
        self._transcript = transcript
        self._label = label

    def __call__(self, event: Any) -> None:
        self._transcript.append(("event", self._label, event.path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watch) and self._label == other._label

    def __hash__(self) -> int:
        return hash(self._label)


class World(Protocol):
    """What a comparison needs of a ZooKeeper."""

    sessions: dict[str, Session]

    def open(self, name: str, session_s: float = 10.0) -> Session: ...

    def reached(self, condition: Callable[[], object]) -> None: ...

    def close(self, name: str) -> None: ...

    def begin_close(self, name: str) -> None: ...

    def end_session(self, session_id: int) -> None: ...

    def cut(self, name: str) -> None: ...

    def stall_answers(self, name: str) -> None: ...

    def heal(self, name: str) -> None: ...

    def restart(self) -> None: ...

    def wipe(self) -> None: ...


def ask(world: World, name: str, *requests: Request) -> list[Reply]:
    """The replies to requests that one session sends at once."""
    session = world.sessions[name]
    numbers = [session.send(request) for request in requests]
    world.reached(lambda: all(number in session.replies for number in numbers))
    return [session.replies[number] for number in numbers]


def settle(world: World) -> None:
    """Have every connected session receive what the server has sent: a read comes behind all that was sent before."""
    for name, session in list(world.sessions.items()):
        if session.state == "connected":
            ask(world, name, Exists("/"))


class RealWorld:
    """A real server; every session goes through a proxy of its own."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self.sessions: dict[str, Session] = {}
        self._server = server
        self._proxies: dict[str, TcpProxy] = {}

    def open(self, name: str, session_s: float = 10.0) -> Session:
        proxy = self._proxies[name] = TcpProxy(self._server.connect)
        session = self.sessions[name] = Session(name, KazooPort(proxy.address, session_s))
        session.start()
        self.reached(lambda: session.state == "connected")
        return session

    def reached(self, condition: Callable[[], object]) -> None:
        wait_until(
            condition,
            TIMEOUT_S,
            "the real ZooKeeper",
            interval_s=0.0005,
            state=lambda: {name: session.transcript[-5:] for name, session in self.sessions.items()},
        )

    def close(self, name: str) -> None:
        self.sessions.pop(name).port.close(5.0)
        self._proxies.pop(name).close()

    def begin_close(self, name: str) -> None:
        self.sessions[name].port.close(0.0)

    def end_session(self, session_id: int) -> None:
        self._server.end_session(session_id)

    def cut(self, name: str) -> None:
        self._proxies[name].cut()

    def stall_answers(self, name: str) -> None:
        self._proxies[name].stall("down")

    def heal(self, name: str) -> None:
        self._proxies[name].clear()

    def restart(self) -> None:
        self._server.kill()
        self._server.start()

    def wipe(self) -> None:
        self._server.wipe()

    def __enter__(self) -> RealWorld:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.sessions):
            self.close(name)


class SimulatedWorld:
    """A simulated server; nothing takes time on the way, nothing is overtaken."""

    def __init__(self, seed: int = 1, settings: ZooKeeperSettings | None = None) -> None:
        self.rng = random.Random(seed)
        self.schedule = Schedule()
        instant = settings or ZooKeeperSettings(tick_s=0.1, min_session_s=0.2, max_session_s=60.0)
        self.zookeeper = SimulatedZooKeeper(
            self.schedule, self.rng, 1, instant._replace(client_latency=INSTANT, peer_latency=INSTANT)
        )
        self.sessions: dict[str, Session] = {}

    def open(self, name: str, session_s: float = 10.0) -> Session:
        settings = PortSettings(session_s, overtaking=0.0, extra_turn=INSTANT, version_answer=INSTANT)
        port = self.zookeeper.port(Process(self.schedule, self.rng, name), settings)
        session = self.sessions[name] = Session(name, port)
        session.start()
        self.reached(lambda: session.state == "connected")
        return session

    def reached(self, condition: Callable[[], object]) -> None:
        assert self.schedule.run_until(condition, self.schedule.now + TIMEOUT_S), {
            name: session.transcript[-5:] for name, session in self.sessions.items()
        }

    def _port(self, name: str) -> Any:
        return self.sessions[name].port

    def close(self, name: str) -> None:
        self.sessions.pop(name).port.close(5.0)
        self.schedule.run(self.schedule.now + 0.01)

    def begin_close(self, name: str) -> None:
        self.sessions[name].port.close(0.0)

    def end_session(self, session_id: int) -> None:
        assert self.zookeeper.end_session(session_id)

    def cut(self, name: str) -> None:
        self.zookeeper.cut(self._port(name))

    def stall_answers(self, name: str) -> None:
        self.zookeeper.stall(self._port(name), answers_only=True)

    def heal(self, name: str) -> None:
        self.zookeeper.heal(self._port(name))

    def restart(self) -> None:
        self.zookeeper.outage()
        self.schedule.run(self.schedule.now + 0.5)
        self.zookeeper.restore()
        self.schedule.run(self.schedule.now + 2.0)

    def wipe(self) -> None:
        self.zookeeper.wipe()
        self.schedule.run(self.schedule.now + 2.0)


class Terms:
    """Replies of one world in terms that compare with the other's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owners: dict[int, str] = {0: "nobody"}
        self.zxids: list[int] = []

    def name_sessions(self) -> None:
        """Learn which session ids belong to whom; to be called whenever there may be a new one."""
        for name, session in self._world.sessions.items():
            for number, session_id in enumerate(session.ids):
                self._owners.setdefault(session_id, f"{name}.{len(self._owners)}.{number}")

    def of(self, request: Request, reply: Reply) -> Any:
        value = reply.value
        if isinstance(request, Multi) and reply.fault is None:
            return [self._plain(item) for item in value]
        if isinstance(request, GetChildren) and reply.fault is None:
            return sorted(value[0]), self._plain(value[1])
        if isinstance(value, tuple) and not isinstance(value, Stat):
            return value[0], self._plain(value[1])
        return reply.fault or self._plain(value)

    def _plain(self, item: Any) -> Any:
        if isinstance(item, (str, bool, Fault)) or item is None:
            return item
        if not isinstance(item, Stat):  # what kazoo makes of a set in a multi
            item = Stat(item.version, item.cversion, item.ephemeralOwner, item.czxid, item.pzxid, item.mzxid)
        self.zxids += [item.czxid, item.pzxid, item.mzxid]
        return item.version, item.cversion, self._owners[item.ephemeral_owner]

    def ranks(self) -> list[int]:
        """The place of each zxid seen so far among all of them."""
        places = {zxid: place for place, zxid in enumerate(sorted(set(self.zxids)))}
        return [places[zxid] for zxid in self.zxids]


def replies_and_events(transcript: Iterable[Any]) -> list[Any]:
    """A transcript cut at its replies, the events between two of them sorted.

    One transaction may fire several watches, in an order that ZooKeeper leaves open.
    """
    parts: list[Any] = []
    events: list[Any] = []
    for entry in transcript:
        if isinstance(entry, tuple) and entry[0] == "event":
            events.append(entry)
        else:
            parts += [*sorted(events), entry]
            events = []
    return parts + sorted(events)
