"""The settings and the jar that a Spark session needs for Delta tables, and checks that they fit.

The jar comes from the user's settings or from Spark's own folder of jars. Otherwise the package delta-spark names the
jar for this version of Spark, and Spark fetches it from Maven Central.

Writes the rows of a load into a Delta table.

It uses Spark and Delta's options for writers, and no other interface of Delta.

Source: docs/SPARK_LOADING.md, "A Delta table"; Delta's documentation, "Idempotent writes" (`txnAppId`, `txnVersion`).
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.table import LakeTable, partition_columns

_EXTENSIONS: Final = "spark.sql.extensions"
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_PACKAGES: Final = "spark.jars.packages"
_JARS: Final = "spark.jars"
_INSTALL: Final = "pip install 'zkconsumer[delta]' installs both"


def delta_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The given settings of Spark with the ones that Delta needs, without the jar."""
    settings = {_CATALOG: _DELTA_CATALOG, **given}
    extensions = [name.strip() for name in given.get(_EXTENSIONS, "").split(",") if name.strip()]
    settings[_EXTENSIONS] = ",".join(dict.fromkeys([*extensions, _EXTENSION]))
    return settings


def delta_packages(given: Mapping[str, str]) -> str | None:
    """The value of `spark.jars.packages` that adds the jar of Delta, `None` if the jar is there already.

    Raises:
        RequirementMissing: delta-spark is not installed, or does not fit this pyspark.
    """
    packages = given.get(_PACKAGES, "")
    if "io.delta:" in packages or "delta-spark" in given.get(_JARS, "") or _is_shipped_with_spark():
        return None
    import pyspark

    version = _installed()
    if version is None:
        raise RequirementMissing(
            "loading into a Delta table needs delta-spark, and a pyspark for which it is made",
            remedy=f"{_INSTALL}; `--conf spark.jars=FILES` uses your own jar",
        )
    refuse_unfit_versions(version, importlib.metadata.requires("delta_spark") or [], pyspark.__version__)
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    # Each release of delta-spark knows which jar belongs to which Spark.
    theirs = [name.strip() for name in packages.split(",") if name.strip()]
    builder = configure_spark_with_delta_pip(SparkSession.Builder(), theirs)
    return str(builder._options[_PACKAGES])


def refuse_unfit_versions(delta: str, requirements: list[str], pyspark: str) -> None:
    """Return if a delta-spark with these requirements is made for a pyspark.

    Raises:
        RequirementMissing: It is not. A jar for another Spark fails in the middle of a write.
    """
    bounds = " ".join(text for text in requirements if re.match(r"pyspark\b", text))
    having = _two_numbers(pyspark)
    for sign, bound in re.findall(r"(<=|<|>=)\s*([\d.]+)", bounds):
        limit = _two_numbers(bound)
        fits = {"<=": having <= limit, "<": having < limit, ">=": having >= limit}[sign]
        if not fits:
            raise RequirementMissing(f"delta-spark {delta} is for pyspark {sign}{bound}, not for {pyspark}",
                                     remedy=f"{_INSTALL} in versions that fit")  # fmt: skip


def check_session(spark: Any) -> None:
    """Return if a session can write Delta tables.

    Raises:
        RequirementMissing: Its jar or one of its settings is missing.
    """
    from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]

    extensions = spark.conf.get(_EXTENSIONS, "") or ""
    settings = f"{_EXTENSIONS}={_EXTENSION} and {_CATALOG}={_DELTA_CATALOG}"
    way = ("`zkconsumer load` creates such a session; `delta.configure_spark_with_delta_pip` of the package "
           "delta-spark helps to create one")  # fmt: skip
    if isinstance(spark._sc._jvm.io.delta.sql.DeltaSparkSessionExtension, JavaPackage):
        raise RequirementMissing("a load into a Delta table needs a session with the jar of Delta, and this one has "
                                 f"none: start it with that jar, {settings}", remedy=way)  # fmt: skip
    if _EXTENSION not in extensions or not spark.conf.get(_CATALOG, ""):
        raise RequirementMissing(f"a load into a Delta table needs a session that was started with {settings}",
                                 remedy=way)  # fmt: skip


def _installed() -> str | None:
    try:
        return importlib.metadata.version("delta_spark")
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_shipped_with_spark() -> bool:
    """Whether the jar is in Spark's own folder, as in images of clusters."""
    from pyspark.find_spark_home import _find_spark_home

    return any(Path(_find_spark_home(), "jars").glob("delta-spark_*.jar"))


def _two_numbers(version: str) -> tuple[int, ...]:
    """`(4, 2)` for 4.2.0: releases that differ in the third number take the same jar."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


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
