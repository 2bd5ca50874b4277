"""Groups of brokers in which members of ours are beside Java's KafkaConsumer, confluent-kafka and kafka-python.

Each side leads, follows, joins, leaves and is killed. The leader reads the subscriptions of the others, and they read
its assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from broker_scene import BROKER, BUSY_S, HEARTBEAT_S, SESSION_S, UNGRACEFUL, Scene, scene

from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.kafka_java_member import KafkaJavaMember

pytestmark = pytest.mark.real

SLOW = partial(pytest.param, marks=pytest.mark.slow)
VERSIONS = ["3.9.2", *(pytest.param(version, marks=pytest.mark.slow)
                       for version in ("0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2", "4.3.1"))]  # fmt: skip
FIRST_WITH_HEARTBEAT_THREAD = (0, 10, 1)
"""Java's consumer sends heartbeats whatever its application does from then on."""
FIRST_WITH_COOPERATIVE = (2, 4)
"""Java's consumer knows the assignor from then on; the brokers do not care."""


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, settings=BROKER) as made:
        yield made


def passes_through(stage: Scene, leader: str, other: str) -> int:
    """Join, lead, leave and be killed, on both sides; the number of repeats."""
    first = stage.join_as(leader, "first")
    stage.wait_shares(first=6)
    second = stage.join_as(other, "second")
    stage.wait_shares(first=3, second=3)
    stage.load.grow(100)
    stage.join_as(leader, "third")
    stage.wait_shares(first=2, second=2, third=2)
    stage.wait_committed()
    first.stop()  # another one leads from now on
    stage.wait_full("second", "third")
    stage.load.grow(50)
    stage.join_as(other, "fourth")
    stage.wait_full("second", "third", "fourth")
    stage.wait_committed()
    stage.members["third"].kill()
    stage.wait_full("second", "fourth", timeout_s=SESSION_S + HEARTBEAT_S + 1.0 + BUSY_S)
    stage.join_as(leader, "fifth")
    stage.wait_full("second", "fourth", "fifth")
    stage.wait_committed()
    second.kill()
    stage.wait_full("fourth", "fifth", timeout_s=SESSION_S + HEARTBEAT_S + 1.0 + BUSY_S)
    stage.load.grow(50)
    stage.settle()
    javas = [name for name, member in stage.members.items() if isinstance(member, KafkaJavaMember)]
    # Java's consumer commits when a cooperative rebalance begins, and not what it goes on to deliver until it gives a
    # partition up (ConsumerCoordinator.onJoinPrepare, onJoinComplete).
    repeating = javas if stage.assignor == "cooperative-sticky" else []
    return stage.assert_clean(UNGRACEFUL, repeating)


@pytest.mark.parametrize("assignor", ["cooperative-sticky", SLOW("range")])
@pytest.mark.parametrize("leader", ["ours", SLOW("java")])
def test_beside_javas_consumer(
    cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], leader: str, assignor: str
) -> None:
    if assignor == "cooperative-sticky" and version_tuple(cluster.version) < FIRST_WITH_COOPERATIVE:
        pytest.skip("Java has no cooperative assignor before Kafka 2.4")
    if version_tuple(cluster.version) < FIRST_WITH_HEARTBEAT_THREAD:
        pytest.skip("this consumer sends no heartbeats while messages keep coming, and is thrown out again and again")
    other = "java" if leader == "ours" else "ours"
    with scene(cluster, fresh_group, fresh_topic(), assignor=assignor) as stage:
        print(f"{passes_through(stage, leader, other)} repeats")


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("leader", ["ours", "confluent"])
def test_beside_confluent_kafka(
    cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], leader: str, assignor: str
) -> None:
    other = "confluent" if leader == "ours" else "ours"
    with scene(cluster, fresh_group, fresh_topic(), assignor=assignor) as stage:
        print(f"{passes_through(stage, leader, other)} repeats")


@pytest.mark.slow
@pytest.mark.parametrize("leader", ["ours", "kafka-python"])
def test_beside_kafka_python(
    cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], leader: str
) -> None:
    other = "kafka-python" if leader == "ours" else "ours"
    with scene(cluster, fresh_group, fresh_topic()) as stage:
        print(f"{passes_through(stage, leader, other)} repeats")
