"""A group under load with a watcher: the setup of the tests of faults and of mixed groups."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from group_members import Group

from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.checks import Finding, Limits, check_history, count_allowed_repeats
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import SteadyLoad
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.group_watch import GroupWatch, Owner, owners, wait_owned

# Kafka's defaults for what matters beside us: four tries, two seconds apart. Only the session is shorter.
JAVA_SETTINGS = {
    "zookeeper.session.timeout.ms": 4000,
    "zookeeper.sync.time.ms": 2000,
    "rebalance.backoff.ms": 2000,
    "rebalance.max.retries": 4,
    "auto.commit.interval.ms": 500,
}


@dataclass
class Scene:
    """Topics of one cluster, their load, one group and a watcher of its nodes."""

    cluster: KafkaCluster
    places: Sequence[Place]
    group: Group
    watch: GroupWatch
    load: SteadyLoad
    java: list[JavaMember] = field(default_factory=list)
    _java_kills: list[Event] = field(default_factory=list)

    @property
    def topics(self) -> dict[str, int]:
        """A subscription to all topics, one stream each."""
        return {topic: 1 for topic, _ in self.places}

    def id(self, name: str) -> str:
        """The id in ZooKeeper of a member."""
        return f"{self.group.name}_{name}"

    def owners(self) -> dict[Place, Owner]:
        """The owner nodes that are there."""
        return owners(self.cluster.client, self.group.name, self.places)

    def wait_shares(self, timeout_s: float = 30.0, **shares: int) -> dict[Place, Owner]:
        """The owner nodes, once each named member owns so many partitions, and together all of them."""
        counts = {self.id(name): count for name, count in shares.items()}
        return wait_owned(self.cluster.client, self.group.name, self.places, counts, timeout_s)

    def wait_committed(self, beyond: Mapping[Place, int] | None = None, timeout_s: float = 15.0) -> dict[Place, int]:
        """The stored offsets, once each is above what it was (or there at all)."""
        floor = beyond or {}

        def stored() -> dict[Place, int] | None:
            seen = {event.place: event.offset for event in list(self.watch.events) if event.kind == "offset_node"}
            return seen if all(seen.get(place, -1) > floor.get(place, -1) for place in self.places) else None

        found = wait_until(stored, timeout_s, "every offset node to move on")
        assert found is not None
        return found

    def settle(self, timeout_s: float = 20.0) -> None:
        """End the load; returns when everything that was acknowledged has been delivered."""
        self.load.stop()
        wanted = {(event.place, event.offset): event.id for event in self.load.acked}

        def missing() -> list[str]:
            seen = {(event.place, event.offset) for event in self.history() if event.kind == "deliver"}
            return [value for key, value in wanted.items() if key not in seen]

        wait_until(
            lambda: not missing(), timeout_s, "every acknowledged message to be delivered", interval_s=0.1,
            state=lambda: f"{len(missing())} of {len(wanted)} missing: {missing()[:10]}",
        )  # fmt: skip

    def join_java(self, name: str, **options: Any) -> JavaMember:
        """A Java member with Kafka's own waits, when its streams exist; by default on all topics, one stream each."""
        chosen = {} if "whitelist" in options else {"topics": self.topics}
        settings = {**JAVA_SETTINGS, **options.pop("settings", {})}
        member = JavaMember(self.cluster, self.group.name, consumer_id=name, settings=settings, **{**chosen, **options})
        self.java.append(member)
        return member.start()

    def kill_java(self, member: JavaMember) -> Event:
        """SIGKILL a Java member; the event of it, which the history keeps."""
        member.kill()
        self._java_kills.append(Event(time.monotonic_ns(), "killed", member.consumer_id))
        return self._java_kills[-1]

    def history(self) -> list[Event]:
        """What members, load and watcher have written down so far.

        A Java member announces nothing and gives up everything in each rebalance, so of its owner nodes nothing is
        concluded.
        """
        java = {member.consumer_id for member in self.java}
        seen = [event for event in list(self.watch.events) if event.member not in java]
        delivered = [
            Event(each.time_ns, "deliver", member.consumer_id, each.topic, each.partition, each.offset,
                  (each.value or b"").decode())
            for member in self.java for each in member.messages
        ]  # fmt: skip
        return [*self.load.acked, *self.group.events(), *seen, *delivered, *self._java_kills]

    def close_java(self) -> None:
        """End the Java members."""
        for member in self.java:
            if member.process.running:
                print(f"---- log of {member.consumer_id}\n{member.process.tail(60)}", file=sys.stderr)
            member.close()


def assert_clean(events: Sequence[Event], limits: Limits | None = None) -> int:
    """The number of repeats that ungraceful ends explain; fails with the proof of every other violation."""
    findings = check_history(events, limits)
    assert not findings, _listed(findings)
    return count_allowed_repeats(events, limits)


def _listed(findings: Sequence[Finding]) -> str:
    return f"{len(findings)} findings:\n" + "\n".join(map(str, findings[:15]))


@contextmanager
def scene(
    cluster: KafkaCluster, group: str, topics: Sequence[str], *, partitions: int = 8, rate_per_s: float = 200.0
) -> Iterator[Scene]:
    """New topics, spread over the brokers, under load, without members yet."""
    for topic in topics:
        cluster.create_topic(topic, partitions)
    places = [(topic, partition) for topic in topics for partition in range(partitions)]
    connect = cluster.zookeeper_connect
    with (
        GroupWatch(connect, group, places) as watch,
        Group(connect, group) as members,
        SteadyLoad(cluster, topics, partitions, rate_per_s) as load,
    ):
        stage = Scene(cluster, places, members, watch, load)
        try:
            yield stage
        finally:
            stage.close_java()
