"""Writes the rows of a load into a Delta table.

It uses Spark and Delta's options for writers, and no other interface of Delta.

Source: docs/SPARK_LOADING.md, "A Delta table"; Delta's documentation, "Idempotent writes" (`txnAppId`, `txnVersion`).
"""

from __future__ import annotations

from typing import Any, Final

from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.table import LakeTable, partition_columns

__all__ = ["DeltaTable"]

_LOG: Final = "_delta_log"


class DeltaTable(LakeTable):
    """The table at the root of a folder; its session has passed `delta_session.check_session`."""

    kind = "Delta"
    named = "a Delta table"
    conflicts = ("io.delta.exceptions", "DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")

    def is_there(self) -> bool:
        """Whether the folder has a Delta table."""
        # A creation that was interrupted may have left the directory, and drafts with a leading dot.
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

    def _create(self, empty: Any) -> None:
        writer = empty.write.format("delta").mode("append")
        writer.partitionBy(*partition_columns(self._shape)).save(self._storage.folder)

    def _write(self, manifest: Manifest, rows: Any) -> None:
        options = {
            "txnAppId": f"zkconsumer-{manifest.history_id}",
            "txnVersion": str(manifest.run),
            "userMetadata": f"zkconsumer run {manifest.run}, {manifest.run_id}",
            # A table that was created beforehand may have other columns; ours are never added to it silently.
            "mergeSchema": "false",
        }
        if self._shape.compression is not None:
            options["compression"] = self._shape.compression
        rows.write.format("delta").mode("append").options(**options).save(self._storage.folder)
