"""What a running stream sees of its topics: which partitions there are, who leads them, where their logs end.

An idle query asks some sixty times a second. Ends are asked of the brokers five times a second at most, on connections
that stay open, and topics of ZooKeeper every few seconds; leaders only when one refuses or falls silent. Before news
are read the topics are looked at once more, so that nothing is read of a topic that was created anew in between.

A broker or a ZooKeeper that is away stops nothing but its own part: partitions without a leader have no end, and
without ZooKeeper the topics are taken to be what they were.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rebalance import znodes
from rebalance.errors import AccessRefused, RebalanceError, UnreadableNode
from rebalance.requests import Exists, GetChildren, GetData, SessionChange, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import ask_at, in_requests
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, ZooKeeperSilent, read_all
from zkconsumer.spark.errors import shown_broker
from zkconsumer.spark.log_changes import Logs, shrunk
from zkconsumer.spark.log_reach import ends_before
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.stream_offsets import StreamOffsets

__all__ = ["StreamLogs"]

log = logging.getLogger(__name__)

ENDS_S: Final = 0.2
"""How long the ends of the logs are taken to be what they were."""
SHRUNK_S: Final = 5.0
"""How long a log must seem to end before the position until that is believed."""
_PAUSE_S: Final = 0.2
TOPICS_S: Final = 5.0
"""How long the topics are taken to be what they were, while there is nothing to read."""
_BROKER_S: Final = 5.0
"""Longest wait for one broker: the others wait with it."""
_LEADERS_S: Final = 1.0
"""Shortest time between two searches for missing leaders."""
_LOG_EVERY_S: Final = 60.0
"""Shortest time between two lines in the log about a ZooKeeper that is away."""
_LONG_AGO: Final = float("-inf")


class StreamLogs:
    """Topics, leaders and ends of logs, asked as seldom as they can be.

    Attributes:
        leaders: leader of each partition as far as they are known.
        is_connected: whether ZooKeeper can be asked.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._config = options.config
        self._port: ZooKeeperPort | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._created_zxids: dict[str, int] = {}
        self._cluster_ms: int | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._answered: frozenset[TopicPartition] = frozenset()
        self._topics_at = self._ends_at = self._leaders_at = self._logged_at = _LONG_AGO
        self._failures: dict[TopicPartition, _Failure] = {}
        self._lagging: dict[TopicPartition, str] = {}
        self._consumers: dict[Broker, SimpleConsumer] = {}
        self.leaders: dict[TopicPartition, Broker] = {}
        self.is_connected = True

    def use(self, port: ZooKeeperPort) -> None:
        """Ask through this port from now on."""
        self._port = port
        self._cluster = Cluster(port, self._config.client_id, self._config.socket_timeout_ms / 1000)

    def session_changed(self, change: SessionChange) -> None:
        """Take note of what became of the session; on the port's callback thread."""
        self.is_connected = change.what == "connected"

    def read(self, *, new_ends: bool = False, new_topics: bool = False) -> Logs:
        """What is there.

        Args:
            new_ends, new_topics: not what is remembered.

        Raises:
            ZooKeeperSilent: ZooKeeper did not answer, and never has.
        """
        now = time.monotonic()
        if new_topics or now - self._topics_at > TOPICS_S:
            self._refresh_topics()
        if new_ends or now - self._ends_at > ENDS_S:
            known = {name: self._ends[name] for name in self._partitions & self._ends.keys()}
            answers = self._ask(self._partitions, LATEST)
            self._ends = known | answers
            self._answered = frozenset(answers)
            self._ends_at = time.monotonic()
        ends = {name: self._ends[name] for name in self._answered & self._partitions}
        return Logs(self._partitions, ends, dict(self._created_zxids), self._cluster_ms)

    def read_settled(self, offsets: StreamOffsets) -> Logs:
        """What is there, when topics were looked at anew and no log seems to be cut, or it has seemed so for long.

        A log that goes on behind the end that its leader names has no end, as if the leader had not answered.
        """
        deadline = time.monotonic() + SHRUNK_S
        logs = self._without_lagging(offsets, self.read(new_topics=True))
        while shrunk(offsets, logs) and not logs.is_of_another_cluster(offsets) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            logs = self._without_lagging(offsets, self.read(new_ends=True, new_topics=True))
        return logs

    def _without_lagging(self, offsets: StreamOffsets, logs: Logs) -> Logs:
        """The same without the ends that are lower than those of the logs themselves."""
        cut = set() if logs.is_of_another_cluster(offsets) else set(shrunk(offsets, logs))
        behind = cut - self._cut({name: offsets.offsets[name] for name in cut})
        lagging = behind & self.leaders.keys()  # of the others the leader did not answer
        for name in self._lagging.keys() - lagging:
            del self._lagging[name]
        for name in lagging:
            reason = f"its log reaches {offsets.offsets[name]}, and readers get it up to {logs.ends[name]} so far"
            if name not in self._lagging:
                log.warning("%s-%s waits for its replicas: %s", *name, reason)
            self._lagging[name] = reason
        return replace(logs, ends={name: end for name, end in logs.ends.items() if name not in behind})

    def _cut(self, offsets: dict[TopicPartition, int]) -> set[TopicPartition]:
        """The partitions whose leaders say that their logs end before these offsets."""
        found: set[TopicPartition] = set()
        for broker, names in self._by_leader(offsets).items():
            try:
                found |= ends_before(self._consumer(broker), {name: offsets[name] for name in names})
            except SimpleConsumerError as error:
                self._drop_broker(broker, names, error)
        return found

    def failure_of(self, name: TopicPartition) -> str:
        """Why a partition does not answer, a clause."""
        if name in self._lagging:
            return self._lagging[name]
        failure = self._failures.get(name)
        return "no broker leads it" if failure is None else failure.reason

    def last_ends(self) -> dict[TopicPartition, int]:
        """The ends as last seen, also of partitions that have no leader now."""
        return dict(self._ends)

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where logs begin, without those whose leader did not answer."""
        return self._ask(partitions, EARLIEST)

    def selects(self, name: TopicPartition) -> bool:
        """Whether the query would read a partition if it existed."""
        choice = self._options.choice
        if choice.partitions:
            return name in choice.partitions
        return name.topic in choice.topics_of([name.topic], self._config.exclude_internal_topics)

    def close(self) -> None:
        """Close the connections to brokers."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    # -- ZooKeeper -----------------------------------------------------------------------------------------------------

    def _refresh_topics(self) -> None:
        try:
            if self.is_connected:
                self._read_topics()
                self._topics_at = time.monotonic()
            else:
                raise ZooKeeperSilent("ZooKeeper is not connected")
        except (ZooKeeperSilent, AccessRefused) as error:
            now = time.monotonic()
            if self._topics_at == _LONG_AGO:
                raise
            if now - self._logged_at > _LOG_EVERY_S:  # Spark asks sixty times a second
                self._logged_at = now
                log.warning("topics are taken to be what they were %.0f s ago: %s", now - self._topics_at, error)

    def _read_topics(self) -> None:
        assert self._port is not None
        choice = self._options.choice
        listing: list[str] = []
        if choice.is_filter:
            [found] = read_all(self._port, [GetChildren(znodes.TOPICS)], READ_TIMEOUT_S)
            listing = [] if found is None else found[0]
        topics = choice.topics_of(listing, self._config.exclude_internal_topics)
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
                # What was read before is not to be taken for gone.
                raise ZooKeeperSilent(str(error)) from error
            created_zxids[topic] = value[1].czxid
            partitions += [TopicPartition(topic, number) for number in numbers]
        recreated = {topic for topic, zxid in created_zxids.items() if self._created_zxids.get(topic, zxid) != zxid}
        for name in [name for name in self.leaders if name.topic in recreated]:
            del self.leaders[name]
        if recreated:
            self._ends_at = _LONG_AGO
        self._partitions = frozenset(name for name in partitions if self.selects(name))
        self._created_zxids = created_zxids
        self._cluster_ms = None if parent is None else parent.created_ms

    # -- brokers -------------------------------------------------------------------------------------------------------

    def _ask(self, partitions: Collection[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """One end of the logs of those partitions whose leaders answer."""
        found = self._ask_known(partitions, time_ms)
        missing = [name for name in partitions if name not in found]
        if missing and time.monotonic() - self._leaders_at > _LEADERS_S:
            self._leaders_at = time.monotonic()
            self._find_leaders(missing)
            found.update(self._ask_known(missing, time_ms))
        for name in partitions:
            if name in found:
                self._failures.pop(name, None)
            else:
                self._log_failure(name)
        return found

    def _find_leaders(self, missing: Iterable[TopicPartition]) -> None:
        if not self.is_connected:
            return
        try:
            self.leaders.update(self._cluster.leaders(dict.fromkeys(missing)))
        except RebalanceError as error:
            log.warning("leaders cannot be looked for: %s", error)

    def _ask_known(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for broker, names in self._by_leader(partitions).items():
            for some in in_requests(names):
                found.update(self._ask_broker(broker, some, time_ms))
        return found

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Broker, list[TopicPartition]]:
        found: defaultdict[Broker, list[TopicPartition]] = defaultdict(list)
        for name in sorted(partitions):
            leader = self.leaders.get(name)
            if leader is not None:
                found[leader].append(name)
        return found

    def _consumer(self, broker: Broker) -> SimpleConsumer:
        if broker not in self._consumers:
            timeout_s = min(self._config.socket_timeout_ms / 1000, _BROKER_S)
            self._consumers[broker] = SimpleConsumer(broker.host, broker.port, timeout_s, self._config.client_id)
        return self._consumers[broker]

    def _ask_broker(self, broker: Broker, names: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        try:
            answer = ask_at(self._consumer(broker), names, time_ms)
        except SimpleConsumerError as error:
            self._drop_broker(broker, names, error)
            return {}
        found: dict[TopicPartition, int] = {}
        for name, code in answer.refused.items():
            self._drop_leader(name, f"{shown_broker(broker)}: {BrokerError(code, name.topic, int(name.partition))}")
        for name, offset in answer.offsets.items():
            if offset is not None and offset >= 0:
                found[name] = offset
            else:
                named = "no offset" if offset is None else f"offset {offset}, which is negative"
                self._drop_leader(name, f"{shown_broker(broker)} names {named}")
        return found

    def _drop_broker(self, broker: Broker, names: Iterable[TopicPartition], error: SimpleConsumerError) -> None:
        self._consumers.pop(broker).close()
        for name in names:
            self._drop_leader(name, f"{shown_broker(broker)}: {error}")

    def _drop_leader(self, name: TopicPartition, reason: str) -> None:
        del self.leaders[name]
        if name not in self._failures:
            self._failures[name] = _Failure(reason)

    def _log_failure(self, name: TopicPartition) -> None:
        """Say once what is wrong with a partition, until it was well again."""
        failure = self._failures.setdefault(name, _Failure("no broker leads it"))
        if not failure.is_logged:
            failure.is_logged = True
            log.warning("%s-%s cannot be asked about its log: %s", *name, failure.reason)


@dataclass
class _Failure:
    """Why a partition does not answer, and whether that was said."""

    reason: str
    is_logged: bool = False
