"""Assignments beside those of Java's classes, and what holds for any group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.brokers.assignor import Assignor, RangeAssignor, RoundRobinAssignor, Subscriptions
from rebalance.brokers.consumer_protocol import Assignment, Partition, Subscription, decode_subscription
from rebalance.brokers.sticky import CooperativeStickyAssignor, StickyAssignor, encode_owned

VECTORS = Path(__file__).parents[2] / "golden" / "groups" / "assignors.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))
ASSIGNORS: dict[str, type[Assignor]] = {
    each.name: each for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def partition(text: str) -> Partition:
    topic, _, number = text.rpartition("-")
    return topic, int(number)


def subscriptions_of(case: Mapping[str, Any]) -> dict[str, Subscription]:
    found = {}
    for member, each in case["members"].items():
        data = each.get("user_data")
        is_cooperative = case["assignor"] == "cooperative-sticky"
        owned = tuple(map(partition, each.get("owned", ()))) if is_cooperative else ()
        found[member] = Subscription(
            tuple(each["topics"]), None if data is None else bytes.fromhex(data), owned,
            each.get("generation", -1) if is_cooperative else -1, instance_id=each.get("instance"),
        )  # fmt: skip
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_assignments_are_those_of_java(case: dict[str, Any]) -> None:
    wanted = {member: list(map(partition, mine)) for member, mine in case["result"].items()}
    found = ASSIGNORS[case["assignor"]]().assign(case["partitions"], subscriptions_of(case))
    assert set(found) == set(wanted)
    if "ticky" not in case["assignor"]:
        assert found == wanted
        return
    # Which partition moves differs between versions of Kafka too; how many each member has, and keeps, does not.
    assert {member: len(mine) for member, mine in found.items()} == {
        member: len(mine) for member, mine in wanted.items()
    }
    for member, each in case["members"].items():
        had = set(map(partition, each.get("owned", ())))
        assert len(had & set(found[member])) == len(had & set(wanted[member]))


def test_the_second_round_of_a_cooperative_group_assigns_what_the_first_one_left_out() -> None:
    had = tuple(("t", number) for number in range(5))
    first = CooperativeStickyAssignor().assign(
        {"t": 5}, {"A": Subscription(("t",), owned=had, generation=1), "B": Subscription(("t",))}
    )
    assert first == {"A": [("t", 0), ("t", 1), ("t", 2)], "B": []}
    second = CooperativeStickyAssignor().assign(
        {"t": 5},
        {"A": Subscription(("t",), owned=tuple(first["A"]), generation=2), "B": Subscription(("t",), generation=2)},
    )
    assert second == {"A": first["A"], "B": [("t", 3), ("t", 4)]}


def test_a_subscription_of_version_1_has_its_generation_in_the_user_data() -> None:
    """Java's members of Kafka 2.4 to 3.3 write it so: without it the claim of a member that was away would count."""
    stale = Subscription(("t",), (4).to_bytes(4, "big"), (("t", 0), ("t", 1)))
    fresh = Subscription(("t",), (5).to_bytes(4, "big"), (("t", 1), ("t", 2)))
    found = CooperativeStickyAssignor().assign({"t": 4}, {"A": stale, "B": fresh})
    assert ("t", 1) in found["B"]
    assert ("t", 1) not in found["A"]


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\x01\0\x09t", b"\x7f\xff\xff\xff"])
def test_user_data_that_makes_no_sense_means_that_nothing_was_owned(data: bytes) -> None:
    found = StickyAssignor().assign({"t": 2}, {"A": Subscription(("t",), data), "B": Subscription(("t",))})
    assert found == {"A": [("t", 0)], "B": [("t", 1)]}


def test_user_data_of_kafka_before_2_3_has_no_generation() -> None:
    old = encode_owned((("t", 1), ("t", 0)), 9)[:-4]
    found = StickyAssignor().assign({"t": 4}, {"B": Subscription(("t",), old), "A": Subscription(("t",))})
    assert found == {"A": [("t", 2), ("t", 3)], "B": [("t", 0), ("t", 1)]}


def test_a_sticky_member_says_what_it_got() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(["t"]) is None
    assignor.on_assignment(Assignment((("t", 3),)), 7)
    assert assignor.subscription_user_data(["t"]) == encode_owned((("t", 3),), 7)


# -- any group ---------------------------------------------------------------------------------------------------------

TOPICS = ("t0", "t1", "t2", "t3")
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
groups = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from(TOPICS), max_size=4), min_size=1, max_size=6
)


