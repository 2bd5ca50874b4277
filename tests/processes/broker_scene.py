"""A group that brokers coordinate, under load: members as processes, ours and Java's, and what they hold."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from offset_watch import OffsetWatch
from peer_member import PeerMember

from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.checks import Finding, Limits, check_history, count_allowed_repeats
from zkconsumer.testing.history.events import in_order
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import LastingLoad
from zkconsumer.testing.members.kafka_java_member import KafkaJavaMember
from zkconsumer.testing.members.member_process import MemberProcess
from zkconsumer.testing.waiting import wait_until

Member = MemberProcess | KafkaJavaMember | PeerMember

SESSION_S = 3.0
HEARTBEAT_S = 0.5
REBALANCE_S = 12.0
AUTO_COMMIT_S = 0.5
BUSY_S = 8.0
"""How much later than promised something may come on a machine with other work."""
BROKER: Mapping[str, object] = {"group.min.session.timeout.ms": 500}
"""Settings of brokers: sessions that tests can wait for."""
OURS: Mapping[str, object] = {
    "session.timeout.ms": int(SESSION_S * 1000),
    "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
    "rebalance.timeout.ms": int(REBALANCE_S * 1000),
    "auto.commit.interval.ms": int(AUTO_COMMIT_S * 1000),
    "metadata.max.age.ms": 2000,
    "socket.timeout.ms": 5000,
    "offsets.channel.socket.timeout.ms": 3000,
}
JAVAS: Mapping[str, object] = {
    "session.timeout.ms": int(SESSION_S * 1000),
    "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
    "auto.commit.interval.ms": int(AUTO_COMMIT_S * 1000),
    "metadata.max.age.ms": 2000,
    "request.timeout.ms": 5000,
    "fetch.max.wait.ms": 200,
}
FIRST_WITH_POLL_INTERVAL = (0, 10, 1)
# What was delivered since the last commit may come again: one interval, and the time between deciding and writing.
UNGRACEFUL = Limits(repeat_before_end_s=AUTO_COMMIT_S + 1.0)


@dataclass
class Scene:
    """One topic of a cluster, its load, the stored offsets, and one group."""

    cluster: KafkaCluster
    group: str
    topic: str
    places: Sequence[Place]
    assignor: str
    load: LastingLoad
    watch: OffsetWatch
    members: dict[str, Member] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)
    """Members that cannot know when the coordinator takes their partitions away."""

    @property
    def brokers(self) -> str:
        """Where clients find the cluster."""
        return addresses(self.cluster)

    def launch(
        self, name: str, *, brokers: str | None = None, work_ms: float = 0.0, **settings: object
    ) -> MemberProcess:
        """A member of ours, not waited for; settings with `_` for `.`, over `OURS`."""
        chosen = {**OURS, "partition.assignment.strategy": self.assignor, **_dotted(settings)}
        member = MemberProcess(
            self.cluster, self.group, name, topics={self.topic: 1}, settings=chosen, work_ms=work_ms,
            bootstrap_servers=brokers or self.brokers,
        )  # fmt: skip
        self._keep(name, member)
        return member

    def join(self, name: str, *, brokers: str | None = None, work_ms: float = 0.0, **settings: object) -> MemberProcess:
        """A member of ours, when its streams exist."""
        return self.launch(name, brokers=brokers, work_ms=work_ms, **settings).wait_ready()

    def join_java(self, name: str, *, work_ms: int = 0) -> KafkaJavaMember:
        """A KafkaConsumer of the cluster's version, when it has its first assignment."""
        settings: dict[str, object] = {**JAVAS, "partition.assignment.strategy": self.assignor}
        if version_tuple(self.cluster.version) >= FIRST_WITH_POLL_INTERVAL:
            settings["max.poll.interval.ms"] = int(REBALANCE_S * 1000)
        member = KafkaJavaMember(
            self.cluster, self.group, name, bootstrap_servers=self.brokers, topics=[self.topic], settings=settings,
            work_ms=work_ms,
        )  # fmt: skip
        self._keep(name, member)
        return member.start()

    def join_as(self, kind: str, name: str) -> Member:
        """A member of a kind: `ours`, `java`, `confluent` or `kafka-python`."""
        if kind == "ours":
            return self.join(name)
        if kind == "java":
            return self.join_java(name)
        member = PeerMember(
            self.cluster, self.group, name, kind, bootstrap_servers=self.brokers, topic=self.topic,
            assignor=self.assignor, timing=JAVAS,
        )  # fmt: skip
        self._keep(name, member)
        return member.start()

    def _keep(self, name: str, member: Member) -> None:
        assert name not in self.members
        self.members[name] = member

    # ---- who holds what

    def shares(self) -> dict[str, list[Place]]:
        """What each member has been assigned and has not given up, by its own account."""
        return {name: held_by(member) for name, member in self.members.items()}

    def wait_shares(self, timeout_s: float = 30.0, **shares: int) -> float:
        """Seconds until each named member holds so many partitions, and together they hold all of them."""
        began = time.monotonic()

        def is_shared() -> bool:
            held = {name: places for name, places in self.shares().items() if name in shares}
            everything = sorted((place for places in held.values() for place in places), key=str)
            return {name: len(each) for name, each in held.items()} == shares and everything == sorted(
                self.places, key=str
            )

        wait_until(is_shared, timeout_s, f"shares of {shares}", interval_s=0.05, state=self._state)
        return time.monotonic() - began

    def wait_full(self, *names: str, timeout_s: float = 30.0) -> float:
        """Seconds until the named members hold all partitions, each once and each member at least one."""
        began = time.monotonic()

        def is_full() -> bool:
            held = [self.shares()[name] for name in names]
            return all(held) and sorted((each for places in held for each in places), key=str) == sorted(
                self.places, key=str
            )

        wait_until(is_full, timeout_s, f"{names} to hold everything", interval_s=0.05, state=self._state)
        return time.monotonic() - began

    def _state(self) -> object:
        return {name: sorted(number for _, number in places) for name, places in self.shares().items()}

    def wait_committed(self, timeout_s: float = 20.0) -> dict[Place, int]:
        """The stored offsets, once each is above what it was, or there at all."""
        before = self.watch.stored
        wait_until(
            lambda: all(self.watch.stored.get(each, -1) > before.get(each, -1) for each in self.places), timeout_s,
            "every stored offset to move on", state=lambda: (before, self.watch.stored, self._state()),
        )  # fmt: skip
        return self.watch.stored

    # ---- the end

    def history(self) -> list[Event]:
        """What members, load and watcher have written down so far."""
        played = in_order(event for member in self.members.values() for event in member.events())
        return [*list(self.load.acked), *list(self.watch.events), *played, *_taken_away(played, self.cut_off)]

    def settle(self, timeout_s: float = 30.0) -> None:
        """End the load; returns when everything that was acknowledged has been delivered."""
        self.load.stop()
        wanted = {(event.place, event.offset) for event in self.load.acked}

        def missing() -> list[tuple[Place, int]]:
            seen = {(event.place, event.offset) for member in self.members.values()
                    for event in member.events("deliver")}  # fmt: skip
            return sorted(wanted - seen, key=str)

        wait_until(
            lambda: not missing(), timeout_s, "every acknowledged message to be delivered", interval_s=0.1,
            state=lambda: (len(missing()), missing()[:10], self._state()),
        )  # fmt: skip

    def assert_clean(self, limits: Limits | None = None, repeating: Collection[str] = ()) -> int:
        """The number of repeats that ungraceful ends explain; fails with the proof of every other violation.

        Args:
            repeating: Members that may leave to others what they have delivered.
        """
        events = self.history()
        findings = [each for each in check_history(events, limits)
                    if each.check != "repeated" or each.events[0].member not in repeating]  # fmt: skip
        assert not findings, _listed(findings)
        return count_allowed_repeats(events, limits)

    def close(self) -> None:
        """End all members."""
        for member in self.members.values():
            member.close()


