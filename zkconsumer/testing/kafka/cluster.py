"""Clusters of real Apache Kafka brokers, of any version from 0.7.2 to 4.3.1, as child processes on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient

from zkconsumer.testing.cluster import Cluster, NewTopic, broker_ids, grown
from zkconsumer.testing.errors import KitError, StartFailed, require
from zkconsumer.testing.kafka import topics_07
from zkconsumer.testing.kafka.known_versions import check_version, is_07, kafka_jars
from zkconsumer.testing.kafka.kraft_mode import BrokersOfKraft, check_mode, no_zookeeper
from zkconsumer.testing.kafka.security import FIRST_WITH_LISTENER_JAAS, PLAINTEXT, BrokerCertificates, BrokerSecurity
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.kafka.settings import FIRST_WITH_TLS, FIRST_WITHOUT_ZOOKEEPER, version_tuple
from zkconsumer.testing.kafka.topic_control import TopicControl, TopicsByRequests, TopicsInZooKeeper, agreed_leaders
from zkconsumer.testing.kafka.zookeeper_mode import BrokersWithZooKeeper
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.server import ZooKeeperServer

PORT_TAKEN = "Address already in use"


class KafkaCluster(Cluster):
    """Real brokers of one version and a ZooKeeper, or controllers in its place, all in JVMs of their own.

    `with KafkaCluster("0.8.2.2", brokers=2) as cluster: cluster.create_topic("t", partitions=4)`. Ports are chosen
    when the object is made, so a proxy can be put in front of a broker before it starts: `advertise(broker_id,
    proxy.port)`.

    Kafka 4 runs without ZooKeeper, in KRaft mode, and 3.9 does so on wish. Calls that need ZooKeeper raise NotSupported
    there.

    Attributes:
        controllers: in KRaft mode, the servers that are controllers alone, by id.
    """

    brokers: dict[int, KafkaServerProcess]

    def __init__(
        self,
        version: str = "0.8.2.2",
        brokers: int | Iterable[int] = 1,
        *,
        zookeeper: ZooKeeperServer | str | None = None,
        chroot: str = "",
        settings: Mapping[str, object] | None = None,
        broker_settings: Mapping[int, Mapping[str, object]] | None = None,
        jar: str | os.PathLike[str] | None = None,
        port: int | None = None,
        zookeeper_port: int | None = None,
        heap_mb: int = 256,
        timeout_s: float = 90.0,
        login: ZooKeeperLogin | None = None,
        kraft: bool | None = None,
        controllers: int | None = None,
        security: BrokerSecurity | None = None,
    ) -> None:
        """Prepare a cluster; nothing runs before `start_all()`.

        Args:
            version: one of `kafka_versions()`.
            brokers: how many (with the ids 0, 1, ...), or the ids themselves.
            zookeeper: a running server or a connect string without chroot; None starts one that belongs to the cluster.
            chroot: path in ZooKeeper under which the cluster lives, such as `/kafka`.
            settings: broker properties over the kit's own; None as a value leaves a key out.
            broker_settings: the same by broker id.
            jar: Kafka 0.7.2 only: path of its jar, which no public repository holds; None takes it from the environment
                variable ZKCONSUMER_KAFKA_07_JAR.
            port: of the first broker, the next one has the next port; None chooses free ones.
            zookeeper_port: of the ZooKeeper that belongs to the cluster; None chooses a free one.
            heap_mb: heap limit of each broker in MiB.
            timeout_s: longest start of a broker.
            login: how brokers, members and the cluster's own client authenticate to ZooKeeper.
            kraft: run without ZooKeeper; None: if this version has to. Kafka 3.9 and later can.
            controllers: in KRaft mode, how many servers are controllers alone; 0: the first broker is the controller,
                and takes it along when it is killed; None: 0 for one broker, 1 for several.
            security: listeners with TLS and SASL, in addition to the plain one.

        Raises:
            NotSupported: unknown version; names the nearest known one. Or brokers of this version cannot authenticate
                as `login` says, cannot run with ZooKeeper, or without, or do not have the listeners of `security`.
            ValueError: no broker, a chroot that is no absolute path, or ports that cannot be.
        """
        check_version(version)
        self.is_kraft = version_tuple(version) >= FIRST_WITHOUT_ZOOKEEPER if kraft is None else kraft
        given = (zookeeper, zookeeper_port, login, chroot or None)
        check_mode(version, self.is_kraft, any(each is not None for each in given), controllers)
        _check_logins(version, login, security)
        ids = broker_ids(brokers)
        super().__init__(
            ids, zookeeper=False if self.is_kraft else zookeeper, chroot=chroot, port=port,
            zookeeper_port=zookeeper_port, folder=None, folder_prefix=f"zkconsumer-kafka-{version}-",
            timeout_s=timeout_s,
        )  # fmt: skip
        self.version = version
        self.login = login
        self.jar = jar
        self._settings = dict(settings or {})
        self._broker_settings = {key: dict(value) for key, value in (broker_settings or {}).items()}
        self.controllers: Mapping[int, KafkaServerProcess] = {}
        self._certificates: BrokerCertificates | None = None
        self._topics: TopicControl
        self._topics_07 = topics_07.Topics07(self, lambda topic: topics_07.partitions_of(self.client, topic))
        self._mode = self._mode_of(int(len(ids) > 1) if controllers is None else controllers, heap_mb)
        self.brokers = dict(self._mode.brokers)
        self.security = security
        if security is not None:
            self._secure(security)

    def _mode_of(self, controllers: int, heap_mb: int) -> BrokersOfKraft | BrokersWithZooKeeper:
        """Make the processes, and what changes their topics."""
        if self.is_kraft:
            mode = BrokersOfKraft(
                self.version, self._ports, controllers, self.folder, heap_mb=heap_mb, timeout_s=self.timeout_s
            )
            self.controllers = mode.controllers
            self._topics = TopicsByRequests(self._answering_ports, self.timeout_s)
            return mode
        self._topics = TopicsInZooKeeper(lambda: self.client, self.timeout_s)
        return BrokersWithZooKeeper(
            self.version, self._ports, self.folder, self.zookeeper_hosts, self.chroot, self.login, heap_mb=heap_mb,
            timeout_s=self.timeout_s,
        )  # fmt: skip

    def _secure(self, security: BrokerSecurity) -> None:
        """Give the brokers further listeners."""
        certificates = security.certificates or BrokerCertificates.make(self.folder / "certificates")
        self._certificates = certificates
        self._settings = {**security.settings(self.version, certificates), **self._settings}
        self._mode.set_scram_users(security.scram_users(self.version))
        for broker in self.brokers.values():
            broker.choose_secured_ports(security.protocols_of(self.version))
            broker.jvm_flags = security.jvm_flags(self.version, broker.folder)

    # ---- where it is

    @property
    def certificates(self) -> BrokerCertificates:
        """The certificates of the brokers and of clients; KitError without `security`."""
        if self._certificates is None:
            raise KitError("this cluster has no listeners with TLS; give security=BrokerSecurity()")
        return self._certificates

    def addresses(self, protocol: str = PLAINTEXT) -> str:
        """`host:port,host:port` of the running brokers' listeners of a protocol; KitError if they have none."""
        if protocol == PLAINTEXT:
            return self.broker_list
        running = [broker for broker in self.brokers.values() if broker.running]
        if any(protocol not in broker.secured_ports for broker in running):
            raise KitError(f"the brokers have no listener of {protocol}; name it in security=BrokerSecurity(...)")
        return ",".join(f"127.0.0.1:{broker.secured_ports[protocol]}" for broker in running)

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client, inside the chroot; KitError before the start, or without ZooKeeper."""
        return self._mode.client

    def _without_zookeeper(self) -> KitError:
        return no_zookeeper(self.version, "there is no ZooKeeper")

    def _answering_ports(self) -> list[int]:
        return [each.port for each in self.brokers.values() if each.running and not each.process.paused]

    # ---- start and end

    def start_all(self) -> Self:
        """Start ZooKeeper (if it is the cluster's own) and all brokers at once; returns when all of them answer
        requests.

        Raises:
            JavaMissing, MavenMissing: the servers cannot be run on this machine; names what to install.
            StartFailed: a port is taken, or a server ended or stayed silent; carries the end of its log.
            NoSession: ZooKeeper did not answer, or refused the login.
            NodeRefused: an access list does not name the login.
        """
        jars = self._jars()
        self._start_own_zookeeper()
        self._mode.prepare()
        waiting = [n for n, broker in self.brokers.items() if not broker.running]
        self._launch(waiting, jars)
        for n in waiting:
            try:
                self._mode.wait_ready(n)
            except StartFailed as error:
                fixed = not self._ports_may_change or self.brokers[n].advertised_port is not None
                if fixed or PORT_TAKEN not in str(error):
                    raise
                # Another process was faster; no client knows the old ports yet.
                self.brokers[n].port = free_port()
                self.brokers[n].choose_secured_ports(list(self.brokers[n].secured_ports))
                self._launch([n], jars)
                self._mode.wait_ready(n)
        self._mode.wait_coordinated()
        self._ports_may_change = False
        return self

    def _launch(self, ids: Sequence[int], jars: Sequence[Path]) -> None:
        everyone = [*self.brokers, *self.controllers]
        settings = {n: {**self._settings, **self._broker_settings.get(n, {})} for n in everyone}
        self._mode.launch(ids, jars, settings)

    def reconnect(self) -> None:
        """Take a new ZooKeeper client: when ZooKeeper has lost its data, one that has seen more is not let in again."""
        self._mode.reconnect()

    def _jars(self) -> list[Path]:
        return kafka_jars(self.version, self.jar)

    def start(self, broker_id: int, *, port: int | None = None, settings: Mapping[str, object] | None = None) -> None:
        """Start one broker again on its data; in KRaft mode also the controllers that do not run.

        Args:
            port: another port than before.
            settings: properties of this broker changed from now on.
        """
        if port is not None:
            self.brokers[broker_id].port = port
        if settings:
            self._broker_settings.setdefault(broker_id, {}).update(settings)
        self._launch([broker_id], self._jars())
        self._mode.wait_ready(broker_id)

    def stop(self, broker_id: int) -> None:
        """End one broker in order (SIGTERM); returns when its process is gone, and the others know it."""
        self.brokers[broker_id].stop()
        self._mode.wait_gone(broker_id)

    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """SIGKILL one broker; its id node stays until its session expires, or vanishes at once with `expire`.

        In KRaft mode there is no `expire`: the controller takes the broker for alive until 6 s have passed.
        """
        self._mode.kill(broker_id, expire=expire)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP one broker: its sockets stay open, nothing is answered."""
        self.brokers[broker_id].process.pause()

    def resume(self, broker_id: int) -> None:
        """SIGCONT after `pause()`."""
        self.brokers[broker_id].process.resume()

    def close(self) -> None:
        """End everything that belongs to the cluster and remove its folder."""
        try:
            for broker in self.brokers.values():
                broker.close()
            self._mode.close()
        finally:
            self._give_up_zookeeper_and_folder()

    # ---- topics

    def _create(self, topic: NewTopic) -> dict[int | str, int]:
        if is_07(self.version):
            return self._topics_07.create(topic)
        replicas = topic.replicas(self.brokers)
        self._topics.create(topic.name, replicas, topic.config)
        return self.wait_leaders(topic.name, sorted(replicas))

    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Partition -> leader after the topic has grown to `total` partitions.

        New partitions get as many replicas as partition 0 has.
        """
        self._needs((0, 8), "adding partitions")
        self._topics.grow(name, grown(name, self._topics.assignment(name), total, self.brokers))
        return self.wait_leaders(name, list(range(total)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when it is gone, and can be created anew.

        Raises:
            NotSupported: before 0.8.2, whose brokers cannot delete topics reliably.
        """
        self._needs((0, 8, 2), "deleting a topic")
        self._topics.delete(name)

    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of a topic, in order; in Kafka 0.7 those of the registered brokers, `broker-partition`.

        Raises:
            KitError: there is no such topic.
        """
        if is_07(self.version):
            return self._topics_07.partitions(topic)
        found: list[int | str] = [*sorted(self._topics.assignment(topic))]
        if not found:
            raise KitError(f"topic {topic} does not exist")
        return found

    def leader(self, topic: str, partition: int | str) -> int | None:
        """Leader of a partition as ZooKeeper, or a broker in KRaft mode, has it; None without one."""
        if is_07(self.version):
            return self._topics_07.leader(topic, partition)
        return self._topics.leader(topic, int(partition))

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition; returns when it serves requests.

        The broker becomes the first replica (a new one if need be, which replaces the last), then the preferred one is
        elected.
        """
        self._needs((0, 8), "moving a leader")
        replicas = self._topics.assignment(topic)[partition]
        others = [replica for replica in replicas if replica != broker_id]
        wanted = [broker_id, *others[: len(replicas) - 1]]
        if wanted != replicas:
            self._topics.reassign(topic, partition, wanted)
        if self.leader(topic, partition) != broker_id:
            self._topics.elect_preferred(topic, partition)
        wait_until(
            lambda: self.leader(topic, partition) == broker_id,
            self.timeout_s,
            f"broker {broker_id} to lead {topic}/{partition}",
            state=lambda: self.leader(topic, partition),
        )
        self.wait_leaders(topic, [partition])

    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Partition -> leader, once every running broker names the same leaders and those serve requests.

        Raises:
            WaitTimeout: after `timeout_s` (by default the cluster's) seconds.
        """
        if is_07(self.version):
            return self._topics_07.wait_leaders(topic, partitions, timeout_s)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        seen: dict[int, object] = {}
        numbers = [int(each) for each in partitions]
        agreed = partial(agreed_leaders, self.brokers, topic, numbers, seen)
        found = wait_until(agreed, limit_s, f"leaders of {topic} {list(partitions)}", state=lambda: seen)
        assert found is not None
        return found

    def _needs(self, minimum: tuple[int, ...], what: str) -> None:
        require(self.version, minimum, what)


def _check_logins(version: str, login: ZooKeeperLogin | None, security: BrokerSecurity | None) -> None:
    """Return if brokers of this version can authenticate to ZooKeeper, and have listeners, as is asked for.

    Raises:
        NotSupported: they cannot.
    """
    if login is not None:
        login.check_java(f"a broker of Kafka {version}", speaks_tls=version_tuple(version) >= FIRST_WITH_TLS)
    if security is not None:
        security.check(version)
        if login is not None and login.username:  # both need a file of the JVM, and there is one
            require(version, FIRST_WITH_LISTENER_JAAS, "a login to ZooKeeper together with security")