def check_whole(
    counts: Mapping[str, int], subscriptions: Subscriptions, found: Mapping[str, Sequence[Partition]]
) -> None:
    """Each partition that somebody wants has one owner, who wants it."""
    wanted = {topic for each in subscriptions.values() for topic in each.topics}
    given = Counter(each for mine in found.values() for each in mine)
    assert given == Counter((topic, number) for topic in wanted & counts.keys() for number in range(counts[topic]))
    assert all(topic in subscriptions[member].topics for member, mine in found.items() for topic, _ in mine)


def check_even(subscriptions: Subscriptions, found: Mapping[str, Sequence[Partition]]) -> None:
    """Nobody has two more than another member that could take one of them."""
    for member, mine in found.items():
        for topic in {topic for topic, _ in mine}:
            others = [len(found[other]) for other in subscriptions if topic in subscriptions[other].topics]
            assert len(mine) - min(others) <= 1, (member, topic)


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(counts=partition_counts, group=groups)
@settings(max_examples=200, deadline=None)
def test_each_partition_has_one_owner_that_wants_it(
    name: str, counts: dict[str, int], group: dict[str, set[str]]
) -> None:
    subscriptions = {member: Subscription(tuple(sorted(topics))) for member, topics in group.items()}
    found = ASSIGNORS[name]().assign(counts, subscriptions)
    check_whole(counts, subscriptions, found)
    if "sticky" in name:
        check_even(subscriptions, found)


@given(counts=partition_counts, group=groups, later=groups, more=partition_counts)
@settings(max_examples=500, deadline=None)
def test_a_cooperative_group_comes_to_rest_and_meanwhile_nothing_is_assigned_that_another_member_holds(
    counts: dict[str, int], group: dict[str, set[str]], later: dict[str, set[str]], more: dict[str, int]
) -> None:
    before = CooperativeStickyAssignor().assign(
        counts, {member: Subscription(tuple(sorted(topics))) for member, topics in group.items()}
    )
    counts = {topic: max(counts.get(topic, 0), more.get(topic, 0)) for topic in counts | more}
    held = {member: [each for each in before.get(member, ()) if each[0] in later[member]] for member in later}
    for generation in range(1, 6):
        subscriptions = {
            member: Subscription(tuple(sorted(topics)), owned=tuple(held[member]), generation=generation)
            for member, topics in later.items()
        }
        found = CooperativeStickyAssignor().assign(counts, subscriptions)
        for member, mine in found.items():
            others = {each for other, theirs in held.items() if other != member for each in theirs}
            assert not others & set(mine)
        gave_back = any(set(held[member]) - set(found[member]) for member in later)
        held = {member: list(mine) for member, mine in found.items()}
        if not gave_back:
            break
    assert not gave_back
    check_whole(counts, subscriptions, held)
    check_even(subscriptions, held)


@given(counts=partition_counts, members=st.integers(1, 6), gone=st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_what_need_not_move_stays_when_members_come_and_go(counts: dict[str, int], members: int, gone: int) -> None:
    """With equal subscriptions a member keeps what fits into its new share."""
    topics = tuple(sorted(counts))
    first = StickyAssignor().assign(counts, {f"m{number}": Subscription(topics) for number in range(members)})
    left = [member for number, member in enumerate(first) if number != gone] + ["new1", "new2"]
    subscriptions = {
        member: Subscription(topics, encode_owned(tuple(first[member]), 1) if member in first else None)
        for member in left
    }
    second = StickyAssignor().assign(counts, subscriptions)
    check_whole(counts, subscriptions, second)
    for member in left:
        had, has = set(first.get(member, ())), set(second[member])
        assert len(had & has) == min(len(had), len(has)), member


def test_a_subscription_of_java_is_read_in_each_version() -> None:
    """The bytes are those of Kafka's own classes (3.9)."""
    v0 = bytes.fromhex("0000 00000002 000174 000175 ffffffff")
    owned = bytes.fromhex("00000002 000174 00000002 00000000 00000001 000175 00000001 00000000")
    texts = {
        0: v0, 1: b"\0\1" + v0[2:] + owned, 2: b"\0\2" + v0[2:] + owned + bytes.fromhex("00000007"),
        3: b"\0\3" + v0[2:] + owned + bytes.fromhex("00000007 0002 7231"),
    }  # fmt: skip
    has = (("t", 0), ("t", 1), ("u", 0))
    assert decode_subscription(texts[0]) == Subscription(("t", "u"))
    assert decode_subscription(texts[1]) == Subscription(("t", "u"), owned=has)
    assert decode_subscription(texts[2]) == Subscription(("t", "u"), owned=has, generation=7)
    assert decode_subscription(texts[3]) == Subscription(("t", "u"), owned=has, generation=7, rack="r1")
