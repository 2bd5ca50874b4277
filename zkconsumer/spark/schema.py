"""The columns of the source, and the check of the columns that a query names.

Pure. Names and types are those of Spark's own Kafka source, so that a job can switch between the two by its `format`.
All columns may be null, as in that source. `headers` exists with `includeHeaders`, as there. Columns that exist only
here are `error`, with `onMessageError=row`, and `broker` and `entry_index`, with `kafka.generation=0.7`. Spark asks for
the schema before anything is planned, and a stream has to have the same one after each restart. So the options alone
decide, and no cluster is asked.

Source: docs of Spark 4, "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final, NamedTuple

from zkconsumer.spark.errors import ColumnsRefused


class Column(NamedTuple):
    """A column: its name and its type, as Spark's DDL writes it."""

    name: str
    type: str


COLUMNS: Final = (
    Column("key", "binary"),
    Column("value", "binary"),
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint"),
    Column("timestamp", "timestamp"),
    Column("timestampType", "int"),
)
HEADERS_COLUMN: Final = Column("headers", "array<struct<key:string,value:binary>>")
"""The headers of a message, null without any; Kafka has them from 0.11 on."""
PLACE_COLUMNS: Final = (Column("broker", "int"), Column("entry_index", "int"))
"""Of Kafka 0.7 only: the broker of the partition, and the number of the message in its compressed entry, from 0. All
messages of one entry have its position as offset."""
NEXT_OFFSET: Final = Column("next_offset", "bigint")
"""The offset that a group commits after the message. Of Kafka 0.7 only, and only where a schema names it. For the last
message of an entry it is the end of the entry, for the others its start."""
ERROR_COLUMN: Final = Column("error", "string")
"""Why the message at that offset cannot be delivered; null for a good one."""


def schema_text(with_errors: bool = False, with_places: bool = False, with_headers: bool = False) -> str:
    """Return all columns as DDL.

    >>> schema_text()
    'key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int'
    """
    return ", ".join(f"{column.name} {column.type}" for column in _columns(with_errors, with_places, with_headers))


def chosen_columns(
    fields: Sequence[tuple[str, str, bool]],
    with_errors: bool = False,
    with_places: bool = False,
    with_headers: bool = False,
) -> tuple[str, ...]:
    """Return the names of the columns that a schema asks for, in its order.

    Args:
        fields: Name, type as `DataType.simpleString()` gives it, and whether it may be null.
        with_errors: The column `error` exists.
        with_places: The columns `broker` and `entry_index` exist.
        with_headers: The column `headers` exists.

    Raises:
        ColumnsRefused: It names no column, an unknown one, one of another type, the same twice, or one with NOT NULL.
    """
    hidden = (NEXT_OFFSET,) if with_places else ()
    known = {column.name: column.type for column in (*_columns(with_errors, with_places, with_headers), *hidden)}
    if not fields:
        there = schema_text(with_errors, with_places, with_headers)
        raise ColumnsRefused(f"the schema has no column; existing columns: {there}")
    for number, (name, kind, can_be_null) in enumerate(fields):
        if name not in known:
            raise ColumnsRefused(f"column {name!r} does not exist ({_hint(name, known)})")
        if kind != known[name]:
            raise ColumnsRefused(f"column {name!r} is {known[name]}, not {kind}", remedy="cast it after load()")
        if not can_be_null:
            raise ColumnsRefused(f"column {name!r} can be null", remedy="leave NOT NULL out of the schema")
        if name in (earlier for earlier, _, _ in fields[:number]):
            raise ColumnsRefused(f"column {name!r} is named twice")
    return tuple(name for name, _, _ in fields)


def _columns(with_errors: bool, with_places: bool, with_headers: bool) -> tuple[Column, ...]:
    return (
        *COLUMNS,
        *((HEADERS_COLUMN,) if with_headers else ()),
        *(PLACE_COLUMNS if with_places else ()),
        *((ERROR_COLUMN,) if with_errors else ()),
    )


def _hint(name: str, known: dict[str, str]) -> str:
    if name == ERROR_COLUMN.name:
        return "it exists with onMessageError=row only"
    if name in (column.name for column in (*PLACE_COLUMNS, NEXT_OFFSET)):
        return "it exists on Kafka 0.7 only, with kafka.generation=0.7"
    if name == HEADERS_COLUMN.name:
        return "it exists with includeHeaders=true only"
    same = [each for each in known if each.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"existing columns: {', '.join(known)}"
