"""A Kafka server, broker or controller, as a child process: its folder, port, files and start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.java.runtime import ClassArchive, find_java
from zkconsumer.testing.processes import ChildProcess, free_port, free_ports
from zkconsumer.testing.waiting import Deadline, wait_until

LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
SIMPLE_LOGGER = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true")
"""The logging settings of Kafka 4 in the kit; without them, the server does not say why it ends."""


class KafkaServerProcess:
    """One server of a `KafkaCluster`.

    Attributes:
        version: of Kafka.
        broker_id: its id among brokers and controllers.
        folder: holds its settings, data and log.
        port: where it listens.
        advertised_port: the port that clients get instead of `port`, from its next start on.
        secured_ports: port of each listener other than the plain one, by its protocol.
        jvm_flags: of its JVM, more than the kit's own.
        heap_mb: heap limit in MiB.
        timeout_s: longest start.
    """

    def __init__(
        self,
        version: str,
        broker_id: int,
        folder: Path,
        *,
        port: int | None = None,
        advertised_port: int | None = None,
        heap_mb: int = 256,
        timeout_s: float = 90.0,
    ) -> None:
        """Prepare a server; see `KafkaCluster` for the arguments."""
        self.version = version
        self.broker_id = broker_id
        self.folder = folder
        self.port = port or free_port()
        self.advertised_port = advertised_port
        self.secured_ports: dict[str, int] = {}
        self.jvm_flags: tuple[str, ...] = ()
        self.heap_mb = heap_mb
        self.timeout_s = timeout_s
        self._process: ChildProcess | None = None
        self._archive: ClassArchive | None = None
        self._deadline = Deadline(timeout_s)
        folder.mkdir(parents=True)
        (folder / "log4j.properties").write_text(LOG4J)

    def choose_secured_ports(self, protocols: Sequence[str]) -> None:
        """Take free ports for listeners of these protocols, in addition to the plain one."""
        self.secured_ports = dict(zip(protocols, free_ports(len(protocols)), strict=True))

    @property
    def process(self) -> ChildProcess:
        """The running (or last) process; KitError if it was never started."""
        if self._process is None:
            raise KitError(f"broker {self.broker_id} was never started")
        return self._process

    @property
    def running(self) -> bool:
        """True while its process exists, paused or not."""
        return self._process is not None and self._process.running

    @property
    def address(self) -> str:
        """`host:port` as advertised to clients."""
        return f"127.0.0.1:{self.advertised_port or self.port}"

    @property
    def kind(self) -> str:
        """Its name in errors."""
        return "broker"

    @property
    def log_flags(self) -> tuple[str, ...]:
        """The flags of its JVM that make it log to standard error."""
        return (f"-Dlog4j.configuration=file:{self.folder}/log4j.properties", *SIMPLE_LOGGER)

    def write_settings(self, properties: Mapping[str, str]) -> Path:
        """Path of a new `server.properties`, which nobody else may read."""
        path = self.folder / "server.properties"
        path.touch(0o600)
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def run(self, jars: Sequence[Path], properties: Mapping[str, str], flags: Sequence[str] = ()) -> None:
        """Start the process without waiting for it; KitError if it runs."""
        if self.running:
            raise KitError(f"{self.kind} {self.broker_id} runs already")
        java = find_java()
        self._archive = None  # the last one, which may still have the lock
        self._archive = ClassArchive(java, jars, self.folder)
        command = java.command(
            jars, "kafka.Kafka", [str(self.write_settings(properties))], heap_mb=self.heap_mb,
            flags=(*self.log_flags, *self._archive.flags, *self.jvm_flags, *flags),
        )  # fmt: skip
        self._deadline = Deadline(self.timeout_s)
        name = f"{self.kind} {self.broker_id} (Kafka {self.version}, port {self.port})"
        self._process = ChildProcess(name, command, self.folder / "server.log", directory=self.folder)

    def stop(self, timeout_s: float = 15.0) -> None:
        """End it in order (SIGTERM), or kill it if that takes too long; returns when its process is gone."""
        self.process.stop(timeout_s)
        if self._archive is not None:
            self._archive.keep(self.process.returncode)

    def close(self) -> None:
        """End it if it runs. Its data is thrown away, so it is killed, unless it is to write an archive of classes."""
        if not self.running:
            return
        if self._archive is not None and self._archive.is_to_be_written:
            self.stop(timeout_s=60.0)
        else:
            self.process.kill()

    def wait(self, is_ready: Callable[[], bool]) -> None:
        """Return when the condition holds.

        Raises:
            StartFailed: the process has ended, or it took too long; carries the end of its log.
        """
        process = self.process

        def ready() -> bool:
            if not process.running:
                raise StartFailed(f"{process.name} ended with code {process.returncode}\n{process.tail(40)}")
            if self._deadline.expired:
                raise StartFailed(f"{process.name} was not ready within {self.timeout_s:g} s\n{process.tail(40)}")
            return is_ready()

        wait_until(ready, self.timeout_s + 5, f"{process.name} to answer")
