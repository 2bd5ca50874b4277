"""The settings and the jar that a Spark session needs for Delta tables, and checks that they fit.

The jar comes from the user's settings or from Spark's own folder of jars. Otherwise the package delta-spark names the
jar for this version of Spark, and Spark fetches it from Maven Central.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zkconsumer.spark.errors import RequirementMissing

__all__ = ["check_session", "delta_packages", "delta_settings", "refuse_unfit_versions"]

_EXTENSIONS: Final = "spark.sql.extensions"
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_PACKAGES: Final = "spark.jars.packages"
_JARS: Final = "spark.jars"
_INSTALL: Final = "pip install 'zkconsumer[delta]' brings both"


def delta_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The given settings of Spark with those that Delta needs, without the jar."""
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
            "loading into a Delta table needs delta-spark, and a pyspark that it is made for",
            remedy=f"{_INSTALL}, `--conf spark.jars=FILES` takes a jar of yours",
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
    way = ("`zkconsumer load` makes such a session, "
           "`delta.configure_spark_with_delta_pip` of the package delta-spark helps to make one")  # fmt: skip
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
