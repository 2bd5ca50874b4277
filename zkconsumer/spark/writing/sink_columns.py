"""The columns that a sink writes, and the check of those that a table has.

Pure. Names and types are those of Spark's own Kafka sink. That sink ignores columns with other names; here they are
refused, because a column that is misspelt would be lost.

Source: Spark 4.3, org.apache.spark.sql.kafka010.KafkaWriter (validateQuery).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zkconsumer.spark.errors import ColumnsRefused
from zkconsumer.spark.schema import HEADERS_COLUMN

__all__ = ["SinkColumns", "sink_columns"]

BINARY, STRING, INT = "binary", "string", "int"
_HEADERS: Final = HEADERS_COLUMN.name
_TYPES: Final = {
    "key": (BINARY, STRING), "value": (BINARY, STRING), "topic": (STRING,), "partition": (INT, STRING),
    _HEADERS: (HEADERS_COLUMN.type,),
}  # fmt: skip
_OF_SOURCE: Final = ("offset", "timestamp", "timestampType", "broker", "entry_index", "next_offset", "error")
_SELECT: Final = 'name the columns to write, for example with select("key", "value", "topic")'


@dataclass(frozen=True)
class SinkColumns:
    """The columns of a table that is written.

    Attributes:
        names: All of them, in the order of the table.
        key: The type of the key, `binary` or `string`; None for no such column.
        value: The type of the value.
        has_topic: The topics are in a column, which is used.
        partition: The type of the partition, `int` or `string`; None for no such column.
        has_headers: There is a column of headers.
    """

    names: tuple[str, ...]
    key: str | None
    value: str
    has_topic: bool
    partition: str | None
    has_headers: bool = False


def sink_columns(fields: Sequence[tuple[str, str]], topic: str | None, is_07: bool = False) -> SinkColumns:
    """Return the columns to write.

    Args:
        fields: Name, and type as `DataType.simpleString()` gives it.
        topic: The topic of all rows; None for that of the column.
        is_07: The options say that the brokers are of Kafka 0.7.

    Raises:
        ColumnsRefused: A column is missing, unknown, there twice, or of another type.
    """
    types: dict[str, str] = {}
    for name, kind in fields:
        if name in types:
            raise ColumnsRefused(f"column {name!r} appears twice", remedy=_SELECT)
        types[name] = _checked_type(name, kind)
    if "value" not in types:
        raise ColumnsRefused("column 'value', the bytes or text to write, is missing",
                             remedy='create it: selectExpr("to_json(struct(*)) as value")')  # fmt: skip
    if topic is None and "topic" not in types:
        raise ColumnsRefused("no topic is named", remedy="set option topic, or add a column 'topic'")
    if _HEADERS in types and is_07:
        raise ColumnsRefused("column 'headers' cannot be written: messages of Kafka 0.7 have no headers",
                             remedy="drop('headers'), or put them into the value")  # fmt: skip
    return SinkColumns(
        tuple(types), types.get("key"), types["value"], topic is None, types.get("partition"), _HEADERS in types
    )


def _checked_type(name: str, kind: str) -> str:
    if name in _OF_SOURCE:
        raise ColumnsRefused(f"column {name!r} cannot be written: brokers set it", remedy=_SELECT)
    if name not in _TYPES:
        raise ColumnsRefused(f"a sink has no column {name!r} ({_hint(name)})", remedy=_SELECT)
    # Text with a collation is "string collate UNICODE", and char and varchar come as text.
    plain = STRING if kind.split(" ")[0].split("(")[0] in (STRING, "varchar", "char") else kind
    if plain not in _TYPES[name]:
        wanted = " or ".join(_TYPES[name])
        raise ColumnsRefused(f"column {name!r} is {kind}, not {wanted}", remedy=f"cast it: {_cast(name)}")
    return plain


def _cast(name: str) -> str:
    return f'selectExpr("cast({name} as {_TYPES[name][-1] if name != "partition" else INT}) as {name}", ...)'


def _hint(name: str) -> str:
    same = [each for each in _TYPES if each == name.lower()]
    near = same or difflib.get_close_matches(name, _TYPES, n=1)
    return f"did you mean {near[0]!r}?" if near else f"existing columns: {', '.join(_TYPES)}"
