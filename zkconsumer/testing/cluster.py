"""The interface of clusters of real and of embedded brokers, with what both share: addresses, the `with` block."""

from __future__ import annotations

import errno
import os
import socket
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

from kazoo.client import KazooClient

from zkconsumer.testing.embedded.leadership import is_legal_topic
from zkconsumer.testing.errors import FIRST_WITHOUT_OLD_REQUESTS, KitError, StartFailed, version_tuple
from zkconsumer.testing.processes import free_ports
from zkconsumer.testing.producing import KeptWriter, Produced, Sendable, produce
from zkconsumer.testing.temporary_folders import remove_folder, temporary_folder
from zkconsumer.testing.waiting import WithBlock
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.server import ZooKeeperServer

HOST = "127.0.0.1"


class Broker(Protocol):
    """One broker of a cluster.

    Attributes:
        broker_id: its id.
        port: where it listens.
        advertised_port: the port that clients get instead of `port`, from its next start on.
    """

    broker_id: int
    port: int
    advertised_port: int | None

    @property
    def running(self) -> bool:
        """True between its start and its end."""

    @property
    def address(self) -> str:
        """`host:port` as advertised to clients."""


class NewTopic(NamedTuple):
    """A topic that is to be created.

    Attributes:
        name: its name.
        partitions: how many; None: as many as brokers make by themselves.
        replication: replicas of each partition.
        assignment: partition -> replica ids, the leader first, instead of an even spread.
        config: settings of the topic.
    """

    name: str
    partitions: int | None
    replication: int
    assignment: Mapping[int, Sequence[int]] | None
    config: Mapping[str, object]

    def replicas(self, brokers: Collection[int]) -> Mapping[int, Sequence[int]]:
        """Return partition -> replicas on these brokers."""
        count = 1 if self.partitions is None else self.partitions
        return self.assignment or spread(count, self.replication, sorted(brokers))


