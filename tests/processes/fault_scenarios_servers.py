"""Faults of ZooKeeper and of brokers under a group."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from fault_players import SESSION_S
from fault_scenario import Scenario
from fault_stage import RATE_PER_S, UNGRACEFUL, Setup, Stage

from simpleconsumer import SimpleConsumer
from simpleconsumer.errors import SimpleConsumerError
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history import Event
from zkconsumer.testing.history.limits import NS, Trouble
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka import topics as kafka_topics
from zkconsumer.testing.processes import free_port

# The fault is for the members alone; and a topic that ZooKeeper lost comes back when the test says so.
PATIENT = {
    "zookeeper.session.timeout.ms": 30_000,
    "auto.create.topics.enable": False,
    "unclean.leader.election.enable": False,  # what was acknowledged is not lost by Kafka itself
}
PATIENT_07 = {"zk.sessiontimeout.ms": 30_000}
LONG = int(RATE_PER_S * 2.5 * SESSION_S)  # messages of two and a half sessions
_LOOK_S = 0.2
_LONGEST_RETENTION_S = 90
_EARLY_NS = int(1.5 * NS)


# ---- ZooKeeper


def zookeeper_restarted(stage: Stage) -> None:
    """ZooKeeper is killed, and comes back with its data after two and a half sessions."""
    stage.mark()
    stage.cluster.zookeeper.kill()
    stage.load.grow(LONG)
    stage.cluster.zookeeper.start()
    stage.wait_committed()
    stage.assert_kept()
    stage.most_repeats = 0


def zookeeper_frozen(stage: Stage) -> None:
    """ZooKeeper is stopped without being ended for two and a half sessions: when it wakes they are over.

    A client that is quick enough when it wakes keeps its session; here none does.
    """
    sessions = [player.session_id(stage.cluster.client) for player in stage.players]
    stage.mark()
    began_ns = stage.marked_ns
    stage.cluster.zookeeper.pause()
    stage.load.grow(LONG)
    stage.cluster.zookeeper.resume()
    stage.mark()
    for session_id in sessions:
        with suppress(KitError):  # it is over already
            stage.cluster.zookeeper.end_session(session_id)
    stage.wait_full()
    stage.wait_committed()
    stage.limits = replace(UNGRACEFUL, troubles=(Trouble(began_ns, time.monotonic_ns()),))


def zookeeper_wiped(stage: Stage) -> None:
    """ZooKeeper loses its data; brokers and topic are registered anew. Java's clients are never let in again."""
    cluster = stage.cluster
    assert isinstance(cluster, KafkaCluster)
    assignment = {} if stage.is_07 else kafka_topics.assignment_of(cluster.client, stage.topic)
    stage.limits = replace(UNGRACEFUL, reborn=frozenset({stage.topic}))
    stage.mark()
    cluster.zookeeper.wipe()
    cluster.reconnect()
    for broker_id in cluster.brokers:
        cluster.kill(broker_id)
        cluster.start(broker_id)
    if not stage.is_07:  # whose brokers register what they have logs of
        kafka_topics.create(cluster.client, stage.topic, assignment, {})
    cluster.wait_leaders(stage.topic, [name for _, name in stage.places])
    stage.watch_again()
    if not stage.is_java_alone:
        for player in stage.java:
            player.expected = False
    stage.mark()
    stage.wait_full(60.0)
    stage.notes.append("no offset is stored" if stage.is_07 else "the topic looks new, and is read from its start")


# ---- brokers


def broker_moved(stage: Stage) -> None:
    """A broker is killed, its partitions have no other, and it comes back on another port."""
    stage.mark()
    stage.cluster.kill(1, expire=True)
    stage.load.grow(int(RATE_PER_S))
    stage.cluster.start(1, port=free_port())
    _no_rebalance(stage)


