"""The stage of groups with Java members of one version: several topics, filters, and a clock for each change."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from fault_players import SESSION_S, Player
from fault_scenario import SESSION_ENDED
from fault_servers import AnyCluster, servers_of
from fault_stage import FULL_S, UNGRACEFUL, Setup, Stage
from fault_verdict import blame

from rebalance.zookeeper.snapshot import Strategy
from zkconsumer.testing.errors import StartFailed, WaitTimeout
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.limits import Finding
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.known_versions import is_07
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.loads import LastingLoad
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.testing.zookeeper.group_watch import GroupWatch

COMMON_TABLE_S = 12.0
"""A change of a group with Java members is over within that time; with a death, the session comes on top."""
RATE_PER_S = 10.0
"""Messages for each partition."""
JOIN_S = 60.0
BROKERS_07, EACH_BROKER_07 = (2, 10), 6
"""Twelve partitions of each topic, which as text are in another order than as numbers."""


@dataclass(frozen=True)
class Change:
    """Something that changed the group: what, and after how many seconds all agreed (None: never)."""

    what: str
    took_s: float | None
    is_death: bool = False  # which the others see when the session is over

    @property
    def allowed_s(self) -> float:
        """How long it may take."""
        return COMMON_TABLE_S + (SESSION_S if self.is_death else 0.0)


class TopicLoads:
    """A steady load on each of several topics, some of which come later, as one."""

    def __init__(self, cluster: KafkaCluster, stack: ExitStack) -> None:
        self._cluster = cluster
        self._stack = stack
        self._loads: list[LastingLoad] = []

    def add(self, topic: str, partitions: int) -> None:
        """Load one more topic, with so many partitions in all."""
        load = LastingLoad(self._cluster, [topic], partitions, RATE_PER_S * partitions)
        self._loads.append(self._stack.enter_context(load))

    @property
    def acked(self) -> list[Event]:
        """What brokers acknowledged."""
        return [event for load in self._loads for event in list(load.acked)]

    @property
    def unsure(self) -> int:
        """How many messages brokers refused."""
        return sum(load.unsure for load in self._loads)

    @property
    def running(self) -> bool:
        """True until `stop()`."""
        return any(load.running for load in self._loads)

    def grow(self, count: int, timeout_s: float = 30.0) -> None:
        """Return when `count` more messages are acknowledged."""
        wanted = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= wanted, timeout_s, f"{count} more messages", state=lambda: self.unsure)

    def stop(self) -> None:
        """End them all."""
        for load in self._loads:
            load.stop()


@dataclass
class MixedStage(Stage):
    """A group whose members named j1, j2 are Java's, and the others ours; with the cast "java" all are Java's."""

    settings: Mapping[str, object] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    most_again: int = 1  # messages that a Java member delivers and does not count as consumed when it releases
    first_death_ns: int = 0  # until then every partition was handed over in order

    def add_topic(self, topic: str, partitions: int) -> None:
        """Create a topic and load it; it has been watched since the start."""
        names = partitions_of(self.cluster, partitions)
        self.cluster.create_topic(topic, None if self.is_07 else partitions)
        self.places = [*self.places, *((topic, name) for name in names)]
        self.load.add(topic, len(names))  # type: ignore[attr-defined]

    def named(self, name: str) -> Player:
        """The member of a name that joined last."""
        return next(player for player in reversed(self.players) if player.name == name)

    def kind_of(self, name: str) -> str:
        """What kind of member has a name."""
        return "java" if self.is_java_alone or name.startswith("j") else "ours"

    # ---- changes

    def join(self, name: str, asked: Mapping[str, Any]) -> None:
        """A member joins; the clock runs from its registration, so that no start of a process is counted."""
        player = self._prepare(name, self.kind_of(name))
        ours = {"roundrobin.order": self.strategy.roundrobin_order} if player.kind == "ours" else {}
        player.launch(asked, 0, {**self.settings, **ours})
        wait_until(lambda: player.session_id(self.cluster.client), JOIN_S, f"{name} to register")
        self.mark()
        try:
            self._agree(f"{name} joins")
            player.wait_ready()
        except StartFailed as error:  # its first tries were used up
            if not self.is_java_alone:
                raise
            player.expected = False
            self.notes.append(str(error).splitlines()[0])

    def leave(self, name: str) -> None:
        """A member leaves in order."""
        player = self.named(name)
        self.mark()
        player.begin_to_leave()
        self._agree(f"{name} leaves")
        player.process.wait(30.0)

    def end_session(self, name: str) -> None:
        """The session of a member is ended behind its back."""
        self.limits = SESSION_ENDED
        self._mark_death()
        self.named(name).end_session()
        self._agree(f"session of {name} ended")

    def kill(self, name: str) -> None:
        """SIGKILL a member."""
        self._mark_death()
        self.named(name).kill()
        self._agree(f"kill -9 {name}", is_death=True)

    def come(self, topic: str, partitions: int) -> None:
        """A topic comes into being."""
        self.mark()
        self.add_topic(topic, partitions)
        self._agree("a topic comes")

    def _mark_death(self) -> None:
        self.mark()
        self.first_death_ns = self.first_death_ns or self.marked_ns

    def _agree(self, what: str, is_death: bool = False) -> None:
        self.changes.append(Change(what, self.wait_full(FULL_S), is_death))
        self._wait_consumed()

    def _wait_consumed(self) -> None:
        """Return when each partition that is owned has been committed once more; Java alone need not."""
        places = self.owner_names().keys()
        before = self.stored()
        try:
            wait_until(
                lambda: all(self.stored().get(place, -1) > before.get(place, -1) for place in places),
                10.0 if self.is_java_alone else 20.0, "each owned partition to be committed", state=self.stored,
            )  # fmt: skip
        except WaitTimeout:
            if not self.is_java_alone:
                raise

    # ---- what came of it

    def blamed(self) -> list[Finding]:
        """The violations of our members: none may be late as long as no session has been ended."""
        events, java = self.history(), self.java_names
        orderly = [event for event in events if event.time_ns < (self.first_death_ns or 2**63)]
        late = [each for each in blame(orderly, self.writes, java, UNGRACEFUL) if each.check == "zombie"]
        return [*late, *blame(events, self.writes, java, self.limits)]

    @property
    def gave_up(self) -> int:
        """How often Java members used up their tries."""
        return sum(player.gave_up for player in self.java)

    @property
    def failed_tries(self) -> int:
        """How many single tries of Java members failed; some are normal."""
        return sum(player.member.rebalance_failures for player in self.java if player.member)

    @property
    def java_names(self) -> set[str]:
        """The names of the Java members."""
        return {player.name for player in self.java}


def partitions_of(cluster: AnyCluster, count: int) -> list[int | str]:
    """The partitions of a topic: so many, and in Kafka 0.7 those that its brokers are set to."""
    if is_07(cluster.version):
        return sorted(f"{broker}-{number}" for broker in cluster.brokers for number in range(EACH_BROKER_07))
    return list(range(count))


@contextmanager
def mixed_cluster(version: str) -> Iterator[KafkaCluster]:
    """Real brokers for Java members of a version."""
    with ExitStack() as stack:
        if not is_07(version):
            yield stack.enter_context(KafkaCluster(version))
            return
        server = stack.enter_context(ZooKeeperServer(version=servers_of(version).zookeeper))
        settings = {"num.partitions": EACH_BROKER_07}
        yield stack.enter_context(KafkaCluster(version, BROKERS_07, zookeeper=server, settings=settings))


def strategy_of(version: str, name: str) -> Strategy:
    """A strategy as the Java members of a version follow it."""
    return Strategy(name, "1.0" if version_tuple(version) >= (1,) else "0.8")


@contextmanager
def open_mixed_stage(
    cluster: KafkaCluster,
    cast: str,
    strategy: str,
    topics: Mapping[str, int],
    later: Mapping[str, int],
    kind: type[MixedStage] = MixedStage,
) -> Iterator[MixedStage]:
    """New topics under load, without members yet. Those of `later` are watched, and not there yet."""
    group = f"group-{uuid.uuid4().hex[:12]}"
    watched: Sequence[Place] = [
        (topic, name) for topic, count in {**topics, **later}.items() for name in partitions_of(cluster, count)
    ]
    settings = {} if strategy == "range" else {"partition.assignment.strategy": strategy}  # 0.8.0 has no other
    with ExitStack() as stack:
        watch = stack.enter_context(GroupWatch(cluster.zookeeper_connect, group, watched))
        stage = kind(
            servers_of(cluster.version), cast, cluster, group, "", [], [watch],
            TopicLoads(cluster, stack), Setup(), stack,  # type: ignore[arg-type]
            strategy=strategy_of(cluster.version, strategy), settings=settings,
        )  # fmt: skip
        for topic, partitions in topics.items():
            stage.add_topic(topic, partitions)
        try:
            yield stage
        except BaseException:
            for player in stage.players:
                player.complain()
            raise
        finally:
            stage.close()
