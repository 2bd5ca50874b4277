"""The servers of a cluster without ZooKeeper: a node that is broker and controller, or controllers next to brokers.

One real Kafka server in KRaft mode, without ZooKeeper, as a child process: broker, controller, or both.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from zkconsumer.testing.errors import NotSupported, StartFailed, WaitTimeout, require
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import probe
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.kafka.settings import (
    BROKER,
    CONTROLLER,
    FIRST_KRAFT,
    FIRST_WITHOUT_ZOOKEEPER,
    kraft_properties,
    version_tuple,
)
from zkconsumer.testing.processes import ChildProcess, free_port
from zkconsumer.testing.waiting import wait_until

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
"""The id of all clusters of the kit, 16 bytes as Kafka writes them."""
_META = "meta.properties"
_FORMATTED_BY = ("unstable.", "inter.broker.protocol.version")
"""The settings on which it depends what the format writes."""


class KraftNode(KafkaServerProcess):
    """One server of a `KafkaCluster` without ZooKeeper.

    Attributes:
        roles: `BROKER`, `CONTROLLER` or both.
        controller_port: where it listens as a controller.
    """

    def __init__(
        self, version: str, broker_id: int, folder: Path, roles: Sequence[str], *, port: int | None = None,
        heap_mb: int = 256, timeout_s: float = 90.0,
    ) -> None:  # fmt: skip
        """Prepare a server; see `KafkaCluster` for the arguments."""
        super().__init__(version, broker_id, folder, port=port, heap_mb=heap_mb, timeout_s=timeout_s)
        self.roles = tuple(roles)
        self.controller_port = free_port() if CONTROLLER in roles else None
        self._data = folder / "data"
        self._format: ChildProcess | None = None
        self._kept = maven.cache_folder() / "formatted" / version
        self._is_kept = False

    @property
    def kind(self) -> str:
        """Its name in errors."""
        return BROKER if BROKER in self.roles else CONTROLLER

    def properties(self, voters: Mapping[int, int], settings: Mapping[str, object]) -> dict[str, str]:
        """Its server.properties.

        Args:
            voters: port of each controller by its id.
            settings: override everything else; None as a value leaves a key out.
        """
        return kraft_properties(
            self.version, self.broker_id, self.roles, self.port, voters, self._data,
            advertised_port=self.advertised_port, secured_ports=self.secured_ports, settings=settings,
        )  # fmt: skip

    def format(self, jars: Sequence[Path], properties: Mapping[str, str], users: Sequence[str]) -> None:
        """Start to write the cluster's id into an empty data folder; one that has it already is left alone.

        The files of a version are kept in the cache, and copied the next time: its own tool takes a second of CPU time.

        Args:
            users: users of SCRAM, each as `StorageTool` takes it.
        """
        if (self._data / _META).exists():
            return
        self._is_kept = not users and not any(key.startswith(_FORMATTED_BY) for key in properties)
        if self._is_kept and self._kept.is_dir():
            shutil.copytree(self._kept, self._data, dirs_exist_ok=True)
            self._take_over()
            return
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.write_settings(properties))]
        for user in users:
            arguments += ["--add-scram", user]
        command = find_java().command(jars, "kafka.tools.StorageTool", arguments, flags=self.log_flags)
        name = f"the format of the data of {self.kind} {self.broker_id}"
        self._format = ChildProcess(name, command, self.folder / "format.log", directory=self.folder)

    def wait_formatted(self) -> None:
        """Return when that is done; StartFailed if it failed."""
        process, self._format = self._format, None
        if process is None:
            return
        try:
            code = process.wait(self.timeout_s)
        except WaitTimeout:
            process.kill()
            raise StartFailed(f"{process.name} took longer than {self.timeout_s:g} s\n{process.tail(40)}") from None
        if code:
            raise StartFailed(f"{process.name} ended with code {code}\n{process.tail(40)}")
        if self._is_kept:
            own = self._kept.with_name(f".{self.version}-{os.getpid()}")
            with suppress(OSError):  # nothing depends on it, and another one may have been faster
                shutil.copytree(self._data, own)
                own.rename(self._kept)
            shutil.rmtree(own, ignore_errors=True)

    def _take_over(self) -> None:
        """Give the copied folder of another node the id of this one, and an id of its own."""
        meta = self._data / _META
        text = re.sub(r"(?m)^node\.id=.*$", f"node.id={self.broker_id}", meta.read_text())
        folder_id = base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode()[:22]
        meta.write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={folder_id}", text))

    def wait_ready(self) -> None:
        """Return when it answers requests, and knows itself as a broker that leads partitions."""
        if BROKER in self.roles:
            self.wait(self._knows_itself)
        else:
            port = self.controller_port
            assert port is not None
            self.wait(lambda: kafka_probe.answers_versions(port))

    def _knows_itself(self) -> bool:
        try:
            return self.broker_id in probe.brokers_known(self.port)
        except OSError:
            return False


_LOWEST_CONTROLLER_ID = 1000


def no_zookeeper(version: str, what: str) -> NotSupported:
    """The refusal of what needs ZooKeeper."""
    return NotSupported(f"{what}: Kafka {version} runs in KRaft mode here, without ZooKeeper; use broker_list")


class BrokersOfKraft:
    """The brokers of a cluster without ZooKeeper, and its controllers.

    Attributes:
        brokers: by id.
        controllers: the servers that are controllers alone, by id.
    """

    def __init__(
        self, version: str, ports: Mapping[int, int], controllers: int, folder: Path, *, heap_mb: int, timeout_s: float
    ) -> None:
        """Prepare servers.

        Args:
            ports: of the brokers, by id.
            controllers: how many there are in addition to the brokers; 0: the broker of the lowest id is the
                controller, too.
        """
        self._version = version
        self._timeout_s = timeout_s
        options: dict[str, Any] = {"heap_mb": heap_mb, "timeout_s": timeout_s}
        roles = dict.fromkeys(ports, (BROKER,)) | ({} if controllers else {min(ports): (BROKER, CONTROLLER)})
        self.brokers = {
            n: KraftNode(version, n, folder / f"broker-{n}", roles[n], port=port, **options)
            for n, port in ports.items()
        }
        lowest = max(_LOWEST_CONTROLLER_ID, max(ports) + 1)
        self.controllers = {
            n: KraftNode(version, n, folder / f"controller-{n}", (CONTROLLER,), **options)
            for n in range(lowest, lowest + controllers)
        }
        self._nodes = {**self.controllers, **self.brokers}
        self._users: list[str] = []

    @property
    def client(self) -> KazooClient:
        """There is none: NotSupported."""
        raise no_zookeeper(self._version, "there is no ZooKeeper client")

    def prepare(self) -> None:
        """Nothing has to be there before the servers."""

    def set_scram_users(self, users: Mapping[str, Mapping[str, str]]) -> None:
        """Have users of SCRAM, mechanism -> password by name, from the first start on."""
        self._users = [
            f"{mechanism}=[name={name},password={password}]"
            for name, passwords in users.items() for mechanism, password in passwords.items()
        ]  # fmt: skip

    def reconnect(self) -> None:
        """There is nothing to connect to: NotSupported."""
        raise no_zookeeper(self._version, "there is no ZooKeeper client")

    def launch(self, ids: Sequence[int], jars: Sequence[Path], settings: Mapping[int, Mapping[str, object]]) -> None:
        """Start these brokers, and the controllers that do not run, without waiting for them.

        A new folder gets the id of the cluster first.

        Args:
            settings: by id, over the kit's own.
        """
        nodes = [node for node in self.controllers.values() if not node.running] + [self.brokers[n] for n in ids]
        voters = {n: node.controller_port for n, node in self._nodes.items() if node.controller_port is not None}
        properties = {node.broker_id: node.properties(voters, settings.get(node.broker_id, {})) for node in nodes}
        for node in nodes:
            node.format(jars, properties[node.broker_id], self._users)
        for node in nodes:
            node.wait_formatted()
        for node in reversed(nodes):  # a broker writes the archive of classes: it loads more of them than a controller
            node.run(jars, properties[node.broker_id])

    def wait_ready(self, broker_id: int) -> None:
        """Return when a broker answers and knows itself as alive."""
        self.brokers[broker_id].wait_ready()

    def wait_coordinated(self) -> None:
        """Return when all controllers answer."""
        for node in self.controllers.values():
            node.wait_ready()

    def wait_gone(self, broker_id: int) -> None:
        """Return when no other broker that runs knows this one as alive."""
        wait_until(lambda: not self._is_known(broker_id), self._timeout_s, f"broker {broker_id} to be known as gone")

    def _is_known(self, broker_id: int) -> bool:
        others = [each for n, each in self.brokers.items() if n != broker_id and each.running]
        return any(broker_id in probe.brokers_known(each.port) for each in others if not each.process.paused)

    def kill(self, broker_id: int, *, expire: bool) -> None:
        """SIGKILL one broker; NotSupported with `expire`, as there is no session that a client could end."""
        if expire:
            raise no_zookeeper(self._version, "a broker's session cannot be ended at once")
        self.brokers[broker_id].process.kill()

    def close(self) -> None:
        """Kill the controllers: their data is thrown away."""
        for node in self.controllers.values():
            node.close()


def check_mode(version: str, is_kraft: bool, asks_zookeeper: bool, controllers: int | None) -> None:
    """Return if brokers of this version can run with ZooKeeper, or without, as is asked for.

    Raises:
        NotSupported: they cannot.
        ValueError: controllers, or no ZooKeeper, are asked for together with ZooKeeper.
    """
    number = version_tuple(version)
    if is_kraft:
        require(version, FIRST_KRAFT, "a cluster without ZooKeeper")
        if asks_zookeeper:
            raise no_zookeeper(version, "zookeeper, zookeeper_port, chroot and login are for clusters with ZooKeeper")
    elif number >= FIRST_WITHOUT_ZOOKEEPER:
        raise NotSupported(f"kraft=False: Kafka {version} cannot run with ZooKeeper")
    elif controllers is not None:
        raise ValueError("controllers are for clusters without ZooKeeper; give kraft=True, too")
    if controllers is not None and controllers < 0:
        raise ValueError(f"{controllers} controllers: 0 or more are possible")
