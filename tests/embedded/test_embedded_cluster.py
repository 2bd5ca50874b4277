"""An embedded cluster in a real ZooKeeper: the nodes of a Java 0.8.2 cluster, and leaders that follow their brokers."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, message_set, offsets_and_values
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from simpleconsumer import SimpleConsumer, TopicPartition
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.embedded.registries.registry import MemoryRegistry, RegistryUnavailable
from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka import topics as kafka_topics
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer, end_session

PATIENCE_S = 40.0
QUICK_SESSION = {"zookeeper.session.timeout.ms": 1000}


def fresh_chroot() -> str:
    return f"/embedded-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, zookeeper=zookeeper, chroot=fresh_chroot(), settings=QUICK_SESSION) as running:
        yield running


def node(cluster: EmbeddedCluster | KafkaCluster, path: str) -> Any:
    return json.loads(cluster.client.get(path)[0])


def state(cluster: EmbeddedCluster, topic: str, partition: int) -> Any:
    return node(cluster, f"/brokers/topics/{topic}/partitions/{partition}/state")


def tree(client: KazooClient, path: str) -> Iterator[str]:
    """All paths below one."""
    for name in sorted(client.get_children(path)):
        child = f"{path.rstrip('/')}/{name}"
        yield child
        yield from tree(client, child)


def masked(data: bytes) -> str:
    """A payload without its moments, ports and counters."""
    text = re.sub(r'("timestamp":")\d+', r"\1N", data.decode())
    return re.sub(r'("(?:port|brokerid|controller_epoch|leader_epoch)":)\d+', r"\1N", text)


class TestNodes:
    def test_they_are_those_of_a_java_cluster_payloads_included(
        self, kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], cluster: EmbeddedCluster
    ) -> None:
        topic = fresh_topic()
        kafka_0822.create_topic(topic, 2, config={"retention.ms": 3_600_000})
        cluster.create_topic(topic, 2, config={"retention.ms": 3_600_000})
        paths = ["/brokers/ids/0", "/brokers/ids/1", f"/config/topics/{topic}", "/controller"]
        paths += [f"/brokers/topics/{topic}/partitions/{p}/state" for p in (0, 1)]
        for path in paths:
            java, java_stat = kafka_0822.client.get(path)
            ours, our_stat = cluster.client.get(path)
            assert masked(ours) == masked(java), path
            assert bool(our_stat.ephemeralOwner) == bool(java_stat.ephemeralOwner), path
        assert node(cluster, f"/brokers/topics/{topic}") == node(kafka_0822, f"/brokers/topics/{topic}")
        assert list(tree(cluster.client, f"/brokers/topics/{topic}")) == list(
            tree(kafka_0822.client, f"/brokers/topics/{topic}")
        )
        assert re.fullmatch(rb"\d+", cluster.client.get("/controller_epoch")[0])

    def test_an_idle_cluster_makes_the_parents_that_java_makes(
        self, kafka_0822: KafkaCluster, cluster: EmbeddedCluster
    ) -> None:
        for path in ("/consumers", "/brokers/topics", "/config/topics", "/config/changes", "/admin/delete_topics"):
            assert kafka_0822.client.exists(path), path
            assert cluster.client.exists(path), path

    def test_leaders_are_spread_over_the_brokers(self, cluster: EmbeddedCluster) -> None:
        assert cluster.create_topic("t", 4) == {0: 0, 1: 1, 2: 0, 3: 1}
        assert [state(cluster, "t", p)["leader"] for p in range(4)] == [0, 1, 0, 1]

    def test_offsets_committed_through_a_broker_stand_where_consumers_keep_them(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t")
        with SimpleConsumer("127.0.0.1", cluster.port(1)) as consumer:
            consumer.commit_offsets("g", {TopicPartition("t", 0): 7})
            assert cluster.client.get("/consumers/g/offsets/t/0")[0] == b"7"
            cluster.client.set("/consumers/g/offsets/t/0", b"19")
            assert consumer.fetch_offsets("g", [TopicPartition("t", 0)])[TopicPartition("t", 0)].offset == 19


class TestTopics:
    def test_a_topic_made_by_other_means_gets_leaders(self, cluster: EmbeddedCluster) -> None:
        kafka_topics.create(cluster.client, "by-hand", {0: [1], 1: [0]}, {"segment.bytes": 1000})
        wait_until(lambda: cluster.leader("by-hand", 1) is not None, PATIENCE_S, "leaders")
        assert [cluster.leader("by-hand", p) for p in (0, 1)] == [1, 0]
        with Wire(cluster.port(1)) as wire:
            assert wire.produce("by-hand", 0, message_set(b"a")) == (0, 0)
            assert wire.produce("by-hand", 0, message_set(b"x" * 2000))[0] == 18

    def test_partitions_are_added_by_call_and_by_hand(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t", 1)
        assert cluster.add_partitions("t", 3) == {0: 0, 1: 1, 2: 0}
        kafka_topics.grow(cluster.client, "t", {3: [1]})
        wait_until(lambda: cluster.leader("t", 3) == 1, PATIENCE_S, "the fourth partition")
        with pytest.raises(ValueError, match="cannot grow to 3"):
            cluster.add_partitions("t", 3)

    def test_a_deleted_topic_leaves_neither_nodes_nor_files_and_may_come_back_empty(
        self, cluster: EmbeddedCluster
    ) -> None:
        cluster.create_topic("t", 2)
        with Wire(cluster.port(0)) as wire:
            wire.produce("t", 0, message_set(b"a"))
            cluster.delete_topic("t")
            assert wire.fetch("t", 0, 0).error == 3
            assert not cluster.client.exists("/brokers/topics/t")
            assert not cluster.client.exists("/config/topics/t")
            assert cluster.client.get_children("/admin/delete_topics") == []
            assert list(cluster.folder.rglob("t-*")) == []
            cluster.create_topic("t", 1)
            assert wire.fetch("t", 0, 0, wait_ms=0) == (0, 0, b"")

    @pytest.mark.parametrize("has_answer", [False, True])
    def test_what_is_asked_for_while_the_registry_is_away_for_a_moment_is_done_at_the_return(
        self, monkeypatch: pytest.MonkeyPatch, has_answer: bool
    ) -> None:
        """A session that pauses under load does so."""
        with EmbeddedCluster(2, zookeeper=False) as cluster:
            cluster.create_topic("t", assignment={0: [0, 1]})
            looks = itertools.count()

            def is_reachable(registry: MemoryRegistry) -> bool:
                is_back = next(looks) >= 3
                if has_answer and not is_back:
                    raise RegistryUnavailable("scripted")
                return is_back

            monkeypatch.setattr(MemoryRegistry, "reachable", property(is_reachable))
            cluster.move_leader("t", 0, 1)
            assert cluster.leader("t", 0) == 1
            looks = itertools.count()
            cluster.delete_topic("t")
            cluster.create_topic("t", 1)

    def test_kafkas_own_wish_to_delete_is_granted(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t")
        kafka_topics.mark_for_deletion(cluster.client, "t")
        wait_until(lambda: cluster.client.exists("/brokers/topics/t") is None, PATIENCE_S, "the topic to go")
        wait_until(lambda: not cluster.client.get_children("/admin/delete_topics"), PATIENCE_S, "the wish to go")

    def test_names_that_exist_or_may_not_exist_are_refused(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t")
        with pytest.raises(KitError, match="exists already"):
            cluster.create_topic("t")
        for name in ("", "a/b", "..", "x" * 256, "spaß"):
            with pytest.raises(KitError, match="topic name"):
                cluster.create_topic(name)


class TestBrokersComeAndGo:
    def test_a_stopped_broker_leaves_its_partition_without_a_leader_until_it_returns(
        self, cluster: EmbeddedCluster
    ) -> None:
        cluster.create_topic("t", assignment={0: [0], 1: [1]})
        with Wire(cluster.port(1)) as wire:
            wire.produce("t", 1, message_set(b"a"))
        cluster.stop(1)
        assert cluster.client.exists("/brokers/ids/1") is None
        assert (state(cluster, "t", 1)["leader"], state(cluster, "t", 1)["isr"]) == (-1, [1])
        assert state(cluster, "t", 0)["leader"] == 0
        cluster.start(1)
        assert (state(cluster, "t", 1)["leader"], state(cluster, "t", 1)["leader_epoch"]) == (1, 2)
        with Wire(cluster.port(1)) as wire:
            assert offsets_and_values(wire.fetch("t", 1, 0).data) == [(0, b"a")]

    def test_a_killed_broker_is_missed_only_when_its_session_ends(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t", assignment={0: [1]})
        cluster.kill(1)
        assert cluster.client.exists("/brokers/ids/1") is not None
        assert state(cluster, "t", 0)["leader"] == 1
        wait_until(lambda: cluster.client.exists("/brokers/ids/1") is None, PATIENCE_S, "the session to end")
        wait_until(lambda: state(cluster, "t", 0)["leader"] == -1, PATIENCE_S, "the loss to be noticed")

    def test_a_killed_broker_can_be_missed_at_once(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t", assignment={0: [1]})
        cluster.kill(1, expire=True)
        assert cluster.client.exists("/brokers/ids/1") is None
        assert state(cluster, "t", 0)["leader"] == -1

    def test_a_killed_broker_can_return_before_its_old_session_ends(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t", assignment={0: [1]})
        with Wire(cluster.port(1)) as wire:
            wire.produce("t", 0, message_set(b"a"))
        old = cluster.client.exists("/brokers/ids/1").ephemeralOwner
        cluster.kill(1)
        cluster.start(1)
        assert cluster.client.exists("/brokers/ids/1").ephemeralOwner != old
        with Wire(cluster.port(1)) as wire:
            assert offsets_and_values(wire.fetch("t", 0, 0).data) == [(0, b"a")]

    def test_with_two_replicas_the_other_one_takes_over_with_all_messages(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t", assignment={0: [0, 1]})
        with Wire(cluster.port(0)) as wire:
            wire.produce("t", 0, message_set(b"a", b"b"))
        cluster.kill(0, expire=True)
        assert (state(cluster, "t", 0)["leader"], state(cluster, "t", 0)["isr"]) == (1, [1])
        with Wire(cluster.port(1)) as wire:
            assert wire.produce("t", 0, message_set(b"c")) == (0, 2)
        cluster.start(0)
        assert (state(cluster, "t", 0)["leader"], state(cluster, "t", 0)["isr"]) == (1, [0, 1])
        cluster.move_leader("t", 0, 0)
        with Wire(cluster.port(0)) as wire:
            assert offsets_and_values(wire.fetch("t", 0, 0).data) == [(0, b"a"), (1, b"b"), (2, b"c")]

    def test_a_lost_session_is_followed_by_a_new_registration(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t", assignment={0: [1]})
        old = cluster.client.exists("/brokers/ids/1").ephemeralOwner
        end_session(cluster.zookeeper_hosts, old)

        def is_new() -> bool:
            stat = cluster.client.exists("/brokers/ids/1")
            return stat is not None and stat.ephemeralOwner != old

        wait_until(is_new, PATIENCE_S, "a new registration")
        wait_until(lambda: state(cluster, "t", 0)["leader"] == 1, PATIENCE_S, "the leader to be back")

    def test_a_restored_cluster_has_all_its_brokers_and_no_fault(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("t", assignment={0: [1], 1: [0]})
        with Wire(cluster.port(1)) as wire:
            wire.produce("t", 0, message_set(b"a"))
        cluster.faults.add(Fault.error(6), times=None)
        cluster.pause(0)
        cluster.kill(1)
        cluster.restore()
        assert cluster.wait_leaders("t", [0, 1]) == {0: 1, 1: 0}
        for partition, leader, kept in ((0, 1, [(0, b"a")]), (1, 0, [])):
            with Wire(cluster.port(leader)) as wire:
                assert offsets_and_values(wire.fetch("t", partition, 0, wait_ms=0).data) == kept

    def test_another_broker_becomes_controller_and_the_epoch_rises(self, cluster: EmbeddedCluster) -> None:
        before = int(cluster.client.get("/controller_epoch")[0])
        assert node(cluster, "/controller")["brokerid"] == 0
        cluster.stop(0)
        assert node(cluster, "/controller")["brokerid"] == 1
        assert int(cluster.client.get("/controller_epoch")[0]) == before + 1

    def test_a_broker_returns_on_another_port_or_behind_a_proxy(self, cluster: EmbeddedCluster) -> None:
        cluster.stop(1)
        cluster.start(1, port=0)
        assert node(cluster, "/brokers/ids/1")["port"] == cluster.port(1)
        cluster.stop(1)
        cluster.advertise(1, 54321)
        cluster.start(1)
        assert node(cluster, "/brokers/ids/1")["port"] == 54321
        assert cluster.brokers[1].address == "127.0.0.1:54321"
        with pytest.raises(StartFailed, match="cannot listen"):
            cluster.stop(1), cluster.start(1, port=cluster.port(0))

    def test_a_whole_cluster_returns_on_its_folder_and_nodes(self, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
        chroot = fresh_chroot()
        with EmbeddedCluster(2, zookeeper=zookeeper, chroot=chroot, folder=tmp_path) as cluster:
            cluster.create_topic("t", 2, config={"segment.bytes": 1000})
            with Wire(cluster.port(1)) as wire:
                wire.produce("t", 1, message_set(b"a"))
        with EmbeddedCluster(2, zookeeper=zookeeper, chroot=chroot, folder=tmp_path) as cluster:
            assert cluster.wait_leaders("t", [0, 1]) == {0: 0, 1: 1}
            with Wire(cluster.port(1)) as wire:
                assert offsets_and_values(wire.fetch("t", 1, 0).data) == [(0, b"a")]
                assert wire.produce("t", 1, message_set(b"x" * 2000))[0] == 18

    def test_closing_removes_the_ephemeral_nodes(self, zookeeper: ZooKeeperServer) -> None:
        chroot = fresh_chroot()
        with EmbeddedCluster(2, zookeeper=zookeeper, chroot=chroot):
            pass
        client = KazooClient(zookeeper.connect + chroot)
        client.start()
        try:
            assert client.get_children("/brokers/ids") == []
            with pytest.raises(NoNodeError):
                client.get("/controller")
        finally:
            client.stop()
            client.close()

    def test_a_restarted_zookeeper_is_found_again(self) -> None:
        with ZooKeeperServer() as server, EmbeddedCluster(1, zookeeper=server) as cluster:
            cluster.create_topic("t")
            server.process.kill()
            server.start()
            wait_until(lambda: cluster.client.connected, PATIENCE_S, "the connection")
            kafka_topics.create(cluster.client, "later", {0: [0]}, {})
            wait_until(lambda: cluster.leader("later", 0) == 0, PATIENCE_S, "a leader")


def test_without_zookeeper_nothing_is_asked_of_it() -> None:
    with EmbeddedCluster(2, zookeeper=False) as cluster:
        assert cluster.create_topic("t", 2) == {0: 0, 1: 1}
        with pytest.raises(KitError, match="has no ZooKeeper"):
            _ = cluster.client
        with pytest.raises(KitError, match="has no ZooKeeper"):
            _ = cluster.zookeeper_connect
        assert cluster.broker_list.count(",") == 1


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"log\.segment\.byte"):
        EmbeddedCluster(1, zookeeper=False, settings={"log.segment.byte": 1})


class TestWithoutZooKeeperForAWhile:
    def test_brokers_serve_and_end_while_it_is_frozen_and_make_it_good_afterwards(self) -> None:
        with ZooKeeperServer() as server, EmbeddedCluster(2, zookeeper=server) as cluster:
            cluster.create_topic("t", 2)
            server.process.pause()
            with Wire(cluster.port(0)) as wire:
                assert wire.produce("t", 0, message_set(b"a")) == (0, 0)
                assert offsets_and_values(wire.fetch("t", 0, 0).data) == [(0, b"a")]
            server.process.resume()
            server.process.kill()
            wait_until(lambda: not cluster.client.connected, PATIENCE_S, "the loss to be noticed")
            cluster.kill(1)
            server.start()
            wait_until(lambda: cluster.client.connected, PATIENCE_S, "the connection")
            wait_until(lambda: cluster.leader("t", 1) is None, PATIENCE_S, "the loss to be registered")
            cluster.start(1)
            assert cluster.leader("t", 1) == 1

    def test_a_broker_that_cannot_be_registered_does_not_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("zkconsumer.testing.embedded.registries.zookeeper.ANSWER_TIMEOUT_S", 1.0)
        with ZooKeeperServer() as server, EmbeddedCluster(2, zookeeper=server) as cluster:
            cluster.stop(1)
            server.kill()
            wait_until(lambda: not cluster.client.connected, PATIENCE_S, "the loss to be noticed")
            with pytest.raises(RegistryUnavailable, match="ZooKeeper did not answer"):
                cluster.start(1)
            assert not cluster.brokers[1].running
            server.start()
            wait_until(lambda: cluster.client.connected, PATIENCE_S, "the connection")
            cluster.start(1)
            assert cluster.client.exists("/brokers/ids/1")


class TestJavaBrokerOnTheSameFiles:
    """The folder of an embedded broker is one of Kafka's, and the other way round."""

    VALUES = tuple(b"value-%05d" % number for number in range(3000))

    def fill(self, port: int) -> None:
        with SimpleConsumer("127.0.0.1", port) as producer:
            for start in range(0, len(self.VALUES), 100):
                codec = "gzip" if start % 300 == 0 else "none"
                producer.produce("t", 0, list(self.VALUES[start : start + 100]), codec=codec)

    def check(self, port: int) -> None:
        """Everything is there, found from any offset, and the log goes on at its end."""
        with SimpleConsumer("127.0.0.1", port) as consumer:
            found: list[bytes | None] = []
            while len(found) < len(self.VALUES):
                found += [message.value for message in consumer.fetch("t", 0, len(found))]
            assert tuple(found) == self.VALUES
            for offset in range(0, len(self.VALUES), 97):
                assert next(iter(consumer.fetch("t", 0, offset))).value == self.VALUES[offset]
            assert consumer.produce("t", 0, [b"behind"]) == len(self.VALUES)

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_java_goes_on_where_we_ended(self, zookeeper: ZooKeeperServer, tmp_path: Path, end: str) -> None:
        chroot = fresh_chroot()
        settings = {"log.segment.bytes": 20_000, "log.index.interval.bytes": 200}
        with EmbeddedCluster(1, zookeeper=zookeeper, chroot=chroot, folder=tmp_path, settings=settings) as ours:
            ours.create_topic("t")
            self.fill(ours.port(0))
            getattr(ours, end)(0)
        java_settings = {"log.dirs": tmp_path / "broker-0"}
        with KafkaCluster("0.8.2.2", 1, zookeeper=zookeeper, chroot=chroot, settings=java_settings) as java:
            java.wait_leaders("t", [0])
            self.check(java.port(0))

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_we_go_on_where_java_ended(self, zookeeper: ZooKeeperServer, tmp_path: Path, end: str) -> None:
        chroot = fresh_chroot()
        settings = {"log.dirs": tmp_path / "broker-0", "log.segment.bytes": 20_000, "log.index.interval.bytes": 200}
        with KafkaCluster("0.8.2.2", 1, zookeeper=zookeeper, chroot=chroot, settings=settings) as java:
            java.create_topic("t")
            self.fill(java.port(0))
            getattr(java, end)(0)
        with EmbeddedCluster(1, zookeeper=zookeeper, chroot=chroot, folder=tmp_path) as ours:
            ours.wait_leaders("t", [0])
            self.check(ours.port(0))
