"""Members of kafka-node 3.0.1, whose HighLevelConsumer coordinates through ZooKeeper, in one group with ours."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import environ
from pathlib import Path
from typing import Any

from fault_players import COMMIT_S, SESSION_S, Player
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from mixed_stage import MixedStage, open_mixed_stage

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.limits import Finding
from zkconsumer.testing.java.maven import cache_folder, file_lock
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.group_watch import Owner

VERSION = "3.0.1"
PROGRAM = Path(__file__).with_name("mixed_node.js")
INSTALL_S = 300.0
READY_S = 30.0


def missing_tools() -> list[str]:
    """What is needed for kafka-node and is not on this machine."""
    return [tool for tool in ("node", "npm") if shutil.which(tool) is None]


def kafka_node() -> Path:
    """The folder of kafka-node's modules, which npm fetches once.

    Raises:
        KitError: there is no node or npm, or npm failed.
    """
    if missing := missing_tools():
        raise KitError(f"kafka-node needs Node; not found: {', '.join(missing)}")
    folder = cache_folder() / f"kafka-node-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f"{folder.name}.lock"), timeout_s=INSTALL_S):
        if not folder.is_dir():
            _install(folder)
    return folder / "node_modules"


def _install(folder: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix=".kafka-node-", dir=folder.parent))
    try:
        command = ["npm", "install", "--no-audit", "--no-fund", "--omit=optional", "--prefix", str(work)]
        ran = subprocess.run(
            [*command, f"kafka-node@{VERSION}"], capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
        if ran.returncode != 0:
            raise KitError(f"npm could not install kafka-node {VERSION}:\n{ran.stderr[-2000:]}")
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


class NodePlayer(Player):
    """A member of kafka-node."""

    kind = "kafka-node"

    def __init__(self, cluster: KafkaCluster, group: str, name: str) -> None:
        super().__init__(cluster, group, name)
        self.folder = Path(tempfile.mkdtemp(prefix=f"zkconsumer-node-{name}-"))
        self._process: ChildProcess | None = None
        self._output = self.folder / "output"

    @property
    def process(self) -> ChildProcess:
        if self._process is None:
            raise KitError(f"{self.name} was never launched")
        return self._process

    def launch(self, asked: Mapping[str, Any], work_ms: int, settings: dict[str, object]) -> None:
        self.expected = True
        [topic] = asked["topics"]
        times = [str(int(seconds * 1000)) for seconds in (SESSION_S, COMMIT_S)]
        self._process = ChildProcess(
            f"kafka-node {self.id}",
            ["node", str(PROGRAM), self.link.address, self.group, self.id, topic, *times],
            self.folder / "log", output_path=self._output, directory=self.folder,
            environment={**environ, "NODE_PATH": str(kafka_node())},
        )  # fmt: skip

    def _lines(self, kind: str) -> list[list[str]]:
        if not self._output.exists():
            return []
        whole = self._output.read_text().rpartition("\n")[0].splitlines()
        return [fields[1:] for fields in (line.split("\t") for line in whole) if fields[0] == kind]

    def wait_ready(self) -> None:
        wait_until(lambda: self._lines("R"), READY_S, f"{self.name} to have its share", state=self.process.tail)

    def begin_to_leave(self) -> None:
        self.expected = False
        self.process.signal(15)

    def session_id(self, client: KazooClient) -> int:
        """Id of its session, 0 while its registration is not there, or still empty: it is filled after a while."""
        try:
            data, stat = client.get(f"/consumers/{self.group}/ids/{self.id}")
        except NoNodeError:
            return 0
        return int(stat.ephemeralOwner) if data else 0

    @property
    def gave_up(self) -> int:
        """How often its tries were exhausted."""
        return len(self._lines("G"))

    @property
    def errors(self) -> list[str]:
        """What else it complained of."""
        return [text for _, text in self._lines("E")]

    def events(self) -> list[Event]:
        delivered = [
            Event(int(at), "deliver", self.name, topic, int(partition), int(offset), value)
            for at, topic, partition, offset, value in self._lines("D")
        ]
        return [*delivered, *self._ends]

    def close(self) -> None:
        if self._process is not None and self._process.running:
            self._process.kill()
        super().close()


@dataclass
class NodeStage(MixedStage):
    """A group whose members named k1, k2 are kafka-node's. Their owner nodes name the member and no thread."""

    most_again: int = 1000  # it commits first, and then delivers what it has fetched

    def _prepare(self, name: str, kind: str) -> Player:
        if kind != NodePlayer.kind:
            return super()._prepare(name, kind)
        player = NodePlayer(self.cluster, self.group, name)
        self.players.append(player)
        return player

    def kind_of(self, name: str) -> str:
        return NodePlayer.kind if self.is_java_alone or name.startswith("k") else "ours"

    @property
    def java(self) -> list[Any]:
        """The members whose violations are not ours."""
        return [player for player in self.players if isinstance(player, NodePlayer)]

    def blamed(self) -> list[Finding]:
        """As beside Java, but for offsets that went back: kafka-node commits late, and through a broker, unseen."""
        return [finding for finding in super().blamed() if finding.check != "offset went back"]

    @property
    def failed_tries(self) -> int:
        """Not reported by kafka-node."""
        return 0

    def _owners(self) -> dict[Place, Owner]:
        members = {player.id for player in self.java}
        return {
            place: replace(owner, thread_id=f"{owner.thread_id}-0") if owner.thread_id in members else owner
            for place, owner in super()._owners().items()
        }


@contextmanager
def beside_kafka_node(cluster: KafkaCluster, cast: str) -> Iterator[MixedStage]:
    """One topic, one stream each, for kafka-node takes every stream for a member; both sides come, go and die."""
    topic = f"n{uuid.uuid4().hex[:8]}"
    asked = {"topics": {topic: 1}}
    with open_mixed_stage(cluster, cast, "range", {topic: 12}, {}, NodeStage) as stage:
        for name in ("k1", "a", "k2", "b"):
            stage.join(name, asked)
        for name in ("a", "k1"):
            stage.leave(name)
        for name in ("a", "k1"):
            stage.join(name, asked)
        stage.end_session("a")
        for name in ("b", "k2"):
            stage.kill(name)
        stage.settle()
        yield stage
