"""The jar that a Spark session needs for Iceberg tables, and a check that it is there.

The jar comes from the user's settings or from Spark's own folder of jars. Otherwise Spark fetches it from Maven
Central.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zkconsumer.spark.errors import RequirementMissing

__all__ = ["check_session", "iceberg_packages"]

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
                                 remedy="pip install 'pyspark==4.1.*' brings such a Spark, `--conf spark.jars=FILE` "
                                        "takes a jar of yours")  # fmt: skip
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
                                 "spark.jars.packages; `zkconsumer load` makes such a session")  # fmt: skip


def _is_shipped_with_spark() -> bool:
    """Whether the jar is in Spark's own folder, as in images of clusters."""
    from pyspark.find_spark_home import _find_spark_home

    return any(Path(_find_spark_home(), "jars").glob(f"{_RUNTIME}-*.jar"))
