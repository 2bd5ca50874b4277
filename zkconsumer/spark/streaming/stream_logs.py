"""Keeps track of the logs that a running stream reads: its partitions, and where their logs end.

Spark asks an idle query some sixty times a second. Brokers are asked for ends five times a second at most, and
ZooKeeper for topics every few seconds. Before new messages are read the topics are read once more, so that nothing is
read of a topic that was created anew in between.

A broker or a ZooKeeper that is down affects its own part only: partitions without a leader have no end, and without
ZooKeeper the topics are assumed to be unchanged.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rebalance.errors import AccessRefused, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData, SessionChange, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.metadata_reader import MetadataReader, TopicRefused
from zkconsumer.cluster.registry import read_partitions
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, ClusterSilent, ZooKeeperSilent, read_all
from zkconsumer.config import READ_COMMITTED
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.cluster_offsets import refuse_unfit
from zkconsumer.spark.reading.leader_queries import LeaderQueries, LogMark
from zkconsumer.spark.settings_files import security_here
from zkconsumer.spark.streaming.log_changes import Logs, shrunk
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, number_of_cluster, number_of_topic

log = logging.getLogger(__name__)

ENDS_S: Final = 0.2
"""How long the ends of the logs are assumed to be unchanged."""
SHRUNK_S: Final = 5.0
"""How long a log must seem to end before the position until that counts."""
_PAUSE_S: Final = 0.2
TOPICS_S: Final = 5.0
"""How long the topics are assumed to be unchanged, while there is nothing to read."""
_LOG_EVERY_S: Final = 60.0
"""Shortest time between two log lines about a ZooKeeper that is down."""
_LONG_AGO: Final = float("-inf")


class StreamLogs:
    """The partitions of a query and the ends of their logs, read as rarely as possible.

    Attributes:
        is_connected: whether ZooKeeper is connected.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._config = options.config
        self._port: ZooKeeperPort | None = None
        self._reader: MetadataReader | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._created_zxids: dict[str, int] = {}
        self._cluster_ms: int | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._answered: frozenset[TopicPartition] = frozenset()
        self._topics_at = self._ends_at = self._logged_at = _LONG_AGO
        self._lagging: dict[TopicPartition, str] = {}
        self._intact: dict[TopicPartition, tuple[LogMark, int]] = {}
        self._queries: LeaderQueries | None = None
        self.is_connected = True

    def use(self, source: ZooKeeperPort | MetadataReader) -> None:
        """Read topics from ZooKeeper, or from the brokers alone; to be called before anything is read."""
        if isinstance(source, MetadataReader):
            self._reader = source
        else:
            self._port = source
        config = self._config
        cluster = Cluster(source, config.client_id, config.socket_timeout_ms / 1000, security=security_here(config))
        self._queries = LeaderQueries(cluster, self._config, lambda: self.is_connected)

    @property
    def _brokers(self) -> LeaderQueries:
        assert self._queries is not None
        return self._queries

    @property
    def leaders(self) -> Mapping[TopicPartition, Broker]:
        """The leaders that are known."""
        return self._brokers.leaders

    def session_changed(self, change: SessionChange) -> None:
        """Store whether ZooKeeper is connected; on the port's callback thread."""
        self.is_connected = change.what == "connected"

    def read(self, *, new_ends: bool = False, new_topics: bool = False) -> Logs:
        """The present state of the logs.

        Args:
            new_ends, new_topics: read them again, however recent the last ones are.

        Raises:
            ZooKeeperSilent: ZooKeeper did not answer, and never has.
        """
        now = time.monotonic()
        if new_topics or now - self._topics_at > TOPICS_S:
            self._refresh_topics()
        if new_ends or now - self._ends_at > ENDS_S:
            known = {name: self._ends[name] for name in self._partitions & self._ends.keys()}
            answers = self._brokers.log_offsets(self._partitions, LATEST)
            self._ends = known | answers
            self._answered = frozenset(answers)
            self._ends_at = time.monotonic()
        ends = {name: self._ends[name] for name in self._answered & self._partitions}
        return Logs(
            self._partitions, ends, dict(self._created_zxids), self._cluster_ms,
            may_return=self._options.counts_bytes,
            epochs={name: epoch for name, epoch in self._brokers.epochs.items() if name in ends},
        )  # fmt: skip

    def read_settled(self, offsets: StreamOffsets) -> Logs:
        """The state of the logs with topics read again, once no log seems truncated, or one has for some seconds.

        A log that is longer than the end that its leader reports has no end, as if the leader had not answered.
        """
        deadline = time.monotonic() + SHRUNK_S
        logs = self._without_lagging(offsets, self.read(new_topics=True))
        while shrunk(offsets, logs) and not logs.is_of_another_cluster(offsets) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            logs = self._without_lagging(offsets, self.read(new_ends=True, new_topics=True))
        return logs

    def _without_lagging(self, offsets: StreamOffsets, logs: Logs) -> Logs:
        """The same without ends that are lower than those of the logs themselves."""
        short = set() if logs.is_of_another_cluster(offsets) else set(shrunk(offsets, logs))
        late = short - self._brokers.ending_before({name: offsets.offsets[name] for name in short})
        lagging = late & self.leaders.keys()  # the leaders of the others did not answer
        for name in self._lagging.keys() - lagging:
            del self._lagging[name]
        for name in lagging:
            reason = f"its log ends at {offsets.offsets[name]}, but readers get it only up to {logs.ends[name]} so far"
            if name not in self._lagging:
                is_committed = self._config.isolation_level == READ_COMMITTED
                waits_for = "its replicas, or for an open transaction" if is_committed else "its replicas"
                log.warning("%s-%s waits for %s: %s", *name, waits_for, reason)
            self._lagging[name] = reason
        return replace(logs, ends={name: end for name, end in logs.ends.items() if name not in late})

    def compared(self, offsets: StreamOffsets, logs: Logs) -> Logs:
        """The same with what leaders of later epochs say of the logs: where they were cut below the offsets.

        A log of which that is not known yet has no end, as if its leader had not answered.
        """
        if logs.is_of_another_cluster(offsets):
            return logs
        marks = {name: LogMark(offsets.offsets[name], epoch) for name, epoch in offsets.epochs.items()
                 if name in logs.ends and logs.epochs.get(name, -1) > epoch
                 and not logs.is_recreated(name.topic, offsets)}  # fmt: skip
        doubtful = {name: mark for name, mark in marks.items() if self._intact.get(name) != (mark, logs.epochs[name])}
        found = self._brokers.cuts(doubtful)
        self._intact |= {name: (mark, logs.epochs[name]) for name, mark in doubtful.items()
                         if name not in found.at and name not in found.refused}  # fmt: skip
        ends = {name: end for name, end in logs.ends.items() if name not in found.refused}
        return replace(logs, ends=ends, cuts=found.at)

    def failure_of(self, name: TopicPartition) -> str:
        """Why a partition does not answer, a clause."""
        return self._lagging.get(name) or self._brokers.failure_of(name)

    def last_ends(self) -> dict[TopicPartition, int]:
        """The last known ends, also of partitions that have no leader now."""
        return dict(self._ends)

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The starts of logs, without those whose leader did not answer."""
        return self._brokers.log_offsets(partitions, EARLIEST)

    def selects(self, name: TopicPartition) -> bool:
        """Whether the query would read a partition if it existed."""
        choice = self._options.choice
        if choice.partitions:
            return name in choice.partitions
        return name.topic in choice.topics_of([name.topic], self._config.exclude_internal_topics)

    def close(self) -> None:
        """Close the connections to brokers."""
        if self._queries is not None:
            self._queries.close()

    # -- ZooKeeper -----------------------------------------------------------------------------------------------------

    def _refresh_topics(self) -> None:
        try:
            if self.is_connected:
                self._read_topics()
                self._topics_at = time.monotonic()
            else:
                raise ZooKeeperSilent("ZooKeeper is not connected")
        except (ClusterSilent, AccessRefused, TopicRefused) as error:
            now = time.monotonic()
            if self._topics_at == _LONG_AGO:
                raise
            if now - self._logged_at > _LOG_EVERY_S:  # Spark asks sixty times a second
                self._logged_at = now
                log.warning("topics are assumed to be unchanged for %.0f s: %s", now - self._topics_at, error)

    def _read_brokers_of(self, topics: Sequence[str]) -> None:
        """Read topics of Kafka 0.7: the partitions of the brokers that are registered below them."""
        assert self._port is not None
        [parent] = read_all(self._port, [Exists(znodes.TOPICS)], READ_TIMEOUT_S)
        try:
            found = read_partitions(self._port, topics)
        except UnreadableNode as error:
            raise ZooKeeperSilent(str(error)) from error
        for topic, partitions in found.items():
            refuse_unfit(topic, partitions, self._config.kafka_generation)
        names = (TopicPartition(topic, each) for topic, partitions in found.items() for each in partitions)
        self._partitions = frozenset(name for name in names if self.selects(name))
        self._cluster_ms = None if parent is None else parent.created_ms

    def _read_topics_of_brokers(self, reader: MetadataReader) -> None:
        """Read topics in metadata; their ids tell incarnations apart, and brokers before 2.8 give none."""
        choice = self._options.choice
        topics = choice.topics_of(reader.topics() if choice.is_filter else [], self._config.exclude_internal_topics)
        found = reader.existing_topics(topics)
        ids = {name: number_of_topic(topic.topic_id) for name, topic in found.items() if topic.topic_id is not None}
        self._take_topics(
            [TopicPartition(name, row.partition) for name, topic in found.items() for row in topic.partitions], ids
        )
        self._cluster_ms = None if reader.cluster_id is None else number_of_cluster(reader.cluster_id)

    def _take_topics(self, partitions: Iterable[TopicPartition], created_zxids: dict[str, int]) -> None:
        """Take over the partitions that were read; the state of topics that were created again is forgotten."""
        recreated = {topic for topic, zxid in created_zxids.items() if self._created_zxids.get(topic, zxid) != zxid}
        if recreated:
            self._brokers.forget(recreated)
            self._ends_at = _LONG_AGO
        self._partitions = frozenset(name for name in partitions if self.selects(name))
        self._created_zxids = created_zxids

    def _read_topics(self) -> None:
        if self._reader is not None:
            self._read_topics_of_brokers(self._reader)
            return
        assert self._port is not None
        choice = self._options.choice
        listing: list[str] = []
        if choice.is_filter:
            [found] = read_all(self._port, [GetChildren(znodes.TOPICS)], READ_TIMEOUT_S)
            listing = [] if found is None else found[0]
        topics = choice.topics_of(listing, self._config.exclude_internal_topics)
        if self._options.counts_bytes:
            self._read_brokers_of(topics)
            return
        nodes = [GetData(znodes.topic_path(topic)) for topic in topics]
        parent, *values = read_all(self._port, [Exists(znodes.TOPICS), *nodes], READ_TIMEOUT_S)
        partitions: list[TopicPartition] = []
        created_zxids: dict[str, int] = {}
        for topic, value in zip(topics, values, strict=True):
            if value is None:
                continue
            try:
                numbers = znodes.parse_topic(topic, value[0])
            except UnreadableNode as error:
                # Its partitions must not be taken for deleted.
                raise ZooKeeperSilent(str(error)) from error
            created_zxids[topic] = value[1].czxid
            partitions += [TopicPartition(topic, number) for number in numbers]
        self._take_topics(partitions, created_zxids)
        self._cluster_ms = None if parent is None else parent.created_ms
