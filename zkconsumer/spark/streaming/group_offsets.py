"""Stores the offsets of a stream in `/consumers/[group]/offsets`, for monitoring tools and members of the group.

Rules, and what each prevents:
- Each node is written at the version at which it was read, and its offset never decreases: a commit of another process
  is not undone. An offset from before the topic was created anew, and text that is no number, is overwritten.
- An offset of a topic that was created anew since is not written: it would be taken for one of the new topic.
- Nothing is written while the group has members, unless that is allowed: the members would continue from their own
  positions, and an offset that two processes commit means nothing.

Threads: any but the port's callback thread; each call blocks its caller, with a deadline.

Source: docs/SEMANTICS.md, "Fencing"; node format as kafka.utils.ZkUtils, 0.8.2.2.

Stores the offsets of a running stream for its group, and tries again after an error.

Threads: one at a time.

Stores the last offsets of a query for its group: `commit_offsets(query)`, or `follow(spark)` for all queries.

A running stream stores the end of a batch in ZooKeeper when Spark asks where the next batch ends, which happens before
`awaitTermination()` returns. Spark does not ask again after `query.stop()`, with `trigger(once=True)`, or after the
process was killed. These two functions store what such a run had finished.

Source: Spark 4.3, org.apache.spark.sql.execution.streaming.runtime.StreamExecution (analyzedPlan,
resolvedCheckpointRoot).

Reads from a checkpoint folder which batch of a stream was finished last.

A batch is planned in `offsets/N` and finished in `commits/N`. A batch with both files is durable, if its sink is.

Source: Spark 4.3, OffsetSeqLog and CommitLog: a line `v1`, a line of metadata, a line for each source.
"""

from __future__ import annotations

import logging
import posixpath
import re
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyarrow import fs
from pyspark.sql.streaming.listener import StreamingQueryListener

from rebalance.errors import UnreadableNode, refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Exists, Fault, GetChildren, GetData, Multi, SetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.zookeeper_connection import read_all
from zkconsumer.spark.errors import SparkSourceError
from zkconsumer.spark.options.options import stream_options
from zkconsumer.spark.settings_files import configured_connection, with_settings_files
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets
from zkconsumer_error import first_few

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_WRITES: Final = 200
"""Operations in one multi; ZooKeeper's default limit of a request is 1 MB."""
_ROUNDS: Final = 5
_Write = Create | SetData


class GroupHasMembers(SparkSourceError):  # noqa: N818 - as in `errors`, the name says what happened
    """The group whose offsets would be written has members.

    Attributes:
        members: their consumer ids.
    """

    def __init__(self, group: str, members: Sequence[str]) -> None:
        super().__init__(group, members)
        self.group = group
        self.members = list(members)

    remedy = "stop them, use another group.id, or set commitToLiveGroup to true"

    def _sentence(self) -> str:
        shown = first_few(*self.members, rest=", ...")
        verb = "consumer is" if len(self.members) == 1 else "consumers are"
        return f"the offsets of group {self.group!r} are not written: {len(self.members)} {verb} in it ({shown})"


class OffsetsNotStored(SparkSourceError):  # noqa: N818
    """ZooKeeper did not accept offsets.

    Attributes:
        partitions: those whose offsets may not be stored.
    """

    def __init__(self, group: str, partitions: Sequence[TopicPartition], reason: str) -> None:
        super().__init__(group, partitions, reason)
        self.group = group
        self.partitions = list(partitions)
        self.reason = reason

    def _sentence(self) -> str:
        names = first_few(*[f"{topic}-{number}" for topic, number in self.partitions], rest=", ...")
        return f"offsets of group {self.group!r} are not stored for {names}: {self.reason}"


