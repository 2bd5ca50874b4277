"""ZooKeeper, brokers and members of a simulated world, the operations on them, and the history of what they did.

The times of the history are those of the virtual clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from rebalance.zookeeper.snapshot import Strategy
from rebalance.zookeeper.waits import RebalanceTimes
from tests.simulator.actor import Actor, MemberSpec, Surroundings
from tests.simulator.assignment_watch import AssignmentWatch
from tests.simulator.brokers import Brokers
from tests.simulator.brokers_07 import Brokers07
from tests.simulator.controller import Controller
from tests.simulator.group_nodes import owner_nodes, registrations, should_own
from tests.simulator.java_member import JavaMember
from tests.simulator.java_zkclient import java_port
from tests.simulator.member import OurMember
from tests.simulator.participant import Participant, WallClock
from tests.simulator.plan import GROUP, Plan, Step
from tests.simulator.port import PortSettings, SimulatedPort
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule
from tests.simulator.tree_watch import TreeWatch
from tests.simulator.watched_port import WatchedPort
from tests.simulator.zookeeper import SimulatedZooKeeper
from tests.simulator.zookeeper_connection import Record
from tests.simulator.zookeeper_ensemble import ZooKeeperSettings
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.checks import NS, OPERATOR, Trouble

__all__ = ["ActorBuilder", "Listener", "Stage"]

_CLOSED_S: Final = 0.4
"""How long after its coordinator has failed a member's session is over, if its server can be reached."""
_SETTLE_S: Final = 2.0
_RESTART_S: Final = 1.0
_NOTICED_S: Final = 3.0
_NOTICED_BUSY_S: Final = 12.0
"""A Java member that still has tries left may yet own what it should."""
_OPERATOR_RETRY_S: Final = 0.2
_RECOVERY_S: Final = 3.0
"""After a fault, until commits go through again."""

ActorBuilder = Callable[[MemberSpec, Surroundings], Actor]


class Listener(Protocol):
    """Receives all that happens."""

    def event(self, event: Event) -> None: ...

    def step(self, step: Step) -> None: ...

    def report(self, who: str, what: str, about: object) -> None: ...


