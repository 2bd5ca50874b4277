"""How often nodes that may not be read are asked for again: cheaply, in rounds, and as soon as it is worth it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from rebalance.loop import Loop
from rebalance.zookeeper.port.requests import Fault, GetChildren, GetData, Reply, Request
from rebalance.zookeeper.refused_nodes import MOST_ASKED, RefusedNodes
from rebalance.zookeeper.waits import RebalanceTimes
from tests.access_lists import unread

NO = Reply(None, Fault.NO_AUTH, 0.0, "NoAuthError")
YES = Reply((b"x", None), None, 0.0)
TIMES = RebalanceTimes()


class Subject:
    """RefusedNodes on a clock of its own; what is asked is answered as the test says, at once."""

    def __init__(self, seed: int = 7) -> None:
        self.now = 0.0
        self.loop = Loop(lambda: self.now)
        self.asked: list[tuple[float, str]] = []
        self.answers: dict[str, Reply] = {}
        self.changed: list[str] = []
        self.held: list[Callable[[], None]] | None = None
        self.refusals = RefusedNodes(self._ask, self.loop, TIMES, random.Random(seed), self.changed.append)

    def _ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        assert isinstance(request, (GetData, GetChildren))
        assert request.watch is None, "a watch would be left behind for each time it is asked"
        self.asked.append((self.now, request.path))
        reply = self.answers.get(request.path, NO)
        if self.held is None:
            self.loop.post(handle, reply)
        else:
            self.held.append(lambda: handle(reply))

    def refuse(self, *paths: str) -> None:
        for path in paths:
            assert str(self.refusals.add(GetData(path), NO)) == unread(path)

    def run(self, for_s: float) -> None:
        end = self.now + for_s
        while self.now < end:
            due = self.loop.next_due()
            self.now = end if due is None else min(end, max(self.now, due))
            while self.loop.step():
                pass


def test_a_refused_node_is_asked_for_ever_less_often_down_to_a_limit() -> None:
    subject = Subject()
    subject.refuse("/a")
    subject.run(120.0)
    moments = [0.0, *(moment for moment, _ in subject.asked)]
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert TIMES.refused_s / 2 <= gaps[0] <= TIMES.refused_s
    assert max(gaps) <= TIMES.refused_max_s
    assert all(gap >= TIMES.refused_max_s / 2 for gap in gaps[5:])
    assert len(set(gaps)) > len(gaps) / 2, "jittered"
    assert subject.changed == []


def test_the_wait_doubles_from_one_round_to_the_next() -> None:
    for seed in range(20):
        subject = Subject(seed)
        subject.refuse("/a")
        subject.run(20.0)
        moments = [0.0, *(moment for moment, _ in subject.asked)]
        for number, (before, after) in enumerate(itertools.pairwise(moments)):
            longest_s = min(TIMES.refused_s * 2**number, TIMES.refused_max_s)
            assert longest_s / 2 <= after - before <= longest_s + 1e-9


def test_a_node_that_is_new_among_them_makes_the_rounds_short_again_and_one_that_is_known_does_not() -> None:
    subject = Subject()
    subject.refuse("/a")
    subject.run(60.0)
    subject.refuse("/a")  # by another read of the group
    asked = len(subject.asked)
    subject.run(60.0)
    known = [moment for moment, _ in subject.asked[asked:]]
    assert all(after - before >= TIMES.refused_max_s / 2 for before, after in itertools.pairwise(known))
    subject.refuse("/b")
    asked = len(subject.asked)
    subject.run(2 * TIMES.refused_max_s)
    new = [moment for moment, path in subject.asked[asked:] if path == "/b"]
    assert new[1] - new[0] <= 2 * TIMES.refused_s


def test_a_node_that_is_discarded_is_asked_for_no_more() -> None:
    subject = Subject()
    subject.refuse("/a", "/b")
    subject.refusals.discard("/a")
    subject.refusals.discard("/never refused")
    assert "/a" not in subject.refusals
    subject.run(20.0)
    assert {path for _, path in subject.asked} == {"/b"}


def test_nothing_is_waited_for_when_the_last_node_is_discarded() -> None:
    subject = Subject()
    subject.refuse("/a")
    subject.refusals.discard("/a")
    subject.run(20.0)
    assert subject.loop.next_due() is None


def test_what_is_refused_after_all_was_forgotten_is_asked_for_soon() -> None:
    for seed in range(10):
        subject = Subject(seed)
        subject.refuse("/a")
        subject.run(60.0)
        subject.refusals.clear()
        subject.refuse("/b")
        asked = len(subject.asked)
        subject.run(TIMES.refused_s)
        assert [path for _, path in subject.asked[asked:]] == ["/b"]


def test_without_anything_refused_there_is_nothing_to_hurry_or_to_clear() -> None:
    subject = Subject()
    subject.refusals.hurry()
    subject.refusals.clear()
    subject.run(20.0)
    assert subject.asked == []


def test_members_do_not_ask_at_one_moment() -> None:
    first = set()
    for seed in range(20):
        subject = Subject(seed)
        subject.refuse("/a")
        subject.run(1.0)
        first.add(subject.asked[0][0])
    assert len(first) == 20


def test_of_many_nodes_a_few_are_asked_for_in_each_round_and_all_in_their_turn() -> None:
    subject = Subject()
    paths = [f"/n{number:02}" for number in range(3 * MOST_ASKED + 1)]
    subject.refuse(*paths)
    subject.run(60.0)
    rounds: dict[float, list[str]] = {}
    for moment, path in subject.asked:
        rounds.setdefault(moment, []).append(path)
    assert {len(asked) for asked in rounds.values()} == {MOST_ASKED}
    in_turn = [path for asked in rounds.values() for path in asked]
    assert in_turn[: len(paths)] == paths
    assert in_turn[len(paths)] == paths[0]


@pytest.mark.parametrize("reply", [YES, Reply(None, Fault.NO_NODE, 0.0)], ids=["readable", "gone"])
def test_a_node_that_can_be_read_or_is_gone_is_told_once_and_all_are_worth_another_read(reply: Reply) -> None:
    subject = Subject()
    subject.refuse("/a", "/b")
    subject.run(20.0)
    subject.answers["/b"] = reply
    subject.run(TIMES.refused_max_s)
    assert subject.changed == ["/b"]
    assert "/a" not in subject.refusals
    assert "/b" not in subject.refusals
    asked = len(subject.asked)
    subject.run(60.0)
    assert len(subject.asked) == asked, "nothing is left to ask for"


@pytest.mark.parametrize("fault", [Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED, Fault.NO_AUTH, Fault.OTHER])
def test_an_answer_that_says_nothing_new_is_no_change(fault: Fault) -> None:
    subject = Subject()
    subject.refuse("/a")
    subject.answers["/a"] = Reply(None, fault, 0.0, "no")
    subject.run(30.0)
    assert subject.changed == []
    assert "/a" in subject.refusals


@pytest.mark.parametrize("seed", range(10))
def test_a_change_in_the_group_has_them_asked_for_soon_however_often_it_comes(seed: int) -> None:
    subject = Subject(seed)
    subject.refuse("/a")
    subject.run(60.0)
    asked = len(subject.asked)
    due = subject.loop.next_due()
    assert due is not None
    for _ in range(100):
        subject.refusals.hurry()
        subject.run(0.1)
    assert min(due, 60.0 + TIMES.refused_s / 2) <= subject.asked[asked][0] <= 60.0 + TIMES.refused_s
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(subject.asked[asked:])]
    assert all(TIMES.refused_s / 2 <= gap <= 2 * TIMES.refused_s for gap in gaps)


def test_the_answer_to_a_question_that_nobody_waits_for_is_no_news() -> None:
    subject = Subject()
    subject.refuse("/a", "/b")
    subject.answers = {"/a": YES, "/b": YES}
    subject.held = []
    subject.run(20.0)
    assert len(subject.held) == 2, "no second round before the first is answered"
    subject.refusals.discard("/a")
    subject.refusals.clear()
    subject.refuse("/b")  # by a later read
    held, subject.held = subject.held, None
    for answer in held:
        answer()
    assert subject.changed == []
    assert "/b" in subject.refusals
    subject.run(TIMES.refused_max_s)
    assert subject.changed == ["/b"]


def test_other_refusals_than_missing_rights_say_what_zookeeper_said() -> None:
    subject = Subject()
    error = subject.refusals.add(GetData("/a"), Reply(None, Fault.OTHER, 0.0, "SystemZookeeperError"))
    assert str(error) == "ZooKeeper did not read /a: SystemZookeeperError"
