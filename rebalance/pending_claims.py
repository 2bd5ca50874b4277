"""Which places are vacant: a look before claims are made, and again while former owners let go.

Claims of one step are refused together where one of them meets an owner node, and a claim is made a moment after the
owner heard of the same change. So the owner nodes of a topic are listed first; and of those that are in the way only
one is watched for a while: they mostly go away together, and another list tells of all.
Rule: nothing is claimed when the group has changed since it was asked for.

Source: docs/REBALANCE.md, "Step by step".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rebalance import partition as p
from rebalance.assignment import Partition
from rebalance.claims import UNREAD_OWNER, Claims, IsOwned
from rebalance.loop import Loop, Timer
from rebalance.requests import WatchEvent

__all__ = ["FEW", "PendingClaims"]

FEW: Final = 2
"""Owner nodes of one topic that are watched each by itself: one of them and a list cost no less."""

_LOOKS_AFTER_S: Final = (0.05, 0.1, 0.2)
"""When the owner nodes are listed again. What is not gone by then takes its time, and is watched."""

Told = Callable[[p.Event], None]


class _Claim(NamedTuple):
    partition: Partition
    thread_id: str
    told: Told


class _Wait(NamedTuple):
    partition: Partition
    told: Told
    watch: Callable[[WatchEvent], None]
    is_awaited: Callable[[], bool]


class PendingClaims:
    """Claims what is vacant, and waits for what is not.

    Args:
        claims: reads and writes the owner nodes.
        loop: the queue and timers.
        may_claim: whether no change of the group is pending.

    Threads: the coordinator's alone. `told` is called on it, once for each call.
    """

    def __init__(self, claims: Claims, loop: Loop, may_claim: Callable[[], bool]) -> None:
        self._claims = claims
        self._loop = loop
        self._may_claim = may_claim
        self._wanted: list[_Claim] = []
        self._blocked: list[_Wait] = []

    # -- claims --------------------------------------------------------------------------------------------------------

    def claim(self, partition: Partition, thread_id: str, told: Told) -> None:
        """Create the owner node unless there is one: what `Claims.claim` tells, or `ClaimPutOff`."""
        if not self._wanted:
            self._loop.after_step(self._look)
        self._wanted.append(_Claim(partition, thread_id, told))

    def _look(self) -> None:
        wanted, self._wanted = self._wanted, []

        def listed(is_owned: IsOwned) -> None:
            may_claim = self._may_claim()
            for claim in wanted:
                if not may_claim:
                    claim.told(p.ClaimPutOff())
                elif is_owned(claim.partition):
                    claim.told(p.ClaimRefused())
                else:
                    self._claims.claim(*claim)

        self._claims.list_owned({claim.partition[0] for claim in wanted}, listed)

    # -- what is in the way --------------------------------------------------------------------------------------------

    def await_end(
        self, partition: Partition, told: Told, watch: Callable[[WatchEvent], None], is_awaited: Callable[[], bool]
    ) -> None:
        """Tell `OwnerGone` when the owner node is gone, or what is there, with a watch on it, as long as it matters."""
        if not self._blocked:
            self._loop.after_step(self._wait)
        self._blocked.append(_Wait(partition, told, watch, is_awaited))

    def _wait(self) -> None:
        blocked, self._blocked = self._blocked, []
        by_topic: dict[str, list[_Wait]] = {}
        for wait in blocked:
            by_topic.setdefault(wait.partition[0], []).append(wait)
        for topic, waits in by_topic.items():
            _Share(self._claims, self._loop, topic, waits).watch_one()


class _Share:
    """Owner nodes of one topic that mostly go away together: one of them is watched, and its end tells when to look."""

    def __init__(self, claims: Claims, loop: Loop, topic: str, waits: list[_Wait]) -> None:
        self._claims = claims
        self._loop = loop
        self._topic = topic
        self._waits = waits
        self._looks = 0
        self._timer: Timer | None = None

    def watch_one(self) -> None:
        """Watch one and look at all in a moment; or watch all, when they are few or that has been tried enough."""
        waits = self._waits = [wait for wait in self._waits if wait.is_awaited()]
        if len(waits) <= FEW or self._looks == len(_LOOKS_AFTER_S):
            for wait in waits:
                self._claims.inspect(wait.partition, wait.told, wait.watch, unread=UNREAD_OWNER)
            return
        self._timer = timer = self._loop.call_later(_LOOKS_AFTER_S[self._looks], self._look)
        self._looks += 1
        first = waits.pop(0)

        def changed(event: WatchEvent) -> None:
            """Watch callback: any thread."""
            first.watch(event)
            self._loop.post(self._look_now, timer)

        self._claims.inspect(first.partition, first.told, changed, unread=UNREAD_OWNER)

    def _look_now(self, timer: Timer) -> None:
        if self._timer is timer:
            timer.cancel()
            self._look()

    def _look(self) -> None:
        self._timer = None
        self._waits = [wait for wait in self._waits if wait.is_awaited()]
        if self._waits:
            self._claims.list_owned([self._topic], self._listed)

    def _listed(self, is_owned: IsOwned) -> None:
        for wait in self._waits:
            if is_owned(wait.partition) is False:
                wait.told(p.OwnerGone())
        self.watch_one()
