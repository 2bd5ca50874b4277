"""The simulated stage: the model of the Java member, where `real_java_stage` has the real one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from java_scenes import FOREIGNER, QUIET_S
from java_traces import Trace, normalised

from rebalance.zookeeper import znodes
from tests.simulator.actor import MemberSpec, Surroundings
from tests.simulator.brokers import Brokers
from tests.simulator.controller import Controller
from tests.simulator.java_member import JavaMember
from tests.simulator.java_threads import USUAL_PACE
from tests.simulator.java_zkclient import java_port
from tests.simulator.pipe import Latency
from tests.simulator.port import PortSettings, SimulatedPort
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule
from tests.simulator.zookeeper import SimulatedZooKeeper
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.proxy.zookeeper_exchanges import Entry
from zkconsumer.testing.proxy.zookeeper_trace import format_trace

__all__ = ["SimulatedStage"]

MESSAGES = 3
LIMIT_S = 60.0
NEW_JVM = Latency(0.004, 0.008)
"""The pace of a JVM that has just started, and of one that is warm."""


class SimulatedStage:
    """See `java_scenes.Stage`.

    Attributes:
        trace: part -> member -> lines.
        threads: part -> member -> thread -> lines.
        members, processes, ports: by name.
        history: what they wrote down.
    """

    def __init__(self, seed: int, partitions: int = 2) -> None:
        self.trace: Trace = {}
        self.threads: dict[str, dict[str, dict[str, list[str]]]] = {}
        self.members: dict[str, JavaMember] = {}
        self.history: list[Event] = []
        self.schedule = Schedule(random.Random(f"{seed}/order"))
        self._rng = random.Random(seed)
        self.zookeeper = SimulatedZooKeeper(self.schedule, self._rng)
        self._heard: dict[str, list[tuple[str, Entry]]] = {}
        self._heard_at_s = 0.0
        self.ports: dict[str, SimulatedPort] = {}
        self.processes: dict[str, Process] = {}
        self._foreigner = self._port("foreigner")
        self._foreigner.start(lambda change: None)
        controller = Process(self.schedule, self._rng, "controller")
        self._controller = Controller(controller, self.zookeeper.port(controller))
        self.brokers = Brokers(self.schedule, self._rng, self._controller, self._acked)
        self.brokers.create_topic("t", partitions)
        self.until(lambda: self._controller.is_idle and self._foreigner.session_id and self.brokers.ends("t", 1))
        for number in range(partitions * MESSAGES):
            assert self.brokers.produce("t", number % partitions)

    def _port(self, name: str, settings: PortSettings | None = None) -> SimulatedPort:
        process = self.processes[name] = Process(self.schedule, self._rng, name)
        return self.zookeeper.port(process, settings)

    def _acked(self, kind: str, place: Place, offset: int, message_id: str = "") -> None:
        self._record("", kind, place, offset, message_id)

    def _record(self, member: str, kind: str, place: Place = ("", -1), offset: int = -1, message_id: str = "") -> None:
        now_ns = int(self.schedule.now * 1e9)
        self.history.append(Event(now_ns, kind, member, place[0], place[1], offset, message_id))

    # -- what a test asks for ---------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.schedule.run(self.schedule.now + seconds)

    def owners(self) -> dict[int, str]:
        """Partition -> what its owner node holds."""
        root = znodes.owners_path("g", "t")
        nodes = {int(name): self.zookeeper.read(f"{root}/{name}") for name in self.zookeeper.children(root)}
        return {partition: node[0].decode() for partition, node in nodes.items() if node is not None}

    def offset(self, partition: int) -> int:
        """What the offset node of a partition holds, -1 without one."""
        node = self.zookeeper.read(znodes.offset_path("g", "t", partition))
        return -1 if node is None else int(node[0])

    # -- what a scene calls -----------------------------------------------------------------------------------------

    def part(self, title: str) -> None:
        self.end()
        self.trace[title], self.threads[title] = {}, {}

    def end(self) -> None:
        """End the last part."""
        for name, heard in self._heard.items() if self.trace else ():
            if heard:
                by_thread: dict[str, list[Entry]] = {}
                for thread, entry in heard:
                    by_thread.setdefault(thread, []).append(entry)
                list(self.trace.values())[-1][name] = normalised(format_trace(entry for _, entry in heard))
                list(self.threads.values())[-1][name] = {
                    thread: normalised(format_trace(entries)) for thread, entries in by_thread.items()
                }
            heard.clear()

    def start(self, member: str, *, auto_commit_s: float = 3600.0, whitelist: str = "") -> None:
        spec = MemberSpec(
            member, "java", () if whitelist else (("t", 1),), whitelist, auto_commit_s=auto_commit_s, work_s=0.0
        )
        port = self.ports[member] = self._port(member, java_port(spec.session_s))
        surroundings = Surroundings(
            group="g",
            process=self.processes[member],
            port=port,
            brokers=self.brokers,
            rng=self._rng,
            record=partial(self._record, member),
            wall_clock_ms=lambda: int(self.schedule.now * 1000),
        )
        pace = NEW_JVM if self.members else USUAL_PACE
        java = self.members[member] = JavaMember(spec, surroundings, pace, partial(self._hear, member))
        java.start()

    def _hear(self, member: str, thread: str, entry: Entry) -> None:
        self._heard.setdefault(member, []).append((thread, entry))
        self._heard_at_s = self.schedule.now

    def rest(self) -> None:
        self._heard_at_s = self.schedule.now
        self.until(lambda: self.schedule.now >= self._heard_at_s + QUIET_S)

    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until something is so."""
        assert self.schedule.run_until(condition, self.schedule.now + LIMIT_S), "it did not come to that"

    def leave(self, member: str) -> None:
        self.members[member].leave()
        self.until(lambda: self.members[member].has_ended)
        self.processes[member].kill()

    def end_session(self, member: str) -> None:
        assert self.zookeeper.end_session(self.ports[member].session_id)

    def break_connection(self, member: str) -> None:
        self.zookeeper.cut(self.ports[member])
        self.zookeeper.heal(self.ports[member])

    def stall(self, member: str) -> None:
        self.zookeeper.stall(self.ports[member])

    def heal(self, member: str) -> None:
        self.zookeeper.heal(self.ports[member])

    def until_said(self, member: str, beginning: str, times: int = 1) -> None:
        def said() -> bool:
            lines = format_trace(entry for _, entry in self._heard.get(member, ()))
            return sum(line.startswith(beginning) for line in lines) >= times

        self.until(said)

    def own(self, partition: int) -> None:
        path = znodes.owner_path("g", "t", partition)
        self.zookeeper.delete(path)
        assert self.zookeeper.create(path, FOREIGNER.encode(), self._foreigner.session_id, parents=True) is None

    def on_fork(self, partition: int) -> None:
        assert self.zookeeper.delete(znodes.owner_path("g", "t", partition)) is None

    def touch_topic(self) -> None:
        found = self.zookeeper.read(znodes.topic_path("t"))
        assert found is not None
        self.zookeeper.set_data(znodes.topic_path("t"), found[0])

    def add_topic(self, name: str) -> None:
        self.zookeeper.create(znodes.topic_path(name), b'{"version":1,"partitions":{}}')
