"""Groups that brokers coordinate, in real processes under load: kill -9, SIGTERM, SIGSTOP, stalled links, dead brokers.

Each history is checked as a whole: nothing acknowledged is lost or skipped, every partition has one owner at a time,
stored offsets never go back, nothing is committed early, and a message comes again only where an ungraceful end
explains it. What a fault may cost on top is said test by test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from broker_scene import (
    AUTO_COMMIT_S,
    BROKER,
    BUSY_S,
    HEARTBEAT_S,
    SESSION_S,
    UNGRACEFUL,
    Scene,
    last_delivery_ns,
    scene,
    seconds,
)
from group_members import LAST_DELIVERY_S

from zkconsumer.testing.history.checks import Limits
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

VERSIONS = ["4.3.1", *(pytest.param(version, marks=pytest.mark.slow)
                       for version in ("0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2", "3.9.2"))]  # fmt: skip
SLOW_RANGE = ["cooperative-sticky", pytest.param("range", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, settings=BROKER) as made:
        yield made


@pytest.fixture(params=SLOW_RANGE)
def stage(
    request: pytest.FixtureRequest, cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> Iterator[Scene]:
    """A topic of six partitions under load."""
    with scene(cluster, fresh_group, fresh_topic(), assignor=request.param) as made:
        yield made


def test_joins_and_leaves_under_load_lose_and_repeat_nothing(stage: Scene) -> None:
    stage.join("a")
    stage.load.grow(100)
    b = stage.join("b")
    stage.wait_shares(a=3, b=3)
    stage.load.grow(100)
    c = stage.join("c")
    stage.wait_shares(a=2, b=2, c=2)
    stage.load.grow(100)
    c.stop()
    stage.wait_shares(a=3, b=3)
    b.stop()
    stage.wait_shares(a=6)
    stage.load.grow(100)
    stage.settle()
    assert stage.assert_clean() == 0


def test_a_killed_member_costs_one_session_and_repeats_one_commit_interval_at_most(stage: Scene) -> None:
    a, b = stage.join("a"), stage.join("b")
    stage.wait_shares(a=3, b=3)
    stage.wait_committed()
    stage.load.grow(100)
    killed = a.kill()
    stage.wait_shares(b=6, timeout_s=SESSION_S + HEARTBEAT_S + 1.0 + BUSY_S)
    taken = b.events("assigned", since_ns=killed.time_ns)[-1]
    stage.load.grow(100)
    stage.settle()
    repeats = stage.assert_clean(UNGRACEFUL)
    print(f"kill -9: taken over after {seconds(taken.time_ns, killed.time_ns):.2f} s, {repeats} repeats")


@pytest.mark.catalogue("C2", "E4")
def test_a_member_stopped_past_its_session_delivers_and_commits_nothing_stale(stage: Scene) -> None:
    a = stage.join("a", work_ms=2)
    stage.join("b")
    stage.wait_shares(a=3, b=3)
    stage.wait_committed()
    stage.load.grow(50)
    stopped_ns = a.pause().time_ns
    stage.wait_shares(b=6, timeout_s=SESSION_S + HEARTBEAT_S + 1.0 + BUSY_S)
    stage.wait_committed()  # the other one has stored offsets that a stale commit would lower
    resumed_ns = time.monotonic_ns()
    a.resume()
    back = a.wait_for("assigned", since_ns=resumed_ns, count=3)
    stage.wait_shares(a=3, b=3)
    stage.load.grow(100)
    stage.settle()
    stale = [each for each in a.events("deliver", since_ns=resumed_ns) if each.time_ns < back[0].time_ns]
    assert stale == []
    # One message was in hand when it was stopped: it counts as done after the stop.
    repeats = stage.assert_clean(UNGRACEFUL)
    print(f"stopped for {seconds(resumed_ns, stopped_ns):.2f} s, {repeats} repeats")


@pytest.mark.catalogue("A8")
@pytest.mark.slow
def test_a_member_that_joins_and_is_killed_at_once_holds_nobody_up_for_long(stage: Scene) -> None:
    stage.join("a")
    stage.wait_shares(a=6)
    b = stage.launch("b")
    wait_until(lambda: "joining" in b.log() or "generation" in b.log(), 20, "it to join")
    b.kill()
    stage.load.grow(100)
    stage.wait_shares(a=6, timeout_s=SESSION_S + REJOIN_S + BUSY_S)
    stage.load.grow(100)
    stage.settle()
    stage.assert_clean(UNGRACEFUL)


REJOIN_S = 12.0
"""A coordinator waits so long for a member that it has asked to join again."""


# -- brokers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=VERSIONS)
def own_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One broker, which the test may pause and restart."""
    with KafkaCluster(request.param, settings=BROKER) as made:
        yield made