def broker_stalled(stage: Stage) -> None:
    """A broker keeps its connections and answers nothing for two and a half sessions."""
    stage.mark()
    stage.cluster.pause(1)
    stage.load.grow(LONG // 2)
    stage.cluster.resume(1)
    _no_rebalance(stage)


def leader_moved(stage: Stage) -> None:
    """The leader of each partition of one broker moves to the other, one after the other."""
    stage.mark()
    for partition in range(1, len(stage.places), 2):
        stage.cluster.move_leader(stage.topic, partition, 0)
    _no_rebalance(stage)


def leader_killed(stage: Stage) -> None:
    """A broker is killed, and the replicas of its partitions take over; later it comes back."""
    stage.mark()
    stage.cluster.kill(1, expire=True)
    stage.load.grow(int(2 * RATE_PER_S))
    stage.cluster.start(1)
    _no_rebalance(stage)


def _no_rebalance(stage: Stage) -> None:
    stage.load.grow(int(RATE_PER_S))
    stage.assert_kept()
    stage.wait_committed()
    stage.most_repeats = 0


def retention(stage: Stage) -> None:
    """Retention deletes faster than the applications read."""
    stage.mark()
    with _log_starts(stage):
        # A broker starts to delete half a minute after its own start.
        for _ in range(_LONGEST_RETENTION_S):
            stage.load.grow(int(RATE_PER_S))
            if _gone_unread(stage):
                break
        else:
            raise AssertionError(f"retention did not overtake the readers within {_LONGEST_RETENTION_S} s")
        stage.load.grow(int(4 * RATE_PER_S))
        stage.load.stop()
        stage.assert_kept()
        stage.settle(60.0)
    stage.notes.append(f"{_gone_unread(stage)} were gone from the logs")


def _gone_unread(stage: Stage) -> int:
    """How many messages were deleted from the logs before any member had read them."""
    begins = {place: event.offset for place, event in stage.log_starts().items()}
    acked = [(event.place, event.offset) for event in list(stage.load.acked)]
    read = {(event.place, event.offset) for event in stage.history() if event.kind == "deliver"}
    return len({(place, offset) for place, offset in acked if offset < begins.get(place, 0)} - read)


@contextmanager
def _log_starts(stage: Stage) -> Iterator[None]:
    """Record where logs start, a little earlier than it was seen: a broker reports it afterwards."""
    done = threading.Event()

    def look() -> None:
        brokers = {
            partition: SimpleConsumer("127.0.0.1", stage.cluster.port(leader))
            for partition, leader in stage.cluster.wait_leaders(stage.topic, [p for _, p in stage.places]).items()
        }
        while not done.wait(_LOOK_S):
            for partition, broker in brokers.items():
                try:
                    [start] = broker.get_offsets_before(stage.topic, partition, -2)
                except SimpleConsumerError:
                    continue
                now_ns = time.monotonic_ns() - _EARLY_NS
                stage.operator_events.append(Event(now_ns, "log_start", "", stage.topic, partition, start))

    thread = threading.Thread(target=look, name="log-starts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(10)


OWN = Setup(own_cluster=True, broker=PATIENT, broker_07=PATIENT_07)
REPLICATED = Setup(own_cluster=True, broker=PATIENT, replication=2, acks=-1)
SHORT_LOGS = Setup(
    own_cluster=True,
    broker={**PATIENT, "log.retention.check.interval.ms": 500, "log.delete.delay.ms": 100},
    topic={"segment.bytes": 32_768, "retention.bytes": 65_536, "file.delete.delay.ms": 100},
    padding_bytes=1000,
    member={"fetch.message.max.bytes": 8192},
    work_ms=20,
)

SERVER_FAULTS = (
    Scenario("ZooKeeper killed and restarted", zookeeper_restarted, OWN),
    Scenario("ZooKeeper frozen", zookeeper_frozen, OWN),
    Scenario("ZooKeeper wiped", zookeeper_wiped, OWN, kinds=("real",), is_for_today=False),  # the cluster's id is gone
    Scenario("broker killed, back on another port", broker_moved, OWN, generations=("0.8",)),
    Scenario("broker stalled", broker_stalled, OWN),
    Scenario("leaders moved", leader_moved, REPLICATED, generations=("0.8",)),
    Scenario("leader killed, replica takes over", leader_killed, REPLICATED, generations=("0.8",)),
    Scenario("retention under a slow reader", retention, SHORT_LOGS, generations=("0.8",)),
)
