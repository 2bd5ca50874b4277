"""What one member should hold, computed from the group as it was read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.errors import RefusedNode
from rebalance.subscription import Subscription, assign_roundrobin
from rebalance.zookeeper.port.requests import Fault
from rebalance.zookeeper.snapshot import GroupSnapshot, Strategy, TopicNode, assign
from tests.access_lists import unread


def topics(**partitions: int) -> dict[str, TopicNode]:
    return {topic: TopicNode(tuple(range(count))) for topic, count in partitions.items()}


def of(snapshot: GroupSnapshot, member: str, strategy: Strategy | None = None) -> dict[tuple[str, int | str], str]:
    return dict(assign(snapshot, member, snapshot.members[member], strategy or Strategy()).mine)


def test_ranges_are_dealt_to_the_sorted_threads_the_first_ones_getting_one_more() -> None:
    snapshot = GroupSnapshot({"g_a": Subscription.static({"t": 1}), "g_b": Subscription.static({"t": 2})}, topics(t=5))
    assert of(snapshot, "g_a") == {("t", 0): "g_a-0", ("t", 1): "g_a-0"}
    assert of(snapshot, "g_b") == {("t", 2): "g_b-0", ("t", 3): "g_b-0", ("t", 4): "g_b-1"}


def test_thread_ids_sort_as_text_so_ten_comes_before_two() -> None:
    snapshot = GroupSnapshot({"g_a": Subscription.static({"t": 11})}, topics(t=11))
    mine = of(snapshot, "g_a")
    assert [mine["t", partition] for partition in range(4)] == ["g_a-0", "g_a-1", "g_a-10", "g_a-2"]


def test_members_of_other_topics_take_no_part() -> None:
    snapshot = GroupSnapshot({"g_a": Subscription.static({"t": 1}), "g_b": Subscription.static({"u": 1})}, topics(t=2))
    assert len(of(snapshot, "g_a")) == 2


def test_a_filter_takes_the_topics_it_lets_through_internal_ones_aside() -> None:
    known = frozenset({"a1", "a2", "b", "__consumer_offsets"})
    snapshot = GroupSnapshot(
        {"g_a": Subscription.black_list("b", 1)}, {**topics(a1=1, a2=1), "__consumer_offsets": TopicNode((0,))}, known
    )
    assert set(of(snapshot, "g_a")) == {("a1", 0), ("a2", 0)}
    assert ("__consumer_offsets", 0) in of(snapshot, "g_a", Strategy(exclude_internal_topics=False))


def test_a_member_whose_name_begins_like_mine_is_not_me() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1}), "g_a-0": Subscription.static({"t": 1})}, topics(t=2)
    )
    assert of(snapshot, "g_a") == {("t", 0): "g_a-0"}
    assert of(snapshot, "g_a-0") == {("t", 1): "g_a-0-0"}


def test_more_threads_than_partitions_leave_some_without() -> None:
    snapshot = GroupSnapshot({name: Subscription.static({"t": 1}) for name in ("g_a", "g_b", "g_c")}, topics(t=2))
    assert of(snapshot, "g_c") == {}


def test_a_topic_that_does_not_exist_is_waited_for_and_stops_nobody() -> None:
    snapshot = GroupSnapshot({"g_a": Subscription.static({"t": 1, "later": 1})}, topics(t=1))
    assert of(snapshot, "g_a") == {("t", 0): "g_a-0"}


def test_an_unreadable_registration_counts_as_no_subscription_and_is_named() -> None:
    snapshot = GroupSnapshot({"g_a": Subscription.static({"t": 1})}, topics(t=2), unreadable={"g_bad": "no JSON"})
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy())
    assert len(result.mine) == 2
    assert result.frozen is None
    assert "g_bad" in result.warnings[0]
    assert "no JSON" in result.warnings[0]


def test_a_filter_that_cannot_be_applied_freezes_and_is_named() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1})}, topics(t=2), untranslatable={"g_odd": "possessive quantifier"}
    )
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy())
    assert result.mine == {}
    assert result.frozen is not None
    assert "g_odd" in result.frozen
    assert "possessive quantifier" in result.frozen


def refused(path: str) -> RefusedNode:
    return RefusedNode(path, Fault.NO_AUTH)


def test_a_registration_that_may_not_be_read_freezes_and_is_named() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1})}, topics(t=2),
        refused_members={"g_shut": refused("/ids/g_shut"), "g_also": refused("/ids/g_also")},
    )  # fmt: skip
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy())
    assert result.mine == {}
    assert result.frozen == (
        "this member keeps its partitions and claims no others until /ids/g_also (and 1 more) can be read or is deleted"
    )
    assert result.warnings == tuple(unread(f"/ids/{name}") for name in ("g_also", "g_shut"))


@pytest.mark.parametrize("which", ["refused_members_list", "refused_topics_list"])
def test_a_list_that_may_not_be_read_freezes_and_is_named(which: str) -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1})},
        topics(t=2),
        **{which: refused("/list")},  # type: ignore[arg-type]
    )
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy())
    assert result.mine == {}
    assert "/list" in (result.frozen or "")
    assert unread("/list") in result.warnings


def test_a_topic_that_may_not_be_read_freezes_that_topic_alone() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1, "u": 1})}, topics(t=2), refused_topics={"u": refused("/topics/u")}
    )
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy())
    assert set(result.mine) == {("t", 0), ("t", 1)}
    assert result.frozen is None
    assert result.frozen_topics == {"u"}
    assert unread("/topics/u") in result.warnings[0]


def test_with_roundrobin_a_topic_that_may_not_be_read_freezes_all_as_they_are_dealt_together() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1, "u": 1})}, topics(t=2), refused_topics={"u": refused("/topics/u")}
    )
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy("roundrobin"))
    assert result.mine == {}
    assert "/topics/u" in (result.frozen or "")


def test_one_node_that_may_not_be_read_is_named_alone() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1})}, topics(t=2), refused_members={"g_shut": refused("/ids/g_shut")}
    )
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy())
    assert result.frozen == (
        "this member keeps its partitions and claims no others until /ids/g_shut can be read or is deleted"
    )


@pytest.mark.parametrize("reason", ["refused", "untranslatable", "unequal"])
def test_a_frozen_group_owns_nothing_and_loses_no_warning(reason: str) -> None:
    frozen = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1}), "g_b": Subscription.static({"t": 1, "u": 1})}, topics(t=2),
        unreadable={"g_bad": "no JSON"},
        refused_members={"g_shut": refused("/ids/g_shut")} if reason == "refused" else {},
        untranslatable={"g_odd": "look-behind"} if reason == "untranslatable" else {},
    )  # fmt: skip
    result = assign(frozen, "g_a", frozen.members["g_a"], Strategy("roundrobin"))
    assert result.frozen is not None
    assert (result.mine, result.owners) == ({}, {})
    assert "g_bad" in result.warnings[0]


def test_the_owners_are_those_of_all_partitions_of_my_topics() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1}), "g_b": Subscription.static({"t": 1, "u": 1})}, topics(t=2, u=1)
    )
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy())
    assert result.owners == {("t", 0): "g_a-0", ("t", 1): "g_b-0"}


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_where_the_names_of_all_topics_are_not_known_those_that_were_read_count(strategy: str) -> None:
    snapshot = GroupSnapshot({"g_a": Subscription.white_list("t.*", 1)}, topics(t1=1, u=1))
    assert set(of(snapshot, "g_a", Strategy(strategy))) == {("t1", 0)}


def test_an_internal_topic_that_one_member_names_is_not_shared_with_those_who_filter() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.white_list(".*", 1), "g_b": Subscription.static({"__consumer_offsets": 1})},
        {"__consumer_offsets": TopicNode((0, 1))}, frozenset({"__consumer_offsets"}),
    )  # fmt: skip
    assert len(of(snapshot, "g_b")) == 2
    assert assign(snapshot, "g_a", snapshot.members["g_a"], Strategy()).owners == {}


def test_who_is_registered_as_far_as_can_be_told() -> None:
    plain = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1})},
        topics(t=2),
        unreadable={"g_b": "no JSON"},
        untranslatable={"g_c": "look-behind"},
        refused_members={"g_d": refused("/ids/g_d")},
    )
    assert [name for name in ("g_a", "g_b", "g_c", "g_d", "g_e") if plain.lacks(name)] == ["g_b", "g_e"]
    hidden = GroupSnapshot({}, {}, refused_members_list=refused("/ids"))
    assert not hidden.lacks("g_a")


@pytest.mark.catalogue("B15")
def test_roundrobin_with_unequal_members_freezes_with_the_reason() -> None:
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"t": 1}), "g_b": Subscription.static({"t": 1, "u": 1})}, topics(t=2)
    )
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy("roundrobin"))
    assert result.mine == {}
    assert "roundrobin" in (result.frozen or "")


def test_with_roundrobin_a_topic_that_i_do_not_read_counts_too() -> None:
    """A snapshot holds my topics alone; what another member's filter takes beside them makes us unequal."""
    snapshot = GroupSnapshot(
        {"g_a": Subscription.white_list("t", 1), "g_b": Subscription.white_list("t|u", 1)}, topics(t=2),
        frozenset({"t", "u"}),
    )  # fmt: skip
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy("roundrobin"))
    assert "roundrobin is impossible" in (result.frozen or "")


