"""Stores the last offsets of a query for its group: `commit_offsets(query)`, or `follow(spark)` for all queries.

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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyarrow import fs
from pyspark.sql.streaming.listener import StreamingQueryListener

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import SparkSourceError
from zkconsumer.spark.options.options import stream_options
from zkconsumer.spark.settings_files import configured_connection, with_settings_files
from zkconsumer.spark.streaming.group_offsets import GroupOffsets
from zkconsumer.spark.streaming.stream_offsets import parse_stream_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["FinishedBatch", "commit_offsets", "follow", "newest_finished"]


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


log = logging.getLogger(__name__)

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
    """Store the offsets of every query of this session when it ends; return the listener, which is added already.

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
        raise SparkSourceError(f"query {query.id} reports {len(ends)} sources and has {count}, so it is not known "
                               "which is which")
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
