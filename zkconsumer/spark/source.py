"""The data source `format("zkconsumer")` that Spark loads.

These classes are pickled for other processes, so they contain options and nothing else. Modules that need pyarrow are
imported where they are used, so that a worker without pyarrow can still report that.

Source: pyspark.sql.datasource (4.3).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from zkconsumer.spark.batch_reader import choose_reader
from zkconsumer.spark.options import batch_options, check_names, check_secrets, is_of_07, stream_options
from zkconsumer.spark.requirements import check_packages
from zkconsumer.spark.schema import chosen_columns, schema_text
from zkconsumer.spark.settings_files import with_settings_files

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["ZkConsumerSource"]


class ZkConsumerSource(DataSource):
    """Topics of a cluster as a table, or as a stream; docs/SPARK_READING.md describes the options.

    `spark.read.format("zkconsumer")` finds it by itself if the package is installed; otherwise
    `spark.dataSource.register(ZkConsumerSource)` registers it.

    Raises:
        OptionRefused: An option is unknown, or holds a secret.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options)
        check_secrets(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "zkconsumer"

    def schema(self) -> str:
        """Return all columns."""
        check_packages()
        return schema_text(self._with_errors(), self._with_places())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        check_packages()
        return choose_reader(batch_options(with_settings_files(self.options)), self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads a stream."""
        check_packages()
        from zkconsumer.spark.stream_reader import ZkStreamReader

        return ZkStreamReader(stream_options(with_settings_files(self.options)), self._columns(schema))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        fields = [(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
        return chosen_columns(fields, self._with_errors(), self._with_places())

    def _with_places(self) -> bool:
        given = {name.lower(): value for name, value in with_settings_files(self.options).items()}
        return is_of_07(given)

    def _with_errors(self) -> bool:
        return str(self.options.get("onMessageError", "")).strip().lower() == "row"
