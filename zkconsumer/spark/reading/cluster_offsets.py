"""Asks ZooKeeper and the brokers what the plan of a query needs: topics, partitions, log ends, offsets of a group.

Rule: nothing is planned on a part of the answers. A partition whose leader does not answer is asked about again until
the deadline; then the query fails and names it.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from rebalance.errors import GroupRefused, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetData, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError, broker_error
from simpleconsumer.types import Broker, FetchRequest, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.generation import AUTO
from zkconsumer.cluster.log_ends import PARTITIONS_A_REQUEST, OneTime, ask_at, in_requests
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.time_search import AtTime, TimeSearch, log_segments
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, read_all
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import shown_broker
from zkconsumer.spark.errors import GroupHasNoOffsets, PlanningFailed, TopicMissing
from zkconsumer.spark.options.offsets_json import are_byte_positions, column_value
from zkconsumer.spark.reading import connections
from zkconsumer.spark.reading.bounds import LogEnds
from zkconsumer.spark.reading.leader_queries import ask_ends
from zkconsumer.spark.settings_files import security_here
from zkconsumer_error import first_few

log = logging.getLogger(__name__)

_SAMPLE_BYTES: Final = 32 * 1024
_SAMPLE_GROWTH: Final = 32
_LARGEST_SAMPLE_BYTES: Final = 32 * 1024 * 1024
_LONGEST_BACKOFF_S: Final = 2.0
_Ask = Callable[[SimpleConsumer, Broker, Sequence[TopicPartition]], dict[TopicPartition, int]]
"""Asks one broker about partitions, keeps the answers, and returns the error codes of partitions without an answer."""


class ClusterOffsets:
    """Asks ZooKeeper and the brokers.

    Args:
        source: A connected port, which the caller closes, or what asks the brokers alone.
        patience_s: How long leaders may be missing.
    """

    def __init__(self, source: ZooKeeperPort | MetadataReader, config: ConsumerConfig, patience_s: float) -> None:
        self._source = source
        self._config = config
        self._patience_s = patience_s
        timeout_s, security = config.socket_timeout_ms / 1000, security_here(config)
        self._cluster = Cluster(source, config.client_id, timeout_s, security=security)
        self._backoff = Backoff.of_ms(config.refresh_leader_backoff_ms, _LONGEST_BACKOFF_S, 1.5)

    def refuse_other_generations(self) -> None:
        """Raise if the brokers are of another generation than the options.

        Raises:
            PlanningFailed: Kafka 0.7 without `kafka.generation=0.7`, or another one with it; no PLAINTEXT listener.
        """
        group, forced = self._config.group_id, self._config.kafka_generation
        try:
            if forced != AUTO:
                self._cluster.reader.find_generation(group, forced)
            elif any(dialect_of(each).has_byte_positions for each in self._cluster.reader.usable_brokers(group)):
                raise PlanningFailed(
                    f"the brokers {self._config.where} are of Kafka 0.7, where offsets are "
                    "byte positions",
                    remedy="set option kafka.generation to 0.7: the table then has the columns broker and entry_index, "
                           "which distinguish messages of one compressed entry",
                )  # fmt: skip
        except GroupRefused as error:  # its text is about joining a group, which a query does not do
            raise PlanningFailed(f"the brokers {self._config.where} cannot be read: {error.reason}") from error

    def topics(self) -> list[str]:
        """Return the topics in ZooKeeper, sorted.

        Raises:
            ZooKeeperSilent: No answer in time.
        """
        return self._cluster.topics()

    def partitions(self, topics: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
        """Return the partitions of those topics that exist; on Kafka 0.7, of brokers that are registered.

        Raises:
            PlanningFailed: The node of a topic cannot be read, or a partition does not fit into the columns.
            ZooKeeperSilent: No answer in time.
        """
        try:
            found = self._cluster.partitions(topics)
        except UnreadableNode as error:
            raise PlanningFailed(str(error)) from error
        for topic, partitions in found.items():
            refuse_unfit(topic, partitions, self._config.kafka_generation)
        return found

    def group_offsets(
        self, group: str, partitions: Collection[TopicPartition], *, may_have_none: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offsets that a group has stored in ZooKeeper.

        An offset that was stored before its topic was created anew belongs to the earlier incarnation, and is ignored.

        Args:
            may_have_none: Accept a group without any offset. Otherwise its name is considered misspelt.

        Raises:
            GroupHasNoOffsets: It has none for any of these partitions.
            PlanningFailed: An offset node holds something else.
            ZooKeeperSilent: No answer in time.
        """
        if isinstance(self._source, MetadataReader):
            raise PlanningFailed(f"the offsets of group {group!r} are in ZooKeeper, but bootstrap.servers is given",
                                 remedy="give zookeeper.connect instead")  # fmt: skip
        names = sorted(partitions)
        # On Kafka 0.7 the node of a topic is no incarnation of it: offsets of any age are those of its logs.
        topics = [] if are_byte_positions(names) else sorted({name.topic for name in names})
        paths = [znodes.offset_path(group, name.topic, name.partition) for name in names]
        wanted: list[Exists | GetData] = [Exists(znodes.topic_path(topic)) for topic in topics]
        wanted += [GetData(path) for path in paths]
        values = read_all(self._source, wanted, READ_TIMEOUT_S)
        if names and not may_have_none and not any(values[len(topics) :]):
            raise GroupHasNoOffsets(
                f"group {group!r} has no offset of {names[0].topic}/{names[0].partition}, nor of any other of the "
                f"{len(names)} partitions, {self._config.where} ({paths[0]})",
                remedy="check its name, and that it stores its offsets in ZooKeeper; to start without it: `earliest`, "
                       "`latest`, or JSON",
            )  # fmt: skip
        created_zxids = {topic: stat.czxid for topic, stat in zip(topics, values, strict=False) if stat is not None}
        found: dict[TopicPartition, int] = {}
        for name, path, value in zip(names, paths, values[len(topics) :], strict=True):
            if value is not None and value[1].mzxid >= created_zxids.get(name.topic, 0):
                try:
                    found[name] = znodes.parse_offset(path, value[0])
                except UnreadableNode as error:
                    raise PlanningFailed(str(error)) from error
        return found

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogEnds]:
        """Return the start and the end of the logs, as their leaders report them.

        Raises:
            TopicMissing: A topic is gone.
            PlanningFailed: Not all leaders answered in time, or one refused for good.
            ZooKeeperSilent: No answer in time.
        """
        found: dict[TopicPartition, LogEnds] = {}

        def ask(consumer: SimpleConsumer, broker: Broker, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            earliest, refused = _ends(consumer, names, EARLIEST)
            latest, epochs = ask_ends(consumer, [name for name in names if name in earliest])
            ends, refused_later = _offsets_in(latest, list(earliest))
            # The log may have been truncated between the two requests; then the later answer counts.
            found.update({name: LogEnds(min(earliest[name], end), end, broker, epochs.get(name, -1))
                          for name, end in ends.items()})  # fmt: skip
            return refused | refused_later

        self._ask_leaders(partitions, ask)
        return found

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of the logs; with half the requests of `log_ends`, and the same errors."""
        found: dict[TopicPartition, int] = {}

        def ask(consumer: SimpleConsumer, broker: Broker, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            answers, refused = _ends(consumer, names, LATEST)
            found.update(answers)
            return refused

        self._ask_leaders(partitions, ask)
        return found

    def at_times(self, times_ms: Mapping[TopicPartition, int], *, is_end: bool) -> dict[TopicPartition, AtTime]:
        """Return where to start, or to end, by the time of each partition; the same errors as `log_ends`.

        Ask for the ends of the logs afterwards, so that the offsets found here are before them.
        """
        search = TimeSearch(times_ms, is_end, self._config.fetch_message_max_bytes)
        self._ask_leaders(times_ms, search.ask)
        log_segments(search.by_segment)
        return search.found

    def message_bytes(
        self, places: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, Broker]
    ) -> dict[TopicPartition, float]:
        """Return about how many bytes an offset takes in the log, from a sample at one place of each partition.

        A partition that cannot be sampled is left out.

        Args:
            places: Where to sample: partition -> an offset that its log has.
        """
        by_leader: defaultdict[Broker, list[FetchRequest]] = defaultdict(list)
        found: dict[TopicPartition, float] = {}
        for (topic, partition), offset in sorted(places.items()):
            leader = leaders.get(TopicPartition(topic, partition))
            if isinstance(partition, str):
                found[TopicPartition(topic, partition)] = 1.0  # its offsets are bytes
            elif leader is not None:
                by_leader[leader].append(FetchRequest(topic, partition, offset, _SAMPLE_BYTES))
        for broker, requests in by_leader.items():
            for first in range(0, len(requests), PARTITIONS_A_REQUEST):
                found.update(self._sample(broker, requests[first : first + PARTITIONS_A_REQUEST]))
        return found

    def _sample(self, broker: Broker, requests: list[FetchRequest]) -> dict[TopicPartition, float]:
        consumer = connections.take(broker, self._config)
        try:
            answers = consumer.multifetch(requests, max_wait_ms=0, min_bytes=0, version=broker.fetch_version)
        except SimpleConsumerError as error:
            consumer.close()
            log.warning(
                "the size of messages is not known for %d partitions: %s: %s",
                len(requests),
                shown_broker(broker),
                error,
            )
            return {}
        connections.give_back(consumer, self._config)
        dialect = dialect_of(broker)
        found: dict[TopicPartition, float] = {}
        for request, answer in zip(requests, answers, strict=True):
            size = dialect.bytes_an_offset(answer.message_set, request.offset)
            if size is not None:
                found[TopicPartition(request.topic, request.partition)] = size
            elif broker.fetch_version and not answer.error_code and request.max_bytes < _LARGEST_SAMPLE_BYTES:
                # Kafka 3 omits what does not fit. Fetch it again with more room, alone, as all at once could be too
                # large.
                larger = min(request.max_bytes * _SAMPLE_GROWTH, _LARGEST_SAMPLE_BYTES)
                found.update(self._sample(broker, [request._replace(max_bytes=larger)]))
        return found

    # -- questions to leaders ------------------------------------------------------------------------------------------

    def _ask_leaders(self, partitions: Iterable[TopicPartition], ask: _Ask) -> None:
        """Ask about each partition until its leader answers."""
        missing: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
        reasons: dict[TopicPartition, str] = {}
        deadline = time.monotonic() + self._patience_s
        failures = 0
        while missing:
            leaders = self._leaders(missing)
            unled = self._cluster.why_unled([name for name in missing if name not in leaders])
            reasons = {**unled, **{name: reasons[name] for name in missing if name in reasons}}
            by_leader: defaultdict[Broker, list[TopicPartition]] = defaultdict(list)
            for name, broker in leaders.items():
                by_leader[broker].append(name)
            for broker, names in by_leader.items():
                for some in in_requests(names):
                    self._ask_broker(broker, some, ask, missing, reasons)
            backoff_s = self._backoff.wait_s(failures)
            if missing and time.monotonic() + backoff_s > deadline:
                raise PlanningFailed(
                    f"after {self._patience_s:g} s no broker has answered for {_shown(missing, reasons)}"
                )
            if missing:
                time.sleep(backoff_s)
                failures += 1

    def _leaders(self, missing: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
        topics = sorted({name.topic for name in missing})
        gone = set(topics) - set(self._cluster.reader.existing(topics))
        if gone:
            raise TopicMissing(f"topic {min(gone)!r} no longer exists {self._config.where}")
        return self._cluster.leaders(missing)

    def _ask_broker(
        self,
        broker: Broker,
        names: Sequence[TopicPartition],
        ask: _Ask,
        missing: dict[TopicPartition, int | None],
        reasons: dict[TopicPartition, str],
    ) -> None:
        consumer = connections.take(broker, self._config)
        try:
            refused = ask(consumer, broker, names)
        except SimpleConsumerError as error:
            consumer.close()
            reasons.update(dict.fromkeys(names, f"{shown_broker(broker)}: {error}"))
            return
        connections.give_back(consumer, self._config)
        for name in names:
            code = refused.get(name)
            if code is None:
                del missing[name]
                continue
            reasons[name] = f"{shown_broker(broker)}: {BrokerError(code, name.topic, name.partition)}"
            missing[name] = broker.id if code in dialect_of(broker).not_leader_codes else None
            if not broker_error(code).retriable and code != -1:
                raise PlanningFailed(reasons[name])


def refuse_unfit(topic: str, partitions: Iterable[int | str], generation: str) -> None:
    """Raise for partitions of another generation of Kafka, or without a value in the column `partition`.

    Args:
        generation: The value of `kafka.generation`.

    Raises:
        PlanningFailed: The text names the first one.
    """
    for partition in partitions:
        if isinstance(partition, str) != (generation == "0.7"):
            raise PlanningFailed(
                f"topic {topic!r} has partition {partition}, and kafka.generation is {generation}: "
                "that is another generation of Kafka"
            )
        try:
            column_value(partition)
        except ValueError as error:
            raise PlanningFailed(f"topic {topic!r}: {error}") from None


def _ends(
    consumer: SimpleConsumer, names: Sequence[TopicPartition], time_ms: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return one end of the logs, and the error codes of partitions without an answer."""
    return _offsets_in(ask_at(consumer, names, time_ms), names)


def _offsets_in(
    answer: OneTime, names: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the offsets of an answer, and the error codes of partitions without one."""
    found = {name: offset for name, offset in answer.offsets.items() if offset is not None and offset >= 0}
    return found, {name: answer.refused.get(name, -1) for name in names if name not in found}


def _shown(missing: Collection[TopicPartition], reasons: Mapping[TopicPartition, str]) -> str:
    rows = [f"{name.topic}/{name.partition} ({reasons[name]})" for name in sorted(missing)]
    return first_few(*rows, between="; ", rest="; and {} more")
