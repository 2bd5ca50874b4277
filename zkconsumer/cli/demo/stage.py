"""Runs producer and members of a demonstration on a running cluster, and watches them.

Threads: one, which shows a scene ten times a second while it waits. Producer, brokers and the watch have threads of
their own, and only append to lists.

The events of a demonstration: two members join, then a third; one leaves, one is killed, the last one goes on.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from zkconsumer.admin.values import count_of
from zkconsumer.cli.demo.display import Narrator
from zkconsumer.cli.demo.scene import Actor, Counters, shares
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.known_versions import is_07
from zkconsumer.testing.loads import SteadyLoad
from zkconsumer.testing.members.member_process import MemberProcess
from zkconsumer.testing.waiting import Deadline
from zkconsumer.testing.zookeeper.group_watch import GroupWatch
from zkconsumer_error import ZkConsumerError

TOPIC, GROUP = "demo", "demo"
PARTITIONS = 8
SESSION_S = 4.0
AUTO_COMMIT_S = 1.0
_LOOK_S = 0.1
_SECONDS_SHOWN = 12
_LOG_LINES = 3
_SETTINGS = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "auto.commit.interval.ms": int(AUTO_COMMIT_S * 1000),
}


class StageError(ZkConsumerError):
    """The demonstration cannot go on: a process died, or a condition was not met in time."""


class Stage:
    """Producer and members, for the block; no member runs at first.

    Args:
        cluster: A running cluster that has the topic.
        rate: Messages a second.
        narrator: Shows what happens.
        limit_s: When the demonstration must be over, in seconds.

    Attributes:
        load: The producer; starts with the block.
        counters: Counts of the events so far.
        states: Member -> joining, consuming, leaving, left or killed.
    """

    def __init__(self, cluster: KafkaCluster | EmbeddedCluster, rate: int, narrator: Narrator, limit_s: float) -> None:
        self.states: dict[str, str] = {}
        self.counters = Counters(narrator.start_ns)
        partitions = cluster.partitions(TOPIC)
        self._names = tuple(map(str, partitions))
        on_each = is_07(cluster.version)
        self.load = SteadyLoad(cluster, [TOPIC], PARTITIONS // len(cluster.brokers) if on_each else PARTITIONS, rate)
        self._zookeeper = cluster.zookeeper_connect
        self._narrator = narrator
        self._deadline = Deadline(limit_s)
        self._places: list[Place] = [(TOPIC, partition) for partition in partitions]
        self._watch = GroupWatch(self._zookeeper, GROUP, self._places)
        self._members: dict[str, MemberProcess] = {}
        self._counted: dict[str, int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._watch)
            stack.enter_context(self.load)
            stack.callback(self._close_members)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _close_members(self) -> None:
        for member in self._members.values():
            member.close()

    # ---- the members

    def join(self, name: str, *, skip: int = 0, twice: int = 0) -> None:
        """Start a member."""
        self.states[name] = "joining"
        self._members[name] = MemberProcess(
            self._zookeeper, GROUP, name, topics={TOPIC: 1}, skip=skip, twice=twice, settings=_SETTINGS
        )

    def leave(self, name: str) -> None:
        """Ask a member to leave (SIGTERM), and watch until its process has ended.

        Raises:
            StageError: It does not end, or not with status 0.
        """
        self.states[name] = "leaving"
        process = self._members[name].process
        process.signal(signal.SIGTERM)
        self.wait(lambda: not process.running, 10.0, f"{name} to leave")
        self.states[name] = "left"
        self._show()

    def kill(self, name: str) -> None:
        """End a member as `kill -9` does."""
        self._members[name].kill()
        self.states[name] = "killed"

    # ---- what is seen

    def history(self) -> list[Event]:
        """Return the events that producer, members and watch have recorded."""
        written = [event for member in self._members.values() for event in member.events()]
        return [*self.load.acked, *self._watch.events, *written]

    @property
    def owners(self) -> list[str | None]:
        """The owner of each partition, as ZooKeeper has it."""
        return [self._watch.owner(place) for place in self._places]

    @property
    def owner_of(self) -> dict[str, str | None]:
        """The owner of each partition, by its name."""
        return dict(zip(self._names, self.owners, strict=True))

    def is_shared_by(self, names: Collection[str]) -> bool:
        """Return True if these members own all partitions, in shares that differ by one at most."""
        owners = self.owners
        counts = [owners.count(name) for name in names]
        return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

    @property
    def _lags(self) -> tuple[int, ...]:
        return tuple(self.counters.lag(partition) for _, partition in self._places)

    @property
    def undelivered(self) -> int:
        """Number of messages that are acknowledged and not delivered."""
        return sum(self._lags)

    # ---- time

    def go_on(self, seconds: float) -> None:
        """Watch for some time.

        Raises:
            StageError: A process has died, or the demonstration takes too long.
        """
        end = Deadline(seconds)
        while not end.expired:
            self._look()

    def wait(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Watch until a condition is met.

        Raises:
            StageError: It is not met in time, a process has died, or the demonstration takes too long.
        """
        end = Deadline(limit_s)
        # Count first: the earlier counts may lack the last messages that were recorded.
        self._look()
        while not condition():
            if end.expired:
                raise StageError(f"waited {limit_s:g} s for {what}")
            self._look()

    def _look(self) -> None:
        time.sleep(_LOOK_S)
        self._count("", self.load.acked)
        for name, member in self._members.items():
            self._count(name, member.events())
        self._show()
        self._check()

    def _count(self, name: str, events: list[Event]) -> None:
        """Count the events that are new."""
        new = events[self._counted.get(name, 0) :]
        self._counted[name] = self._counted.get(name, 0) + len(new)
        self.counters.take(new)

    def _show(self) -> None:
        owners = self.owners
        for name in owners:
            if name is not None and self.states.get(name) == "joining":
                self.states[name] = "consuming"
        now_s = self._narrator.elapsed_s
        self._narrator.update(
            owners=tuple(owners),
            partitions=self._names,
            lag=self._lags,
            actors=tuple(
                Actor(name, state, self.counters.delivered_by[name], self.counters.rates(name, now_s, _SECONDS_SHOWN))
                for name, state in self.states.items()
            ),
            produced=self.counters.produced,
            delivered=self.counters.delivered,
            repeated=self.counters.repeated,
        )

    def _check(self) -> None:
        if self._deadline.expired:
            raise StageError(f"not over after {self._deadline.timeout_s:g} s")
        if self.load.error is not None:
            raise StageError(f"the producer failed: {self.load.error}")
        for name, member in self._members.items():
            status = member.process.returncode
            if status is None or self.states[name] == "killed":
                continue
            if status != 0 or self.states[name] not in ("leaving", "left"):
                words = member.process.tail(_LOG_LINES).strip() or "it printed nothing"
                raise StageError(f"{name} ended with status {status}: {words}")


