"""Groups of brokers in which one thing after the other goes wrong, drawn by seed: with members, and with brokers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from broker_scene import AUTO_COMMIT_S, BROKER, HEARTBEAT_S, SESSION_S, Scene, scene, seconds

from zkconsumer.testing.history.checks import Limits, Trouble
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.member_process import MemberProcess
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

STEPS = 12
FULL_S = 90.0
MOST_MEMBERS = 4
OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module", params=["4.3.1", "2.8.2", "0.10.2.2"])
def three(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Three brokers, all of which run again after each step."""
    settings = {**BROKER, "offsets.topic.replication.factor": 3, "replica.lag.time.max.ms": 3000}
    with KafkaCluster(request.param, brokers=3, settings=settings) as made:
        yield made


@dataclass
class Churn:
    """What is done to a group, and what it may cost."""

    stage: Scene
    rng: random.Random
    live: list[MemberProcess] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> KafkaCluster:
        return self.stage.cluster

    def join(self) -> None:
        """A new member."""
        member = self.stage.join(f"m{len(self.stage.members)}")
        self.live.append(member)

    def leave(self) -> None:
        """One leaves in order."""
        self._take_out().stop()

    def kill(self) -> None:
        """One is killed."""
        self._take_out().kill()

    def stop_for_long(self) -> None:
        """One is stopped until others have its partitions."""
        member = self._take_out()
        member.pause()
        self.wait_full()
        member.resume()
        self.live.append(member)

    def stop_for_a_moment(self) -> None:
        """One is stopped, and goes on within its session."""
        member = self.rng.choice(self.live)
        member.process.pause()
        self._wait(SESSION_S / 4)
        member.process.resume()

    def restart_broker(self) -> None:
        """A broker is killed and comes back."""
        broker = self.rng.randrange(3)
        self.cluster.kill(broker)
        self._wait(1.0)
        self.cluster.start(broker)

    def pause_coordinator(self) -> None:
        """The coordinator stands still, for less or more than a session."""
        broker = self.cluster.leader(OFFSETS, 0)
        if broker is None:
            return
        self.cluster.pause(broker)
        self._wait(SESSION_S * self.rng.choice((0.3, 1.5)))
        self.cluster.resume(broker)

    def move_coordinator(self) -> None:
        """Another broker coordinates the group."""
        broker = self.cluster.leader(OFFSETS, 0)
        self.cluster.move_leader(OFFSETS, 0, self.rng.choice([each for each in range(3) if each != broker]))

    def step(self) -> None:
        """Do one thing; return when the group is whole again."""
        acts = [self.restart_broker, self.pause_coordinator, self.move_coordinator, self.stop_for_a_moment]
        if len(self.live) < MOST_MEMBERS:
            acts += [self.join] * 3
        if len(self.live) > 1:
            acts += [self.leave, self.kill, self.stop_for_long]
        act = self.rng.choice(acts)
        self.done.append(act.__name__)
        began_ns = time.monotonic_ns()
        act()
        self.wait_full()
        if act in (self.restart_broker, self.pause_coordinator, self.move_coordinator):
            self.troubles.append(Trouble(began_ns, time.monotonic_ns()))
        self.stage.load.grow(30)

    def wait_full(self) -> None:
        """Return when the live members hold everything, and store what they have done."""
        self.stage.wait_full(*(each.name for each in self.live), timeout_s=FULL_S)
        self.stage.wait_committed(timeout_s=FULL_S)

    def _take_out(self) -> MemberProcess:
        return self.live.pop(self.rng.randrange(len(self.live)))

    def _wait(self, some_s: float) -> None:
        began_ns = time.monotonic_ns()
        wait_until(lambda: seconds(time.monotonic_ns(), began_ns) >= some_s, some_s + 10, "a while to pass")


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_and_nothing_is_delivered_by_who_has_lost_it(
    three: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], seed: int, assignor: str
) -> None:
    with scene(three, fresh_group, fresh_topic(), assignor=assignor, replication=3, acks=-1) as stage:
        churn = Churn(stage, random.Random(f"{seed} {assignor}"))
        churn.join()
        churn.join()
        churn.wait_full()
        try:
            for _ in range(STEPS):
                churn.step()
            stage.settle(60.0)
        finally:
            print(", ".join(churn.done))
        stage.cut_off |= set(stage.members)
        limits = Limits(repeat_before_end_s=AUTO_COMMIT_S + HEARTBEAT_S + 1.0, troubles=churn.troubles)
        print(f"{stage.assert_clean(limits)} repeats")