class GroupOffsets:
    """The offset nodes of one group.

    Args:
        port: a connected ZooKeeper port.
        group: whose `/offsets`.
        is_live_allowed: whether to write although the group has members.
        timeout_s: for each call.
    """

    def __init__(self, port: ZooKeeperPort, group: str, is_live_allowed: bool = False, timeout_s: float = 10.0) -> None:
        self._port = port
        self._group = group
        self._is_live_allowed = is_live_allowed
        self._timeout_s = timeout_s
        self._parents: set[str] = set()

    def refuse_members(self) -> None:
        """Raise if the group has members and that is not allowed.

        Raises:
            GroupHasMembers: the text names them.
            ZooKeeperSilent: ZooKeeper does not answer.
        """
        self._check_members(read_all(self._port, [GetChildren(znodes.ids_path(self._group))], self._timeout_s)[0])

    def _check_members(self, listing: tuple[list[str], object] | None) -> None:
        members = [] if listing is None else sorted(listing[0])
        if members and not self._is_live_allowed:
            raise GroupHasMembers(self._group, members)

    def commit(self, offsets: Mapping[TopicPartition, int], created_zxids: Mapping[str, int]) -> int:
        """Store offsets that are higher than the stored ones; return how many were written.

        Args:
            created_zxids: topic -> the transaction that created it. An offset that was stored before that transaction
                is of an earlier incarnation of the topic and may be overwritten. Offsets of a topic that was created
                anew since are left out.

        Raises:
            GroupHasMembers: nothing was written.
            OffsetsNotStored: some may not have been written.
            ZooKeeperSilent: ZooKeeper does not answer.
        """
        ends_at = time.monotonic() + self._timeout_s
        written, reason = 0, "other processes keep writing them"
        left = dict(offsets)
        for _ in range(_ROUNDS):
            writes = self._needed(left, created_zxids, ends_at)
            if not writes:
                return written
            self._make_parents(writes, ends_at)
            names = list(writes)
            for first in range(0, len(names), _WRITES):
                batch = names[first : first + _WRITES]
                reply = call(self._port, Multi(tuple(writes[name] for name in batch)), _until(ends_at))
                if reply.fault is not None:
                    if not reply.fault.is_unknown:
                        raise OffsetsNotStored(self._group, names[first:], reply.reason or reply.fault.value)
                    reason = reply.reason
                    break
                self._refuse_rights(batch, reply.value)
                if not any(isinstance(result, Fault) for result in reply.value):
                    written += len(batch)
            self._parents.clear()  # a parent node may have been deleted
            left = {name: left[name] for name in names}
        raise OffsetsNotStored(self._group, list(left), reason)

    def _refuse_rights(self, names: Sequence[TopicPartition], results: Sequence[Any]) -> None:
        """Raise for errors that another round would not repair."""
        passing = (Fault.BAD_VERSION, Fault.NO_NODE, Fault.NODE_EXISTS, Fault.ROLLED_BACK)
        for name, result in zip(names, results, strict=True):
            if isinstance(result, Fault) and result not in passing:
                path = znodes.offset_path(self._group, *name)
                raise OffsetsNotStored(self._group, names, f"{result.value}: {refusal_of('write', path, result)}")

    def _needed(
        self, offsets: Mapping[TopicPartition, int], created_zxids: Mapping[str, int], ends_at: float
    ) -> dict[TopicPartition, _Write]:
        """The writes that raise the nodes to the offsets."""
        paths = {name: znodes.offset_path(self._group, *name) for name in offsets}
        topics = sorted({name.topic for name in offsets} & created_zxids.keys())
        reads: list[GetChildren | Exists | GetData] = [GetChildren(znodes.ids_path(self._group))]
        reads += [Exists(znodes.topic_path(topic)) for topic in topics]
        reads += [GetData(path) for path in paths.values()]
        members, *found = read_all(self._port, reads, _until(ends_at))
        self._check_members(members)
        stats, values = found[: len(topics)], found[len(topics) :]
        recreated = {topic for topic, stat in zip(topics, stats, strict=True)
                  if stat is not None and stat.czxid != created_zxids[topic]}  # fmt: skip
        writes: dict[TopicPartition, _Write] = {}
        for (name, path), value in zip(paths.items(), values, strict=True):
            if name.topic in recreated:
                continue
            data = znodes.format_offset(offsets[name])
            if value is None:
                writes[name] = Create(path, data)
            elif _is_to_be_written(path, value, offsets[name], created_zxids.get(name.topic, 0)):
                writes[name] = SetData(path, data, value[1].version)
        return writes

    def _make_parents(self, writes: Mapping[TopicPartition, _Write], ends_at: float) -> None:
        topics = {name.topic for name, write in writes.items() if isinstance(write, Create)} - self._parents
        if not topics:
            return
        folders: dict[str, None] = {}
        for topic in sorted(topics):
            parts = znodes.offsets_path(self._group, topic).split("/")[1:]
            folders.update(dict.fromkeys("/" + path for path in accumulate(parts, "{}/{}".format)))
        for folder in folders:
            reply = call(self._port, Create(folder), _until(ends_at))
            if reply.fault in (None, Fault.NODE_EXISTS):
                continue
            # ZooKeeper checks the access list of the parent first, even if the node exists already.
            if reply.fault is not Fault.NO_AUTH or read_all(self._port, [Exists(folder)], _until(ends_at)) == [None]:
                refusal = refusal_of("create", folder, reply.fault, reply.reason)
                raise OffsetsNotStored(self._group, list(writes), refusal)
        self._parents |= topics


