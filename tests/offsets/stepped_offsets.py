"""Offsets before a ZooKeeper that answers each request when the test says so, on a clock that stands still."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from rebalance.loop import Loop
from rebalance.subscription import Partition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.port.requests import (
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Reply,
    Request,
    SetData,
    Sync,
)
from tests.simulator.tree import Tree, parent_of
from zkconsumer.offsets.zookeeper_offsets import ZooKeeperOffsets

__all__ = ["FENCE", "GROUP_PATH", "P0", "P1", "P2", "PARENTS", "SESSION_OVER", "SteppedOffsets", "path_of"]

GROUP = "g"
P0, P1, P2 = [("t", number) for number in range(3)]
GROUP_PATH = znodes.group_path(GROUP)
PARENTS = [znodes.CONSUMERS, GROUP_PATH, f"{GROUP_PATH}/offsets", f"{GROUP_PATH}/offsets/t"]
SESSION_OVER = "the ZooKeeper session is over"
FENCE = Fence(znodes.registration_path(GROUP, "me"), 0, 1)


def path_of(partition: Partition) -> str:
    return znodes.offset_path(GROUP, *partition)


class SteppedOffsets:
    """The offsets of a member, and what it has asked so far.

    Args:
        is_registered: whether the member knows of its registration.

    Attributes:
        offsets: what is tested.
        asked: all requests, the oldest first.
        told: the outcome of each commit, in the order in which they were told.
        loaded: the answer to each load.
    """

    def __init__(self, is_registered: bool = True) -> None:
        self.now = 100.0
        self.loop = Loop(lambda: self.now)
        self.offsets = ZooKeeperOffsets(self._ask, self.loop, GROUP)
        self.asked: list[Request] = []
        self.told: list[dict[Partition, str]] = []
        self.loaded: list[int | None] = []
        self._tree = Tree()
        self._open: deque[tuple[Request, Callable[[Reply], None]]] = deque()
        self._zxid = 0
        self._do(Create(znodes.CONSUMERS))
        self._do(Create(GROUP_PATH))
        self._do(Create(znodes.ids_path(GROUP)))
        self._do(Create(FENCE.path, ephemeral=True))
        self.fence: Fence | None = None
        if is_registered:
            self.open()

    # -- the member --------------------------------------------------------------------------------------------------

    def open(self, fence: Fence = FENCE) -> None:
        """Register: what is decided from now on is decided under `fence`."""
        self.fence = fence
        self.offsets.session_opened(fence)

    def end(self) -> None:
        """End the session: what is decided from now on is decided without one."""
        self.fence = None
        self.offsets.session_over()

    def load(self, partition: Partition = P0, created_zxid: int = 0) -> int | None:
        """Load with answers to all that is asked; the topic was created anew by a transaction."""
        self.recreate(partition[0], created_zxid)
        count = len(self.loaded)
        self.begin_load(partition)
        self.answer_all()
        assert len(self.loaded) == count + 1, "no word about the offset"
        return self.loaded[-1]

    def recreate(self, topic: str, created_zxid: int) -> None:
        """Let a topic be created anew by a transaction, without any word about what is under way."""
        self.offsets._incarnations[topic] = created_zxid

    def begin_load(self, partition: Partition = P0) -> None:
        """Start a load; nothing is answered."""
        self.offsets.load(self.fence, partition, self.loaded.append)

    def begin(self, positions: Mapping[Partition, int], explicit: bool = False) -> None:
        """Start a commit; nothing is answered."""
        self.offsets.commit(self.fence, positions, lambda failed: self.told.append(dict(failed)), explicit)

    def begin_start(self, partition: Partition, offset: int) -> None:
        """Start to store a start offset; nothing is answered."""
        self.offsets.commit_start(self.fence, partition, offset, lambda failed: self.told.append(dict(failed)))

    def commit(self, positions: Mapping[Partition, int], explicit: bool = False) -> dict[Partition, str]:
        """Commit with answers to all that is asked."""
        count = len(self.told)
        self.begin(positions, explicit)
        self.answer_all()
        assert len(self.told) == count + 1, "no word about the commit"
        return self.told[-1]

    def know(self, **offsets: int) -> None:
        """Commit offsets, `p0=50`: their versions are 0 and known, and nothing is told or asked so far."""
        assert self.commit({("t", int(name[1:])): offset for name, offset in offsets.items()}) == {}
        self.told.clear()
        self.asked.clear()

    # -- ZooKeeper ---------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Request]:
        """What is asked and not answered."""
        return [request for request, _ in self._open]

    def answer(self, fault: Fault | None = None, reason: str = "") -> Request:
        """Answer the oldest request: do it, or say the fault without doing it."""
        request, handle = self._open.popleft()
        handle(self._do(request) if fault is None else Reply(None, fault, self.now, reason))
        return request

    def answer_all(self) -> None:
        """Answer whatever is asked until nothing is, at once."""
        while self._open:
            self.answer()

    def lose(self, is_done: bool) -> None:
        """Lose the answer to the oldest request, which was done or not."""
        request, handle = self._open.popleft()
        if is_done:
            self._do(request)
        handle(Reply(None, Fault.CONNECTION_LOSS, self.now))

    def answer_parts(self, results: list[object], reason: str = "") -> None:
        """Answer the oldest request, a multi, with a result for each operation."""
        _, handle = self._open.popleft()
        handle(Reply(results, None, self.now, reason))

    def pass_time(self) -> float:
        """Go on to what is due next; return how long that is."""
        due = self.loop.next_due()
        assert due is not None, "nothing is waited for"
        passed_s, self.now = due - self.now, due
        self.loop.step()
        return round(passed_s, 6)

    def set(self, partition: Partition, data: bytes) -> int:
        """Write a node as an operator does, created with its parents if it does not exist; return the zxid."""
        path = path_of(partition)
        if path in self._tree.nodes:
            self._do(SetData(path, data))
        else:
            for parent in (parent_of(parent_of(path)), parent_of(path)):
                if parent not in self._tree.nodes:
                    self._do(Create(parent))
            self._do(Create(path, data))
        return self._zxid

    def delete(self, path: str) -> None:
        """Delete a node as an operator does, and all below it."""
        for below in sorted((name for name in self._tree.nodes if f"{name}/".startswith(f"{path}/")), reverse=True):
            self._do(Delete(below))

    def stored(self, partition: Partition = P0) -> tuple[bytes, int] | None:
        """Return the data of a node and its version."""
        node = self._tree.nodes.get(path_of(partition))
        return None if node is None else (node.data, node.version)

    def multis(self) -> list[Multi]:
        """Return what was asked to be written so far."""
        return [request for request in self.asked if isinstance(request, Multi)]

    def _ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        self.asked.append(request)
        self._open.append((request, handle))

    def _do(self, request: Request) -> Reply:
        if isinstance(request, Sync):
            return Reply(request.path, None, self.now)
        if isinstance(request, GetData | Exists | GetChildren):
            node = self._tree.nodes.get(request.path)
            if isinstance(request, GetData):
                return (
                    Reply(None, Fault.NO_NODE, self.now)
                    if node is None
                    else Reply((node.data, node.stat()), None, self.now)
                )
            return Reply(None if node is None else node.stat(), None, self.now)
        self._zxid += 1
        outcome = self._tree.execute(request, FENCE.session_id, self._zxid)
        return Reply(outcome.value, outcome.fault, self.now)
