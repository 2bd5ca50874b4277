"""Members of confluent-kafka, kafka-python and Kafka's own client form groups on embedded brokers.

Each is in a process of its own; Kafka's client is that of the version of the brokers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from group_peers import PATIENCE_S, SETTINGS, Peer, wait_shared

from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.java import find_java
from zkconsumer.testing.waiting import wait_until

PARTITIONS = 4
SELDOM = ("0.10", "0.11", "1.1", "4.3")
GENERATIONS = [
    "0.9", "2.8", "3.9", *(pytest.param(each, marks=pytest.mark.slow) for each in SELDOM)
]  # fmt: skip


@pytest.fixture(scope="module", params=GENERATIONS)
def clusters(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster]]:
    with EmbeddedCluster(2, generation=request.param, zookeeper=False, settings=SETTINGS) as running:
        yield request.param, running


@pytest.fixture
def cluster(clusters: tuple[str, EmbeddedCluster]) -> Iterator[EmbeddedCluster]:
    yield clusters[1]
    clusters[1].restore()


@pytest.fixture(params=["confluent", "kafka", pytest.param("java", marks=[pytest.mark.real, pytest.mark.slow])])
def library(request: pytest.FixtureRequest) -> str:
    if request.param != "java":
        pytest.importorskip({"confluent": "confluent_kafka", "kafka": "kafka"}[request.param])
    elif not find_java().runs_sources:
        pytest.skip("only a JDK runs a source file")
    return str(request.param)


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    name = f"shared-{uuid.uuid4().hex[:10]}"
    cluster.create_topic(name, PARTITIONS)
    return name


def write(cluster: EmbeddedCluster, topic: str, word: str) -> set[str]:
    """Two messages for each partition; returns them."""
    texts = {f"{word}-{partition}-{number}" for partition in range(PARTITIONS) for number in range(2)}
    for partition in range(PARTITIONS):
        mine = sorted(each for each in texts if each.split("-")[1] == str(partition))
        cluster.produce(topic, mine, partition=partition)
    return texts


def wait_read(peers: list[Peer], texts: set[str]) -> None:
    def have() -> set[str]:
        return {text for peer in peers for text in peer.texts}

    wait_until(lambda: have() >= texts, PATIENCE_S, f"{sorted(texts)} to be read",
               state=lambda: (sorted(texts - have()), [peer.state() for peer in peers]))  # fmt: skip


def wait_committed(peers: list[Peer], count: int) -> None:
    """Return when so many commits of single messages were answered."""
    wait_until(lambda: sum(len(peer.all("committed")) for peer in peers) >= count, PATIENCE_S, f"{count} commits",
               state=lambda: [peer.state() for peer in peers])  # fmt: skip


def test_members_share_a_topic_when_one_joins_leaves_or_is_killed(
    clusters: tuple[str, EmbeddedCluster], cluster: EmbeddedCluster, topic: str, library: str
) -> None:
    generation, group = clusters[0], f"of-{topic}"
    with Peer(library, cluster, group, topic, generation, "ann") as ann:
        ann.wait_assigned([0, 1, 2, 3])
        wait_read([ann], write(cluster, topic, "alone"))
        with Peer(library, cluster, group, topic, generation, "bob") as bob:
            wait_shared([ann, bob], PARTITIONS)
            wait_read([ann, bob], write(cluster, topic, "two"))
            bob.leave()
            ann.wait_assigned([0, 1, 2, 3])
        with Peer(library, cluster, group, topic, generation, "cat") as cat:
            wait_shared([ann, cat], PARTITIONS)
            cat.kill()
            ann.wait_assigned([0, 1, 2, 3])
        wait_read([ann], write(cluster, topic, "last"))
        ann.leave()


@pytest.mark.parametrize("how", ["moved", "stopped", "killed"])
def test_members_go_on_at_their_offsets_when_another_broker_coordinates(
    clusters: tuple[str, EmbeddedCluster], cluster: EmbeddedCluster, topic: str, library: str, how: str
) -> None:
    generation, group = clusters[0], f"of-{topic}"
    for partition in range(PARTITIONS):
        cluster.move_leader(topic, partition, 1)
    with (
        Peer(library, cluster, group, topic, generation, "ann") as ann,
        Peer(library, cluster, group, topic, generation, "bob") as bob,
    ):
        wait_shared([ann, bob], PARTITIONS)
        before = write(cluster, topic, "before")
        wait_read([ann, bob], before)
        wait_committed([ann, bob], len(before))
        cluster.move_leader(OFFSETS_TOPIC, 0, 0)
        if how == "moved":
            cluster.move_leader(OFFSETS_TOPIC, 0, 1)
        elif how == "stopped":
            cluster.stop(0)
            cluster.start(0)
        else:
            cluster.kill(0, expire=True)
            cluster.start(0)
        after = write(cluster, topic, "after")
        wait_read([ann, bob], after)
        wait_shared([ann, bob], PARTITIONS)
        wait_committed([ann, bob], len(before | after))
        bob.leave()
        ann.leave()
    with Peer(library, cluster, group, topic, generation, "eve") as eve:
        eve.wait_assigned([0, 1, 2, 3])
        new = write(cluster, topic, "new")
        wait_read([eve], new)
        assert set(eve.texts) == new
        eve.leave()


def test_members_share_a_topic_step_by_step_and_keep_what_they_have(
    clusters: tuple[str, EmbeddedCluster], cluster: EmbeddedCluster, topic: str
) -> None:
    """With the assignor cooperative-sticky, whose rebalances follow each other."""
    generation, group = clusters[0], f"of-{topic}"
    sticky = {"partition.assignment.strategy": "cooperative-sticky"}
    with Peer("confluent", cluster, group, topic, generation, "ann", **sticky) as ann:
        ann.wait_assigned([0, 1, 2, 3])
        with Peer("confluent", cluster, group, topic, generation, "bob", **sticky) as bob:
            wait_shared([ann, bob], PARTITIONS)
            assert [] not in ann.all("assigned")
            wait_read([ann, bob], write(cluster, topic, "two"))
            bob.leave()
        ann.wait_assigned([0, 1, 2, 3])
        ann.leave()


def test_a_static_member_that_is_back_in_time_takes_its_partitions_without_a_rebalance(
    clusters: tuple[str, EmbeddedCluster], cluster: EmbeddedCluster, topic: str
) -> None:
    generation, group = clusters[0], f"of-{topic}"
    if generation not in ("2.8", "3.9", "4.3"):
        pytest.skip("static members are there from 2.3 on")

    def peer(name: str) -> Peer:
        more = {"group.instance.id": name, "session.timeout.ms": 30_000}
        return Peer("confluent", cluster, group, topic, generation, name, **more)

    with peer("ann") as ann:
        ann.wait_assigned([0, 1, 2, 3])
        with peer("bob") as bob:
            wait_shared([ann, bob], PARTITIONS)
            mine, changes = bob.assigned, len(ann.all("assigned"))
            bob.kill()
        with peer("bob") as again:
            again.wait_assigned(mine)
            wait_read([ann, again], write(cluster, topic, "two"))
            again.leave()
        assert len(ann.all("assigned")) == changes
        ann.leave()
