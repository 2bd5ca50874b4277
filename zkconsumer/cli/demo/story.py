"""What happens in the demonstration: two members, a third joins, one leaves, one is killed, the rest goes on."""

from __future__ import annotations

from collections.abc import Collection

from zkconsumer.cli.demo.narrator import Narrator
from zkconsumer.cli.demo.scene import shares
from zkconsumer.cli.demo.stage import SESSION_S, Stage

__all__ = ["LOSS", "REPEAT", "STEADY_S", "Story", "length_s"]

LOSS, REPEAT = "loss", "repeat"
STEADY_S = 5.0
"""How long it goes on quietly after each event."""

_SETTLE_S = 12.0
_LAST_MESSAGES_S = 4.0
_SKIPPED, _DOUBLED = 60, 80
"""Numbers of ann's messages that go wrong where they are to: early, so that they are hers for sure."""


def length_s(steady_s: float) -> float:
    """How long it takes, about."""
    return 4 * steady_s + SESSION_S + 3.0


class Story:
    """The whole course of it.

    Args:
        stage: where it takes place; nothing has happened on it yet.
        narrator: who is told.
        steady_s: how long it goes on quietly after each event.
        inject: what is to go wrong on purpose: LOSS, REPEAT.
    """

    def __init__(self, stage: Stage, narrator: Narrator, steady_s: float, inject: Collection[str]) -> None:
        self._stage = stage
        self._narrator = narrator
        self._steady_s = steady_s
        self._inject = inject

    def play(self) -> None:
        """Have it all happen.

        Raises:
            StageError: it does not go on.
        """
        self._two_members()
        self._one_joins()
        self._one_leaves()
        self._one_is_killed()
        self._end()

    def _two_members(self) -> None:
        begun_s = self._say("ann and bob join the group")
        skip, twice = _SKIPPED * (LOSS in self._inject), _DOUBLED * (REPEAT in self._inject)
        self._stage.join("ann", skip=skip, twice=twice)
        self._stage.join("bob")
        self._settle(begun_s, "ann", "bob")

    def _one_joins(self) -> None:
        begun_s = self._say("cleo joins: the others finish what is in hand, then give up hers")
        self._stage.join("cleo")
        self._settle(begun_s, "ann", "bob", "cleo")

    def _one_leaves(self) -> None:
        begun_s = self._say("bob leaves: he commits, then gives his partitions back")
        self._stage.leave("bob")
        self._settle(begun_s, "ann", "cleo")

    def _one_is_killed(self) -> None:
        before = self._stage.counters.repeated
        begun_s = self._say(f"cleo is killed (kill -9): ZooKeeper waits {SESSION_S:g} s for her")
        self._stage.kill("cleo")
        self._settle(begun_s, "ann")
        again = self._stage.counters.repeated - before
        if again:
            self._say(f"{again} messages came again: cleo had not committed them yet")
        else:
            self._say("no message came again: cleo had committed all that she had got")

    def _end(self) -> None:
        stage = self._stage
        self._say("no more messages are written")
        stage.load.stop()
        try:
            stage.wait(lambda: stage.undelivered == 0, _LAST_MESSAGES_S, "the last messages to be delivered")
        finally:
            self._say("ann leaves")
            stage.leave("ann")

    def _say(self, text: str) -> float:
        """Tell what happens; when that was."""
        self._narrator.say(text)
        return self._narrator.elapsed_s

    def _settle(self, begun_s: float, *names: str) -> None:
        """Wait until these members share all partitions, say so, and let them go on for a while."""
        stage = self._stage
        stage.wait(lambda: stage.is_shared_by(names), _SETTLE_S, f"{', '.join(names)} to share the partitions")
        self._say(f"shared after {self._narrator.elapsed_s - begun_s:.1f} s: {shares(stage.owners)}")
        stage.go_on(self._steady_s)
