"""Members of a group for tests: real coordinators on real threads, with a delivery that writes down what it is told.

The delivery consumes nothing: a test moves its positions on by `consume`. What counts as "delivering" is what a
stream would see: started, not ended, and within the lease.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.partition import PartitionState
from rebalance.ports import MemberParts, Starts
from rebalance.subscription import Partition, Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.coordinator import Coordinator
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.machine import GroupState
from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.port.pipeline import Pipeline
from rebalance.zookeeper.snapshot import Strategy
from zkconsumer.offsets.zookeeper_offsets import ZooKeeperOffsets
from zkconsumer.testing.waiting import wait_until


@dataclass
class Ownership:
    """One partition delivered by one member, from `began` to `ended` (None while it lasts)."""

    member: str
    partition: Partition
    thread_id: str
    offset: int
    began: float
    ended: float | None = None
    how: str = ""


class History:
    """All ownerships of a test, in the order in which they began."""

    def __init__(self) -> None:
        self.ownerships: list[Ownership] = []
        self._lock = threading.Lock()

    def add(self, ownership: Ownership) -> None:
        with self._lock:
            self.ownerships.append(ownership)

    def of(self, member: str | None = None, partition: Partition | None = None) -> list[Ownership]:
        with self._lock:
            return [
                own for own in self.ownerships if member in (None, own.member) and partition in (None, own.partition)
            ]

    def overlaps(self, slack_s: float = 0.0) -> list[tuple[Ownership, Ownership]]:
        """Pairs of ownerships of one partition that were delivered at the same time for longer than `slack_s`."""
        found = []
        for first, second in itertools.combinations(self.of(), 2):
            if first.partition == second.partition:
                ends = [own.ended if own.ended is not None else float("inf") for own in (first, second)]
                if min(ends) - max(first.began, second.began) > slack_s:
                    found.append((first, second))
        return found


class WatchedLease(Lease):
    """A lease that remembers how far it went before it was ended."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        super().__init__()
        self.reached = float("-inf")

    def begin(self, session_id: int, timeout_s: float) -> None:
        self.reached = max(self.reached, self.until)
        super().start(session_id, timeout_s)

    def end(self) -> None:
        self.reached = max(self.reached, self.until)
        super().end()


class RecordingDelivery:
    """Writes down starts and ends; the application's message in hand is a lock that a test may hold (`in_hand`)."""

    def __init__(self, name: str, history: History, lease: WatchedLease) -> None:
        self.name = name
        self.history = history
        self.lease = lease
        self.running: dict[Partition, Ownership] = {}
        self.positions: dict[Partition, int] = {}
        self.in_hand: set[Partition] = set()
        self.waiting: dict[Partition, Callable[[int], None]] = {}
        self.resolved: list[tuple[Partition, str]] = []
        self.refused: dict[Partition, str] = {}
        self.log_end = 0
        self.error: Exception | None = None

    def resolve(self, partition: Partition, policy: str, done: Callable[[int], None]) -> None:
        self.resolved.append((partition, policy))
        done(0 if policy == "smallest" else self.log_end)

    def bounds(self, partition: Partition, done: Callable[[int, int], None]) -> None:
        done(0, self.log_end)

    def refuse(self, partition: Partition, thread_id: str, offset: int, reason: str) -> None:
        self.refused[partition] = reason

    def start(self, partition: Partition, thread_id: str, offset: int) -> None:
        assert partition not in self.running, f"{self.name} starts {partition} twice"
        own = Ownership(self.name, partition, thread_id, offset, lease_clock())
        self.running[partition] = own
        self.positions[partition] = offset
        self.history.add(own)

    def drain(self, partition: Partition, done: Callable[[int], None]) -> None:
        if partition in self.in_hand:
            self.waiting[partition] = done
            return
        self._ended(partition, "drained")
        done(self.positions[partition])

    def expire_drain(self, partition: Partition) -> int:
        self.waiting.pop(partition, None)
        self._ended(partition, "drain expired")
        return self.positions[partition]

    def abandon(self, partition: Partition) -> int | None:
        self.waiting.pop(partition, None)
        if partition not in self.running:
            return None
        self._ended(partition, "abandoned")
        return self.positions[partition]

    def fail(self, error: Exception) -> None:
        self.error = error

    def stuck_streams(self, now: float) -> list[str]:
        return []

    def _ended(self, partition: Partition, how: str) -> None:
        own = self.running.pop(partition, None)
        if own is not None:
            until = max(self.lease.until, self.lease.reached)
            own.how, own.ended = how, min(lease_clock(), until)

    def finish_in_hand(self, partition: Partition, position: int) -> None:
        """The application has finished its message."""
        self.in_hand.discard(partition)
        self.positions[partition] = position
        done = self.waiting.pop(partition, None)
        if done is not None:
            self._ended(partition, "drained")
            done(position)

    def consume(self, count: int = 1) -> None:
        for partition in list(self.running):
            self.positions[partition] += count


