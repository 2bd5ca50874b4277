"""The stage of real servers, real Java members, and a proxy between each of them and ZooKeeper."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from java_scenes import FOREIGNER, QUIET_S
from java_traces import Trace, normalised

from rebalance.zookeeper import znodes
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.proxy.zookeeper_trace import ZooKeeperRecorder, format_trace
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import end_session

__all__ = ["RealStage"]

MESSAGES = 3
LIMIT_S = 60.0


class RealStage:
    """See `java_scenes.Stage`; a cluster of its own."""

    def __init__(self, partitions: int = 2) -> None:
        self._partitions = partitions
        self.trace: Trace = {}
        self._stack = ExitStack()
        self._members: dict[str, JavaMember] = {}
        self._recorders: dict[str, ZooKeeperRecorder] = {}
        self._told: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._cluster = self._stack.enter_context(KafkaCluster("0.8.2.2", brokers=2))
        self._client = self._cluster.client
        self._cluster.create_topic("t", partitions=self._partitions, replication=2)
        load(self._cluster, "t", MESSAGES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._end_part()
        self._stack.close()

    def part(self, title: str) -> None:
        self._end_part()
        self.trace[title] = {}

    def _end_part(self) -> None:
        for name in self._recorders if self.trace else ():
            lines = normalised(self._lines(name))
            self._told[name] = len(self._recorders[name].entries())
            if lines:
                list(self.trace.values())[-1][name] = lines

    def _lines(self, member: str) -> list[str]:
        return format_trace(self._recorders[member].entries()[self._told.get(member, 0) :])

    def start(self, member: str, *, auto_commit_s: float = 3600.0, whitelist: str = "") -> None:
        recorder = self._stack.enter_context(ZooKeeperRecorder(self._cluster.zookeeper_connect))
        java = JavaMember(
            self._cluster,
            "g",
            topics=None if whitelist else {"t": 1},
            whitelist=whitelist or None,
            consumer_id=member,
            settings={"auto.commit.interval.ms": int(auto_commit_s * 1000), "rebalance.backoff.ms": 2000},
            zookeeper_connect=recorder.proxy.address,
        )
        self._stack.callback(java.close)
        self._members[member], self._recorders[member] = java, recorder
        java.launch()
        wait_until(recorder.entries, LIMIT_S, f"{member} to speak to ZooKeeper")

    def rest(self) -> None:
        said = self._said()
        quiet_since = time.monotonic()

        def quiet() -> bool:
            nonlocal said, quiet_since
            now = self._said()
            if now != said:
                said, quiet_since = now, time.monotonic()
            return time.monotonic() - quiet_since >= QUIET_S

        wait_until(quiet, LIMIT_S, "all members to be quiet", state=self._said)

    def _said(self) -> dict[str, int]:
        return {name: len(recorder.entries()) for name, recorder in self._recorders.items()}

    def leave(self, member: str) -> None:
        self._members[member].stop()

    def end_session(self, member: str) -> None:
        end_session(self._cluster.zookeeper_connect, self._members[member].session_id())

    def break_connection(self, member: str) -> None:
        self._recorders[member].proxy.drop()

    def stall(self, member: str) -> None:
        self._recorders[member].proxy.stall()

    def heal(self, member: str) -> None:
        self._recorders[member].proxy.clear()

    def until_said(self, member: str, beginning: str, times: int = 1) -> None:
        def said() -> bool:
            return sum(line.startswith(beginning) for line in self._lines(member)) >= times

        wait_until(said, LIMIT_S, f"{member} to say {beginning!r}", state=lambda: self._lines(member)[-5:])

    def own(self, partition: int) -> None:
        path = znodes.owner_path("g", "t", partition)
        if self._client.exists(path):
            self._client.delete(path)
        self._client.create(path, FOREIGNER.encode(), ephemeral=True, makepath=True)

    def on_fork(self, partition: int) -> None:
        self._client.delete(znodes.owner_path("g", "t", partition))

    def touch_topic(self) -> None:
        data, _ = self._client.get(znodes.topic_path("t"))
        self._client.set(znodes.topic_path("t"), data)

    def add_topic(self, name: str) -> None:
        self._client.create(znodes.topic_path(name), b'{"version":1,"partitions":{}}')
