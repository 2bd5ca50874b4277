"""The questions of a consumer to its cluster, without fetching: topics, partitions, log ends, offsets by time, offsets.

The way to the cluster is opened when the first question comes, and closed with the consumer.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import Final

from simpleconsumer import types
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.cluster import Cluster, open_cluster
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import NotSupported
from zkconsumer.offsets.offset_manager import OffsetManager
from zkconsumer.polling.errors import PollTimeout
from zkconsumer.polling.joined_member import channel_settings
from zkconsumer.polling.records import OffsetAndMetadata, OffsetAndTimestamp
from zkconsumer_error import ErrorCode

_AGAIN_S: Final = 0.1


class ClusterQuestions:
    """The questions of one consumer.

    Args:
        config: Settings, as those of streams.
        is_committed: Whether logs end at the first open transaction.

    Threads: One at a time.
    """

    def __init__(self, config: ConsumerConfig, *, is_committed: bool) -> None:
        self._config = config
        self._is_committed = is_committed
        self._opened = ExitStack()
        self._cluster: Cluster | None = None
        self._offsets: OffsetManager | None = None

    @property
    def cluster(self) -> Cluster:
        """The way to the cluster."""
        if self._cluster is None:
            timeout_s = self._config.socket_timeout_ms / 1000
            self._cluster = self._opened.enter_context(open_cluster(self._config, timeout_s)).cluster
        return self._cluster

    @property
    def is_open(self) -> bool:
        """Whether there may be connections."""
        return self._cluster is not None or self._offsets is not None

    def close(self) -> None:
        """Close the way to the cluster."""
        if self._offsets is not None:
            self._offsets.close()
        self._opened.close()

    # -- topics --------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, tuple[int | str, ...]]:
        """Return all topics and their partitions."""
        reader = self.cluster.reader
        if isinstance(reader, MetadataReader):
            found = reader.metadata(None)[0].topics
            return {name: tuple(sorted(row.partition for row in each.partitions))
                    for name, each in sorted(found.items()) if each.partitions}  # fmt: skip
        return self.cluster.partitions(self.cluster.topics())

    def partitions(self, topic: str) -> tuple[int | str, ...]:
        """Return the partitions of a topic; none if it does not exist."""
        return self.cluster.partitions([topic]).get(topic, ())

    # -- logs ----------------------------------------------------------------------------------------------------------

    def ends(
        self, partitions: Collection[TopicPartition], timeout_s: float, *, first: bool
    ) -> dict[TopicPartition, int]:
        """Return where logs start, or end.

        Raises:
            PollTimeout: Some are not known in time; names one of them, and why.
        """
        found, reasons = self.known_ends(partitions, timeout_s, first=first)
        until = time.monotonic() + timeout_s
        while reasons:
            if time.monotonic() + _AGAIN_S >= until:
                (topic, number), reason = next(iter(reasons.items()))
                what = f"the {'start' if first else 'end'} of the log of {topic}-{number}"
                raise PollTimeout(what, timeout_s, reason)
            time.sleep(_AGAIN_S)
            more, reasons = self.known_ends(tuple(reasons), until - time.monotonic(), first=first)
            found |= more
        return {name: found[name] for name in partitions}

    def known_ends(
        self, partitions: Collection[TopicPartition], timeout_s: float, *, first: bool
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Return where logs start, or end, and of the others why it is not known."""
        asked = tuple(partitions)
        try:
            answers = self.cluster.log_ends(
                asked, [EARLIEST if first else LATEST], max(timeout_s, 0.1),
                read_committed=self._is_committed and not first,
            )  # fmt: skip
        except ClusterSilent as error:
            return {}, dict.fromkeys(asked, str(error))
        found: dict[TopicPartition, int] = {}
        reasons: dict[TopicPartition, str] = {}
        for name in asked:
            answer = answers[name]
            if isinstance(answer, str):
                reasons[name] = answer
            elif answer[0] is None:
                reasons[name] = "its leader reports no offset"
            else:
                found[name] = answer[0]
        return found, reasons

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time; None where there is none, or no timestamps.

        Records from the first open transaction on count as not there, if logs end there.

        Raises:
            PollTimeout: Some are not known in time.
            NotSupported: Brokers before Kafka 0.10.1 do not look records up by their times.
        """
        until = time.monotonic() + timeout_s
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        missing = dict(times_ms)
        reason = "its leader is not known"
        while missing:
            by_leader: dict[Broker, dict[TopicPartition, int]] = defaultdict(dict)
            try:
                for name, leader in self.cluster.leaders(list(missing)).items():
                    by_leader[leader][name] = missing[name]
            except ClusterSilent as error:
                reason = str(error)
            for leader, wanted in by_leader.items():
                answers, failure = self._times_of(leader, wanted, until)
                found |= answers
                reason = failure or reason
            missing = {name: at for name, at in missing.items() if name not in found}
            if missing:
                if time.monotonic() + _AGAIN_S >= until:
                    (topic, number) = next(iter(missing))
                    raise PollTimeout(f"the offset of {topic}-{number} by time", timeout_s, reason)
                time.sleep(_AGAIN_S)
        return {name: found[name] for name in times_ms}

    def _times_of(
        self, leader: Broker, wanted: Mapping[TopicPartition, int], until: float
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], str]:
        dialect = dialect_of(leader)
        config = self._config
        timeout_s = min(config.socket_timeout_ms / 1000, max(until - time.monotonic(), 0.1))
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        reason = ""
        try:
            with SimpleConsumer(
                leader.host, leader.port, timeout_s, config.client_id, dialect=dialect, security=config.security,
                read_committed=self._is_committed,
            ) as consumer:  # fmt: skip
                if not dialect.chooses_versions or not dialect.serves_offsets_for_times(consumer.api_versions()):
                    raise NotSupported("offsets_for_times",
                                       "brokers before Kafka 0.10.1 cannot look up offsets by timestamp")  # fmt: skip
                for name, (code, answer) in zip(wanted, consumer.offsets_for_times(dict(wanted)), strict=True):
                    if code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT or (not code and answer.offset < 0):
                        found[name] = None
                    elif code:
                        reason = str(BrokerError(code, name.topic, name.partition))
                    else:
                        epoch = None if answer.leader_epoch < 0 else answer.leader_epoch
                        found[name] = OffsetAndTimestamp(answer.offset, answer.timestamp_ms, epoch)
        except SimpleConsumerError as error:
            reason = str(error)
        return found, reason

    # -- offsets in Kafka ----------------------------------------------------------------------------------------------

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group in Kafka; None where there is none.

        Raises:
            PollTimeout: Some are not known in time.
        """
        names = list(partitions)
        if self._offsets is None:
            self._offsets = OffsetManager(self._config.group_id, self._brokers, channel_settings(self._config))
        until = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._offsets.fetch(names, until)
                break
            except ClusterSilent as error:
                if time.monotonic() + _AGAIN_S >= until:
                    raise PollTimeout("the committed offsets of the group", timeout_s, str(error)) from error
                time.sleep(_AGAIN_S)
        if answer.unknown:
            (topic, number), reason = next(iter(answer.unknown.items()))
            raise PollTimeout(f"the committed offset of {topic}-{number}", timeout_s, reason)
        return {
            name: None if (at := answer.offsets[name]) is None else _committed(answer.rows.get(name), at)
            for name in names
        }

    def _brokers(self) -> list[Broker]:
        return self.cluster.brokers()


def _committed(row: types.OffsetAndMetadata | None, offset: int) -> OffsetAndMetadata:
    if row is None:
        return OffsetAndMetadata(offset)
    return OffsetAndMetadata(row.offset, row.metadata, None if row.leader_epoch < 0 else row.leader_epoch)
