"""Members of both kinds, ours and Kafka's own, with one interface, each behind a ZooKeeper link of its own."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history import Event
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.members.member_process import MemberProcess
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

# The same waits for both kinds, so that their figures can be compared; the tries of Java are Kafka's defaults.
SESSION_S = 4.0
COMMIT_S = 0.5
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "zookeeper.connection.timeout.ms": 15_000,
    "auto.commit.interval.ms": int(COMMIT_S * 1000),
    "auto.offset.reset": "smallest",
}
JAVA_SETTINGS: dict[str, object] = {
    **SETTINGS,
    "zookeeper.sync.time.ms": 2000,
    "rebalance.backoff.ms": 2000,
    "rebalance.max.retries": 4,
}
START_S = 30.0
STOP_S = 30.0


class Player(ABC):
    """One member: joins, leaves, is killed, is paused, and returns its history."""

    kind = ""

    def __init__(self, cluster: Cluster, group: str, name: str) -> None:
        self.cluster = cluster
        self.group = group
        self.name = name
        self.id = f"{group}_{name}"
        self.expected = False  # to be in the group
        self._ends: list[Event] = []
        self.link = TcpProxy(cluster.zookeeper.connect, count_zookeeper=True)

    @property
    @abstractmethod
    def process(self) -> ChildProcess:
        """Its process."""

    @abstractmethod
    def launch(self, asked: Mapping[str, Any], work_ms: int, settings: dict[str, object]) -> None:
        """Start its process, without waiting.

        Args:
            asked: `topics`; or `whitelist` or `blacklist`, and `streams`.
        """

    @abstractmethod
    def wait_ready(self) -> None:
        """Return when its streams exist."""

    @abstractmethod
    def begin_to_leave(self) -> None:
        """Have it leave in order, without waiting."""

    @abstractmethod
    def events(self) -> list[Event]:
        """What it wrote down."""

    def leave(self) -> None:
        """Leave in order; returns when its process is gone."""
        self.begin_to_leave()
        self.process.wait(STOP_S)

    def kill(self) -> None:
        """SIGKILL."""
        self.expected = False
        self._end(self.process.kill)

    def pause(self) -> None:
        """SIGSTOP: other members cannot rely on it from now on."""
        self._end(self.process.pause)

    def _end(self, act: Callable[[], None]) -> None:
        act()
        self._ends.append(Event(time.monotonic_ns(), "killed", self.name))

    def resume(self) -> None:
        """SIGCONT."""
        self.process.resume()

    def session_id(self, client: KazooClient) -> int:
        """Id of its session, 0 while it is not registered."""
        try:
            return int(client.get(f"/consumers/{self.group}/ids/{self.id}")[1].ephemeralOwner)
        except NoNodeError:
            return 0

    def end_session(self) -> int:
        """End its session behind its back; the id of what was ended."""
        ended = self.session_id(self.cluster.client)
        self.cluster.zookeeper.end_session(ended)
        return ended

    def close(self) -> None:
        """Kill what still runs."""
        self.link.close()

    def complain(self) -> None:
        """Show the end of its log, for a test that fails."""
        try:
            print(f"---- log of {self.kind} {self.name}\n{self.process.tail(60)}", file=sys.stderr)
        except KitError:
            pass  # it was never launched


class OurPlayer(Player):
    """A member of ours."""

    kind = "ours"

    def __init__(self, cluster: Cluster, group: str, name: str) -> None:
        super().__init__(cluster, group, name)
        self.member: MemberProcess | None = None

    @property
    def process(self) -> ChildProcess:
        return self._member.process

    @property
    def _member(self) -> MemberProcess:
        if self.member is None:
            raise KitError(f"{self.name} was never launched")
        return self.member

    def launch(self, asked: Mapping[str, Any], work_ms: int, settings: dict[str, object]) -> None:
        self.expected = True
        chosen = {**SETTINGS, **settings}
        self.member = MemberProcess(self.link.address, self.group, self.name, **asked, work_ms=work_ms, settings=chosen)

    def wait_ready(self) -> None:
        self._member.wait_ready()

    def begin_to_leave(self) -> None:
        self.expected = False
        self.process.signal(15)

    def events(self) -> list[Event]:
        return [*(self.member.events() if self.member else []), *self._ends]

    def close(self) -> None:
        if self.member is not None:
            self.member.close()
        super().close()


class JavaPlayer(Player):
    """Kafka's own member, of the cluster's version."""

    kind = "java"

    def __init__(self, cluster: Cluster, group: str, name: str) -> None:
        super().__init__(cluster, group, name)
        self.member: JavaMember | None = None

    @property
    def process(self) -> ChildProcess:
        return self._member.process

    @property
    def _member(self) -> JavaMember:
        if self.member is None:
            raise KitError(f"{self.name} was never launched")
        return self.member

    def launch(self, asked: Mapping[str, Any], work_ms: int, settings: dict[str, object]) -> None:
        self.expected = True
        chosen = {**JAVA_SETTINGS, **settings}
        self.member = JavaMember(
            self.cluster, self.group, **asked, consumer_id=self.name, settings=chosen,
            zookeeper_connect=self.link.address, pause_ms=work_ms,
        )  # fmt: skip
        self.member.launch()

    def wait_ready(self) -> None:
        self._member.wait_ready()

    def gave_up_at_its_start(self) -> bool:
        """Whether it gave up in its first rebalance, once that is over: it goes on in the group, and has no streams."""
        lasts = "its first rebalance to be over"
        wait_until(lambda: self._member.is_ready or self._is_without_streams, START_S, lasts, state=self.process.tail)
        return self._is_without_streams

    @property
    def _is_without_streams(self) -> bool:
        return 'Exception in thread "main"' in self._member.log()

    def begin_to_leave(self) -> None:
        self.expected = False
        self.process.close_stdin()

    @property
    def gave_up(self) -> int:
        """How often its tries were exhausted."""
        return self.member.gave_up if self.member else 0

    def events(self) -> list[Event]:
        recorded = self.member.events() if self.member else []
        return [*(replace(each, member=self.name) for each in recorded if each.kind == "deliver"), *self._ends]

    def close(self) -> None:
        if self.member is not None:
            self.member.close()
        super().close()


KINDS: dict[str, type[Player]] = {"ours": OurPlayer, "java": JavaPlayer}
CASTS: dict[str, tuple[str, str]] = {
    "ours": ("ours", "ours"),
    "java": ("java", "java"),
    "mixed": ("ours", "java"),
    "mixed-java-hit": ("java", "ours"),
}
"""Which members the fault hits, and which it does not."""
