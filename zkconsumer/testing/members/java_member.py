"""Runs Kafka's own Java high-level consumer as a member of a group, for tests of mixed groups."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kazoo.exceptions import NoNodeError

from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import KitError, NotSupported, StartFailed
from zkconsumer.testing.history.events import Event
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import Java, find_java
from zkconsumer.testing.kafka.broker import LOG4J
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

SOURCE = Path(__file__).with_name("Member.java")
FIRST_VERSION, LAST_VERSION = (0, 8, 0), (1, 1, 1)
COMPILE_TIMEOUT_S = 120.0
DEFAULTS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": 6000,
    "zookeeper.sync.time.ms": 200,
    "auto.commit.interval.ms": 1000,
    "auto.offset.reset": "smallest",
}
# Kafka 0.8.0 to 1.1.1, ZookeeperConsumerConnector.scala, all with the same words
ATTEMPT = re.compile(r"begin rebalancing consumer .* try #\d+")
FAILED_ATTEMPT = re.compile(r"Rebalancing attempt failed")
GAVE_UP = re.compile(r"can't rebalance after \d+ retries")
CONFLICT = re.compile(r"waiting for the partition ownership to be deleted")


@dataclass(frozen=True)
class Delivered:
    """A message the member's application got: when (CLOCK_MONOTONIC, ns), from where, in which of its streams."""

    time_ns: int
    topic: str
    partition: int
    offset: int
    stream: int
    value: bytes | None


