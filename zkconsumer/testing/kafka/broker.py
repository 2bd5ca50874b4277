"""One real Kafka broker as a child process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.settings import broker_properties, version_tuple
from zkconsumer.testing.processes import ChildProcess, free_port
from zkconsumer.testing.waiting import Deadline, wait_until
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.wire import end_session

LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaBroker:
    """One broker of a `KafkaCluster`: its ports, folder, process."""

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
        """Prepare a broker; see `KafkaCluster` for the arguments."""
        self.version = version
        self.broker_id = broker_id
        self.folder = folder
        self.port = port or free_port()
        self.advertised_port = advertised_port
        self.heap_mb = heap_mb
        self.timeout_s = timeout_s
        self._process: ChildProcess | None = None
        self._deadline = Deadline(timeout_s)
        folder.mkdir(parents=True)
        (folder / "log4j.properties").write_text(LOG4J)

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
    def id_path(self) -> str:
        """Its node in ZooKeeper."""
        return f"/brokers/ids/{self.broker_id}"

    def launch(
        self, jars: Sequence[Path], zookeeper_connect: str, settings: Mapping[str, object], client: KazooClient,
        login: ZooKeeperLogin | None = None,
    ) -> None:
        """Start the process without waiting for it.

        The id node a killed predecessor left is removed first, by ending its session: a broker that finds its own id
        taken gives up, or waits for the session time-out, depending on the version.
        """
        if self.running:
            raise KitError(f"broker {self.broker_id} runs already")
        stat = client.exists(self.id_path)
        if stat is not None and stat.ephemeralOwner:
            end_session(zookeeper_connect, stat.ephemeralOwner, tls=None if login is None else login.tls())
        properties = broker_properties(
            self.version,
            self.broker_id,
            self.port,
            zookeeper_connect,
            self.folder / "data",
            advertised_port=self.advertised_port,
            settings={**({} if login is None else login.kafka_settings()), **settings},
        )
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.folder / "server.properties").write_text(text)
        command = find_java().command(
            jars,
            "kafka.Kafka",
            [str(self.folder / "server.properties")],
            heap_mb=self.heap_mb,
            flags=(f"-Dlog4j.configuration=file:{self.folder}/log4j.properties",
                   *(() if login is None else login.jvm_flags(self.folder))),
        )
        self._deadline = Deadline(self.timeout_s)
        name = f"broker {self.broker_id} (Kafka {self.version}, port {self.port})"
        self._process = ChildProcess(name, command, self.folder / "server.log", directory=self.folder)

    def wait_ready(self, client: KazooClient) -> None:
        """Return when the id node is there and a real request is answered.

        Both, because some versions register before they listen.
        """
        process = self.process
        generation_07 = version_tuple(self.version) < (0, 8)

        def ready() -> bool:
            if not process.running:
                raise StartFailed(f"{process.name} ended with code {process.returncode}\n{process.tail(40)}")
            if self._deadline.expired:
                raise StartFailed(f"{process.name} was not ready within {self.timeout_s:g} s\n{process.tail(40)}")
            return self.registered(client) and kafka_probe.answers(self.port, generation_07)

        wait_until(ready, self.timeout_s + 5, f"{process.name} to answer")
        if self.advertised_port is not None and version_tuple(self.version) < (0, 8, 1):
            self._advertise_in_zookeeper(client)

    def registered(self, client: KazooClient) -> bool:
        """True while its id node exists."""
        return client.exists(self.id_path) is not None

    def _advertise_in_zookeeper(self, client: KazooClient) -> None:
        """0.7 and 0.8.0 have no setting for it, but all that clients learn comes from this node."""
        data, stat = client.get(self.id_path)
        if version_tuple(self.version) < (0, 8):
            text = data.decode().rpartition(":")[0] + f":{self.advertised_port}"
        else:
            text = json.dumps({**json.loads(data), "port": self.advertised_port})
        client.set(self.id_path, text.encode(), version=stat.version)

    def wait_gone(self, client: KazooClient, timeout_s: float) -> None:
        """Return when its id node is gone."""
        wait_until(lambda: not self.registered(client), timeout_s, f"{self.id_path} to vanish")

    def session_id(self, client: KazooClient) -> int:
        """Id of its ZooKeeper session; KitError while it is not registered."""
        try:
            _, stat = client.get(self.id_path)
        except NoNodeError:
            raise KitError(f"broker {self.broker_id} is not registered") from None
        return int(stat.ephemeralOwner)
