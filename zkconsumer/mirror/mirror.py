"""A mirror: copies topics of one cluster to another, each record once and in order, for every reader.

Each process of a mirror is a member of a group on the target, which shares out the partitions of the state topic: the
slots. A lane belongs to a slot by its name. Sharing is for speed alone: what keeps records from being copied twice is
the sequence numbers, not the group.

Threads: `run` by one; `stop` from any, and from signal handlers. Each lane has its own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import zlib
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetData, Stat
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import Broker, ProducerId, TopicPartition
from zkconsumer.cluster.cluster import Cluster, open_cluster
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_connection import ClusterSilent, read_all
from zkconsumer.config import ConsumerConfig, KafkaConsumerConfig
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.mirror.copier import SETTLE_S, LaneCopier, LaneFigures, LaneSettings
from zkconsumer.mirror.errors import MirrorRefused
from zkconsumer.mirror.lane import FORGOTTEN_AFTER_MS
from zkconsumer.mirror.pieces import Limits
from zkconsumer.mirror.records import Side
from zkconsumer.mirror.runs import Lane
from zkconsumer.mirror.source import SourcePool
from zkconsumer.mirror.state_log import StateLog
from zkconsumer.mirror.topics import TopicCopies, TopicPlan, TopicRules
from zkconsumer.polling.poller import Poller
from zkconsumer.producer.sending.broker_thread import new_producer_id

log = logging.getLogger(__name__)

_ANSWER_S: Final = 10.0
_LOOK_S: Final = 10.0
_POLL_S: Final = 0.2
_LEAVE_S: Final = 10.0
_QUEUED_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class MirrorSettings:
    """What a mirror copies, and how.

    Attributes:
        name: Of the mirror; `__zkconsumer_mirror_NAME` is its state topic and its group on the target.
        source_zookeeper: `host:port,...` of the source; None: the properties name brokers as `bootstrap.servers`.
        source, target: Properties of consumers of both sides; those of the target name `bootstrap.servers`.
        whitelist: Which topics are copied: a regular expression, or names separated by commas.
        rules: How topics are made on the target.
        skips_losses: Goes on after what the source has lost; otherwise the lane stops.
        compression: The codec for records that came without a batch of Kafka 0.11.
        sets_times: Records get the time at which they are copied, instead of their own.
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
    whitelist: str = ".*"
    rules: TopicRules = field(default_factory=TopicRules)
    skips_losses: bool = False
    compression: str = "none"
    sets_times: bool = False
    slots: int = 16
    rate_bytes: int | None = None
    until_end: bool = False
    forgotten_after_ms: int = FORGOTTEN_AFTER_MS
    settle_s: float = SETTLE_S

    @property
    def state_topic(self) -> str:
        """The topic of the target in which the runs are."""
        return f"__zkconsumer_mirror_{self.name}"


class Both:
    """The two clusters of a mirror, connected.

    Attributes:
        source, target: The clusters.
        source_id, target_id: Their ids.
        source_config, target_config: Settings of consumers of both.
        port: ZooKeeper of the source; None without one.
    """

    def __init__(self, settings: MirrorSettings, stack: ExitStack) -> None:
        self.source_config = _config(settings.source_zookeeper, settings.source, settings.name)
        self.target_config = _config(None, settings.target, settings.name)
        if self.target_config.bootstrap_servers is None:
            raise MirrorRefused("the target names no brokers", "give bootstrap.servers of the target")
        source, self.port = stack.enter_context(open_cluster(self.source_config, _ANSWER_S, pins_topics=True))
        target, _ = stack.enter_context(open_cluster(self.target_config, _ANSWER_S))
        self.source = Side(source, _connect(self.source_config))
        self.target = Side(target, _connect(self.target_config))
        self.source_id = self._id_of_source()
        found = _cluster_id(target)
        if found is None:
            raise MirrorRefused("the brokers of the target tell no cluster id: they are older than Kafka 0.11",
                                "give brokers of Kafka 0.11 or later as the target")  # fmt: skip
        self.target_id = found

    def _id_of_source(self) -> str:
        found = _cluster_id(self.source.cluster)
        if found is not None:
            return found
        if self.port is None:
            raise MirrorRefused("the brokers of the source tell no cluster id: they are older than Kafka 0.10.1",
                                "name the source by its ZooKeeper")  # fmt: skip
        data, stat = read_all(self.port, [GetData("/cluster/id"), Exists("/brokers")])
        if isinstance(data, tuple) and data[0]:
            return str(json.loads(data[0])["id"])
        assert isinstance(stat, Stat)
        return f"zookeeper-{stat.created_ms:x}"

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
        """Return a producer id of the target."""
        fault: SimpleConsumerError | None = None
        for broker in self.target.cluster.brokers():
            try:
                with self.target.connect(broker) as client:
                    return new_producer_id(client)
            except SimpleConsumerError as error:
                fault = error
        raise fault or ClusterSilent("no broker of the target is known")


