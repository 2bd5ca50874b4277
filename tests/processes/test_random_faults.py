"""Random sequences of joins, leaves, kill -9, SIGSTOP and ended sessions over real processes, by seed.

Slow; run them with `pytest -m slow tests/processes/test_random_faults.py`. A failing seed is run again alone with
`pytest "tests/processes/test_random_faults.py::test_any_sequence_of_faults_loses_nothing[7]"`.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import pytest
from group_members import AUTO_COMMIT_S, SESSION_S, MemberProcess
from group_scene import Scene, assert_clean, scene
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history import in_order
from zkconsumer.testing.history_checks import Limits, find_zombies
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

STEPS = 12
MOST_MEMBERS = 5
# A member that is stopped, ended behind its back, or stopped while its session ends: it has delivered since its last
# commit, and it hands out what is decoded until it learns of the end.
LIMITS = Limits(repeat_before_end_s=AUTO_COMMIT_S + 1.0, zombie_slack_s=0.5)


class Chaos:
    """A group and what may happen to it."""

    def __init__(self, stage: Scene, seed: int) -> None:
        self.stage = stage
        self.rng = random.Random(seed)
        self.steps: list[str] = []
        self.pauses = 0
        self._names = 0

    def living(self) -> list[MemberProcess]:
        """Members whose process runs."""
        return [member for member in self.stage.group.members.values() if member.process.running]

    def awake(self) -> list[MemberProcess]:
        """Members that run and are not stopped."""
        return [member for member in self.living() if not member.process.paused]

    def step(self) -> None:
        """Do one random thing."""
        awake = self.awake()
        paused = [member for member in self.living() if member.process.paused]
        choices: list[tuple[str, MemberProcess | None]] = []
        if len(self.living()) < MOST_MEMBERS:
            choices += [("join", None)] * 3
        if len(awake) > 1:
            choices += [(what, self.rng.choice(awake)) for what in ("leave", "kill", "pause", "expire")]
        choices += [("resume", member) for member in paused] * 2
        what, member = self.rng.choice(choices)
        self.steps.append(f"{time.monotonic():.3f} {what} {member.name if member else ''}")
        self._do(what, member)

    def _do(self, what: str, member: MemberProcess | None) -> None:
        if member is None:
            self._names += 1
            work_ms = self.rng.choice([0, 0, 1, 5])
            self.stage.group.launch(f"m{self._names}", topics=self.stage.topics, work_ms=work_ms)
        elif what == "leave":
            # 0, or ended by the signal itself: it had not begun to join
            assert member.process.stop() in (0, -signal.SIGTERM), member.process.tail()
        elif what == "kill":
            member.kill()
        elif what == "pause":
            member.pause()
            self.pauses += 1
        elif what == "resume":
            member.process.resume()
        else:
            self._expire(member)

    def _expire(self, member: MemberProcess) -> None:
        try:
            self.stage.cluster.zookeeper.end_session(member.session_id(self.stage.cluster.client))
        except (KitError, NoNodeError):
            pass  # it has not joined yet, or its session ended by itself at this very moment

    def end(self) -> None:
        """Let everybody go on, and see to it that somebody is there."""
        for member in self.living():
            if member.process.paused:
                member.process.resume()
        if not self.living():
            self._do("join", None)


@pytest.mark.parametrize("seed", range(10))
def test_any_sequence_of_faults_loses_nothing(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], seed: int
) -> None:
    with scene(kafka_0822, fresh_group, [fresh_topic()], rate_per_s=150) as stage:
        chaos = Chaos(stage, seed)
        stage.group.join("first", topics=stage.topics)
        for _ in range(STEPS):
            chaos.step()
            stage.load.grow(chaos.rng.choice([5, 30, 150, 600]))
        chaos.end()
        stage.load.grow(100)
        try:
            stage.settle(timeout_s=SESSION_S * 3 + 10)
            history = stage.history()
            zombies = [finding.events[1] for finding in find_zombies(in_order(history), LIMITS)]
            assert len(zombies) <= chaos.pauses, "one message in hand for each member that was stopped"
            repeats = assert_clean([event for event in history if event not in zombies], LIMITS)
        except BaseException as error:
            error.add_note("\n".join(chaos.steps))
            raise
        print(f"seed {seed}: {len(stage.load.acked)} messages, {repeats} repeats, {len(zombies)} zombies")
