"""Makes `format("zkconsumer")` known to Spark, which imports every module named `pyspark_*` and looks for this name.

Rule: importing it costs nothing and never fails, as a failure here would hide the sources of other packages, too.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from zkconsumer.spark.source import ZkConsumerSource
        except Exception as error:
            raise AttributeError(f"zkconsumer cannot be imported: {error}") from error
        return ZkConsumerSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
