"""One real Kafka broker that registers in ZooKeeper, as a child process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.kafka.settings import broker_properties, version_tuple
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.wire import end_session


class KafkaBroker(KafkaServerProcess):
    """One broker of a `KafkaCluster` with ZooKeeper."""

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