class Cluster(WithBlock):
    """Brokers and their ZooKeeper: a `KafkaCluster` or an `EmbeddedCluster`; a test typed for it runs on either.

    Attributes:
        version: of Kafka, whose protocol the brokers speak; set by the kinds.
        brokers: by id; set by the kinds.
        chroot: path in ZooKeeper under which the cluster lives, or nothing.
        folder: holds the data of the brokers.
        timeout_s: longest wait for a leader.
        login: how the cluster and its members authenticate to ZooKeeper; None: not at all.
        jar: path of the jar of Kafka 0.7, for its brokers and Java members; None: the environment names it.
    """

    version: str
    brokers: Mapping[int, Broker]
    login: ZooKeeperLogin | None = None
    jar: str | os.PathLike[str] | None = None

    def __init__(
        self,
        ids: Sequence[int],
        *,
        zookeeper: ZooKeeperServer | str | Literal[False] | None,
        chroot: str,
        port: int | None,
        zookeeper_port: int | None,
        folder: Path | None,
        folder_prefix: str,
        timeout_s: float,
    ) -> None:
        """Choose ports and folder.

        Args:
            zookeeper: None makes one that belongs to the cluster; False does without.
            port: of the first broker, the others follow it; None chooses free ones.
            zookeeper_port: of the cluster's own ZooKeeper; None chooses a free one.
            folder: kept when the cluster is closed, and with it the data of the cluster's own ZooKeeper; None makes a
                temporary one.

        Raises:
            ValueError: a chroot that is no absolute path, or ports that cannot be.
        """
        self.chroot = _checked_chroot(chroot)
        self.timeout_s = timeout_s
        if zookeeper_port is not None and zookeeper is not None:
            raise ValueError("zookeeper_port is for a ZooKeeper that belongs to the cluster, but one was given")
        self._fixed = _fixed_ports(ids, port, zookeeper_port)
        ports = free_ports(len(ids)) if port is None else range(port, port + len(ids))
        self._ports = dict(zip(ids, ports, strict=True))
        self._ports_may_change = port is None
        self._own_folder = folder is None
        self.folder = temporary_folder(folder_prefix) if folder is None else folder
        data = None if folder is None else folder / "zookeeper"
        self._own_zookeeper = ZooKeeperServer(port=zookeeper_port, data=data) if zookeeper is None else None
        self._zookeeper = self._own_zookeeper if zookeeper is None else zookeeper
        self._kept_writer = KeptWriter()

    # ---- where it is

    @property
    def zookeeper(self) -> ZooKeeperServer:
        """The ZooKeeper server; KitError when there is none, or only a connect string was given."""
        if not self._zookeeper:
            raise self._without_zookeeper()
        if not isinstance(self._zookeeper, ZooKeeperServer):
            raise KitError("this cluster was not given a ZooKeeperServer")
        return self._zookeeper

    @property
    def zookeeper_hosts(self) -> str:
        """Connect string without the chroot; KitError when there is no ZooKeeper."""
        if isinstance(self._zookeeper, ZooKeeperServer):
            return self._zookeeper.connect
        if not self._zookeeper:
            raise self._without_zookeeper()
        return self._zookeeper

    @property
    def has_zookeeper(self) -> bool:
        """Whether there is a ZooKeeper."""
        return bool(self._zookeeper)

    @property
    def is_written_as_08(self) -> bool:
        """Whether the kit writes to its brokers with the requests of Kafka 0.8, which they take."""
        return version_tuple(self.version) < FIRST_WITHOUT_OLD_REQUESTS

    def _without_zookeeper(self) -> KitError:
        return KitError("this cluster has no ZooKeeper")

    @property
    def zookeeper_connect(self) -> str:
        """Connect string for consumers, with the chroot."""
        return self.zookeeper_hosts + self.chroot

    @property
    def broker_list(self) -> str:
        """`host:port,host:port` of the running brokers, as advertised to clients."""
        return ",".join(broker.address for broker in self.brokers.values() if broker.running)

    bootstrap = broker_list

    def port(self, broker_id: int) -> int:
        """The port a broker listens on."""
        return self.brokers[broker_id].port

    def advertise(self, broker_id: int, port: int | None) -> None:
        """Advertise another port of 127.0.0.1 for a broker, that of a proxy; in force at its next start."""
        self.brokers[broker_id].advertised_port = port

    # ---- messages

    def produce(
        self,
        topic: str,
        messages: Iterable[Sendable],
        *,
        key: bytes | str | None = None,
        partition: int | str | None = None,
        partitions: int | None = None,
        codec: str = "none",
        timeout_s: float = 30.0,
    ) -> list[Produced]:
        """Write messages; returns where each of them went, once their leaders have stored them.

        `cluster.produce("clicks", [b"one", ("ann", "two"), ("bob", None)])`. A message with a key goes to the partition
        that Kafka 0.8.2's producer chooses for it, those without one to one partition after the other.

        Args:
            topic: its topic; one that does not exist is created, with one replica for each partition.
            messages: values, or pairs of key and value, or messages with both such as `zkconsumer.Message`; text is
                sent as UTF-8, and None as a value is a tombstone.
            key: the key of all messages that are only a value.
            partition: all messages go to this one; in Kafka 0.7 its name, `broker-number`.
            partitions: how many the topic has: so many are created, 1 for None. In Kafka 0.7 on each broker.
            codec: none, gzip, snappy or lz4.
            timeout_s: deadline of each request, and of the tries of messages that brokers refuse as leaders move.

        Returns:
            Partition and offset of each message, in the order of the messages; in Kafka 0.7 once consumers see them.

        Raises:
            NotSupported: this version of Kafka cannot do it: lz4 needs 0.8.2, tombstones 0.8.1, keys 0.8.
            KitError: there is no such partition, it has no leader, or the topic has another number of partitions. In
                Kafka 0.7 also: the messages are not seen in time.
            TypeError: something in `messages` is no message, or a number is none.
            simpleconsumer's errors: a broker refused messages, or did not answer; after a lost connection they may be
                stored or not, and they are not sent again. Other messages of the call may be stored.
        """
        return produce(
            self, self._kept_writer, topic, messages,
            key=key, partition=partition, partitions=partitions, codec=codec, timeout_s=timeout_s,
        )  # fmt: skip

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
        check_name(name)
        return self._create(NewTopic(name, partitions, replication, assignment, config or {}))

    @abstractmethod
    def _create(self, topic: NewTopic) -> dict[int | str, int]:
        """Partition -> leader of a new topic."""

    @abstractmethod
    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Partition -> leader after the topic has grown to `total` partitions."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when its node is gone."""

    @abstractmethod
    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of a topic, in order; KitError if there is no such topic."""

    @abstractmethod
    def leader(self, topic: str, partition: int | str) -> int | None:
        """Leader of a partition as it is registered; None without one."""

    @abstractmethod
    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition; returns when it serves requests."""

    @abstractmethod
    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Partition -> leader, once all of these have one; WaitTimeout if that takes too long."""

    # ---- start and end

    def _start_own_zookeeper(self) -> None:
        """Start the cluster's own ZooKeeper; before that, look whether all ports that were asked for are free.

        Raises:
            StartFailed: one is taken.
        """
        server = self._own_zookeeper
        ours = {each.port for each in (server, *self.brokers.values()) if each is not None and each.running}
        for port, user in self._fixed.items():
            if port not in ours:
                check_port(port, user)
        if server is not None and not server.running:
            server.start()

    def _give_up_zookeeper_and_folder(self) -> None:
        try:
            self._kept_writer.close()
            if self._own_zookeeper is not None:
                self._own_zookeeper.close()
        finally:
            if self._own_folder:
                remove_folder(self.folder)

    @property
    @abstractmethod
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client, inside the chroot; KitError before the start, or without ZooKeeper."""

    @abstractmethod
    def start_all(self) -> Self:
        """Start whatever does not run; returns when all brokers answer requests."""

    @abstractmethod
    def start(self, broker_id: int, *, port: int | None = None) -> None:
        """Start one broker again on its data, on another port if one is given."""

    @abstractmethod
    def stop(self, broker_id: int) -> None:
        """End one broker in order; returns when its id node is gone."""

    @abstractmethod
    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """End one broker as SIGKILL does; its id node stays until its session expires, or goes with `expire`."""

    @abstractmethod
    def pause(self, broker_id: int) -> None:
        """Have one broker answer nothing, its connections open."""

    @abstractmethod
    def resume(self, broker_id: int) -> None:
        """Go on after `pause()`."""

    def _enter(self) -> object:
        return self.start_all()


