"""One real Kafka server in KRaft mode, without ZooKeeper, as a child process: broker, controller, or both."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from zkconsumer.testing.errors import StartFailed, WaitTimeout
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import control_requests
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.kafka.settings import BROKER, CONTROLLER, kraft_properties
from zkconsumer.testing.processes import ChildProcess, free_port

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
        """What errors call it."""
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

        What a version writes is kept in the cache, and copied the next time: its own tool takes a second of CPU time.

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
            return self.broker_id in control_requests.brokers_known(self.port)
        except OSError:
            return False
