"""A steady stream of messages with unique values, each remembered when its leader has acknowledged it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from simpleconsumer import SimpleConsumer
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.history.events import Event
from zkconsumer.testing.kafka.cluster import KafkaCluster
from zkconsumer.testing.waiting import wait_until


class SteadyLoad:
    """Messages with unique values at a steady rate, spread over partitions, each acknowledged by its leader."""

    def __init__(
        self, cluster: KafkaCluster | EmbeddedCluster, topics: Sequence[str], partitions: int, rate_per_s: float = 200
    ) -> None:
        """Prepare; nothing is sent before the `with` block, and nothing more once `error` says why.

        Args:
            partitions: of each topic.
            rate_per_s: messages per second over all partitions.
        """
        self.acked: list[Event] = []
        self._targets = [
            (topic, partition, cluster.port(leader))
            for topic in topics
            for partition, leader in cluster.wait_leaders(topic, list(range(partitions))).items()
        ]
        self._interval_s = 1.0 / rate_per_s
        self._stop = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def _run(self) -> None:
        brokers = {port: SimpleConsumer("127.0.0.1", port) for _, _, port in self._targets}
        try:
            due = time.monotonic()
            for number, (topic, partition, port) in enumerate(itertools.cycle(self._targets)):
                if self._stop.wait(max(0.0, due - time.monotonic())):
                    return
                value = f"{topic}-{partition}-{number}"
                offset = brokers[port].produce(topic, partition, [value.encode()], acks=1)
                self.acked.append(Event(time.monotonic_ns(), "acked", "", topic, partition, offset, value))
                due = max(due + self._interval_s, time.monotonic() - 1.0)
        except Exception as error:  # noqa: BLE001 - top of the thread: `stop` raises it
            self.error = error
        finally:
            for broker in brokers.values():
                broker.close()

    def stop(self) -> None:
        """End the load; raises what went wrong in it."""
        self._stop.set()
        self._thread.join(30)
        if self.error is not None:
            raise self.error

    def grow(self, count: int, timeout_s: float = 30.0) -> None:
        """Return when `count` more messages are acknowledged."""
        wanted = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= wanted, timeout_s, f"{count} more messages", state=lambda: self.error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30)