@pytest.mark.parametrize("is_excluded", [True, False])
def test_with_roundrobin_internal_topics_are_dealt_or_left_out_as_the_group_says(is_excluded: bool) -> None:
    internal = {("__consumer_offsets", 0): "g_a-0"}
    snapshot = GroupSnapshot(
        {"g_a": Subscription.white_list(".*", 1)}, {**topics(t=1), "__consumer_offsets": TopicNode((0,))},
        frozenset({"t", "__consumer_offsets"}),
    )  # fmt: skip
    strategy = Strategy("roundrobin", exclude_internal_topics=is_excluded)
    assert of(snapshot, "g_a", strategy) == {("t", 0): "g_a-0"} | ({} if is_excluded else internal)


@pytest.mark.parametrize("order", ["0.8", "1.0"])
def test_roundrobin_goes_by_the_order_of_the_groups_version(order: str) -> None:
    group = {name: Subscription.static({"t": 1, "topic1": 1}) for name in ("g_a", "g_b", "g_c")}
    snapshot = GroupSnapshot(group, topics(t=12, topic1=12))
    threads = dict.fromkeys(("t", "topic1"), tuple(f"{name}-0" for name in group))
    result = assign(snapshot, "g_a", group["g_a"], Strategy("roundrobin", order))
    assert result.owners == assign_roundrobin({"t": range(12), "topic1": range(12)}, threads, order)


