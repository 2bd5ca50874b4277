"""The interface between the simulated world and a member: what a member gets, and what the world calls. Pure.

A member of either kind (`ours`, `java`) is built as `Kind(spec, surroundings)` and has the interface `Actor`. It acts
only through `surroundings.process.after` and through callbacks of its port and of the brokers, so a pause or a kill
of its process needs no code in the member. `surroundings.record` records what it does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from rebalance.zookeeper.port.requests import ZooKeeperPort
from zkconsumer.testing.history import Place

if TYPE_CHECKING:
    from tests.simulator.brokers import Brokers
    from tests.simulator.process import Process

__all__ = ["Actor", "MemberSpec", "Owned", "Record", "Surroundings"]


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as a plan describes it; numbers, words and tuples only, so that it can be written as JSON.

    Attributes:
        name: its `consumer.id`; the id in the group is `<group>_<name>`.
        kind: "ours" or "java".
        topics: (topic, streams) for each topic; empty with a filter.
        whitelist: a filter, with `streams` streams.
        strategy: `partition.assignment.strategy`.
        order: of roundrobin: `roundrobin.order` of a member of ours, empty for its default; of a Java member "0.8", the
            same as empty, or "1.0".
        storage: where its offsets are: "zookeeper", "kafka", or "dual" for both; empty: in ZooKeeper, and the cluster
            keeps none in Kafka.
        intent: `offsets.intent` of a member of ours, empty for its default.
        session_s: asked for; the ensemble may grant another.
        auto_commit_s: `auto.commit.interval.ms`, 0 for an application that commits itself.
        reset: `auto.offset.reset`.
        work_s: the application takes up to that long for a message.
        commit_every: without auto-commit: `commit_offsets()` after so many messages of a stream.
        commits_when_revoked: without auto-commit: the listener commits what is revoked.
        drain_s: `rebalance.drain.timeout.ms`.
        max_processing_s: `max.processing.interval.ms`, 0 for off.
        backoff_s, max_retries: `rebalance.backoff.ms` and `rebalance.max.retries`.
    """

    name: str
    kind: str = "ours"
    topics: tuple[tuple[str, int], ...] = ()
    whitelist: str = ""
    streams: int = 1
    strategy: Literal["range", "roundrobin"] = "range"
    order: Literal["", "auto", "0.8", "1.0"] = ""
    storage: Literal["", "zookeeper", "kafka", "dual"] = ""
    intent: Literal["", "max", "zookeeper", "kafka", "refuse"] = ""
    session_s: float = 6.0
    auto_commit_s: float = 1.0
    reset: Literal["smallest", "largest"] = "smallest"
    work_s: float = 0.02
    commit_every: int = 5
    commits_when_revoked: bool = True
    drain_s: float = 3.0
    max_processing_s: float = 0.0
    backoff_s: float = 2.0
    max_retries: int = 4


class Record(Protocol):
    """Records an event of this member, see `zkconsumer.testing.history`; time and member are added.

    The topic is that of a message's `place` (`tests.simulator.brokers`), which distinguishes a topic that was
    deleted and created again from its earlier incarnation; `Brokers.place` gives it for a partition.
    """

    def __call__(self, kind: str, place: Place = ("", -1), offset: int = -1, message_id: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a member gets from the world.

    Attributes:
        group: the name of the group.
        process: where it lives; one member a process.
        port: its way to ZooKeeper, not started.
        brokers: where it fetches.
        rng: its own, for jitter, work and whatever else it draws.
        record: records its events.
        wall_clock_ms: a clock that jumps.
        second_port: makes a port for a second session, which Java members of Kafka 0.7 with a filter have.
    """

    group: str
    process: Process
    port: ZooKeeperPort
    brokers: Brokers
    rng: random.Random
    record: Record
    wall_clock_ms: Callable[[], int]
    second_port: Callable[[], ZooKeeperPort] | None = None


Owned: TypeAlias = Mapping[Place, str]
"""(topic, partition) -> thread id."""


class Actor(Protocol):
    """A member, of either kind, as the world sees it. It is not called while its process is paused or gone."""

    spec: MemberSpec
    consumer_id: str
    has_left: bool

    def start(self) -> None:
        """Join the group; once."""

    def leave(self, wait_s: float | None = None) -> None:
        """Start to leave in order (`shutdown(wait_s)`); a second call does nothing."""

    @property
    def has_ended(self) -> bool:
        """Whether it has left or failed, and does not come back. The world may end its process then."""

    @property
    def is_at_rest(self) -> bool:
        """Whether it takes part and has nothing under way: no rebalance, no claim, no release."""

    def owned(self) -> Owned:
        """The partitions that it believes to own and fetches."""

    def slow_down(self, work_s: float, until_s: float) -> None:
        """Let its application take `work_s` for each message that is started before the virtual time `until_s`."""

    def hold_up(self, until_s: float) -> None:
        """Suspend its coordinator's thread until the virtual time `until_s`; its other threads go on."""

    def states(self, place: Place | None = None) -> frozenset[str]:
        """The states of its state machines, or of that of one (topic, partition); a Java member has none."""

    def warnings(self) -> frozenset[str]:
        """What it says is wrong with the group; a Java member only logs."""

    def when_moved(self, call: Callable[[], None]) -> None:
        """Have `call` run whenever its states may have changed."""

    def describe(self) -> str:
        """One line for a trace: state, what it owns, what it waits for."""
