"""The jar that a Spark session needs for Iceberg tables, and a check that it is there.

The jar comes from the user's settings or from Spark's own folder of jars. Otherwise Spark fetches it from Maven
Central.

Writes the rows of a load into an Iceberg table.

A run is written into a staged snapshot, which readers do not see, and that snapshot is published. Iceberg refuses to
publish a second one with the same mark, in the commit itself. The table is found by its path, without a catalog.

Source: docs/SPARK_LOADING.md, "An Iceberg table"; Iceberg's documentation, "Write-Audit-Publish" (`write.wap.enabled`,
`spark.wap.id`, `cherrypick_snapshot`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.load.failures import LoadRefused, sentence_of_spark
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.table import LakeTable, partition_columns

_PACKAGES: Final = "spark.jars.packages"
_JARS: Final = "spark.jars"
_RUNTIME: Final = "iceberg-spark-runtime"
_RELEASE: Final = "1.11.0"
_MADE_FOR: Final = ("4.0", "4.1")


def iceberg_packages(given: Mapping[str, str], pyspark: str) -> str | None:
    """The value of `spark.jars.packages` that adds the jar of Iceberg, `None` if the jar is there already.

    Args:
        given: settings of Spark.
        pyspark: its version.

    Raises:
        RequirementMissing: No jar is known for this pyspark.
    """
    packages = given.get(_PACKAGES, "")
    if _RUNTIME in packages or _RUNTIME in given.get(_JARS, "") or _is_shipped_with_spark():
        return None
    version = ".".join(re.findall(r"[0-9]+", pyspark)[:2])
    if version not in _MADE_FOR:
        raise RequirementMissing(f"a load into an Iceberg table needs a jar of Iceberg made for Spark {version}, and "
                                 f"Iceberg {_RELEASE} has them for {' and '.join(_MADE_FOR)}",
                                 remedy="pip install 'pyspark==4.1.*' installs such a Spark; `--conf spark.jars=FILE` "
                                        "uses your own jar")  # fmt: skip
    return ",".join(filter(None, [packages, f"org.apache.iceberg:{_RUNTIME}-{version}_2.13:{_RELEASE}"]))


def check_session(spark: Any) -> None:
    """Return if a session can write Iceberg tables.

    Raises:
        RequirementMissing: Its jar is missing.
    """
    from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]

    if isinstance(spark._sc._jvm.org.apache.iceberg.spark.SparkSchemaUtil, JavaPackage):
        raise RequirementMissing("a load into an Iceberg table needs a session with the jar of Iceberg, and this one "
                                 f"has none: start it with {_RUNTIME} for its Spark in spark.jars or "
                                 "spark.jars.packages; `zkconsumer load` creates such a session")  # fmt: skip


def _is_shipped_with_spark() -> bool:
    """Whether the jar is in Spark's own folder, as in images of clusters."""
    from pyspark.find_spark_home import _find_spark_home

    return any(Path(_find_spark_home(), "jars").glob(f"{_RUNTIME}-*.jar"))


_STAGES: Final = "write.wap.enabled"
_STAGED_AS: Final = "wap.id"
_PUBLISHED_AS: Final = "published-wap-id"
_AS: Final = "spark.wap.id"
_PUBLISHED_BEFORE: Final = "DuplicateWAPCommitException"


class IcebergTable(LakeTable):
    """The table at the root of a folder; its session has passed `iceberg_session.check_session`."""

    kind = "Iceberg"
    named = "an Iceberg table"
    conflicts = ("CommitFailedException", "CommitStateUnknownException")

    def is_there(self) -> bool:
        """Whether the folder has an Iceberg table."""
        return bool(self._tables().exists(self._storage.folder))

    def has_rows(self) -> bool:
        """Whether files with rows belong to the table.

        Raises:
            LoadRefused: it cannot be read.
        """
        if not self.is_there():
            return False
        try:
            snapshot = self._load().currentSnapshot()
        except Exception as error:
            raise self._unreadable(error) from error
        return snapshot is not None and snapshot.summary().get("total-records") != "0"

    def create(self) -> None:
        """Create the table, empty; or enable staged snapshots in a table that was created beforehand.

        Raises:
            LoadRefused: it cannot be created.
        """
        super().create()
        try:
            table = self._load()
            if table.properties().get(_STAGES) != "true":
                table.updateProperties().set(_STAGES, "true").commit()
        except Exception as error:
            raise LoadRefused(f"the Iceberg table in {self._storage.folder} cannot be changed: "
                              f"{sentence_of_spark(str(error))}") from error  # fmt: skip

    def _create(self, empty: Any) -> None:
        jvm = self._spark._jvm
        schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(empty._jdf.schema())
        spec = jvm.org.apache.iceberg.PartitionSpec.builderFor(schema)
        for name in partition_columns(self._shape):
            spec = spec.identity(name)
        properties = jvm.java.util.HashMap()
        properties.put(_STAGES, "true")
        # Each run writes two files of metadata: a hundred of them are kept.
        properties.put("write.metadata.delete-after-commit.enabled", "true")
        self._tables().create(schema, spec.build(), properties, self._storage.folder)

    def _settings(self, manifest: Manifest) -> Mapping[str, str]:
        return {**super()._settings(manifest), _AS: _mark(manifest)}

    def _write(self, manifest: Manifest, rows: Any) -> None:
        mark = _mark(manifest)
        summaries = self._summaries()
        if any(summary.get(_PUBLISHED_AS) == mark for summary in summaries.values()):
            return
        staged = _staged(summaries, mark)
        if not staged:  # a load that was killed may have written it already
            options = {"snapshot-property.zkconsumer": f"run {manifest.run}, {manifest.run_id}"}
            if self._shape.compression is not None:
                options["compression-codec"] = self._shape.compression
            if self._shape.file_bytes is not None:
                options["target-file-size-bytes"] = str(self._shape.file_bytes)
            rows.write.format("iceberg").mode("append").options(**options).save(self._storage.folder)
            staged = _staged(self._summaries(), mark)
        try:
            self._load().manageSnapshots().cherrypick(staged[0]).commit()
        except Exception as error:
            if _PUBLISHED_BEFORE not in str(error):
                raise

    def _summaries(self) -> dict[int, Any]:
        """The summary of each snapshot."""
        return {snapshot.snapshotId(): snapshot.summary() for snapshot in self._load().snapshots()}

    def _tables(self) -> Any:
        context = self._spark._sc
        return context._jvm.org.apache.iceberg.hadoop.HadoopTables(context._jsc.hadoopConfiguration())

    def _load(self) -> Any:
        return self._tables().load(self._storage.folder)


def _mark(manifest: Manifest) -> str:
    return f"zkconsumer-{manifest.history_id}-{manifest.run}"


def _staged(summaries: Mapping[int, Any], mark: str) -> list[int]:
    return [number for number, summary in summaries.items() if summary.get(_STAGED_AS) == mark]