def addresses(cluster: KafkaCluster) -> str:
    """Where clients find a cluster."""
    return ",".join(f"127.0.0.1:{cluster.port(each)}" for each in cluster.brokers)


def held_by(member: Member) -> list[Place]:
    """What a member has been assigned and has not given up, by its own account."""
    held: dict[Place, None] = {}
    for event in member.events("assigned", "revoked", "lost", "killed"):
        if event.kind == "assigned":
            held[event.place] = None
        elif event.kind == "killed":
            held.clear()
        else:
            held.pop(event.place, None)
    return sorted(held, key=str)


def _taken_away(played: Sequence[Event], cut_off: Collection[str]) -> list[Event]:
    """The moments at which partitions of members that are cut off went to others: they must deliver nothing later."""
    holders: dict[Place, set[str]] = {}
    found: list[Event] = []
    for event in played:
        held_by_others = holders.setdefault(event.place, set())
        if event.kind == "assigned":
            if cut_off:
                found.append(Event(event.time_ns - 1, "claimed", event.member, *event.place))
            for other in (held_by_others & set(cut_off)) - {event.member}:
                found.append(Event(event.time_ns - 1, "owner_gone", other, *event.place, id="expired"))
                held_by_others.discard(other)
            held_by_others.add(event.member)
        elif event.kind in ("revoked", "lost"):
            held_by_others.discard(event.member)
        elif event.kind == "killed":
            for members in holders.values():
                members.discard(event.member)
    return found


def _dotted(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _listed(findings: Sequence[Finding]) -> str:
    return f"{len(findings)} findings:\n" + "\n".join(map(str, findings[:15]))


@contextmanager
def scene(
    cluster: KafkaCluster, group: str, topic: str, *, assignor: str = "range", partitions: int = 6,
    replication: int = 1, acks: int = 1, rate_per_s: float = 200.0,
) -> Iterator[Scene]:  # fmt: skip
    """A new topic under load, without members yet."""
    cluster.create_topic(topic, partitions, replication)
    places: list[Place] = [(topic, number) for number in range(partitions)]
    brokers = [("127.0.0.1", cluster.port(each)) for each in cluster.brokers]
    with (
        OffsetWatch(brokers, group, places) as watch,
        LastingLoad(cluster, [topic], partitions, rate_per_s, acks=acks) as load,
    ):
        stage = Scene(cluster, group, topic, places, assignor, load, watch)
        try:
            yield stage
        except BaseException:
            for member in stage.members.values():
                print(f"---- log of {member.consumer_id}\n{member.process.tail(80)}", file=sys.stderr)
            raise
        finally:
            stage.close()


def seconds(later_ns: int, earlier_ns: int) -> float:
    """The time between two moments of a history."""
    return (later_ns - earlier_ns) / 1e9


def last_delivery_ns(member: Member, before_ns: int) -> int:
    """When a member delivered last before a moment; 0 for never."""
    return max((event.time_ns for event in member.events("deliver") if event.time_ns < before_ns), default=0)
