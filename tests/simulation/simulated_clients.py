"""A simulated ZooKeeper with clients that record what they receive, for tests of the simulation itself."""

from __future__ import annotations

import random
from typing import Any

from zookeeper_worlds import Session

from rebalance.zookeeper.port.requests import Reply, Request
from tests.simulator import (
    Latency,
    PortSettings,
    Process,
    Schedule,
    SimulatedPort,
    SimulatedZooKeeper,
    ZooKeeperSettings,
)

STEADY = PortSettings(overtaking=0.0)


class Client(Session):
    """One process with a port."""

    port: SimulatedPort

    def __init__(self, name: str, process: Process, port: SimulatedPort) -> None:
        super().__init__(name, port)
        self.process = process

    def received(self) -> list[Any]:
        """What it has received since the last call."""
        told = list(self.transcript)
        self.transcript.clear()
        return told


class Sim:
    """A ZooKeeper, its clients, and time."""

    def __init__(self, seed: int = 1, servers: int = 1, ties: bool = True, **settings: Any) -> None:
        self.rng = random.Random(seed)
        self.schedule = Schedule(self.rng if ties else None)
        self.zookeeper = SimulatedZooKeeper(
            self.schedule, self.rng, servers, ZooKeeperSettings(**{"tick_s": 1.0, **settings})
        )
        self.clients: list[Client] = []

    @property
    def now(self) -> float:
        return self.schedule.now

    def client(self, settings: PortSettings = STEADY, **process: Any) -> Client:
        name = f"client{len(self.clients)}"
        made = Process(self.schedule, self.rng, name, **process)
        self.clients.append(Client(name, made, self.zookeeper.port(made, settings)))
        return self.clients[-1]

    def open(self, settings: PortSettings = STEADY, at: int | None = None, **process: Any) -> Client:
        """A connected client, to the given server if any; nothing is in its transcript."""
        client = self.client(settings, **process)
        others = [] if at is None else [link.server.number for link in client.port.links if link.server.number != at]
        for other in others:
            self.zookeeper.cut(client.port, other)
        client.start()
        self.until(lambda: client.state == "connected")
        for other in others:
            self.zookeeper.heal(client.port, other)
        client.received()
        return client

    def until(self, condition: Any, limit_s: float = 60.0) -> None:
        assert self.schedule.run_until(condition, self.now + limit_s), [client.transcript for client in self.clients]

    def run(self, seconds: float) -> None:
        self.schedule.run(self.now + seconds)

    def ask(self, client: Client, request: Request) -> Reply:
        number = client.send(request)
        self.until(lambda: number in client.replies)
        return client.replies[number]

    def lag(self, server: int, seconds: float) -> None:
        self.zookeeper.lag(server, Latency(seconds, seconds))
