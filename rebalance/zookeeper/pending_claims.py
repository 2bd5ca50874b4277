"""Claims free partitions, and waits for the release of partitions that another member still owns.

ZooKeeper refuses all claims of one multi when one of them meets an owner node, and a claim often comes a moment before
the old owner, which sees the same change, has released. Therefore the owner nodes of a topic are listed first. Of the
owner nodes in the way only one is watched for a while: they mostly go away together, and one more list shows all of
them. Rule: nothing is claimed when the group has changed since the claim was asked for.

Source: docs/REBALANCE.md, "Step by step".

Claims of partitions as owner nodes in ZooKeeper.

A claim that meets the owner node of another member waits for its end (`pending_claims`); `claims` decides what is
written, and under which condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rebalance import partition as steps
from rebalance.loop import Loop, Timer
from rebalance.ports import OwnerChanged, Report
from rebalance.subscription import Partition
from rebalance.zookeeper.claims import UNREAD_OWNER, Claims, Fence, IsOwned
from rebalance.zookeeper.port.requests import WatchEvent

FEW: Final = 2
"""Up to this number the owner nodes of one topic are watched each by itself: one watch and one list cost no less."""
_LISTED_AFTER_S: Final = (0.05, 0.1, 0.2)
"""When the owner nodes are listed again. Nodes that are still there after that are watched."""


class _Claim(NamedTuple):
    partition: Partition
    thread_id: str
    report: Report


class _Wait(NamedTuple):
    partition: Partition
    report: Report
    watch: Callable[[WatchEvent], None]
    is_awaited: Callable[[], bool]


class PendingClaims:
    """Claims free partitions, and waits for the others.

    Args:
        claims: reads and writes the owner nodes.
        loop: the queue and timers.
        may_claim: whether no change of the group is pending.

    Threads: the coordinator's alone. `report` is called on it, once for each call.
    """

    def __init__(self, claims: Claims, loop: Loop, may_claim: Callable[[], bool]) -> None:
        self._claims = claims
        self._loop = loop
        self._may_claim = may_claim
        self._wanted: list[_Claim] = []
        self._blocked: list[_Wait] = []

    # -- claims --------------------------------------------------------------------------------------------------------

    def claim(self, partition: Partition, thread_id: str, report: Report) -> None:
        """Create the owner node unless there is one; reports as `Claims.claim`, or `ClaimPutOff`."""
        if not self._wanted:
            self._loop.after_step(self._list)
        self._wanted.append(_Claim(partition, thread_id, report))

    def _list(self) -> None:
        wanted, self._wanted = self._wanted, []

        def listed(is_owned: IsOwned) -> None:
            may_claim = self._may_claim()
            for claim in wanted:
                if not may_claim:
                    claim.report(steps.ClaimPutOff())
                elif is_owned(claim.partition):
                    claim.report(steps.ClaimRefused())
                else:
                    self._claims.claim(*claim)

        self._claims.list_owned({claim.partition[0] for claim in wanted}, listed)

    # -- owner nodes in the way ----------------------------------------------------------------------------------------

    def await_end(
        self, partition: Partition, report: Report, watch: Callable[[WatchEvent], None], is_awaited: Callable[[], bool]
    ) -> None:
        """Report `OwnerGone` when the owner node is gone, else its content, with a watch, while `is_awaited`."""
        if not self._blocked:
            self._loop.after_step(self._wait)
        self._blocked.append(_Wait(partition, report, watch, is_awaited))

    def _wait(self) -> None:
        blocked, self._blocked = self._blocked, []
        by_topic: dict[str, list[_Wait]] = {}
        for wait in blocked:
            by_topic.setdefault(wait.partition[0], []).append(wait)
        for topic, waits in by_topic.items():
            _Share(self._claims, self._loop, topic, waits).watch_one()


class _Share:
    """Owner nodes of one topic that mostly go away together: one is watched, and its end triggers a list of all."""

    def __init__(self, claims: Claims, loop: Loop, topic: str, waits: list[_Wait]) -> None:
        self._claims = claims
        self._loop = loop
        self._topic = topic
        self._waits = waits
        self._lists = 0
        self._timer: Timer | None = None

    def watch_one(self) -> None:
        """Watch one and list all in a moment; or watch all, if they are few or were listed often enough."""
        waits = self._waits = [wait for wait in self._waits if wait.is_awaited()]
        if len(waits) <= FEW or self._lists == len(_LISTED_AFTER_S):
            for wait in waits:
                self._claims.inspect(wait.partition, wait.report, wait.watch, unread=UNREAD_OWNER)
            return
        self._timer = timer = self._loop.call_later(_LISTED_AFTER_S[self._lists], self._list)
        self._lists += 1
        first = waits.pop(0)

        def changed(event: WatchEvent) -> None:
            """Watch callback: any thread."""
            first.watch(event)
            self._loop.post(self._list_now, timer)

        self._claims.inspect(first.partition, first.report, changed, unread=UNREAD_OWNER)

    def _list_now(self, timer: Timer) -> None:
        if self._timer is timer:
            timer.cancel()
            self._list()

    def _list(self) -> None:
        self._timer = None
        self._waits = [wait for wait in self._waits if wait.is_awaited()]
        if self._waits:
            self._claims.list_owned([self._topic], self._listed)

    def _listed(self, is_owned: IsOwned) -> None:
        for wait in self._waits:
            if is_owned(wait.partition) is False:
                wait.report(steps.OwnerGone())
        self.watch_one()


class NodeClaims:
    """The claims of one member; see `rebalance.ports.Claims`.

    Args:
        claims: Reads and writes the owner nodes.
        loop: The queue and timers.
        may_claim: Returns whether no change of the group is pending.

    Threads: The coordinator's alone; `changed` callbacks come on any.
    """

    def __init__(self, claims: Claims, loop: Loop, may_claim: Callable[[], bool]) -> None:
        self._claims = claims
        self._pending = PendingClaims(claims, loop, may_claim)

    @property
    def fence(self) -> Fence | None:
        """The registration that stands; None without one."""
        return self._claims.fence

    def claim(self, partition: Partition, thread_id: str, report: Report, *, is_vacant: bool) -> None:
        """Create the owner node; list the owner nodes first, unless its end was just reported."""
        claim = self._claims.claim if is_vacant else self._pending.claim
        claim(partition, thread_id, report)

    def await_end(
        self, partition: Partition, report: Report, changed: OwnerChanged, is_awaited: Callable[[], bool]
    ) -> None:
        """Find out when the owner node in the way is gone."""
        self._pending.await_end(partition, report, _watch(changed), is_awaited)

    def inspect(self, partition: Partition, report: Report, changed: OwnerChanged, *, after_event: bool) -> None:
        """Read the owner node, with a watch."""
        if after_event:
            self._claims.inspect(partition, report, _watch(changed), unread=UNREAD_OWNER)
        else:
            self._claims.inspect(partition, report, _watch(changed))

    def find_out(self, partition: Partition, report: Report) -> None:
        """Read the owner node when the server has caught up with its leader."""
        self._claims.inspect(partition, report, sync=True)

    def move_to_thread(self, partition: Partition, thread_id: str, version: int, report: Report) -> None:
        """Set the data of the owner node."""
        self._claims.move_to_thread(partition, thread_id, version, report)

    def release(self, partition: Partition, report: Report) -> None:
        """Delete the owner node if this session owns it."""
        self._claims.release(partition, report)


def _watch(changed: OwnerChanged) -> Callable[[WatchEvent], None]:
    def event_came(event: WatchEvent) -> None:
        topic, name = event.path.rsplit("/", 2)[-2:]
        changed((topic, int(name) if name.isdigit() else name))

    return event_came
