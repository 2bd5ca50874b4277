"""The servers of a cluster without ZooKeeper: a node that is broker and controller, or controllers beside brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from zkconsumer.testing.errors import NotSupported
from zkconsumer.testing.kafka import control_requests
from zkconsumer.testing.kafka.kraft_node import KraftNode
from zkconsumer.testing.kafka.settings import BROKER, CONTROLLER, FIRST_KRAFT, FIRST_WITHOUT_ZOOKEEPER, version_tuple
from zkconsumer.testing.versions import require
from zkconsumer.testing.waiting import wait_until

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
            controllers: how many there are beside the brokers; 0: the broker of the lowest id is the controller, too.
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
        return any(
            broker_id in control_requests.brokers_known(each.port) for each in others if not each.process.paused
        )

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
