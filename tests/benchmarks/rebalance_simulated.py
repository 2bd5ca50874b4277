"""The crowd of the benchmark `rebalance.py` in the simulated world: the same code, in virtual time."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port import requests as r
from tests.benchmarks.rebalance_phases import Crowd, Node, assigned, at_rest_per_s
from tests.simulator import MemberSpec, Plan, World
from tests.simulator.java_member import JavaMember
from tests.simulator.plan import GROUP

TOPIC = "t"
LOOK_S = 0.1
QUIET_S = 3.0
LONGEST_S = 400.0
KINDS = {
    r.Exists: "exists", r.GetData: "get", r.GetChildren: "children", r.Create: "create", r.SetData: "set",
    r.Delete: "delete", r.Sync: "sync", r.Check: "check",
}  # fmt: skip


class _Counting:
    """Hears of everything that happens, and counts what is asked."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def tell(self, who: str, what: str, about: object) -> None:
        if what == "asks":
            for part in about.operations if isinstance(about, r.Multi) else (about,):
                self.counts[KINDS[type(part)]] += 1

    def event(self, event: object) -> None:
        """Nothing to count."""


class SimulatedCrowd:
    """See `rebalance_phases.Crowd`."""

    def __init__(self, arguments: argparse.Namespace, names: Sequence[str]) -> None:
        self.partitions = arguments.partitions
        self.session_s = arguments.session_s
        self.present: set[str] = set()
        members = tuple(
            MemberSpec(name, arguments.cast, topics=((TOPIC, 1),), session_s=self.session_s, auto_commit_s=60.0)
            for name in names
        )
        plan = Plan(members, ((TOPIC, self.partitions),), (), message_every_s=1e6, faults_s=1e9)
        self._world = World(plan, arguments.seed, JavaMember)
        self._counting = _Counting()
        self._world.listener = self._counting
        self._gave_up = 0
        self._world.start()
        while any(self._world.brokers.leader(TOPIC, each) is None for each in range(self.partitions)):
            self.rest(1.0)
        self.forget()
        self._changed_s = self.now_s

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._world.schedule.now

    def change(self, join: Sequence[str] = (), leave: Sequence[str] = (), kill: Sequence[str] = ()) -> None:
        """Begin a change."""
        for name in (*kill, *leave):
            found = self._world.living(name)
            assert found is not None, name
            if name in kill:
                self._world.kill(found)
            else:
                found.actor.leave()
        self.present = self.present - {*kill, *leave} | {*join}
        for name in join:
            self._world.join(name)
        self._changed_s = self.now_s

    def settle(self) -> tuple[float | None, float]:
        """Run on until the table is there, and until nobody asks but to prove a session."""
        wanted = assigned(sorted(self.present), self.partitions, GROUP)
        seconds = None
        while self.now_s < self._changed_s + LONGEST_S:
            self.rest(LOOK_S)
            if {partition: node.thread_id for partition, node in self.table().items()} == wanted:
                seconds = self.now_s - self._changed_s
                break
        self._quieten()
        return seconds, self.now_s - self._changed_s

    def _quieten(self) -> None:
        usual = QUIET_S * at_rest_per_s(len(self.present), self.partitions, self.session_s)
        deadline_s = self.now_s + LONGEST_S
        while self.now_s < deadline_s:
            before = self._counting.counts.total()
            self.rest(QUIET_S)
            if self._counting.counts.total() - before <= 2 + 2 * usual:
                return

    def rest(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._world.schedule.run(self.now_s + seconds)

    def table(self) -> dict[int, Node]:
        """The owner nodes."""
        found = {}
        for partition in range(self.partitions):
            node = self._world.zookeeper.read(znodes.owner_path(GROUP, TOPIC, partition))
            if node is not None:
                found[partition] = Node(node[0].decode(), node[1].czxid)
        return found

    def forget(self) -> None:
        """Count anew."""
        self._counting.counts.clear()
        self._gave_up = self._all_gave_up()

    def requests(self) -> Counter[str]:
        """What was asked."""
        return Counter(self._counting.counts)

    def _all_gave_up(self) -> int:
        actors = [each.actor for each in self._world.participants.values()]
        return sum(actor.gave_up for actor in actors if isinstance(actor, JavaMember))

    def gave_up(self) -> int:
        """How often since then."""
        return self._all_gave_up() - self._gave_up


@contextmanager
def simulated_crowd(arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[Crowd]:
    """A crowd of nobody."""
    logging.disable(logging.WARNING)
    yield SimulatedCrowd(arguments, names)
