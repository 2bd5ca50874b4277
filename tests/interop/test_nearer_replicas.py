"""`client.rack`: the replica that a leader names is fetched from, until it fails or its time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import FetchRequest
from zkconsumer import ConsumerConfig, ConsumerConnector, read_topic
from zkconsumer.fetching import fetch_state
from zkconsumer.fetching.fetcher import Fetcher
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

WAIT_S = 60.0
LEADER, FOLLOWER = 0, 1


@pytest.fixture(scope="module", params=[pytest.param("2.8.2", marks=pytest.mark.slow), "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    settings = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "replica.lag.time.max.ms": 2000, "offsets.topic.num.partitions": 1,
    }  # fmt: skip
    racks = {LEADER: {"broker.rack": "far"}, FOLLOWER: {"broker.rack": "near"}}
    with KafkaCluster(request.param, brokers=2, settings=settings, broker_settings=racks) as made:
        yield made


@pytest.fixture
def fetched_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The brokers that partitions were given to, in their order."""
    found: list[int] = []
    take_on = Fetcher._take_on

    def noted(self: Fetcher, task: object) -> None:
        found.append(self.broker.id)
        take_on(self, task)  # type: ignore[arg-type]

    monkeypatch.setattr(Fetcher, "_take_on", noted)
    return found


def produce(cluster: KafkaCluster, topic: str, broker_id: int, *values: bytes) -> None:
    with SimpleConsumer("127.0.0.1", cluster.port(broker_id), dialect=KAFKA011) as broker:
        broker.produce(topic, 0, values, acks=-1)


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    cluster.create_topic(name, assignment={0: [LEADER, FOLLOWER]})
    with SimpleConsumer("127.0.0.1", cluster.port(LEADER), dialect=KAFKA011, rack="near") as broker:
        # The leader names a replica once it knows that it follows.
        def is_named() -> bool:
            return broker.multifetch([FetchRequest(name, 0, 0, 1000)])[0].preferred_replica == FOLLOWER

        wait_until(is_named, WAIT_S, "the follower to be named")
    return name


def config(cluster: KafkaCluster, group: str, rack: str | None) -> ConsumerConfig:
    return ConsumerConfig(
        cluster.zookeeper_connect, group, auto_offset_reset="smallest", consumer_timeout_ms=60_000, client_rack=rack
    )


@pytest.mark.parametrize(("rack", "brokers"), [("near", [LEADER, FOLLOWER]), ("far", [LEADER]), (None, [LEADER])])
def test_a_group_fetches_from_the_replica_in_its_rack(
    cluster: KafkaCluster, topic: str, fresh_group: str, fetched_from: list[int], rack: str | None, brokers: list[int]
) -> None:
    with ConsumerConnector(config(cluster, fresh_group, rack)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        for number in range(3):
            produce(cluster, topic, LEADER, b"%d" % number)
            assert next(stream).value == b"%d" % number
        assert list(dict.fromkeys(fetched_from)) == brokers
        assert fetched_from[-1] == brokers[-1]
        assert connector.status().owned[0].error is None


def test_its_leader_is_asked_again_when_the_time_is_over(
    cluster: KafkaCluster, topic: str, fetched_from: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_state, "FOLLOWED_S", 0.5)
    properties = {"client.rack": "near"}
    with read_topic(cluster.zookeeper_connect, topic, until=None, properties=properties) as reader:
        produce(cluster, topic, LEADER, b"first")
        assert next(reader).value == b"first"
        wait_until(lambda: len(fetched_from) >= 6, WAIT_S, "the replica to be named again")
        produce(cluster, topic, LEADER, b"second")
        assert next(reader).value == b"second"
    assert fetched_from[:6] == [LEADER, FOLLOWER] * 3


def test_a_replica_that_dies_is_left_and_nothing_is_lost_or_repeated(
    cluster: KafkaCluster, topic: str, fresh_group: str, fetched_from: list[int]
) -> None:
    with ConsumerConnector(config(cluster, fresh_group, "near")) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        produce(cluster, topic, LEADER, b"0", b"1")
        assert [message.value for message in islice(stream, 2)] == [b"0", b"1"]
        assert fetched_from[-1] == FOLLOWER
        cluster.kill(FOLLOWER, expire=True)  # else the leader waits for it, up to the end of its session
        produce(cluster, topic, LEADER, b"2", b"3")
        assert [message.value for message in islice(stream, 2)] == [b"2", b"3"]
        assert fetched_from[-1] == LEADER
        cluster.start(FOLLOWER)
        produce(cluster, topic, LEADER, b"4")
        assert next(stream).value == b"4"
        wait_until(lambda: fetched_from[-1] == FOLLOWER, WAIT_S, "the replica to be named again")
        produce(cluster, topic, LEADER, b"5")
        assert next(stream).value == b"5"
