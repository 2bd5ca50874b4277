"""Runs one plan, from the first member to the checks of its history."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from rebalance.zookeeper.roundrobin_order import ORDERS
from rebalance.zookeeper.waits import RebalanceTimes
from tests.simulator.brokers_07 import BROKER_SESSION_S
from tests.simulator.group_nodes import owner_nodes, registrations, should_own
from tests.simulator.java_member import JavaMember
from tests.simulator.member import OurMember
from tests.simulator.participant import Participant
from tests.simulator.plan import Plan
from tests.simulator.schedule import SimulationStuck
from tests.simulator.stage import ActorBuilder
from tests.simulator.start_positions import find_start_positions
from tests.simulator.stepping import PlannedFault
from tests.simulator.trace import Trace, tree_lines
from tests.simulator.world import World
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.checks import NS, Finding, Limits, check_history
from zkconsumer.testing.history.groups import check_group, check_leaves, find_wrong_owners
from zkconsumer.testing.history.limits import node_of, was_troubled

__all__ = ["Run", "simulate", "trace_run"]

CONVERGE_S: Final = 6.0
"""Longest time until every member owns what it should, once the sessions of dead members are over."""
JAVA_S: Final = 30.0
"""What a Java member may add: its tries, and its restart by an operator if it gave up or waits for its old session."""
CONSUME_S: Final = 30.0
CALM_S: Final = 4.0
QUIET_S: Final = 1.5
"""The last commit was written so long before the end of the calm."""
_LOOK_S: Final = 0.25
_REQUESTS: Final = 30
_REQUESTS_A_PARTITION: Final = 8
_REQUESTS_A_CONNECTION: Final = 6
_READS_OF_AN_OWNER: Final = 3
_READS_OF_THE_ORDER: Final = 4
"""How often within a second the owner of each partition is read to learn the order of roundrobin: after each change."""
_BUSY_SECONDS: Final = 3
"""Of ten seconds, how many may be as busy as a second may be."""
_FOLLOWER_LAG_S: Final = 0.05
"""A server that lags a little answers, and its client delivers, until it learns that the session is over."""
_LAG_S: Final = 2.0
"""How far a server may lag when a plan says so."""
_MOST_STEPS: Final = 2_000_000
_UNCLAIMED_S: Final = 3.0
"""Longer than a burst of changes can delay claims, shorter than the rounds for changes that no watch reports."""
_SETTLE_S: Final = 0.049
"""The least that a member waits with `rebalance.quiet.ms` as it is, by a clock that may be a little slow."""


@dataclass(slots=True)
class Run:
    """What came of one run.

    Attributes:
        healed_s, converged_s: when everything was healed, and when the group had its final table (None: never).
        steps: events of the schedule.
        limits: those that the history was checked against; `count_allowed_repeats` counts with them.
    """

    plan: Plan
    seed: int | str
    findings: list[Finding]
    history: list[Event]
    healed_s: float
    converged_s: float | None
    steps: int
    limits: Limits


def simulate(plan: Plan, seed: int | str, java: ActorBuilder = JavaMember) -> Run:
    """Run a plan with the random numbers of a seed, and check its history."""
    with _quiet():
        return _Runner(World(plan, seed, java)).run()


def trace_run(plan: Plan, seed: int | str, java: ActorBuilder = JavaMember) -> tuple[Run, list[str]]:
    """The same run, and all that happened in it as lines of text, with the group's nodes at the end."""
    world = World(plan, seed, java)
    with Trace() as trace:
        trace.listen(world)
        run = _Runner(world).run()
    return run, [*trace.lines, "", *tree_lines(world)]


