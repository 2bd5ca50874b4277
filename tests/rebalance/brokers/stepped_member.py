"""A member of a group of brokers on a loop that the test steps: values in, calls out.

Requests are kept until the test answers them, in any order; drains, loads and commits as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rebalance import partition as p
from rebalance.brokers.assignor import Assignor, RangeAssignor
from rebalance.brokers.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from rebalance.brokers.coordinator import Coordinator
from rebalance.brokers.events import Fence, Joined, JoinedMember, NamedMember, Refused, Synced, TopicsRead
from rebalance.brokers.group_member import BrokerGroupMember
from rebalance.brokers.sticky import CooperativeStickyAssignor
from rebalance.lease import Lease
from rebalance.loop import Loop
from rebalance.ports import Fence as Membership
from rebalance.ports import MemberParts, Starts
from rebalance.subscription import Partition
from rebalance.subscription import Subscription as Wanted


class Asked(NamedTuple):
    """A request that waits for its answer."""

    what: str
    member_id: str
    generation: int
    protocols: Mapping[str, bytes]
    assignments: Mapping[str, bytes]
    done: Callable[..., None]


class ScriptedGroup:
    """The port of a group; the test answers."""

    rebalance_is_session = False

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def _ask(
        self,
        what: str,
        done: Callable[..., None],
        member_id: str = "",
        generation: int = -1,
        protocols: Mapping[str, bytes] | None = None,
        assignments: Mapping[str, bytes] | None = None,
    ) -> None:
        self.asked.append(Asked(what, member_id, generation, protocols or {}, assignments or {}, done))

    def find_coordinator(self, done: Callable[[Refused | None], None]) -> None:
        self._ask("find", done)

    def join_group(
        self, member_id: str, protocols: Sequence[tuple[str, bytes]],
        done: Callable[[Joined | NamedMember | Refused], None],
    ) -> None:  # fmt: skip
        self._ask("join", done, member_id, protocols=dict(protocols))

    def sync_group(
        self, fence: Fence, assignments: Mapping[str, bytes], done: Callable[[float, Synced | Refused], None]
    ) -> None:
        self._ask("sync", done, fence.member_id, fence.generation, assignments=assignments)

    def heartbeat(self, fence: Fence, done: Callable[[float, Refused | None], None]) -> None:
        self._ask("heartbeat", done, fence.member_id, fence.generation)

    def leave_group(self, member_id: str, reason: str, done: Callable[[], None]) -> None:
        if member_id:
            self._ask("leave", done, member_id)
        else:
            done()


class ScriptedTopics:
    """Topics as the test has them, or why they cannot be read."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.found: TopicsRead | str = TopicsRead(dict(partitions))
        self.held: list[Callable[[], None]] | None = None

    def read(self, topics: Collection[str] | None, done: Callable[[TopicsRead | str], None]) -> None:
        if self.held is None:
            done(self.found)
        else:
            self.held.append(lambda: done(self.found))


class HandDelivery:
    """Delivers nothing; a drain is over at once unless the test keeps its message in hand."""

    def __init__(self) -> None:
        self.running: dict[Partition, int] = {}
        self.in_hand: set[Partition] = set()
        self.draining: dict[Partition, Callable[[int], None]] = {}
        self.stuck: list[str] = []
        self.failed: Exception | None = None

    def resolve(self, partition: Partition, policy: str, done: Callable[[int], None]) -> None:
        done(0)

    def bounds(self, partition: Partition, done: Callable[[int, int], None]) -> None:
        done(0, 1000)

    def start(self, partition: Partition, thread_id: str, offset: int) -> None:
        assert partition not in self.running
        self.running[partition] = offset

    def refuse(self, partition: Partition, thread_id: str, offset: int, reason: str) -> None:
        raise AssertionError(reason)

    def drain(self, partition: Partition, done: Callable[[int], None]) -> None:
        at = self.running.pop(partition)
        if partition in self.in_hand:
            self.draining[partition] = done
        else:
            done(at)

    def finish(self, partition: Partition, at: int) -> None:
        """The message in hand is done."""
        self.in_hand.discard(partition)
        self.draining.pop(partition)(at)

    def expire_drain(self, partition: Partition) -> int:
        self.draining.pop(partition)
        return 7

    def abandon(self, partition: Partition) -> int | None:
        self.draining.pop(partition, None)
        return self.running.pop(partition, None)

    def fail(self, error: Exception) -> None:
        self.failed = error

    def stuck_streams(self, now: float) -> list[str]:
        return self.stuck


