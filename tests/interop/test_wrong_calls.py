"""Wrong calls of an application are refused with an error, and do not disturb the member."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from consuming import member, owners, produce, read, stored, texts

from rebalance.errors import ConsumerIdInUse, GroupRefused
from zkconsumer import CommitFailed, ConsumerConfig, ConsumerConnector, KafkaConsumer, TopicPartition
from zkconsumer.testing.kafka import KafkaCluster

NOWHERE = ConsumerConfig("127.0.0.1:1", "nobody")


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    kafka_0822.create_topic(name)
    return name


@pytest.mark.parametrize("offset", [-1, 2**63, 1.0, "7", True, None])
def test_an_offset_that_is_none_is_refused_and_the_member_goes_on(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str, offset: object
) -> None:
    with member(kafka_0822, fresh_group) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        with pytest.raises(ValueError, match=r"it must be an integer from 0 to 2\^63-1"):
            consumer.commit_offsets({TopicPartition(topic, 0): offset})  # type: ignore[dict-item]
        sent = produce(kafka_0822, topic, 0, ["still here"])
        assert texts(read(stream, 1)) == sent
        consumer.commit_offsets({TopicPartition(topic, 0): 1})
        assert stored(kafka_0822, fresh_group, topic, 0) == b"1"


def test_offsets_that_are_committed_before_the_group_is_joined_are_not_said_to_be_stored() -> None:
    with ConsumerConnector(NOWHERE) as consumer:
        with pytest.raises(CommitFailed, match="clicks/3: this member has not joined the group"):
            consumer.commit_offsets({TopicPartition("clicks", 3): 42})
        consumer.commit_offsets()  # nothing was read, so nothing is missing


@pytest.mark.parametrize(
    ("offsets", "error", "said"),
    [
        ([1], TypeError, r"offsets is \[1\]; it must map partitions to offsets"),
        ({"clicks": 1}, TypeError, "offsets has 'clicks'; a partition is a TopicPartition"),
        ({TopicPartition("clicks", 0): -1}, ValueError, r"offset of clicks-0 is -1; it must be an integer from 0"),
    ],
)
def test_offsets_are_checked_before_the_group_is_joined_too(offsets: object, error: type[Exception], said: str) -> None:
    with ConsumerConnector(NOWHERE) as consumer, pytest.raises(error, match=said):
        consumer.commit_offsets(offsets)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1, -0.1, float("nan")])
def test_a_time_out_that_cannot_be_is_refused(timeout: float) -> None:
    consumer = ConsumerConnector(NOWHERE)
    with pytest.raises(ValueError, match="it must be 0 or more seconds"):
        consumer.shutdown(timeout)
    consumer.shutdown()


def test_a_consumer_id_in_use_is_refused_by_the_call_that_joins_however_short_its_time_out(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    with member(kafka_0822, fresh_group, "same") as first:
        first.create_message_streams({topic: 1})
        second = member(
            kafka_0822, fresh_group, "same", zookeeper_session_timeout_ms=1000, zookeeper_connection_timeout_ms=1000
        )
        with pytest.raises(ConsumerIdInUse, match=f"{fresh_group}_same"):
            second.create_message_streams({topic: 1})
        assert second.status().state == "closed"
        assert owners(kafka_0822, fresh_group, topic) == {0: f"{fresh_group}_same-0"}


def test_brokers_that_coordinate_no_groups_are_named_by_both_consumers(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    brokers = f"127.0.0.1:{kafka_0822.port(0)}"
    said = "no broker of the cluster is of Kafka 0.9 or later.* give zookeeper.connect instead of bootstrap.servers"
    config = ConsumerConfig(bootstrap_servers=brokers, group_id=fresh_group)
    with ConsumerConnector(config) as connector, pytest.raises(GroupRefused, match=said):
        connector.create_message_streams({topic: 1})
    with (
        KafkaConsumer(topic, bootstrap_servers=brokers, group_id=fresh_group) as consumer,
        pytest.raises(GroupRefused, match=said),
    ):
        consumer.poll(10_000)
