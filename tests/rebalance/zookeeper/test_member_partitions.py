"""What becomes of a release that meets another registration than the one it was asked under, without a ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from members import History, RecordingDelivery, RecordingListener, WatchedLease

from rebalance import partition as p
from rebalance.loop import Loop
from rebalance.member_partitions import MemberPartitions
from rebalance.ports import MemberParts
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.subscription import Subscription
from rebalance.takeover import MemberPartition
from rebalance.zookeeper.claims import Claims, Fence
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.pending_claims import NodeClaims
from rebalance.zookeeper.port.requests import Check, Delete, Fault, GetData, Multi, Reply, Request, Stat, Sync
from zkconsumer.offsets.zookeeper_offsets import ZooKeeperOffsets

PARTITION = ("t", 0)
OWNER = "/consumers/g/owners/t/0"
FIRST = Fence("/consumers/g/ids/me", 0, 1)
SECOND = Fence(FIRST.path, 1, 1)
MINE = (b"me-0", Stat(version=0, cversion=0, ephemeral_owner=1, czxid=1, pzxid=1, mzxid=1))
FENCED = [Fault.BAD_VERSION, Fault.ROLLED_BACK]


class Held:
    """MemberPartitions that let go of one partition; it keeps what is asked."""

    def __init__(self) -> None:
        self.loop = Loop(lambda: 0.0)
        self.asked: list[tuple[Request, Callable[[Reply], None]]] = []
        self.claims = Claims(self.ask, "g", self.loop.after_step)
        self.claims.fence = FIRST
        lease = WatchedLease()
        self.partitions = MemberPartitions(
            RegisteredMember("g", "me", Subscription.static({"t": 1})),
            self.loop,
            NodeClaims(self.claims, self.loop, lambda: True),
            MemberParts(
                RecordingDelivery("me", History(), lease),
                ZooKeeperOffsets(self.ask, self.loop, "g"),
                RecordingListener(),
            ),
            RebalanceStatistics(),
            self,
        )
        machine = p.PartitionMachine()
        machine.state, machine.held = p.PartitionState.DRAINING, "me-0"
        self.partitions.all[PARTITION] = MemberPartition(machine, 0.0)

    def recheck(self, cause: str) -> None: ...

    def fenced(self) -> None: ...

    def partitions_moved(self) -> None: ...

    def ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        self.asked.append((request, handle))

    def answer(self, value: object) -> None:
        self.asked.pop(0)[1](Reply(value, None, 0.0))
        self.loop.step()

    def requests(self) -> list[Request]:
        return [request for request, _ in self.asked]

    def registered_anew(self) -> None:
        self.claims.fence = SECOND
        self.partitions.handle_all(p.Reconnected())


@pytest.mark.parametrize("told_first", [True, False], ids=["told before the answer", "told after it"])
def test_a_release_that_a_new_registration_overtakes_is_asked_for_again_under_that(told_first: bool) -> None:
    held = Held()
    held.partitions.handle(PARTITION, p.Drained())
    held.answer(MINE)
    assert held.requests() == [Multi((Check(FIRST.path, 0), Delete(OWNER, 0)))]
    if told_first:
        held.registered_anew()
        held.answer(FENCED)
    else:
        held.answer(FENCED)
        assert held.requests() == [], "nothing can be released before the registration stands"
        held.registered_anew()
    assert held.requests() == [Sync(OWNER), GetData(OWNER)]
    held.answer(OWNER)
    held.answer(MINE)
    held.answer(MINE)
    assert held.requests() == [Multi((Check(SECOND.path, 1), Delete(OWNER, 0)))]


def test_an_answer_of_another_session_says_nothing() -> None:
    held = Held()
    held.partitions.handle(PARTITION, p.Drained())
    held.claims.fence = Fence(FIRST.path, 1, 2)
    held.answer(MINE)
    held.answer(FENCED)
    assert held.requests() == []
