"""The consumer against real brokers of every version with ZooKeeper that can be had, one after the other.

pytest -m slow tests/interop/test_kafka_versions.py
"""

from __future__ import annotations

import pytest

from simpleconsumer import SimpleConsumer
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, Whitelist
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

CODECS = ("none", "gzip", "snappy")
TIMESTAMP_MS = 1_400_000_000_123


@pytest.mark.parametrize(
    "version", ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2"]
)
def test_every_message_of_every_codec_is_read_and_committed(version: str) -> None:
    is_timed = version not in ("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1")
    with KafkaCluster(version, brokers=1) as cluster:
        kept = {"retention.ms": -1} if is_timed else None  # for ever, as the messages are of 2014
        cluster.create_topic("clicks", 2, 1, config=kept)
        expected = set()
        for codec in CODECS:
            for partition in (0, 1):
                values = [f"{codec}-{partition}-{number}".encode() for number in range(200)]
                with SimpleConsumer("127.0.0.1", cluster.port(0)) as producer:
                    if is_timed:
                        producer.produce(
                            "clicks", partition, values, codec=codec, magic=1, version=2, timestamp_ms=TIMESTAMP_MS
                        )
                    else:
                        producer.produce("clicks", partition, values, codec=codec)
                expected.update(values)
        config = ConsumerConfig(cluster.zookeeper_connect, "g", auto_offset_reset="smallest", consumer_timeout_ms=3000)
        got = []
        with ConsumerConnector(config) as connector:
            stream = connector.create_message_streams_by_filter(Whitelist("clicks"))[0]
            with pytest.raises(ConsumerTimeout):
                got.extend(stream)
            assert [owned.lag for owned in connector.status().owned] == [0, 0]
        offsets = {partition: cluster.client.get(f"/consumers/g/offsets/clicks/{partition}")[0] for partition in (0, 1)}

    assert len(got) == len(expected)
    assert {message.value for message in got} == expected
    assert {message.timestamp_ms for message in got} == {TIMESTAMP_MS if is_timed else None}
    assert offsets == {0: b"600", 1: b"600"}
