"""The Delta table of a load: one for all topics, with the folder of the load as its place.

A run appends its rows in one transaction, which names the history of the folder and the number of the run: a second
append of the same run is none, whoever tries. Spark and Delta's options for writers are all that is used of Delta.

Source: docs/SPARK.md, "A Delta table"; Delta's documentation, "Idempotent writes" (`txnAppId`, `txnVersion`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from zkconsumer.spark.load.errors import AppendFailed, LoadRefused
from zkconsumer.spark.load.failures import sentence_of_spark
from zkconsumer.spark.load.history import staging_folder
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import DATA_FOLDER, Shape, settings_of_writing

__all__ = ["DeltaTable"]

_LOG: Final = "_delta_log"
_TRIES: Final = 5
_CONFLICTS: Final = ("io.delta.exceptions", "DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")


class DeltaTable:
    """The table at the root of a folder.

    Args:
        spark: a session that knows Delta, see `delta_session.check_session`.
    """

    def __init__(self, spark: Any, storage: Storage, shape: Shape) -> None:
        self._spark = spark
        self._storage = storage
        self._shape = shape

    def is_there(self) -> bool:
        """Whether the folder has a Delta table."""
        # Of a creation that broke off there may be the directory, and drafts with a leading dot.
        return any(name.endswith(".json") and not name.startswith(".") for name in self._storage.names(_LOG))

    def has_rows(self) -> bool:
        """Whether files with rows belong to the table.

        Raises:
            LoadRefused: it cannot be read.
        """
        if not self.is_there():
            return False
        place = self._storage.folder.replace("\\", "\\\\").replace("'", "\\'")
        try:
            detail = self._spark.sql(f"DESCRIBE DETAIL '{place}'").select("numFiles").collect()[0]
        except Exception as error:
            raise self._unreadable(error) from error
        return bool(detail["numFiles"])

    def refuse_unfit(self, last: Manifest | None, had_rows: bool) -> None:
        """Return if runs can append to what there is.

        Args:
            last: the last published run of the folder.
            had_rows: what `has_rows` said before `last` was read.

        Raises:
            LoadRefused: the table was removed, holds rows of others, or lacks a column.
        """
        folder = self._storage.folder
        if not self.is_there():
            if last is not None:
                raise LoadRefused(f"{folder} had a Delta table, and has none any more, though {last.run} runs were "
                                  "published there: put it back, or load everything anew into another folder")
            return
        if last is None and had_rows:
            raise LoadRefused(f"{folder} has a Delta table with rows that no load has brought, or whose _zkconsumer "
                              "was removed: take another folder, or an empty table")
        has = self._columns()
        written = dict(_columns(self._shape))
        unwritten = [name for name in ("date", "hour") if name in has and name not in written]
        if unwritten:
            raise LoadRefused(f"the Delta table in {folder} has a column {unwritten[0]!r}, which a load by "
                              f"{self._shape.partition_by} does not write: take --partition-by {unwritten[-1]}")
        for name, kind in written.items():
            if name not in has:
                raise LoadRefused(f"the Delta table in {folder} has no column {name!r}, which a load by "
                                  f"{self._shape.partition_by} writes; it has {', '.join(has)}")
            if has[name] != kind:
                raise LoadRefused(f"column {name!r} of the Delta table in {folder} is {has[name]}, and {kind} is what "
                                  "would be written")

    def _columns(self) -> dict[str, str]:
        try:
            schema = self._spark.read.format("delta").load(self._storage.folder).schema
        except Exception as error:
            raise self._unreadable(error) from error
        return {field.name: field.dataType.simpleString() for field in schema.fields}

    def _unreadable(self, error: Exception) -> LoadRefused:
        return LoadRefused(f"the Delta table in {self._storage.folder} cannot be read by Spark "
                           f"{self._spark.version}: {sentence_of_spark(str(error))}")  # fmt: skip

    def create(self) -> None:
        """Make the table, empty; nothing if it is there.

        So readers have a table from the first run on, and a session whose Delta cannot write is found out before
        anything is read.

        Raises:
            LoadRefused: it cannot be made.
        """
        if self.is_there():
            return
        from pyspark.sql import functions as f

        columns = [f.lit(None).cast(kind).alias(name) for name, kind in _columns(self._shape)]
        writer = self._spark.range(0).select(*columns).write.format("delta").mode("append")
        try:
            writer.partitionBy(*_partition_columns(self._shape)).save(self._storage.folder)
        except Exception as error:
            if self.is_there():  # another load was faster; of the two one publishes
                return
            reason = sentence_of_spark(str(error))
            raise LoadRefused(f"the Delta table in {self._storage.folder} cannot be made: {reason}; the jar of Delta "
                              f"has to be the one for Spark {self._spark.version}") from error

    def append(self, manifest: Manifest, is_done: Callable[[], bool]) -> None:
        """Append the rows of a published run, unless that was done before.

        Args:
            is_done: whether another load has said meanwhile that it is done.

        Raises:
            AppendFailed: it cannot be done; the table is as it was.
        """
        folder = staging_folder(manifest.run, manifest.run_id)
        staged = {file.staged for file in manifest.files if not file.final}
        for left in reversed(range(_TRIES)):
            try:
                missing = sorted(staged.difference(self._storage.files(folder)))
                if missing:
                    raise AppendFailed(f"run {manifest.run} is published, and {len(missing)} of its files are gone "
                                       f"before their rows were in the table: {self._storage.url(missing[0])}")
                self._write(manifest, self._storage.url(f"{folder}/{DATA_FOLDER}"))
                return
            except Exception as error:
                # Two loads that begin at the same moment both finish the run before them.
                if is_done():
                    return
                if isinstance(error, AppendFailed):
                    raise
                if not left or not any(name in str(error) for name in _CONFLICTS):
                    reason = sentence_of_spark(str(error))
                    raise AppendFailed(f"run {manifest.run} is published, and its rows cannot be appended to the "
                                       f"Delta table in {self._storage.folder}: {reason}; the next load tries again "
                                       "before all else") from error  # fmt: skip

    def _write(self, manifest: Manifest, url: str) -> None:
        options = {
            "txnAppId": f"zkconsumer-{manifest.history_id}",
            "txnVersion": str(manifest.run),
            "userMetadata": f"zkconsumer run {manifest.run}, {manifest.run_id}",
            # A table that was made beforehand may have columns of its own; ours are never added in silence.
            "mergeSchema": "false",
        }
        if self._shape.compression is not None:
            options["compression"] = self._shape.compression
        # A task reads so many bytes of what was written aside, and writes its own files into the table.
        size = self._shape.file_bytes
        read_at_once = {} if size is None else {"spark.sql.files.maxPartitionBytes": str(size)}
        with settings_of_writing(self._spark, read_at_once):
            rows = self._staged_rows(url, datetime.fromisoformat(manifest.began_at))
            rows.write.format("delta").mode("append").options(**options).save(self._storage.folder)

    def _staged_rows(self, url: str, began: datetime) -> Any:
        """The rows of a run as the table has them: days are dates there, and hours numbers."""
        from pyspark.sql import functions as f

        kinds = {"date": "string", "hour": "string"}
        schema = ", ".join(f"{name} {kinds.get(name, kind)}" for name, kind in _columns(self._shape))
        rows = self._spark.read.format("parquet").schema(schema).load(url)
        moment = f.coalesce(f.col("timestamp"), f.lit(began.isoformat()).cast("timestamp"))
        parts = {"date": f.to_date(moment), "hour": f.hour(moment)}
        return rows.select(*[parts[name].alias(name) if name in parts else name for name, _ in _columns(self._shape)])


def _columns(shape: Shape) -> list[tuple[str, str]]:
    """Names and types, those that the table is partitioned by at the end."""
    content = "string" if shape.text else "binary"
    kinds = {"topic": "string", "date": "date", "hour": "int"}
    return [
        ("key", content), ("value", content), ("partition", "int"), ("offset", "bigint"), ("timestamp", "timestamp"),
        ("timestampType", "int"), *((name, kinds[name]) for name in _partition_columns(shape)),
    ]  # fmt: skip


def _partition_columns(shape: Shape) -> list[str]:
    return ["topic", *{"none": (), "date": ("date",), "hour": ("date", "hour")}[shape.partition_by]]