class HandOffsets:
    """Offsets that are loaded and stored when the test says so, or at once."""

    release_tries = 0

    def __init__(self) -> None:
        self.stored: dict[Partition, int] = {}
        self.loads: list[Callable[[], None]] | None = None
        self.commits: list[tuple[Mapping[Partition, int], Callable[[Mapping[Partition, str]], None]]] | None = None
        self.memberships: list[Membership | None] = []
        self.forgotten: list[tuple[str, int]] = []

    @property
    def fence(self) -> Membership | None:
        return self.memberships[-1] if self.memberships else None

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool:
        return self.stored.get(partition) == position

    def load(self, fence: Membership | None, partition: Partition, done: Callable[[int | None], None]) -> None:
        def answer() -> None:
            if fence == self.fence:
                done(self.stored.get(partition, 0))

        if self.loads is None:
            answer()
        else:
            self.loads.append(answer)

    def forget_topic(self, topic: str, incarnation: int, partitions: Collection[int | str]) -> None:
        self.forgotten.append((topic, incarnation))
        for partition in partitions:
            self.stored.pop((topic, partition), None)

    def commit(
        self, fence: Membership | None, positions: Mapping[Partition, int],
        done: Callable[[Mapping[Partition, str]], None], explicit: bool = False,
    ) -> None:  # fmt: skip
        if self.commits is not None:
            self.commits.append((positions, done))
            return
        self.stored.update(positions)
        done({})

    def commit_start(
        self, fence: Membership | None, partition: Partition, offset: int,
        done: Callable[[Mapping[Partition, str]], None],
    ) -> None:  # fmt: skip
        self.commit(fence, {partition: offset}, done)

    def remember(self, partition: Partition, position: int) -> None: ...

    def start_at(self, partition: Partition, position: int) -> None: ...

    def released(self, partition: Partition) -> None: ...

    def session_opened(self, fence: Membership) -> None:
        self.memberships.append(fence)

    def session_over(self) -> None:
        self.memberships.append(None)


