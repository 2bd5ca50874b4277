"""Brokers, topics and leaders by the metadata of brokers alone: which broker is asked, and what is known of topics."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from rebalance.errors import GroupRefused
from rebalance.zookeeper.znodes_07 import GENERATION_08
from simpleconsumer.connection import UNDER_WAY
from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.types import (
    Broker,
    ClusterMetadata,
    FetchRequest,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
)
from zkconsumer.cluster.metadata_reader import BrokersSilent, MetadataDirectory, MetadataReader, TopicIds, TopicRefused
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.waiting import wait_until

DEADLINE_S = 10.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, zookeeper=False) as running:
        running.create_topic("one", partitions=3)
        running.create_topic("two")
        yield running


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def reader_at(*ports: int) -> MetadataReader:
    return MetadataReader([("127.0.0.1", port) for port in ports], "test", DEADLINE_S, rng=random.Random(1))


def test_one_living_broker_of_the_list_is_enough(cluster: EmbeddedCluster) -> None:
    reader = reader_at(closed_port(), cluster.port(1), closed_port())
    assert [broker.id for broker in reader.brokers()] == [0, 1]
    assert [(broker.host, broker.port) for broker in reader.brokers()] == [
        ("127.0.0.1", cluster.port(0)), ("127.0.0.1", cluster.port(1)),
    ]  # fmt: skip


def test_topics_and_partitions_are_those_that_there_are(cluster: EmbeddedCluster) -> None:
    reader = reader_at(cluster.port(0))
    assert reader.topics() == ["one", "two"]
    assert reader.partitions(["one", "no-such"]) == {"one": (0, 1, 2)}
    assert (reader.topic_exists("two"), reader.topic_exists("no-such")) == (True, False)
    assert reader.existing(["two", "no-such"]) == {"two"}
    assert reader.topics() == ["one", "two"], "asking creates nothing"


def test_leaders_are_those_of_the_brokers(cluster: EmbeddedCluster) -> None:
    reader = reader_at(cluster.port(0))
    names = [TopicPartition("one", number) for number in range(3)]
    assert reader.leaders(names) == {name: cluster.leader(*name) for name in names}
    found = MetadataDirectory(reader).leaders(dict.fromkeys(names))
    assert {name: broker.id for name, broker in found.items()} == reader.leaders(names)


def test_no_broker_that_answers_is_an_error_with_the_reasons() -> None:
    dead = closed_port()
    with pytest.raises(BrokersSilent, match=f"127.0.0.1:{dead}: Connection refused"):
        reader_at(dead).brokers()


def test_a_broker_that_answers_with_an_error_is_named() -> None:
    with EmbeddedCluster(1, generation="4.3") as brokers:
        brokers.faults.add(Fault.error(35, api="api_versions"), times=None)
        reader = MetadataReader([("127.0.0.1", brokers.port(0))], "test", 5.0)
        with pytest.raises(BrokersSilent, match=rf"\(127\.0\.0\.1:{brokers.port(0)}: UnsupportedVersion"):
            reader.brokers()
        brokers.faults.clear()


def test_when_all_known_brokers_are_gone_the_list_is_asked_again(cluster: EmbeddedCluster) -> None:
    reader = reader_at(cluster.port(0))
    reader.brokers()
    reader._known = {7: Broker(7, "127.0.0.1", closed_port()), 8: Broker(8, "127.0.0.1", closed_port())}
    assert [broker.id for broker in reader.brokers()] == [0, 1]


def test_questions_of_many_threads_are_answered(cluster: EmbeddedCluster) -> None:
    reader = reader_at(cluster.port(0), cluster.port(1))
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(reader.topics()), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert found == [["one", "two"]] * 8
    for number in range(2):
        assert UNDER_WAY.at(("127.0.0.1", cluster.port(number))) == 0


def test_look_ups_go_to_the_broker_with_fewer_requests_of_fetches_under_way(cluster: EmbeddedCluster) -> None:
    reader = reader_at(cluster.port(0))
    reader.brokers()
    busy = cluster.leader("two", 0)
    address = ("127.0.0.1", cluster.port(busy))
    with SimpleConsumer(*address, DEADLINE_S) as consumer:
        end = consumer.get_offsets_before("two", 0, LATEST)[0]
        ask = partial(consumer.multifetch, [FetchRequest("two", 0, end, 1000)], 2000, 1)
        fetching = threading.Thread(target=ask)
        fetching.start()
        wait_until(lambda: UNDER_WAY.at(address) == 1, DEADLINE_S, "a fetch that waits for messages")
        asked = {reader.metadata(["two"])[1] for _ in range(10)}
        assert UNDER_WAY.at(address) == 1, "the fetch still waits"
        fetching.join(DEADLINE_S)
    assert asked == {1 - busy}
    assert {reader.metadata(["two"])[1] for _ in range(40)} == {0, 1}, "else it is chance"


def test_kafka_0_7_has_no_metadata(cluster: EmbeddedCluster) -> None:
    reader = reader_at(cluster.port(0))
    assert reader.find_generation("g", "auto") is GENERATION_08
    with pytest.raises(GroupRefused, match=r"brokers of Kafka 0\.7 are only found through ZooKeeper"):
        reader.find_generation("g", "0.7")


# -- answers of brokers, scripted --------------------------------------------------------------------------------------


class Told(MetadataReader):
    """A reader whose brokers answer what the test says, one answer after the other."""

    def __init__(self, *answers: ClusterMetadata | None) -> None:
        super().__init__([("b", 1)], "test", DEADLINE_S)
        self.answers = list(answers)
        self.besides: list[tuple[int, ...]] = []

    def metadata(self, topics: object, *, besides: object = ()) -> tuple[ClusterMetadata, int]:
        self.besides.append(tuple(besides))  # type: ignore[arg-type]
        answer = self.answers.pop(0)
        if answer is None:
            raise BrokersSilent("no broker answers")
        self.topic_ids.note(answer.topics)
        return answer, 1


BROKERS = {number: Broker(number, "b", number) for number in (1, 2)}
ZERO = TopicPartition("t", 0)


def led_by(leader: int | None, code: int = 0, topic_id: str | None = None) -> ClusterMetadata:
    row = PartitionMetadata(0, leader, (1, 2), (1, 2), code)
    return ClusterMetadata(BROKERS, {"t": TopicMetadata("t", 0, (row,), topic_id)})


def leader(wanted: int | None, *answers: ClusterMetadata | None) -> int | None:
    found = MetadataDirectory(Told(*answers)).leaders({ZERO: wanted})
    return found[ZERO].id if found else None


def test_a_leader_that_nobody_denied_is_taken_by_one_answer() -> None:
    assert leader(None, led_by(1)) == 1
    assert leader(2, led_by(1)) == 1
    assert leader(None, led_by(None)) is None
    assert leader(None, led_by(1, code=9)) == 1, "a replica is down, the leader serves"


def test_a_broker_that_denied_leading_needs_the_word_of_another_one() -> None:
    assert leader(1, led_by(1), led_by(2)) == 2
    assert leader(1, led_by(1), led_by(1)) == 1, "it leads by now"
    assert leader(1, led_by(1), led_by(None)) is None
    assert leader(1, led_by(1), None) == 1, "there is no other broker"


def test_the_epoch_of_a_leader_is_that_of_the_answer_that_counts() -> None:
    old, new = (
        ClusterMetadata(BROKERS, {"t": TopicMetadata("t", 0, (PartitionMetadata(0, 1, (1, 2), (1, 2), 0, epoch),))})
        for epoch in (3, 4)
    )
    directory = MetadataDirectory(Told(old, led_by(None), old, new))  # type: ignore[arg-type]
    directory.leaders({ZERO: None})
    assert directory.epochs == {ZERO: 3}
    directory.leaders({ZERO: None})
    assert directory.epochs == {}, "brokers before 2.1 do not say"
    directory.leaders({ZERO: 1})
    assert directory.epochs == {ZERO: 4}


def test_the_second_answer_is_that_of_another_broker() -> None:
    told = Told(led_by(1), led_by(2))
    directory = MetadataDirectory(told)
    directory.leaders({ZERO: 1})
    assert told.besides == [(), (1,)]
    assert {name: broker.id for name, broker in directory.reported.items()} == {ZERO: 1}


@pytest.mark.parametrize("code", [3, 17])
def test_a_topic_that_no_broker_knows_does_not_exist(code: int) -> None:
    answer = ClusterMetadata(BROKERS, {"t": TopicMetadata("t", code, ())})
    assert Told(answer).partitions(["t"]) == {}


def test_a_topic_that_nobody_may_see_is_an_error() -> None:
    answer = ClusterMetadata(BROKERS, {"t": TopicMetadata("t", 29, ())})
    with pytest.raises(TopicRefused, match="t: TopicAuthorizationFailed"):
        Told(answer).partitions(["t"])


def test_another_topic_id_under_a_name_is_another_topic() -> None:
    ids = TopicIds()
    ids.note(led_by(1, topic_id="aa").topics)
    ids.note(led_by(1).topics)
    ids.note(led_by(1, topic_id="aa").topics)
    assert ids.why_gone("t") == ""
    ids.note(led_by(1, topic_id="bb").topics)
    assert ids.why_gone("t") == "topic 't' was deleted and created again"
    assert ids.why_gone("other") == ""