def grown(
    name: str, present: Mapping[int, Sequence[int]], total: int, brokers: Collection[int]
) -> dict[int, list[int]]:
    """Return partition -> replicas of the partitions that a topic lacks, with as many replicas as partition 0 has.

    Raises:
        ValueError: it has that many already.
    """
    if total <= len(present):
        raise ValueError(f"topic {name} has {len(present)} partitions, so it cannot grow to {total}")
    wanted = spread(total, len(present[0]), sorted(brokers))
    return {partition: replicas for partition, replicas in wanted.items() if partition not in present}


def spread(partitions: int, replication: int, brokers: Sequence[int]) -> dict[int, list[int]]:
    """Partition -> replicas: partition p leads on broker p modulo n, its copies on the following ones.

    Raises:
        ValueError: more replicas than brokers, or no partition.
        TypeError: the number of partitions or replicas is no integer.
    """
    for name, number in (("partitions", partitions), ("replication", replication)):
        if not isinstance(number, int):
            raise TypeError(f"{name} is {number!r}: an int is needed")
    if not 1 <= replication <= len(brokers):
        raise ValueError(f"replication {replication}: it must be 1 to {len(brokers)}, the number of brokers")
    if partitions < 1:
        raise ValueError(f"{partitions} partitions: at least 1 is needed")
    ids = sorted(brokers)
    return {p: [ids[(p + copy) % len(ids)] for copy in range(replication)] for p in range(partitions)}


def check_name(topic: str) -> None:
    """Return if Kafka allows this name for a new topic; a broker cannot make the folder of any other.

    Raises:
        KitError: it does not.
    """
    if not is_legal_topic(topic):
        raise KitError(f"topic name {topic!r}: at most 255 of a-z A-Z 0-9 . _ - are allowed")


def broker_ids(brokers: int | Iterable[int]) -> list[int]:
    """The ids of so many brokers, or of the given ones.

    Raises:
        ValueError: there is none, or an id is negative or there twice.
    """
    ids = list(range(brokers)) if isinstance(brokers, int) else list(brokers)
    if not ids:
        raise ValueError("a cluster needs at least one broker")
    if min(ids) < 0 or len(set(ids)) < len(ids):
        raise ValueError(f"broker ids {ids}: each must be a number from 0, given once")
    return ids


def check_port(port: int, user: str) -> None:
    """Return if a server can listen on a port of 127.0.0.1.

    Raises:
        StartFailed: it cannot; names port and user in one sentence.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: old connections are no obstacle
        try:
            probe.bind((HOST, port))
        except OSError as error:
            reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise StartFailed(f"port {port} of {HOST}, wanted for {user}, {reason}; choose another one") from error


def _checked_chroot(chroot: str) -> str:
    if chroot and (not chroot.startswith("/") or any(part in ("", ".", "..") for part in chroot[1:].split("/"))):
        raise ValueError(f"chroot {chroot!r}: must be a path that starts with / and does not end with it")
    return chroot


def _fixed_ports(ids: Sequence[int], port: int | None, zookeeper_port: int | None) -> dict[int, str]:
    """Port -> what needs it, of the ports that were asked for."""
    wanted = [] if zookeeper_port is None else [(zookeeper_port, "ZooKeeper")]
    if port is not None:
        wanted += [(port + number, f"broker {broker_id}") for number, broker_id in enumerate(ids)]
    found: dict[int, str] = {}
    for number, user in wanted:
        if not 1 <= number <= 65535:
            raise ValueError(f"port {number} for {user}: must be from 1 to 65535")
        if number in found:
            raise ValueError(f"port {number} is wanted for {found[number]} and for {user}")
        found[number] = user
    return found