class _Runner:
    def __init__(self, world: World) -> None:
        self.world = world
        self.findings: list[Finding] = []
        self.healed_s = 0.0
        self.converged_s: float | None = None
        self._is_order_named = False

    def run(self) -> Run:
        world = self.world
        try:
            self._play()
        except SimulationStuck as error:
            self._found("stuck", str(error))
        self._check_history()
        return Run(
            world.plan,
            world.seed,
            self.findings,
            world.history,
            self.healed_s,
            self.converged_s,
            world.schedule.steps,
            self._limits(),
        )

    def _found(self, check: str, sentence: str) -> None:
        self.findings.append(Finding(check, sentence))

    # -- the three parts --------------------------------------------------------------------------------------------

    def _play(self) -> None:
        world = self.world
        world.start()
        self._run_until_healed()
        world.heal()
        self.healed_s = world.schedule.now
        deadline_s = self.healed_s + self._longest_s()
        while self._settle(deadline_s):
            owners = self._owners()
            self._run_until(world.schedule.now + CALM_S)
            if self._owners() == owners and (self._is_quiet() or world.schedule.now > deadline_s):
                self._check_quiet()
                return
            if world.schedule.now > deadline_s:
                self._found("not calm", f"owners go on changing, from {owners} to {self._owners()}")
                return

    def _run_until_healed(self) -> None:
        schedule = self.world.schedule
        healed_s = schedule.now + self.world.plan.faults_s
        while schedule.now < healed_s:
            self._run_until(min(schedule.now + _LOOK_S, healed_s))

    def _longest_s(self) -> float:
        """How long it may take from the moment when everything is healed."""
        settings = self.world.zookeeper.settings
        session_s = max(settings.granted_s(each.session_s) for each in self.world.plan.members)
        longest_s = session_s + 2 * settings.tick_s + CONVERGE_S
        if self.world.plan.generation == "0.7":
            longest_s += settings.granted_s(BROKER_SESSION_S) + 2 * settings.tick_s
        if self._has_java:
            longest_s += session_s + JAVA_S
        if "closed" in self.world.done_kinds:
            longest_s += RebalanceTimes().refused_max_s
        # Clients of a ZooKeeper that has lost its data insist on their old session for so long.
        return longest_s + 2 * session_s if "wipe" in self.world.done_kinds else longest_s

    def _is_quiet(self) -> bool:
        """Whether waiting is useless: no member has written lately, or only members that no fault delayed."""
        now_ns, since_ns = self.world.now_ns, self.world.now_ns - int(CALM_S * NS)
        return not any(was_troubled(each.name, since_ns, now_ns, self._limits()) for each, _ in self._late_writers())

    def _check_quiet(self) -> None:
        """Idle members write nothing."""
        for each, late in self._late_writers():
            self._found("not quiet", f"{each.name} had nothing to do, and wrote {late}")

    def _late_writers(self) -> Iterator[tuple[Participant, dict[int, int]]]:
        """The members of ours that have written in the last seconds, with their number of writes in each second."""
        from_second = int(self.world.schedule.now - QUIET_S)
        for each in self.world.all_living():
            # A registration alone counts nothing: the session may have ended late.
            late = {second: count for second, count in each.watched.writes.items() if second > from_second and count}
            if late and each.spec.kind == "ours":
                yield each, late

    def _settle(self, deadline_s: float) -> bool:
        """Whether every member owns what it should, and everything is delivered, in time."""
        if not self._wait(self._is_converged, deadline_s):
            self._found("not converged", self._state())
            return False
        if self.converged_s is None:
            self.converged_s = self.world.schedule.now
            self._run_until(self.converged_s + 1.0)
            self.world.finish_producing()
        if not self._wait(self._is_consumed, max(deadline_s, self.world.schedule.now + CONSUME_S + self._backlog_s())):
            self._found("not consumed", self._state())
            return False
        return True

    @property
    def _has_java(self) -> bool:
        return any(each.kind == "java" for each in self.world.plan.members)

    def _run_until(self, moment_s: float) -> None:
        schedule = self.world.schedule
        if schedule.steps > _MOST_STEPS:
            raise SimulationStuck(f"{schedule.steps} events by {schedule.now:.1f} s")
        schedule.run(moment_s)
        self._check_orders_named()

    def _check_orders_named(self) -> None:
        """Without Java members nothing is said of the order of roundrobin: all members of ours have the same."""
        if self._has_java or self._is_order_named:
            return
        for each in self.world.all_living():
            named = [text for text in each.actor.warnings() if "roundrobin" in text and "order" in text]
            if named:
                self._is_order_named = True
                self._found("order named", f"{each.name} at {self.world.schedule.now:.3f} s: {named[0]}")
                return

    def _wait(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        while not condition():
            if self.world.schedule.now >= deadline_s:
                return False
            self._run_until(self.world.schedule.now + _LOOK_S)
        return True

    # -- the state of the group ---------------------------------------------------------------------------------------

    def _is_converged(self) -> bool:
        world = self.world
        living = list(world.all_living())
        if not world.brokers.is_settled or not living:
            return False
        if not all(each.is_well and each.actor.is_at_rest for each in living):
            return False
        if {each.actor.consumer_id for each in living} != registrations(world.zookeeper).keys():
            return False
        return not self._wrong_owners() and self._owned_by_members() == self._owners()

    def _owned_by_members(self) -> dict[Place, str]:
        topics = self.world.brokers.partitions
        return {
            place: thread
            for each in self.world.all_living()
            for place, thread in each.actor.owned().items()
            if place[1] in topics.get(place[0], ())
        }

    def _backlog_s(self) -> float:
        """How long one stream would work on all that is not done."""
        brokers = self.world.brokers
        left = sum(
            brokers.left(topic, number, self.world.done_to(brokers.place(topic, number)))
            for topic, number in self._owners()
        )
        return left * max(each.work_s for each in self.world.plan.members)

    def _is_consumed(self) -> bool:
        world = self.world
        return all(
            world.done_to(world.brokers.place(topic, number)) >= (world.brokers.ends(topic, number) or (0, 0))[1]
            for topic, number in self._owners()
        )

    def _owners(self) -> dict[Place, str]:
        return owner_nodes(self.world.zookeeper, self.world.brokers)

    def _wrong_owners(self) -> list[Finding]:
        world = self.world
        wrong = []
        # Beside Java members the order is either one, alike in all members; without them it is that of 0.8.
        has_living_java = any(each.spec.kind == "java" for each in world.all_living())
        for order in ORDERS if has_living_java else ORDERS[:1]:
            rightful = should_own(world.zookeeper, world.brokers, world.plan.members[0].strategy, order)
            if rightful is None:
                return []  # The rule says nothing: every member keeps what it owns.
            wrong.append(find_wrong_owners(self._owners(), rightful))
        return min(wrong, key=len)

    def _state(self) -> str:
        lines = [each.actor.describe() for each in self.world.all_living()]
        lines += [f"{finding}" for finding in self._wrong_owners()]
        return "; ".join(lines)

    # -- the checks -------------------------------------------------------------------------------------------------

    def _check_history(self) -> None:
        world = self.world
        for each in world.participants.values():
            failure = getattr(each.actor, "failure", None)
            if failure is not None and not isinstance(failure, PlannedFault):
                lines = "".join(traceback.format_exception(failure))
                self._found("failed", f"the coordinator of {each.name} failed: {lines}")
        for each in world.participants.values():
            for sentence in each.actor.strays[:1] if isinstance(each.actor, OurMember) else ():
                self._found("wrong stream", sentence)
        for name in world.outliving:
            self._found("session not closed", f"the session of {name} outlived its coordinator")
        limits = self._limits()
        self.findings += check_history(world.history, limits)
        # A member that may not read what others have read claims nothing, and the others do.
        hidden = replace(limits, troubles=[*limits.troubles, *world.hidden_times])
        self.findings += check_group([*world.history, *self._requests()], hidden)
        self.findings += check_leaves(world.history)

    def _requests(self) -> list[Event]:
        """How much each member of ours asked for in each second, and how often it was connected in it."""
        ours = [each for each in self.world.participants.values() if each.spec.kind == "ours"]
        return [
            Event((second + 1) * NS, "connected", each.name, offset=count)
            for each in ours
            for second, count in each.watched.connections.items()
        ] + [
            Event((second + 1) * NS, "requests", each.name, offset=count, id=what)
            for each in ours
            for what, counts in (("reads", each.watched.reads), ("writes", each.watched.writes))
            for second, count in counts.items()
            # An application that commits itself writes as often as it likes.
            if what == "reads" or each.spec.auto_commit_s
        ]

    def _start_positions(self) -> dict[Place, int]:
        starts = find_start_positions(self.world.history, self.world.brokers.created_s)
        for place, offset in (*self._java_positions().items(), *self._starts_in_other_logs().items()):
            starts[place] = max(starts.get(place, 0), offset)
        return starts

    def _starts_in_other_logs(self) -> dict[Place, int]:
        """Where members started in the log that a broker of Kafka 0.7 has come back with.

        Only one that had delivered the last entry of the old log can know that it is another one; it starts anew. One
        that had read nothing since its start, or since a reset, goes on at the entry that is at its position now.
        """
        found: dict[Place, int] = {}
        if self.world.plan.generation != "0.7":
            return found
        waiting: set[tuple[str, Place]] = set()
        known: dict[tuple[str, Place], tuple[Place, int]] = {}
        unread: dict[tuple[str, Place], tuple[Place, int]] = {}
        reset_to: dict[tuple[str, Place], int] = {}
        entries = self.world.brokers.entries
        for event in self.world.history:
            key, node = (event.member, event.place), (event.member, node_of(event.place))
            if event.kind in ("reset", "deliver"):
                place, position = unread.pop(node, (event.place, 0))
                if place != event.place and event.offset == entries.start_of(event.place, position):
                    found[event.place] = max(found.get(event.place, 0), event.offset)
            if event.kind in ("assigned", "reset"):
                unread[node] = (event.place, event.offset)
            if event.kind == "reset":
                reset_to[key] = event.offset
                if known.get(node, ("", 0))[0] == event.place:
                    del known[node]  # what was delivered is not before its position any more
            if event.kind == "assigned" and event.topic in self.world.brokers.reborn:
                before = known.get(node)
                if before is None or before[0] == event.place or before[1] != event.offset:
                    waiting.add(key)
            elif event.kind == "deliver":
                if key in waiting:
                    waiting.discard(key)
                    found[event.place] = max(found.get(event.place, 0), event.offset)
                if event.offset >= reset_to.get(key, 0):  # else it was in hand, or queued, when that was found out
                    known[node] = (event.place, entries.of(event.place, event.offset).end)
        return found

    def _java_positions(self) -> dict[Place, int]:
        """For topics that were created again: where Java members went on and committed as if in the old incarnation."""
        world = self.world
        java = {name for name, each in world.participants.items() if each.spec.kind != "ours"}
        found: dict[Place, int] = {}
        delivers: set[tuple[str, Place]] = set()
        for event in world.history:
            if event.member not in java or event.topic not in world.brokers.reborn:
                continue
            key = (event.member, event.place)
            if event.kind == "offset_node" or (event.kind == "deliver" and key not in delivers):
                found[event.place] = max(found.get(event.place, 0), event.offset)
            if event.kind == "deliver":
                delivers.add(key)
        return found

    def _unread(self) -> dict[Place, int]:
        """How far the partitions were read that no member reads any more."""
        world = self.world
        owned = {world.brokers.place(*place) for place in self._owners()}
        return {
            event.place: world.delivered_to(event.place)
            for event in world.history
            if event.kind == "acked" and event.place not in owned
        }

    def _limits(self) -> Limits:
        world = self.world
        members = world.plan.members
        settings = world.zookeeper.settings
        session_s = max(settings.granted_s(each.session_s) for each in members)
        partitions = len(world.brokers.created_s)
        busy = _REQUESTS + _REQUESTS_A_PARTITION * partitions
        if self._has_java and members[0].strategy == "roundrobin":
            busy += _READS_OF_THE_ORDER * partitions
        return Limits(
            repeat_before_end_s=max(each.auto_commit_s for each in members) + 1.0,
            zombie_slack_s=_FOLLOWER_LAG_S,
            entries=world.brokers.entries,
            orphan_s=self._longest_s() + CONSUME_S,
            begin=self._start_positions(),
            end=self._unread(),
            drain_s=min(each.drain_s for each in members) - 0.001,
            reset_to_end=any(each.reset == "largest" for each in members),
            told_late_s=session_s * 2 / 3 + 0.1,
            troubles=world.troubles,
            blind_spots=world.blind_spots,
            unstorable=world.unstorable,
            commits_fenced=not world.is_stored_in_kafka,
            blind_s=session_s + settings.sync_limit * settings.tick_s + _LAG_S,
            reborn=frozenset(
                each.topic for each in world.history if each.topic in world.brokers.reborn or "wipe" in world.done_kinds
            ),
            by_hand=frozenset(name for name, each in world.participants.items() if not each.spec.auto_commit_s),
            unfenced=frozenset(name for name, each in world.participants.items() if each.spec.kind != "ours"),
            disputed=frozenset(world.due.disputed) if self._has_java else frozenset(),
            requests_a_second=busy,
            requests_in_ten_s=_BUSY_SECONDS * busy,
            requests_a_connection=_REQUESTS_A_CONNECTION + _READS_OF_AN_OWNER * partitions,
            calm_ns=int(self.healed_s * 1e9),
            settle_s=_SETTLE_S,
            # A member that leaves the group is registered until all that it owned is drained.
            unclaimed_s=_UNCLAIMED_S + max((each.drain_s for each in members if each.max_processing_s), default=0.0),
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """No log of the production code: thousands of runs would write millions of lines."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