class Told:
    """A listener that returns at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Partition]]] = []

    def revoked(self, partitions: list[Partition], done: Callable[[], None]) -> None:
        self.calls.append(("revoked", sorted(partitions)))
        done()

    def assigned(self, positions: dict[Partition, int], done: Callable[[Starts], None]) -> None:
        self.calls.append(("assigned", sorted(positions)))
        done(Starts())

    def lost(self, partitions: list[Partition]) -> None:
        self.calls.append(("lost", sorted(partitions)))

    def blocked(self, partitions: list[Partition]) -> None:
        raise AssertionError("claims are granted")


@dataclass
class Clock:
    """The time of the loop."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class SteppedMember:
    """A coordinator, and all that it asks for.

    Args:
        assignors: Of the member; range by default.
        topics: Its subscription, and how many partitions these topics have.
    """

    def __init__(self, *assignors: Assignor, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        there = {"t": 4} if topics is None else topics
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.group, self.topics = ScriptedGroup(), ScriptedTopics(there)
        self.delivery, self.offsets, self.told = HandDelivery(), HandOffsets(), Told()
        self.lease = Lease()
        times: dict[str, Any] = {"session_s": 10.0, "rebalance_s": 60.0, "heartbeat_s": 3.0, "retry_s": 0.1}
        member = BrokerGroupMember(
            "g", "g_m", Wanted.static(dict.fromkeys(there, 1)), assignors=assignors or (RangeAssignor(),),
            **(times | settings),
        )  # fmt: skip
        parts = MemberParts(self.delivery, self.offsets, self.told)
        self.coordinator = Coordinator(member, self.loop, self.group, self.topics, parts, self.lease)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def steps(self) -> None:
        """Run what is due now."""
        for _ in range(100):
            if not self.loop.step():
                return
        raise AssertionError("the loop does not come to rest")

    def passes(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end = self.clock.now + seconds
        while (due := self.loop.next_due()) is not None and due <= end:
            self.clock.now = max(self.clock.now, due)
            self.steps()
        self.clock.now = end
        self.steps()

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Run a call on the loop, and what follows from it."""
        self.loop.post(call, *arguments)
        self.steps()

    # -- requests and their answers ------------------------------------------------------------------------------------

    def asked(self, what: str) -> Asked:
        """The last request of a kind."""
        return next(each for each in reversed(self.group.asked) if each.what == what)

    def count(self, what: str) -> int:
        """How many requests of a kind there were."""
        return sum(each.what == what for each in self.group.asked)

    def found(self) -> None:
        """The coordinator is found."""
        self.asked("find").done(None)
        self.steps()

    def joined(self, generation: int, *members: tuple[str, Sequence[str]], leader: str = "other") -> None:
        """The join is answered: as `m`, who leads if `leader` says so, with other members and their topics."""
        all_members = tuple(
            JoinedMember(name, encode_subscription(Subscription(tuple(topics)), 0)) for name, topics in members
        )
        protocol = next(iter(self.asked("join").protocols))
        self.asked("join").done(Joined(Fence(generation, "m"), protocol, leader, all_members))
        self.steps()

    def synced(self, *partitions: Partition) -> None:
        """The sync is answered with an assignment."""
        assigned = tuple((topic, int(number)) for topic, number in partitions)
        self.asked("sync").done(self.clock.now, Synced(encode_assignment(Assignment(assigned))))
        self.steps()

    def beat(self, code: int | None = None) -> None:
        """The last heartbeat is answered, without an error or with a code; one is sent before if none waits."""
        before = self.count("heartbeat")
        self.passes(3.0)
        assert self.count("heartbeat") > before or code is not None or before
        self.asked("heartbeat").done(self.clock.now, None if code is None else Refused(code, "why"))
        self.steps()

    def refused(self, what: str, code: int | None) -> None:
        """The last request of a kind is refused, or gets no answer."""
        answer = Refused(code, "why")
        asked = self.asked(what)
        if what in ("sync", "heartbeat"):
            asked.done(self.clock.now, answer)
        else:
            asked.done(answer)
        self.steps()

    @property
    def state(self) -> str:
        """What it does."""
        return self.coordinator.state

    @property
    def running(self) -> list[Partition]:
        """What it delivers."""
        return sorted(self.delivery.running)

    @property
    def held(self) -> dict[Partition, p.PartitionState]:
        """What it has anything to do with."""
        return {name: entry.machine.state for name, entry in self.coordinator.partitions.items()}


T0, T1, T2, T3 = (("t", number) for number in range(4))


def stable(*assignors: Assignor, mine: Sequence[Partition] = (T0, T1), **settings: Any) -> SteppedMember:
    """A member that follows another one, delivers two of four partitions, and has just proved it."""
    member = SteppedMember(*assignors, **settings)
    member.post(member.coordinator.start)
    member.found()
    member.joined(1)
    member.synced(*mine)
    assert member.state == "stable"
    assert member.running == sorted(mine)
    return member


def cooperative(mine: Sequence[Partition] = (T0, T1), **settings: Any) -> SteppedMember:
    """The same with the cooperative protocol."""
    return stable(CooperativeStickyAssignor(), mine=mine, **settings)
