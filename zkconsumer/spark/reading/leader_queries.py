"""Asks the leaders of partitions about their logs, on connections that stay open.

A leader is searched only if a partition has none, or if its leader refused or did not answer. A broker that is down
affects its own partitions only.

Threads: one at a time.

Checks how long a log itself is, which may be more than its leader reports to consumers.

A leader reports the high watermark as the end of its log: the offset up to which all replicas in sync have the
messages. A leader that was just elected, or came back after a power failure, may report one that is too low for as long
as a replica in sync does not fetch. That takes seconds to a minute, until the replica is found to be down. The messages
are in the log all the time. A fetch shows whether they are: "offset out of range" refers to the log itself, in all
versions from 0.8.0 on.

Source: Kafka 0.8.2.2, kafka.log.Log.read; 2.8.2, kafka.log.Log.read; answers of brokers from 0.8.0 to 3.9.2.

Asks leaders whether a log was cut off since it was seen, by the epochs of its leaders.

A log that lost messages by an unclean election, and has grown since, has the offsets of before and other messages. Each
change of a leader begins a new epoch, and the new leader knows where the epochs before it end in its log. So it is
enough to keep an offset that the log had reached, and the epoch in which its leader said so: where the epochs up to
that one end below the offset, the log was cut there.

This cannot show a log that comes back after two unclean elections, the second one in favour of a replica that led
before the first look, and brokers before Kafka 2.1, which report no epochs.

Source: Kafka 2.8, kafka.server.epoch.LeaderEpochFileCache.endOffsetFor; KIP-320.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rebalance.errors import RebalanceError
from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError, VersionNotServed
from simpleconsumer.types import Broker, EpochEnd, FetchRequest, TopicPartition
from zkconsumer.backoff import Reports
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import OneTime, ask_at, in_requests
from zkconsumer.config import READ_COMMITTED, ConsumerConfig
from zkconsumer.errors import shown_broker
from zkconsumer.spark.settings_files import security_here
from zkconsumer_error import ErrorCode

OTHER_EPOCH: Final = (74, 75)
"""Codes of brokers that lead a partition in a later epoch, or in an earlier one, than the request names."""
_MAY_NOT_ASK: Final = (29, 31)
"""Codes of brokers that do not let this user ask for epochs."""


class LogMark(NamedTuple):
    """The last known state of a log.

    Attributes:
        offset: It reached up to here,
        epoch: when its leader had this epoch, or before.
    """

    offset: int
    epoch: int


@dataclass
class Cuts:
    """The answers of leaders about logs that were seen before.

    Attributes:
        at: Partition -> where its log was cut, below what was seen.
        refused: Partition -> error code; whether its log was cut is not known yet.
    """

    at: dict[TopicPartition, int] = field(default_factory=dict)
    refused: dict[TopicPartition, int] = field(default_factory=dict)


def cut_at(mark: LogMark, epoch_now: int, found: EpochEnd) -> int | None:
    """Return where a log was cut below what was seen of it; None if it was not, or if that is not known. Pure.

    The log of a leader only grows while its epoch lasts.

    Args:
        epoch_now: The leader's, -1 if it is not known.
        found: Where the epoch of the mark ends.
    """
    is_known = not found.error_code and found.leader_epoch >= 0 and found.end_offset >= 0
    is_over = found.leader_epoch < max(mark.epoch, epoch_now)
    return found.end_offset if is_known and is_over and found.end_offset < mark.offset else None


def ask_ends(
    consumer: SimpleConsumer, partitions: Sequence[TopicPartition]
) -> tuple[OneTime, dict[TopicPartition, int]]:
    """Return where logs end, by one request, and the epochs of their leader as far as it reports them.

    Args:
        consumer: Connected to the leader of all of them.

    Raises:
        SimpleConsumerError: The broker does not answer.
    """
    if not consumer.dialect.chooses_versions:
        return ask_at(consumer, partitions, LATEST), {}
    try:
        answers = dict(zip(partitions, consumer.log_ends(partitions), strict=True))
    except VersionNotServed:  # Kafka 0.10.0
        return ask_at(consumer, partitions, LATEST), {}
    good = {name: answer for name, answer in answers.items() if not answer.error_code}
    ends = OneTime(
        {name: answer.offset if answer.offset >= 0 else None for name, answer in good.items()},
        {name: answer.error_code for name, answer in answers.items() if answer.error_code},
    )
    return ends, {name: answer.leader_epoch for name, answer in good.items() if answer.leader_epoch >= 0}


def ask_cuts(
    consumer: SimpleConsumer, marks: Mapping[TopicPartition, LogMark], epochs: Mapping[TopicPartition, int]
) -> Cuts:
    """Ask a leader whether logs were cut below what was seen of them.

    Args:
        epochs: Its epochs of now, -1 where that is not known; a broker with another one refuses.

    Raises:
        SimpleConsumerError: The broker does not answer.
    """
    found = Cuts()
    if not marks or not consumer.dialect.chooses_versions:
        return found
    try:
        answers = consumer.epoch_ends({name: (mark.epoch, epochs.get(name, -1)) for name, mark in marks.items()})
    except VersionNotServed:
        return found
    for (name, mark), answer in zip(marks.items(), answers, strict=True):
        if answer.error_code and answer.error_code not in _MAY_NOT_ASK:
            found.refused[name] = answer.error_code
        cut = cut_at(mark, epochs.get(name, -1), answer)
        if cut is not None:
            found.at[name] = cut
    return found


_SAMPLE_BYTES: Final = 64


def ends_before(consumer: SimpleConsumer, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """The partitions whose logs do not reach these offsets, according to their leader; of others that is unknown.

    Args:
        offsets: none below the start of its log, which would be out of range, too.

    Raises:
        SimpleConsumerError: the broker does not answer.
    """
    requests = [FetchRequest(*name, offset, _SAMPLE_BYTES) for name, offset in sorted(offsets.items())]
    answers = consumer.multifetch(requests, max_wait_ms=1, min_bytes=0)
    return {
        TopicPartition(request.topic, request.partition)
        for request, answer in zip(requests, answers, strict=True)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    }


log = logging.getLogger(__name__)
_BROKER_S: Final = 5.0
"""Longest wait for one broker, because all others wait meanwhile."""
_LEADERS_S: Final = 1.0
"""Shortest time between two searches for missing leaders."""


@dataclass
class _Failure:
    """Why a partition does not answer, and whether that was logged."""

    reason: str
    is_logged: bool = False


class LeaderQueries:
    """Requests to the leaders of partitions.

    Args:
        cluster: Where to search leaders.
        may_search: Returns True while ZooKeeper is connected.

    Attributes:
        leaders: The leaders that are known.
        epochs: Their epochs when they last reported where the logs end (Kafka 2.1 and later).
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, may_search: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._config = config
        self._may_search = may_search
        self._searched_at = float("-inf")
        self._reports = Reports()
        self._failures: dict[TopicPartition, _Failure] = {}
        self._consumers: dict[Broker, SimpleConsumer] = {}
        self.leaders: dict[TopicPartition, Broker] = {}
        self.epochs: dict[TopicPartition, int] = {}

    def log_offsets(self, partitions: Collection[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """The start or the end of the logs, without the partitions whose leaders do not answer.

        Args:
            time_ms: `EARLIEST` or `LATEST`.
        """
        found = self._ask_known(partitions, time_ms)
        missing = [name for name in partitions if name not in found]
        if missing and time.monotonic() - self._searched_at > _LEADERS_S:
            self._searched_at = time.monotonic()
            self._search(missing)
            found.update(self._ask_known(missing, time_ms))
        for name in partitions:
            if name in found:
                self._failures.pop(name, None)
            else:
                self._log_failure(name)
        return found

    def ending_before(self, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """The partitions whose leaders report that their logs end before these offsets."""
        found: set[TopicPartition] = set()
        for broker, names in self._by_leader(offsets).items():
            try:
                found |= ends_before(self._consumer(broker), {name: offsets[name] for name in names})
            except SimpleConsumerError as error:
                self._drop_broker(broker, names, error)
        return found

    def cuts(self, marks: Mapping[TopicPartition, LogMark]) -> Cuts:
        """Return the answers of leaders about logs that were seen before; silent leaders are left out."""
        found = Cuts()
        for broker, names in self._by_leader(marks).items():
            try:
                some = ask_cuts(self._consumer(broker), {name: marks[name] for name in names}, self.epochs)
            except SimpleConsumerError as error:
                self._drop_broker(broker, names, error)
                some = Cuts({}, dict.fromkeys(names, -1))
            found.at |= some.at
            found.refused |= some.refused
        return found

    def failure_of(self, name: TopicPartition) -> str:
        """Why a partition does not answer, a clause."""
        failure = self._failures.get(name)
        return "no broker leads it" if failure is None else failure.reason

    def forget(self, topics: Collection[str]) -> None:
        """Forget the leaders of topics that were created anew."""
        for name in [name for name in self.leaders if name.topic in topics]:
            del self.leaders[name]
            self.epochs.pop(name, None)

    def close(self) -> None:
        """Close the connections to brokers."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _search(self, missing: Collection[TopicPartition]) -> None:
        if not self._may_search():
            return
        try:
            found = self._cluster.leaders(dict.fromkeys(missing))
            self._reports.succeeded()
            self.leaders.update(found)
            for name, reason in self._cluster.why_unled([name for name in missing if name not in found]).items():
                self._failures.setdefault(name, _Failure(reason))
        except RebalanceError as error:
            if self._reports.is_due(str(error), time.monotonic()):
                log.warning("leaders cannot be looked up: %s", error)

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
            self._consumers[broker] = SimpleConsumer(
                broker.host, broker.port, timeout_s, self._config.client_id, dialect=dialect_of(broker),
                security=security_here(self._config),
                read_committed=self._config.isolation_level == READ_COMMITTED,
            )  # fmt: skip
        return self._consumers[broker]

    def _ask_broker(self, broker: Broker, names: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        epochs: dict[TopicPartition, int] = {}
        try:
            if time_ms == LATEST:
                answer, epochs = ask_ends(self._consumer(broker), names)
                for name in names:  # that of an earlier leader says nothing about this end
                    self.epochs.pop(name, None)
            else:
                answer = ask_at(self._consumer(broker), names, time_ms)
        except SimpleConsumerError as error:
            self._drop_broker(broker, names, error)
            return {}
        self.epochs |= epochs
        found: dict[TopicPartition, int] = {}
        for name, code in answer.refused.items():
            self._drop_leader(name, f"{shown_broker(broker)}: {BrokerError(code, *name)}")
        for name, offset in answer.offsets.items():
            if offset is not None and offset >= 0:
                found[name] = offset
            else:
                reported = "no offset" if offset is None else f"offset {offset}, which is negative"
                self._drop_leader(name, f"{shown_broker(broker)} reports {reported}")
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
        """Log what is wrong with a partition, once until it answers again."""
        failure = self._failures.setdefault(name, _Failure("no broker leads it"))
        if not failure.is_logged:
            failure.is_logged = True
            log.warning("%s-%s: its log cannot be read: %s", *name, failure.reason)