@dataclass
class RecordingListener:
    calls: list[tuple[str, Any]] = field(default_factory=list)
    starts: Starts = field(default_factory=Starts)
    revoked_takes_s: float = 0.0

    def revoked(self, partitions: list[Partition], done: Callable[[], None]) -> None:
        self.calls.append(("revoked", sorted(partitions, key=str)))
        if self.revoked_takes_s:
            threading.Timer(self.revoked_takes_s, done).start()
        else:
            done()

    def assigned(self, positions: dict[Partition, int], done: Callable[[Starts], None]) -> None:
        self.calls.append(("assigned", positions))
        chosen = {name: at for name, at in self.starts.chosen.items() if name in positions}
        done(Starts(chosen, {name: why for name, why in self.starts.refused.items() if name in positions}))

    def lost(self, partitions: list[Partition]) -> None:
        self.calls.append(("lost", sorted(partitions, key=str)))

    def blocked(self, partitions: list[Partition]) -> None:
        self.calls.append(("blocked", sorted(partitions, key=str)))


class TestMember:
    """One member: its own session, loop and thread."""

    __test__ = False

    def __init__(
        self,
        connect: str,
        group: str,
        name: str,
        subscription: Subscription,
        history: History | None = None,
        session_s: float = 4.0,
        strategy: Strategy | None = None,
        port: KazooPort | None = None,
        **settings: Any,
    ) -> None:
        self.name = f"{group}_{name}"
        self.group = group
        self.lease = WatchedLease()
        self.loop = Loop(lease_clock)
        self.port = port or KazooPort(connect, session_s)
        self.delivery = RecordingDelivery(self.name, history or History(), self.lease)
        self.listener = RecordingListener()
        pipeline = Pipeline(self.port, self.loop)
        self.offsets = ZooKeeperOffsets(pipeline.ask, self.loop, group)
        self.coordinator = Coordinator(
            RegisteredMember(group, self.name, subscription, strategy=strategy or Strategy(), **settings),
            pipeline,
            MemberParts(self.delivery, self.offsets, self.listener),
            self.lease,
            random.Random(name),
            lambda: int(time.time() * 1000),
        )
        self.crash: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            self.crash = error
            raise

    def start(self, settle_s: float | None = 20.0) -> TestMember:
        self.loop.post(self.coordinator.start)
        self._thread.start()
        self.port.start(self.coordinator.session_changed)
        if settle_s is not None:
            settled = threading.Event()
            self.loop.post(self.coordinator.when_settled, settled.set)
            assert settled.wait(settle_s), self.describe()
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.post(self.coordinator.close)
            self.port.close(5.0)
            self.loop.post(self.loop.stop)
            self._thread.join(5.0)
            for partition in list(self.delivery.running):
                self.delivery._ended(partition, "left")

    def on_loop(self, call: Callable[[], Any], timeout_s: float = 10.0) -> Any:
        """What `call` returns on the coordinator's thread."""
        results: list[Any] = []
        done = threading.Event()

        def run() -> None:
            results.append(call())
            done.set()

        self.loop.post(run)
        assert done.wait(timeout_s), f"{self.name} does not answer"
        return results[0]

    def commit(self, positions: dict[Partition, int], explicit: bool = False, timeout_s: float = 15) -> dict[Any, str]:
        """Commit and wait; what failed."""
        failed: list[dict[Any, str]] = []
        done = threading.Event()

        def told(result: Any) -> None:
            failed.append(dict(result))
            done.set()

        self.loop.post(self.offsets.commit, self.coordinator.fence, positions, told, explicit)
        assert done.wait(timeout_s), "no word about the commit"
        return failed[0]

    @property
    def session_id(self) -> int:
        return self.coordinator.session.session_id

    @property
    def state(self) -> GroupState:
        return self.coordinator.machine.state

    def owned(self) -> set[Partition]:
        return {
            partition
            for partition, entry in list(self.coordinator.partitions.items())
            if entry.machine.state is PartitionState.OWNED and entry.started
        }

    def describe(self) -> str:
        states = {partition: entry.machine.state.value for partition, entry in self.coordinator.partitions.items()}
        return f"{self.name} {self.state.value} {states} crash={self.crash!r}"


def create_topic(client: KazooClient, topic: str, partitions: int) -> None:
    data = json.dumps({"version": 1, "partitions": {str(number): [0] for number in range(partitions)}}).encode()
    path = znodes.topic_path(topic)
    if client.exists(path):
        client.set(path, data)
    else:
        client.create(path, data, makepath=True)


def owners(client: KazooClient, group: str, topic: str) -> dict[int, tuple[str, int, int]]:
    """Partition -> (thread id, session, czxid) as ZooKeeper has it."""
    path = znodes.owners_path(group, topic)
    found = {}
    for name in client.get_children(path) if client.exists(path) else []:
        with suppress(NoNodeError):  # released since the list was read
            data, stat = client.get(f"{path}/{name}")
            found[int(name)] = (data.decode(), stat.ephemeralOwner, stat.czxid)
    return found


def share_is_complete(members: Iterable[TestMember], topic: str, partitions: int) -> bool:
    """Each partition is delivered by exactly one of the members, and all of them are at rest."""
    group = list(members)
    held = [partition for member in group for partition in member.owned() if partition[0] == topic]
    at_rest = all(member.state is GroupState.STABLE for member in group)
    return at_rest and sorted(held) == [(topic, number) for number in range(partitions)]


def wait_for_share(members: Iterable[TestMember], topic: str, partitions: int, timeout_s: float = 20.0) -> None:
    group = list(members)
    wait_until(
        lambda: share_is_complete(group, topic, partitions),
        timeout_s,
        "each partition to have one owner",
        state=lambda: [member.describe() for member in group],
    )
    assert not [member.crash for member in group if member.crash]
