"""Clusters of real Apache Kafka brokers, of any version from 0.7.2 to 3.9.2, as child processes on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from zkconsumer.testing.cluster import ClusterFrame, broker_ids
from zkconsumer.testing.errors import KitError, NotSupported, StartFailed
from zkconsumer.testing.java import maven
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka import topics as kafka_topics
from zkconsumer.testing.kafka import topics_07
from zkconsumer.testing.kafka.broker import KafkaBroker
from zkconsumer.testing.kafka.jars import JAR_SETS, KAFKA_07_JAR, is_07, kafka_jars
from zkconsumer.testing.kafka.settings import FIRST_WITH_TLS, version_tuple
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.versions import require
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.client import connected_client
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.server import ZooKeeperServer, end_session

CLIENT_SESSION_S = 30.0
PORT_TAKEN = "Address already in use"


def kafka_versions() -> list[str]:
    """Versions of Kafka whose brokers can be started, oldest first."""
    names = [name for name in maven.known_versions() if not name.startswith("zk-") and "-" not in name]
    return sorted(names, key=version_tuple)


def needs_of(version: str) -> str:
    """What brokers of a version need on this machine, jars that are fetched already left out."""
    needs = maven.needs_of(JAR_SETS.get(version, version))
    return f"{needs}; its jar, named by {KAFKA_07_JAR}" if is_07(version) else needs


def nearest_version(version: str) -> str | None:
    """The known version that an unknown one comes closest to; None if it is no version at all."""
    try:
        wanted = version_tuple(version)
    except ValueError:
        return None

    def distance(known: str) -> list[int]:
        return [abs(theirs - ours) for theirs, ours in zip_longest(wanted, version_tuple(known), fillvalue=0)]

    return min(kafka_versions(), key=distance)


def _known_versions(version: str) -> str:
    nearest = nearest_version(version)
    hint = f"; the nearest is {nearest}" if nearest else ""
    return f"known versions are {', '.join(kafka_versions())}{hint}"


class KafkaCluster(ClusterFrame[KafkaBroker]):
    """Real brokers of one version and a ZooKeeper, all in JVMs of their own.

    `with KafkaCluster("0.8.2.2", brokers=2) as cluster: cluster.create_topic("t", partitions=4)`. Ports are chosen
    when the object is made, so a proxy can be put in front of a broker before it starts: `advertise(broker_id,
    proxy.port)`.
    """

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

        Raises:
            NotSupported: unknown version; names the nearest known one. Or brokers of this version cannot authenticate
                as `login` says.
            ValueError: no broker, a chroot that is no absolute path, or ports that cannot be.
        """
        if version not in kafka_versions():
            raise NotSupported(f"Kafka {version}: {_known_versions(version)}")
        if login is not None:
            login.check_java(f"a broker of Kafka {version}", speaks_tls=version_tuple(version) >= FIRST_WITH_TLS)
        ids = broker_ids(brokers)
        super().__init__(
            ids, zookeeper=zookeeper, chroot=chroot, port=port, zookeeper_port=zookeeper_port, folder=None,
            folder_prefix=f"zkconsumer-kafka-{version}-", timeout_s=timeout_s,
        )  # fmt: skip
        self.version = version
        self.login = login
        self.jar = jar
        self._settings = dict(settings or {})
        self._broker_settings = {key: dict(value) for key, value in (broker_settings or {}).items()}
        self._client: KazooClient | None = None
        self.brokers = {
            n: KafkaBroker(
                version, n, self.folder / f"broker-{n}", port=self._ports[n], heap_mb=heap_mb, timeout_s=timeout_s
            )
            for n in ids
        }

    # ---- where it is

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client, inside the chroot; KitError before the start."""
        if self._client is None:
            raise KitError("the cluster was not started")
        return self._client

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
        if self._client is None:
            self._connect()
        waiting = [broker for broker in self.brokers.values() if not broker.running]
        for broker in waiting:
            self._launch(broker, jars)
        for broker in waiting:
            try:
                broker.wait_ready(self.client)
            except StartFailed as error:
                fixed = not self._ports_may_change or broker.advertised_port is not None
                if fixed or PORT_TAKEN not in str(error):
                    raise
                broker.port = free_port()  # another process was faster; no client knows the old port yet
                self._launch(broker, jars)
                broker.wait_ready(self.client)
        self._ports_may_change = False
        return self

    def _launch(self, broker: KafkaBroker, jars: Sequence[Path]) -> None:
        settings = {**self._settings, **self._broker_settings.get(broker.broker_id, {})}
        broker.launch(jars, self.zookeeper_connect, settings, self.client, self.login)

    def _connect(self) -> None:
        if self.chroot:
            root = self._new_client(self.zookeeper_hosts)
            try:
                root.ensure_path(self.chroot)
            finally:
                _end(root)
        self._client = self._new_client(self.zookeeper_connect)

    def _new_client(self, connect: str) -> KazooClient:
        return connected_client(connect, self.login, session_s=CLIENT_SESSION_S, timeout_s=self.timeout_s)

    def reconnect(self) -> None:
        """Take a new ZooKeeper client: when ZooKeeper has lost its data, one that has seen more is not let in again."""
        self._end_client()
        self._connect()

    def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            _end(client)

    def _jars(self) -> list[Path]:
        return kafka_jars(self.version, self.jar)

    def start(self, broker_id: int, *, port: int | None = None, settings: Mapping[str, object] | None = None) -> None:
        """Start one broker again on its data.

        Args:
            port: another port than before.
            settings: properties of this broker changed from now on.
        """
        broker = self.brokers[broker_id]
        if port is not None:
            broker.port = port
        if settings:
            self._broker_settings.setdefault(broker_id, {}).update(settings)
        self._launch(broker, self._jars())
        broker.wait_ready(self.client)

    def stop(self, broker_id: int) -> None:
        """End one broker in order (SIGTERM); returns when its process and its id node are gone."""
        self.brokers[broker_id].process.stop()
        self.brokers[broker_id].wait_gone(self.client, self.timeout_s)

    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """SIGKILL one broker; its id node stays until its session expires, or vanishes at once with `expire`."""
        broker = self.brokers[broker_id]
        session_id = broker.session_id(self.client) if expire else None
        broker.process.kill()
        if session_id is not None:
            end_session(self.zookeeper_hosts, session_id, tls=None if self.login is None else self.login.tls())

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
                if broker.running:
                    broker.process.kill()  # the data is thrown away, so nothing is gained by waiting for an orderly end
            self._end_client()
        finally:
            self._give_up_zookeeper_and_folder()

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication: int = 1,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> dict[int | str, int]:
        """Partition -> leader of a new topic; returns when every leader serves requests and every broker knows it.

        Args:
            partitions: how many; None means 1. In Kafka 0.7 on each broker, and the brokers' settings decide: None, or
                as many as they have.
            assignment: partition -> replica ids, the leader first, instead of an even spread.
            config: topic settings such as `{"segment.bytes": 1048576}`.

        Raises:
            KitError: the topic exists, or its name is not allowed.
            NotSupported: 0.7, which has no replicas and no settings of a topic, or has other numbers of partitions.
        """
        kafka_topics.check_name(name)
        if is_07(self.version):
            if replication != 1 or assignment or config:
                self._needs((0, 8), "a topic with replicas or settings of its own")
            ports = {broker.broker_id: broker.port for broker in self.brokers.values() if broker.running}
            return topics_07.create_on_all(ports, name, partitions, lambda: self._known_07(name), self.timeout_s)
        count = 1 if partitions is None else partitions
        chosen = assignment or kafka_topics.spread(count, replication, sorted(self.brokers))
        try:
            kafka_topics.create(self.client, name, chosen, config or {})
        except NodeExistsError:
            raise KitError(f"topic {name} exists already") from None
        return self.wait_leaders(name, sorted(chosen))

    def _known_07(self, topic: str) -> list[str]:
        return topics_07.partitions_of(self.client, topic)

    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Partition -> leader after the topic has grown to `total` partitions.

        New partitions get as many replicas as partition 0 has.
        """
        self._needs((0, 8), "adding partitions")
        present = kafka_topics.assignment_of(self.client, name)
        if total <= len(present):
            raise ValueError(f"topic {name} has {len(present)} partitions, {total} would not be more")
        wanted = kafka_topics.spread(total, len(present[0]), sorted(self.brokers))
        kafka_topics.grow(self.client, name, {p: replicas for p, replicas in wanted.items() if p not in present})
        return self.wait_leaders(name, list(range(total)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when its nodes are gone, and it can be created anew.

        Raises:
            NotSupported: before 0.8.2, whose brokers cannot delete topics reliably.
        """
        self._needs((0, 8, 2), "deleting a topic")
        kafka_topics.mark_for_deletion(self.client, name)
        # The controller deletes the mark last, behind the topic's settings, over which a new topic would fail.
        paths = (kafka_topics.topic_path(name), kafka_topics.deletion_path(name))
        wait_until(lambda: not any(map(self.client.exists, paths)), self.timeout_s, f"topic {name} to be deleted")

    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of a topic, in order; in Kafka 0.7 those of the registered brokers, `broker-partition`.

        Raises:
            KitError: there is no such topic.
        """
        found: list[int | str] = []
        if is_07(self.version):
            found += self._known_07(topic)
        else:
            found += sorted(kafka_topics.assignment_of(self.client, topic))
        if not found:
            raise KitError(f"there is no topic {topic}")
        return found

    def leader(self, topic: str, partition: int | str) -> int | None:
        """Leader of a partition as ZooKeeper has it; None without one."""
        if is_07(self.version):
            return topics_07.broker_of(partition) if partition in self._known_07(topic) else None
        return kafka_topics.leader_in_zookeeper(self.client, topic, int(partition))

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition; returns when it serves requests.

        The broker becomes the first replica (a new one if need be, in place of the last), then the preferred one is
        elected.
        """
        self._needs((0, 8), "moving a leader")
        replicas = kafka_topics.assignment_of(self.client, topic)[partition]
        others = [replica for replica in replicas if replica != broker_id]
        wanted = [broker_id, *others[: len(replicas) - 1]]
        place = f"{topic}/{partition}"
        if wanted != replicas:
            kafka_topics.reassign(self.client, topic, partition, wanted)
            self._wait_gone(kafka_topics.REASSIGN, f"replicas {wanted} of {place}")
        if self.leader(topic, partition) != broker_id:
            kafka_topics.elect_preferred(self.client, topic, partition)
            self._wait_gone(kafka_topics.ELECTION, f"the election of {broker_id} for {place}")
        wait_until(
            lambda: self.leader(topic, partition) == broker_id,
            self.timeout_s,
            f"broker {broker_id} to lead {place}",
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
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        if is_07(self.version):
            running = {broker.broker_id for broker in self.brokers.values() if broker.running}
            return topics_07.wait_registered(lambda: self._known_07(topic), topic, partitions, running, limit_s)
        last: dict[int, object] = {}
        numbers = [int(each) for each in partitions]

        def leaders() -> dict[int | str, int] | None:
            last.clear()
            agreed: dict[int, int] = {}
            for broker in self.brokers.values():
                if not broker.running or broker.process.paused:
                    continue
                try:
                    told = kafka_probe.topic_leaders(broker.port, topic)
                except OSError as error:
                    last[broker.broker_id] = error
                    return None
                last[broker.broker_id] = told
                for partition in numbers:
                    if partition not in told or told[partition].leader < 0:
                        return None
                    leader = told[partition].leader
                    if agreed.setdefault(partition, leader) != leader:
                        return None
            return dict(agreed.items()) if agreed and self._leads(topic, agreed) else None

        found = wait_until(leaders, limit_s, f"leaders of {topic} {list(partitions)}", state=lambda: last)
        assert found is not None
        return found

    def _leads(self, topic: str, leaders: Mapping[int, int]) -> bool:
        """True if each leader answers for its partitions itself."""
        for broker_id in set(leaders.values()):
            broker = self.brokers.get(broker_id)
            mine = [partition for partition, leader in leaders.items() if leader == broker_id]
            if broker is None or not broker.running:
                return False
            try:
                errors = kafka_probe.offset_errors(broker.port, topic, mine)
            except OSError:
                return False
            if set(errors) != set(mine) or any(errors.values()):
                return False
        return True

    def _wait_gone(self, path: str, what: str) -> None:
        wait_until(lambda: self.client.exists(path) is None, self.timeout_s, f"{what} (node {path})")

    def _needs(self, minimum: tuple[int, ...], what: str) -> None:
        require(self.version, minimum, what)


def _end(client: KazooClient) -> None:
    client.stop()
    client.close()
