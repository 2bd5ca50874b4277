"""Batches whose values say where they belong, lanes that write them, and a plain reader that counts them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, BatchProducer, encode_producer_batch, restamped
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import ProducedPartition, ProducerId, TopicPartition
from zkconsumer import read_topic
from zkconsumer.cluster.cluster import Cluster as Brokers
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.mirror.lanes.lane_events import Run
from zkconsumer.mirror.lanes.lane_sender import LaneSender
from zkconsumer.producer.sending.broker_thread import RequestSettings, new_producer_id
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.waiting import wait_until

WAIT_S = 60.0
SOURCE = TopicPartition("source", 0)
LENGTHS = (7, 20, 3, 11, 40)


def now_ms() -> int:
    return int(time.time() * 1000)


def value_of(offset: int) -> bytes:
    return b"record %d" % offset


def source_batch(offset: int, records: int, codec: str = "none", time_ms: int | None = None) -> bytes:
    """A batch as it is stored in the source: its values say to which offsets of the target they belong."""
    rows = [(None, value_of(offset + index)) for index in range(records)]
    at_s = (now_ms() if time_ms is None else time_ms) / 1000
    return encode_producer_batch([(rows, (at_s,))], codec, 0.0, BatchProducer(4711, 3, 99))


class Wire:
    """One connection to the leader, which sends whatever it is told to, under whatever number."""

    def __init__(self, cluster: Cluster, name: TopicPartition, broker_id: int | None = None) -> None:
        leader = cluster.leader(name.topic, name.partition) if broker_id is None else broker_id
        assert leader is not None
        self.name = name
        self.client = SimpleConsumer("127.0.0.1", cluster.port(leader), dialect=KAFKA011)

    def new_id(self) -> ProducerId:
        """A producer id, once the broker gives one."""
        found: list[ProducerId] = []

        def has_come() -> bool:
            try:
                found.append(new_producer_id(self.client))
            except SimpleConsumerError:
                return False
            return True

        wait_until(has_come, WAIT_S, "a producer id")
        return found[0]

    def put(
        self, producer: ProducerId, offset: int, records: int = 10, sequence: int | None = None,
        time_ms: int | None = None,
    ) -> tuple[int, int]:  # fmt: skip
        """Send the batch that belongs at an offset; error code, and base offset as answered."""
        data = source_batch(offset, records, time_ms=time_ms)
        stamp = BatchProducer(*producer, offset if sequence is None else sequence)
        answered = self.put_as_is(restamped(data, SOURCE, stamp, takes_zstd=True).data)
        return answered.error_code, answered.base_offset

    def put_foreign(self, offset: int, records: int = 1, codec: str = "none") -> ProducedPartition:
        """Send a batch without a producer id."""
        data = source_batch(offset, records, codec)
        return self.put_as_is(restamped(data, SOURCE, BatchProducer(), takes_zstd=True).data)

    def replicas_in_sync(self) -> set[int]:
        [partition] = self.client.topic_metadata([self.name.topic]).topics[self.name.topic].partitions
        return set(partition.isr)

    def put_as_is(self, data: bytes) -> ProducedPartition:
        [answer] = self.client.produce_sets({self.name: data}, acks=-1)
        return answer

    def end(self) -> int:
        [end] = self.client.log_ends([self.name])
        assert not end.error_code
        return end.offset

    def stored(self) -> bytes:
        """The whole log, as it is stored."""
        data = b""
        for offset in range(self.end()):
            [fetched] = self.client.multifetch([(*self.name, offset, 1)], 0, 1)
            assert not fetched.error_code
            part = bytes(fetched.message_set)
            data += part if not data.endswith(part) else b""
        return data

    def close(self) -> None:
        self.client.close()


def settings_of(timeout_ms: int) -> RequestSettings:
    return RequestSettings(-1, timeout_ms, timeout_ms / 500, 0, "lane", lambda topic: "none", None)


def lane(cluster: Cluster, name: TopicPartition, run: Run, *, timeout_ms: int = 10_000, **more: Any) -> LaneSender:
    """A lane into a partition of a cluster whose brokers alone are asked."""
    addresses = [("127.0.0.1", cluster.port(number)) for number in cluster.brokers]
    brokers = Brokers(MetadataReader(addresses, "lane", timeout_ms / 1000), "lane", timeout_ms / 1000, security=None)
    return LaneSender(name, run, brokers.leaders, settings_of(timeout_ms).connection, timeout_ms=timeout_ms, **more)


def write(
    sender: LaneSender, end: int, *, rng: random.Random | None = None, codec: str = "none", wait_s: float = WAIT_S,
    until: Callable[[], bool] = lambda: False, time_ms: int | None = None,
) -> int:  # fmt: skip
    """Write what belongs before an offset, in batches of drawn lengths; the end of what is stored."""
    rng = rng or random.Random(1)
    while not until():
        position = sender.position(wait_s)
        if position >= end:
            if sender.flush(wait_s) >= end:
                break
            continue
        records = min(rng.choice(LENGTHS), end - position)
        sender.send(source_batch(position, records, codec, time_ms), SOURCE, position, wait_s)
    return sender.flush(wait_s)


def counted(cluster: Cluster, topic: str) -> int:
    """How many records a plain reader finds, each once and in order; it is an error if they are not."""
    servers = ",".join(f"127.0.0.1:{each.port}" for each in cluster.brokers.values() if each.running)
    with read_topic(None, topic, properties={"bootstrap.servers": servers}) as reader:
        found = [(message.offset, message.value) for message in reader]
    wrong = [(offset, value) for offset, value in found if value != value_of(offset)]
    assert wrong == [], f"{len(wrong)} records are not where they belong"
    assert [offset for offset, _ in found] == list(range(len(found)))
    return len(found)
