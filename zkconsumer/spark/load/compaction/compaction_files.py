"""Merges groups of files into one file each with Spark, and compares the rows before and after.

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from zkconsumer.spark.load.compaction.compaction import Group
from zkconsumer.spark.load.errors import AuditFailed
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import Shape, rows_of_files, settings_of_writing
from zkconsumer.spark.schema import HEADERS_COLUMN
from zkconsumer_error import first_few

__all__ = ["compare_groups", "rewrite_groups", "written_groups"]

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
