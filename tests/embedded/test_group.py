"""A group as its coordinator sees it: each request in each state, the times, and who waits for whom.

The tables are those of real brokers (Kafka 2.8 and later unless a test says otherwise).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from zkconsumer.testing.embedded.group import Group
from zkconsumer.testing.embedded.group_values import (
    GroupRules,
    GroupState,
    Join,
    Joined,
    Reply,
    Sync,
    Synced,
    Who,
)

AT_ONCE = GroupRules(initial_delay_s=0.0)
RANGE = {"range": b"r"}


class Driver:
    """A group, the time, and the answers that came."""

    def __init__(self, rules: GroupRules = AT_ONCE) -> None:
        self.now = 100.0
        self.group = Group(rules, (str(number) for number in itertools.count(1)).__next__)
        self.answers: dict[Any, Joined | Synced] = {}

    def _take(self, replies: list[Reply]) -> None:
        for reply in replies:
            assert reply.request not in self.answers
            self.answers[reply.request] = reply.answer

    def join(self, request: str, member_id: str = "", protocols: dict[str, bytes] = RANGE, **more: Any) -> Any:
        asked = Join(member_id, protocols, more.pop("session_s", 10.0), more.pop("rebalance_s", 30.0),
                     more.pop("instance_id", None), "c", more.pop("names_members_first", False))  # fmt: skip
        self._take(self.group.join(asked, request, self.now))
        return self.answers.get(request)

    def sync(self, request: str, who: Who, assignments: dict[str, bytes] | None = None) -> Any:
        self._take(self.group.sync(Sync(who, assignments or {}), request, self.now))
        return self.answers.get(request)

    def at_next(self) -> None:
        due = self.group.due_at()
        assert due is not None
        self.now = max(self.now, due)
        self._take(self.group.tick(self.now))

    def leave(self, member_id: str) -> int:
        code, replies = self.group.leave(member_id, None, self.now)
        self._take(replies)
        return code

    def beat(self, who: Who) -> int:
        return self.group.heartbeat(who, self.now)


def stable(members: int = 1, rules: GroupRules = AT_ONCE) -> tuple[Driver, list[Who]]:
    """A stable group: its leader first."""
    driver = Driver(rules)
    driver.join("first")
    ids = ["c-1"]
    for number in range(2, members + 1):
        driver.join(f"new{number}")
        for member_id in ids:
            driver.join(f"again{number}{member_id}", member_id)
        ids.append(f"c-{number}")
    generation = driver.group.generation
    who = [Who(generation, member_id) for member_id in ids]
    for each in who[1:]:
        driver.sync(f"sync {each.member_id}", each)
    driver.sync("sync", who[0], {each.member_id: each.member_id.encode() for each in who})
    assert driver.group.state is GroupState.STABLE
    return driver, who


def test_the_first_member_leads_and_gets_the_metadata_of_all() -> None:
    driver = Driver()
    found = driver.join("one")
    assert found[:5] == (0, 1, "range", "c-1", "c-1")
    assert [tuple(each) for each in found.members] == [("c-1", None, b"r")]
    assert driver.sync("s", Who(1, "c-1"), {"c-1": b"all"}) == Synced(0, b"all", "consumer", "range")


def test_a_member_without_an_id_is_only_given_one_from_version_4_on() -> None:
    driver = Driver()
    found = driver.join("one", names_members_first=True)
    assert (found.code, found.member_id) == (79, "c-1")
    assert driver.group.state is GroupState.EMPTY
    assert driver.join("two", "c-1", names_members_first=True).code == 0


def test_a_rebalance_waits_for_a_member_that_was_given_an_id_until_its_session_ends() -> None:
    driver, [one] = stable()
    driver.join("id", names_members_first=True)
    driver.now += 1
    driver.join("three")
    driver.join("again", one.member_id)
    assert "again" not in driver.answers
    driver.at_next()
    assert driver.answers["again"].code == 0
    assert driver.now == 110.0  # when the session of the one that was given an id would end


def test_a_follower_gets_what_the_leader_assigned_to_it_and_nothing_where_it_named_nothing() -> None:
    driver = Driver()
    driver.join("one")
    driver.join("two")
    driver.join("one again", "c-1")
    assert driver.answers["two"].members == ()
    driver.sync("follower", Who(2, "c-2"))
    assert "follower" not in driver.answers
    driver.sync("leader", Who(2, "c-1"), {"c-1": b"x"})
    assert (driver.answers["leader"], driver.answers["follower"]) == (
        Synced(0, b"x", "consumer", "range"), Synced(0, b"", "consumer", "range")
    )  # fmt: skip


def test_whoever_joins_while_the_others_wait_for_the_leader_makes_them_join_again() -> None:
    driver = Driver()
    driver.join("one")
    driver.join("two")
    driver.join("one again", "c-1")
    driver.sync("follower", Who(2, "c-2"))
    driver.join("three")
    assert driver.answers["follower"] == Synced(27)
    assert driver.group.state is GroupState.PREPARING


@pytest.mark.parametrize(("state", "wanted"), [
    (GroupState.STABLE, {"beat": 0, "sync": 0, "commit": 0, "nobody": 25}),
    (GroupState.PREPARING, {"beat": 27, "sync": 27, "commit": 0, "nobody": 25}),
    (GroupState.COMPLETING, {"beat": 0, "commit": 27, "nobody": 25}),
])  # fmt: skip
def test_requests_of_a_member_by_the_state_of_its_group(state: GroupState, wanted: dict[str, int]) -> None:
    driver, [one, two] = stable(2)
    if state is not GroupState.STABLE:
        driver.join("three")
    if state is GroupState.COMPLETING:
        driver.join("one", one.member_id)
        driver.join("two", two.member_id)
        one = one._replace(generation=driver.group.generation)
    assert driver.group.state is state
    found = {"beat": driver.beat(one), "commit": driver.group.may_commit(one, driver.now),
             "nobody": driver.group.may_commit(Who(-1, ""), driver.now)}  # fmt: skip
    if "sync" in wanted:
        found["sync"] = driver.sync("s", one).code
    assert found == wanted


@pytest.mark.parametrize("change", [{"generation": 7}, {"member_id": "made-up"}])
def test_another_generation_or_member_is_refused(change: dict[str, Any]) -> None:
    driver, [one] = stable()
    who = one._replace(**change)
    code = 22 if "generation" in change else 25
    assert (driver.beat(who), driver.group.may_commit(who, driver.now), driver.sync("s", who).code) == (code,) * 3


def test_a_group_without_members_takes_commits_of_nobody_alone() -> None:
    driver = Driver()
    assert driver.group.may_commit(Who(-1, ""), driver.now) == 0
    assert driver.group.may_commit(Who(3, "c-1"), driver.now) == 25


def test_before_2_6_a_heartbeat_while_the_group_completes_is_refused_and_renews_nothing() -> None:
    driver = Driver(GroupRules(initial_delay_s=0.0, renews_while_completing=False, ends_without_sync=False))
    driver.join("one")
    driver.now += 9
    assert driver.beat(Who(1, "c-1")) == 27
    driver.at_next()
    assert driver.now == 110.0
    assert driver.group.members == {}


def test_a_leader_that_never_hands_over_assignments_is_removed_though_its_heartbeats_are_answered() -> None:
    """From 2.8 on, after the rebalance time-out."""
    driver = Driver()
    driver.join("one")
    while driver.now < 130:
        driver.now += 3
        if driver.now < 130:
            assert driver.beat(Who(1, "c-1")) == 0
            assert driver.group.tick(driver.now) == []
    driver._take(driver.group.tick(driver.now))
    assert driver.beat(Who(1, "c-1")) == 25


def test_a_member_that_does_not_join_again_is_left_behind_after_the_rebalance_time_out() -> None:
    driver, [one, two] = stable(2)
    driver.join("three")
    driver.join("one again", one.member_id)
    started = driver.now
    while "three" not in driver.answers:
        driver.now += 3
        driver.beat(two)
        driver._take(driver.group.tick(driver.now))
    assert 30 <= driver.now - started < 33
    assert driver.beat(two) == 25
    assert list(driver.group.members) == ["c-1", "c-3"]


def test_a_session_that_ends_while_others_wait_lets_them_go_on() -> None:
    driver, [one, _] = stable(2)
    driver.join("three")
    driver.join("one again", one.member_id)
    driver.at_next()  # the second member is silent
    assert driver.now == 110.0
    assert driver.answers["three"].code == 0


def test_a_member_that_leaves_while_others_wait_lets_them_go_on() -> None:
    driver, [one, two] = stable(2)
    driver.join("three")
    driver.join("one again", one.member_id)
    assert driver.leave(two.member_id) == 0
    assert driver.answers["three"].generation == driver.answers["one again"].generation
    assert driver.leave("nobody") == 25


def test_the_last_member_that_leaves_makes_the_group_empty_and_a_generation_of_its_own() -> None:
    driver, [one] = stable()
    generation = driver.group.generation
    driver.leave(one.member_id)
    assert (driver.group.state, driver.group.generation) == (GroupState.EMPTY, generation + 1)
    assert driver.group.due_at() is None


@pytest.mark.parametrize(("protocols", "is_leader", "state"), [
    (RANGE, False, GroupState.STABLE), ({"range": b"other"}, False, GroupState.PREPARING),
    (RANGE, True, GroupState.PREPARING),
])  # fmt: skip
def test_a_follower_that_joins_again_as_it_was_is_answered_at_once(
    protocols: dict[str, bytes], is_leader: bool, state: GroupState
) -> None:
    driver, [leader, follower] = stable(2)
    driver.join("again", (leader if is_leader else follower).member_id, protocols)
    assert driver.group.state is state
    if state is GroupState.STABLE:
        assert driver.answers["again"].generation == leader.generation
        assert driver.answers["again"].members == ()


def test_the_assignor_is_one_that_all_know_and_most_prefer() -> None:
    driver = Driver()
    driver.join("one", protocols={"range": b"1", "roundrobin": b"1"})
    assert driver.join("other", protocols={"sticky": b"2"}).code == 23
    driver.join("two", protocols={"roundrobin": b"2", "range": b"2"})
    driver.join("three", protocols={"roundrobin": b"3", "range": b"3"})
    driver.join("one again", "c-1", {"range": b"1", "roundrobin": b"1"})
    found = driver.answers["one again"]
    assert isinstance(found, Joined)
    assert found.protocol == "roundrobin"
    assert [each.metadata for each in found.members] == [b"1", b"2", b"3"]


def test_an_empty_group_waits_for_more_members_and_longer_for_each_that_comes() -> None:
    driver = Driver(GroupRules(initial_delay_s=3.0))
    driver.join("one")
    driver.now += 2
    driver.join("two")
    driver.at_next()
    assert driver.now == 105.0
    assert driver.answers["one"].generation == driver.answers["two"].generation == 1


def test_a_static_member_comes_back_under_another_id_without_a_rebalance() -> None:
    driver = Driver()
    driver.join("one", instance_id="i")
    driver.sync("s", Who(1, "i-1", "i"), {"i-1": b"mine"})
    found = driver.join("again", instance_id="i")
    assert (found.code, found.generation, found.member_id) == (0, 1, "i-2")
    assert found.leader == "i-1"  # nobody leads until the next rebalance
    assert driver.beat(Who(1, "i-1", "i")) == 82
    assert driver.beat(Who(1, "i-1")) == 25
    assert driver.sync("t", Who(1, "i-2", "i")) == Synced(0, b"mine", "consumer", "range")


@pytest.mark.parametrize(("more", "code"), [({"session_s": 1.0}, 26), ({"session_s": 9999.0}, 26)])
def test_session_time_outs_out_of_bounds_are_refused(more: dict[str, Any], code: int) -> None:
    assert Driver().join("one", **more).code == code


def test_a_group_of_its_largest_size_takes_nobody_else() -> None:
    driver, _ = stable(2, GroupRules(initial_delay_s=0.0, max_size=2))
    assert driver.join("three").code == 81


def test_a_static_leader_that_comes_back_leads_from_version_9_on_and_assigns_nothing() -> None:
    driver = Driver()
    driver.join("one", instance_id="i")
    driver.sync("s", Who(1, "i-1", "i"), {"i-1": b"mine"})
    asked = Join("", RANGE, 10.0, 30.0, "i", "c", leads_again=True)
    [reply] = driver.group.join(asked, "again", driver.now)
    assert isinstance(reply.answer, Joined)
    assert (reply.answer.leader, reply.answer.skips_assignment, len(reply.answer.members)) == ("i-2", True, 1)


@pytest.mark.parametrize(("member_id", "instance_id", "code"), [
    ("c-9", "i", 82), ("", "i", 0), ("i-1", "i", 0), ("i-1", "unknown", 25), ("c-9", None, 25),
])  # fmt: skip
def test_who_leaves_is_named_by_id_or_instance(member_id: str, instance_id: str | None, code: int) -> None:
    driver = Driver()
    driver.join("one", instance_id="i")
    assert driver.group.leave(member_id, instance_id, driver.now)[0] == code


@pytest.mark.parametrize(("kind", "protocol", "code"), [
    ("consumer", "range", 0), (None, None, 0), ("connect", "range", 23), ("consumer", "sticky", 23),
])  # fmt: skip
def test_who_takes_its_group_for_another_one_gets_no_assignment(
    kind: str | None, protocol: str | None, code: int
) -> None:
    driver = Driver()
    driver.join("one")
    [reply] = driver.group.sync(Sync(Who(1, "c-1"), {}, kind, protocol), "s", driver.now)
    assert reply.answer.code == code


def test_before_2_0_a_commit_while_the_group_completes_is_refused_whoever_it_is_from() -> None:
    driver = Driver(GroupRules(initial_delay_s=0.0, looks_at_state_first=True))
    driver.join("one")
    for who in (Who(1, "c-1"), Who(1, "nobody"), Who(9, "c-1"), Who(-1, "")):
        assert driver.group.may_commit(who, driver.now) == 27


def test_all_who_wait_are_answered_when_a_group_is_closed() -> None:
    driver, [one, two] = stable(2)
    driver.join("three")
    driver.join("again", one.member_id)
    replies = driver.group.close(16)
    assert {reply.request: reply.answer.code for reply in replies} == {"three": 16, "again": 16}
    assert driver.group.state is GroupState.DEAD
    assert driver.join("late").code == 15
    assert (driver.beat(two), driver.group.due_at()) == (25, None)


def test_a_group_that_is_restored_is_stable_with_fresh_sessions() -> None:
    driver, members = stable(2)
    kept = list(driver.group.members.values())
    other = Driver()
    other.now = 900.0
    other.group.protocol_type = "consumer"
    other.group.restore(driver.group.generation, "range", members[0].member_id, kept, other.now)
    assert [other.beat(each) for each in members] == [0, 0]
    assert other.sync("s", members[1]).assignment == members[1].member_id.encode()
    assert other.group.due_at() == 910.0
