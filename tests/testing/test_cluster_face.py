"""A program written for `Cluster` runs on real and on embedded brokers; ports and folders that are asked for."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from raw_requests import fetch, produce

from zkconsumer.testing.cluster import Cluster, broker_ids, check_port
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.errors import KitError, NotSupported, StartFailed
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.cluster import KafkaCluster
from zkconsumer.testing.kafka.known_versions import nearest_version
from zkconsumer.testing.loads import load
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.zookeeper import ZooKeeperServer

KINDS: list[Callable[..., Cluster]] = [
    pytest.param(lambda **options: KafkaCluster("0.8.2.2", 2, **options), id="real"),  # type: ignore[list-item]
    pytest.param(lambda **options: EmbeddedCluster(2, **options), id="embedded"),  # type: ignore[list-item]
]
Made = Callable[..., Cluster]


@pytest.fixture
def chroot() -> str:
    return f"/face-{uuid.uuid4().hex[:10]}"


def a_whole_life(cluster: Cluster) -> None:
    """Topics made, grown, moved, filled, deleted; brokers stopped, killed, held back."""
    assert cluster.create_topic("t", 2) == {0: 0, 1: 1}
    assert cluster.add_partitions("t", 3) == {0: 0, 1: 1, 2: 0}
    assert cluster.partitions("t") == [0, 1, 2]
    assert [event.offset for event in load(cluster, "t", 2)] == [0, 1] * 3
    cluster.move_leader("t", 0, 1)
    assert cluster.leader("t", 0) == 1
    assert fetch(cluster.port(1), "t", 0)[1].count(b"0:1") == 1
    cluster.kill(1, expire=True)
    assert cluster.broker_list == cluster.brokers[0].address == f"127.0.0.1:{cluster.port(0)}"
    assert cluster.client.exists("/brokers/ids/1") is None
    cluster.start(1)
    assert cluster.wait_leaders("t", [0, 1, 2]) == {0: 1, 1: 1, 2: 0}
    cluster.pause(0)
    assert not kafka_probe.answers(cluster.port(0), timeout_s=0.3)
    cluster.resume(0)
    assert kafka_probe.answers(cluster.port(0))
    cluster.stop(0)
    assert not cluster.brokers[0].running
    cluster.start(0, port=free_port())
    cluster.wait_leaders("t", [0, 1, 2])
    cluster.delete_topic("t")
    with pytest.raises(KitError, match="topic t does not exist"):
        load(cluster, "t", 1)


@pytest.mark.real
@pytest.mark.parametrize("made", KINDS)
def test_one_program_runs_on_both(made: Made, zookeeper: ZooKeeperServer, chroot: str) -> None:
    with made(zookeeper=zookeeper, chroot=chroot) as cluster:
        assert cluster.version == "0.8.2.2"
        assert cluster.zookeeper_connect == cluster.zookeeper_hosts + chroot == zookeeper.connect + chroot
        a_whole_life(cluster)
    assert zookeeper.running
    assert not cluster.folder.exists()


@pytest.mark.real
@pytest.mark.parametrize("made", KINDS)
def test_a_proxy_can_be_put_in_front_before_the_start(made: Made, zookeeper: ZooKeeperServer, chroot: str) -> None:
    cluster = made(zookeeper=zookeeper, chroot=chroot)
    with TcpProxy(("127.0.0.1", cluster.port(0))) as proxy:
        cluster.advertise(0, proxy.port)
        with cluster:
            assert cluster.broker_list == f"{proxy.address},127.0.0.1:{cluster.port(1)}"
            cluster.create_topic("t")
            assert produce(proxy.port, "t", 0, b"through") == 0


def consecutive_free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                check_port(port, "a test")
        except StartFailed:
            continue
        return first


@pytest.mark.real
@pytest.mark.parametrize("made", KINDS)
def test_ports_can_be_chosen(made: Made) -> None:
    first = consecutive_free_ports(3)
    with made(zookeeper_port=first, port=first + 1) as cluster:
        assert cluster.zookeeper_connect == f"127.0.0.1:{first}"
        assert cluster.broker_list == f"127.0.0.1:{first + 1},127.0.0.1:{first + 2}"
        with pytest.raises(StartFailed, match=rf"^port {first + 2} of 127\.0\.0\.1, wanted for broker 0, is taken; "):
            made(port=first + 2, zookeeper=cluster.zookeeper, chroot="/other").__enter__()
        assert kafka_probe.answers(first + 1)


@pytest.mark.real
@pytest.mark.parametrize("made", KINDS)
@pytest.mark.parametrize(("option", "user"), [("port", "broker 0"), ("zookeeper_port", "ZooKeeper")])
def test_a_chosen_port_that_is_taken_is_named_before_anything_starts(made: Made, option: str, user: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        cluster = made(**{option: port})
        with pytest.raises(StartFailed, match=rf"^port {port} of 127\.0\.0\.1, wanted for {user}, is taken; "), cluster:
            pass
        assert not any(broker.running for broker in cluster.brokers.values())
        assert not cluster.zookeeper.running


@pytest.mark.real
def test_a_port_that_nobody_asked_for_is_exchanged_when_it_is_taken(zookeeper: ZooKeeperServer, chroot: str) -> None:
    cluster = EmbeddedCluster(1, zookeeper=zookeeper, chroot=chroot)
    with socket.create_server(("127.0.0.1", cluster.port(0))) as other, cluster:
        assert cluster.port(0) != other.getsockname()[1]
        assert cluster.create_topic("t") == {0: 0}


@pytest.mark.parametrize("made", KINDS)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chroot": "kafka"}, "chroot 'kafka': must be a path that starts with /"),
        ({"chroot": "/"}, "chroot '/': must be a path"),
        ({"chroot": "/a//b"}, "chroot '/a//b': must be a path"),
        ({"chroot": "/a/"}, "does not end with it"),
        ({"chroot": "/a/../b"}, "must be a path"),
        ({"port": 65535}, "port 65536 for broker 1: must be from 1 to 65535"),
        ({"port": 0}, "port 0 for broker 0"),
        ({"port": 2180, "zookeeper_port": 2181}, "port 2181 is wanted for ZooKeeper and for broker 1"),
        ({"zookeeper_port": 2181, "zookeeper": "127.0.0.1:2181"}, "belongs to the cluster, but one was given"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_asked_for(made: Made, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as refused:
        made(**options)
    assert said in str(refused.value)


@pytest.mark.parametrize("ids", [0, [], [1, 1], [-1]])
def test_ids_that_cannot_be_are_refused(ids: int | list[int]) -> None:
    with pytest.raises(ValueError, match="broker"):
        broker_ids(ids)


def test_brokers_may_have_any_ids() -> None:
    with EmbeddedCluster([7, 3], zookeeper=False, port=consecutive_free_ports(2)) as cluster:
        assert cluster.create_topic("t", 2) == {0: 3, 1: 7}
        assert cluster.port(3) == cluster.port(7) + 1


@pytest.fixture
def without_zookeeper() -> Iterator[Cluster]:
    with EmbeddedCluster(1, zookeeper=False) as running:
        yield running


def test_topics_are_filled_without_zookeeper_too(without_zookeeper: Cluster) -> None:
    without_zookeeper.create_topic("t", 2)
    assert len(load(without_zookeeper, "t", 5)) == 10


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.8.9", "0.8.2.2"), ("0.8.2.1", "0.8.2.2"), ("0.9", "0.9.0.1"), ("1.0.0", "1.1.1"), ("2.4.1", "2.8.2"),
        ("4.0.0", "4.0.2"), ("4.2.0", "4.3.1"), ("0.11.0.1", "0.11.0.3"), ("latest", None), ("", None),
    ],
)  # fmt: skip
def test_an_unknown_version_is_answered_with_the_nearest_known_one(version: str, nearest: str | None) -> None:
    assert nearest_version(version) == nearest
    with pytest.raises(NotSupported, match=f"the nearest is {nearest}$" if nearest else r"are 0\.7\.2, .*4\.3\.1$"):
        KafkaCluster(version)


class TestFolder:
    """A folder that is given is kept, and goes to one cluster at a time."""

    @pytest.mark.real
    def test_a_cluster_goes_on_where_the_last_one_on_its_folder_ended(self, tmp_path: Path) -> None:
        with EmbeddedCluster(2, folder=tmp_path / "dätä") as cluster:
            cluster.create_topic("t", 2, config={"segment.bytes": 1000})
            load(cluster, "t", 3)
        with EmbeddedCluster(2, folder=tmp_path / "dätä") as cluster:
            assert cluster.wait_leaders("t", [0, 1]) == {0: 0, 1: 1}
            assert [event.offset for event in load(cluster, "t", 1)] == [3, 3]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["dätä"]

    def test_two_clusters_do_not_share_one(self, tmp_path: Path) -> None:
        first, second = EmbeddedCluster(1, folder=tmp_path, zookeeper=False), EmbeddedCluster(1, folder=tmp_path)
        with first, closing(second) as other:
            with pytest.raises(KitError, match=rf"the data folder {tmp_path} belongs to another running broker"):
                other.start_all()
            assert not other.zookeeper.running
        with EmbeddedCluster(1, folder=tmp_path, zookeeper=False):
            pass

    def test_one_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a folder")
        with pytest.raises(KitError, match=r"the data folder .*/file/data cannot be written: Not a directory"):
            EmbeddedCluster(1, folder=tmp_path / "file" / "data").__enter__()
