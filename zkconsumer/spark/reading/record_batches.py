"""Reads the range of a task as Arrow record batches with the columns of the query.

It runs in Spark's Python workers. Memory is limited to three fetches: one that is decoded, one that waits, and one on
its way. Errors name topic, partition, offset and broker, because Spark passes on nothing but their text.

Threads: one reads; another one fetches one step ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import DamagedOffset, DecodeError, MessageError
from simpleconsumer.types import MAX_INT64, Broker
from zkconsumer.spark.errors import PartitionUnreadable
from zkconsumer.spark.options.offsets_json import broker_of, column_value
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.bounds import PlannedRange
from zkconsumer.spark.reading.connections import Prefetcher, search_leader
from zkconsumer.spark.reading.range_fetcher import Fetched, FetchedSet, LostOffsets, RangeFetcher, UnfetchableMessage

log = logging.getLogger(__name__)

ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    "broker": pa.int32(),
    "entry_index": pa.int32(),
    "next_offset": pa.int64(),
    "error": pa.string(),
}
"""The types that Spark's own `to_arrow_schema` gives the columns."""
_DECODED: Final = {
    "key": "key", "value": "value", "offset": "offset", "timestamp": "timestamp_ms", "timestampType": "timestamp_type",
    "headers": "headers", "entry_index": "entry_index", "next_offset": "next_offset",
}  # fmt: skip
_MICROSECONDS: Final = pa.scalar(1000, pa.int64())
_LARGEST_MS: Final = MAX_INT64 // 1000


