"""Real ZooKeeper servers as child processes, on loopback, in temporary folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import ClassArchive, find_java
from zkconsumer.testing.processes import ChildProcess, free_port, free_ports
from zkconsumer.testing.temporary_folders import remove_folder, temporary_folder
from zkconsumer.testing.waiting import Deadline, WithBlock, wait_until
from zkconsumer.testing.zookeeper import wire as zookeeper_wire
from zkconsumer.testing.zookeeper.wire import end_session as end_session

STANDALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
QUORUM = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# In the wheel of PySpark; the trailing digit matters, because `zookeeper-*` alone matches two files.
PYSPARK_JARS = (
    "zookeeper-3*", "zookeeper-jute-3*", "slf4j-api-*", "metrics-core-*", "snappy-java-*",
    "log4j-api-2*", "log4j-core-2*", "log4j-slf4j2-impl-2*",
)  # fmt: skip
DEFAULT_JARS = "zk-3.9"
LOG4J1 = """log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
LOG4J2 = """rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
"""
PORT_TRIES = 3


def pyspark_jars() -> list[Path] | None:
    """The jars of ZooKeeper 3.9 inside the installed pyspark; None if they are not all there.

    The package is found without being imported.
    """
    spec = find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        found = [sorted(Path(location, "jars").glob(f"{name}.jar")) for name in PYSPARK_JARS]
        if all(len(files) == 1 for files in found):
            return [files[0] for files in found]
    return None


def needs() -> str:
    """The needs of a server of the default version on this machine, jars that are here already left out."""
    return "Java for ZooKeeper" if pyspark_jars() is not None else f"{maven.needs_of(DEFAULT_JARS)} for ZooKeeper"


def default_jars() -> list[Path]:
    """The jars of ZooKeeper 3.9: those of the installed pyspark, else those of `zk-3.9`, fetched once (8 MB).

    Raises:
        MavenMissing: they cannot be fetched on this machine; names what to install.
    """
    return pyspark_jars() or maven.jars(DEFAULT_JARS)


@dataclass(frozen=True)
class Quorum:
    """A server's place in an ensemble: its number and the `server.N=` lines all members share."""

    number: int
    lines: str


