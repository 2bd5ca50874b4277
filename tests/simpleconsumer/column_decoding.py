"""The results of `decode_messages` and `decode_columns` for a set, messages and errors, for comparison."""

from __future__ import annotations

from typing import Any

from decoding import MEBIBYTE

from simpleconsumer.columns import decode_columns
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka08.message_set import decode_messages
from simpleconsumer.types import Buffer

Row = tuple[bytes | None, bytes | None, int, int | None]
Found = Row | tuple[type, str]

FIRST = ("key", "value", "offset", "timestamp_ms")


def found_by_messages(
    data: Buffer, start: int, end: int | None, limit: int = MEBIBYTE, high_watermark: int | None = None
) -> list[Found]:
    """Return all messages and errors in their order, going on behind each error."""
    if end is not None and start >= end:
        return []
    found: list[Found] = []
    resume = None
    while True:
        try:
            for m in decode_messages(
                data, "t", 0, start, high_watermark=high_watermark, max_decoded_bytes=limit, resume=resume
            ):
                if end is not None and m.offset >= end:
                    return found
                found.append((m.key, m.value, m.offset, m.timestamp_ms))
                if end is not None and m.offset >= end - 1:
                    return found
            return found
        except MessageError as error:
            found.append((type(error), str(error)))
            resume = error.resume
        except BrokenFraming as error:
            return [*found, (type(error), str(error))]


def found_by_columns(
    data: Buffer,
    start: int,
    end: int | None,
    batch_bytes: int = MEBIBYTE,
    limit: int = MEBIBYTE,
    high_watermark: int | None = None,
) -> list[Found]:
    found: list[Found] = []
    resume = None
    while True:
        try:
            for batch in decode_columns(
                data, "t", 0, start, end_offset=end, columns=FIRST, max_batch_bytes=batch_bytes,
                high_watermark=high_watermark, max_decoded_bytes=limit, resume=resume,
            ):  # fmt: skip
                batch.validate(full=True)
                assert batch.num_rows
                found += rows_of(batch)
            return found
        except MessageError as error:
            found.append((type(error), str(error)))
            resume = error.resume
        except BrokenFraming as error:
            return [*found, (type(error), str(error))]


def rows_of(batch: Any) -> list[Any]:
    return list(zip(*[column.to_pylist() for column in batch.columns], strict=True))
