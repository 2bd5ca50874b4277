"""Sends messages to a test cluster, at once or at a steady rate, and records which ones were acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from simpleconsumer.errors import SimpleConsumerError
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import KitError, check_codec, version_tuple
from zkconsumer.testing.history.events import Event, id_of
from zkconsumer.testing.kafka import probe
from zkconsumer.testing.kafka.topics_07 import broker_of, number_of
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.writer import Leaders, Target, Writer, check_leaders, plain_errors

_ANSWER_S: Final = 2.0
_SURE_S: Final = 30.0
_LATE_S: Final = 1.0
"""A load that is later than this does not catch up."""


def load(
    cluster: Cluster,
    topic: str,
    count: int,
    *,
    partitions: Sequence[int | str] | None = None,
    value: Callable[[Any, int], bytes] | None = None,
    first: int = 0,
    codec: str = "none",
    batch: int = 500,
    timeout_s: float = 30.0,
) -> list[Event]:
    """One `acked` event per message that was stored, with its partition, offset and value (as `id`, see `id_of`).

    Of a value of more than 4096 bytes `id` has the start, the size and a digest.

    In Kafka 0.7 the offset is the position of the message's entry plus its number in the entry.

    Args:
        count: messages for each partition.
        partitions: which ones; None takes all of the topic.
        value: makes the value of message number n of a partition: `value(partition, n)`; by default `b"partition:n"`.
        first: number of the first message of each partition.
        codec: none, gzip, snappy, lz4.
        batch: messages in one request.

    Raises:
        KitError: there is no such topic, or a partition has no leader.
        NotSupported: the brokers' version does not know the codec.
        simpleconsumer's errors: a broker refused messages.
    """
    make = value or (lambda partition, n: f"{partition}:{n}".encode())
    chosen = cluster.partitions(topic) if partitions is None else list(partitions)
    events: list[Event] = []
    check_codec(cluster.version, codec)
    leaders = {topic: check_leaders(cluster, topic, chosen)}
    with Writer(cluster, {topic: chosen}, codec=codec, timeout_s=timeout_s, known=leaders) as writer, plain_errors():
        for partition in chosen:
            for start in range(first, first + count, batch):
                values = [make(partition, n) for n in range(start, min(start + batch, first + count))]
                places = writer.write(topic, partition, [(None, value) for value in values])
                now = time.monotonic_ns()
                events += [
                    Event(now, "acked", "", topic, partition, offset + number, id_of(text))
                    for (offset, number), text in zip(places, values, strict=True)
                ]
    return events


def _names(cluster: Cluster, topic: str, count: int) -> list[int | str]:
    """The partitions 0 to `count` of a topic; in Kafka 0.7 those of each broker."""
    if version_tuple(cluster.version) >= (0, 8):
        return list(range(count))
    return [name for name in cluster.partitions(topic) if number_of(name) < count]


def _leaders_by_brokers(cluster: Target, topic: str, partitions: Sequence[int | str]) -> Leaders:
    """Partition -> leader that some running broker names, None without one; ZooKeeper is not asked.

    In Kafka 0.7 the broker in the partition's name, if it runs.
    """
    if version_tuple(cluster.version) < (0, 8):
        return {name: broker_of(name) if cluster.brokers[broker_of(name)].running else None for name in partitions}
    found: dict[int | str, int | None] = dict.fromkeys(partitions)
    for broker_id, broker in cluster.brokers.items():
        if not broker.running or None not in found.values():
            continue
        try:
            named = probe.topic_leaders(cluster.port(broker_id), topic)
        except OSError:
            continue
        for partition, answer in named.items():
            if found.get(partition, 0) is None and answer.leader in cluster.brokers:
                found[partition] = answer.leader
    return found


class _PacedLoad(ABC):
    """Messages with unique values at a steady rate, for as long as a `with` block lasts.

    Attributes:
        acked: an event of kind `acked` for each message that a leader has acknowledged; grows while the load runs.

    Threads: its own; every method from any thread.
    """

    def __init__(self, interval_s: float) -> None:
        self.acked: list[Event] = []
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._writer: Writer | None = None

    def _numbers(self) -> Iterator[int]:
        """The numbers of the messages, each when its message is due, until the load is to end."""
        due = time.monotonic()
        for number in itertools.count():
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            due = max(due + self._interval_s, time.monotonic() - _LATE_S)
            yield number

    def _write(self, topic: str, partition: int | str, value: str) -> None:
        assert self._writer is not None
        data = value.encode()
        [(offset, _)] = self._writer.write(topic, partition, [(None, data)])
        self.acked.append(Event(time.monotonic_ns(), "acked", "", topic, partition, offset, id_of(data)))

    @abstractmethod
    def _open(self) -> Writer:
        """The writer of the load."""

    @abstractmethod
    def _trouble(self) -> object:
        """The text of the error when `grow` has waited in vain."""

    def _end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)
        if self._writer is not None:
            self._writer.close()

    def grow(self, count: int, timeout_s: float = 30.0) -> None:
        """Return when `count` more messages are acknowledged."""
        wanted = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= wanted, timeout_s, f"{count} more messages", state=self._trouble)

    def __enter__(self) -> Self:
        self._writer = self._open()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


class SteadyLoad(_PacedLoad):
    """Messages with unique values at a steady rate, one after the other over all partitions; ends at the first error.

    Attributes:
        acked: an event of kind `acked` for each message that a leader has acknowledged.
        error: why nothing more is sent; None while all is well.
    """

    def __init__(self, cluster: Cluster, topics: Sequence[str], partitions: int, rate_per_s: float = 200) -> None:
        """Find the leaders; nothing is sent before the `with` block.

        Args:
            partitions: of each topic; in Kafka 0.7 on each broker.
            rate_per_s: messages per second over all partitions.
        """
        super().__init__(1.0 / rate_per_s)
        self._cluster = cluster
        self._places = {topic: _names(cluster, topic, partitions) for topic in topics}
        for topic, names in self._places.items():
            cluster.wait_leaders(topic, names)
        self.error: Exception | None = None
        self._threads = [threading.Thread(target=self._run, name="load", daemon=True)]

    def _open(self) -> Writer:
        return Writer(self._cluster, self._places, timeout_s=_SURE_S, tries_again=False)

    def _run(self) -> None:
        targets = [(topic, partition) for topic, names in self._places.items() for partition in names]
        try:
            with plain_errors():
                for number, (topic, partition) in zip(self._numbers(), itertools.cycle(targets), strict=False):
                    self._write(topic, partition, f"{topic}-{partition}-{number}")
        except Exception as error:  # noqa: BLE001 - top of the thread: `stop` raises it
            self.error = error

    def stop(self) -> None:
        """End the load; raises what went wrong in it."""
        self._end()
        if self.error is not None:
            raise self.error

    def _trouble(self) -> object:
        return self.error


class LastingLoad(_PacedLoad):
    """Messages with unique values at a steady rate, one sender for each partition, through failures of brokers.

    A message that is refused, or has no answer in time, is not sent again: it may be stored or not. The next one goes
    to the broker that leads by then. A partition without leader holds up no other.

    Attributes:
        acked: an event of kind `acked` for each message that a leader has acknowledged.
        unsure: how many messages may be stored or not.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        partitions: int,
        rate_per_s: float = 200.0,
        *,
        acks: int = 1,
        padding_bytes: int = 0,
    ) -> None:
        """Prepare; nothing is sent before the `with` block.

        Args:
            partitions: of each topic; in Kafka 0.7 on each broker, and the topics must exist.
            rate_per_s: messages per second over all partitions.
            acks: 1: the leader has it; -1: all replicas that are in sync have it, so that a leader's death loses none.
                Kafka 0.7 has no replicas.
            padding_bytes: make each message so much longer.
        """
        self._places = {topic: _names(cluster, topic, partitions) for topic in topics}
        places = [(topic, name) for topic, names in self._places.items() for name in names]
        super().__init__(len(places) / rate_per_s)
        self.unsure = 0
        self._cluster = cluster
        self._acks = acks
        self._padding = "." * padding_bytes
        self._counting = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=[topic, partition], name=f"load-{topic}-{partition}", daemon=True)
            for topic, partition in places
        ]

    def _open(self) -> Writer:
        return Writer(
            self._cluster, self._places, timeout_s=_ANSWER_S, acks=self._acks, tries_again=False,
            leaders=_leaders_by_brokers,
        )  # fmt: skip

    def _run(self, topic: str, partition: int | str) -> None:
        for number in self._numbers():
            try:
                self._write(topic, partition, f"{topic}-{partition}-{number}{self._padding}")
            except (MessageNotSent, SimpleConsumerError, KitError) as error:
                if isinstance(error, MessageNotSent) and error.__cause__ is None:
                    continue  # no broker leads the partition, so none was asked
                with self._counting:
                    self.unsure += 1

    @property
    def running(self) -> bool:
        """True until `stop()`."""
        return not self._stop.is_set()

    def stop(self) -> None:
        """End the load; returns when no sender is left."""
        self._end()

    def _trouble(self) -> object:
        return f"{self.unsure} messages unsure"
