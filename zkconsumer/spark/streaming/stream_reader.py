"""The reader of `spark.readStream.format("zkconsumer")`: it plans with `StreamDriver`, and reads with `read_range`.

Spark creates this object several times: once for all calls of a run except `read`, in a process that lives as long as
the query, and once more to pickle it for the tasks. So nothing is opened before the first call.

Source: pyspark.sql.datasource.DataSourceStreamReader (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from simpleconsumer.types import MAX_INT64
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.spark.streaming.stream_offsets import parse_stream_offsets

try:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError as error:
    raise RequirementMissing(
        f"a stream needs pyspark 4.2 or newer, not {pyspark.__version__}, which cannot limit its batches; batch "
        "queries work with it"
    ) from error

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_LOGGER: Final = "zkconsumer"
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class ZkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._opened: StreamDriver | None = None

    @property
    def _driver(self) -> StreamDriver:
        if self._opened is None:
            _log_from(self._options.log_level)
            self._opened = StreamDriver(self._options)
        return self._opened

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return `maxOffsetsPerTrigger`, or no limit."""
        self._driver.open()  # report what is wrong with the group or the cluster before anything else
        return ReadMaxRows(self._options.max_offsets_per_trigger or MAX_INT64)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the present ends of the logs: the run reads up to there."""
        self._driver.fix_target()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint starts."""
        return self._driver.initial_offsets().to_json()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the batch that starts at `start` ends."""
        is_limited = isinstance(limit, ReadMaxRows)  # False for `Trigger.Once`
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._driver.next_offsets(parse_stream_offsets(start), most, may_wait=is_limited).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the logs end now."""
        return self._driver.newest_offsets().to_json() or None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return what each task of a batch reads."""
        ranges = self._driver.plan(parse_stream_offsets(start), parse_stream_offsets(end))
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if partition.value is None:  # Spark passes such a partition if there is nothing to read
            return
        from zkconsumer.spark.reading.record_batches import read_range

        yield from read_range(partition.value, self._columns, self._options)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Store the offsets of a finished batch for the group; never raises, because an error would end the query."""
        try:
            self._driver.open()
            self._driver.store(parse_stream_offsets(end))
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("offsets are not stored for the group: %s", error)

    def stop(self) -> None:
        """Disconnect. Spark calls this rarely."""
        if self._opened is not None:
            self._opened.close()


def _log_from(level: str) -> None:
    """Log from this level on, to stderr unless logging is configured; for `warning` Python's defaults are enough.

    Spark runs the driver's side of a Python source in a process of its own, where the program cannot configure logging.
    """
    logger = logging.getLogger(_LOGGER)
    if level == "warning":
        return
    logger.setLevel(level.upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
