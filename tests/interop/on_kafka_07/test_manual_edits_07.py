"""What operators do to the nodes of a group on Kafka 0.7, under members that read: nothing is lost or repeated.

On ZooKeeper 3.3, which has no transactions. `tests/processes/test_fault_suite.py` does the same under load.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from consuming import BackgroundReader, wait_owners
from consuming_07 import PARTITIONS, fill, member, offset_of, take
from kafka_07 import BOTH_07, Both, cluster_07

from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.testing.embedded.kafka07.broker import Broker07
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real

ENTRY_BYTES = 15
"""Of a message as `fill` writes it, up to number 9."""


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest) -> Iterator[Both]:
    with ZooKeeperServer(version="zk-3.3.6") as server, cluster_07(request.param, zookeeper=server) as cluster:
        yield cluster


@pytest.fixture
def wait_all_owned(cluster: Both, topic: str, fresh_group: str) -> Callable[[list[str]], None]:
    """Returns when the member `a` owns these partitions, and nobody any other."""
    return lambda names: wait_owners(cluster, fresh_group, topic, dict.fromkeys(names, f"{fresh_group}_a-0"))


# -- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("E6")
@pytest.mark.parametrize(
    "texts", [[b"", b"abc", b"-7", b"\xff\xfe"], [b"1e3", b"15.0", b"9" * 20, b"0x0f"]], ids=["words", "numbers"]
)
def test_a_text_that_is_no_offset_counts_as_none_and_is_named(
    cluster: Both, topic: str, fresh_group: str, texts: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Java 0.7.2 fails in each rebalance on the first one that it has to read, and owns nothing."""
    sent = fill(cluster, topic, 3)
    for name, text in zip(PARTITIONS, texts, strict=True):
        cluster.client.create(f"/consumers/{fresh_group}/offsets/{topic}/{name}", text, makepath=True)
    with caplog.at_level(logging.WARNING), member(cluster, fresh_group, {topic: 1}) as (stream,):
        assert {message.value for message in take(stream, len(sent))} == sent
    for name in PARTITIONS:
        assert f"/consumers/{fresh_group}/offsets/{topic}/{name}" in caplog.text
        assert offset_of(cluster, fresh_group, topic, name) == 3 * ENTRY_BYTES


@pytest.mark.parametrize("offset", [0, ENTRY_BYTES, 7], ids=["start", "entry", "within an entry"])
def test_an_offset_that_is_lowered_under_a_member_is_repaired(
    cluster: Both, topic: str, fresh_group: str, offset: int
) -> None:
    fill(cluster, topic, 3)
    path = f"/consumers/{fresh_group}/offsets/{topic}/0-0"
    with member(cluster, fresh_group, {topic: 1}, auto_commit_interval_ms=100) as (stream,):
        take(stream, 12)
        with pytest.raises(ConsumerTimeout):
            next(stream)
        wait_until(lambda: offset_of(cluster, fresh_group, topic, "0-0") == 3 * ENTRY_BYTES, 20, "its commit")
        cluster.client.set(path, b"%d" % offset)
        more = fill(cluster, topic, 1, first=3)
        assert {message.value for message in take(stream, 4)} == more
        with pytest.raises(ConsumerTimeout):
            next(stream)
        wait_until(lambda: offset_of(cluster, fresh_group, topic, "0-0") == 4 * ENTRY_BYTES, 20, "its next commit")


def test_an_offset_that_is_set_while_nobody_is_there_counts(cluster: Both, topic: str, fresh_group: str) -> None:
    fill(cluster, topic, 5)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        take(stream, 20)
        with pytest.raises(ConsumerTimeout):
            next(stream)
    for name, offset in (("0-0", ENTRY_BYTES), ("1-1", 4 * ENTRY_BYTES + 3)):  # the start of an entry, and within one
        cluster.client.set(f"/consumers/{fresh_group}/offsets/{topic}/{name}", b"%d" % offset)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        again = {message.value for message in take(stream, 5)}
        with pytest.raises(ConsumerTimeout):
            next(stream)
    assert again == {b"0-0:1", b"0-0:2", b"0-0:3", b"0-0:4", b"1-1:4"}


# -- owners and registrations -----------------------------------------------------------------------------------------


@pytest.mark.catalogue("D3")
@pytest.mark.parametrize("node", ["owners/{topic}/1-0", "ids/{group}_a"], ids=["owner", "registration"])
def test_a_node_that_is_deleted_is_made_again_and_nothing_is_repeated(
    cluster: Both, topic: str, fresh_group: str, node: str, wait_all_owned: Callable[[list[str]], None]
) -> None:
    path = f"/consumers/{fresh_group}/" + node.format(topic=topic, group=fresh_group)
    sent = fill(cluster, topic, 3)
    with member(cluster, fresh_group, {topic: 1}, consumer_id="a") as (stream,):
        reader = BackgroundReader(stream)
        reader.wait(len(sent))
        before = cluster.client.exists(path).czxid
        cluster.client.delete(path)
        wait_until(lambda: getattr(cluster.client.exists(path), "czxid", before) != before, 20, "the node to be back")
        wait_all_owned(PARTITIONS)
        sent |= fill(cluster, topic, 2, first=3)
        reader.wait(len(sent))
    assert sorted(message.value for message in reader.messages) == sorted(sent)


