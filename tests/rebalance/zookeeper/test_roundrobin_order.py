"""The order of roundrobin, learned from Java members: what counts as evidence, and what follows from it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from rebalance.subscription import Assignment, Partition, Subscription, assign_roundrobin, consumer_id_of, thread_ids
from rebalance.zookeeper.roundrobin_order import ORDERS, RoundrobinOrder
from rebalance.zookeeper.snapshot import GroupSnapshot, OwnerNode, Strategy, TopicNode

CONFIRM_S, WAIT_S, DISSENT_S = 1.5, 16.0, 40.0
TOPICS = {"first": 5, "topic-2": 12}
OURS, JAVA = "g_a", "g_j"


@dataclass
class Group:
    """A group as it stands in ZooKeeper; all members have one stream on each topic."""

    ours: tuple[str, ...] = (OURS,)
    java: tuple[str, ...] = (JAVA,)
    topics: Mapping[str, int] = field(default_factory=lambda: TOPICS)
    version: int = 100
    owners: dict[Partition, OwnerNode] = field(default_factory=dict)

    def table(self, order: str) -> dict[tuple[str, int], str]:
        threads = [thread for name in (*self.ours, *self.java) for thread in thread_ids(name, 1)]
        return assign_roundrobin(
            {topic: range(count) for topic, count in self.topics.items()}, dict.fromkeys(self.topics, threads), order
        )

    def share(self, order: str, name: str) -> dict[tuple[str, int], str]:
        return {partition: thread for partition, thread in self.table(order).items() if consumer_id_of(thread) == name}

    def claim(self, order: str, names: Iterable[str], czxid: int = 0) -> None:
        """Let members own what an order assigns to them, and nothing else."""
        for name in names:
            self.release(name)
            for partition, thread in self.share(order, name).items():
                self.owners[partition] = OwnerNode(thread, czxid or self.version + 1)

    def release(self, name: str) -> None:
        self.owners = {
            partition: node for partition, node in self.owners.items() if consumer_id_of(node.thread_id) != name
        }

    def snapshot(self, is_read: bool = True) -> GroupSnapshot:
        subscription = Subscription.static(dict.fromkeys(self.topics, 1))
        return GroupSnapshot(
            members=dict.fromkeys((*self.ours, *self.java), subscription),
            topics={topic: TopicNode(tuple(range(count))) for topic, count in self.topics.items()},
            group_version=self.version,
            java_members=frozenset(self.java),
            owners=dict(self.owners) if is_read else None,
        )


class Member:
    """One member of ours that looks at a group."""

    def __init__(self, group: Group, setting: str = "auto", name: str = OURS) -> None:
        self.group = group
        self.name = name
        self.now = 50.0
        self.order = RoundrobinOrder(
            name,
            Subscription.static(dict.fromkeys(group.topics, 1)),
            Strategy("roundrobin", setting),
            CONFIRM_S,
            WAIT_S,
            DISSENT_S,
        )

    def look(self, after_s: float = 0.0) -> Assignment:
        self.now += after_s
        return self.order.assign(self.group.snapshot(), self.now)

    def look_until_decided(self) -> Assignment:
        self.look()
        return self.look(CONFIRM_S)


def differing(group: Group) -> set[tuple[str, int]]:
    one, other = (group.table(order) for order in ORDERS)
    return {partition for partition, thread in one.items() if thread != other[partition]}


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_the_java_member_is_taken_and_named(order: str) -> None:
    group = Group()
    group.claim(order, group.java)
    member = Member(group)
    result = member.look_until_decided()
    assert member.order.decided == order
    assert result.mine == group.share(order, OURS)
    assert result.frozen is None
    said = "roundrobin.order is 1.0, because g_j assigned in that order"
    named = [warning for warning in result.warnings if said in warning]
    assert len(named) == (order == "1.0")


@pytest.mark.parametrize("order", ORDERS)
def test_before_the_order_is_known_nothing_is_claimed_that_one_order_gives_to_java(order: str) -> None:
    group = Group()
    result = Member(group).look()
    assert set(result.mine) == set(group.share(order, OURS)) - differing(group)
    assert any("the order of roundrobin is not known yet" in warning for warning in result.warnings)


NO_EVIDENCE = [
    "older than the last join",
    "a part of its share",
    "more than its share",
    "owns nothing",
    "another member of Java owns nothing",
    "two orders",
    "just seen",
]


@pytest.mark.parametrize("what", NO_EVIDENCE)
def test_what_leaves_a_doubt_is_no_evidence(what: str) -> None:
    group = Group(java=(JAVA, "g_k"))
    group.claim("1.0", group.java)
    if what == "older than the last join":
        group.claim("1.0", group.java, czxid=group.version - 1)
    elif what == "a part of its share":
        del group.owners[next(iter(group.share("1.0", JAVA)))]
    elif what == "more than its share":
        group.owners[next(iter(group.share("1.0", OURS)))] = OwnerNode(f"{JAVA}-0", group.version + 1)
    elif what == "owns nothing":
        group.owners.clear()
    elif what == "another member of Java owns nothing":
        group.release("g_k")
    elif what == "two orders":
        group.claim("0.8", ["g_k"])
    member = Member(group)
    member.look()
    member.look(0.5 * CONFIRM_S if what == "just seen" else CONFIRM_S)
    assert member.order.decided is None


def test_nodes_that_change_between_two_looks_are_confirmed_later() -> None:
    group = Group()
    group.claim("1.0", group.java)
    member = Member(group)
    member.look()
    group.claim("1.0", group.java, czxid=group.version + 7)  # rebalanced once more
    member.look(CONFIRM_S)
    assert member.order.decided is None
    member.look(CONFIRM_S)
    assert member.order.decided == "1.0"


def test_an_idle_java_member_is_idle_in_both_orders_and_does_not_keep_the_others_from_proving() -> None:
    group = Group(java=(JAVA, *(f"g_{number}" for number in range(20, 40))))
    assert [bool(group.share(order, "g_j")) for order in ORDERS] == [False, False]
    group.claim("1.0", group.java)
    member = Member(group)
    member.look_until_decided()
    assert member.order.decided == "1.0"


def test_members_of_this_client_are_no_evidence() -> None:
    group = Group(ours=(OURS, "g_b"))
    group.claim("1.0", ["g_b"])
    member = Member(group)
    member.look_until_decided()
    assert member.order.decided is None


def test_where_the_orders_agree_there_is_nothing_to_learn_and_to_wait_for() -> None:
    group = Group(topics={"t": 9})
    assert not differing(group)
    member = Member(group)
    assert not member.order.needs_owners(group.snapshot(is_read=False))
    assert member.look().mine == group.share("1.0", OURS)
    assert member.order.next_look() is None


def test_without_java_members_nothing_is_waited_for() -> None:
    group = Group(ours=(OURS, "g_b"), java=())
    member = Member(group)
    assert member.look().mine == group.share("0.8", OURS)


def test_a_member_alone_makes_way_for_a_java_member_that_joins_and_takes_its_order() -> None:
    group = Group(java=())
    member = Member(group)
    assert member.look().mine == group.share("0.8", OURS)
    group.java, group.version = (JAVA,), 200
    left = member.look(10.0)
    assert not set(left.mine) & differing(group)
    assert not set(left.mine) & set(group.share("1.0", JAVA)), "a Java member claims all or nothing"
    group.claim("1.0", [JAVA])
    assert member.look_until_decided().mine == group.share("1.0", OURS)


def test_java_members_that_claim_nothing_are_waited_for_for_a_limited_time_after_each_change() -> None:
    group = Group()
    member = Member(group)
    member.look()
    assert not set(member.look(WAIT_S - 0.1).mine) & differing(group)
    late = member.look(0.1)
    assert late.mine == group.share("0.8", OURS)
    said = "g_j did not claim the partitions that roundrobin.order 0.8 assigns"
    assert any(said in warning for warning in late.warnings)
    assert member.order.decided is None
    group.version += 1
    assert not set(member.look(30.0).mine) & differing(group), "it joined again: it may show its order now"


def test_after_the_wait_the_order_that_some_java_members_show_is_assumed() -> None:
    group = Group(java=(JAVA, "g_k"))
    group.claim("1.0", [JAVA])
    member = Member(group)
    member.look()
    assert member.look(WAIT_S).mine == group.share("1.0", OURS)
    assert member.order.decided is None


def test_contrary_evidence_freezes() -> None:
    group = Group()
    group.claim("0.8", group.java)
    member = Member(group)
    member.look_until_decided()
    group.claim("1.0", group.java, czxid=group.version + 5)
    assert member.look(1.0).frozen is None, "it may be in the middle of a rebalance"
    frozen = member.look(CONFIRM_S)
    assert "another order of roundrobin than 0.8 (g_j by 1.0)" in (frozen.frozen or "")
    assert frozen.mine == {}
    assert member.order.decided == "0.8"
    group.claim("0.8", group.java, czxid=group.version + 9)
    member.look(1.0)
    assert member.look(CONFIRM_S).mine == group.share("0.8", OURS)


def test_contrary_evidence_is_followed_when_no_java_member_shows_the_former_order_for_longer_than_the_wait() -> None:
    group = Group(java=(JAVA, "g_k"))
    group.claim("0.8", group.java)
    member = Member(group)
    member.look_until_decided()
    group.claim("1.0", ["g_k"], czxid=group.version + 5)
    member.look(WAIT_S)
    for _ in range(9):
        assert member.look(WAIT_S).frozen is not None, "g_j still shows 0.8"
    group.claim("1.0", [JAVA], czxid=group.version + 9)
    assert member.look(1.0).frozen is not None
    assert member.look(WAIT_S - 0.1).frozen is not None
    followed = member.look(0.1)
    assert (member.order.decided, followed.frozen, followed.mine) == ("1.0", None, group.share("1.0", OURS))


def test_claims_go_on_when_the_member_that_contradicts_has_left() -> None:
    group = Group(java=(JAVA, "g_k"))
    group.claim("0.8", group.java)
    member = Member(group)
    member.look_until_decided()
    group.claim("1.0", ["g_k"], czxid=group.version + 5)
    member.look()
    assert member.look(CONFIRM_S).frozen is not None
    group.java, group.version = (JAVA,), 200
    assert member.look(1.0).frozen is None


@pytest.mark.parametrize(("setting", "java"), [("0.8", "1.0"), ("1.0", "0.8")])
def test_an_explicit_order_is_obeyed_and_the_contradiction_is_named(setting: str, java: str) -> None:
    group = Group()
    group.claim(java, group.java)
    member = Member(group, setting)
    assert member.look().mine == group.share(setting, OURS)
    result = member.look(CONFIRM_S)
    assert result.mine == group.share(setting, OURS)
    assert result.frozen is None
    assert any(f"than {setting} (g_j by {java}); the setting of this member counts" in each for each in result.warnings)


def test_an_explicit_order_that_keeps_java_from_claiming_is_named_after_the_wait() -> None:
    group = Group()
    member = Member(group, "0.8")
    assert member.look().mine == group.share("0.8", OURS)
    assert member.order.next_look() == member.now + WAIT_S
    warnings = member.look(WAIT_S).warnings
    assert any("Java 1.0 and 1.1 need roundrobin.order 1.0 in all zkconsumer members" in each for each in warnings)


@pytest.mark.parametrize("drain_s", [0.5, 3.0, 6.0])
def test_a_partition_that_a_member_of_this_client_drains_changes_nothing_and_accuses_nobody(drain_s: float) -> None:
    """`g_b` still owns `clicks`, its share of both before `g_a` joined; 1.0 assigns it `clicks` now, 0.8 `orders`."""
    group = Group(ours=(OURS, "g_b"), java=(), topics={"clicks": 1, "orders": 1})
    place = next(iter(group.share("1.0", "g_b")))
    assert group.share("0.8", OURS).keys() == {place}
    group.owners[place] = OwnerNode("g_b-0", group.version - 1)
    for setting in ("auto", "0.8"):
        member = Member(group, setting)
        for look in range(12):
            result = member.look(drain_s / 3 if look else 0.0)
            assert (result.mine, result.frozen, result.warnings) == (group.share("0.8", OURS), None, ())


def test_two_members_of_this_client_that_differ_are_named_later_than_any_drain_takes() -> None:
    group = Group(ours=(OURS, "g_b"), java=())
    group.claim("0.8", ["g_b"])
    member = Member(group, "1.0")
    member.look()
    assert member.order.next_look() == member.now + DISSENT_S
    assert not member.look(DISSENT_S - 0.1).warnings
    result = member.look(0.1)
    assert any("g_b of zkconsumer has another roundrobin.order than 1.0" in each for each in result.warnings)
    assert result.mine == group.share("1.0", OURS)
    group.claim("1.0", ["g_b"])
    assert not member.look(30.0).warnings, "the nodes are read again before it is said again"


def test_members_of_this_client_never_change_the_order() -> None:
    group = Group(ours=(OURS, "g_b"), java=())
    group.claim("1.0", ["g_b"])
    member = Member(group)
    for _ in range(9):
        assert member.look(DISSENT_S).mine == group.share("0.8", OURS)


@pytest.mark.parametrize("order", ORDERS)
def test_without_java_members_all_use_one_order_whatever_they_learned_before(order: str) -> None:
    group = Group(ours=(OURS, "g_b"))
    group.claim(order, group.java)
    member = Member(group)
    member.look_until_decided()
    assert member.order.decided == order
    group.java, group.version = (), 200
    group.release(JAVA)
    newcomer = Member(group, name="g_b")
    for each in (member, newcomer):
        result = each.look(0.1)
        assert (result.mine, result.frozen, result.warnings) == (group.share("0.8", each.name), None, ())


def test_an_order_is_forgotten_when_no_java_member_shows_it_for_longer_than_the_wait() -> None:
    """A member that joins now learns nothing; without this, the two would differ for ever."""
    group = Group(ours=(OURS, "g_b"), java=(JAVA, "g_k"))
    group.claim("1.0", group.java)
    member = Member(group)
    member.look_until_decided()
    group.java, group.version = ("g_k",), 200
    group.owners.clear()  # g_k has given up
    newcomer = Member(group, name="g_b")
    member.look()
    newcomer.look()
    assert member.look(WAIT_S - 0.1).mine.keys() == group.share("1.0", OURS).keys(), "g_k may rebalance"
    for each in (member, newcomer):
        each.look(WAIT_S)
        assert each.look().mine == group.share("0.8", each.name)
        assert each.order.decided is None


def test_an_order_is_kept_while_a_java_member_rebalances() -> None:
    group = Group()
    group.claim("1.0", group.java)
    member = Member(group)
    member.look_until_decided()
    for again in range(3):
        group.release(JAVA)
        member.look(30.0)
        due = member.order.next_look()
        assert due is not None
        group.claim("1.0", group.java, czxid=group.version + 5 + again)
        member.look(due - member.now)
        assert (member.order.decided, member.look(CONFIRM_S).mine) == ("1.0", group.share("1.0", OURS))


@pytest.mark.parametrize("seed", range(40))
def test_members_of_this_client_never_stay_at_different_orders(seed: int) -> None:
    """Java members of both orders come, claim, give up, and leave; members of ours join at any time."""
    rng = random.Random(seed)
    group = random_group(rng)
    everybody, java = group.ours, group.java
    group.ours = everybody[:1]
    members = [Member(group, name=everybody[0])]
    for _ in range(12):
        group.version += 1000
        group.java = tuple(name for name in java if rng.random() < 0.6)
        joined = len(group.ours) < len(everybody) and rng.random() < 0.5
        group.ours = everybody[: len(group.ours) + joined]
        members += [Member(group, name=name) for name in group.ours[len(members) :]]
        for name in java:
            group.release(name)
        for name in group.java:
            if rng.random() < 0.7:
                group.claim(rng.choice(ORDERS), [name])
        for _ in range(rng.randint(1, 6)):
            for member in members:
                if rng.random() < 0.7:
                    member.look(rng.choice((0.5, CONFIRM_S, WAIT_S)))
    if len({order for name in group.java for order in proved_by(group, name)}) > 1:
        return  # the Java members themselves do not agree: the status names them
    for _ in range(4):
        for member in members:
            member.look(WAIT_S + CONFIRM_S)
    assert len({member.order.order for member in members}) == 1
    assert all(member.look().frozen is None for member in members)


def proved_by(group: Group, name: str) -> set[str]:
    held = {
        partition: node.thread_id for partition, node in group.owners.items() if consumer_id_of(node.thread_id) == name
    }
    found = {order for order in ORDERS if group.share(order, name) == held}
    return found if len(found) == 1 else set()


def test_owner_nodes_that_may_not_be_read_are_no_evidence() -> None:
    group = Group()
    member = Member(group)
    for _ in range(3):
        result = member.order.assign(group.snapshot(is_read=False), member.now)
        member.now += CONFIRM_S
    assert member.order.decided is None
    assert not set(result.mine) & differing(group)


def random_group(rng: random.Random) -> Group:
    names = [f"g_{letter}" for letter in rng.sample("abcdefgh", rng.randint(2, 6))]
    cut = rng.randint(1, len(names) - 1)
    topics = {
        rng.choice(("t", "topic-", "Topic", "x.y", "_")) + str(rng.randrange(30)): rng.randint(1, 14)
        for _ in range(rng.randint(1, 4))
    }
    return Group(tuple(names[:cut]), tuple(names[cut:]), topics)


@pytest.mark.parametrize("seed", range(40))
def test_random_groups(seed: int) -> None:
    """No member of ours ever claims what a Java member of the true order wants, and all end with the one table."""
    rng = random.Random(seed)
    for _ in range(10):
        group, order = random_group(rng), rng.choice(ORDERS)
        members = [Member(group, name=name) for name in group.ours]
        for member in members:
            assert not set(member.look().mine) & {place for name in group.java for place in group.share(order, name)}
        group.claim(order, group.java)
        for member in members:
            member.look(1.0)
        tables = [member.look(CONFIRM_S) for member in members]
        assert not {member.order.decided for member in members} - {order, None}
        assert len({member.order.decided for member in members}) == 1, "the same nodes, the same decision"
        owned = {place: thread for table in tables for place, thread in table.mine.items()}
        assert len(owned) == sum(len(table.mine) for table in tables)
        owned |= {place: node.thread_id for place, node in group.owners.items()}
        if members[0].order.decided is not None:
            assert owned == group.table(order)
        else:
            assert owned.keys() == group.table(order).keys(), "no Java member has another share in the other order"
