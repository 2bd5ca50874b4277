"""Members of groups that brokers coordinate, of other clients: each polls and commits on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import kafka
from confluent_kafka import Consumer

from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 60.0


class PollingMember:
    """A consumer that polls on a thread until the end of the block, and leaves its group then.

    Args:
        make: Makes the consumer, on the thread.
        poll: Polls once.
        close: Leaves the group.
    """

    def __init__(self, make: Callable[[], Any], poll: Callable[[Any], int], close: Callable[[Any], object]) -> None:
        self._make, self._poll, self._close = make, poll, close
        self._stop = threading.Event()
        self.count = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            consumer = self._make()
            try:
                while not self._stop.is_set():
                    self.count += self._poll(consumer)
            finally:
                self._close(consumer)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def read(self, count: int) -> None:
        """Wait until it has read so many messages."""
        wait_until(lambda: self.count >= count or self.failure, PATIENCE_S, f"{count} messages",
                   state=lambda: (self.count, self.failure))  # fmt: skip
        assert self.failure is None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert error is not None or self.failure is None, self.failure


def kafka_python_member(
    cluster: KafkaCluster, group: str, *topics: str, client_id: str = "peer", **settings: Any
) -> PollingMember:
    """A member of kafka-python, which speaks the classic protocol with every broker from 0.9 on."""
    version = {"api_version": (0, 9)} if version_tuple(cluster.version) < (0, 10) else {}

    def make() -> Any:
        return kafka.KafkaConsumer(
            *topics, bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", group_id=group, client_id=client_id,
            auto_offset_reset="earliest", enable_auto_commit=True, auto_commit_interval_ms=100,
            session_timeout_ms=6_000, heartbeat_interval_ms=500, metadata_max_age_ms=2_000,
            partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
            **version, **settings,
        )  # fmt: skip

    def poll(consumer: Any) -> int:
        return sum(map(len, consumer.poll(timeout_ms=100).values()))

    return PollingMember(make, poll, lambda consumer: consumer.close())


def newest_member(cluster: KafkaCluster, group: str, *topics: str, client_id: str = "peer") -> PollingMember:
    """A member of librdkafka that speaks the protocol of KIP-848, which brokers of Kafka 4 serve."""

    def make() -> Any:
        consumer = Consumer({
            "bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "group.id": group, "group.protocol": "consumer",
            "client.id": client_id, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 100,
        })  # fmt: skip
        consumer.subscribe(list(topics))
        return consumer

    def poll(consumer: Any) -> int:
        message = consumer.poll(0.1)
        return int(message is not None and message.error() is None)

    return PollingMember(make, poll, lambda consumer: consumer.close())
