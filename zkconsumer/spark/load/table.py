"""Appends the rows of a load to one table for all topics, in the folder of the load: what Delta and Iceberg share.

A run appends its rows in one transaction, which names the history of the folder and the number of the run, so that the
table does not accept a second append of the same run.

Source: docs/SPARK_LOADING.md, "A Delta table", "An Iceberg table".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from zkconsumer.spark.load.failures import AppendFailed, LoadRefused, sentence_of_spark
from zkconsumer.spark.load.history import staging_folder
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import DATA_FOLDER, Shape, settings_of_writing
from zkconsumer.spark.schema import HEADERS_COLUMN

_TRIES: Final = 5


class LakeTable(ABC):
    """The table at the root of a folder.

    Attributes:
        kind: `Delta` or `Iceberg`.
        named: the same with an article.
        conflicts: words in the errors that are raised when another writer has changed the table meanwhile.

    Args:
        spark: a session that can write such tables.
    """

    kind: ClassVar[str]
    named: ClassVar[str]
    conflicts: ClassVar[tuple[str, ...]]

    def __init__(self, spark: Any, storage: Storage, shape: Shape) -> None:
        self._spark = spark
        self._storage = storage
        self._shape = shape

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the folder has such a table."""

    @abstractmethod
    def has_rows(self) -> bool:
        """Whether files with rows belong to the table.

        Raises:
            LoadRefused: it cannot be read.
        """

    @abstractmethod
    def _create(self, empty: Any) -> None:
        """Make the table with the columns of a frame."""

    @abstractmethod
    def _write(self, manifest: Manifest, rows: Any) -> None:
        """Append the rows of a run in one transaction, unless the table has them."""

    def _settings(self, manifest: Manifest) -> Mapping[str, str]:
        """Settings of the session while the rows of a run are read and written."""
        # A task reads this many bytes of the staged files, and writes its own files into the table.
        size = self._shape.file_bytes
        return {} if size is None else {"spark.sql.files.maxPartitionBytes": str(size)}

    def refuse_unfit(self, last: Manifest | None, had_rows: bool) -> None:
        """Return if runs can append to the table, or can create it.

        Args:
            last: the last published run of the folder.
            had_rows: what `has_rows` said before `last` was read.

        Raises:
            LoadRefused: the table was removed, holds rows of others, or lacks a column.
        """
        folder = self._storage.folder
        if not self.is_there():
            if last is not None:
                raise LoadRefused(
                    f"{folder} no longer has {self.named}, although {last.run} runs were published there",
                    remedy="restore it, or load everything again into another folder",
                )
            return
        if last is None and had_rows:
            raise LoadRefused(
                f"{folder} has {self.named} with rows that no load has written, or its _zkconsumer was removed",
                remedy="use another folder, or an empty table",
            )
        has = self._columns()
        written = dict(table_columns(self._shape))
        unwritten = [name for name in ("date", "hour") if name in has and name not in written]
        if unwritten:
            raise LoadRefused(
                f"the {self.kind} table in {folder} has a column {unwritten[0]!r}, which a load by "
                f"{self._shape.partition_by} does not write",
                remedy=f"use --partition-by {unwritten[-1]}",
            )
        for name, kind in written.items():
            if name not in has:
                raise LoadRefused(
                    f"the {self.kind} table in {folder} has no column {name!r}, which a load by "
                    f"{self._shape.partition_by} writes; it has {', '.join(has)}"
                )
            if has[name] != kind:
                raise LoadRefused(
                    f"column {name!r} of the {self.kind} table in {folder} is {has[name]}, but {kind} would be written"
                )

    def _columns(self) -> dict[str, str]:
        try:
            schema = self._spark.read.format(self._shape.format).load(self._storage.folder).schema
        except Exception as error:
            raise self._unreadable(error) from error
        return {field.name: field.dataType.simpleString() for field in schema.fields}

    def _unreadable(self, error: Exception) -> LoadRefused:
        return LoadRefused(f"the {self.kind} table in {self._storage.folder} cannot be read by Spark "
                           f"{self._spark.version}: {sentence_of_spark(str(error))}")  # fmt: skip

    def create(self) -> None:
        """Create the table, empty, if it does not exist.

        So readers have a table from the first run on, and a session that cannot write fails before anything is read.

        Raises:
            LoadRefused: it cannot be created.
        """
        if self.is_there():
            return
        from pyspark.sql import functions as f

        columns = [f.lit(None).cast(kind).alias(name) for name, kind in table_columns(self._shape)]
        try:
            self._create(self._spark.range(0).select(*columns))
        except Exception as error:
            if self.is_there():  # another load was faster; one of the two will publish
                return
            reason = sentence_of_spark(str(error))
            raise LoadRefused(
                f"the {self.kind} table in {self._storage.folder} cannot be created: {reason}",
                remedy=f"the jar of {self.kind} has to be made for Spark {self._spark.version}",
            ) from error

    def append(self, manifest: Manifest, is_done: Callable[[], bool]) -> None:
        """Append the rows of a published run, unless the table has them already.

        Args:
            is_done: returns True if another load has recorded meanwhile that the rows are appended.

        Raises:
            AppendFailed: it failed; the table is unchanged.
        """
        folder = staging_folder(manifest.run, manifest.run_id)
        staged = {file.staged for file in manifest.files if not file.final}
        for left in reversed(range(_TRIES)):
            try:
                missing = sorted(staged.difference(self._storage.files(folder)))
                if missing:
                    raise AppendFailed(
                        f"run {manifest.run} is published, but {len(missing)} of its files were removed before their "
                        f"rows were in the table: {self._storage.url(missing[0])}"
                    )
                with settings_of_writing(self._spark, self._settings(manifest)):
                    started = datetime.fromisoformat(manifest.began_at)
                    self._write(manifest, self._staged_rows(self._storage.url(f"{folder}/{DATA_FOLDER}"), started))
                return
            except Exception as error:
                # Two loads that start at the same moment both finish the run before them.
                if is_done():
                    return
                if isinstance(error, AppendFailed):
                    raise
                if not left or not any(name in str(error) for name in self.conflicts):
                    reason = sentence_of_spark(str(error))
                    raise AppendFailed(f"run {manifest.run} is published, but its rows cannot be appended to the "
                                       f"{self.kind} table in {self._storage.folder}: {reason}; the next load tries "
                                       "again first") from error  # fmt: skip

    def _staged_rows(self, url: str, started: datetime) -> Any:
        """The rows of a run as the table has them: days are dates there, and hours numbers."""
        from pyspark.sql import functions as f

        kinds = {"date": "string", "hour": "string"}
        schema = ", ".join(f"{name} {kinds.get(name, kind)}" for name, kind in table_columns(self._shape))
        rows = self._spark.read.format("parquet").schema(schema).load(url)
        moment = f.coalesce(f.col("timestamp"), f.lit(started.isoformat()).cast("timestamp"))
        known = {"date": ("date", f.to_date(moment)), "hour": ("int", f.hour(moment))}

        def part(name: str) -> Any:
            """The value of the directory, which may come from the time in a message's value."""
            kind, computed = known[name]
            return f.coalesce(f.col(name).try_cast(kind), computed).alias(name)  # a year may have more than four digits

        return rows.select(*[part(name) if name in known else name for name, _ in table_columns(self._shape)])


def table_columns(shape: Shape) -> list[tuple[str, str]]:
    """Names and types; the columns by which the table is partitioned come last."""
    content = "string" if shape.text else "binary"
    kinds = {"topic": "string", "date": "date", "hour": "int"}
    return [
        ("key", content), ("value", content), ("partition", "int"), ("offset", "bigint"), ("timestamp", "timestamp"),
        ("timestampType", "int"), *([HEADERS_COLUMN] if shape.has_headers else []),
        *((name, kinds[name]) for name in partition_columns(shape)),
    ]  # fmt: skip


def partition_columns(shape: Shape) -> list[str]:
    return ["topic", *{"none": (), "date": ("date",), "hour": ("date", "hour")}[shape.partition_by]]