class JavaMember:
    """A running Java consumer of the cluster's version, with the streams it was asked for.

    Kafka 0.8.0 to 1.1.1. `with JavaMember(cluster, "group", topics={"t": 2}) as member: member.wait_messages(100)`.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        topics: Mapping[str, int] | None = None,
        whitelist: str | None = None,
        blacklist: str | None = None,
        streams: int = 1,
        consumer_id: str | None = None,
        settings: Mapping[str, object] | None = None,
        zookeeper_connect: str | None = None,
        pause_ms: int = 0,
        heap_mb: int = 128,
        timeout_s: float = 60.0,
    ) -> None:
        """Prepare a member; `start()` (or the `with` block) starts it.

        Args:
            topics: topic -> number of streams; or
            whitelist: a filter, with `streams` streams; or
            blacklist: a filter, with `streams` streams.
            consumer_id: the name behind `group_`; None makes one up.
            settings: consumer properties over the kit's (session 6 s, commit every second, reset to the smallest
                offset).
            zookeeper_connect: instead of the cluster's, for example a proxy's address and the chroot.
            pause_ms: how long the application works on each message, in milliseconds.
            timeout_s: longest wait for the streams to be created.

        Raises:
            NotSupported: the cluster's version has no such consumer.
            ValueError: not exactly one of topics, whitelist and blacklist.
        """
        if not FIRST_VERSION <= version_tuple(cluster.version) <= LAST_VERSION:
            raise NotSupported(f"a Java high-level consumer exists in Kafka 0.8.0 to 1.1.1, this is {cluster.version}")
        asked = {"topics": topics, "whitelist": whitelist, "blacklist": blacklist}
        chosen = [(kind, value) for kind, value in asked.items() if value is not None]
        if len(chosen) != 1:
            raise ValueError(f"one of topics, whitelist, blacklist is needed, not {[kind for kind, _ in chosen]}")
        kind, value = chosen[0]
        spec = ",".join(f"{topic}={count}" for topic, count in value.items()) if isinstance(value, Mapping) else value
        self._arguments = [kind, str(spec), str(streams), str(pause_ms)]
        self.cluster = cluster
        self.group = group
        self.consumer_id = consumer_id or f"java-{uuid.uuid4().hex[:8]}"
        self.timeout_s = timeout_s
        self._heap_mb = heap_mb
        self._properties = {
            **DEFAULTS,
            "zookeeper.connect": zookeeper_connect or cluster.zookeeper_connect,
            "group.id": group,
            "consumer.id": self.consumer_id,
            **(settings or {}),
        }
        self.folder = Path(tempfile.mkdtemp(prefix="zkconsumer-java-member-"))
        self._output = self.folder / "output"
        self._process: ChildProcess | None = None
        self._read_bytes = 0
        self._ready = False
        self._messages: list[Delivered] = []
        self._stream_errors: list[str] = []

    # ---- identity

    @property
    def id(self) -> str:
        """Its name in the group, `<group>_<consumer_id>`; its threads are `<id>-0`, `<id>-1`, ..."""
        return f"{self.group}_{self.consumer_id}"

    @property
    def registration_path(self) -> str:
        """Its node in ZooKeeper, inside the cluster's chroot."""
        return f"/consumers/{self.group}/ids/{self.id}"

    def session_id(self) -> int:
        """Id of its ZooKeeper session, to be ended by `end_session`; KitError while it is not registered."""
        try:
            _, stat = self.cluster.client.get(self.registration_path)
        except NoNodeError:
            raise KitError(f"{self.id} is not registered") from None
        return int(stat.ephemeralOwner)

    # ---- start and end

    @property
    def process(self) -> ChildProcess:
        """The running (or last) process; KitError if it was never started."""
        if self._process is None:
            raise KitError(f"{self.id} was never started")
        return self._process

    def launch(self) -> None:
        """Start the process without waiting for it."""
        text = "".join(f"{key}={value}\n" for key, value in self._properties.items())
        (self.folder / "consumer.properties").write_text(text)
        (self.folder / "log4j.properties").write_text(LOG4J)
        jars, java = maven.jars(self.cluster.version), find_java()
        main, classpath = _program(java, self.cluster.version, jars)
        command = java.command(
            classpath,
            main,
            [str(self.folder / "consumer.properties"), *self._arguments],
            heap_mb=self._heap_mb,
            flags=(f"-Dlog4j.configuration=file:{self.folder}/log4j.properties",),
        )
        log = self.folder / "member.log"
        self._process = ChildProcess(
            f"Java member {self.id}", command, log, output_path=self._output, directory=self.folder, stdin=True
        )

    @property
    def is_ready(self) -> bool:
        """Whether its streams exist."""
        self._read()
        return self._ready

    def wait_ready(self) -> None:
        """Return when its streams exist, that is after its first rebalance.

        Raises:
            StartFailed: it ended, or was not ready in time; carries the end of its log.
        """

        def ready() -> bool:
            self._read()
            if not self._ready and not self.process.running:
                raise StartFailed(f"{self.process.name} ended: {self.process.returncode}\n{self.process.tail(40)}")
            return self._ready

        wait_until(ready, self.timeout_s, f"{self.id} to create its streams", state=lambda: self.process.tail(10))

    def start(self) -> Self:
        """`launch()` and `wait_ready()`."""
        self.launch()
        self.wait_ready()
        return self

    def stop(self, timeout_s: float = 30.0) -> None:
        """Leave the group in order: `shutdown()` of the consumer, which commits and releases.

        Raises:
            WaitTimeout: shutdown() did not return within `timeout_s` seconds.
        """
        if self.process.paused:
            self.process.resume()
        self.process.close_stdin()
        self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL: nothing is committed, the session runs out by itself."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP, like a long garbage collection."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        self.process.resume()

    def close(self) -> None:
        """Kill it if it still runs, and remove its folder (so read its log and messages before)."""
        if self._process is not None and self._process.running:
            self._process.kill()
        self._read()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what it did

    @property
    def messages(self) -> list[Delivered]:
        """Everything delivered so far, in order of its output."""
        self._read()
        return list(self._messages)

    @property
    def stream_errors(self) -> list[str]:
        """Exceptions that ended a stream, as text."""
        self._read()
        return list(self._stream_errors)

    def events(self) -> list[Event]:
        """What was delivered, for `check_history`; the value is in `id`, escaped where not ASCII."""
        return [
            Event(
                each.time_ns,
                "deliver",
                self.id,
                each.topic,
                each.partition,
                each.offset,
                (each.value or b"").decode("ascii", "backslashreplace"),
            )
            for each in self.messages
        ]

    def wait_messages(self, count: int, timeout_s: float = 30.0) -> list[Delivered]:
        """All messages so far, once there are at least `count`; WaitTimeout otherwise."""
        wait_until(
            lambda: len(self.messages) >= count,
            timeout_s,
            f"{count} messages at {self.id}",
            state=lambda: len(self._messages),
        )
        return self.messages

    def log(self) -> str:
        """Its whole log."""
        return self.process.log_path.read_text(errors="replace")

    @property
    def rebalance_attempts(self) -> int:
        """How many rebalances it started."""
        return len(ATTEMPT.findall(self.log()))

    @property
    def rebalance_failures(self) -> int:
        """How many single attempts failed; some are normal in every change of a group."""
        return len(FAILED_ATTEMPT.findall(self.log()))

    @property
    def conflicts(self) -> int:
        """How often it found a partition it should own still owned by another."""
        return len(CONFLICT.findall(self.log()))

    @property
    def gave_up(self) -> int:
        """How often it used up all its attempts, which leaves its partitions unread: it must never be our fault."""
        return len(GAVE_UP.findall(self.log()))

    def _read(self) -> None:
        """Take the complete lines its output has grown by."""
        try:
            with self._output.open("rb") as output:
                output.seek(self._read_bytes)
                data = output.read()
        except FileNotFoundError:
            return
        end = data.rfind(b"\n") + 1
        self._read_bytes += end
        for line in data[:end].decode().splitlines():
            kind, time_ns, *fields = line.split("\t")
            if kind == "D":
                topic, partition, offset, stream, text = fields
                value = None if text == "-" else base64.b64decode(text)
                self._messages.append(Delivered(int(time_ns), topic, int(partition), int(offset), int(stream), value))
            elif kind == "E":
                self._stream_errors.append(fields[0])
            elif kind == "R":
                self._ready = True


def _program(java: Java, version: str, jars: Sequence[Path]) -> tuple[str, list[Path]]:
    """Main class (or source file) and class path of the member program for a version.

    With a compiler the class is made once and cached; without one the source is launched, which costs a second each
    time.
    """
    if java.compiler is None:
        return str(SOURCE), list(jars)
    key = f"{version}-java{java.version}-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"
    folder = maven.cache_folder() / "members" / key
    with maven.file_lock(folder.with_name(f"{key}.lock"), timeout_s=COMPILE_TIMEOUT_S):
        if not folder.is_dir():
            _compile(java.compiler, jars, folder)
    return "Member", [folder, *jars]


def _compile(compiler: Path, jars: Sequence[Path], folder: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix=".compile-", dir=folder.parent))
    try:
        command = [str(compiler), "-nowarn", "-cp", ":".join(map(str, jars)), "-d", str(work), str(SOURCE)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if ran.returncode != 0:
            raise StartFailed(f"{SOURCE.name} does not compile (exit code {ran.returncode}):\n{ran.stderr[-2000:]}")
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
