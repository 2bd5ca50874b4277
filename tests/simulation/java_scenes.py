"""Scenes with Java members, played on a stage of real servers and processes or on a simulated one.

A scene is a list of steps in parts; each part ends when no member has sent a request for a while. What passed
between each member and ZooKeeper is the part's trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["PARTITIONS", "SCENES", "SEVERAL_THREADS", "Scene", "Stage"]

QUIET_S = 3.0
"""Longer than everything a member waits for: 2 s of back-off, a second before it connects anew."""

FOREIGNER = "somebody-0"


class Stage(Protocol):
    """Where a scene takes place: a group `g`, topic `t` with partitions 0 and 1 (or `PARTITIONS`), two brokers.

    Members are Java consumers of 0.8.2.2 with one stream on `t`, session 6 s, 4 tries 2 s apart, reset to the smallest
    offset; their ids are `g_a`, `g_b`.
    """

    def part(self, title: str) -> None:
        """Start the next part of the trace."""

    def start(self, member: str, *, auto_commit_s: float = 3600.0, whitelist: str = "") -> None:
        """Start a member; returns as soon as it speaks to ZooKeeper."""

    def rest(self) -> None:
        """Let time pass until no member has sent anything for `QUIET_S`."""

    def leave(self, member: str) -> None:
        """Have a member shut down."""

    def end_session(self, member: str) -> None:
        """End a member's session from outside."""

    def break_connection(self, member: str) -> None:
        """Break a member's connection once."""

    def stall(self, member: str) -> None:
        """Let no byte pass between a member and ZooKeeper."""

    def heal(self, member: str) -> None:
        """Undo `stall`."""

    def until_said(self, member: str, beginning: str, times: int = 1) -> None:
        """Let time pass until so many lines of a member's trace in this part start like that."""

    def own(self, partition: int) -> None:
        """Have a foreign session own a partition, as `FOREIGNER`, whoever owned it before."""

    def on_fork(self, partition: int) -> None:
        """Have the foreign owner gone."""

    def touch_topic(self) -> None:
        """Set the data of the topic's node to what they are."""

    def add_topic(self, name: str) -> None:
        """Add the node of a topic without partitions."""


Scene = Callable[[Stage], None]


def first_joins(stage: Stage) -> None:
    """The first member of a new group: nothing is there yet."""
    stage.part("a joins")
    stage.start("a")
    stage.rest()


def second_joins(stage: Stage) -> None:
    """A second member, seen by both."""
    first_joins(stage)
    stage.part("b joins")
    stage.start("b")
    stage.rest()


def second_meets_a_slow_first(stage: Stage) -> None:
    """The first member does not learn of the second one before that has tried to claim."""
    first_joins(stage)
    stage.part("b joins while a hears nothing")
    stage.stall("a")
    stage.start("b")
    stage.until_said("b", "get /consumers/g/owners/t/1 -> g_a-0")
    stage.heal("a")
    stage.rest()


def one_leaves(stage: Stage) -> None:
    """One of two leaves in order, then the other."""
    second_joins(stage)
    stage.part("b leaves")
    stage.leave("b")
    stage.rest()
    stage.part("a leaves")
    stage.leave("a")
    stage.rest()


def session_ends(stage: Stage) -> None:
    """The session of one of two ends, its process is well."""
    second_joins(stage)
    stage.part("the session of b ends")
    stage.end_session("b")
    stage.rest()


def connection_breaks(stage: Stage) -> None:
    """A connection breaks and the session goes on."""
    first_joins(stage)
    stage.part("the connection of a breaks")
    stage.break_connection("a")
    stage.rest()


def blocked_for_a_while(stage: Stage) -> None:
    """A foreign owner node prevents two attempts."""
    stage.own(1)
    stage.part("a joins, partition 1 has a foreign owner until the second attempt")
    stage.start("a")
    stage.until_said("a", f"get /consumers/g/owners/t/1 -> {FOREIGNER}", times=2)
    stage.on_fork(1)
    stage.rest()


def blocked_for_good(stage: Stage) -> None:
    """A foreign owner node stays until all attempts are used up, twice; nothing but another trigger helps then."""
    stage.own(1)
    stage.part("a joins, partition 1 has a foreign owner")
    stage.start("a")
    stage.rest()
    stage.part("the topic is touched")
    stage.touch_topic()
    stage.rest()
    stage.part("the foreign owner goes")
    stage.on_fork(1)
    stage.rest()
    stage.part("the topic is touched again")
    stage.touch_topic()
    stage.rest()


def one_of_four_blocked(stage: Stage) -> None:
    """All or nothing: what was claimed is given up again, the last one first."""
    stage.own(2)
    stage.part("a joins, partition 2 of four has a foreign owner until the first attempt")
    stage.start("a")
    stage.until_said("a", f"get /consumers/g/owners/t/2 -> {FOREIGNER}")
    stage.on_fork(2)
    stage.rest()
    stage.part("a leaves")
    stage.leave("a")
    stage.rest()


def owner_replaced(stage: Stage) -> None:
    """A foreigner takes the place of an owner node: the member that thinks it its own deletes it."""
    first_joins(stage)
    stage.part("a foreigner owns partition 1")
    stage.own(1)
    stage.rest()
    stage.part("the topic is touched")
    stage.touch_topic()
    stage.rest()


def timer_commits(stage: Stage) -> None:
    """The auto-commit timer writes offsets, and writes nothing where nothing has moved."""
    stage.part("a joins and consumes")
    stage.start("a", auto_commit_s=2.0)
    stage.rest()


def filter_sees_a_topic(stage: Stage) -> None:
    """A member with a filter, and a new topic that matches it."""
    stage.part("a joins with the filter t.*")
    stage.start("a", whitelist="t.*")
    stage.rest()
    stage.part("topic other appears")
    stage.add_topic("other")
    stage.rest()
    stage.part("topic t2 appears")
    stage.add_topic("t2")
    stage.rest()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        first_joins,
        second_joins,
        second_meets_a_slow_first,
        one_leaves,
        session_ends,
        connection_breaks,
        blocked_for_a_while,
        blocked_for_good,
        one_of_four_blocked,
        owner_replaced,
        timer_commits,
        filter_sees_a_topic,
    )
}

PARTITIONS = {"one_of_four_blocked": 4}
"""Partitions of the topic, where they are not two."""

SEVERAL_THREADS = {"session_ends", "filter_sees_a_topic"}
"""Scenes in which threads of one member ask at the same time: between them the order is open."""
