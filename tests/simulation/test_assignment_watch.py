"""The events `due` of a simulation: who should own each partition, by each order of roundrobin."""

from __future__ import annotations

import json

from rebalance.zookeeper import znodes
from rebalance.zookeeper.snapshot import Strategy
from tests.simulator.assignment_watch import AssignmentWatch
from tests.simulator.tree import Change, ChangeKind
from tests.simulator.zookeeper_connection import Record
from zkconsumer.testing.history import Place

TOPICS = {"t": 3, "t1": 2, "t2": 2}


class Watched:
    """An assignment watch of group g, and what it has written since the last look."""

    def __init__(self, strategy: str) -> None:
        self.written: list[tuple[str, Place, str]] = []
        self.watch = AssignmentWatch(
            "g",
            Strategy(strategy),
            "-abc".__getitem__,
            lambda topic, number: (topic, number),
            lambda member, place, order: self.written.append((member, place, order)),
        )
        for topic, count in TOPICS.items():
            layout = {"version": 1, "partitions": {str(number): [0] for number in range(count)}}
            self.see(ChangeKind.CREATED, f"{znodes.TOPICS}/{topic}", layout)

    def see(self, kind: ChangeKind, path: str, content: object = None, owner: int = 0) -> None:
        data = json.dumps(content).encode() if content else b""
        self.watch.observe(Record(1, owner, (Change(kind, path, data, owner),)))

    def join(self, member: str) -> None:
        registration = {"version": 1, "subscription": dict.fromkeys(TOPICS, 1), "pattern": "static", "timestamp": "1"}
        self.see(ChangeKind.CREATED, f"{znodes.ids_path('g')}/g_{member}", registration, "-abc".index(member))

    def leave(self, member: str) -> None:
        self.see(ChangeKind.DELETED, f"{znodes.ids_path('g')}/g_{member}")

    def news(self, order: str) -> dict[Place, str]:
        return {place: member for member, place, of in self.written if of == order}


def test_each_order_of_roundrobin_has_events_of_its_own() -> None:
    group = Watched("roundrobin")
    for member in "abc":
        group.join(member)
    old, new = group.news(""), group.news("1.0")
    assert old.keys() == new.keys() == {(topic, number) for topic, count in TOPICS.items() for number in range(count)}
    assert set(old.values()) == set(new.values()) == {"a", "b", "c"}
    differing = {place for place in old if old[place] != new[place]}
    assert differing
    assert differing <= group.watch.disputed

    group.written.clear()
    group.leave("b")
    for order, before in (("", old), ("1.0", new)):
        assert group.news(order).keys() >= {place for place, member in before.items() if member == "b"}
        assert set(group.news(order).values()) <= {"a", "c"}


def test_range_has_one_order_and_nothing_in_dispute() -> None:
    group = Watched("range")
    for member in "abc":
        group.join(member)
    assert {order for _, _, order in group.written} == {""}
    assert not group.watch.disputed
