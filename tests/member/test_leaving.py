"""A leave is over half a second after its time-out, to the tenth, whatever does not answer; in virtual time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.member.leaving import SPARE_S, Leave, LeaveTimes, LeavingMember, longest_wait_s
from zkconsumer.wakeup import Latch

P0 = TopicPartition("clicks", 0)
PATIENCE_S = 10.0

HANGS = ("in hand", "listener", "commit", "coordinator", "fetchers", "threads", "goodbye")
"""What can take all the time that it is given."""


class StuckOffsets:
    """Offsets of which nothing is stored."""

    answering = "ZooKeeper"

    def __init__(self, do: Callable[[str], None]) -> None:
        self._do = do

    def behind(self) -> dict[TopicPartition, int]:
        return {P0: 5}

    def close(self, timeout_s: float) -> None:
        self._do("offsets")


class Stuck:
    """A membership in which some things never come to an end; every wait passes in virtual time.

    It waits as the real one does: until the moment that it is given, and never longer.
    """

    consumer_id = "g_a"

    def __init__(self, hangs: frozenset[str], *, dead: bool = False) -> None:
        self.hangs = hangs
        self.now = 10_000.0
        self.did: list[str] = []
        self.is_coordinated = not dead
        self.config = type("Config", (), {"auto_commit_enable": True})
        self.coordinator: Any = type(
            "Coordinator",
            (),
            {
                "error": None,
                "fence": None,
                "close": lambda _: self._do("coordinator"),
            },
        )()
        self.port = self.delivery = self.listening = self.commits = self.lease = self.loop = self
        self.offsets = StuckOffsets(self._do)
        self.has_listener = True

    def clock(self) -> float:
        return self.now

    def _take(self, what: str, until: float) -> bool:
        """Let it take all its time, or next to none."""
        self.now = max(self.now, until) if what in self.hangs else self.now + 0.001
        return what not in self.hangs

    def _do(self, what: str) -> None:
        self.did.append(what)

    def give_up_start(self) -> None:
        pass

    def is_in_hand(self) -> bool:
        return "in hand" in self.hangs

    def stop(self, reader: int | None = None, until: float = 0.0, in_hand_is_done: bool = True) -> dict[Any, int]:
        if until:
            self._take("in hand", until)
        return {P0: 7}

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self.is_coordinated:
            return
        name = getattr(call, "__name__", "")
        if name == "release":
            self._do("listener")
            if "listener" not in self.hangs:
                arguments[1]()
        elif name == "commit_last":
            self._do("commit")
            if "commit" not in self.hangs:
                arguments[2]({})
        elif "coordinator" not in self.hangs:
            call(*arguments)

    def release(self, positions: Mapping[Any, int], leave: Callable[[], None]) -> None: ...

    def commit_last(self, fence: None, positions: Mapping[Any, int], done: Callable[[Any], None]) -> None: ...

    def commit_done(self) -> None:
        self._do("commit of what is done")

    def leave(self, told: Callable[[], None]) -> None:
        told()

    def await_coordinator(self, done: Latch, timeout_s: float) -> bool:
        if not done.is_set() and self.is_coordinated:
            self.now += max(0.0, timeout_s)
        return done.is_set()

    def not_stored(self, positions: Mapping[Any, int], reason: str) -> dict[Any, str]:
        return dict.fromkeys(positions, reason)

    def behind(self) -> dict[Any, int]:
        return {}

    def is_on(self, thread: threading.Thread) -> bool:
        return False

    def is_own_thread(self, thread: threading.Thread, but: threading.Thread | None) -> bool:
        return False

    def end(self) -> None:
        self._do("lease")

    def close(self, until: float) -> None:
        """Of the port (seconds) and of the delivery (a moment)."""
        if until > 5000.0:
            self._do("fetchers")
            self._take("fetchers", until)
        elif until == 0.0:
            self._do("session")
        else:
            self._do("goodbye")
            self._take("goodbye", self.now + until)

    def join_threads(self, until: float, but: threading.Thread | None) -> None:
        self._do("threads")
        self._take("threads", until)


def left(member: Stuck, wait_s: float) -> tuple[Leave, float]:
    """A leave that is over, and what it took."""
    leave = Leave(cast(LeavingMember, member), member.clock)
    began = member.now
    assert leave.start(wait_s, None, False, None)
    assert leave.wait(PATIENCE_S)
    return leave, member.now - began


def subsets() -> Iterator[frozenset[str]]:
    for count in range(len(HANGS) + 1):
        yield from (frozenset(chosen) for chosen in itertools.combinations(HANGS, count))


@pytest.mark.catalogue("I1")
@pytest.mark.parametrize("wait_s", [0.0, 0.5, 3.0, 60.0])
@pytest.mark.parametrize("dead", [False, True])
def test_whatever_hangs_a_leave_is_over_in_time_and_has_tried_everything(wait_s: float, dead: bool) -> None:
    for hangs in subsets():
        member = Stuck(hangs, dead=dead)
        leave, took_s = left(member, wait_s)
        assert took_s <= wait_s + SPARE_S, hangs
        assert {"lease", "session", "fetchers", "offsets", "threads", "goodbye"} <= set(member.did), hangs
        assert member.did.index("lease") < member.did.index("session")
        is_stored = not dead and not hangs & {"commit"}
        assert (leave.unstored() == {}) == is_stored, hangs


def test_what_hangs_least_of_all_leaves_the_others_their_time() -> None:
    """Messages in hand and a listener that take all their time leave some for the commit, and for the goodbye."""
    times = LeaveTimes.of(100.0, 3.0)
    moments = [times.in_hand_until, times.listener_until, times.commit_until, times.close_until, times.over_at]
    assert moments == sorted(set(moments))
    assert times.in_hand_until == 103.0
    assert times.over_at < 100.0 + longest_wait_s(3.0) < 103.0 + SPARE_S


def test_without_end_is_long_but_no_time_that_a_lock_cannot_wait() -> None:
    assert longest_wait_s(float("inf")) < threading.TIMEOUT_MAX
    assert LeaveTimes.of(0.0, float("inf")).over_at < threading.TIMEOUT_MAX


def test_what_is_done_is_committed_before_anything_is_waited_for() -> None:
    member = Stuck(frozenset({"in hand", "listener"}))
    left(member, 3.0)
    assert member.did[0] == "commit of what is done"


@pytest.mark.parametrize("step", ["stop", "release", "not_stored", "end", "join_threads", "close", "post"])
def test_a_step_that_fails_is_passed_over(step: str) -> None:
    member = Stuck(frozenset({"commit"}))

    def boom(*_: object, **__: object) -> None:
        raise RuntimeError("made up")

    setattr(member, step, boom)
    leave, took_s = left(member, 1.0)
    assert leave.is_over
    assert took_s <= 1.0 + SPARE_S
    if step not in ("close", "end"):
        assert "session" in member.did


def test_a_second_leave_is_none_and_tells_what_the_first_does() -> None:
    member = Stuck(frozenset({"commit"}))
    leave, _ = left(member, 1.0)
    assert not leave.start(1.0, None, True, None)
    assert leave.wait(0.0)
    assert leave.unstored() == {P0: "no answer from ZooKeeper within the time-out"}


def test_where_no_thread_can_be_started_the_caller_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    member = Stuck(frozenset())
    left(member, 1.0)
    assert "session" in member.did


# -- the latch ---------------------------------------------------------------------------------------------------------


def test_a_latch_lets_everybody_pass_once_it_is_set() -> None:
    latch, passed = Latch(), []
    waiting = [threading.Thread(target=lambda: passed.append(latch.wait(PATIENCE_S))) for _ in range(5)]
    for thread in waiting:
        thread.start()
    assert not latch.wait(0.01)
    latch.set()
    latch.set()
    for thread in waiting:
        thread.join(PATIENCE_S)
    assert passed == [True] * 5
    assert latch.wait(0.0)
    assert latch.is_set()
