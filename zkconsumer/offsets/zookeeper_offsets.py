"""Stores offsets in ZooKeeper: loads them after a claim, commits them under the fence of the registration.

A load or commit carries the fence under which it was decided, and ends when that fence is over: a decision of one
session is never sent in the next. Batches of commits are written one after the other: when the last one is answered,
the result of every earlier commit is known, which is what a release waits for.

Source: docs/SEMANTICS.md, "Fencing".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from rebalance.loop import Loop
from rebalance.ports import Fence, is_same_session
from rebalance.subscription import Partition
from rebalance.zookeeper.claims import Ask
from rebalance.zookeeper.claims import Fence as RegistrationFence
from rebalance.zookeeper.port.requests import Reply
from zkconsumer.offsets.commit_batch import RETRY_S, SESSION_OVER, CommitBatch, Done, OffsetNodes
from zkconsumer.offsets.member_offsets import KnownOffsets

_LONGEST_RETRY_S = 5.0
_RELEASE_TRIES = 5
"""A registration that an operator has deleted is made again within a moment; until then every write is refused."""


class ZooKeeperOffsets(KnownOffsets):
    """The offset nodes of one group for one member.

    Args:
        ask: sends requests.
        loop: for retries while the connection is away.
        group: whose `/offsets`.

    Attributes:
        failures: number of positions that could not be committed so far.

    Threads: the coordinator's alone; `committed` and `failures` may be read from any thread.
    """

    def __init__(self, ask: Ask, loop: Loop, group: str) -> None:
        super().__init__()
        self._nodes = OffsetNodes(ask, group, self)
        self._loop = loop
        self._fence: RegistrationFence | None = None
        self._standing: set[Fence] = set()
        self._incarnations: dict[str, int] = {}
        self._waiting: deque[CommitBatch] = deque()
        self._running: CommitBatch | None = None
        self._starting = False
        self.failures = 0

    @property
    def release_tries(self) -> int:
        """How often a failed commit is tried again before a release."""
        return _RELEASE_TRIES

    @property
    def refused(self) -> Mapping[Partition, str]:
        """Partition -> why its offset node cannot be read, as a sentence."""
        return self._nodes.refused

    # -- session ------------------------------------------------------------------------------------------------

    def session_opened(self, fence: Fence) -> None:
        """Write under this registration from now on, also what the same session decided under an earlier one."""
        assert isinstance(fence, RegistrationFence)
        if not is_same_session(fence, self._fence):
            self._standing.clear()
        self._fence = fence
        self._standing.add(fence)
        for batch in self._batches():
            batch.renew(fence)

    def session_over(self) -> None:
        """Write nothing more that was decided so far: all waiting commits fail."""
        self._fence = None
        self._standing.clear()
        batches = self._batches()
        self._waiting.clear()
        self._running = None
        for batch in batches:
            batch.fail_rest(SESSION_OVER)

    def _batches(self) -> list[CommitBatch]:
        return ([self._running] if self._running is not None else []) + list(self._waiting)

    def _renewed(self, fence: Fence | None) -> RegistrationFence | None:
        """The registration that replaces `fence` under the same session, `None` if that session is over."""
        return self._fence if fence in self._standing else None

    def _is_over(self, fence: Fence | None) -> bool:
        return self._fence is not None if fence is None else fence not in self._standing

    def forget_topic(self, topic: str, incarnation: int, partitions: Collection[int | str] = ()) -> None:
        """The topic was created anew: positions and commits of its old incarnation no longer count.

        Args:
            incarnation: id of the transaction that created the topic.
            partitions: not used: each node says when it was written.
        """
        self._incarnations[topic] = incarnation
        for batch in self._waiting:
            batch.forget_topic(topic)
        under_way = self._running.forget_topic(topic) if self._running is not None else {}
        for partition, record in self.records.items():
            if partition[0] == topic:
                record.forget_incarnation(under_way.get(partition))

    # -- load ---------------------------------------------------------------------------------------------------

    def load(self, fence: Fence | None, partition: Partition, done: Callable[[int | None], None]) -> None:
        """Read the offset of a partition that was claimed under `fence`; `done(None)` if there is none to start from.

        An offset that was written before the topic was created anew is none. Without an answer when the session ends
        first: the claim ended with it.
        """
        self._load(fence, partition, done, self._incarnations.get(partition[0], 0), RETRY_S)

    def _load(
        self,
        fence: Fence | None,
        partition: Partition,
        done: Callable[[int | None], None],
        incarnation: int,
        retry_s: float,
    ) -> None:
        def read(reply: Reply) -> None:
            if self._is_over(fence):
                return
            if not self._nodes.note(partition, reply):
                # A node that may not be read mostly stays so; the requests for it must not slow down the others.
                is_away = reply.fault is not None and reply.fault.is_unknown
                longer_s = RETRY_S if is_away else min(2 * retry_s, _LONGEST_RETRY_S)
                self._loop.call_later(retry_s, self._load, fence, partition, done, incarnation, longer_s)
                return
            done(self.start_of(partition, incarnation))

        self._nodes.read(partition, read)

    # -- commit -------------------------------------------------------------------------------------------------

    def commit(
        self, fence: Fence | None, positions: Mapping[Partition, int], done: Done, explicit: bool = False
    ) -> None:
        """Write positions; `done(failed)` when the result of each is known.

        Args:
            fence: the registration under which the caller owned the partitions when it decided on the positions.
            explicit: whether the stored offset may be lowered.
        """
        told = self._told(positions, done, explicit)
        self._enqueue(CommitBatch(self._nodes, self._loop, self._renewed(fence), positions, told, explicit))

    def commit_start(self, fence: Fence | None, partition: Partition, offset: int, done: Done) -> None:
        """Write a start offset, unless another member has stored an offset since `load` found none: that one stays.

        Nothing was done before a start. Written late over a lower offset it would skip messages for the next owner.
        """
        told = self._told({partition: offset}, done)
        batch = CommitBatch(self._nodes, self._loop, self._renewed(fence), {partition: offset}, told, explicit=False)
        batch.starts.add(partition)
        self._enqueue(batch)

    def _enqueue(self, batch: CommitBatch) -> None:
        if not self._waiting or not self._waiting[-1].join(batch):
            self._waiting.append(batch)
            batch.finished = self._finished
        self._next()

    def _next(self) -> None:
        if self._starting:
            return
        self._starting = True
        try:
            while self._running is None and self._waiting:
                self._running = self._waiting.popleft()
                self._running.start()
        finally:
            self._starting = False

    def _finished(self, batch: CommitBatch) -> None:
        self.failures += batch.failures
        if self._running is batch:
            self._running = None
        self._next()