def test_a_paused_coordinator_stops_delivery_at_the_lease_and_costs_nothing_but_what_was_not_committed(
    own_cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    with scene(own_cluster, fresh_group, fresh_topic(), assignor="cooperative-sticky") as stage:
        members = [stage.join("a"), stage.join("b")]
        stage.wait_shares(a=3, b=3)
        stage.wait_committed()
        for paused_s in (SESSION_S / 3, SESSION_S * 2):
            stage.load.grow(50)
            own_cluster.pause(0)
            paused_ns = time.monotonic_ns()
            wait_until(lambda at=paused_ns, s=paused_s: seconds(time.monotonic_ns(), at) > s, 60, "the pause to last")  # type: ignore[misc]
            resumed_ns = time.monotonic_ns()
            own_cluster.resume(0)
            last = max(last_delivery_ns(member, resumed_ns) for member in members)
            assert seconds(last, paused_ns) <= LAST_DELIVERY_S
            stage.wait_committed()
            stage.wait_full("a", "b")
        stage.load.grow(100)
        stage.settle()
        stage.assert_clean(Limits(repeat_before_end_s=2 * SESSION_S + AUTO_COMMIT_S + 1.0))


@pytest.mark.catalogue("F2")
@pytest.mark.slow
def test_a_restarted_broker_is_found_again_and_its_group_goes_on(
    own_cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    with scene(own_cluster, fresh_group, fresh_topic()) as stage:
        stage.join("a")
        stage.join("b")
        stage.wait_full("a", "b")
        stage.wait_committed()
        stage.load.grow(50)
        own_cluster.kill(0)
        own_cluster.start(0)
        stage.wait_committed(timeout_s=60)
        stage.wait_full("a", "b", timeout_s=60)
        stage.load.grow(100)
        stage.settle(60)
        stage.assert_clean(Limits(repeat_before_end_s=20.0))


@pytest.fixture(params=VERSIONS)
def three(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Three brokers, with three replicas of the offsets."""
    settings = {
        **BROKER, "offsets.topic.replication.factor": 3, "min.insync.replicas": 1,
        "replica.lag.time.max.ms": 3000,
    }  # fmt: skip
    with KafkaCluster(request.param, brokers=3, settings=settings) as made:
        yield made


@pytest.mark.parametrize("assignor", ["range", pytest.param("cooperative-sticky", marks=pytest.mark.slow)])
def test_the_group_survives_the_death_and_the_move_of_its_coordinator(
    three: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], assignor: str
) -> None:
    with scene(three, fresh_group, fresh_topic(), assignor=assignor, replication=3, acks=-1) as stage:
        stage.join("a")
        stage.join("b")
        stage.wait_full("a", "b")
        stage.wait_committed()
        first = three.leader("__consumer_offsets", 0)
        assert first is not None
        stage.load.grow(50)
        three.kill(first)
        stage.wait_committed(timeout_s=60)
        stage.wait_full("a", "b", timeout_s=60)
        second = three.leader("__consumer_offsets", 0)
        assert second is not None
        assert second != first
        [third] = {0, 1, 2} - {first, second}
        three.start(first)  # without it, brokers before Kafka 2.4 move nothing
        moved_ns = time.monotonic_ns()
        three.move_leader("__consumer_offsets", 0, third)
        stage.wait_committed(timeout_s=60)
        stage.wait_full("a", "b", timeout_s=60)
        print(f"moved: went on after {seconds(time.monotonic_ns(), moved_ns):.2f} s")
        stage.load.grow(100)
        stage.settle(60)
        stage.assert_clean(Limits(repeat_before_end_s=20.0))
