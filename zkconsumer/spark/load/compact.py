"""Compacts the folder of a load: merges small files, and keeps each message once.

    finish the last run and the last compaction -> read the manifests -> group -> write into the staging folder
    -> compare -> publish -> finish (move each new file to its place, then remove the files that it replaces)

A compaction has no effect before it is published. Whatever ends it earlier costs no more than its work. Loads may run
at the same time.

Source: docs/SPARK_LOADING.md, "Compaction".

Merges groups of files into one file each with Spark, and compares the rows before and after.

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from zkconsumer.spark.load.compaction_history import CompactionHistory, compaction_folder, empty_compaction
from zkconsumer.spark.load.compaction_manifest import (
    Compaction,
    Group,
    Replacement,
    data_files,
    plan_groups,
    portions_of,
)
from zkconsumer.spark.load.failures import AuditFailed, LoadRefused
from zkconsumer.spark.load.heartbeat import Heartbeat
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.lake import read_lake, refuse_table
from zkconsumer.spark.load.session import Tell, watched_jobs
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import DATA_FOLDER, Shape, rows_of_files, settings_of_writing
from zkconsumer.spark.schema import HEADERS_COLUMN
from zkconsumer_error import first_few

_GROUP: Final = "group"
_MOST_TASKS: Final = 1000


class _Sums(NamedTuple):
    """Sums over the rows of one partition in one group; equal sums mean equal rows.

    Attributes:
        total, xor: of the offsets.
        hashes, hash_xor: of the hashes over all columns.
    """

    rows: int
    first: int
    last: int
    total: int
    xor: int
    hashes: int
    hash_xor: int


def rewrite_groups(spark: Any, storage: Storage, groups: Sequence[Group], shape: Shape, to: str) -> None:
    """Write each group as one file below `to`, with its rows sorted by partition and offset.

    Args:
        shape: of the files, with the compression of the new ones.
    """
    with settings_of_writing(spark):
        rows = _rows_by_group(spark, storage, groups, shape)
        # All rows of a group in one task, which writes them as one file.
        tasks = min(len(groups), _MOST_TASKS)
        ordered = rows.repartition(tasks, _GROUP).sortWithinPartitions(
            _GROUP, "partition", "offset", *(["entry_index"] if shape.has_places else [])
        )  # fmt: skip
        writer = ordered.write.format(shape.file_format).partitionBy(_GROUP).option("maxRecordsPerFile", "0")
        if shape.compression is not None:
            writer = writer.option("compression", shape.compression)
        writer.save(storage.url(to))


def written_groups(storage: Storage, to: str, count: int) -> list[str]:
    """The file of each group.

    Raises:
        AuditFailed: A group has another number of files.
    """
    found: dict[int, list[str]] = {}
    for path in storage.files(to):
        directory, _, name = path.rpartition("/")
        if not name.startswith(("_", ".")):
            number = directory.rpartition("=")[2]
            found.setdefault(int(number) if number.isdigit() else count, []).append(path)
    wrong = [number for number in range(count) if len(found.get(number, [])) != 1]
    if wrong or len(found) != count:
        group = wrong[0] if wrong else max(found)
        raise AuditFailed(f"nothing was published: group {group} of {count} was not written as one file")
    return [found[number][0] for number in range(count)]


def compare_groups(spark: Any, storage: Storage, groups: Sequence[Group], shape: Shape, to: str) -> int:
    """Return how many rows the groups have, if the files below `to` have the same rows.

    Raises:
        AuditFailed: They have others.
    """
    with settings_of_writing(spark):
        before = _sums(_rows_by_group(spark, storage, groups, shape), shape)
        schema = f"{rows_of_files(shape)}, {_GROUP} int"
        after = _sums(spark.read.format(shape.file_format).schema(schema).option("mode", "FAILFAST")
                      .load(storage.url(to)), shape)  # fmt: skip
    wrong = [f"{groups[place[0]][0].directory}, partition {place[1]}: the files had {_said(before.get(place))}, and "
             f"{_said(after.get(place))} were written"
             for place in sorted(before.keys() | after.keys()) if before.get(place) != after.get(place)]  # fmt: skip
    if wrong:
        raise AuditFailed(f"nothing was published: {first_few(*wrong, between='; ', rest='; and {} more')}")
    return sum(each.rows for each in after.values())


def _said(sums: _Sums | None) -> str:
    return "no rows" if sums is None else f"{sums.rows} rows of offsets {sums.first} to {sums.last}"


def _rows_by_group(spark: Any, storage: Storage, groups: Sequence[Group], shape: Shape) -> Any:
    """The rows of the files, with the number of their group."""
    from pyspark.sql import functions as f

    numbers = [(file.path, number) for number, group in enumerate(groups) for file in group]
    depth = numbers[0][0].count("/") + 1
    reader = spark.read.format(shape.file_format).schema(rows_of_files(shape)).option("mode", "FAILFAST")
    rows = reader.load([storage.url(path) for path, _ in numbers])
    path = f.substring_index(f.col("_metadata.file_path"), "/", -depth)
    wanted = spark.createDataFrame(numbers, f"path string, {_GROUP} int")
    # Rows of files that are not in the list have no group; `_sums` refuses them.
    return rows.withColumn("path", path).join(f.broadcast(wanted), "path", "left").drop("path")


def _sums(rows: Any, shape: Shape) -> dict[tuple[int, int], _Sums]:
    """The sums by group and partition.

    Raises:
        AuditFailed: There are rows without a group.
    """
    from pyspark.sql import functions as f

    # Without its place within the entry, a message of Kafka 0.7 would equal another one of the same entry.
    places = ("entry_index", "next_offset") if shape.has_places else ()
    headers = (HEADERS_COLUMN.name,) if shape.has_headers else ()
    names = ("key", "value", "offset", "timestamp", "timestampType", *places, *headers)
    # A null does not change a hash. Without these columns, a key without a value would equal a value without a key.
    nulls = [f.col(name).isNull() for name in names]
    nulls += [f.transform(name, lambda each: each["value"].isNull()) for name in headers]
    content = f.xxhash64(*nulls, *names)
    sums = rows.groupBy(_GROUP, "partition").agg(
        f.count(f.lit(1)), f.min("offset"), f.max("offset"), f.sum(f.col("offset").cast("decimal(20,0)")),
        f.bit_xor("offset"), f.sum(content.cast("decimal(20,0)")), f.bit_xor(content),
    )  # fmt: skip
    found = sums.collect()
    lost = sum(row[2] for row in found if row[0] is None)
    if lost:
        raise AuditFailed(f"nothing was published: {lost} rows come from files that were not requested")
    return {(row[0], row[1]): _Sums(row[2], row[3], row[4], int(row[5]), row[6], int(row[7]), row[8]) for row in found}


_PORTION_BYTES: Final = 8 * 1024**3
"""Size of the files that one compaction merges: the work that a failure costs at most, and the disk space needed."""
_PORTION_FILES: Final = 10_000


@dataclass(frozen=True)
class CompactionSettings:
    """The folder to compact, and how.

    Attributes:
        folder: path or URL of the folder of a load.
        file_bytes: largest size of a new file, by the sizes of the files that it replaces.
        compression: of the new files; a name that Spark knows for the format, or None for its default.

    Raises:
        LoadRefused: The size is less than 1.
    """

    folder: str
    file_bytes: int = 128 * 1024**2
    compression: str | None = None

    def __post_init__(self) -> None:
        if self.file_bytes < 1:
            raise LoadRefused(f"the file size is {self.file_bytes} bytes; it must be at least 1")


@dataclass(frozen=True)
class CompactionReport:
    """The result of a compaction. Its fields are the keys of `zkconsumer compact-files --json`.

    Attributes:
        compaction: its number, `None` when there was nothing to merge.
        files_before, bytes_before: the files that were replaced; all files of the folder if none was.
        files_after, bytes_after: the files that replace them.
        messages: in the new files.
        left: how many files are left to the compactions after this one.
    """

    folder: str
    compaction: int | None
    files_before: int
    bytes_before: int
    files_after: int = 0
    bytes_after: int = 0
    messages: int = 0
    left: int = 0
    seconds: float = 0.0


def run_compactions(
    spark: Any, settings: CompactionSettings, tell: Tell = lambda what, done, total: None
) -> Iterator[CompactionReport]:
    """Merge small files, in portions that are published one after the other, and yield the result of each.

    Args:
        spark: a session with a driver of its own.
        tell: called with the name of the step, how much of it is done, and of how much.

    Raises:
        LoadRefused: No load has published there, or it has a table.
        AuditFailed: The written messages differ from the old ones.
        LoadOvertaken: Another compaction has published meanwhile. Compactions yielded before are published.
    """
    started_s = time.monotonic()
    storage = Storage(spark, settings.folder)
    compactions = CompactionHistory(storage, lambda done, total: tell("publishing", done, total))
    unsettled = _finish_others(storage, compactions, tell)
    lake = read_lake(storage, lambda done, total: tell("looking", done, total))
    groups = plan_groups((file for file in lake.files if file.path not in unsettled), settings.file_bytes)
    number = max(compactions.numbers(), default=0)
    if not groups:
        size_bytes = sum(file.size_bytes for file in lake.files)
        yield CompactionReport(storage.folder, None, len(lake.files), size_bytes, seconds=time.monotonic() - started_s)
    left = sum(map(len, groups))
    shape = lake.shape._replace(compression=settings.compression)
    for portion in portions_of(groups, _PORTION_BYTES, _PORTION_FILES):
        number += 1
        left -= sum(map(len, portion))
        run = _Portion(spark, storage, compactions, portion, shape, tell)
        yield replace(run.compact(empty_compaction(number)), left=left, seconds=time.monotonic() - started_s)
        started_s = time.monotonic()


def _finish_others(storage: Storage, compactions: CompactionHistory, tell: Tell) -> set[str]:
    """Finish what was published, and return the files that another process may still be moving to their places."""
    history = History(storage, lambda done, total: tell("publishing", done, total))
    last = history.last()
    if last is None:
        raise LoadRefused(f"no load has published anything in {storage.folder}")
    refuse_table(last, storage.folder)
    unsettled: set[str] = set()
    if storage.exists(staging_folder(last.run, last.run_id)):
        unsettled.update(data_files(last))
        history.finish(last)
    unfinished = compactions.finish_last()
    if unfinished is not None:
        unsettled.update(new.final for new in compactions.read(unfinished).replacements)
    compactions.replace_dead()
    return unsettled


@dataclass(frozen=True)
class _Portion:
    """The groups of files that one compaction merges."""

    spark: Any
    storage: Storage
    compactions: CompactionHistory
    groups: Sequence[Group]
    shape: Shape
    tell: Tell

    def compact(self, empty: Compaction) -> CompactionReport:
        """Merge the groups, and publish the new files."""
        storage, groups = self.storage, self.groups
        folder = compaction_folder(empty)
        with Heartbeat(storage, folder):
            try:
                written, messages = self._write_and_compare(f"{folder}/{DATA_FOLDER}")
                sizes = storage.sizes(folder)
                storage.sync(written)  # the files that they replace will be removed
            except BaseException as error:
                with suppress(Exception):  # the first error is the one to report; a later compaction removes the rest
                    storage.delete(folder)
                if isinstance(error, Exception) and max(self.compactions.numbers(), default=0) >= empty.number:
                    raise self.compactions.overtaken() from error
                raise
            self.compactions.publish(replace(empty, replacements=_replacements(empty, written, groups)))
        before = [file.size_bytes for group in groups for file in group]
        size_bytes = sum(sizes[path] for path in written)
        return CompactionReport(
            storage.folder, empty.number, len(before), sum(before), len(written), size_bytes, messages
        )

    def _write_and_compare(self, to: str) -> tuple[list[str], int]:
        """The new files, and how many messages they contain."""
        with watched_jobs(self.spark, "rewriting", self.tell):
            rewrite_groups(self.spark, self.storage, self.groups, self.shape, to)
        written = written_groups(self.storage, to, len(self.groups))
        with watched_jobs(self.spark, "comparing", self.tell):
            return written, compare_groups(self.spark, self.storage, self.groups, self.shape, to)


def _replacements(compaction: Compaction, written: Sequence[str], groups: Sequence[Group]) -> tuple[Replacement, ...]:
    found = []
    for number, (staged, group) in enumerate(zip(written, groups, strict=True)):
        # The name starts with the number of the first run in the file, so that names keep the order of the messages.
        first = group[0].path.rpartition("/")[2].partition("-")[0]
        kind = staged.rpartition("/")[2].partition(".")[2]
        final = f"{group[0].directory}/{first}-compacted-{compaction.name}-{number:05}.{kind}"
        found.append(Replacement(staged, final, tuple(file.path for file in group)))
    return tuple(found)
