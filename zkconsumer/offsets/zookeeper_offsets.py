"""Offsets in ZooKeeper: loaded after the claim, committed behind the fence.

Each commit is a multi that begins with a check of the registration and sets every offset at the version last seen,
so neither a zombie of ours nor a lost race can put an offset back. Batches go one after the other: when the last one
is answered, the result of every commit before it is known, which is what a release waits for.

Source: docs/SEMANTICS.md, "Fenced commits"; node format as kafka.utils.ZkUtils, 0.8.2.2.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping

from rebalance import znodes
from rebalance.assignment import Partition
from rebalance.claims import Ask, Fence, create_parents, is_same_session
from rebalance.errors import UnreadableNode, refusal_of
from rebalance.loop import Loop
from rebalance.requests import Create, Fault, GetData, Multi, Reply, SetData, Sync
from zkconsumer.offsets.offset_records import OffsetRecord, Verdict, start_position, verdict

__all__ = ["MAX_BYTES", "MAX_OPERATIONS", "ZooKeeperOffsets"]

log = logging.getLogger(__name__)

MAX_OPERATIONS = 200
"""Operations in one multi, the check included."""

MAX_BYTES = 256 * 1024
"""Bytes of paths and data in one multi; ZooKeeper refuses requests above 1 MiB."""

_ROUNDS = 8
_RETRY_S = 0.2
_LONGEST_RETRY_S = 5.0
_SESSION_OVER = "the ZooKeeper session is over"

Done = Callable[[Mapping[Partition, str]], None]


class ZooKeeperOffsets:
    """The offset nodes of one group for one member.

    Args:
        ask: sends requests.
        loop: for retries while the connection is away.
        group: whose `/offsets`.

    Attributes:
        failures: how many positions could not be committed so far.
        refused: partition -> why its offset node cannot be read, as a sentence.

    Threads: the coordinator's alone; `committed` and `failures` may be read from any thread.
    """

    def __init__(self, ask: Ask, loop: Loop, group: str) -> None:
        self._ask = ask
        self._loop = loop
        self._group = group
        self._fence: Fence | None = None
        self._records: dict[Partition, OffsetRecord] = {}
        self._waiting: deque[_Batch] = deque()
        self._running: _Batch | None = None
        self._starting = False
        self._parents: set[str] = set()
        self.failures = 0
        self.refused: dict[Partition, str] = {}

    # -- session ------------------------------------------------------------------------------------------------

    def session_opened(self, fence: Fence) -> None:
        """From now on writes are fenced with this registration."""
        self._fence = fence

    def session_over(self) -> None:
        """Nothing may be written any more: what waits fails, and says so."""
        self._fence = None
        waiting, self._waiting = self._waiting, deque()
        running, self._running = self._running, None
        for batch in ([running] if running is not None else []) + list(waiting):
            batch.fail_rest(_SESSION_OVER)

    def committed(self) -> dict[Partition, int]:
        """The stored offsets as last seen."""
        return {partition: record.stored for partition, record in list(self._records.items())
                if record.stored is not None}

    def behind(self) -> dict[Partition, int]:
        """The done positions of ownerships that have ended which are not stored. Threads: any."""
        return {
            partition: record.done
            for partition, record in list(self._records.items())
            if record.done is not None and not self.is_stored(partition, record.done)
        }

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool:
        """Whether a commit of a position would find nothing left to write, by what was last seen of the node.

        A higher offset that the log does not have is not enough, nor is any for an explicit commit, which may lower it.
        Threads: any.
        """
        record = self._records.get(partition)
        return record is not None and verdict(record, position, explicit) in (Verdict.SKIP, Verdict.HOLD)

    def remember(self, partition: Partition, position: int) -> None:
        """Keep the done position of an ownership that ends, for the next claim by this member."""
        self._record(partition).done = position

    def start_at(self, partition: Partition, position: int) -> None:
        """The application begins there, whatever is stored or was done here before: what is stored may be lowered."""
        self._record(partition).start_at(position)

    def out_of_range(self, partition: Partition) -> None:
        """The position of a partition was outside its log and is reset: what is stored may be lowered."""
        self._record(partition).out_of_range()

    def forget_topic(self, topic: str) -> None:
        """The topic was created anew: what was done and committed of its earlier life says nothing any more."""
        for batch in self._waiting:
            batch.forget_topic(topic)
        under_way = self._running.forget_topic(topic) if self._running is not None else {}
        for partition, record in self._records.items():
            if partition[0] == topic:
                record.forget_incarnation(under_way.get(partition))

    def _record(self, partition: Partition) -> OffsetRecord:
        return self._records.setdefault(partition, OffsetRecord())

    # -- load ---------------------------------------------------------------------------------------------------

    def load(self, partition: Partition, done: Callable[[int | None], None], created_zxid: int = 0) -> None:
        """Read the offset of a partition that was just claimed; `done(None)` when there is none to go on from.

        An offset that was written before `created_zxid`, the creation of its topic, is none.
        Silent when the session ends before the answer: the claim ended with it.
        """
        self._load(partition, done, created_zxid, self._fence, _RETRY_S)

    def _load(
        self, partition: Partition, done: Callable[[int | None], None], created_zxid: int, fence: Fence | None,
        retry_s: float,
    ) -> None:
        def read(outcome: Reply) -> None:
            # The same session may have registered anew.
            if not is_same_session(self._fence, fence):
                return
            if not self._take(partition, outcome):
                # A node that may not be read stays so; the others are not to suffer from the asking.
                is_away = outcome.fault is not None and outcome.fault.is_unknown
                longer_s = _RETRY_S if is_away else min(2 * retry_s, _LONGEST_RETRY_S)
                self._loop.call_later(retry_s, self._load, partition, done, created_zxid, fence, longer_s)
                return
            record = self._record(partition)
            if record.is_of_earlier_incarnation(created_zxid):
                log.warning("offset %s of %s-%s was stored before the topic was created anew; beginning at its start",
                            record.stored, *partition)
                record.taken()
                record.void_version = record.version
                done(None)
                return
            position, obeyed = start_position(record)
            if obeyed:
                log.warning("offset of %s-%s was set to %s by somebody else, below %s; going on from there",
                            *partition, record.stored, record.baseline)
            elif record.stored is not None and position is not None and position > record.stored:
                log.info("offset of %s-%s: going on from %s, done here before; stored is %s",
                         *partition, position, record.stored)
            record.taken()
            if obeyed:
                record.done = None
            done(position)

        self._read(partition, read)

    def _read(self, partition: Partition, handle: Callable[[Reply], None]) -> None:
        self._ask(GetData(znodes.offset_path(self._group, *partition)), handle)

    def read_refusal(self, partition: Partition, reply: Reply) -> str:
        """Why the offset could not be read."""
        assert reply.fault is not None
        return refusal_of("read", znodes.offset_path(self._group, *partition), reply.fault, reply.reason)

    def _take(self, partition: Partition, reply: Reply) -> bool:
        """Whether the read said anything; what it said is noted."""
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
            self._record(partition).seen(None, None)
            return True
        data, stat = reply.value
        try:
            offset = znodes.parse_offset(znodes.offset_path(self._group, *partition), data)
        except UnreadableNode as error:
            log.warning("%s; treated as absent", error)
            self._record(partition).seen(None, stat.version, stat.mzxid)
        else:
            self._record(partition).seen(offset, stat.version, stat.mzxid)
        return True

    # -- commit -------------------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[Partition, int], done: Done, explicit: bool = False) -> None:
        """Write positions; `done(failed)` when the result of each is known. `explicit` may lower what is stored."""
        self._enqueue(_Batch(self, positions, done, explicit))

    def commit_start(self, partition: Partition, offset: int, done: Done) -> None:
        """Write where reading begins, unless somebody has stored an offset since `load` found none: that one stands.

        Nothing was done before a start. Written late over a lower one it would have the next owner's work skipped.
        """
        batch = _Batch(self, {partition: offset}, done, explicit=False)
        batch.starts.add(partition)
        self._enqueue(batch)

    def _enqueue(self, batch: _Batch) -> None:
        if not self._waiting or not self._waiting[-1].join(batch):
            self._waiting.append(batch)
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

    def _finished(self, batch: _Batch) -> None:
        if self._running is batch:
            self._running = None
        self._next()


class _Batch:
    """One call of `commit`, or several that waited together, in as many multis as it takes."""

    def __init__(self, store: ZooKeeperOffsets, positions: Mapping[Partition, int], done: Done, explicit: bool) -> None:
        self._store = store
        self._explicit = explicit
        self.starts: set[Partition] = set()
        self._left = dict(positions)
        self._callers = [(frozenset(positions), done)]
        self._raised: set[Partition] = set()
        self._failed: dict[Partition, str] = {}
        self._tries: dict[Partition, int] = {}
        self._over = False

    def join(self, later: _Batch) -> bool:
        """Whether a later call is written together with this one, which waits for its turn.

        The starts of thousands of partitions come one by one. What goes back is written by itself, and so is another
        start: one after the other it would have been compared with what this one stores.
        """
        goes_back = any(self._left.get(partition, at) > at for partition, at in later._left.items())
        if self._explicit or later._explicit or goes_back or self._failed or later.starts & self._left.keys():
            return False
        self._left.update(later._left)
        self.starts = self.starts - later._left.keys() | later.starts
        self._callers += later._callers
        return True

    def start(self) -> None:
        unknown = [partition for partition in self._left if partition not in self._store._records]
        if unknown:
            self._reread(unknown)
        else:
            self._send()

    def fail_rest(self, reason: str) -> None:
        self._failed.update(dict.fromkeys(self._left, reason))
        self._left = {}
        self._finish()

    def forget_topic(self, topic: str) -> dict[Partition, int]:
        """Write nothing more of a topic; return what may be on its way."""
        dropped = {partition: at for partition, at in self._left.items() if partition[0] == topic}
        for partition in dropped:
            self._settle(partition, "the topic was created anew")
        return dropped

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        self._store.failures += len(self._failed)
        # Told before the next one starts, which may be done at once: the answers come in the order of the calls.
        for partitions, done in self._callers:
            done({partition: self._failed[partition] for partition in partitions & self._failed.keys()})
        self._store._finished(self)

    def _settle(self, partition: Partition, reason: str | None = None) -> None:
        self._left.pop(partition, None)
        if reason is not None:
            self._failed[partition] = reason

    # -- one round ----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Decide about what is left and write a multi full of it."""
        if self._over:
            return
        writes = self._decide()
        if not writes:
            self._finish()
            return
        if self._store._fence is None:
            self.fail_rest(_SESSION_OVER)
            return
        missing = sorted({partition[0] for partition, write in writes.items() if isinstance(write, Create)}
                         - self._store._parents)
        if missing:
            self._make_parents(missing)
            return
        operations = tuple(writes.values())
        partitions = list(writes)
        fence = self._store._fence
        self._store._ask(Multi((fence.check(), *operations)), lambda reply: self._written(fence, partitions, reply))

    def _decide(self) -> dict[Partition, Create | SetData]:
        writes: dict[Partition, Create | SetData] = {}
        size = 0
        for partition, value in list(self._left.items()):
            record = self._store._record(partition)
            path = znodes.offset_path(self._store._group, *partition)
            try:
                data = znodes.format_offset(value)
            except ValueError as error:  # one position that cannot be stored must not cost the others
                self._settle(partition, str(error))
                continue
            if partition in self.starts and record.stored not in (None, value) and not record.is_void:
                self._settle(partition, f"{record.stored} was stored by somebody else meanwhile")
                continue
            match verdict(record, value, self._explicit and partition not in self._raised):
                case Verdict.SKIP:
                    self._settle(partition)
                    continue
                case Verdict.HOLD:
                    self._hold(partition, record, value)
                    continue
                case Verdict.CREATE:
                    write: Create | SetData = Create(path, data)
                case Verdict.WRITE:
                    assert record.version is not None  # or it would have been a create
                    write = SetData(path, data, record.version)
            size += len(path) + len(data)
            if len(writes) + 1 >= MAX_OPERATIONS or (writes and size > MAX_BYTES):
                break
            writes[partition] = write
        return writes

    def _hold(self, partition: Partition, record: OffsetRecord, value: int) -> None:
        if record.held_at != record.stored:
            log.warning("offset of %s-%s: %s is stored, set by somebody else; %s is not written over it",
                        *partition, record.stored, value)
        record.held_at = record.stored
        self._settle(partition, f"{record.stored} is stored, higher than {value}, set by somebody else"
                     if self._explicit else None)

    def _make_parents(self, topics: list[str]) -> None:
        group = znodes.group_path(self._store._group)
        paths = [znodes.CONSUMERS, group, f"{group}/offsets"]
        paths += [znodes.offsets_path(self._store._group, topic) for topic in topics]

        def made(reply: Reply) -> None:
            if reply.fault in (None, Fault.NODE_EXISTS):
                self._store._parents.update(topics)
                self._send()
            elif reply.fault.is_unknown:
                self._later()
            else:
                self.fail_rest(refusal_of("create", reply.path, reply.fault, reply.reason))

        create_parents(self._store._ask, paths, made)

    def _written(self, fence: Fence, partitions: list[Partition], reply: Reply) -> None:
        if self._over:
            return
        if reply.fault is Fault.SESSION_EXPIRED:
            self.fail_rest(_SESSION_OVER)
            return
        if reply.fault is not None:
            if reply.fault.is_unknown:
                self._later()  # the connection went away: whether it was applied is found out by reading
            else:
                self.fail_rest(reply.reason or reply.fault.value)
            return
        check, *results = reply.value
        if check in (Fault.NO_NODE, Fault.BAD_VERSION):
            self.fail_rest("this session is no longer the registered one")
            return
        if isinstance(check, Fault) and check is not Fault.ROLLED_BACK:
            # A registration that its own member may not read: no write can be fenced, however often it is tried.
            refusal = refusal_of("read", fence.path, check, reply.reason)
            self.fail_rest(f"the registration cannot be checked: {refusal}")
            return
        if not any(isinstance(result, Fault) for result in results):
            for partition, result in zip(partitions, results, strict=True):
                version = 0 if isinstance(result, str) else result.version
                if partition in self._left:
                    self._store._record(partition).written(self._left[partition], version)
                    self._settle(partition)
            self._send()
            return
        self._sort_out(partitions, results, reply.reason)

    def _sort_out(self, partitions: list[Partition], results: list[object], reason: str) -> None:
        """One operation failed, so none was done: take it out or look again, and send the rest."""
        for partition, result in zip(partitions, results, strict=True):
            if not isinstance(result, Fault) or result is Fault.ROLLED_BACK:
                continue
            if result in (Fault.NO_NODE, Fault.BAD_VERSION, Fault.NODE_EXISTS):
                self._store._parents.discard(partition[0])
                self._tries[partition] = self._tries.get(partition, 0) + 1
                if self._tries[partition] > _ROUNDS:
                    self._settle(partition, f"somebody else keeps writing it ({result.value})")
            else:
                record = self._store._records.get(partition)
                action = "create" if record is None or record.version is None else "write"
                path = znodes.offset_path(self._store._group, *partition)
                self._settle(partition, refusal_of(action, path, result, reason))
        self._reread([partition for partition in partitions if partition in self._left])

    def _later(self) -> None:
        """Try again when the connection may be back; the end of the session ends this too."""
        self._store._loop.call_later(_RETRY_S, self._look_again)

    def _look_again(self) -> None:
        if self._over:
            return
        # The server may be behind the one that took the write.
        self._store._ask(Sync(znodes.group_path(self._store._group)), lambda reply: None)
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
            before = self._store._records.get(partition)
            old = (before.stored, before.version) if before is not None else None
            if self._store._take(partition, reply):
                self._compare(partition, old)
            elif reply.fault is not None and reply.fault.is_unknown:
                failed.append(partition)
            else:
                self._settle(partition, self._store.read_refusal(partition, reply))
            open_reads -= 1
            if not open_reads:
                if failed:
                    self._later()
                else:
                    self._send()

        for partition in partitions:
            self._store._read(partition, lambda reply, partition=partition: read(partition, reply))  # type: ignore[misc]

    def _compare(self, partition: Partition, old: tuple[int | None, int | None] | None) -> None:
        """What the second look says about a write: it landed, or somebody else has been there."""
        record = self._store._record(partition)
        if old is None or partition not in self._left or record.version == old[1]:
            return
        value = self._left[partition]
        landed = 0 if old[1] is None else old[1] + 1
        if record.stored == value and record.version == landed:
            record.written(value, landed)
            self._settle(partition)
            return
        if record.stored is None or partition in self.starts:
            return
        if record.stored < value:
            log.warning("offset of %s-%s went from %s to %s: a Java member that was suspended, a broker's OffsetCommit "
                        "or a hand wrote it; %s is written again", *partition, old[0], record.stored, value)
        elif old[0] is None or record.stored > old[0]:
            # Raised meanwhile: even an explicit commit must not take that back unseen.
            self._raised.add(partition)