def _is_to_be_written(path: str, value: tuple[bytes, Any], offset: int, created_zxid: int) -> bool:
    data, stat = value
    try:
        stored = znodes.parse_offset(path, data)
    except UnreadableNode:
        return True
    return stored < offset or (stored != offset and stat.mzxid < created_zxid)


def _until(ends_at: float) -> float:
    return max(0.01, ends_at - time.monotonic())


log = logging.getLogger(__name__)
_RETRY_S: Final = 5.0
"""Between two tries to store the same offsets."""


class StreamGroup:
    """The group of a stream.

    Args:
        group: Where the offsets are stored.
    """

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._stored: StreamOffsets | None = None
        self._refused: StreamOffsets | None = None
        self._retry_at = 0.0

    def store(self, offsets: StreamOffsets, is_connected: bool) -> None:
        """Store offsets, unless they are stored. An error is logged once, and tried again after some seconds.

        Args:
            is_connected: Whether ZooKeeper is connected.
        """
        if offsets == self._stored or (offsets == self._refused and time.monotonic() < self._retry_at):
            return
        try:
            if not is_connected:
                raise SparkSourceError("ZooKeeper is not connected")
            self._group.commit(offsets.offsets, offsets.created_zxids)
        except Exception as error:  # noqa: BLE001 - it would end the query, and the offsets are in the checkpoint
            if offsets != self._refused:
                log.warning("offsets are kept in the checkpoint and not stored for the group yet: %s", error)
            self._refused, self._retry_at = offsets, time.monotonic() + _RETRY_S
        else:
            self._stored = offsets


_HEADER = "v1"
_NOTHING = "-"


class FinishedBatch(NamedTuple):
    """A finished batch.

    Attributes:
        ends: the offsets at its end as JSON text, one for each source; `None` for a source that had none yet.
    """

    number: int
    ends: list[str | None]


def newest_finished(checkpoint: str) -> FinishedBatch | None:
    """The newest batch that is finished, `None` before there is one.

    Args:
        checkpoint: a path, or a URI that pyarrow knows (`file:`, `hdfs:`, `s3:`).

    Raises:
        OSError: the folder cannot be read.
        ValueError: there is no such folder, or it does not have the format of Spark 4.
    """
    # Spark writes a local path as `file:/path`.
    system, root = fs.FileSystem.from_uri(re.sub(r"^file:/(?!/)", "file:///", checkpoint))
    if system.get_file_info(root).type != fs.FileType.Directory:
        raise ValueError(f"the checkpoint folder {checkpoint} does not exist")
    finished = _numbers(system, posixpath.join(root, "offsets")) & _numbers(system, posixpath.join(root, "commits"))
    if not finished:
        return None
    number = max(finished)
    path = posixpath.join(root, "offsets", str(number))
    with system.open_input_stream(path) as stream:
        lines = stream.read().decode("utf-8", "replace").splitlines()
    if len(lines) < 3 or lines[0] != _HEADER:
        raise ValueError(f"{path} is not written as Spark 4 writes it: it starts with {lines[:1]}")
    return FinishedBatch(number, [None if line == _NOTHING else line for line in lines[2:]])


def _numbers(system: fs.FileSystem, folder: str) -> set[int]:
    files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(file.base_name) for file in files if file.base_name.isascii() and file.base_name.isdigit()}


FORMAT: Final = "zkconsumer"
Options = Mapping[str, str]


