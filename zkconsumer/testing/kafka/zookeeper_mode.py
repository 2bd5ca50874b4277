"""The brokers of a cluster with ZooKeeper, and the kit's own ZooKeeper client.

One real Kafka broker that registers in ZooKeeper, as a child process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka import security
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.kafka.settings import broker_properties, version_tuple
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.client import connected_client
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.wire import end_session


class KafkaBroker(KafkaServerProcess):
    """One broker of a `KafkaCluster` with ZooKeeper."""

    @property
    def id_path(self) -> str:
        """Its node in ZooKeeper."""
        return f"/brokers/ids/{self.broker_id}"

    def launch(
        self,
        jars: Sequence[Path],
        zookeeper_connect: str,
        settings: Mapping[str, object],
        client: KazooClient,
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
            secured_ports=self.secured_ports,
            settings={**({} if login is None else login.kafka_settings()), **settings},
        )
        self.run(jars, properties, () if login is None else login.jvm_flags(self.folder))

    def wait_ready(self, client: KazooClient) -> None:
        """Return when the id node is there and a real request is answered.

        Both, because some versions register before they listen.
        """
        generation_07 = version_tuple(self.version) < (0, 8)
        self.wait(lambda: self.registered(client) and kafka_probe.answers(self.port, generation_07))
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


CLIENT_SESSION_S = 30.0


class BrokersWithZooKeeper:
    """The brokers of a cluster with ZooKeeper.

    Attributes:
        brokers: by id.
    """

    def __init__(
        self, version: str, ports: Mapping[int, int], folder: Path, hosts: str, chroot: str,
        login: ZooKeeperLogin | None, *, heap_mb: int, timeout_s: float,
    ) -> None:  # fmt: skip
        """Prepare brokers.

        Args:
            ports: of the brokers, by id.
            hosts: of ZooKeeper.
            chroot: path in ZooKeeper under which the cluster lives.
            login: how brokers and the client authenticate to ZooKeeper.
        """
        self.brokers = {
            n: KafkaBroker(version, n, folder / f"broker-{n}", port=port, heap_mb=heap_mb, timeout_s=timeout_s)
            for n, port in ports.items()
        }
        self._hosts = hosts
        self._chroot = chroot
        self._login = login
        self._timeout_s = timeout_s
        self._client: KazooClient | None = None
        self._users: Mapping[str, Mapping[str, str]] = {}

    @property
    def client(self) -> KazooClient:
        """The kit's ZooKeeper client, inside the chroot; KitError before the start."""
        if self._client is None:
            raise KitError("the cluster was not started")
        return self._client

    def prepare(self) -> None:
        """Connect to ZooKeeper, if there is no connection yet, and make the chroot."""
        if self._client is not None:
            return
        if self._chroot:
            root = self._new_client(self._hosts)
            try:
                root.ensure_path(self._chroot)
            finally:
                _end(root)
        self._client = self._new_client(self._hosts + self._chroot)
        for name, passwords in self._users.items():
            security.write(self._client, name, passwords)

    def set_scram_users(self, users: Mapping[str, Mapping[str, str]]) -> None:
        """Have users of SCRAM, mechanism -> password by name, from the next connection on."""
        self._users = users

    def reconnect(self) -> None:
        """Take a new ZooKeeper client: when ZooKeeper has lost its data, one that has seen more is not let in again."""
        self.close()
        self.prepare()

    def _new_client(self, connect: str) -> KazooClient:
        return connected_client(connect, self._login, session_s=CLIENT_SESSION_S, timeout_s=self._timeout_s)

    def launch(self, ids: Sequence[int], jars: Sequence[Path], settings: Mapping[int, Mapping[str, object]]) -> None:
        """Start these brokers without waiting for them.

        Args:
            settings: by id, over the kit's own.
        """
        for n in ids:
            self.brokers[n].launch(jars, self._hosts + self._chroot, settings.get(n, {}), self.client, self._login)

    def wait_ready(self, broker_id: int) -> None:
        """Return when a broker is registered and answers."""
        self.brokers[broker_id].wait_ready(self.client)

    def wait_coordinated(self) -> None:
        """Nothing is to be waited for: brokers are ready when ZooKeeper has their nodes."""

    def wait_gone(self, broker_id: int) -> None:
        """Return when the id node of a broker is gone."""
        self.brokers[broker_id].wait_gone(self.client, self._timeout_s)

    def kill(self, broker_id: int, *, expire: bool) -> None:
        """SIGKILL one broker, and end its session with `expire`."""
        broker = self.brokers[broker_id]
        session_id = broker.session_id(self.client) if expire else None
        broker.process.kill()
        if session_id is not None:
            end_session(self._hosts, session_id, tls=None if self._login is None else self._login.tls())

    def close(self) -> None:
        """End the client."""
        client, self._client = self._client, None
        if client is not None:
            _end(client)


def _end(client: KazooClient) -> None:
    client.stop()
    client.close()
