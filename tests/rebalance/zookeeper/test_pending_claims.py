"""What is asked before claims, and while former owners let go; answers as ZooKeeper gives them, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rebalance import partition as p
from rebalance.loop import Loop
from rebalance.subscription import Partition
from rebalance.zookeeper.claims import Claims, Fence
from rebalance.zookeeper.pending_claims import FEW, PendingClaims
from rebalance.zookeeper.port.requests import (
    Check,
    Create,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Reply,
    Request,
    Stat,
    WatchEvent,
)

FENCE = Fence("/consumers/g/ids/me", 0, 1)
STAT = Stat(0, 0, 2, 1, 1)
MANY = FEW + 4


class Subject:
    """PendingClaims on a loop with a clock of its own; it keeps what is asked and what is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = Loop(lambda: self.now)
        self.asked: list[tuple[Request, Callable[[Reply], None]]] = []
        self.claims = Claims(lambda request, handle: self.asked.append((request, handle)), "g", self.loop.after_step)
        self.claims.fence = FENCE
        self.may_claim = True
        self.awaited: set[Partition] = set()
        self.events: list[WatchEvent] = []
        self.told: dict[Partition, p.Event] = {}
        self.pending_claims = PendingClaims(self.claims, self.loop, lambda: self.may_claim)

    def claim(self, *partitions: Partition) -> None:
        for partition in partitions:
            self.pending_claims.claim(partition, "me-0", lambda event, at=partition: self._told(at, event))  # type: ignore[misc]
        self.loop.step()

    def wait(self, partitions: Sequence[Partition]) -> None:
        self.awaited.update(partitions)
        for partition in partitions:
            self.pending_claims.await_end(
                partition, lambda event, at=partition: self._told(at, event), self.events.append,  # type: ignore[misc]
                lambda at=partition: at in self.awaited,  # type: ignore[misc]
            )  # fmt: skip
        self.loop.step()

    def _told(self, partition: Partition, event: p.Event) -> None:
        assert partition not in self.told
        self.told[partition] = event
        self.awaited.discard(partition)

    def requests(self) -> list[Request]:
        return [request for request, _ in self.asked]

    def answer(self, value: object = None, fault: Fault | None = None) -> Request:
        request, handle = self.asked.pop(0)
        handle(Reply(value, fault, 0.0))
        self.loop.step()
        return request

    def list(self, *names: int) -> None:
        """Answer to a list of owner nodes."""
        assert isinstance(self.answer(([str(name) for name in names], STAT)), GetChildren)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        self.loop.step()


def places(count: int, topic: str = "t") -> list[Partition]:
    return [(topic, number) for number in range(count)]


def owner(number: int, topic: str = "t") -> str:
    return f"/consumers/g/owners/{topic}/{number}"


def creates(*numbers: int) -> Multi:
    return Multi((Check(FENCE.path, 0), *(Create(owner(number), b"me-0", ephemeral=True) for number in numbers)))


def watched(requests: Sequence[Request]) -> list[str]:
    return [each.path for each in requests if isinstance(each, GetData) and each.watch is not None]


# -- claims ------------------------------------------------------------------------------------------------------------


def test_what_is_not_vacant_is_refused_and_nothing_is_created_in_vain() -> None:
    subject = Subject()
    subject.claim(*places(4))
    assert subject.requests() == [GetChildren("/consumers/g/owners/t")]
    assert not any(isinstance(each, GetChildren) and each.watch for each in subject.requests()), "no herd"
    subject.list(1, 2, 77)
    assert subject.told == {("t", 1): p.ClaimRefused(), ("t", 2): p.ClaimRefused()}
    assert subject.requests() == [creates(0, 3)]