def test_roundrobin_warns_of_partitions_whose_order_members_may_see_differently() -> None:
    group = {"g_a": Subscription.static({"Aa": 1, "BB": 1})}
    result = assign(GroupSnapshot(group, topics(Aa=1, BB=1)), "g_a", group["g_a"], Strategy("roundrobin"))
    [warning] = result.warnings
    assert "('Aa', 0) and ('BB', 0)" in warning


@pytest.mark.parametrize(("order", "count"), [("0.8", 0), ("1.0", 1)])
def test_which_partitions_have_the_same_hash_goes_by_the_order_of_the_groups_version(order: str, count: int) -> None:
    group = {"g_a": Subscription.static({"ads.refunds": 1, "pages.returns": 1})}
    snapshot = GroupSnapshot(group, {"ads.refunds": TopicNode((670,)), "pages.returns": TopicNode((3,))})
    assert len(assign(snapshot, "g_a", group["g_a"], Strategy("roundrobin", order)).warnings) == count


def test_roundrobin_deals_by_the_hash_of_java() -> None:
    # Java sorts topic1's partitions 10 and 11 before 0; see the vectors of test_assignment.py.
    snapshot = GroupSnapshot(
        {"g_a": Subscription.static({"topic1": 1}), "g_b": Subscription.static({"topic1": 1})}, topics(topic1=12)
    )
    mine, other = of(snapshot, "g_a", Strategy("roundrobin")), of(snapshot, "g_b", Strategy("roundrobin"))
    assert len(mine) == len(other) == 6
    assert mine.keys().isdisjoint(other)


@pytest.mark.catalogue("B15")
def test_roundrobin_without_any_topic_is_an_empty_assignment() -> None:
    snapshot = GroupSnapshot({"g_a": Subscription.white_list("nothing.*", 1)}, {}, frozenset({"t"}))
    result = assign(snapshot, "g_a", snapshot.members["g_a"], Strategy("roundrobin"))
    assert result.mine == {}
    assert result.frozen is None


members = st.dictionaries(
    st.sampled_from([f"g_{letter}" for letter in "abcdefg"]),
    st.dictionaries(st.sampled_from(["t", "u"]), st.integers(1, 3), min_size=1).map(Subscription.static),
    min_size=1,
)


@given(members, st.integers(0, 20), st.integers(0, 5))
def test_the_members_tables_fit_together_each_partition_has_exactly_one_owner(
    group: dict[str, Subscription], first: int, second: int
) -> None:
    snapshot = GroupSnapshot(group, topics(t=first, u=second))
    assigned: list[tuple[str, int | str]] = []
    for member in group:
        assigned.extend(of(snapshot, member))
    consumed = {topic for subscription in group.values() for topic in subscription.topics(["t", "u"])}
    expected = [
        (topic, partition)
        for topic, count in (("t", first), ("u", second))
        if topic in consumed
        for partition in range(count)
    ]
    assert sorted(assigned) == sorted(expected)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 30))
def test_equal_members_share_evenly(strategy: str, count: int, streams: int, partitions: int) -> None:
    group = {f"g_{number}": Subscription.static({"t": streams}) for number in range(count)}
    snapshot = GroupSnapshot(group, topics(t=partitions))
    shares = [len(of(snapshot, member, Strategy(strategy))) for member in group]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= streams
