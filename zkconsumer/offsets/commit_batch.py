"""Writes a batch of offsets to ZooKeeper, under the fence of the session in which it was decided.

Each multi starts with a check of the registration and sets every offset at the version last seen: neither a member
whose session has ended nor a lost race can put an offset back.

Source: docs/SEMANTICS.md, "Fencing".

The offset nodes of one group in ZooKeeper: reads them, and keeps what is known of each.

Source: node format as kafka.utils.ZkUtils, 0.8.2.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from rebalance.errors import UnreadableNode, refusal_of
from rebalance.loop import Loop
from rebalance.subscription import Partition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Ask, Fence, create_parents
from rebalance.zookeeper.port.requests import Create, Fault, GetData, Multi, Reply, SetData, Sync
from zkconsumer.offsets.member_offsets import Done, KnownOffsets
from zkconsumer.offsets.offset_records import OffsetRecord, WriteDecision, decide_write

__all__ = ["MAX_BYTES", "MAX_OPERATIONS", "RETRY_S", "SESSION_OVER", "CommitBatch", "Done", "OffsetNodes"]

log = logging.getLogger(__name__)


class OffsetNodes:
    """The offset nodes of one group, as one member knows them.

    Args:
        ask: sends requests.
        group: whose `/offsets`.
        known: what the member knows of the stored offsets; reads are noted there.

    Attributes:
        records: partition -> what is known of its node, as in `known`.
        refused: partition -> why its node cannot be read, as a sentence.
        parents: topics whose parent node is known to exist.

    Threads: the coordinator's alone; `records` may be read from any thread.
    """

    def __init__(self, ask: Ask, group: str, known: KnownOffsets) -> None:
        self.ask = ask
        self.group = group
        self.records = known.records
        self.record = known.record
        self.refused: dict[Partition, str] = {}
        self.parents: set[str] = set()

    def path(self, partition: Partition) -> str:
        """The path of the node of a partition."""
        return znodes.offset_path(self.group, *partition)

    def read(self, partition: Partition, handle: Callable[[Reply], None]) -> None:
        """Read the node of a partition."""
        self.ask(GetData(self.path(partition)), handle)

    def read_refusal(self, partition: Partition, reply: Reply) -> str:
        """Why the node could not be read."""
        assert reply.fault is not None
        return refusal_of("read", self.path(partition), reply.fault, reply.reason)

    def note(self, partition: Partition, reply: Reply) -> bool:
        """Update the record from the answer to a read; `False` if the answer says nothing about the node."""
        if reply.fault is not None and reply.fault.is_refusal:
            refusal = self.read_refusal(partition, reply)
            if partition not in self.refused:
                log.warning("offset of %s-%s cannot be read: %s", *partition, refusal)
            self.refused[partition] = f"its offset cannot be read: {refusal}"
            return False
        if reply.fault is not None and reply.fault.is_lost:
            return False
        self.refused.pop(partition, None)
        if reply.fault is not None:
            self.record(partition).seen(None, None)
            return True
        data, stat = reply.value
        try:
            offset = znodes.parse_offset(self.path(partition), data)
        except UnreadableNode as error:
            log.warning("%s; treated as missing", error)
            self.record(partition).seen(None, stat.version, stat.mzxid)
        else:
            self.record(partition).seen(offset, stat.version, stat.mzxid)
        return True

    def create_parents(self, topics: Iterable[str], done: Callable[[Reply], None]) -> None:
        """Create the parent nodes of the offsets of some topics; `done` as for `claims.create_parents`."""
        group = znodes.group_path(self.group)
        paths = [znodes.CONSUMERS, group, f"{group}/offsets"]
        create_parents(self.ask, [*paths, *(znodes.offsets_path(self.group, topic) for topic in topics)], done)


MAX_OPERATIONS: Final = 200
"""Operations in one multi, the check included."""
MAX_BYTES: Final = 256 * 1024
"""Bytes of paths and data in one multi; ZooKeeper refuses requests above 1 MiB."""
RETRY_S: Final = 0.2
"""How long after a lost connection a request is tried again."""
SESSION_OVER: Final = "the ZooKeeper session is over"
_ROUNDS: Final = 8


class CommitBatch:
    """One commit, or several that waited together, in as many multis as it takes.

    Args:
        nodes: the offset nodes.
        loop: for retries while the connection is away.
        fence: the registration under which it was decided; `None` if that session is over.
        positions: what to write.
        done: called with the positions that failed, and why.
        explicit: whether stored offsets may be lowered.

    Attributes:
        starts: partitions whose position is a start offset, which never replaces a stored one.
        finished: called when all of it is done, after `done`.
    """

    def __init__(
        self,
        nodes: OffsetNodes,
        loop: Loop,
        fence: Fence | None,
        positions: Mapping[Partition, int],
        done: Done,
        explicit: bool,
    ) -> None:
        self._nodes = nodes
        self._loop = loop
        self._fence = fence
        self._explicit = explicit
        self.starts: set[Partition] = set()
        self.finished: Callable[[CommitBatch], None] = lambda batch: None
        self._left = dict(positions)
        self._callers = [(frozenset(positions), done)]
        self._raised: set[Partition] = set()
        self._failed: dict[Partition, str] = {}
        self._tries: dict[Partition, int] = {}
        self._over = False

    @property
    def failures(self) -> int:
        """How many positions could not be written."""
        return len(self._failed)

    def renew(self, fence: Fence) -> None:
        """Write under a new registration of the same session."""
        if self._fence is not None:
            self._fence = fence

    def join(self, later: CommitBatch) -> bool:
        """Take over a later commit that is to be written together with this one, which waits; `False` if it may not.

        The starts of thousands of partitions come one by one. Of two commits that the application has asked for the
        later one replaces the earlier one, up or down. Another one that lowers a position is written by itself, and so
        is a second start: it has to be compared with what this batch stores.
        """
        if self._failed or self._fence != later._fence or self._explicit is not later._explicit:
            return False
        goes_back = any(self._left.get(partition, at) > at for partition, at in later._left.items())
        if (goes_back and not self._explicit) or later.starts & self._left.keys():
            return False
        self._left.update(later._left)
        self.starts = self.starts - later._left.keys() | later.starts
        self._callers += later._callers
        return True

    def start(self) -> None:
        """Write it, or read first which versions the nodes are at."""
        unknown = [partition for partition in self._left if partition not in self._nodes.records]
        if unknown:
            self._reread(unknown)
        else:
            self._send()

    def fail_rest(self, reason: str) -> None:
        """Report all that is not written as failed."""
        self._failed.update(dict.fromkeys(self._left, reason))
        self._left = {}
        self._finish()

    def forget_topic(self, topic: str) -> dict[Partition, int]:
        """Write nothing more of a topic; return the positions that may be on their way."""
        dropped = {partition: at for partition, at in self._left.items() if partition[0] == topic}
        for partition in dropped:
            self._settle(partition, "the topic was created again")
        return dropped

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        # Reported before the next batch starts, which may be done at once: the answers come in the order of the calls.
        for partitions, done in self._callers:
            done({partition: self._failed[partition] for partition in partitions & self._failed.keys()})
        self.finished(self)

    def _settle(self, partition: Partition, reason: str | None = None) -> None:
        self._left.pop(partition, None)
        if reason is not None:
            self._failed[partition] = reason

    # -- one round ----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Decide about the positions that are left, and write one multi of them."""
        if self._over:
            return
        writes = self._decide()
        if not writes:
            self._finish()
            return
        fence = self._fence
        if fence is None:
            self.fail_rest(SESSION_OVER)
            return
        missing = sorted(
            {partition[0] for partition, write in writes.items() if isinstance(write, Create)} - self._nodes.parents
        )
        if missing:
            self._make_parents(missing)
            return
        operations = tuple(writes.values())
        partitions = list(writes)
        self._nodes.ask(Multi((fence.check(), *operations)), lambda reply: self._written(fence, partitions, reply))

    def _decide(self) -> dict[Partition, Create | SetData]:
        writes: dict[Partition, Create | SetData] = {}
        size = 0
        for partition, value in list(self._left.items()):
            record = self._nodes.record(partition)
            path = self._nodes.path(partition)
            try:
                data = znodes.format_offset(value)
            except ValueError as error:  # one position that cannot be stored must not cost the others
                self._settle(partition, str(error))
                continue
            if partition in self.starts and record.stored not in (None, value) and not record.is_void:
                self._settle(partition, f"another client has stored {record.stored} in the meantime")
                continue
            match decide_write(record, value, self._explicit and partition not in self._raised):
                case WriteDecision.SKIP:
                    self._settle(partition)
                    continue
                case WriteDecision.HOLD:
                    self._hold(partition, record, value)
                    continue
                case WriteDecision.CREATE:
                    write: Create | SetData = Create(path, data)
                case WriteDecision.WRITE:
                    assert record.version is not None  # or it would have been a create
                    write = SetData(path, data, record.version)
            size += len(path) + len(data)
            if len(writes) + 1 >= MAX_OPERATIONS or (writes and size > MAX_BYTES):
                break
            writes[partition] = write
        return writes

    def _hold(self, partition: Partition, record: OffsetRecord, value: int) -> None:
        if record.held_at != record.stored:
            log.warning(
                "offset of %s-%s: another client has stored %s; %s does not overwrite it",
                *partition,
                record.stored,
                value,
            )
        record.held_at = record.stored
        self._settle(
            partition,
            f"another client has stored {record.stored}, which is higher than {value}" if self._explicit else None,
        )

    def _make_parents(self, topics: list[str]) -> None:
        def made(reply: Reply) -> None:
            if reply.fault in (None, Fault.NODE_EXISTS):
                self._nodes.parents.update(topics)
                self._send()
            elif reply.fault.is_unknown:
                self._later()
            else:
                self.fail_rest(refusal_of("create", reply.path, reply.fault, reply.reason))

        self._nodes.create_parents(topics, made)

    def _written(self, fence: Fence, partitions: list[Partition], reply: Reply) -> None:
        if self._over:
            return
        if reply.fault is Fault.SESSION_EXPIRED:
            self.fail_rest(SESSION_OVER)
            return
        if reply.fault is not None:
            if reply.fault.is_unknown:
                self._later()  # the connection was lost: a read will show whether it was applied
            else:
                self.fail_rest(reply.reason or reply.fault.value)
            return
        check, *results = reply.value
        if check in (Fault.NO_NODE, Fault.BAD_VERSION):
            self.fail_rest("this session no longer has the registration")
            return
        if isinstance(check, Fault) and check is not Fault.ROLLED_BACK:
            # The member may not read its own registration: no write can be fenced, however often it is tried.
            refusal = refusal_of("read", fence.path, check, reply.reason)
            self.fail_rest(f"the registration cannot be checked: {refusal}")
            return
        if not any(isinstance(result, Fault) for result in results):
            for partition, result in zip(partitions, results, strict=True):
                version = 0 if isinstance(result, str) else result.version
                if partition in self._left:
                    self._nodes.record(partition).written(self._left[partition], version)
                    self._settle(partition)
            self._send()
            return
        self._sort_out(partitions, results, reply.reason)

    def _sort_out(self, partitions: list[Partition], results: list[object], reason: str) -> None:
        """One operation failed, so none was done: give it up or read its node again, and send the rest."""
        for partition, result in zip(partitions, results, strict=True):
            if not isinstance(result, Fault) or result is Fault.ROLLED_BACK:
                continue
            if result in (Fault.NO_NODE, Fault.BAD_VERSION, Fault.NODE_EXISTS):
                self._nodes.parents.discard(partition[0])
                self._tries[partition] = self._tries.get(partition, 0) + 1
                if self._tries[partition] > _ROUNDS:
                    self._settle(partition, f"another client writes it again and again ({result.value})")
            else:
                record = self._nodes.records.get(partition)
                action = "create" if record is None or record.version is None else "write"
                self._settle(partition, refusal_of(action, self._nodes.path(partition), result, reason))
        self._reread([partition for partition in partitions if partition in self._left])

    def _later(self) -> None:
        """Try again when the connection may be back; the end of the session ends this too."""
        self._loop.call_later(RETRY_S, self._read_again)

    def _read_again(self) -> None:
        if self._over:
            return
        # The server may lag the one that took the write.
        self._nodes.ask(Sync(znodes.group_path(self._nodes.group)), lambda reply: None)
        self._reread(list(self._left))

    def _reread(self, partitions: list[Partition]) -> None:
        """Read the versions of `partitions` again, then go on."""
        open_reads = len(partitions)
        if not open_reads:
            self._send()
            return
        failed: list[Partition] = []

        def read(partition: Partition, reply: Reply) -> None:
            nonlocal open_reads
            if self._over:
                return
            before = self._nodes.records.get(partition)
            old = replace(before) if before is not None else None
            if self._nodes.note(partition, reply):
                self._compare(partition, old)
            elif reply.fault is not None and reply.fault.is_unknown:
                failed.append(partition)
            else:
                self._settle(partition, self._nodes.read_refusal(partition, reply))
            open_reads -= 1
            if not open_reads:
                if failed:
                    self._later()
                else:
                    self._send()

        for partition in partitions:
            self._nodes.read(partition, lambda reply, partition=partition: read(partition, reply))  # type: ignore[misc]

    def _compare(self, partition: Partition, old: OffsetRecord | None) -> None:
        """Find out from a second read whether a write was applied, or somebody else has written."""
        record = self._nodes.record(partition)
        if old is None or partition not in self._left or record.version == old.version:
            return
        value = self._left[partition]
        landed = 0 if old.version is None else old.version + 1
        if record.stored == value and record.version == landed:
            old.written(value, landed)  # it counts as what was known when it was sent
            self._nodes.records[partition] = old
            self._settle(partition)
            return
        if record.stored is None or partition in self.starts:
            return
        if record.stored < value:
            log.warning(
                "offset of %s-%s went from %s to %s: a suspended Java member, a broker's OffsetCommit or an "
                "operator wrote it; writing %s again",
                *partition,
                old.stored,
                record.stored,
                value,
            )
        elif old.stored is None or record.stored > old.stored:
            # Raised meanwhile: even an explicit commit must not undo that silently.
            self._raised.add(partition)
