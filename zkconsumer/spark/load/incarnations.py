"""Tells whether topics are still those of the plan, by the transactions that created them, or by their ids.

Offsets of a topic that is created again start at 0 again. Its messages have the offsets that were planned and the
messages of another log, and the next run would read that log from its start: the messages would be there twice. The
same goes for a log that is cut and grows again; the epochs of leaders tell that.

Source: docs/SPARK_LOADING.md, "Which topic it is".

Fetches the last messages that were read of logs again, to recognize logs that were truncated.

A log that was truncated, and has grown past its old end since, has the same offsets and other messages. The last
message that was read shows this, unless the new message at its offset has the same key and value, or compaction has
removed it.

Threads: several fetch in parallel; the caller collects the results.
"""

from __future__ import annotations

import enum
import logging
import zlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Final

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, ZooKeeperPort
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import DecodeError, MessageError, SimpleConsumerError
from simpleconsumer.types import Broker, Message, TopicPartition
from zkconsumer.cluster.leaders import usable_leaders
from zkconsumer.cluster.metadata_reader import BrokersSilent, MetadataReader
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, read_all
from zkconsumer.config import ConsumerConfig
from zkconsumer.spark.errors import SparkSourceError
from zkconsumer.spark.load.failures import AuditFailed, LoadRefused
from zkconsumer.spark.load.manifest import LastMessage, LoadState
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.bounds import PlannedRange
from zkconsumer.spark.reading.connections import search_leader
from zkconsumer.spark.reading.range_fetcher import FetchedSet, RangeFetcher
from zkconsumer.spark.streaming.stream_logs import StreamLogs
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, number_of_topic


def refuse_other_kind(before: LoadState, *, by_brokers: bool) -> None:
    """Raise if the runs before know topics again by other numbers than this one could compare.

    Raises:
        LoadRefused: They do; tells what to do.
    """
    if before.is_new or before.by_brokers == by_brokers:
        return
    if by_brokers:
        raise LoadRefused(
            "the runs in this folder identify topics by their nodes in ZooKeeper, but bootstrap.servers is given: a "
            "topic that was deleted and created again would not be noticed",
            remedy="continue with zookeeper.connect; if the cluster no longer has ZooKeeper, load into another "
                   "folder, and set startingOffsets to the `ends` of the last manifest in _zkconsumer/runs",
        )  # fmt: skip
    raise LoadRefused(
        "the runs in this folder identify topics by the ids that brokers report, but zookeeper.connect is given: a "
        "topic that was deleted and created again would not be noticed",
        remedy="continue with bootstrap.servers",
    )


def refuse_recreated_topics(
    source: ZooKeeperPort | MetadataReader, created_zxids: Mapping[str, int], topics: Collection[str]
) -> None:
    """Raise if one of these topics has been deleted and created anew since the run was planned.

    Args:
        created_zxids: Topic -> what identified it before anything was read. A topic that is gone now was read before it
            went, and one without an entry has brokers that give no ids (before Kafka 2.8).

    Raises:
        AuditFailed: Names the topics.
        ClusterSilent: No answer in time.
    """
    names = sorted(created_zxids.keys() & topics)
    now = _ids_by_leaders(source, names) if isinstance(source, MetadataReader) else _created_zxids(source, names)
    recreated = [topic for topic in names if now.get(topic, set()) - {created_zxids[topic]}]
    if recreated:
        raise AuditFailed(
            f"nothing was published: {', '.join(map(repr, recreated))} was deleted and created again while it was read",
            remedy="start the load again",
        )


