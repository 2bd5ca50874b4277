"""Arrow record batches of records that were read as arrays, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints
from simpleconsumer.kafka011.column_records import HeaderFields, Records
from simpleconsumer.kafka011.records import OpenBatch, Record
from simpleconsumer.kafka08 import column_batches as kafka08
from simpleconsumer.kafka08.column_batches import HEADERS, KNOWN
from simpleconsumer.kafka08.column_entries import APPEND_TIME, CREATE_TIME, NO_TIME

__all__ = ["Rows", "size_of", "to_batch"]

_RECORD_BYTES: Final = 26
_HEADER_BYTES: Final = 2


def to_batch(schema: Any, stretch: NDArray[np.uint8], records: Records) -> Any:
    """Return a stretch of records as one record batch of Arrow, which does not refer to the stretch.

    Raises:
        pyarrow.ArrowInvalid: A key of a header is no UTF-8.
    """
    batch = kafka08.to_batch(schema, stretch, np.append(0, records.ends), records.entries)
    if records.headers is None or HEADERS not in schema.names:
        return batch
    headers = _header_array(stretch, records.headers)
    columns = [headers if name == HEADERS else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _header_array(stretch: NDArray[np.uint8], fields: HeaderFields) -> Any:
    """Return the headers of records as lists; null for those without."""
    keys = _slices(stretch, fields.key_start, fields.key_length).cast(pa.string())
    values = _slices(stretch, fields.value_start, fields.value_length)
    kind = KNOWN[HEADERS].value_type
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(fields.counts)]).astype(np.int32)
    offsets = pa.array(ends, pa.int32(), mask=np.append(fields.counts == 0, False))
    items = pa.StructArray.from_arrays([keys, values], fields=list(kind))
    return pa.ListArray.from_arrays(offsets, items, type=KNOWN[HEADERS])


def _slices(stretch: NDArray[np.uint8], start: Ints, length: Ints) -> Any:
    """Return parts of a stretch, in ascending order, as an array; null for a length of -1."""
    bounds = np.empty(2 * len(start) + 1, np.int32)
    bounds[0] = 0
    bounds[1::2] = start
    bounds[2::2] = start + np.maximum(length, 0)
    whole = pa.Array.from_buffers(pa.binary(), 2 * len(start), [None, pa.py_buffer(bounds), pa.py_buffer(stretch)])
    return whole.take(pa.array(np.arange(1, 2 * len(start), 2, dtype=np.int64), mask=length < 0))


class Rows(kafka08.Rows):
    """Collects records that were read one by one for a record batch."""

    def add_record(self, batch: OpenBatch, record: Record) -> None:
        """Add a record of a batch."""
        stamp = record.timestamp_ms
        kind = NO_TIME if stamp is None else CREATE_TIME if batch.append_time is None else APPEND_TIME
        self._append((record.key, record.value, record.offset, stamp, kind, _shown(record)), size_of(record))


def _shown(record: Record) -> Sequence[tuple[str, bytes | None]] | None:
    return record.headers or None


def size_of(record: Record) -> int:
    """Return about how many bytes a record takes in a batch."""
    headers = sum(_HEADER_BYTES + len(key) + len(value or b"") for key, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
