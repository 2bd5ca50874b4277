"""The results of `decode_messages` and `decode_columns` for record batches, messages and errors, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decoding import MEBIBYTE

from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka011.columns import decode_columns
from simpleconsumer.kafka011.record_batch import decode_messages
from simpleconsumer.types import AbortedTransaction, Buffer

Found = list[tuple[Any, ...]]
COLUMNS = ("key", "value", "offset", "timestamp_ms", "headers")


def by_messages(
    data: Buffer, start: int = 0, end: int | None = None, *, limit: int = MEBIBYTE, high_watermark: int | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> Found:  # fmt: skip
    """Return all messages and errors in their order, going on behind each error."""
    if end is not None and start >= end:
        return []
    found: Found = []
    resume = None
    while True:
        try:
            for m in decode_messages(
                data, "t", 0, start, high_watermark=high_watermark, max_decoded_bytes=limit, aborted=aborted,
                resume=resume,
            ):  # fmt: skip
                if end is not None and m.offset >= end:
                    return found
                found.append((m.key, m.value, m.offset, m.timestamp_ms, m.headers))
                if end is not None and m.offset >= end - 1:
                    return found
            return found
        except MessageError as error:
            found.append((type(error), str(error)))
            resume = error.resume
        except BrokenFraming as error:
            return [*found, (type(error), str(error))]


def by_columns(
    data: Buffer, start: int = 0, end: int | None = None, batch_bytes: int = MEBIBYTE, *, limit: int = MEBIBYTE,
    high_watermark: int | None = None, aborted: Sequence[AbortedTransaction] = (), names: Sequence[str] = COLUMNS,
) -> Found:  # fmt: skip
    """Return the same from `decode_columns`."""
    found: Found = []
    resume = None
    while True:
        try:
            for batch in decode_columns(
                data, "t", 0, start, end_offset=end, columns=names, max_batch_bytes=batch_bytes,
                high_watermark=high_watermark, max_decoded_bytes=limit, aborted=aborted, resume=resume,
            ):  # fmt: skip
                batch.validate(full=True)
                assert batch.num_rows
                assert batch.schema.names == list(names)
                found += rows_of(batch)
            return found
        except MessageError as error:
            found.append((type(error), str(error)))
            resume = error.resume
        except BrokenFraming as error:
            return [*found, (type(error), str(error))]


def rows_of(batch: Any) -> Found:
    """Return the rows of a record batch; headers as messages have them."""
    rows = zip(*[column.to_pylist() for column in batch.columns], strict=True)
    if batch.schema.names[-1] != "headers":
        return list(rows)
    return [(*row[:-1], tuple((each["key"], each["value"]) for each in row[-1] or ())) for row in rows]