def commit_offsets(query: StreamingQuery, options: Options | None = None) -> dict[TopicPartition, int]:
    """Store the ends of the last finished batch of a query for its group; return them.

    Stored offsets never decrease. Sources without `group.id` are ignored.

    Args:
        query: running, stopped or failed.
        options: those of the source. They are needed only in Spark Connect, where a query with one source can be
            committed with them.

    Raises:
        SparkSourceError: the group has members, ZooKeeper refuses the offsets, or the query has no such source.
        ZkConsumerError, RebalanceError: ZooKeeper cannot be reached.
    """
    sources: list[Options | None] = [options] if options is not None else _sources(query)
    if not any(sources):
        raise SparkSourceError(f"query {query.id} reads from no source {FORMAT!r}")
    return _store(sources, _ends(query, len(sources)))


def follow(spark: SparkSession) -> StreamingQueryListener:
    """Store the offsets of every query of this session when it ends; return the listener, which is already added.

    It works in the background, a moment after the end of the query: a program that exits then should call
    `commit_offsets`. Errors are logged. `spark.streams.removeListener(listener)` ends it.
    """
    listener = _Follower(spark)
    spark.streams.addListener(listener)
    return listener


class _Follower(StreamingQueryListener):
    """Keeps the newest progress of each run, and stores its offsets when the run ends.

    Threads: Spark's listener bus, one event after the other; the start of a query waits for `onQueryStarted`.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sources: dict[str, list[Options | None]] = {}
        self._ends: dict[str, list[str | None]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._look(str(event.runId), str(event.id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        run = str(progress.runId)
        if run not in self._sources:  # it was started before this listener
            self._look(run, str(progress.id))
        self._ends[run] = [source.endOffset for source in progress.sources]

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        run = str(event.runId)
        sources, ends = self._sources.pop(run, []), self._ends.pop(run, None)
        if ends is None or not any(sources):
            return
        try:
            _store(sources, ends)
        except Exception as error:  # noqa: BLE001 - the offsets are in the checkpoint, and other listeners wait
            log.warning("the last offsets of query %s are not stored for its group: %s", event.id, error)

    def _look(self, run: str, query_id: str) -> None:
        try:
            query = self._spark.streams.get(query_id)
            self._sources[run] = [] if query is None else _sources(query)
        except Exception as error:  # noqa: BLE001 - a listener must not make the start of a query fail
            log.warning("the sources of query %s are unknown, its last offsets are not stored: %s", query_id, error)
            self._sources[run] = []


def _sources(query: StreamingQuery) -> list[Options | None]:
    """The options of each source in Spark's order, `None` for those of others."""
    leaves = _execution(query).analyzedPlan().collectLeaves()
    seen: list[Any] = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        # A frame that is used twice is read once.
        if leaf.isStreaming() and not any(leaf.equals(other) for other in seen):
            seen.append(leaf)
    return [_options(leaf) for leaf in seen]


def _options(leaf: Any) -> Options | None:
    if leaf.getClass().getSimpleName() != "StreamingRelationV2" or leaf.sourceName().lower() != FORMAT:
        return None
    return dict(leaf.extraOptions().asCaseSensitiveMap())


def _ends(query: StreamingQuery, count: int) -> list[str | None]:
    """The ends of the newest finished batch, one for each source."""
    progress = query.lastProgress
    if progress is not None:
        ends: list[str | None] = [source.endOffset for source in progress.sources]
    else:
        finished = newest_finished(_execution(query).resolvedCheckpointRoot())
        ends = [None] * count if finished is None else finished.ends
    if len(ends) != count:
        raise SparkSourceError(
            f"query {query.id} reports {len(ends)} sources and has {count}, so it is not known which is which"
        )
    return ends


def _execution(query: StreamingQuery) -> Any:
    """The query in the JVM."""
    wrapper = getattr(query, "_jsq", None)
    if wrapper is None:
        raise SparkSourceError("the options of this query's source cannot be read through Spark Connect",
                               remedy="pass them: commit_offsets(query, options)")  # fmt: skip
    return wrapper.streamingQuery()


def _store(sources: list[Options | None], ends: list[str | None]) -> dict[TopicPartition, int]:
    stored: dict[TopicPartition, int] = {}
    for given, end in zip(sources, ends, strict=True):
        options = None if given is None else stream_options(with_settings_files(given))
        if options is None or not options.commit_offsets or end in (None, "null"):
            continue
        config, wanted = options.config, parse_stream_offsets(end)
        with configured_connection(config) as port:
            group = GroupOffsets(port, config.group_id, options.commit_to_live_group)
            group.commit(wanted.offsets, wanted.created_zxids)
        stored.update(wanted.offsets)
    return stored
