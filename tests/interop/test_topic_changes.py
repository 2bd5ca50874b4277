"""`Admin.create_topic`, `grow_topic` and `delete_topic` on real brokers; Kafka's own tools agree with them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from zkconsumer.admin import Admin, NotFound, TopicRefused, TopicUnfinished
from zkconsumer.testing import load
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

TIMEOUT_S = 60.0
TOOLS = {"0.8.0": "kafka.admin.ListTopicCommand"}
"""The Java tool that describes a topic, where it is not kafka.admin.TopicCommand."""

Described = dict[int, tuple[int, tuple[int, ...]]]
"""Partition -> leader and replicas."""


def described_by_kafka(cluster: KafkaCluster, topic: str) -> tuple[Described, str]:
    """What Kafka's own tool says of a topic, and its line about settings."""
    if cluster.version.startswith("3."):  # its tool asks brokers, as librdkafka does
        address = f"127.0.0.1:{cluster.brokers[0].port}"
        metadata = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=TIMEOUT_S)
        found = metadata.topics[topic].partitions
        return {number: (each.leader, tuple(each.replicas)) for number, each in found.items()}, ""
    tool = TOOLS.get(cluster.version, "kafka.admin.TopicCommand")
    describe = [] if cluster.version in TOOLS else ["--describe"]
    call = find_java().command(
        cluster._jars(), tool, [*describe, "--zookeeper", cluster.zookeeper_connect, "--topic", topic]
    )
    done = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    pattern = r"[Pp]artition: (\d+)\s+[Ll]eader: (\d+)\s+[Rr]eplicas: ([\d,]+)"
    rows = {
        int(number): (int(leader), tuple(map(int, replicas.split(","))))
        for number, leader, replicas in re.findall(pattern, done.stdout)
    }
    assert rows, done.stdout + done.stderr
    return rows, next((line for line in done.stdout.splitlines() if "Configs:" in line), "")


def replicas_of(described: Described) -> dict[int, tuple[int, ...]]:
    return {number: replicas for number, (_, replicas) in described.items()}


@contextmanager
def administration(cluster: KafkaCluster) -> Iterator[Admin]:
    with Admin(cluster.zookeeper_connect) as admin:
        yield admin


def check_a_whole_life(cluster: KafkaCluster, topic: str) -> None:
    """A topic is created, described by Kafka's tool, filled, grown, described again and deleted."""
    has_settings = cluster.version != "0.8.0"
    config = {"retention.ms": 3_600_000} if has_settings else {}
    with administration(cluster) as admin:
        said: list[str] = []
        created = admin.create_topic(topic, 3, 2, config=config, on_progress=said.append)
        assert (created.written, created.done) == (True, True)
        assert said[-1] == "3 of 3 partitions have a leader"
        cluster.wait_leaders(topic, [0, 1, 2])  # the leaders stand in ZooKeeper a moment before the brokers know them
        described, settings = described_by_kafka(cluster, topic)
        assert described == {each.partition: (each.leader, each.replicas) for each in created.partitions}
        if has_settings and settings:
            assert "retention.ms=3600000" in settings
        load(cluster, topic, 5, partitions=[0, 1, 2])
        grown = admin.grow_topic(topic, 5)
        assert [each.partition for each in grown.partitions] == [3, 4]
        assert "messages with keys go to other partitions" in grown.warnings[0]
        cluster.wait_leaders(topic, [3, 4])
        after, _ = described_by_kafka(cluster, topic)
        assert replicas_of(after) == {**replicas_of(described), **{a.partition: a.replicas for a in grown.partitions}}
        load(cluster, topic, 5, partitions=[3, 4])

        def ends() -> dict[int, int | None]:
            return {row.partition: row.latest for row in admin.topics(topic).partitions}

        # A leader reports a message once its followers have it.
        wait_until(lambda: ends() == dict.fromkeys(range(5), 5), TIMEOUT_S, "all messages", state=ends)
        if has_settings:
            deleted = admin.delete_topic(topic)
            assert (deleted.written, deleted.done) == (True, True)
            with pytest.raises(NotFound):
                admin.topics(topic)
        else:
            with pytest.raises(TopicRefused, match=r"brokers of Kafka 0\.8\.0 cannot delete topics"):
                admin.delete_topic(topic)


