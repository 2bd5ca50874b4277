"""A simulated ZooKeeper: servers, ports of processes to them, and methods that cause faults.

    rng = random.Random(7)
    schedule = Schedule(rng)
    zookeeper = SimulatedZooKeeper(schedule, rng, servers=3)
    port = zookeeper.port(Process(schedule, rng, "one"))
    port.start(print)
    schedule.run(1.0)
    zookeeper.freeze(0)

Every method that does something does it at the present moment and returns at once. What goes wrong and when is up to
the caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from rebalance.zookeeper.port.requests import Create, Delete, Fault, Multi, Request, SetData, Stat
from tests.simulator.pipe import Latency
from tests.simulator.port import PortSettings, SimulatedPort
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule
from tests.simulator.tree import Node, Operation, SetAccess, parent_of
from tests.simulator.zookeeper_connection import Link, Record
from tests.simulator.zookeeper_ensemble import Ensemble, ZooKeeperSettings
from tests.simulator.zookeeper_peers import Peers
from tests.simulator.zookeeper_server import Server

__all__ = ["SimulatedZooKeeper"]


class SimulatedZooKeeper:
    """An ensemble of simulated servers, or one alone.

    Args:
        schedule: virtual time.
        rng: draws every latency and every order that ZooKeeper leaves open.
        servers: how many; their numbers go from 0, and number 0 leads at first.
        settings: of the servers.

    Raises:
        ValueError: fewer than one server.
    """

    def __init__(
        self, schedule: Schedule, rng: random.Random, servers: int = 1, settings: ZooKeeperSettings | None = None
    ) -> None:
        if servers < 1:
            raise ValueError(f"a ZooKeeper of {servers} servers: at least 1 is needed")
        self._schedule = schedule
        self._rng = rng
        self._ensemble = Ensemble(schedule, rng, servers, settings or ZooKeeperSettings())
        self._peers = Peers(self._ensemble)

    @property
    def settings(self) -> ZooKeeperSettings:
        """How it is set up."""
        return self._ensemble.settings

    def port(self, process: Process, settings: PortSettings | None = None) -> SimulatedPort:
        """The way to the servers of one process, not started."""
        latency = self.settings.client_latency
        links = [Link(self._schedule, self._rng, latency, server) for server in self._ensemble.servers]
        for link in links:
            link.server.links[link] = None
            if link.server.is_frozen:
                link.up.hold()
        return SimulatedPort(process, links, self._rng, settings or PortSettings())

    # -- what there is ----------------------------------------------------------------------------------------------

    @property
    def leader(self) -> int | None:
        """The number of the server that leads, frozen or cut off as it may be; None while none does."""
        leader = self._ensemble.leader
        return None if leader is None else leader.number

    @property
    def sessions(self) -> list[int]:
        """The ids of the living sessions, the oldest first."""
        return self._ensemble.sessions.ids()

    def zxid(self, server: int) -> int:
        """How far a server is."""
        return self._server(server).tree.zxid

    def read(self, path: str) -> tuple[bytes, Stat] | None:
        """Data and stat of a node as of the last write anywhere, None without it."""
        node = self._node(path)
        return None if node is None else (node.data, node.stat())

    def children(self, path: str) -> list[str]:
        """The names below a node as of the last write anywhere, sorted; none without it."""
        node = self._node(path)
        return [] if node is None else sorted(node.children)

    def _node(self, path: str) -> Node | None:
        return self._ensemble.newest_tree.nodes.get(path)

    def observe(self, observer: Callable[[Record], None]) -> None:
        """Report `observer` of each entry of the log when it is written, before any client can see it."""
        self._ensemble.observers.append(observer)

    def _server(self, number: int) -> Server:
        if not 0 <= number < len(self._ensemble.servers):
            raise ValueError(f"there is no server {number}; there are {len(self._ensemble.servers)}, counted from 0")
        return self._ensemble.servers[number]

    # -- writes of operators -----------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes = b"", owner: int = 0, parents: bool = False) -> Fault | None:
        """Create a node as an operator, ephemeral if a living session is named as its owner; None, or why not.

        Raises:
            ValueError: the owner is no living session.
            RuntimeError: nothing can be written now.
        """
        if owner and owner not in self.sessions:
            raise ValueError(f"{path} is to belong to session {owner:#x}, which is not alive")
        if parents and self._node(parent_of(path)) is None:
            self.create(parent_of(path), parents=True)
        return self._operator_write(Create(path, data, ephemeral=owner != 0), owner)

    def set_data(self, path: str, data: bytes, version: int = -1) -> Fault | None:
        """Set a node's data as an operator; as `create`."""
        return self._operator_write(SetData(path, data, version))

    def delete(self, path: str, version: int = -1, recursive: bool = False) -> Fault | None:
        """Delete a node as an operator, with all below it if wanted; as `create`."""
        if recursive:
            for name in self.children(path):
                self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
        return self._operator_write(Delete(path, version))

    def create_closed(self, path: str, data: bytes) -> Fault | None:
        """Create a persistent node as an operator that no session may read from the start; as `create`."""
        outcome = self._ensemble.write_as_operator(Multi((Create(path, data), SetAccess(path, True))), 0)  # type: ignore[arg-type]
        if outcome is None:
            raise RuntimeError(f"{path} cannot be created now: no leader with a majority is at work")
        faults = [each for each in outcome.value if isinstance(each, Fault) and each is not Fault.ROLLED_BACK]
        return faults[0] if faults else None

    def set_access(self, path: str, is_closed: bool) -> Fault | None:
        """Let only the session that owns it read a node, or every session; as `create`."""
        return self._operator_write(SetAccess(path, is_closed))

    def _operator_write(self, operation: Operation, owner: int = 0) -> Fault | None:
        outcome = self._ensemble.write_as_operator(operation, owner)
        if outcome is None:
            raise RuntimeError(f"{operation} cannot be done now: no leader with a majority is at work")
        return outcome.fault

    def end_session(self, session_id: int) -> bool:
        """End a session from outside, as its own client could; False if it is over, or nothing can be written now."""
        return self._ensemble.end_session(session_id)

    # -- links between a process and the servers --------------------------------------------------------------------

    def _links(self, port: SimulatedPort, server: int | None) -> Iterable[Link]:
        wanted = None if server is None else self._server(server)
        return [link for link in port.links if wanted is None or link.server is wanted]

    def stall(self, port: SimulatedPort, server: int | None = None, answers_only: bool = False) -> None:
        """Let no byte through between a process and one server or all, or none of the answers; none is lost."""
        for link in self._links(port, server):
            link.stall(answers_only)

    def cut(self, port: SimulatedPort, server: int | None = None) -> None:
        """Break the connections between a process and one server or all: what is under way is lost, both sides notice.

        New ones are refused until `heal`.
        """
        for link in self._links(port, server):
            link.cut()
            port.cut_off(link)

    def heal(self, port: SimulatedPort, server: int | None = None) -> None:
        """Undo `stall` and `cut`: what was stalled arrives in its order."""
        for link in self._links(port, server):
            link.heal()

    def delay_watch(
        self, port: SimulatedPort, delay_s: float, matches: Callable[[str], bool] = lambda path: True
    ) -> None:
        """Let the next watch event of a matching path, and all that follows it on that link, come `delay_s` later."""
        port.mishaps.late_watch = (matches, delay_s)

    def lose_reply(self, port: SimulatedPort, matches: Callable[[Request], bool] = lambda request: True) -> None:
        """Break the connection instead of answering the next matching write that is applied."""
        port.mishaps.lose_reply = matches

    def lose_request(self, port: SimulatedPort, matches: Callable[[Request], bool] = lambda request: True) -> None:
        """Break the connection when the next matching request arrives, before anything is done."""
        port.mishaps.lose_request = matches

    def move_session(self, port: SimulatedPort, late_s: float) -> None:
        """Answer the next transaction "connection lost", as if the session were at another server by now.

        The connection stays open until the client gives it up, `late_s` later.
        """
        port.mishaps.move = late_s

    def delay_answers(self, port: SimulatedPort, for_s: float) -> None:
        """Let session changes overtake the answers and events of a while."""
        port.fall_behind(for_s)

    def refuse(self, port: SimulatedPort) -> None:
        """Take a client's credentials no longer."""
        port.refuse("ZooKeeper refused the credentials")

    # -- servers ----------------------------------------------------------------------------------------------------

    def freeze(self, server: int) -> None:
        """Stop a server's process without ending it: it answers nothing, and its clock runs on."""
        self._peers.freeze(self._server(server))

    def thaw(self, server: int) -> None:
        """Let a frozen server go on; sessions whose time ran out end now unless their client is faster."""
        self._peers.thaw(self._server(server))

    def isolate(self, server: int) -> None:
        """Cut a server off from the others; it answers reads from what it has until the sync limit.

        Raises:
            ValueError: there is only one server.
        """
        if len(self._ensemble.servers) == 1:
            raise ValueError("server 0 is alone; there is no server to cut it off from")
        self._peers.isolate(self._server(server))

    def rejoin(self, server: int) -> None:
        """Let a server reach the others again."""
        self._peers.rejoin(self._server(server))

    def stop(self, server: int) -> None:
        """End a server's process; its data stay."""
        self._peers.stop(self._server(server))

    def start(self, server: int) -> None:
        """Start a server that was stopped; it takes clients as soon as it has, or is, a leader."""
        self._peers.start(self._server(server))

    def lag(self, server: int, latency: Latency) -> None:
        """Let what the leader writes take that long to a server from now on."""
        self._server(server).from_leader.latency = latency

    def outage(self) -> None:
        """End all servers; data and sessions stay."""
        for server in self._ensemble.servers:
            self._peers.stop(server)

    def restore(self) -> None:
        """Start all servers that are down; every session has its whole time-out again from then."""
        for server in self._ensemble.servers:
            self._peers.start(server)

    def wipe(self) -> None:
        """Lose all nodes and all sessions, as after a disk failure; the servers come back empty."""
        self.outage()
        self._ensemble.reset()
        self.restore()
