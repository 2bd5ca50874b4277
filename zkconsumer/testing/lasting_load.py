"""A load that goes on whatever happens to brokers, and remembers exactly what was acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from simpleconsumer import SimpleConsumer
from simpleconsumer.errors import SimpleConsumerError
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.history.events import Event
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.cluster import KafkaCluster
from zkconsumer.testing.waiting import wait_until

_ANSWER_S: Final = 2.0
_RETRY_S: Final = 0.1


class LastingLoad:
    """Messages with unique values at a steady rate, one sender for each partition, through failures of brokers.

    A message that is refused, or has no answer in time, is given up (nobody knows whether it is stored) and counted in
    `unsure`; the next one goes to whoever leads by then. A partition without leader holds up no other.

    Threads: one for each partition; every method from any thread.
    """

    def __init__(
        self,
        cluster: KafkaCluster | EmbeddedCluster,
        topics: Sequence[str],
        partitions: int,
        rate_per_s: float = 200.0,
        *,
        acks: int = 1,
        padding_bytes: int = 0,
    ) -> None:
        """Prepare; nothing is sent before the `with` block.

        Args:
            partitions: of each topic.
            rate_per_s: messages per second over all partitions.
            acks: 1: the leader has it; -1: all replicas that are in sync have it, so that a leader's death loses none.
            padding_bytes: make each message so much longer.
        """
        self.acked: list[Event] = []
        self.unsure = 0
        self._cluster = cluster
        self._acks = acks
        self._padding = "." * padding_bytes
        self._interval_s = len(topics) * partitions / rate_per_s
        self._stop = threading.Event()
        self._counting = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=[topic, partition], name=f"load-{topic}-{partition}", daemon=True)
            for topic in topics
            for partition in range(partitions)
        ]

    def _run(self, topic: str, partition: int) -> None:
        broker: SimpleConsumer | None = None
        due = time.monotonic()
        for number in itertools.count():
            if self._stop.wait(max(0.0, due - time.monotonic())):
                break
            due = max(due + self._interval_s, time.monotonic() - 1.0)
            broker = broker or self._leader(topic, partition)
            if broker is None:
                self._stop.wait(_RETRY_S)
            elif not self._send(broker, topic, partition, f"{topic}-{partition}-{number}{self._padding}"):
                broker.close()
                broker = None
        if broker is not None:
            broker.close()

    def _send(self, broker: SimpleConsumer, topic: str, partition: int, value: str) -> bool:
        try:
            offset = broker.produce(topic, partition, [value.encode()], acks=self._acks)
        except SimpleConsumerError:
            with self._counting:
                self.unsure += 1
            return False
        self.acked.append(Event(time.monotonic_ns(), "acked", "", topic, partition, offset, value))
        return True

    def _leader(self, topic: str, partition: int) -> SimpleConsumer | None:
        """A connection to whom some broker names as the leader; None if nobody does."""
        for broker_id, broker in self._cluster.brokers.items():
            if not broker.running:
                continue
            try:
                told = kafka_probe.topic_leaders(self._cluster.port(broker_id), topic).get(partition)
            except OSError:
                continue
            if told is not None and told.leader in self._cluster.brokers:
                return SimpleConsumer("127.0.0.1", self._cluster.port(told.leader), timeout_s=_ANSWER_S)
        return None

    @property
    def running(self) -> bool:
        """True until `stop()`."""
        return not self._stop.is_set()

    def stop(self) -> None:
        """End the load; returns when no sender is left."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)

    def grow(self, count: int, timeout_s: float = 30.0) -> None:
        """Return when `count` more messages are acknowledged."""
        wanted = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= wanted, timeout_s, f"{count} more messages", state=lambda: self.unsure)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
