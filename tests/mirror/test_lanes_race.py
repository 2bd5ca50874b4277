"""Two owners race for one partition without any lock, while its leader is killed, or frozen and thawed.

Three brokers, three replicas, acknowledged by all. Each record is there once and in order, and none that was
acknowledged is lost: a plain reader counts.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from lane_writing import LENGTHS, SOURCE, WAIT_S, Wire, counted, lane, source_batch

from simpleconsumer.types import TopicPartition
from zkconsumer.mirror.lanes.lane_events import Run
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

REPLICAS = 3
STEP = 2_000
"""So many records are written between two faults."""
PAUSES, LONGEST_PAUSE_S = 0.1, 0.1
BROKERS = {
    "min.insync.replicas": 2, "unclean.leader.election.enable": False, "replica.lag.time.max.ms": 4000,
    "offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1,
}  # fmt: skip
IN_ZOOKEEPER = {"zookeeper.session.timeout.ms": 6000}
VERSIONS = ("0.11.0.3", "1.1.1", "2.8.2", "3.9.2", "4.3.1")
COURSES = [
    pytest.param("4.3.1", ("freeze",), id="4.3.1-freeze"),
    *(pytest.param(each, course, marks=pytest.mark.slow, id=f"{each}-{'-'.join(course)}")
      for each in VERSIONS for course in (("kill", "kill"), ("freeze", "kill", "freeze"))),
]  # fmt: skip


class Racer:
    """One owner, which writes until it is told to stop."""

    def __init__(self, cluster: KafkaCluster, name: TopicPartition, run: Run, seed: int) -> None:
        self.sender = lane(cluster, name, run, timeout_ms=2_000, follows_others=True)
        self.acknowledged = 0
        self.overtaken = 0
        self.error: BaseException | None = None
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            expected = 0
            while not self._stop.is_set():
                if self._rng.random() < PAUSES:  # the other one needs an end of the log that all replicas have
                    self.sender.flush(WAIT_S)
                    self._stop.wait(self._rng.uniform(0.0, LONGEST_PAUSE_S))
                position = self.sender.position(WAIT_S)
                self.overtaken += position > expected
                records = self._rng.choice(LENGTHS)
                self.sender.send(source_batch(position, records), SOURCE, position, WAIT_S)
                expected = position + records
                self.acknowledged = max(self.acknowledged, self.sender.stored or 0)
            self.acknowledged = max(self.acknowledged, self.sender.flush(WAIT_S))
        except BaseException as error:  # noqa: BLE001 - top of the thread: the test looks at it
            self.error = error

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join(2 * WAIT_S)
        self.sender.close()
        assert self.error is None
        assert not self._thread.is_alive()


class Race:
    """Two owners, and the brokers that they write to."""

    def __init__(self, cluster: KafkaCluster, name: TopicPartition, run: Run) -> None:
        self.cluster, self.name = cluster, name
        self.racers = [Racer(cluster, name, run, seed) for seed in (11, 12)]

    @property
    def acknowledged(self) -> int:
        return max(racer.acknowledged for racer in self.racers)

    def go_on(self) -> None:
        """Return when so many more records are acknowledged."""
        goal = self.acknowledged + STEP
        wait_until(lambda: self.acknowledged >= goal or any(each.error for each in self.racers), 2 * WAIT_S,
                   f"{goal} records", state=lambda: self.acknowledged)  # fmt: skip
        assert [each.error for each in self.racers] == [None, None]

    def leader(self) -> int:
        found = self.cluster.leader(*self.name)
        assert found is not None
        return found

    def kill(self) -> None:
        leader = self.leader()
        self.cluster.kill(leader, expire=self.cluster.has_zookeeper)
        self.go_on()
        self.cluster.start(leader)

    def freeze(self) -> None:
        leader = self.leader()
        self.cluster.pause(leader)
        try:
            wait_until(lambda: self.cluster.leader(*self.name) not in (leader, None), WAIT_S, "another leader")
            self.go_on()
        finally:
            self.cluster.resume(leader)
        self.go_on()


@pytest.mark.parametrize(("version", "course"), COURSES)
def test_two_owners_race_while_the_leader_is_killed_or_frozen(
    version: str, course: tuple[str, ...], fresh_topic: Callable[[], str]
) -> None:
    is_kraft = version_tuple(version) >= (4,)
    with KafkaCluster(version, REPLICAS, settings=BROKERS if is_kraft else BROKERS | IN_ZOOKEEPER) as cluster:
        name = TopicPartition(fresh_topic(), 0)
        cluster.create_topic(name.topic, replication=REPLICAS, config={"retention.ms": -1})
        race = Race(cluster, name, Run(Wire(cluster, name).new_id(), 0))
        race.go_on()
        for fault in course:
            getattr(race, fault)()
            race.go_on()
        for racer in race.racers:
            racer.stop()
        for racer in race.racers:
            racer.join()
        assert all(racer.overtaken for racer in race.racers), "it was no race"
        assert counted(cluster, name.topic) >= race.acknowledged