def test_a_whole_life_on_0_8_2(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    check_a_whole_life(kafka_0822, fresh_topic())


def test_a_whole_life_on_1_1(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str]
) -> None:
    check_a_whole_life(kafka_clusters("1.1.1", 2), fresh_topic())


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1", "0.9.0.1", "0.10.2.2", "2.8.2", "3.9.2"])
def test_a_whole_life_on_every_other_version(version: str, fresh_topic: Callable[[], str]) -> None:
    settings = {"delete.topic.enable": True} if version != "0.8.0" else {}
    with KafkaCluster(version, 2, settings=settings) as cluster:
        check_a_whole_life(cluster, fresh_topic())


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.8.2", "3.9.2"])
def test_the_id_of_a_topic_survives_growth(version: str, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    path = f"/brokers/topics/{topic}"
    with KafkaCluster(version, 1) as cluster, administration(cluster) as admin:
        admin.create_topic(topic)
        wait_until(lambda: b"topic_id" in cluster.client.get(path)[0], TIMEOUT_S, "the controller to give it an id")
        before = json.loads(cluster.client.get(path)[0])
        admin.grow_topic(topic, 3)
        after = json.loads(cluster.client.get(path)[0])
        assert after["topic_id"] == before["topic_id"]
        assert sorted(after["partitions"]) == ["0", "1", "2"]


def test_refusals_write_nothing(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with administration(kafka_0822) as admin:
        admin.create_topic(topic, 2, assignment={0: [1], 1: [0]})
        admin.create_topic(f"{topic}.a")
        listed = sorted(kafka_0822.client.get_children("/brokers/topics"))
        for said, call in {
            "exists already": lambda: admin.create_topic(topic),
            "collide, because brokers write `_`": lambda: admin.create_topic(f"{topic}_a"),
            "3 replicas of each partition need": lambda: admin.create_topic(f"{topic}x", 1, 3),
            "is an internal topic and cannot be created": lambda: admin.create_topic("__consumer_offsets"),
            "is an internal topic and cannot be grown": lambda: admin.grow_topic("__consumer_offsets", 60),
            "is an internal topic and cannot be deleted": lambda: admin.delete_topic("__transaction_state"),
            "has 250 characters": lambda: admin.create_topic("t" * 250),
            "partition 0 names broker 7": lambda: admin.create_topic(f"{topic}x", assignment={0: [7]}),
            "so it cannot grow to 2; partitions can be added, but never removed": lambda: admin.grow_topic(topic, 2),
            "so it cannot grow to 1": lambda: admin.grow_topic(topic, 1),
            "moves partition 0, which exists with the replicas 1": lambda: admin.grow_topic(
                topic, 3, assignment={0: [0], 1: [0], 2: [1]}
            ),
            "has 2 partitions, but 3 are requested": lambda: admin.grow_topic(topic, 3, assignment={0: [1], 1: [0]}),
            "would have 2,888,": lambda: admin.create_topic(f"{topic}x", 200_000, 2),
        }.items():
            with pytest.raises(TopicRefused, match=re.escape(said)):
                call()
        with pytest.raises(NotFound, match=f"did you mean '{topic}'"):
            admin.grow_topic(f"{topic}s", 3)
        assert sorted(kafka_0822.client.get_children("/brokers/topics")) == listed


def test_dry_runs_write_nothing_and_name_everything(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with administration(kafka_0822) as admin:
        planned = admin.create_topic(topic, 4, 2, config={"retention.ms": 1}, dry_run=True)
        assert (len(planned.partitions), planned.config, planned.written) == (4, {"retention.ms": "1"}, False)
        assert kafka_0822.client.exists(f"/brokers/topics/{topic}") is None
        assert kafka_0822.client.exists(f"/config/topics/{topic}") is None
        admin.create_topic(topic)
        assert not admin.grow_topic(topic, 2, dry_run=True).written
        assert not admin.delete_topic(topic, dry_run=True).written
        assert json.loads(kafka_0822.client.get(f"/brokers/topics/{topic}")[0])["partitions"].keys() == {"0"}
        assert kafka_0822.client.exists(f"/admin/delete_topics/{topic}") is None


def test_a_group_that_reads_a_topic_is_named_before_it_is_deleted(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    with administration(kafka_0822) as admin:
        admin.create_topic(topic)
        kafka_0822.client.create(f"/consumers/{fresh_group}/owners/{topic}/0", b"a", ephemeral=True, makepath=True)
        [said] = admin.delete_topic(topic, dry_run=True).warnings
        assert said.startswith(f"1 group reads it now ({fresh_group})")


@pytest.mark.real
def test_a_topic_with_a_dead_replica_stays_in_deletion_until_its_broker_is_back() -> None:
    with KafkaCluster("0.8.2.2", 2) as cluster, administration(cluster) as admin:
        admin.create_topic("kept", 2, 2)
        cluster.wait_leaders("kept", [0, 1])
        cluster.kill(1, expire=True)
        wait_until(lambda: cluster.client.get_children("/brokers/ids") == ["0"], TIMEOUT_S, "broker 1 to be gone")
        with pytest.raises(TopicUnfinished, match="broker 1 with replicas of it is not registered") as refused:
            admin.delete_topic("kept", wait_s=3)
        assert "stays, and takes effect when nothing prevents the deletion" in refused.value.remedy
        with pytest.raises(TopicRefused, match="is marked for deletion"):
            admin.grow_topic("kept", 3)
        # The broker starts when the deletion has been found marked: a controller is quick then.
        again = admin.delete_topic("kept", wait_s=TIMEOUT_S, on_progress=lambda _: cluster.start(1))
        assert again.done
        assert again.warnings[0] == "topic 'kept' was already marked for deletion"


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "said"),
    [
        pytest.param("0.8.2.2", "if delete.topic.enable is true on the controller, the deletion has started"),
        pytest.param("3.9.2", "cannot be cancelled", marks=pytest.mark.slow),
    ],
)
def test_a_deletion_that_the_controller_has_started_cannot_be_withdrawn(version: str, said: str) -> None:
    with KafkaCluster(version, 2) as cluster, administration(cluster) as admin:
        admin.create_topic("gone", 2, 2)
        cluster.wait_leaders("gone", [0, 1])
        cluster.kill(1, expire=True)
        wait_until(lambda: cluster.client.get_children("/brokers/ids") == ["0"], TIMEOUT_S, "broker 1 to be gone")
        with pytest.raises(TopicUnfinished) as refused:
            admin.delete_topic("gone", wait_s=4)
        assert said in refused.value.remedy
        cluster.client.delete("/admin/delete_topics/gone")
        cluster.start(1)
        wait_until(lambda: "gone" not in cluster.client.get_children("/brokers/topics"), TIMEOUT_S, "it to be deleted")


@pytest.mark.real
def test_a_mark_that_the_controller_does_not_act_on_is_withdrawn_by_deleting_it() -> None:
    settings = {"delete.topic.enable": False}
    with KafkaCluster("0.8.2.2", 1, settings=settings) as cluster, administration(cluster) as admin:
        admin.create_topic("kept")
        with pytest.raises(TopicUnfinished) as refused:
            admin.delete_topic("kept", wait_s=2)
        assert "if it is false there, delete that node to cancel the deletion" in refused.value.remedy
        cluster.client.delete("/admin/delete_topics/kept")
        assert admin.grow_topic("kept", 2).done
        assert [row.leader for row in admin.topics("kept").partitions] == [0, 0]


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "error", "said"),
    [
        pytest.param("0.8.2.2", TopicUnfinished, "delete.topic.enable is probably false on the controller, broker 0"),
        pytest.param(
            "1.1.1",
            TopicRefused,
            "set delete.topic.enable=true on the brokers, and restart them",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_brokers_that_do_not_delete_are_named(version: str, error: type[Exception], said: str) -> None:
    with KafkaCluster(version, 1, settings={"delete.topic.enable": False}) as cluster, administration(cluster) as admin:
        admin.create_topic("kept")
        with pytest.raises(error, match=re.escape(said)):
            admin.delete_topic("kept", wait_s=4)
        assert [row.leader for row in admin.topics("kept").partitions] == [0]


def fake_cluster(server: ZooKeeperServer, chroot: str, racks: dict[int, str | None]) -> KazooClient:
    """The nodes of a cluster whose brokers do nothing."""
    client = KazooClient(server.connect)
    client.start()
    for folder in ("brokers/topics", "config/topics", "config/changes", "admin/delete_topics", "consumers"):
        client.ensure_path(f"{chroot}/{folder}")
    for broker, rack in racks.items():
        fields = {"version": 4, "host": "127.0.0.1", "port": 1, "endpoints": ["SSL://127.0.0.1:1"], "rack": rack}
        client.create(f"{chroot}/brokers/ids/{broker}", json.dumps(fields).encode(), makepath=True)
    return client


def test_racks_count_and_a_controller_that_is_missing_is_named(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    chroot = f"/{fresh_group}"
    client = fake_cluster(zookeeper, chroot, {0: "a", 1: "a", 2: "b"})
    try:
        with Admin(zookeeper.connect + chroot) as admin:
            spread = admin.create_topic("t", 6, 2, dry_run=True)
            assert all(2 in each.replicas for each in spread.partitions)
            with pytest.raises(TopicUnfinished, match=r"2 of 2 partitions \(0, 1\) have no leader after 0\.5 s: no"):
                admin.create_topic("t", 2, wait_s=0.5)
            assert not admin.create_topic("later", wait_s=0).done
            client.set(f"{chroot}/brokers/ids/2", b'{"version":4,"host":"h","port":1}')
            with pytest.raises(TopicRefused, match=r"1 broker \(2\) do not, so replicas cannot be spread"):
                admin.create_topic("u", 6, 2)
            assert admin.create_topic("u", 6, 2, rack_aware=False, dry_run=True).partitions
            client.create(f"{chroot}/controller", b'{"version":2,"brokerid":0,"kraftControllerEpoch":3}')
            with pytest.raises(TopicRefused, match="migrating from ZooKeeper to KRaft"):
                admin.create_topic("u")
    finally:
        client.delete(chroot, recursive=True)
        client.stop()
        client.close()


def test_moving_partitions_keep_a_topic_from_growing(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    chroot = f"/{fresh_group}"
    client = fake_cluster(zookeeper, chroot, {0: None, 1: None})
    try:
        with Admin(zookeeper.connect + chroot) as admin:
            admin.create_topic("t", 2, wait_s=0)
            entry = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}
            client.create(f"{chroot}/admin/reassign_partitions", json.dumps(entry).encode())
            with pytest.raises(TopicRefused, match="are being moved to other brokers"):
                admin.grow_topic("t", 3)
            client.delete(f"{chroot}/admin/reassign_partitions")
            client.set(
                f"{chroot}/brokers/topics/t",
                b'{"version":3,"partitions":{"0":[0],"1":[1]},"adding_replicas":{"0":[1]},"removing_replicas":{}}',
            )
            with pytest.raises(TopicRefused, match="are being moved to other brokers"):
                admin.grow_topic("t", 3)
            client.set(f"{chroot}/brokers/topics/t", b"nonsense")
            with pytest.raises(TopicRefused, match=r"cannot be grown: .*/brokers/topics/t"):
                admin.grow_topic("t", 3)
            assert admin.delete_topic("t", wait_s=0).partitions == ()
    finally:
        client.delete(chroot, recursive=True)
        client.stop()
        client.close()
