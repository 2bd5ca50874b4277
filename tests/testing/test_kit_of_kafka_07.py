"""The kit with a real Kafka 0.7: brokers, topics, Java's own consumer. Skipped without its jar."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_07 import needs_jar_07, produce_07

from zkconsumer.testing import JavaMember
from zkconsumer.testing.errors import KitError, NotSupported
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, needs_jar_07]

ENTRY_BYTES = 10
"""Of a message without compression, beside its value."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster("0.7.2", brokers=2) as cluster:
        yield cluster


def test_a_topic_has_the_partitions_that_each_broker_is_set_to(cluster: KafkaCluster) -> None:
    assert cluster.create_topic("made") == {"0-0": 0, "0-1": 0, "1-0": 1, "1-1": 1}
    assert cluster.partitions("made") == ["0-0", "0-1", "1-0", "1-1"]
    assert cluster.leader("made", "1-1") == 1
    assert cluster.leader("made", "1-2") is None
    with pytest.raises(KitError, match="topic made exists already"):
        cluster.create_topic("made")
    with pytest.raises(NotSupported, match=r'"num\.partitions": 3'):
        cluster.create_topic("three", partitions=3)
    with pytest.raises(NotSupported, match="replicas"):
        cluster.create_topic("copied", replication=2)


def test_a_java_member_delivers_and_commits_byte_positions(cluster: KafkaCluster) -> None:
    cluster.create_topic("clicks")
    values = {}
    for broker in (0, 1):
        for number in (0, 1):
            name = f"{broker}-{number}"
            values[name] = [f"{name}:{n}".encode() for n in range(5)]
            assert produce_07(cluster.port(broker), "clicks", number, values[name]) == 5 * (ENTRY_BYTES + 5)
    with JavaMember(cluster, "billing", topics={"clicks": 2}, consumer_id="a") as member:
        got = member.wait_messages(20)
        assert {name: [each.value for each in got if each.partition == name] for name in values} == values
        ends = [each.offset for each in got if each.partition == "0-1"]
        assert ends == [(n + 1) * (ENTRY_BYTES + 5) for n in range(5)]
        assert member.wait_owned(4) == [("clicks", name) for name in sorted(values)]
        assert cluster.client.get(member.registration_path)[0] == b'{ "clicks": 2 }'
        with JavaMember(cluster, "billing", topics={"clicks": 1}, consumer_id="b") as other:
            other.wait_owned(1)
            member.wait_owned(3)
            other.stop()
        member.wait_owned(4)
        member.stop()
        assert member.gave_up == 0
    for name in values:
        assert cluster.client.get(f"/consumers/billing/offsets/clicks/{name}")[0] == b"75"


def test_a_filter_of_a_java_member_is_registered_as_text(cluster: KafkaCluster) -> None:
    with JavaMember(cluster, "mirrors", whitelist="no-such-.*", streams=2) as member:
        assert cluster.client.get(member.registration_path)[0] == b"*2*no-such-.*"


def test_a_broker_comes_back_with_its_log(cluster: KafkaCluster) -> None:
    cluster.create_topic("kept")
    end = produce_07(cluster.port(1), "kept", 0, [b"one", b"two"])
    cluster.kill(1, expire=True)
    wait_until(lambda: cluster.partitions("kept") == ["0-0", "0-1"], 20, "the partitions of the dead broker to go")
    cluster.start(1)
    wait_until(lambda: len(cluster.partitions("kept")) == 4, 20, "the partitions of the broker to come back")
    assert produce_07(cluster.port(1), "kept", 0, []) == end
