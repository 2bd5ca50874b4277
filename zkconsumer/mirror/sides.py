"""What a mirror copies, and the two clusters of it, connected.

Threads: any.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from rebalance.rebalance_statistics import Counters
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetData, Stat, ZooKeeperPort
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import NO_ID, dialect_of, takes_producer_ids
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.throttling import counting
from simpleconsumer.types import Broker, ProducerId
from zkconsumer.admin.topics.topic_nodes import read_brokers
from zkconsumer.cluster.cluster import Cluster, open_cluster
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_connection import ClusterSilent, read_all
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.errors import MirrorRefused
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.lane_settings import SETTLE_S
from zkconsumer.mirror.lanes.lane import FORGOTTEN_AFTER_MS
from zkconsumer.producer.sending.broker_thread import new_producer_id

_ANSWER_S: Final = 10.0
_QUEUED_BYTES: Final = 64 << 20
_OLDEST: Final = "the oldest targets are of Kafka 0.8.1"


@dataclass(frozen=True)
class TopicRules:
    """How topics are named and made on the target.

    Attributes:
        prefix: Comes before each name on the target.
        renames: Name at the source -> name on the target.
        replication: Replicas of each partition on the target; None: as at the source, or as many as it has brokers.
        settings: Settings of the topics that are made, which override those of the source.
    """

    prefix: str = ""
    renames: Mapping[str, str] = field(default_factory=dict)
    replication: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def name(self, topic: str) -> str:
        """Return the name of a topic on the target."""
        return self.renames.get(topic, self.prefix + topic)


@dataclass(frozen=True)
class MirrorSettings:
    """What a mirror copies, and how.

    Attributes:
        name: Of the mirror; `__zkconsumer_mirror_NAME` is its state topic and its group on the target.
        source_zookeeper: `host:port,...` of the source; None: the properties name brokers as `bootstrap.servers`.
        target_zookeeper: That of a target of Kafka 0.8 to 0.10; None: the properties name brokers of later versions.
        source, target: Properties of consumers of both sides.
        whitelist: Which topics are copied: a regular expression, or names separated by commas.
        rules: How topics are made on the target.
        skips_losses: Goes on after what the source has lost; otherwise the lane stops.
        compression: The codec for records that came without a batch of Kafka 0.11.
        sets_times: Records get the time at which they are copied, instead of their own.
        pins_producers: Batches belong to transactions, so that brokers never forget the producer of a lane.
        preserves_offsets: Records get the offsets that they have in the source.
        slots: Partitions of the state topic, if the mirror makes it.
        rate_bytes: Most bytes a second; None for no limit.
        until_end: Ends when everything is copied that was there.
        forgotten_after_ms: When leaders of the target forget a producer; see `LaneMachine`.
        settle_s: How long a hole that others may see differently waits after a start.
    """

    name: str
    target: Mapping[str, Any]
    source: Mapping[str, Any] = field(default_factory=dict)
    source_zookeeper: str | None = None
    target_zookeeper: str | None = None
    whitelist: str = ".*"
    rules: TopicRules = field(default_factory=TopicRules)
    skips_losses: bool = False
    compression: str = "none"
    sets_times: bool = False
    pins_producers: bool = False
    preserves_offsets: bool = False
    slots: int = 16
    rate_bytes: int | None = None
    until_end: bool = False
    forgotten_after_ms: int = FORGOTTEN_AFTER_MS
    settle_s: float = SETTLE_S

    STATE_PREFIX: ClassVar[str] = "__zkconsumer_mirror_"

    def transactional_id(self, lane: Lane) -> str:
        """Return the transactional id of what a lane writes in transactions."""
        return f"{self.state_topic}/{lane.target.topic}/{lane.target.partition}"

    @property
    def state_topic(self) -> str:
        """The topic of the target in which the runs are."""
        return f"{self.STATE_PREFIX}{self.name}"


class Both:
    """The two clusters of a mirror, connected.

    Attributes:
        source, target: The clusters.
        source_id, target_id: Their ids.
        source_config, target_config: Settings of consumers of both.
        port: ZooKeeper of the source; None without one.
        target_port: ZooKeeper of a target of Kafka 0.8 to 0.10; None for later ones.
        settings: Of the mirror; its properties of the target name brokers as `bootstrap.servers`.
        has_numbers: Whether the target keeps sequence numbers, as Kafka 0.11 and later do; only those have headers.
    """

    def __init__(self, settings: MirrorSettings, stack: ExitStack) -> None:
        self.source_config = _config(settings.source_zookeeper, settings.source, settings.name)
        self.target_port: ZooKeeperPort | None = None
        self._old_target: Cluster | None = None
        if settings.target_zookeeper is not None:
            self._old_target, self.target_port, settings = old_target(settings, stack)
        self.settings = settings
        self.has_numbers = self.target_port is None
        if settings.pins_producers and settings.preserves_offsets:
            raise MirrorRefused("pinned lanes write markers, which have offsets that records have in the source",
                                "give --pin-producers or --preserve-offsets, not both")  # fmt: skip
        if not self.has_numbers and (settings.pins_producers or settings.preserves_offsets):
            raise MirrorRefused("the target is older than Kafka 0.11, and has no transactions",
                                "leave out --pin-producers and --preserve-offsets")  # fmt: skip
        self.target_config = _config(None, settings.target, settings.name)
        if self.target_config.bootstrap_servers is None:
            raise MirrorRefused("the target names no brokers", "give bootstrap.servers of the target")
        self.source, self.port = _opened(self.source_config, stack, pins_topics=True)
        self.target, _ = _opened(self.target_config, stack)
        self.source_id = _id_of("source", self.source, self.port)
        self._refuse_other_target()
        self.target_id = _id_of("target", self.target, self.target_port)

    def target_brokers(self) -> list[Broker]:
        """Return the brokers of the target; those of 0.8 name none to clients before they have a topic."""
        return (self._old_target or self.target.cluster).brokers()

    def target_partitions(self, topics: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
        """Return the partitions of those of the topics that exist on the target; its ZooKeeper knows them first."""
        return (self._old_target or self.target.cluster).partitions(topics)

    def _refuse_other_target(self) -> None:
        """Raise unless the target is named as its version needs it: each broker of an old one, one of the others.

        Raises:
            MirrorRefused: Names a broker.
        """
        for broker in self.target_brokers():
            try:
                with self.target.connect(broker) as client:
                    has_numbers = takes_producer_ids(client.served_versions())
            except SimpleConsumerError:
                continue  # it is away; the others say it
            at = f"broker {broker.id} of the target ({broker.host}:{broker.port}) is of Kafka"
            if has_numbers and not self.has_numbers:
                raise MirrorRefused(f"{at} 0.11 or later", "name the target by its brokers: --to-brokers")
            if self.has_numbers and not has_numbers:
                raise MirrorRefused(f"{at} 0.10 or earlier, without sequence numbers",
                                    "name the target by its ZooKeeper: --to-zookeeper")  # fmt: skip
            if has_numbers:
                return  # the lanes find each leader that has none

    def incarnations(self, topics: Collection[str]) -> dict[str, str]:
        """Return which topic of its name each one is, as far as the source tells."""
        reader = self.source.cluster.reader
        if isinstance(reader, MetadataReader):
            found = reader.existing_topics(list(topics))
            return {name: each.topic_id for name, each in found.items() if each.topic_id is not None}
        assert self.port is not None
        stats = read_all(self.port, [Exists(znodes.topic_path(name)) for name in topics])
        return {name: f"zxid-{stat.czxid}" for name, stat in zip(topics, stats, strict=True) if isinstance(stat, Stat)}

    def new_producer_id(self) -> ProducerId:
        """Return a producer id of the target; none before Kafka 0.11."""
        if not self.has_numbers:
            return NO_ID
        fault: SimpleConsumerError | None = None
        for broker in self.target.cluster.brokers():
            try:
                with self.target.connect(broker) as client:
                    return new_producer_id(client)
            except SimpleConsumerError as error:
                fault = error
        raise fault or ClusterSilent("no broker of the target is known")


def _id_of(side: str, cluster: Side, port: ZooKeeperPort | None) -> str:
    """Return the id of a cluster: as its brokers tell it, or as its ZooKeeper has it."""
    found = _cluster_id(cluster.cluster)
    if found is not None:
        return found
    if port is None:
        raise MirrorRefused(f"the brokers of the {side} tell no cluster id: they are older than Kafka 0.10.1",
                            f"name the {side} by its ZooKeeper")  # fmt: skip
    data, stat = read_all(port, [GetData("/cluster/id"), Exists("/brokers")])
    if isinstance(data, tuple) and data[0]:
        return str(json.loads(data[0])["id"])
    assert isinstance(stat, Stat)
    return f"zookeeper-{stat.created_ms:x}"


def old_target(settings: MirrorSettings, stack: ExitStack) -> tuple[Cluster, ZooKeeperPort, MirrorSettings]:
    """Return a target of Kafka 0.8 to 0.10 as its ZooKeeper has it, that one, and the settings with its brokers.

    Raises:
        MirrorRefused: No broker is registered there, or one is of Kafka 0.7 or 0.8.0; or zstd is asked for.
    """
    if settings.compression == "zstd":
        raise MirrorRefused("the target is older than Kafka 2.1, which does not know zstd",
                            "give --compression gzip, snappy or lz4")  # fmt: skip
    given = {name: value for name, value in settings.target.items() if name != "bootstrap.servers"}
    config = _config(settings.target_zookeeper, given, settings.name)
    cluster, port = stack.enter_context(open_cluster(config, _ANSWER_S))
    assert port is not None
    if cluster.generation().has_broker_nodes:
        raise MirrorRefused("the target is of Kafka 0.7, which does not answer producers", _OLDEST)
    brokers = cluster.brokers()
    if not brokers:
        raise MirrorRefused(f"no broker of the target is registered at {settings.target_zookeeper}",
                            "check that they run, and that --to-zookeeper has their chroot")  # fmt: skip
    if not read_brokers(port).has_settings:
        raise MirrorRefused("the target is of Kafka 0.8.0, whose topics have no settings: it would delete the state "
                            "of the mirror after a week", _OLDEST)  # fmt: skip
    servers = settings.target.get("bootstrap.servers") or ",".join(f"{each.host}:{each.port}" for each in brokers)
    return cluster, port, replace(settings, target={**given, "bootstrap.servers": servers})


def opened_target(
    settings: MirrorSettings, stack: ExitStack
) -> tuple[Side, ConsumerConfig, ZooKeeperPort | None, MirrorSettings]:  # fmt: skip
    """Return the target of a mirror, settings of its consumers, its ZooKeeper and the settings, as `Both` has them."""
    port: ZooKeeperPort | None = None
    if settings.target_zookeeper is not None:
        _, port, settings = old_target(settings, stack)
    config = _config(None, settings.target, settings.name)
    return _opened(config, stack)[0], config, port, settings


def _opened(
    config: ConsumerConfig, stack: ExitStack, *, pins_topics: bool = False
) -> tuple[Side, ZooKeeperPort | None]:
    cluster, port = stack.enter_context(open_cluster(config, _ANSWER_S, pins_topics=pins_topics))
    source = cluster.reader if isinstance(cluster.reader, MetadataReader) else port
    assert source is not None

    def new_cluster() -> Cluster:
        return Cluster(
            source, config.client_id, _ANSWER_S, forced_generation=config.kafka_generation, security=config.security
        )

    counters = Counters()
    return Side(new_cluster, _connect(config, counters), counters), port


def _config(zookeeper: str | None, properties: Mapping[str, Any], name: str) -> ConsumerConfig:
    given = {"queued.max.bytes": _QUEUED_BYTES, **properties, "isolation.level": "read_committed"}
    return config_without_group(zookeeper, given, f"mirror-{name}")


def _connect(config: ConsumerConfig, counters: Counters) -> Any:
    def connection(broker: Broker, *, read_committed: bool = False) -> SimpleConsumer:
        return SimpleConsumer(
            broker.host, broker.port, _ANSWER_S * 2, config.client_id, dialect=dialect_of(broker),
            security=config.security, connect_timeout_s=_ANSWER_S, read_committed=read_committed,
            on_throttle=counting(counters.add),
        )  # fmt: skip

    return connection


def _cluster_id(cluster: Cluster) -> str | None:
    reader = cluster.reader
    if not isinstance(reader, MetadataReader):
        return None
    return reader.metadata([])[0].cluster_id
