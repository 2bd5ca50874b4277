"""The events of a demonstration: two members join, then a third; one leaves, one is killed, the last one goes on."""

from __future__ import annotations

from collections.abc import Collection

from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.demo.narrator import Narrator
from zkconsumer.cli.demo.scene import shares
from zkconsumer.cli.demo.stage import SESSION_S, Stage

__all__ = ["LOSS", "REPEAT", "Story", "length_s"]

LOSS, REPEAT = "loss", "repeat"

_SETTLE_S = 12.0
_LAST_MESSAGES_S = 4.0
_SKIPPED, _DOUBLED = 60, 80
"""Which of ann's messages are dropped or handled twice on purpose: early ones, which she gets for sure."""


def length_s(steady_s: float) -> float:
    """Return about how long a demonstration takes, in seconds."""
    return 4 * steady_s + SESSION_S + 3.0


class Story:
    """The events, in order.

    Args:
        stage: Where they take place; no member has joined yet.
        narrator: Shows them.
        steady_s: Time without events after each event, in seconds.
        inject: What goes wrong on purpose: LOSS, REPEAT.
    """

    def __init__(self, stage: Stage, narrator: Narrator, steady_s: float, inject: Collection[str]) -> None:
        self._stage = stage
        self._narrator = narrator
        self._steady_s = steady_s
        self._inject = inject

    def play(self) -> None:
        """Play all events.

        Raises:
            StageError: The demonstration cannot go on.
        """
        self._two_members()
        self._one_joins()
        self._one_leaves()
        self._one_is_killed()
        self._end()

    def _two_members(self) -> None:
        started_s = self._say("ann and bob join the group")
        skip, twice = _SKIPPED * (LOSS in self._inject), _DOUBLED * (REPEAT in self._inject)
        self._stage.join("ann", skip=skip, twice=twice)
        self._stage.join("bob")
        self._settle(started_s, "ann", "bob")

    def _one_joins(self) -> None:
        started_s = self._say("cleo joins: the others finish their messages in hand, then release her partitions")
        self._stage.join("cleo")
        self._settle(started_s, "ann", "bob", "cleo")

    def _one_leaves(self) -> None:
        started_s = self._say("bob leaves: he commits, then releases his partitions")
        self._stage.leave("bob")
        self._settle(started_s, "ann", "cleo")

    def _one_is_killed(self) -> None:
        before = self._stage.counters.repeated
        started_s = self._say(f"cleo is killed (kill -9): ZooKeeper waits {SESSION_S:g} s for her")
        self._stage.kill("cleo")
        self._settle(started_s, "ann")
        again = self._stage.counters.repeated - before
        if again:
            verb = "was" if again == 1 else "were"
            self._say(f"{count_of(again, 'message')} {verb} delivered again: cleo had not committed that yet")
        else:
            self._say("no message was delivered again: cleo had committed all her messages")

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
        """Show an event, and return when it was."""
        self._narrator.say(text)
        return self._narrator.elapsed_s

    def _settle(self, started_s: float, *names: str) -> None:
        """Wait until these members share all partitions, report it, and go on for a while."""
        stage = self._stage
        stage.wait(lambda: stage.is_shared_by(names), _SETTLE_S, f"{', '.join(names)} to share the partitions")
        self._say(f"shared after {self._narrator.elapsed_s - started_s:.1f} s: {shares(stage.owner_of)}")
        stage.go_on(self._steady_s)