class Mirror:
    """Copies until it is stopped, or until everything is copied that was there.

    Args:
        settings: What is copied, and how.

    Raises:
        MirrorRefused: The mirror cannot be started as it is asked for.
        ConfigError: A property has a value that is not allowed.
    """

    def __init__(self, settings: MirrorSettings) -> None:
        self.settings = settings
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._slots: dict[int, dict[Lane, LaneCopier]] = {}
        self._ended: dict[Lane, LaneFigures] = {}

    def stop(self) -> None:
        """Have `run` end: what was sent is waited for."""
        self._stopping.set()

    def figures(self) -> dict[Lane, LaneFigures]:
        """Return what each lane of this process has done."""
        with self._lock:
            return {lane: copier.figures for slot in self._slots.values() for lane, copier in slot.items()}

    def ended(self) -> dict[Lane, LaneFigures]:
        """Return what each lane had done that this process does not copy any more."""
        with self._lock:
            return dict(self._ended)

    def run(self) -> None:
        """Copy until `stop` is called, or everything is copied.

        Raises:
            MirrorRefused, ZkConsumerError: See the class; and the first failure of a lane, with `until_end`.
        """
        settings = self.settings
        with ExitStack() as stack:
            both = Both(settings, stack)
            copies = TopicCopies(both, settings)
            copies.make_state_topic()
            pool = SourcePool(both.source_config, both.source.cluster, copies.count())
            stack.callback(pool.stop)
            member = _Member(settings)
            stack.callback(member.close)
            owned = _OwnedSlots(self, both, copies, pool)
            stack.callback(owned.stop)
            member.listen(owned)
            while not self._stopping.is_set():
                member.poll()
                owned.look()
                if settings.until_end and owned.is_done():
                    break

    # -- for the slots of this process ---------------------------------------------------------------------------------

    def _put(self, slot: int, lanes: dict[Lane, LaneCopier]) -> None:
        with self._lock:
            self._slots[slot] = lanes

    def _take(self, slot: int) -> dict[Lane, LaneCopier]:
        with self._lock:
            lanes = self._slots.pop(slot, {})
            self._ended.update({lane: copier.figures for lane, copier in lanes.items()})
        return lanes


def plan(settings: MirrorSettings) -> list[TopicPlan]:
    """Return what a mirror would do about each topic; changes nothing.

    Raises:
        MirrorRefused: A cluster cannot be told from others, or a side is not named.
    """
    with ExitStack() as stack:
        return TopicCopies(Both(settings, stack), settings).plan()


