"""The data source `format("zkconsumer")` that Spark loads.

These classes are pickled for other processes, so they contain options and nothing else. Modules that need pyarrow are
imported where they are used, so that a worker without pyarrow can still report that.

Source: pyspark.sql.datasource (4.3).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from zkconsumer.errors import ConfigError
from zkconsumer.spark.archive import reduced
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.options import batch_options, check_names, check_secrets, is_of_07, stream_options
from zkconsumer.spark.reading.batch_planning import choose_reader
from zkconsumer.spark.requirements import check_packages
from zkconsumer.spark.schema import chosen_columns, schema_text
from zkconsumer.spark.settings_files import settings_of_files, with_settings_files
from zkconsumer.spark.writing.sink_options import (
    SinkColumns,
    SinkOptions,
    find_sink_option,
    sink_columns,
    sink_options,
    sink_setting_options,
    sink_settings,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class ZkConsumerSource(DataSource):
    """Topics of a cluster as a table or a stream to read or write.

    docs/SPARK_READING.md and docs/SPARK_WRITING.md describe the options.

    `spark.read.format("zkconsumer")` finds it by itself if the package is installed; otherwise
    `spark.dataSource.register(ZkConsumerSource)` registers it.

    Raises:
        OptionRefused: An option is unknown, or holds a secret.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_secrets(options)
        if _reads(options):
            check_names({name: value for name, value in options.items() if find_sink_option(name) is None})

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "zkconsumer"

    def __reduce__(self) -> tuple[Any, ...]:
        """Have the process that unpickles this find the package, also if it is in an archive."""
        return reduced(type(self), self.__dict__)

    def schema(self) -> str:
        """Return all columns of the source; Spark does not ask for those of a sink."""
        check_names(self.options)
        check_packages()
        return schema_text(self._with_errors(), self._with_places(), self._with_headers())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        check_packages()
        return choose_reader(batch_options(with_settings_files(self.options)), self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream; its first call raises errors of the options.

        No error is raised here: in the process that Spark starts for a stream, another error would hide it.
        """
        try:
            check_packages()
            from zkconsumer.spark.streaming.stream_reader import ZkStreamReader

            return ZkStreamReader(stream_options(with_settings_files(self.options)), self._columns(schema))
        except Exception as error:  # noqa: BLE001 - see above
            return _RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a table to topics."""
        if overwrite:
            raise OptionRefused(
                "mode", "overwrite would delete the messages of a topic, which a sink does not do",
                'rows are appended: write with mode("append")',
            )  # fmt: skip
        check_packages()
        from zkconsumer.spark.writing.sink_writers import ZkBatchWriter

        return ZkBatchWriter(*self._sink(schema, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of the batches of a stream to topics.

        With the output mode `complete` each batch has all rows of the result, and all of them are written once more, as
        Spark's own sink does.
        """
        check_packages()
        from zkconsumer.spark.writing.sink_writers import ZkStreamWriter

        return ZkStreamWriter(*self._sink(schema, is_stream=True))

    def _sink(self, schema: StructType, is_stream: bool) -> tuple[SinkOptions, SinkColumns]:
        given = sink_settings(self.options, is_stream)
        options = sink_options(given, settings_of_files(given, sink_setting_options))
        _check_partitioner(options.config.partitioner_class)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return options, sink_columns(fields, options.topic, options.is_07)

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        fields = [(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
        return chosen_columns(fields, self._with_errors(), self._with_places(), self._with_headers())

    def _with_places(self) -> bool:
        given = {name.lower(): value for name, value in with_settings_files(self.options).items()}
        return is_of_07(given)

    def _with_headers(self) -> bool:
        return str(self.options.get("includeHeaders", "")).strip().lower() == "true"

    def _with_errors(self) -> bool:
        return str(self.options.get("onMessageError", "")).strip().lower() == "row"


class _RefusedStream(DataSourceStreamReader):
    """Raises an error in each call, whichever Spark makes first.

    Source: `main` of pyspark.sql.streaming.python_streaming_source_runner (4.2, 4.3), which stops in its `finally` a
    reader that may not be there.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *arguments: Any) -> Any:
        raise self._error

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:  # noqa: N802 - Spark looks at its arguments
        """Raise the error."""
        raise self._error

    initialOffset = getDefaultReadLimit = reportLatestOffset = _refuse  # noqa: N815 - Spark's names
    partitions: Any = _refuse
    read: Any = _refuse
    commit: Any = _refuse

    def stop(self) -> None:
        """Do nothing: Spark calls this after the error."""


def _check_partitioner(named: str) -> None:
    """Refuse a partitioner that is none before any task would find that out.

    Raises:
        OptionRefused: There is no such function, or the driver cannot import it.
    """
    from zkconsumer.producer.placing import as_partitioner  # what only reads needs none of it

    try:
        as_partitioner(named)
    except Exception as error:  # noqa: BLE001 - importing a module of the user may raise anything
        reason = str(error).partition(" ")[2] if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise OptionRefused("partitioner.class", reason or str(error)) from None


def _reads(options: MutableMapping[str, str]) -> bool:
    """Return whether the options choose topics to read; otherwise they may be those of a sink."""
    return any(name.lower() in ("subscribe", "subscribepattern", "blacklist", "assign") for name in options)