class Stage:
    """All there is in one run, and what can be done to it.

    Args:
        plan: who and what.
        seed: of the random numbers; together with the plan it determines the whole run.
        java: builds a Java member.

    Attributes:
        is_stored_in_kafka: whether all members write their offsets there, and none prefers ZooKeeper's.
        when_joined: called with each process before its member starts.
        listener: receives all that happens.
    """

    def __init__(self, plan: Plan, seed: int | str, java: ActorBuilder = JavaMember) -> None:
        self.plan = plan
        self.seed = seed
        self.history: list[Event] = []
        self.schedule = Schedule(self.rng("order"))
        self.zookeeper = SimulatedZooKeeper(
            self.schedule, self.rng("zookeeper"), plan.servers, ZooKeeperSettings(tick_s=plan.tick_s)
        )
        self._builders: dict[str, ActorBuilder] = {"ours": OurMember, "java": java}
        controller = Process(self.schedule, self.rng("controller"), "controller")
        self.controller_port = self.zookeeper.port(controller, PortSettings(session_timeout_s=6.0))
        self.controller = Controller(controller, self.controller_port)
        self.brokers = self._build_brokers()
        self.brokers.on_rebirth = self._topic_recreated
        # Of two stores, the one that all members write is the one that the checks follow.
        self.is_stored_in_kafka = all(each.storage in ("kafka", "dual") for each in plan.members) and not any(
            each.intent == "zookeeper" for each in plan.members
        )
        self.brokers.offsets.on_stored = self._offset_stored
        self._set_by_operator: dict[Place, int] = {}
        self.participants: dict[str, Participant] = {}
        self._names: dict[SimulatedPort, str] = {}
        self._sessions: dict[int, str] = {}
        self.ended_from_outside: set[int] = set()
        self.tree = TreeWatch(GROUP, self.member_of, self.brokers.place, self._tree_event, self._end_of)
        self.due = AssignmentWatch(
            GROUP, Strategy(plan.members[0].strategy), self.member_of, self.brokers.place,
            lambda member, place, order: self.write("due", member, place, message_id=order), self.brokers.generation,
        )  # fmt: skip
        self.zookeeper.observe(self._observe)
        self._produces = True
        self._reached: dict[tuple[str, Place], int] = {}
        self.troubles: list[Trouble] = []
        self.blind_spots: list[Trouble] = []
        self.hidden_times: list[Trouble] = []
        self.unstorable: list[Trouble] = []
        self._undos: dict[int, Callable[[], None]] = {}
        self._undo_serial = 0
        self.done_kinds: dict[str, int] = {}
        self._started_s = 0.0
        self._is_healed = False
        self._wrong_since: dict[str, float] = {}
        self._failing: set[str] = set()
        self.outliving: list[str] = []
        self.listener: Listener | None = None
        self._watch: list[object] | None = None
        self._incarnations: dict[str, int] = {}
        self.when_joined: Callable[[Participant], None] = lambda participant: None

    def rng(self, name: str) -> random.Random:
        """Random numbers of their own for each part: a change in one part changes no draw of another."""
        return random.Random(f"{self.seed}/{name}")

    def _build_brokers(self) -> Brokers:
        if self.plan.generation == "0.7":
            return Brokers07(
                self.schedule, self.rng("brokers"), self.controller, self._broker_event, self.zookeeper, self.rng
            )
        return Brokers(self.schedule, self.rng("brokers"), self.controller, self._broker_event)

    # -- the history ------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The present moment, as in events."""
        return int(self.schedule.now * NS)

    def write(
        self, kind: str, member: str = "", place: Place = ("", -1), offset: int = -1, message_id: str = ""
    ) -> None:
        """Append an event at the present moment."""
        if kind in ("deliver", "done"):
            self._reach(kind, place, self.brokers.entries.behind(place, offset) if kind == "done" else offset + 1)
        elif kind == "reset":
            # No member will be done with what it passes over: nothing more is due before it.
            self._reach("done", place, offset)
        event = Event(self.now_ns, kind, member, place[0], place[1], offset, message_id)
        self.history.append(event)
        if self.listener is not None:
            self.listener.event(event)

    def _reach(self, kind: str, place: Place, offset: int) -> None:
        self._reached[kind, place] = max(self._reached.get((kind, place), 0), offset)

    def _broker_event(self, kind: str, place: Place, offset: int, message_id: str = "") -> None:
        self.write(kind, "", place, offset, message_id)

    def _topic_recreated(self, topic: str, partitions: Iterable[int | str]) -> None:
        """In the history the topic is another one from now on: record which members own nothing of it any more."""
        self.due.report_changes()
        for number in partitions:
            holder = self.tree.holder(topic, number)
            for each in self.all_living():
                if each.name != holder:
                    self.write("owner_gone", each.name, self.brokers.place(topic, number), -1, OPERATOR)

    def _tree_event(self, kind: str, member: str, place: Place, offset: int, who: str) -> None:
        if kind not in ("offset_node", "commit") or not self.is_stored_in_kafka:
            self.write(kind, member, place, offset, who)

    def _offset_stored(self, member: str, partition: Place, offset: int) -> None:
        # An owner that an operator's offset has put outside the log stores it once more before it takes the reset.
        is_unchanged = bool(member) and self._set_by_operator.pop(partition, None) == offset
        if not member or is_unchanged:
            self._set_by_operator[partition] = offset
        if self.is_stored_in_kafka and not is_unchanged:
            place = self.brokers.place(*partition)
            self.write("offset_node", member, place, offset, "" if member else OPERATOR)
            if member:
                self.write("commit", member, place, offset)

    def _observe(self, record: Record) -> None:
        if record.opened is not None:
            client = record.opened.client
            if isinstance(client, SimulatedPort):
                self._sessions[record.session_id] = self._names.get(client, "")
        if record.changes:
            self.tree.observe(record)
            self.due.observe(record)

    def member_of(self, session_id: int) -> str:
        """The member whose session it is, as the history names it; "" for none."""
        return self._sessions.get(session_id, "")

    def _end_of(self, session_id: int) -> str:
        if session_id in self.ended_from_outside:
            return "ended"
        member = self.participants.get(self.member_of(session_id))
        return "closed" if member is not None and member.actor.has_ended else "expired"

    # -- members ----------------------------------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Start a process of a member, unless one is there."""
        specs = [each for each in self.plan.members if each.name == name]
        if not specs or self.living(name) is not None:
            return
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        spec = specs[(number - 1) % len(specs)]
        label = name if number == 1 else f"{name}.{number}"
        rng = self.rng(label)
        process = Process(
            self.schedule, rng, label, clock_offset_s=rng.uniform(0, 1e5), clock_rate=rng.uniform(0.9999, 1.0001)
        )
        settings = java_port(spec.session_s) if spec.kind == "java" else PortSettings(session_timeout_s=spec.session_s)
        port = self.zookeeper.port(process, settings)
        self._names[port] = label
        wall_clock = WallClock(self.schedule)
        watched = WatchedPort(label, port, self.schedule)
        if self.listener is not None:
            watched.report = self.listener.report

        def record(kind: str, place: Place = ("", -1), offset: int = -1, message_id: str = "") -> None:
            self.write(kind, label, place, offset, message_id)

        surroundings = Surroundings(
            GROUP, process, watched, self.brokers, rng, record, wall_clock,
            lambda: self.zookeeper.port(process, settings),
        )  # fmt: skip
        actor = self._builders[spec.kind](spec, surroundings)
        participant = self.participants[label] = Participant(label, spec, process, port, watched, actor, wall_clock)
        if isinstance(actor, OurMember):
            actor.when_failed = lambda: self.coordinator_failed(participant)
        elif isinstance(actor, JavaMember):
            actor.when_failed = lambda: self._application_failed(participant)
        self.when_joined(participant)
        actor.start()

    def living(self, name: str) -> Participant | None:
        """The present process of a member, None if it has none."""
        number = self._incarnations.get(name, 0)
        label = name if number == 1 else f"{name}.{number}"
        found = self.participants.get(label)
        return None if found is None or found.process.is_gone else found

    def all_living(self) -> Iterator[Participant]:
        """All participants whose process is there."""
        return (each for each in self.participants.values() if not each.process.is_gone)

    def kill(self, participant: Participant) -> None:
        """End a process abruptly."""
        if not participant.process.is_gone:
            self.write("killed", participant.name)
            participant.process.kill()

    def _watch_over(self) -> None:
        """Supervise: a process whose member has left ends; one whose member failed is started again.

        When everything is healed and no member is left, one comes back.
        """
        for each in list(self.all_living()):
            if each.process.is_paused:
                continue
            failed = each.actor.has_ended and not each.actor.has_left
            if each.name in self._failing:
                continue  # its process lives a little longer, and its session should not
            if each.actor.has_ended or self._is_stuck(each):
                self.kill(each)
                if failed or self._is_healed:
                    self.schedule.after(_RESTART_S, self.join, each.spec.name)
        if self._is_healed and not any(True for _ in self.all_living()):
            self.join(self.plan.members[0].name)
        self.schedule.cancel(self._watch)
        self._watch = self.schedule.after(0.5, self._watch_over)

    def coordinator_failed(self, participant: Participant) -> None:
        """Check in a while whether its session is over; its process does not end before.

        What it was about to commit is not committed, though its listener was called for the revocation.
        """
        self.trouble(0.0, participant.name)
        self._failing.add(participant.name)
        can_close = participant.port.is_connected and not _is_hindered(participant)
        self.schedule.after(_CLOSED_S, self._look_at_session, participant, participant.port.session_id, can_close)

    def _application_failed(self, participant: Participant) -> None:
        """End the process of a Java member, as an exception ends its application; it is started again."""
        self.schedule.after(0.0, self.kill, participant)
        self.schedule.after(_RESTART_S, self.join, participant.spec.name)

    def _look_at_session(self, participant: Participant, session_id: int, could_close: bool) -> None:
        self._failing.discard(participant.name)
        has_run = participant.process.resumed_at_s < self.schedule.now - _CLOSED_S
        is_troubled = any(not each.member and each.end_ns >= self.now_ns for each in self.troubles)
        if (could_close and has_run and not _is_hindered(participant) and not is_troubled
                and session_id in self.zookeeper.sessions):  # fmt: skip
            self.outliving.append(participant.name)

    def _is_stuck(self, participant: Participant) -> bool:
        """Whether only a restart helps: a Java member that does not come to own what it should.

        It gave up, or it did not learn that its registration or an owner node is gone. When everything is healed,
        an operator would notice and start it again.
        """
        actor = participant.actor
        if not self._is_healed or actor.spec.kind != "java":
            return False
        rightful = should_own(self.zookeeper, self.brokers, participant.spec.strategy, participant.spec.order or "0.8")
        if rightful is None:
            self._wrong_since.pop(participant.name, None)
            return False
        prefix = f"{actor.consumer_id}-"
        mine = {place for place, thread in rightful.items() if thread.startswith(prefix)}
        nodes = owner_nodes(self.zookeeper, self.brokers)
        has = {place for place in actor.owned() if place in nodes}
        nodes_of_it = {place for place, thread in nodes.items() if thread.startswith(prefix)}
        is_right = mine == has == nodes_of_it and actor.consumer_id in registrations(self.zookeeper)
        if is_right and actor.is_at_rest:
            self._wrong_since.pop(participant.name, None)
            return False
        wrong_s = self.schedule.now - self._wrong_since.setdefault(participant.name, self.schedule.now)
        return wrong_s > (_NOTICED_S if actor.is_at_rest else _NOTICED_BUSY_S)

    # -- what faults do -----------------------------------------------------------------------------------------------

    @property
    def faults_left_s(self) -> float:
        """How many seconds of faults are left."""
        return max(0.0, self._started_s + self.plan.faults_s - self.schedule.now)

    def trouble(self, for_s: float, member: str = "") -> None:
        """Note that commits of a member, or of all, may fail for so long."""
        self.troubles.append(Trouble(self.now_ns, self.now_ns + int((for_s + _RECOVERY_S) * NS), member))

    def unstored(self, for_s: float) -> None:
        """Note that for so long the offset manager may not store commits, or not answer."""
        self.trouble(for_s)
        self.unstorable.append(Trouble(self.now_ns, self.now_ns + int((for_s + _RECOVERY_S) * NS)))

    def hidden(self, for_s: float) -> None:
        """Note that for so long, and until they ask for it again, some members may not read what others have read."""
        until_s = for_s + RebalanceTimes().refused_max_s + _RECOVERY_S
        self.hidden_times.append(Trouble(self.now_ns, self.now_ns + int(until_s * NS)))

    def cut_off(self, for_s: float) -> None:
        """Note that for so long, and until the sync limit, servers may answer what is no longer true."""
        settings = self.zookeeper.settings
        limit_s = for_s + settings.sync_limit * settings.tick_s
        self.blind_spots.append(Trouble(self.now_ns, self.now_ns + int((limit_s + _RECOVERY_S) * NS)))

    def undo_later(self, after_s: float, undo: Callable[[], None]) -> None:
        """Call `undo` after so long, or when everything is healed; once."""
        self._undo_serial += 1
        serial = self._undo_serial
        self._undos[serial] = undo
        self.schedule.after(after_s, self._undo, serial)

    def _undo(self, serial: int) -> None:
        undo = self._undos.pop(serial, None)
        if undo is not None:
            undo()

    def heal(self) -> None:
        """Undo all faults that are not undone yet; no more faults happen."""
        for serial in list(self._undos):
            self._undo(serial)
        for each in self.participants.values():
            each.watched.when_asked = None
            mishaps = each.port.mishaps
            mishaps.lose_reply = mishaps.lose_request = mishaps.late_watch = mishaps.move = None
        self._is_healed = True
        self._watch_over()

    def end_session(self, participant: Participant) -> None:
        """End a member's session from outside."""
        session_id = participant.port.session_id
        if session_id:
            self.ended_from_outside.add(session_id)
            if not self.zookeeper.end_session(session_id):
                self.ended_from_outside.discard(session_id)

    def operator_writes(self, call: Callable[[], object]) -> bool:
        """Write as an operator; return whether that was possible now."""
        try:
            call()
        except RuntimeError:  # ZooKeeper takes no writes
            return False
        return True

    def operator_retries(self, call: Callable[[], object]) -> None:
        """Write as an operator, again and again until it is done."""
        if not self.operator_writes(call):
            self.schedule.after(_OPERATOR_RETRY_S, self.operator_retries, call)

    def wipe(self) -> None:
        """Lose all of ZooKeeper's data."""
        self.tree.wiped()
        self.due.wiped()
        for topic, partitions in self.brokers.partitions.items():
            for partition in partitions:
                self.write("offset_node", "", self.brokers.place(topic, partition), -1, OPERATOR)
        self.zookeeper.wipe()
        self.trouble(_RECOVERY_S)

    # -- messages ---------------------------------------------------------------------------------------------------

    def _produce(self, rng: random.Random) -> None:
        """One message somewhere, and the next one later."""
        if not self._produces:
            return
        places = [(topic, each) for topic, partitions in self.brokers.partitions.items() for each in partitions]
        wait_s = self.plan.message_every_s
        if places:
            self.brokers.produce(*places[rng.randrange(len(places))])
            wait_s /= len(places)
        self.schedule.after(wait_s * rng.uniform(0.2, 1.8), self._produce, rng)

    def finish_producing(self) -> None:
        """Let one last message come to each partition, and no more."""
        self._produces = False
        for topic, partitions in self.brokers.partitions.items():
            for partition in partitions:
                self.brokers.produce(topic, partition)

    def delivered_to(self, place: Place) -> int:
        """The offset behind the last message that was delivered to any member."""
        return self._reached.get(("deliver", place), 0)

    def done_to(self, place: Place) -> int:
        """The offset behind the last message that any member is done with, or where the last reset went on."""
        return self._reached.get(("done", place), 0)


def _is_hindered(participant: Participant) -> bool:
    """Whether it cannot reach a server, or does nothing."""
    links = any(each.is_cut or each.stalled_up for each in participant.port.links)
    return links or participant.port.lost_goodbye or participant.process.is_gone or participant.process.is_paused