def read_range(wanted: PlannedRange, columns: tuple[str, ...], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in order.

    Raises:
        DataLoss: See `RangeFetcher`.
        PartitionUnreadable: See `RangeFetcher`; also for a message that cannot be delivered, with
            `onMessageError=raise`.
    """
    fetcher = RangeFetcher(
        wanted, options.config, search_leader(options.config),
        patience_s=options.patience_ms / 1000, max_bytes=options.max_message_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
    )  # fmt: skip
    rows = Rows(wanted, columns, options)
    prefetcher: Prefetcher[Fetched] = Prefetcher(
        fetcher.fetch(), fetcher.interrupt, f"fetch-{wanted.topic}-{wanted.partition}"
    )
    try:
        for fetched in prefetcher:
            yield from rows.batches_of(fetched)
            del fetched
    finally:
        prefetcher.close()
        rows.log_totals()


@dataclass
class _Counts:
    skipped: int = 0
    lost: int = 0


class Rows:
    """Turns what is fetched of one range into record batches."""

    def __init__(self, wanted: PlannedRange, columns: tuple[str, ...], options: SourceOptions) -> None:
        self._wanted = wanted
        self._columns = columns
        self._options = options
        self._schema = pa.schema([(name, ARROW_TYPES[name]) for name in columns])
        # At least one column, for the number of rows.
        self._decoded = tuple(_DECODED[name] for name in columns if name in _DECODED) or ("offset",)
        # An error in a wrapper across the end is reported by the next range, because its row must not be there twice.
        # It may be raised twice.
        self._reports_at_end = wanted.is_last or options.on_message_error == "raise"
        self._constant_values = {
            "topic": wanted.topic, "partition": column_value(wanted.partition), "broker": broker_of(wanted.partition),
            "error": None,
        }  # fmt: skip
        self._constants: dict[str, Any] = {}
        self._counts = _Counts()

    def batches_of(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one fetched item."""
        if isinstance(fetched, LostOffsets):
            self._counts.lost += fetched.loss.behind - fetched.loss.first
            log.warning("%s", fetched.loss)
        elif isinstance(fetched, UnfetchableMessage):
            if fetched.error.offset < self._wanted.end or self._reports_at_end:
                yield from self._bad_message(fetched.error, fetched.broker)
        else:
            yield from self._decode(fetched)

    def log_totals(self) -> None:
        """Log how much was omitted."""
        if self._counts.lost or self._counts.skipped:
            log.warning(
                "%s/%s, offsets %d to %d: %d offsets that are not in the log were omitted, %d messages that cannot "
                "be read were skipped", self._wanted.topic, self._wanted.partition, self._wanted.start,
                self._wanted.end - 1, self._counts.lost, self._counts.skipped,
            )  # fmt: skip

    def _decode(self, fetched: FetchedSet) -> Iterator[pa.RecordBatch]:
        dialect, resume = dialect_of(fetched.broker), None
        end = min(self._wanted.end, fetched.end)
        while True:
            try:
                for batch in dialect.decode_columns(
                    fetched.message_set, self._wanted.topic, self._wanted.partition, fetched.start,
                    end_offset=end, columns=self._decoded, high_watermark=fetched.high_watermark,
                    max_decoded_bytes=self._options.config.decoded_max_bytes, aborted=fetched.aborted, resume=resume,
                ):  # fmt: skip
                    yield self._spark_batch(batch)
            except MessageError as error:
                if error.offset >= end and not self._begins_before_end(error, fetched):
                    return
                resume = error.resume
                bad = error
            except DecodeError as error:
                offset = fetched.start
                reason = f"{type(error).__name__}: {error}"
                raise PartitionUnreadable(
                    self._wanted.topic, self._wanted.partition, offset, fetched.broker, reason
                ) from error
            else:
                return
            yield from self._bad_message(bad, fetched.broker)

    def _begins_before_end(self, error: MessageError, fetched: FetchedSet) -> bool:
        """Return True for an error after the end, in a wrapper that starts before it, if this range reports it."""
        if not self._reports_at_end or isinstance(error, DamagedOffset):  # which names the start of its entry
            return False
        first = dialect_of(fetched.broker).first_offset_in(fetched.message_set, error.offset, fetched.start)
        return first < min(self._wanted.end, fetched.end)

    def _spark_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the columns of the query."""
        arrays = [self._column(name, batch) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, batch: pa.RecordBatch) -> Any:
        if name == "timestamp":
            return _timestamps(batch.column("timestamp_ms"))
        if name == "headers":  # Spark names the elements of a list
            return batch.column(name).cast(ARROW_TYPES[name])
        if name in _DECODED:
            return batch.column(_DECODED[name])
        return self._constant(name, batch.num_rows)

    def _constant(self, name: str, count: int) -> Any:
        """Return a column with one value, a slice of a longer one that is made once."""
        found = self._constants.get(name)
        if found is None or len(found) < count:
            value = pa.scalar(self._constant_values[name], ARROW_TYPES[name])
            found = self._constants[name] = pa.repeat(value, max(count, 1024))
        return found.slice(0, count)

    def _bad_message(self, error: MessageError, broker: Broker) -> Iterator[pa.RecordBatch]:
        """Raise, skip or yield a row for one message that cannot be read, as `onMessageError` says."""
        unreadable = PartitionUnreadable(
            self._wanted.topic, self._wanted.partition, error.offset, broker, f"{type(error).__name__}: {error.reason}"
        )
        match self._options.on_message_error:
            case "raise":
                raise unreadable from error
            case "skip":
                self._counts.skipped += 1
                log.warning("skipped: %s", unreadable)
            case _:
                # An entry that lies across the end of the table is reported by the next query, too: each reports it
                # within its own offsets.
                end = self._wanted.end if self._wanted.table_end is None else self._wanted.table_end
                yield self._error_row(error, min(error.offset, end - 1), str(unreadable))

    def _error_row(self, error: MessageError, offset: int, text: str) -> pa.RecordBatch:
        values: dict[str, object] = {
            **self._constant_values, "offset": offset, "timestampType": -1, "error": text,
            "entry_index": error.index, "next_offset": error.next_offset,
        }  # fmt: skip
        arrays = [pa.array([values.get(name)], ARROW_TYPES[name]) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _timestamps(milliseconds: Any) -> Any:
    """Return milliseconds as Spark's timestamps, in microseconds; null where the message has none.

    A time that does not fit is null, too, because it must not make the partition unreadable.
    """
    if milliseconds.null_count == len(milliseconds):
        return pa.nulls(len(milliseconds), ARROW_TYPES["timestamp"])
    import pyarrow.compute as pc

    within = pc.and_(pc.less_equal(milliseconds, _LARGEST_MS), pc.greater_equal(milliseconds, -_LARGEST_MS))
    kept = milliseconds if pc.all(within).as_py() is not False else pc.if_else(within, milliseconds, None)
    return pc.multiply(kept, _MICROSECONDS).cast(pa.timestamp("us")).cast(ARROW_TYPES["timestamp"])
