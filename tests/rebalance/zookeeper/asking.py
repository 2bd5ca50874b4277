"""A port with a loop of its own, for tests of what the coordination asks ZooKeeper one piece at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rebalance.lease import lease_clock
from rebalance.loop import Loop
from rebalance.zookeeper.port.kazoo_port import KazooPort, call
from rebalance.zookeeper.port.pipeline import Pipeline
from rebalance.zookeeper.port.requests import Reply, Request, SessionChange, ZooKeeperPort
from zkconsumer.testing.waiting import wait_until


class Asker:
    """`ask` as the coordinator's: answers are handled on the loop's thread. Every request is kept in `sent`."""

    def __init__(self, connect: str, session_s: float = 10.0) -> None:
        self.loop = Loop(lease_clock)
        self.port = KazooPort(connect, session_s)
        self.sent: list[Request] = []
        self.changes: list[SessionChange] = []
        self._thread = threading.Thread(target=self.loop.run, daemon=True)
        self._thread.start()
        self.port.start(self.changes.append)
        self.connected()

    def connected(self) -> SessionChange:
        wait_until(
            lambda: self.changes and self.changes[-1].what == "connected", 15.0, "a session", state=lambda: self.changes
        )
        return self.changes[-1]

    @property
    def session_id(self) -> int:
        return self.connected().session_id

    def ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        self.sent.append(request)
        self.port.send(request, lambda reply: self.loop.post(handle, reply))

    def call(self, request: Request) -> Reply:
        return call(self.port, request, 10.0)

    def on_loop(self, function: Callable[[], Any]) -> Any:
        results: list[Any] = []
        done = threading.Event()

        def run() -> None:
            results.append(function())
            done.set()

        self.loop.post(run)
        assert done.wait(10.0), "the loop does not answer"
        return results[0]

    def outcome(self, start: Callable[[Callable[..., None]], object], timeout_s: float = 15.0) -> Any:
        """What `start(told)`, run on the loop, passes to `told`; asserts that it is told once."""
        told: list[tuple[Any, ...]] = []
        self.loop.post(lambda: start(lambda *outcome: told.append(outcome)))
        wait_until(lambda: told, timeout_s, "the outcome")
        assert len(told) == 1
        return told[0][0] if len(told[0]) == 1 else told[0]

    def close(self) -> None:
        self.port.close(5.0)
        self.loop.post(self.loop.stop)
        self._thread.join(5.0)


def pipeline_to(ask: Callable[[Request, Callable[[Reply], None]], None], port: ZooKeeperPort, loop: Loop) -> Pipeline:
    """A pipeline whose requests go to `ask`."""
    pipeline = Pipeline(port, loop)
    pipeline.ask_first = ask  # type: ignore[method-assign]
    pipeline.waiting_since = lambda: None  # type: ignore[method-assign]
    return pipeline
