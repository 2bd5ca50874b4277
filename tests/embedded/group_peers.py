"""Starts members of other people's libraries in processes of their own, and waits for what they say."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from zkconsumer.testing.embedded.cluster import VERSIONS, EmbeddedCluster
from zkconsumer.testing.java import find_java, maven
from zkconsumer.testing.waiting import wait_until

__all__ = ["PATIENCE_S", "SETTINGS", "Peer", "wait_shared"]

PATIENCE_S = 60.0
SETTINGS = {"group.min.session.timeout.ms": 500}
"""Of brokers: sessions of killed members end soon."""
SESSION_MS, HEARTBEAT_MS = 3000, 300
_SCRIPT, _SOURCE = Path(__file__).parent / "group_peer.py", Path(__file__).parent / "GroupPeer.java"
_OLD = {"0.9": ((0, 9), "0.9.0.1")}


def _confluent(cluster: EmbeddedCluster, group: str, generation: str, name: str, more: dict[str, Any]) -> Any:
    old = {"api.version.request": False, "broker.version.fallback": _OLD[generation][1]} if generation in _OLD else {}
    return {
        "bootstrap.servers": cluster.broker_list, "group.id": group, "client.id": name,
        "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS,
        "topic.metadata.refresh.interval.ms": 1000, **old, **more,
    }  # fmt: skip


def _kafka_python(cluster: EmbeddedCluster, group: str, generation: str, name: str, more: dict[str, Any]) -> Any:
    old = {"api_version": _OLD[generation][0]} if generation in _OLD else {}
    return {
        "bootstrap_servers": cluster.broker_list, "group_id": group, "client_id": name,
        "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS, "retry_backoff_ms": 100,
        "metadata_max_age_ms": 1000, **old, **more,
    }  # fmt: skip


def _java(cluster: EmbeddedCluster, group: str, generation: str, name: str, more: dict[str, Any]) -> Any:
    return {
        "bootstrap.servers": cluster.broker_list, "group.id": group, "client.id": name, "auto.offset.reset": "earliest",
        "enable.auto.commit": "false", "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS,
        "retry.backoff.ms": 100, "reconnect.backoff.ms": 100, "metadata.max.age.ms": 1000, **more,
    }  # fmt: skip


def _command(library: str, settings: dict[str, Any], topic: str, generation: str) -> list[str]:
    if library == "java":
        text = "\n".join(f"{name}={value}" for name, value in settings.items())
        return find_java().command(maven.jars(VERSIONS[generation]), str(_SOURCE), (text, topic))
    return [sys.executable, str(_SCRIPT), library, json.dumps(settings), topic]


class Peer:
    """One member.

    Attributes:
        name: Its client id.
        log: What it has written to standard error.
    """

    def __init__(
        self, library: str, cluster: EmbeddedCluster, group: str, topic: str, generation: str, name: str, **more: Any
    ) -> None:
        made = {"confluent": _confluent, "kafka": _kafka_python, "java": _java}[library]
        settings = made(cluster, group, generation, name, more)
        self.name = name
        self.log: list[str] = []
        self._said: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            _command(library, settings, topic, generation), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._hear), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self.log.append), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str], take: Any) -> None:
        for line in stream:
            take(line)

    def _hear(self, line: str) -> None:
        self._said.append(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    # -- what it says

    def all(self, kind: str) -> list[Any]:
        """Everything of a kind, in its order."""
        return [each[kind] for each in list(self._said) if kind in each]

    @property
    def assigned(self) -> list[int]:
        """The partitions that it has."""
        return [*[[]], *self.all("assigned")][-1]

    @property
    def texts(self) -> list[str]:
        """The messages that it got."""
        return [text for _, _, text in self.all("got")]

    def wait_assigned(self, partitions: list[int]) -> None:
        what = f"{self.name} to have {partitions}"
        wait_until(lambda: self.assigned == partitions, PATIENCE_S, what, state=self.state)

    def state(self) -> object:
        return self.assigned, self._said[-5:], "".join(self.log[-20:])

    # -- its end

    def leave(self) -> None:
        """End it in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0, "".join(self.log[-20:])
        self._finish()

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._finish()

    def _finish(self) -> None:
        for reader in self._readers:
            reader.join(PATIENCE_S)


def wait_shared(peers: list[Peer], partitions: int) -> None:
    """Return when each partition is one member's, and each member has one."""

    def is_shared() -> bool:
        held = [each.assigned for each in peers]
        return all(held) and sorted(number for each in held for number in each) == list(range(partitions))

    wait_until(is_shared, PATIENCE_S, "the partitions to be shared", state=lambda: [each.state() for each in peers])
