"""Logs of a real broker in which the offset field of one entry is damaged: it costs that entry, once."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from simpleconsumer import DamagedOffset, SimpleConsumer
from zkconsumer import ConsumerConfig, ConsumerConnector, Whitelist
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

COUNT, BAD = 400, 200
FOUND = (BAD - 2**63, -1, 2**63 - 1, COUNT + 50, COUNT, BAD + 120, BAD + 64, BAD + 1, BAD - 1, BAD - 64, 0)


def write_offset(log: Path, offset: int, found: int) -> None:
    """Write another offset into one entry of a log file, as a flipped bit on a disk does."""
    data = bytearray(log.read_bytes())
    position = 0
    while (head := struct.unpack_from(">qi", data, position))[0] != offset:
        position += 12 + head[1]
    struct.pack_into(">q", data, position, found)
    log.write_bytes(data)


def log_of(cluster: KafkaCluster, topic: str) -> Path:
    return cluster.folder / "broker-0" / "data" / f"{topic}-0" / f"{0:020}.log"


def append(cluster: KafkaCluster, topic: str, first: int, count: int) -> None:
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as producer:
        producer.produce(topic, 0, [b"message %d" % number for number in range(first, first + count)])


def test_a_damaged_offset_in_the_log_of_a_real_broker_costs_its_entry_once() -> None:
    with KafkaCluster("0.8.2.2", brokers=1) as cluster:
        topics = {f"says-{number}": found for number, found in enumerate(FOUND)}
        for topic in topics:
            cluster.create_topic(topic)
            for first in range(0, COUNT, 50):  # a broker notes where an append begins, each four kilobytes
                append(cluster, topic, first, 50)
        cluster.stop(0)
        for topic, found in topics.items():
            write_offset(log_of(cluster, topic), BAD, found)
        cluster.start(0)

        offsets: dict[str, list[int]] = {topic: [] for topic in topics}
        errors: list[DamagedOffset] = []
        config = ConsumerConfig(
            cluster.zookeeper_connect, "g", auto_offset_reset="smallest", consumer_timeout_ms=20_000,
            fetch_message_max_bytes=5000,
        )  # fmt: skip
        with ConsumerConnector(config) as connector:
            [stream] = connector.create_message_streams_by_filter(Whitelist("says-.*"))
            while sum(map(len, offsets.values())) + len(errors) < COUNT * len(topics):
                try:
                    message = next(stream)
                    assert message.value == b"message %d" % message.offset
                    offsets[message.topic].append(message.offset)
                except DamagedOffset as error:
                    errors.append(error)
        assert offsets == {topic: [offset for offset in range(COUNT) if offset != BAD] for topic in topics}
        assert sorted((error.topic, error.offset) for error in errors) == [(topic, BAD) for topic in sorted(topics)]
        stored = {topic: cluster.client.get(f"/consumers/g/offsets/{topic}/0")[0] for topic in topics}
        assert stored == dict.fromkeys(topics, b"%d" % COUNT)


def test_what_a_damaged_offset_hides_is_named_and_comes_when_the_log_has_grown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker looks for the end of the log by the same offsets, from the last place that it has noted."""
    with KafkaCluster("0.8.2.2", brokers=1) as cluster:
        cluster.create_topic("clicks")
        append(cluster, "clicks", 0, COUNT)
        cluster.stop(0)
        write_offset(log_of(cluster, "clicks"), BAD, 2**63 - 1)
        cluster.start(0)

        config = ConsumerConfig(
            cluster.zookeeper_connect, "g", auto_offset_reset="smallest", consumer_timeout_ms=20_000
        )
        with ConsumerConnector(config) as connector:
            [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
            assert [next(stream).offset for _ in range(BAD)] == list(range(BAD))
            said = f"the broker sends nothing from offset {BAD} on, although the log ends at {COUNT}"
            wait_until(lambda: said in caplog.text, 20, said)
            [owned] = connector.status().owned
            assert said in (owned.error or "")
            for first in range(COUNT, 2 * COUNT, 50):
                append(cluster, "clicks", first, 50)
            with pytest.raises(DamagedOffset) as caught:
                next(stream)
            assert caught.value.offset == BAD
            rest = range(BAD + 1, 2 * COUNT)
            assert [next(stream).offset for _ in rest] == list(rest)
            assert connector.status().owned[0].error is None
