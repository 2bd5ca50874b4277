"""Reads the state of the cluster for the plan of a run: topics, ends of logs, and whether the logs are still the same.

Rules, and what each prevents:
- A partition without a leader is asked about until a deadline, and then left to the next run: one broker that is down
  does not stop the load of the other partitions.
- A log that ends before the end of the last run is asked about for some seconds more: a leader that was just elected
  may report an old end.
- Leaders of later epochs are asked where the log of the last run was cut (Kafka 2.1 and later). Messages after that
  place are new, although they may have offsets that were loaded.
- The last message that was read is fetched again before anything is read after it: a log that was truncated, and has
  grown past its old end, would be continued in its middle.

Threads: one at a time.

Finds out which topics are compacted, and so may miss offsets: from ZooKeeper, or from a broker.

ZooKeeper has the settings that were given to a topic. A broker tells those in force, its own defaults among them (Kafka
0.11 and later); one that is older, or does not let the user see them, leaves it unknown.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetData, ZooKeeperPort
from simpleconsumer.dialect import KAFKA011, dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, read_all
from zkconsumer.config import ConsumerConfig
from zkconsumer.spark.errors import PlanningFailed, TopicMissing
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.incarnations import Comparison, LastMessageCheck, refuse_other_kind
from zkconsumer.spark.load.manifest import LastMessage, LoadState
from zkconsumer.spark.load.planning import ClusterState
from zkconsumer.spark.options.offsets_json import are_byte_positions
from zkconsumer.spark.options.option_table import OffsetSpec
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading import connections
from zkconsumer.spark.reading.bounds import Bounds, LogEnds, offsets_at_times
from zkconsumer.spark.reading.cluster_offsets import ClusterOffsets
from zkconsumer.spark.reading.entry_positions import at_entries, entry_positions
from zkconsumer.spark.streaming.log_changes import Logs, needing_log_start, shrunk
from zkconsumer.spark.streaming.stream_entries import StreamEntries
from zkconsumer.spark.streaming.stream_logs import StreamLogs
from zkconsumer_error import first_few

log = logging.getLogger(__name__)
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_AT_ONCE: Final = 500


def compacted_topics(
    source: ZooKeeperPort | MetadataReader, config: ConsumerConfig, topics: Iterable[str]
) -> frozenset[str]:
    """Return those of the topics whose logs are compacted; a topic of which that is not known is not among them.

    Raises:
        ClusterSilent: No answer in time.
    """
    names = sorted(topics)
    found = (_told_by_broker(source, config, names) if isinstance(source, MetadataReader)
             else _set_in_zookeeper(source, names))  # fmt: skip
    return frozenset(topic for topic, policy in found if _COMPACT in policy)


def _set_in_zookeeper(port: ZooKeeperPort, topics: Sequence[str]) -> Iterator[tuple[str, str]]:
    paths = [znodes.topic_config_path(topic) for topic in topics]
    values = read_all(port, [GetData(path) for path in paths], READ_TIMEOUT_S)
    for topic, path, value in zip(topics, paths, values, strict=True):
        try:
            yield topic, "" if value is None else znodes.parse_topic_config(path, value[0]).get(_POLICY, "")
        except UnreadableNode as error:
            log.warning("%s; the topic is treated as not compacted", error)


def _told_by_broker(reader: MetadataReader, config: ConsumerConfig, topics: Sequence[str]) -> Iterator[tuple[str, str]]:
    for first in range(0, len(topics), _AT_ONCE):
        some = topics[first : first + _AT_ONCE]
        for topic, (code, settings) in zip(some, _settings(reader, config, some), strict=True):
            if code:
                log.warning("%s: it is not known whether the topic is compacted; it is treated as not compacted",
                            BrokerError(code, topic, None))  # fmt: skip
            yield topic, settings.get(_POLICY) or ""


def _settings(
    reader: MetadataReader, config: ConsumerConfig, topics: Sequence[str]
) -> Sequence[tuple[int, dict[str, str | None]]]:
    """Return error code and settings of each topic, by the first broker that answers; none if none can."""
    reason = "its brokers are older than Kafka 0.11"
    for broker in reader.brokers():
        if dialect_of(broker) is not KAFKA011:
            continue
        consumer = connections.take(broker, config)
        try:
            answer = consumer.ask(KAFKA011.topic_settings(topics, [_POLICY]))
        except SimpleConsumerError as error:
            consumer.close()
            reason = str(error)
            continue
        connections.give_back(consumer, config)
        return [(code, dict(settings)) for code, settings in answer]
    log.info("which topics are compacted is not known: %s", reason)
    return [(0, {})] * len(topics)


_PAUSE_S: Final = 0.2
_UNKNOWN: Final = -1


class ClusterStateReader:
    """Reads from ZooKeeper and the brokers, or from the brokers alone; use it as a context manager.

    Args:
        source: A connected port, which the caller closes, or what asks the brokers alone.
        before: Where the last run ended.
        earlier: The states after the runs before that, the latest first.
        allow_gaps: Treat every topic as compacted.
    """

    def __init__(
        self,
        source: ZooKeeperPort | MetadataReader,
        options: SourceOptions,
        before: LoadState,
        earlier: Callable[[], Iterable[LoadState]],
        *,
        allow_gaps: bool = False,
    ) -> None:
        self._source = source
        self._by_brokers = isinstance(source, MetadataReader)
        self._options = options
        self._before = before
        self._earlier = earlier
        self._allow_gaps = allow_gaps
        self._counts_bytes = options.counts_bytes
        self._is_later_run = bool(before.offsets.offsets or before.offsets.created_zxids)
        self._logs = StreamLogs(options)
        self._logs.use(source)

    def __enter__(self) -> ClusterStateReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._logs.close()

    def selects(self, name: TopicPartition) -> bool:
        """Whether a partition would be loaded if it existed."""
        return self._logs.selects(name)

    def read(self, *, at_latest: bool, may_be_silent: bool) -> ClusterState:
        """Return the state of the cluster.

        Args:
            at_latest: Partitions that were never loaded start at their end, if they are older than the last run.
            may_be_silent: Leave out partitions whose leaders do not answer.

        Raises:
            TopicMissing: A topic that was named does not exist, and never did.
            LoadRefused: The last run was on another cluster, or knew topics again by other means.
            PlanningFailed: A leader does not answer, and must; or the brokers are not supported.
            ClusterSilent: No answer in time.
        """
        refuse_other_kind(self._before, by_brokers=self._by_brokers)
        ClusterOffsets(self._source, self._options.config, 0.0).refuse_other_generations()
        topics_seen = self._topics_seen()
        logs, log_starts = self._ask()
        silent = {name: self._logs.failure_of(name) for name in sorted(logs.partitions - logs.ends.keys())}
        if silent and not may_be_silent:
            rows = [f"{name.topic}/{name.partition} ({reason})" for name, reason in silent.items()]
            raise PlanningFailed(
                f"after {self._options.patience_ms / 1000:g} s no broker has answered for "
                + first_few(*rows, between="; ", rest="; and {} more")
            )
        compacted = self._compacted(logs)
        kept_ends: dict[TopicPartition, int] = {}
        last_messages: dict[TopicPartition, LastMessage] = {}
        if self._counts_bytes:
            logs, log_starts = self._without_replaced(logs, log_starts)
        else:
            kept_ends, last_messages = self._compared(logs, log_starts, compacted)
        return ClusterState(
            logs, log_starts, self._starts(logs, at_latest), kept_ends, last_messages, topics_seen, compacted, silent,
            self._by_brokers,
        )  # fmt: skip

    def _topics_seen(self) -> int | None:
        if isinstance(self._source, MetadataReader):
            return 0
        [parent] = read_all(self._source, [Exists(znodes.TOPICS)], READ_TIMEOUT_S)
        return None if parent is None else parent.pzxid

    def _ask(self) -> tuple[Logs, dict[TopicPartition, int]]:
        """Ends and starts of the logs; of a partition whose start is needed and unknown, the end is left out, too."""
        start = self._before.offsets
        deadline = time.monotonic() + self._options.patience_ms / 1000
        while True:
            logs = self._logs.compared(start, self._logs.read_settled(start))
            self._refuse(logs)
            asked = needing_log_start(start, logs)
            log_starts = self._logs.log_starts(asked)
            unknown = {name for name in asked if name not in log_starts}
            if (logs.partitions <= logs.ends.keys() and not unknown) or time.monotonic() + _PAUSE_S > deadline:
                ends = {name: end for name, end in logs.ends.items() if name not in unknown}
                return replace(logs, ends=ends), log_starts
            time.sleep(_PAUSE_S)

    def _refuse(self, logs: Logs) -> None:
        where = self._options.config.where
        before = self._before.offsets.offsets
        if before and are_byte_positions(before) != self._counts_bytes:
            topic, partition = min(before)
            raise LoadRefused(
                f"the last run has loaded partition {partition} of topic {topic!r}, and kafka.generation "
                f"is {self._options.config.kafka_generation}: the folder is of another generation of "
                "Kafka",
                remedy="use another folder",
            )
        if logs.is_of_another_cluster(self._before.offsets) and self._by_brokers:
            raise LoadRefused(
                f"the cluster {where} is not the cluster of the last run: it has another id",
                remedy="use another folder for another cluster",
            )
        if logs.is_of_another_cluster(self._before.offsets):
            raise LoadRefused(
                f"the cluster {where} is not the cluster of the last run: its {znodes.TOPICS} was "
                "created at another time",
                remedy="use another folder for another cluster",
            )
        named = self._options.choice.topics_of([], self._options.config.exclude_internal_topics)
        if self._counts_bytes or self._by_brokers:
            waiting = self._before.waiting if self._by_brokers else ()
            known = {name.topic for name in (*self._before.offsets.offsets, *waiting)}
            existing = {name.topic for name in logs.partitions}
        else:
            known, existing = set(self._before.offsets.created_zxids), set(logs.created_zxids)
        missing = [topic for topic in named if topic not in existing and topic not in known]
        if missing and self._counts_bytes:
            raise TopicMissing(f"no broker that is registered {where} has topic {missing[0]!r}")
        if missing:
            raise TopicMissing(f"topic {missing[0]!r} does not exist {where}")

    # -- where to start ------------------------------------------------------------------------------------------------

    def _starts(self, logs: Logs, at_latest: bool) -> dict[TopicPartition, int]:
        names = [name for name in logs.ends if name not in self._before.offsets.offsets]
        if at_latest and self._counts_bytes:
            # A partition that comes later has messages that no run has seen, or was away with its broker.
            return {} if self._is_later_run else {name: logs.ends[name] for name in names}
        if at_latest:
            return {
                name: logs.ends[name]
                for name in names
                if self._before.starts_at_latest(name, logs.created_zxids.get(name.topic))
            }
        starting = self._options.starting
        if starting.kind == "group":
            stored = ClusterOffsets(self._source, self._options.config, 0.0).group_offsets(
                self._options.config.group_id,
                names,
                may_have_none=self._is_later_run,  # new partitions may be new to the group, too
            )
            return self._at_entries(stored, logs)
        if starting.kind == "each":
            return self._at_entries({name: offset for name, offset in starting.each.items() if offset >= 0}, logs)
        return self._starts_at_times(names) if starting.kind == "time" else {}

    def _at_entries(self, starts: dict[TopicPartition, int], logs: Logs) -> dict[TopicPartition, int]:
        """Return the offsets, on Kafka 0.7 those of entries; see `entry_positions`."""
        if not self._counts_bytes:
            return starts
        log_starts = self._logs.log_starts(list(starts))
        ends = {
            name: LogEnds(log_starts[name], logs.ends[name], self._logs.leaders[name])
            for name, at in starts.items()
            if name in log_starts and name in self._logs.leaders and log_starts[name] < at < logs.ends.get(name, -1)
        }
        here = {name: starts[name] for name in ends}
        log_ends = {name: log.latest for name, log in ends.items()}
        latest = OffsetSpec("latest", "endingOffsets")
        return starts | at_entries(self._options, Bounds(here, log_ends), self._options.starting, latest, ends).starts

    def _starts_at_times(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to start by time. It can be an error only in the first run that no message is that recent."""
        starting = self._options.starting
        if self._is_later_run:
            starting = replace(starting, on_no_match="latest")
        named = [name for name in names if starting.time_ms is not None or name in starting.each]
        cluster = ClusterOffsets(self._source, self._options.config, self._options.patience_ms / 1000)
        return offsets_at_times(starting, cluster.at_times(starting.times_ms(named), is_end=False))

    def _compacted(self, logs: Logs) -> frozenset[str]:
        """The topics that are compacted, or may be."""
        topics = {*logs.created_zxids, *(name.topic for name in logs.partitions)}
        return frozenset(topics) if self._allow_gaps else compacted_topics(self._source, self._options.config, topics)

    # -- whether they are the same logs --------------------------------------------------------------------------------

    def _compared(
        self, logs: Logs, log_starts: Mapping[TopicPartition, int], compacted: frozenset[str]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, LastMessage]]:
        """How much of logs that were truncated is unchanged, and the last messages of those with nothing to read."""
        start = self._before.offsets
        messages = LastMessageCheck(self._options, self._logs.leaders, compacted)
        # A log that ends where the last run did may have been truncated, and have grown by as much since.
        last_messages = {name: last_message for name, last_message in self._before.last_messages.items()
                 if name in start.offsets and logs.ends.get(name, 0) >= start.offsets[name] and name not in logs.cuts
                 and not logs.is_recreated(name.topic, start)}  # fmt: skip
        log_starts = {**self._logs.log_starts([name for name in last_messages if name not in log_starts]), **log_starts}
        there = {name: last for name, last in last_messages.items()
                 if log_starts.get(name, last.offset + 1) <= last.offset}  # fmt: skip
        now = messages.compare(there)
        doubtful = {name: there[name].offset for name, found in now.items() if found is Comparison.DIFFERENT}
        cut = shrunk(start, logs)
        doubtful |= {name: logs.ends[name] for name in cut}
        if not doubtful and not logs.cuts:
            return {}, {}
        log_starts = {**self._logs.log_starts(cut), **log_starts}
        kept_ends = self._kept_ends(messages, doubtful, logs, log_starts) if doubtful else {}
        unread = {name: logs.ends[name] - 1 for name in doubtful if logs.ends[name] <= start.offsets[name]}
        unread |= {name: end - 1 for name, end in logs.cuts.items()}
        return kept_ends, messages.at({name: last for name, last in unread.items() if last >= log_starts.get(name, 0)})

    def _without_replaced(
        self, logs: Logs, log_starts: dict[TopicPartition, int]
    ) -> tuple[Logs, dict[TopicPartition, int]]:
        """The logs of Kafka 0.7, with a reason for each that is another one; those are read from their starts.

        The position of the last run need not be the start of an entry in a log that was cut and has grown since.
        """
        start = self._before.offsets.offsets
        last = {name: message for name, message in self._before.last_messages.items()
                if name in start and logs.ends.get(name, _UNKNOWN) >= start[name]}  # fmt: skip
        known = self._logs.log_starts(list(last))
        there = {name: message for name, message in last.items()
                 if known.get(name, message.offset + 1) <= message.offset}  # fmt: skip
        now = LastMessageCheck(self._options, self._logs.leaders, frozenset()).compare(there)
        reasons = {name: f"its log was replaced: the message at position {there[name].offset} is not the one that "
                         "was loaded" for name, found in now.items() if found is Comparison.DIFFERENT}  # fmt: skip
        rest = {name: at for name, at in start.items() if name not in reasons}
        checked = StreamEntries(entry_positions(self._options)).replaced(rest, logs, self._logs.leaders)
        reasons |= checked.replaced
        asked = self._logs.log_starts([name for name in reasons if name not in log_starts])
        return replace(checked, replaced=reasons), {**log_starts, **asked}

    def _kept_ends(
        self,
        messages: LastMessageCheck,
        below: Mapping[TopicPartition, int],
        logs: Logs,
        log_starts: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Up to which offset the logs are the ones that earlier runs have read; their start if that is not known."""
        bounds, found = dict(below), {}
        for state in self._earlier():
            last_messages = {
                name: last_message
                for name, last_message in state.last_messages.items()
                if log_starts.get(name, 0) <= last_message.offset < bounds.get(name, 0)
                and not logs.is_recreated(name.topic, state.offsets)
            }
            for name, now in messages.compare(last_messages).items():
                bounds[name] = last_messages[name].offset
                if now is Comparison.SAME:
                    found[name] = bounds.pop(name) + 1
            if not bounds:
                break
        return {name: log_starts.get(name, 0) for name in bounds} | found