def unchanged_epochs(
    source: ZooKeeperPort | MetadataReader,
    options: SourceOptions,
    planned: StreamOffsets,
    read: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return the epochs of a plan, without those of logs whose leader does not say whether they are still the same.

    Args:
        planned: The ends of the run, with the epochs of leaders that had them when it was planned.
        read: The partitions of which messages were read.

    Raises:
        AuditFailed: A log was cut below what was planned; names the partitions.
        ClusterSilent: No answer in time.
    """
    if not planned.epochs:
        return {}
    logs = StreamLogs(options)
    logs.use(source)
    try:
        now = logs.compared(planned, logs.read())
    finally:
        logs.close()
    cut = [f"{name.topic}/{name.partition} at {now.cuts[name]}" for name in sorted(now.cuts.keys() & read)]
    if cut:
        raise AuditFailed(
            f"nothing was published: logs were truncated while they were read: {', '.join(cut)}",
            remedy="start the load again",
        )
    return {name: epoch for name, epoch in planned.epochs.items() if name in now.ends or name not in read}


def _created_zxids(port: ZooKeeperPort, topics: Collection[str]) -> dict[str, set[int]]:
    nodes = read_all(port, [Exists(znodes.topic_path(topic)) for topic in topics], READ_TIMEOUT_S)
    return {topic: {stat.czxid} for topic, stat in zip(topics, nodes, strict=True) if stat is not None}


def _ids_by_leaders(reader: MetadataReader, topics: Collection[str]) -> dict[str, set[int]]:
    """Return what any of the brokers that lead these topics says of their ids.

    A broker may not have heard yet of a topic that another one serves already. The leader that has served it has.
    """
    found: dict[str, set[int]] = {topic: set() for topic in topics}
    if not topics:
        return found
    metadata, _ = reader.metadata(topics)
    answers = [metadata]
    for leader in {each for name, each in usable_leaders(metadata).items() if name.topic in found}:
        with suppress(BrokersSilent):  # it is down: others lead by now
            answers.append(reader.metadata(topics, besides=metadata.brokers.keys() - {leader})[0])
    for answer in answers:
        for topic, known in answer.topics.items():
            if topic in found and known.topic_id is not None:
                found[topic].add(number_of_topic(known.topic_id))
    return found


log = logging.getLogger(__name__)
_SAMPLE_BYTES: Final = 16 * 1024
_AT_ONCE: Final = 8
_NOT_KNOWN: Final = "%s-%s: it is not known whether the message at %d is the message that was read: %s"


class Comparison(enum.Enum):
    """The message that a log has at the offset of one that was read."""

    SAME = "the message that was read"
    DIFFERENT = "another message, or none"
    UNKNOWN = "the message could not be fetched"


class LastMessageCheck:
    """Fetches single messages.

    Args:
        leaders: leader of each partition.
        compacted: topics whose logs have gaps: a message that is missing there means nothing.
    """

    def __init__(
        self, options: SourceOptions, leaders: Mapping[TopicPartition, Broker], compacted: frozenset[str]
    ) -> None:
        small = min(options.config.fetch_message_max_bytes, _SAMPLE_BYTES)
        self._config = ConsumerConfig.from_properties(options.config.to_properties(), fetch_message_max_bytes=small)
        self._patience_s = options.patience_ms / 1000
        self._max_bytes = options.max_message_bytes
        self._leaders = leaders
        self._compacted = compacted

    def compare(self, last_messages: Mapping[TopicPartition, LastMessage]) -> dict[TopicPartition, Comparison]:
        """Compare the messages of the logs at these offsets with these messages."""
        found = self._all({name: last_message.offset for name, last_message in last_messages.items()})
        return {name: self._judged(name, last_message, found[name]) for name, last_message in last_messages.items()}

    def _judged(self, name: TopicPartition, was: LastMessage, found: LastMessage | Comparison) -> Comparison:
        if isinstance(found, LastMessage):
            return Comparison.SAME if found == was else Comparison.DIFFERENT
        return Comparison.UNKNOWN if found is Comparison.DIFFERENT and name.topic in self._compacted else found

    def at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastMessage]:
        """The messages at these offsets, without missing and unreadable ones."""
        return {name: found for name, found in self._all(offsets).items() if isinstance(found, LastMessage)}

    def _all(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastMessage | Comparison]:
        names = sorted(offsets)
        if not names:
            return {}
        with ThreadPoolExecutor(_AT_ONCE, "last-messages") as threads:
            return dict(zip(names, threads.map(lambda name: self._one(name, offsets[name]), names), strict=True))

    def _one(self, name: TopicPartition, offset: int) -> LastMessage | Comparison:
        """The message at an offset; ANOTHER when the log has none there."""
        wanted = PlannedRange(*name, offset, offset + 1, self._leaders.get(name))
        fetcher = RangeFetcher(
            wanted, self._config, search_leader(self._config), patience_s=self._patience_s,
            max_bytes=self._max_bytes, fail_on_data_loss=True,
        )  # fmt: skip
        try:
            with closing(fetcher.fetch()) as answers:
                for answer in answers:
                    if not isinstance(answer, FetchedSet):
                        return Comparison.UNKNOWN
                    decoding = dialect_of(answer.broker).decode_messages(
                        answer.message_set, *name, offset, aborted=answer.aborted
                    )
                    message = next(decoding, None)
                    if message is not None:
                        return _last_message(message) if message.offset == offset else Comparison.DIFFERENT
        except (MessageError, DecodeError) as error:
            if isinstance(name.partition, str):
                return Comparison.DIFFERENT  # on Kafka 0.7 no entry starts there now: these are bytes of another one
            log.warning(_NOT_KNOWN, *name, offset, error)
            return Comparison.UNKNOWN
        except (SparkSourceError, SimpleConsumerError) as error:
            log.warning(_NOT_KNOWN, *name, offset, error)
            return Comparison.UNKNOWN
        return Comparison.DIFFERENT


def _last_message(message: Message) -> LastMessage:
    return LastMessage(message.offset, _crc(message.key), _crc(message.value))


def _crc(content: bytes | None) -> int | None:
    return None if content is None else zlib.crc32(content)