def test_claims_of_several_topics_wait_for_all_their_lists_and_share_a_transaction() -> None:
    subject = Subject()
    subject.claim(("t", 0), ("u", 0), ("t", 1))
    assert subject.requests() == [GetChildren("/consumers/g/owners/t"), GetChildren("/consumers/g/owners/u")]
    subject.list(0)
    assert subject.told == {}
    subject.list()
    [multi] = subject.requests()
    assert isinstance(multi, Multi)
    assert {each.path for each in multi.operations[1:]} == {owner(0, "u"), owner(1)}


@pytest.mark.parametrize("fault", [Fault.NO_NODE, Fault.NO_AUTH, Fault.CONNECTION_LOSS])
def test_a_list_that_cannot_be_read_keeps_nobody_from_claiming(fault: Fault) -> None:
    subject = Subject()
    subject.claim(*places(2))
    subject.answer(fault=fault)
    assert subject.requests() == [creates(0, 1)]


def test_a_change_of_the_group_while_the_list_is_read_puts_the_claims_off() -> None:
    subject = Subject()
    subject.claim(*places(3))
    subject.may_claim = False
    subject.list(1)
    assert set(subject.told.values()) == {p.ClaimPutOff()}
    assert subject.requests() == []


# -- what is in the way ------------------------------------------------------------------------------------------------


def test_a_few_nodes_are_watched_at_once() -> None:
    subject = Subject()
    subject.wait([*places(FEW), *places(FEW, "u")])
    assert set(watched(subject.requests())) == {owner(number, topic) for number in range(FEW) for topic in "tu"}


def test_of_a_share_one_node_is_watched_and_a_list_tells_of_all() -> None:
    subject = Subject()
    subject.wait(places(MANY))
    assert watched(subject.requests()) == [owner(0)]
    subject.answer((b"other-0", STAT))
    subject.pass_s(0.06)
    subject.list()
    assert subject.told.pop(("t", 0)) == p.OwnerRead("other-0", False, 0, 2)
    assert subject.told == dict.fromkeys(places(MANY)[1:], p.OwnerGone())
    assert subject.requests() == []


def test_the_end_of_the_watched_node_is_heard_and_the_others_are_looked_for_at_once() -> None:
    subject = Subject()
    subject.wait(places(MANY))
    [first] = subject.requests()
    assert isinstance(first, GetData)
    assert first.watch is not None
    subject.answer((b"other-0", STAT))
    first.watch(WatchEvent(first.path))
    subject.loop.step()
    assert subject.events == [WatchEvent(first.path)]
    subject.list()
    assert len(subject.told) == MANY
    subject.pass_s(10.0)
    assert subject.requests() == [], "it is looked for once"


def test_what_is_not_gone_after_a_few_looks_is_watched_each_by_itself() -> None:
    subject = Subject()
    subject.wait(places(MANY))
    lists = 0
    for _ in range(40):
        while subject.asked:
            if isinstance(subject.asked[0][0], GetChildren):
                lists += 1
                subject.list(*range(MANY))
            else:
                subject.answer((b"other-0", STAT))
        subject.pass_s(0.05)
    assert 1 < lists < 5
    assert set(subject.told) == set(places(MANY)), "each was read, with a watch"


def test_a_list_that_cannot_be_read_frees_nothing() -> None:
    subject = Subject()
    subject.wait(places(MANY))
    subject.answer((b"other-0", STAT))
    subject.pass_s(0.06)
    subject.answer(fault=Fault.CONNECTION_LOSS)
    assert p.OwnerGone() not in subject.told.values()
    assert watched(subject.requests()) == [owner(1)]


def test_nothing_is_asked_about_what_is_not_awaited_any_more() -> None:
    subject = Subject()
    subject.wait(places(MANY))
    subject.answer((b"other-0", STAT))
    subject.awaited.clear()
    subject.pass_s(0.06)
    assert subject.requests() == []


def test_what_is_left_of_a_share_is_watched_when_it_is_little() -> None:
    subject = Subject()
    subject.wait(places(MANY))
    subject.answer((b"other-0", STAT))
    subject.pass_s(0.06)
    subject.list(3, 4)
    assert watched(subject.requests()) == [owner(3), owner(4)]
