"""A group of ours on real brokers of every version of Kafka that has a ZooKeeper."""

from __future__ import annotations

import pytest
from consuming import member, multiset, produce, read
from kazoo.exceptions import NoNodeError

from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.probe import probed_broker
from zkconsumer import Whitelist
from zkconsumer.testing.kafka import KafkaCluster, kafka_versions
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]
VERSIONS = [version for version in kafka_versions(with_zookeeper=True) if version_tuple(version) >= (0, 8)]
PARTITIONS, EACH = 4, 25


def codecs(version: str) -> list[str]:
    return ["none", "gzip", "snappy", *(["lz4"] if version_tuple(version) >= (0, 8, 2) else [])]


def committed(cluster: KafkaCluster, group: str, topic: str) -> dict[int, int]:
    found = {}
    for partition in range(PARTITIONS):
        try:
            found[partition] = int(cluster.client.get(f"/consumers/{group}/offsets/{topic}/{partition}")[0])
        except NoNodeError:
            pass
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_two_members_share_a_topic_of_every_codec_and_a_third_goes_on(version: str) -> None:
    with KafkaCluster(version, brokers=2) as cluster:
        cluster.create_topic("mixed", partitions=PARTITIONS)
        sent = [
            text
            for partition in range(PARTITIONS)
            for codec in codecs(version)
            for text in produce(cluster, "mixed", partition, [f"{partition}-{codec}-{n}" for n in range(EACH)], codec)
        ]
        with member(cluster, "group", "a") as a, member(cluster, "group", "b") as b:
            streams = [each.create_message_streams({"mixed": 1})["mixed"][0] for each in (a, b)]
            wait_until(lambda: len(a.status().owned) == len(b.status().owned) == 2, 30, "both to own two partitions")
            assert multiset(read(streams, len(sent))) == dict.fromkeys(sent, 1)
        assert committed(cluster, "group", "mixed") == dict.fromkeys(range(PARTITIONS), EACH * len(codecs(version)))
        later = [text for partition in range(PARTITIONS) for text in produce(cluster, "mixed", partition, ["later"])]
        with member(cluster, "group", "c") as c:
            stream = c.create_message_streams_by_filter(Whitelist("mix.*"))[0]
            assert multiset(read(stream, len(later))) == {"later": PARTITIONS}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_simple_consumer_asks_for_offsets_metadata_and_messages(version: str) -> None:
    with KafkaCluster(version) as cluster:
        cluster.create_topic("plain")
        produce(cluster, "plain", 0, ["one", "two", "three"])
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            assert broker.get_offsets_before("plain", 0, EARLIEST) == [0]
            assert broker.get_offsets_before("plain", 0, LATEST) == [3]
            assert [message.value for message in broker.fetch("plain", 0, 1)] == [b"two", b"three"]
            [row] = broker.topic_metadata(["plain"]).topics["plain"].partitions
            assert row.leader == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_known_by_its_address_is_probed_and_asked_in_its_versions(version: str) -> None:
    with KafkaCluster(version) as cluster:
        cluster.create_topic("plain")
        produce(cluster, "plain", 0, ["one", "two", "three"])
        found = probed_broker("127.0.0.1", cluster.port(0), 20)
        since = version_tuple(version)
        assert found.generation == ("kafka011" if since >= (0, 10) else "kafka08")
        assert found.commit_version == (2 if since >= (0, 9) else 1)
        with SimpleConsumer(found.host, found.port, dialect=dialect_of(found)) as broker:
            assert broker.get_offsets_before("plain", 0, EARLIEST) == [0]
            assert broker.get_offsets_before("plain", 0, LATEST) == [3]
            metadata = broker.topic_metadata(["plain"])
            assert metadata.topics["plain"].partitions[0].leader == 0
            assert (metadata.topics["plain"].topic_id is not None) == (since >= (2, 8))
            assert (metadata.cluster_id is not None) == (since >= (0, 10, 1))