# -- brokers below a topic --------------------------------------------------------------------------------------------


@pytest.mark.catalogue("H6")
def test_a_broker_that_is_deleted_below_the_topic_is_left_and_read_on_when_it_is_made_again(
    cluster: Both, topic: str, fresh_group: str, wait_all_owned: Callable[[list[str]], None]
) -> None:
    path = f"/brokers/topics/{topic}/1"
    sent = fill(cluster, topic, 3)
    with member(cluster, fresh_group, {topic: 1}, consumer_id="a") as (stream,):
        reader = BackgroundReader(stream)
        reader.wait(len(sent))
        cluster.client.delete(path)
        wait_all_owned(["0-0", "0-1"])
        sent |= fill(cluster, topic, 2, first=3)  # broker 1 takes messages all the while
        cluster.client.create(path, b"2", ephemeral=True)
        wait_all_owned(PARTITIONS)
        reader.wait(len(sent))
    assert sorted(message.value for message in reader.messages) == sorted(sent)


@pytest.mark.catalogue("H6")
@pytest.mark.parametrize("text", [b"1", b"0", b"many", b""], ids=["fewer", "none", "word", "empty"])
def test_a_number_of_partitions_that_is_rewritten_counts_at_once(
    cluster: Both, topic: str, fresh_group: str, text: bytes, wait_all_owned: Callable[[list[str]], None]
) -> None:
    path = f"/brokers/topics/{topic}/1"
    sent = fill(cluster, topic, 3)
    with member(cluster, fresh_group, {topic: 1}, consumer_id="a") as (stream,):
        reader = BackgroundReader(stream)
        reader.wait(len(sent))
        cluster.client.set(path, text)
        wait_all_owned(["0-0", "0-1", "1-0"] if text == b"1" else ["0-0", "0-1"])
        sent |= fill(cluster, topic, 2, first=3)
        cluster.client.set(path, b"2")
        wait_all_owned(PARTITIONS)
        reader.wait(len(sent))
    assert sorted(message.value for message in reader.messages) == sorted(sent)


@pytest.mark.catalogue("H6")
def test_a_partition_that_a_broker_does_not_have_disturbs_no_other_and_is_read_once_the_broker_has_it(
    cluster: Both,
    topic: str,
    fresh_group: str,
    wait_all_owned: Callable[[list[str]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker closes the connection on a question for its offsets, and with it the fetches of its other partitions."""
    sent = fill(cluster, topic, 1)
    settings = {"auto_offset_reset": "smallest", "consumer_timeout_ms": 20_000, "fetcher_backoff_ms": 50}
    config = ConsumerConfig(cluster.zookeeper_connect, fresh_group, consumer_id="a", **settings)
    with caplog.at_level(logging.WARNING), ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        reader = BackgroundReader(stream)
        reader.wait(len(sent))
        cluster.client.set(f"/brokers/topics/{topic}/1", b"3")
        wait_all_owned([*PARTITIONS, "1-2"])
        wait_until(lambda: error_of(connector, "1-2") is not None, 20, "the status to say why it is not read")
        for number in range(1, 20):
            sent |= fill(cluster, topic, 1, first=number, partitions=["1-0", "1-1"])
            time.sleep(0.1)
        reader.wait(len(sent))
        assert error_of(connector, "1-2") == (
            "WrongPartition (code 3): broker 1 has no partition 2 of the topic, "
            f"although /brokers/topics/{topic}/1 counts it"
        )
        assert [error_of(connector, name) for name in PARTITIONS] == [None] * 4
        assert connector.statistics().errors.get("broker_connection", 0) == 0
        assert len([record for record in caplog.records if "1-2" in record.getMessage()]) == 1
        restart_with_partitions(cluster, 1, topic, 3)
        wait_all_owned([*PARTITIONS, "1-2"])
        sent |= fill(cluster, topic, 2, first=20, partitions=["1-1", "1-2"])
        reader.wait(len(sent), timeout_s=10)
    assert sorted(message.value for message in reader.messages) == sorted(sent)


def error_of(connector: ConsumerConnector, partition: str) -> str | None:
    """What the status says of a partition that the member owns."""
    return next((each.error for each in connector.status().owned if each.partition == partition), None)


def restart_with_partitions(cluster: Both, broker_id: int, topic: str, count: int) -> None:
    """Have a broker come back with so many partitions of a topic."""
    cluster.stop(broker_id)
    if isinstance(cluster, KafkaCluster):
        cluster.start(broker_id, settings={"topic.partition.count.map": f"{topic}:{count}"})
        return
    broker = cluster.brokers[broker_id]
    assert isinstance(broker, Broker07)
    broker._settings = replace(broker._settings, partition_counts={topic: count})
    cluster.start(broker_id)
