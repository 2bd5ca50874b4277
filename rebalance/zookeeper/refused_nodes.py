"""Asks again for nodes that ZooKeeper does not let a member read, until it does or they are gone.

No watch reports a change of an access list, so the nodes have to be polled: at growing intervals, a few nodes at a
time, jittered, and not at each read of the group. Rule: this decides nothing about the group; it triggers another read.

Source: docs/REBALANCE.md, "What cannot be read".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from rebalance.errors import RefusedNode
from rebalance.loop import Loop, Timer
from rebalance.zookeeper.claims import Ask
from rebalance.zookeeper.port.requests import GetChildren, GetData, Reply
from rebalance.zookeeper.waits import RebalanceTimes

MOST_ASKED: Final = 10
"""Nodes that are asked for in one round; the next round continues with the nodes that were asked for longest ago."""

_MOST_DOUBLINGS = 10


class RefusedNodes:
    """The nodes that were refused to one member when they were last read.

    Args:
        ask: sends requests.
        loop: for the timer.
        times: how long to wait.
        rng: source of jitter.
        changed: called with the path of a node that can be read now, or is gone.

    Threads: the coordinator's alone.
    """

    def __init__(
        self,
        ask: Ask,
        loop: Loop,
        times: RebalanceTimes,
        rng: random.Random,
        changed: Callable[[str], None],
    ) -> None:
        self._ask = ask
        self._loop = loop
        self._times = times
        self._rng = rng
        self._changed = changed
        self._questions: dict[str, GetData | GetChildren] = {}
        self._timer: Timer | None = None
        self._rounds = 0
        self._unanswered = 0

    def __contains__(self, path: str) -> bool:
        return path in self._questions

    def add(self, question: GetData | GetChildren, reply: Reply) -> RefusedNode:
        """Keep that `question`, which has no watch, was refused; return that as an error."""
        if question.path not in self._questions:
            # A new refusal may end soon: a node may be created and opened in two steps.
            self._rounds = 0
        self._questions[question.path] = question
        self._arm()
        return RefusedNode.of(question.path, reply)

    def hurry(self) -> None:
        """Ask soon: the group has changed, and the refused nodes may have, too."""
        self._rounds = 0
        if self._timer is not None and self._timer.due > self._loop.clock() + self._times.refused_s:
            self._cancel()
            self._arm()

    def discard(self, path: str) -> None:
        """Ask for a node no more."""
        self._questions.pop(path, None)

    def clear(self) -> None:
        """Forget all refused nodes: a new read asks for those it needs."""
        self._questions.clear()
        self._cancel()

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is None:
            wait_s = min(self._times.refused_s * 2.0**self._rounds, self._times.refused_max_s)
            self._timer = self._loop.call_later(wait_s * self._rng.uniform(0.5, 1.0), self._ask_again)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask_again(self) -> None:
        self._timer = None
        if not self._questions:
            return
        self._rounds = min(self._rounds + 1, _MOST_DOUBLINGS)
        self._arm()
        if self._unanswered:
            return  # a slow server is not asked twice
        for path in list(self._questions)[:MOST_ASKED]:
            question = self._questions.pop(path)
            self._questions[path] = question
            self._unanswered += 1
            self._ask(question, lambda reply, question=question: self._answered(question, reply))  # type: ignore[misc]

    def _answered(self, question: GetData | GetChildren, reply: Reply) -> None:
        self._unanswered -= 1
        if self._questions.get(question.path) is not question:
            return  # it is not needed any more
        if reply.fault is not None and (reply.fault.is_refusal or reply.fault.is_lost):
            return
        # Often the others can be read by now, too: the next read of the group asks for all.
        self.clear()
        self._changed(question.path)
