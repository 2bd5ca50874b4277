"""Groups that keep their offsets in Kafka, in ZooKeeper or in both, with members of ours and of Java."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from consuming import member, multiset, owners, produce, produce_each, read, read_available, texts, wait_owners

from simpleconsumer import SimpleConsumer, TopicPartition
from tests.admin import both_stores
from tests.admin.both_stores import manager_of, store_in_kafka
from zkconsumer.admin import Admin
from zkconsumer.offsets import two_stores
from zkconsumer.testing import EmbeddedCluster, Fault, KafkaCluster, wait_until
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.members.java_member import JavaMember

pytestmark = pytest.mark.real

STORAGES: Mapping[str, Mapping[str, str]] = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "dual": {"offsets.storage": "kafka", "dual.commit.enabled": "true"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
}


def in_kafka(cluster: Cluster, group: str, topic: str) -> int | None:
    return both_stores.in_kafka(cluster, group, topic, 1).get(0)


def in_zookeeper(cluster: Cluster, group: str, topic: str) -> int | None:
    return both_stores.in_zookeeper(cluster, group, topic).get(0)


def stores(cluster: Cluster, group: str, topic: str) -> tuple[int | None, int | None]:
    return in_kafka(cluster, group, topic), in_zookeeper(cluster, group, topic)


def attributes(storage: str) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in STORAGES[storage].items()}


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    embedded_cluster.create_topic(name, 1)
    return name


@pytest.mark.parametrize("storage", STORAGES)
def test_the_next_member_continues_where_the_last_one_stopped(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, storage: str
) -> None:
    sent = produce(embedded_cluster, topic, 0, [str(number) for number in range(10)])
    with member(embedded_cluster, fresh_group, **attributes(storage)) as one:
        assert texts(read(one.create_message_streams({topic: 1})[topic], 4)) == sent[:4]
    kafka, zookeeper = stores(embedded_cluster, fresh_group, topic)
    assert kafka == (None if storage == "zookeeper" else 4)
    assert zookeeper == (None if storage == "kafka" else 4)
    with member(embedded_cluster, fresh_group, **attributes(storage)) as other:
        assert texts(read(other.create_message_streams({topic: 1})[topic], 6)) == sent[4:]


@pytest.mark.parametrize("storage", ["dual", "kafka"])
def test_a_member_that_joins_takes_a_partition_over_at_the_exact_next_message(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str, storage: str
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2)
    sent = [produce(embedded_cluster, topic, number, [f"{number}-{each}" for each in range(6)]) for number in (0, 1)]
    with member(embedded_cluster, fresh_group, "a", **attributes(storage)) as one:
        [stream] = one.create_message_streams({topic: 1})[topic]
        got = texts(read(stream, 7))
        with (
            member(embedded_cluster, fresh_group, "b", **attributes(storage)) as other,
            ThreadPoolExecutor(1) as background,
        ):
            joining = background.submit(other.create_message_streams, {topic: 1})
            while not joining.done():  # the message in hand is done when the next one is asked for
                got += texts(read_available(stream))
            [second] = joining.result()[topic]
            got += texts(read([stream, second], 12 - len(got)))
            assert read_available(stream) + read_available(second) == []
    assert sorted(got) == sorted(sent[0] + sent[1])


def test_a_commit_is_stored_before_the_call_returns(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    produce(embedded_cluster, topic, 0, ["a", "b", "c"])
    with member(embedded_cluster, fresh_group, auto_commit_enable=False, **attributes("kafka")) as one:
        read(one.create_message_streams({topic: 1})[topic], 2)
        one.commit_offsets()
        assert stores(embedded_cluster, fresh_group, topic) == (2, None)
        one.commit_offsets({TopicPartition(topic, 0): 1})
        assert stores(embedded_cluster, fresh_group, topic) == (1, None)


@pytest.mark.parametrize(("intent", "first"), [(None, 7), ("max", 7), ("kafka", 3), ("zookeeper", 7)])
def test_where_the_stores_differ_the_intent_decides_and_both_offsets_are_logged(
    embedded_cluster: EmbeddedCluster,
    topic: str,
    fresh_group: str,
    caplog: pytest.LogCaptureFixture,
    intent: str | None,
    first: int,
) -> None:
    sent = produce(embedded_cluster, topic, 0, [str(number) for number in range(10)])
    store_in_both(embedded_cluster, fresh_group, topic, kafka=3, zookeeper=7)
    settings = attributes("dual") | ({} if intent is None else {"offsets_intent": intent})
    with member(embedded_cluster, fresh_group, **settings) as one:
        assert texts(read(one.create_message_streams({topic: 1})[topic], 2)) == sent[first : first + 2]
    assert f"offset of {topic}-0 is 3 in Kafka and 7 in ZooKeeper; starting from {first}" in caplog.text
    assert stores(embedded_cluster, fresh_group, topic) == (first + 2, first + 2)


@pytest.mark.parametrize(
    ("reset", "start", "what", "got"),
    [
        ("largest", "the end of the log", "unread messages are skipped", 1),
        ("smallest", "the start of the log", "messages that were read are read again", 11),
    ],
)
def test_a_start_without_the_offset_of_the_other_store_says_where_it_is_and_what_it_does(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, caplog: pytest.LogCaptureFixture, reset: str,
    start: str, what: str, got: int,
) -> None:  # fmt: skip
    produce(embedded_cluster, topic, 0, [str(number) for number in range(10)])
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    settings = attributes("zookeeper") | {"offsets_intent": "zookeeper", "auto_offset_reset": reset}
    with member(embedded_cluster, fresh_group, **settings) as one:
        [stream] = one.create_message_streams({topic: 1})[topic]
        wait_until(lambda: "; starting from " in caplog.text, 30.0, "a start")
        last = produce(embedded_cluster, topic, 0, ["last"])
        assert texts(read([stream], got))[-1:] == last
    said = f"offset of {topic}-0 is 4 in Kafka and none in ZooKeeper; starting from {start}"
    why = f"auto.offset.reset is {reset}, so {what}; to start from the offset in Kafka"
    assert f"{said} (offsets.intent is zookeeper): {why}" in caplog.text
    assert "set offsets.intent=max, or offsets.storage=kafka if the group stores its offsets there" in caplog.text


def test_with_refuse_a_partition_is_not_started_until_the_stores_agree(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_stores, "_READ_AGAIN_S", 0.5)
    sent = produce(embedded_cluster, topic, 0, [str(number) for number in range(10)])
    store_in_both(embedded_cluster, fresh_group, topic, kafka=3, zookeeper=7)
    settings = attributes("dual") | {"offsets_intent": "refuse", "zookeeper_connection_timeout_ms": 2000}
    with member(embedded_cluster, fresh_group, **settings) as one:
        streams = one.create_message_streams({topic: 1})[topic]
        [owned] = one.status().owned
        assert owned.error == "its offset is 3 in Kafka and 7 in ZooKeeper, and offsets.intent is refuse"
        embedded_cluster.client.set(f"/consumers/{fresh_group}/offsets/{topic}/0", b"3")
        assert texts(read(streams, 2)) == sent[3:5]


@pytest.mark.parametrize(("storage", "first"), [("zookeeper", 7), ("kafka", 3)])
def test_a_member_names_offsets_that_others_keep_elsewhere(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, storage: str, first: int
) -> None:
    sent = produce(embedded_cluster, topic, 0, [str(number) for number in range(10)])
    store_in_both(embedded_cluster, fresh_group, topic, kafka=3, zookeeper=7)
    with member(embedded_cluster, fresh_group, **attributes(storage)) as one:
        streams = one.create_message_streams({topic: 1})[topic]
        assert [each for each in one.status().warnings if "3 in Kafka and 7 in ZooKeeper" in each]
        assert texts(read(streams, 1)) == sent[first : first + 1]


@pytest.mark.parametrize("intent", ["zookeeper", "refuse"])
def test_a_partition_that_comes_back_to_a_member_is_no_difference_between_the_stores(
    embedded_cluster: EmbeddedCluster,
    fresh_topic: Callable[[], str],
    fresh_group: str,
    intent: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2)
    wait_until(lambda: manager_of(embedded_cluster, fresh_group), 30.0, "the topic of offsets")
    sent = [produce(embedded_cluster, topic, number, [f"{number}-{each}" for each in range(6)]) for number in (0, 1)]
    with member(embedded_cluster, fresh_group, "a", offsets_intent=intent) as one:
        [stream] = one.create_message_streams({topic: 1})[topic]
        got = texts(read(stream, 12))
        with (
            member(embedded_cluster, fresh_group, "b", offsets_intent=intent) as other,
            ThreadPoolExecutor(1) as background,
        ):
            joining = background.submit(other.create_message_streams, {topic: 1})
            while not joining.done():
                got += texts(read_available(stream))
            for number in (0, 1):
                later = [f"{number}-later-{each}" for each in range(3)]
                sent[number] += produce(embedded_cluster, topic, number, later)
            got += texts(read([stream, joining.result()[topic][0]], 6))
        wait_until(lambda: len(one.status().owned) == 2, 30.0, "the first member to own both partitions again")
        sent[1] += produce(embedded_cluster, topic, 1, ["1-last"])
        got += texts(read(stream, 1))
        assert one.status().warnings == ()
    assert sorted(got) == sorted(sent[0] + sent[1])
    assert "in Kafka and" not in caplog.text


def store_in_both(cluster: EmbeddedCluster, group: str, topic: str, *, kafka: int, zookeeper: int) -> None:
    """Store an offset in Kafka and another one in ZooKeeper."""
    manager = wait_until(lambda: manager_of(cluster, group), 30.0, "an offset manager")
    with SimpleConsumer(manager.host, manager.port) as consumer:
        consumer.commit_offsets(group, {TopicPartition(topic, 0): kafka}, version=1)
    cluster.client.create(f"/consumers/{group}/offsets/{topic}/0", str(zookeeper).encode(), makepath=True)


def test_an_offset_manager_that_refuses_delays_a_release_by_one_commit_and_its_retries(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2)
    for number in (0, 1):
        produce(embedded_cluster, topic, number, ["a", "b"])
    settings = attributes("kafka") | {
        "auto_commit_interval_ms": 60_000,
        "offsets_channel_backoff_ms": 50,
        "offsets_commit_max_retries": 2,
    }
    with member(embedded_cluster, fresh_group, "a", **settings) as one:
        [stream] = one.create_message_streams({topic: 1})[topic]
        read(stream, 4)
        assert read_available(stream) == []
        fault = embedded_cluster.faults.add(Fault.error(14, "offset_commit", topic, 1), times=None)
        with member(embedded_cluster, fresh_group, "b", **settings) as other:
            other.create_message_streams({topic: 1})
            wait_until(lambda: len(other.status().owned) == 1, 30.0, "the release")
            assert embedded_cluster.faults.used(fault) == 3
            embedded_cluster.faults.clear()


def hand_over_both_ways(cluster: KafkaCluster, group: str, topic: str, storage: str) -> None:
    """Java reads and stops, ours reads and stops, Java reads again: each continues at the exact next message."""
    cluster.create_topic(topic, 1)
    sent = produce(cluster, topic, 0, [f"first-{number}" for number in range(20)])
    settings = {**STORAGES[storage], "rebalance.backoff.ms": 2000}
    with JavaMember(cluster, group, topics={topic: 1}, consumer_id="java", settings=settings) as java:
        assert [each.value.decode() for each in java.wait_messages(20)] == sent
        java.stop()
    sent = produce(cluster, topic, 0, [f"second-{number}" for number in range(20)])
    with member(cluster, group, "ours", **attributes(storage)) as ours:
        assert texts(read(ours.create_message_streams({topic: 1})[topic], 13)) == sent[:13]
    with JavaMember(cluster, group, topics={topic: 1}, consumer_id="java", settings=settings) as java:
        assert [each.value.decode() for each in java.wait_messages(7)] == sent[13:]
        java.stop()
        assert len(java.messages) == 7


def share(cluster: KafkaCluster, group: str, topic: str, storage: str) -> None:
    """Java reads alone, then beside ours, then alone again: each message is delivered once."""
    cluster.create_topic(topic, 4)
    settings = {**STORAGES[storage], "rebalance.backoff.ms": 2000}

    def send(tag: str) -> list[str]:
        values = {number: [f"{tag}-{number}-{i}" for i in range(5)] for number in range(4)}
        return [each for number in values for each in produce(cluster, topic, number, values[number])]

    with JavaMember(cluster, group, topics={topic: 1}, consumer_id="java", settings=settings) as java:
        sent = send("alone")
        java.wait_messages(20)
        with member(cluster, group, "ours", **attributes(storage)) as ours:
            streams = ours.create_message_streams({topic: 1})[topic]
            wait_until(lambda: len(ours.status().owned) == 2, 30.0, "ours to own two partitions")
            sent += send("together")
            got = texts(read(streams, 10)) + texts(read_available(streams[0]))
            java.wait_messages(30)
        wait_until(lambda: len(owners(cluster, group, topic)) == 4, 30.0, "Java to own all partitions again")
        sent += send("alone again")
        java.wait_messages(50)
        java.stop()
        assert sorted(got + [each.value.decode() for each in java.messages if each.value]) == sorted(sent)


@pytest.mark.parametrize("storage", ["dual", "kafka"])
def test_java_and_ours_share_a_topic(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], storage: str
) -> None:
    share(kafka_0822, fresh_group, fresh_topic(), storage)


@pytest.mark.parametrize("storage", ["dual", "kafka"])
def test_java_and_ours_hand_over_both_ways(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], storage: str
) -> None:
    hand_over_both_ways(kafka_0822, fresh_group, fresh_topic(), storage)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.9.0.1", "1.1.1"])
def test_java_of_later_versions_and_ours_hand_over_both_ways(version: str) -> None:
    with KafkaCluster(version, brokers=1) as cluster:
        for storage in STORAGES:
            hand_over_both_ways(cluster, f"group-{storage}", f"topic-{storage}", storage)
            share(cluster, f"sharing-{storage}", f"shared-{storage}", storage)


@pytest.mark.parametrize("gone", ["killed", "moved"])
def test_the_offset_manager_is_killed_or_moved_under_a_group_that_reads(
    fresh_topic: Callable[[], str], fresh_group: str, gone: str
) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic(topic, 1)
        sent = produce(cluster, topic, 0, [str(number) for number in range(30)])
        settings = attributes("kafka") | {"offsets_channel_backoff_ms": 100, "offsets_commit_max_retries": 50}
        with member(cluster, fresh_group, **settings) as one:
            streams = one.create_message_streams({topic: 1})[topic]
            got = texts(read(streams, 10))
            one.commit_offsets()
            was = cluster.leader(OFFSETS_TOPIC, 0)
            assert was is not None
            if gone == "moved":
                cluster.move_leader(OFFSETS_TOPIC, 0, 1 - was)
            else:
                cluster.kill(was, expire=True)
                cluster.start(was)
            got += texts(read(streams, 10))
            one.commit_offsets()
            assert in_kafka(cluster, fresh_group, topic) == 20
        with member(cluster, fresh_group, **settings) as other:
            got += texts(read(other.create_message_streams({topic: 1})[topic], 10))
        assert got == sent


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "1.1.1"])
def test_a_real_offset_manager_is_killed_under_a_group_that_reads(version: str) -> None:
    settings = {"offsets.topic.replication.factor": 2, "offsets.topic.num.partitions": 4}
    with KafkaCluster(version, brokers=2, settings=settings) as cluster:
        cluster.create_topic("t", 1, 2)
        sent = produce(cluster, "t", 0, [str(number) for number in range(30)])
        patient = attributes("kafka") | {"offsets_channel_backoff_ms": 200, "offsets_commit_max_retries": 100}
        with member(cluster, "g", zookeeper_session_timeout_ms=30_000, **patient) as one:
            streams = one.create_message_streams({"t": 1})["t"]
            got = texts(read(streams, 10))
            one.commit_offsets()
            manager = wait_until(lambda: manager_of(cluster, "g"), 30.0, "an offset manager")
            cluster.kill(manager.id, expire=True)
            got += texts(read(streams, 10))
            one.commit_offsets()
            cluster.start(manager.id)
        with member(cluster, "g", **patient) as other:
            got += texts(read(other.create_message_streams({"t": 1})["t"], 10))
        assert got == sent


@pytest.mark.parametrize("storage", ["kafka", "dual"])
def test_a_topic_that_is_created_anew_is_read_from_its_start_by_whoever_owns_its_partitions_then(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], storage: str
) -> None:
    """The broker keeps the offsets of the deleted topic. With more partitions, some have another owner than before."""
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 2)
    produce_each(kafka_0822, topic, 2, 5, tag="old")
    with (
        member(kafka_0822, fresh_group, "a", auto_offset_reset="largest", **attributes(storage)) as one,
        member(kafka_0822, fresh_group, "b", auto_offset_reset="largest", **attributes(storage)) as other,
    ):
        streams = one.create_message_streams({topic: 1})[topic] + other.create_message_streams({topic: 1})[topic]
        wait_owners(kafka_0822, fresh_group, topic, {0: f"{fresh_group}_a-0", 1: f"{fresh_group}_b-0"})
        produce_each(kafka_0822, topic, 2, 5, tag="more")
        read(streams, 10)
        assert [read_available(stream) for stream in streams] == [[], []]  # now the last messages are done
        wait_until(lambda: both_stores.in_kafka(kafka_0822, fresh_group, topic) == {0: 10, 1: 10}, 30.0, "the commits")
        kafka_0822.delete_topic(topic)
        kafka_0822.create_topic(topic, 4)
        sent = produce_each(kafka_0822, topic, 4, 20, tag="new")
        moved = {number: f"{fresh_group}_{'aabb'[number]}-0" for number in range(4)}
        wait_owners(kafka_0822, fresh_group, topic, moved)
        assert multiset(read(streams, 80)) == sent


@pytest.mark.parametrize(("data", "fails"), [(b"-1", False), (b"-77", False), (b"abc", True), (b" 2", True)])
def test_verify_says_whether_java_members_fail_at_an_offset_that_is_not_valid(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], data: bytes, fails: bool
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 1)
    produce(kafka_0822, topic, 0, ["a", "b", "c"])
    kafka_0822.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0", data, makepath=True)
    with Admin(kafka_0822.zookeeper_connect) as admin:
        [finding] = admin.verify(fresh_group, least_members=0, patience_s=0).findings
    assert ("Java members fail their rebalance because of it" in finding.remedy) is fails
    quick = {"rebalance.max.retries": "1", "rebalance.backoff.ms": "200", "auto.offset.reset": "smallest",
             "auto.commit.interval.ms": "200"}  # fmt: skip

    def is_read() -> bool:
        return kafka_0822.client.get(f"/consumers/{fresh_group}/offsets/{topic}/0")[0] == b"3"

    java = JavaMember(kafka_0822, fresh_group, topics={topic: 1}, consumer_id="java", settings=quick)
    java.launch()
    try:
        if fails:
            wait_until(lambda: "can't rebalance after 1 retries" in java.process.tail(40), 30.0, "it to give up")
        else:
            wait_until(is_read, 30.0, "its commit")
    finally:
        java.kill()
