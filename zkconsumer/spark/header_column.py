"""The headers of messages out of a column of a record batch: a list of structs of name and value for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from simpleconsumer.types import Headers
from zkconsumer.spark.errors import RowRefused

_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_array(rows: Sequence[Any]) -> pa.Array:
    """Return a column of headers: of each row a list of pairs of name and value, or None."""
    named = [None if row is None else [None if each is None else {"key": each[0], "value": each[1]} for each in row]
             for row in rows]  # fmt: skip
    return pa.array(named, _TYPE)


def headers_of(column: pa.Array, numbers: Sequence[int]) -> list[Headers] | None:
    """Return the headers of each row, empty for none; None if no row has any.

    Args:
        column: Lists of structs of `key` (text) and `value` (bytes), in this order.
        numbers: The numbers of the rows, for errors.

    Raises:
        RowRefused: A header has no name.
    """
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    if not any(lengths):
        return None
    names, values = column.flatten().flatten()
    if names.null_count:
        at = pc.index(pc.is_null(names), True).as_py()
        row = _row_of(at, lengths, numbers)
        raise RowRefused(f"row {row} of the task has a header without a name: its key is null",
                         remedy="give it a name, or filter such headers")  # fmt: skip
    content: list[Any] = values.to_numpy(zero_copy_only=False).tolist()
    pairs = list(zip(names.to_pylist(), content, strict=True))
    found: list[Headers] = []
    first = 0
    for length in lengths:
        found.append(tuple(pairs[first : first + length]) if length else ())
        first += length
    return found


def _row_of(at: int, lengths: Sequence[int], numbers: Sequence[int]) -> int:
    """Return the number of the row that has a header, by the number of the header in the column."""
    rows_end = 0
    for number, length in zip(numbers, lengths, strict=True):
        rows_end += length
        if at < rows_end:
            return number
    raise AssertionError("the header is in no row")
