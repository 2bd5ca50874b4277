"""Runs the consumers of confluent-kafka and kafka-python as members of groups that brokers coordinate."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.history.events import parse_event
from zkconsumer.testing.members.recorded_member import RecordedMember
from zkconsumer.testing.processes import ChildProcess

PROGRAM = Path(__file__).with_name("peer_program.py")


class PeerMember(RecordedMember):
    """One of them, in a process of its own.

    Args:
        kind: `confluent` or `kafka-python`.
        timing: Session, heartbeat and the others in milliseconds, by Kafka's names.
    """

    def __init__(
        self, cluster: Cluster, group: str, name: str, kind: str, *, bootstrap_servers: str, topic: str,
        assignor: str, timing: Mapping[str, object],
    ) -> None:  # fmt: skip
        super().__init__(cluster, group, name, id_prefix=kind, timeout_s=60.0)
        common = {
            "bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": name,
            "auto.offset.reset": "earliest", **timing,
        }  # fmt: skip
        settings = _of_confluent(common, assignor, cluster.version) if kind == "confluent" else _of_python(common)
        self._arguments = [kind, name, topic, json.dumps(settings)]

    def _launched(self) -> ChildProcess:
        command = [sys.executable, str(PROGRAM), *self._arguments]
        name = f"peer {self.consumer_id}"
        return ChildProcess(name, command, self.folder / "log", output_path=self._output, stdin=True)

    def _ask_to_leave(self) -> None:
        self.process.close_stdin()

    def _take(self, line: str) -> None:
        if not line.startswith("#"):
            self._events.append(parse_event(line))
        elif line.split(" ")[2] == "ready":
            self._ready = True


def _of_confluent(settings: Mapping[str, object], assignor: str, version: str) -> dict[str, object]:
    known = ("metadata.max.age.ms", "request.timeout.ms", "fetch.max.wait.ms")
    chosen = {name: value for name, value in settings.items() if name not in known}
    chosen |= {"partition.assignment.strategy": assignor, "topic.metadata.refresh.interval.ms": 2000}
    if version_tuple(version) < (0, 10):  # these brokers do not say what they serve
        chosen |= {"api.version.request": False, "broker.version.fallback": "0.9.0"}
    return chosen


def _of_python(settings: Mapping[str, object]) -> dict[str, object]:
    known = ("request.timeout.ms", "fetch.max.wait.ms", "max.poll.interval.ms")
    return {name.replace(".", "_"): value for name, value in settings.items() if name not in known}