class ZooKeeperServer(WithBlock):
    """A standalone ZooKeeper server in a JVM of its own, listening on 127.0.0.1 only.

    `with ZooKeeperServer() as server: KazooClient(server.connect)`. Outside a `with` block call `start()` and
    `close()`.
    """

    def __init__(
        self,
        *,
        version: str | None = None,
        tick_ms: int = 100,
        min_session_timeout_ms: int = 200,
        max_session_timeout_ms: int = 60_000,
        port: int | None = None,
        heap_mb: int = 64,
        fsync: bool = False,
        data: Path | None = None,
        settings: Mapping[str, object] | None = None,
        jvm_flags: Sequence[str] = (),
        quorum: Quorum | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Prepare a server; nothing runs before `start()`.

        Args:
            version: a pinned set of jars that holds a ZooKeeper (`zk-3.4.14`, `0.8.2.2`); None takes the ZooKeeper
                3.9 of the installed pyspark, else `zk-3.9`.
            tick_ms: the server looks for expired sessions once per tick; short, so that tests see them expire on time.
            min_session_timeout_ms: the shortest session time-out that the server grants.
            max_session_timeout_ms: the longest session time-out that the server grants.
            port: None chooses a free one; it stays the same over restarts.
            heap_mb: limit of the JVM's heap in MiB.
            fsync: wait for the disk on every write.
            data: folder for its data, made if need be and kept by `close()`; None takes a temporary one.
            settings: more lines of the configuration file.
            jvm_flags: more flags of the JVM, as for SASL.
            timeout_s: longest wait for the server to answer a handshake after a start.
        """
        self.version = version
        self.timeout_s = timeout_s
        self._chosen_port = port is None
        self.port = port or free_port()
        self._heap_mb = heap_mb
        self._fsync = fsync
        self._jvm_flags = tuple(jvm_flags)
        self._quorum = quorum
        self.folder = temporary_folder("zkconsumer-zookeeper-")
        seen = self.folder / "data"  # by ZooKeeper, which reads its configuration as Latin-1
        self._data = seen if data is None else data.absolute()
        if data is not None:
            seen.symlink_to(self._data)
        self._settings: dict[str, object] = {
            "tickTime": tick_ms,
            "minSessionTimeout": min_session_timeout_ms,
            "maxSessionTimeout": max_session_timeout_ms,
            "dataDir": seen,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",  # else it wants jetty and port 8080
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
            **(settings or {}),
        }
        self._keeps_data = data is not None
        self._process: ChildProcess | None = None
        self._archive: ClassArchive | None = None
        self._prepare()

    def _prepare(self) -> None:
        if self._quorum:
            self._data.mkdir(parents=True, exist_ok=True)
            (self._data / "myid").write_text(f"{self._quorum.number}\n")
        (self.folder / "log4j.properties").write_text(LOG4J1)
        (self.folder / "log4j2.properties").write_text(LOG4J2)

    # ---- where it is

    @property
    def connect(self) -> str:
        """Connect string for clients: `127.0.0.1:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> ChildProcess:
        """The running (or last) process.

        Raises:
            KitError: it was never started.
        """
        if self._process is None:
            raise KitError("this ZooKeeper server was never started")
        return self._process

    @property
    def running(self) -> bool:
        """True while its process exists, paused or not."""
        return self._process is not None and self._process.running

    def log(self, lines: int = 40) -> str:
        """The last lines of its log."""
        return self.process.tail(lines)

    # ---- start and end

    def start(self) -> Self:
        """Start, or start again on the same port and data; returns when sessions can be opened.

        Raises:
            JavaMissing, MavenMissing: see there.
            StartFailed: the server ended or did not answer in time; carries the end of its log.
        """
        for attempt in range(1, PORT_TRIES + 1):
            self.launch()
            try:
                self.wait_ready()
            except StartFailed as error:
                taken = "Address already in use" in str(error)
                if not (taken and self._chosen_port and self._quorum is None and attempt < PORT_TRIES):
                    raise
                self.port = free_port()
            else:
                self._chosen_port = False  # from now on clients know this port
                break
        return self

    def launch(self) -> None:
        """Start the process without waiting for it; `wait_ready()` must follow."""
        if self.running:
            raise KitError(f"ZooKeeper at {self.connect} runs already")
        self._data.mkdir(parents=True, exist_ok=True)
        configuration = {**self._settings, "clientPort": self.port}
        text = "".join(f"{key}={value}\n" for key, value in configuration.items())
        (self.folder / "zoo.cfg").write_text(text + (self._quorum.lines if self._quorum else ""))
        java, jars = find_java(), self._jars()
        self._archive = None  # the last one, which may still have the lock
        self._archive = ClassArchive(java, jars, self.folder)
        command = java.command(
            jars,
            QUORUM if self._quorum else STANDALONE,
            [str(self.folder / "zoo.cfg")],
            heap_mb=self._heap_mb,
            flags=(
                "-Xss256k",
                f"-Dlog4j.configuration=file:{self.folder}/log4j.properties",
                f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties",
                "-Dlog4j2.disableJmx=true",
                "-Dzookeeper.jmx.log4j.disable=true",
                f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}",
                *self._archive.flags,
                *self._jvm_flags,
            ),
        )
        self._process = ChildProcess(f"ZooKeeper at {self.connect}", command, self.folder / "server.log")

    def _jars(self) -> Sequence[Path]:
        return default_jars() if self.version is None else maven.jars(self.version)

    def wait_ready(self) -> None:
        """Return when the server answers a session handshake.

        A connectable port, or `imok`, is not enough: sessions opened right after those were seen to be dropped.
        """
        process, deadline = self.process, Deadline(self.timeout_s)

        def answers() -> bool:
            if not process.running:
                raise StartFailed(f"{process.name} ended with code {process.returncode}\n{process.tail()}")
            if deadline.expired:
                raise StartFailed(f"{process.name} did not answer within {self.timeout_s:g} s\n{process.tail()}")
            return self.accepts_sessions() and self._is_itself()

        wait_until(answers, self.timeout_s + 5, f"{process.name} to accept sessions")

    def accepts_sessions(self, timeout_s: float = 1.0) -> bool:
        """True if a new session can be opened (and closed again) now."""
        try:
            zookeeper_wire.handshake("127.0.0.1", self.port, timeout_s=timeout_s)
        except OSError:
            return False
        return True

    def _is_itself(self) -> bool:
        """Whether the server that answers on the port has this one's data: another process may have been faster.

        One that does not say where its data are, or says it in letters that are lost on the way, counts as this one.
        """
        try:
            lines = self.four_letter("conf").splitlines()
            said = next((Path(line.partition("=")[2]) for line in lines if line.startswith("dataDir=")), None)
            return said is None or not said.is_dir() or said.parent.samefile(self._data)
        except OSError:
            return False

    def stop(self) -> None:
        """Orderly end (SIGTERM); data and port are kept for `start()`."""
        if self._process is not None:
            self._process.stop()
            if self._archive is not None:
                self._archive.keep(self._process.returncode)

    def kill(self) -> None:
        """SIGKILL; data and port are kept for `start()`."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: sockets stay open, nothing is answered, no session expires before `resume()`."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT. The server's clock went on, so sessions whose time ran out meanwhile expire now.

        A client that reconnects in that moment may be served first and keep its session: end it by `end_session()`,
        or cut the client off by a proxy, where a test needs the one or the other for certain.
        """
        self.process.resume()

    def restart(self) -> None:
        """`stop()` and `start()`."""
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Lose all data, as after a disk failure: end the server, empty its data folder, start it again if it ran."""
        ran = self.running
        if ran:
            self.kill()
        shutil.rmtree(self._data)
        self._prepare()
        if ran:
            self.start()

    def close(self) -> None:
        """End the server and remove its folder; one whose data goes with it is ended at once."""
        try:
            is_needed = self._keeps_data or (self._archive is not None and self._archive.is_to_be_written)
            if self.running and not is_needed:
                self.kill()
            else:
                self.stop()
        finally:
            remove_folder(self.folder)

    def _enter(self) -> object:
        return self.start()

    # ---- questions and sessions

    def four_letter(self, word: str) -> str:
        """The answer to a four-letter word (`srvr`, `mntr`, ...); OSError if there is none."""
        return zookeeper_wire.four_letter("127.0.0.1", self.port, word)

    @property
    def mode(self) -> str | None:
        """`standalone`, `leader`, `follower`, or None while it serves no client."""
        try:
            lines = self.four_letter("srvr").splitlines()
        except OSError:
            return None
        return next((line.partition(": ")[2] for line in lines if line.startswith("Mode: ")), None)

    def end_session(self, session_id: int) -> None:
        """Close any session by its id alone; see `zookeeper_wire.end_session`."""
        end_session(self.connect, session_id)


class ZooKeeperEnsemble(WithBlock):
    """Several ZooKeeper servers that replicate.

    `members[i]` is a `ZooKeeperServer`, to be stopped, killed or paused alone.
    """

    def __init__(self, size: int = 3, *, tick_ms: int = 100, timeout_s: float = 90.0, **options: Any) -> None:
        """Prepare `size` servers; other options are those of `ZooKeeperServer`.

        Raises:
            ValueError: fewer than two servers.
        """
        if size < 2:
            raise ValueError(f"an ensemble of {size}: at least 2 servers are needed")
        ports = free_ports(3 * size)
        lines = "".join(f"server.{n + 1}=127.0.0.1:{ports[3 * n]}:{ports[3 * n + 1]}\n" for n in range(size))
        lines += "initLimit=100\nsyncLimit=20\nstandaloneEnabled=false\n"
        self.timeout_s = timeout_s
        self.members = [
            ZooKeeperServer(

                port=ports[3 * n + 2], tick_ms=tick_ms, timeout_s=timeout_s, quorum=Quorum(n + 1, lines), **options
            )
            for n in range(size)
        ]  # fmt: skip

    @property
    def connect(self) -> str:
        """Connect string with all members."""
        return ",".join(member.connect for member in self.members)

    def start(self) -> Self:
        """Start all members together; returns when each of them accepts sessions."""
        for member in self.members:
            if not member.running:
                member.launch()
        for member in self.members:
            member.wait_ready()
        return self

    def __iter__(self) -> Iterator[ZooKeeperServer]:
        return iter(self.members)

    def leader(self) -> ZooKeeperServer:
        """The member that leads now, waited for.

        Raises:
            WaitTimeout: no member leads within the ensemble's time-out.
        """
        return wait_until(
            lambda: next((member for member in self.members if member.running and member.mode == "leader"), None),
            self.timeout_s,
            "a leader of the ensemble",
            state=lambda: [member.mode for member in self.members],
        )  # type: ignore[return-value]

    def followers(self) -> list[ZooKeeperServer]:
        """The members that follow now."""
        return [member for member in self.members if member.running and member.mode == "follower"]

    def end_session(self, session_id: int) -> None:
        """Close any session by its id alone."""
        end_session(self.connect, session_id)

    def close(self) -> None:
        """End all members and remove their folders."""
        for member in self.members:
            if member.running:
                member.kill()  # a quorum is not needed any more, so that an orderly end of each would only cost time
        for member in self.members:
            member.close()

    def _enter(self) -> object:
        return self.start()