class _OwnedSlots:
    """The slots of this process, and their lanes. Threads: the one of `Mirror.run`."""

    def __init__(self, mirror: Mirror, both: Both, copies: TopicCopies, pool: SourcePool) -> None:
        self._mirror = mirror
        self._both = both
        self._copies = copies
        self._pool = pool
        self._states: dict[int, StateLog] = {}
        self._looked_at = float("-inf")
        self._pace = _Pace(mirror.settings.rate_bytes)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Read the state of the slots that this process has now."""
        settings = self._mirror.settings
        for name in partitions:
            slot = int(name.partition)
            state = StateLog(
                settings.state_topic, slot, self._both.target.cluster, self._both.target.connect, settings.target
            )
            state.load()
            self._states[slot] = state
            self._mirror._put(slot, {})
        self._looked_at = float("-inf")

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """End the lanes of slots that go to another process."""
        self._end([int(name.partition) for name in partitions])

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """End the lanes of slots that another process has already: their batches are safe by their numbers."""
        self._end([int(name.partition) for name in partitions])

    def _end(self, slots: Collection[int]) -> None:
        copiers = [copier for slot in slots for copier in self._mirror._take(slot).values()]
        for copier in copiers:
            copier.stop()
        deadline = time.monotonic() + _LEAVE_S
        for copier in copiers:
            if not copier.join(deadline - time.monotonic()):
                log.warning("mirror: lane %s is still busy", copier.lane.place)
        for slot in slots:
            self._states.pop(slot, None)

    def stop(self) -> None:
        """End all lanes."""
        self._end(list(self._states))

    def look(self) -> None:
        """Start lanes for partitions that are new, from time to time."""
        if time.monotonic() - self._looked_at < _LOOK_S:
            return
        self._looked_at = time.monotonic()
        try:
            lanes = self._copies.lanes()
        except ClusterSilent as error:
            log.warning("mirror: the topics cannot be looked up now: %s", error)
            return
        incarnations = self._both.incarnations(sorted({lane.source.topic for lane in lanes}))
        for slot, state in self._states.items():
            running = dict(self._mirror._slots.get(slot, {}))
            for lane in lanes:
                if lane not in running and slot_of(lane, self._copies.slots) == slot:
                    running[lane] = LaneCopier(lane, state, self._pool, self._lane_settings(incarnations))
                    running[lane].start()
            self._mirror._put(slot, running)

    def is_done(self) -> bool:
        """Return whether all lanes of all slots that this process has are at the end of the source.

        Raises:
            ZkConsumerError: The failure of the first lane that has one.
        """
        figures = self._mirror.figures()
        for found in figures.values():
            if found.failure is not None:
                raise found.failure
        return bool(self._states) and all(found.lag == 0 for found in figures.values())

    def _lane_settings(self, incarnations: Mapping[str, str]) -> LaneSettings:
        settings = self._mirror.settings
        return LaneSettings(
            self._both.source, self._both.target, self._both.new_producer_id,
            Limits(codec=settings.compression, sets_times=settings.sets_times), settings.skips_losses, incarnations,
            settings.forgotten_after_ms, self._pace.take, settings.settle_s,
        )  # fmt: skip


class _Member:
    """Membership in the group of the mirror. Threads: the one of `Mirror.run`."""

    def __init__(self, settings: MirrorSettings) -> None:
        given = {name: value for name, value in settings.target.items() if name not in ("group.id", "client.id")}
        properties = {**given, "group.id": settings.state_topic, "enable.auto.commit": "false",
                      "auto.offset.reset": "latest", "client.id": f"mirror-{settings.name}"}  # fmt: skip
        self._topic = settings.state_topic
        self._poller = Poller(KafkaConsumerConfig.from_properties(properties))

    def listen(self, listener: _OwnedSlots) -> None:
        """Join the group."""
        self._poller.subscribe([self._topic], listener)

    def poll(self) -> None:
        """Take part in the group for a moment."""
        self._poller.poll(_POLL_S)
        assigned = self._poller.state.assigned
        moving = set(assigned) - set(assigned.paused())
        if moving:
            self._poller.positions.pause(sorted(moving))  # the records are read by `StateLog`

    def close(self) -> None:
        """Leave the group."""
        self._poller.close(_LEAVE_S, in_hand_is_done=True)


class _Pace:
    """Limits the bytes a second of all lanes together. Threads: any."""

    def __init__(self, rate_bytes: int | None) -> None:
        self._rate_bytes = rate_bytes
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, size_bytes: int) -> None:
        """Wait until so many bytes may be copied."""
        if self._rate_bytes is None:
            return
        with self._lock:
            now = time.monotonic()
            wait_s = max(0.0, self._free_at - now)
            self._free_at = max(now, self._free_at) + size_bytes / self._rate_bytes
        time.sleep(wait_s)


def slot_of(lane: Lane, slots: int) -> int:
    """Return to which slot a lane belongs."""
    return zlib.crc32(f"{lane.cluster}/{lane.source.topic}/{lane.source.partition}".encode()) % slots


def _config(zookeeper: str | None, properties: Mapping[str, Any], name: str) -> ConsumerConfig:
    given = {"isolation.level": "read_committed", "queued.max.bytes": _QUEUED_BYTES, **properties}
    return config_without_group(zookeeper, given, f"mirror-{name}")


def _connect(config: ConsumerConfig) -> Any:
    def connection(broker: Broker) -> SimpleConsumer:
        return SimpleConsumer(
            broker.host, broker.port, _ANSWER_S * 2, config.client_id, dialect=dialect_of(broker),
            security=config.security, connect_timeout_s=_ANSWER_S,
        )  # fmt: skip

    return connection


def _cluster_id(cluster: Cluster) -> str | None:
    reader = cluster.reader
    if not isinstance(reader, MetadataReader):
        return None
    return reader.metadata([])[0].cluster_id
