"""Claims of partitions as owner nodes in ZooKeeper.

A claim that meets the owner node of another member waits for its end (`pending_claims`); what is written, and under
which condition, is the matter of `claims`.
"""

from __future__ import annotations

from collections.abc import Callable

from rebalance.assignment import Partition
from rebalance.loop import Loop
from rebalance.ports import OwnerChanged, Report
from rebalance.zookeeper.claims import UNREAD_OWNER, Claims, Fence
from rebalance.zookeeper.pending_claims import PendingClaims
from rebalance.zookeeper.port.requests import WatchEvent

__all__ = ["NodeClaims"]


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