LOSS, REPEAT = "loss", "repeat"
_SETTLE_S = 12.0
_LAST_MESSAGES_S = 4.0
_SKIPPED, _DOUBLED = 60, 80
"""Which of ann's messages are dropped or handled twice on purpose: early ones, which she gets for sure."""


def length_s(steady_s: float) -> float:
    """Return about how long a demonstration takes, in seconds."""
    return 4 * steady_s + SESSION_S + 3.0


class Story:
    """The events, in order.

    Args:
        stage: Where they take place; no member has joined yet.
        narrator: Shows them.
        steady_s: Time without events after each event, in seconds.
        inject: The fault that is made on purpose: LOSS, REPEAT.
    """

    def __init__(self, stage: Stage, narrator: Narrator, steady_s: float, inject: Collection[str]) -> None:
        self._stage = stage
        self._narrator = narrator
        self._steady_s = steady_s
        self._inject = inject

    def play(self) -> None:
        """Play all events.

        Raises:
            StageError: The demonstration cannot go on.
        """
        self._two_members()
        self._one_joins()
        self._one_leaves()
        self._one_is_killed()
        self._end()

    def _two_members(self) -> None:
        started_s = self._say("ann and bob join the group")
        skip, twice = _SKIPPED * (LOSS in self._inject), _DOUBLED * (REPEAT in self._inject)
        self._stage.join("ann", skip=skip, twice=twice)
        self._stage.join("bob")
        self._settle(started_s, "ann", "bob")

    def _one_joins(self) -> None:
        started_s = self._say("cleo joins: the others finish their messages in hand, then release her partitions")
        self._stage.join("cleo")
        self._settle(started_s, "ann", "bob", "cleo")

    def _one_leaves(self) -> None:
        started_s = self._say("bob leaves: he commits, then releases his partitions")
        self._stage.leave("bob")
        self._settle(started_s, "ann", "cleo")

    def _one_is_killed(self) -> None:
        before = self._stage.counters.repeated
        started_s = self._say(f"cleo is killed (kill -9): ZooKeeper waits {SESSION_S:g} s for her")
        self._stage.kill("cleo")
        self._settle(started_s, "ann")
        again = self._stage.counters.repeated - before
        if again:
            verb = "was" if again == 1 else "were"
            self._say(f"{count_of(again, 'message')} {verb} delivered again: cleo had not committed that yet")
        else:
            self._say("no message was delivered again: cleo had committed all her messages")

    def _end(self) -> None:
        stage = self._stage
        self._say("no more messages are written")
        stage.load.stop()
        try:
            stage.wait(lambda: stage.undelivered == 0, _LAST_MESSAGES_S, "the last messages to be delivered")
        finally:
            self._say("ann leaves")
            stage.leave("ann")

    def _say(self, text: str) -> float:
        """Show an event, and return when it was."""
        self._narrator.say(text)
        return self._narrator.elapsed_s

    def _settle(self, started_s: float, *names: str) -> None:
        """Wait until these members share all partitions, report it, and go on for a while."""
        stage = self._stage
        stage.wait(lambda: stage.is_shared_by(names), _SETTLE_S, f"{', '.join(names)} to share the partitions")
        self._say(f"shared after {self._narrator.elapsed_s - started_s:.1f} s: {shares(stage.owner_of)}")
        stage.go_on(self._steady_s)
