"""Formats messages as lines: the bytes as they are, with further fields, or JSON.

Pure. Source of the plain form: kafka.consumer.DefaultMessageFormatter (0.8.2.2), `null` for null included.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simpleconsumer.types import Message

__all__ = ["LineShape", "line_formatter"]

Formatter = Callable[[Message], bytes]


@dataclass(frozen=True)
class LineShape:
    """The fields of a line, in the order partition, offset, timestamp, key, value.

    Attributes:
        separator: Between the fields.
        terminator: Behind the line.
        null: Stands for a null key or value; JSON has its own.
    """

    partition: bool = False
    offset: bool = False
    timestamp: bool = False
    key: bool = False
    as_json: bool = False
    separator: bytes = b"\t"
    terminator: bytes = b"\n"
    null: bytes = b"null"


def line_formatter(shape: LineShape) -> Formatter:
    """Return the function that formats a message as a line."""
    if shape.as_json:
        return json_line
    end, null = shape.terminator, shape.null
    if not (shape.partition or shape.offset or shape.timestamp or shape.key):
        return lambda message: (null if message.value is None else message.value) + end
    readers = _readers(shape)
    return lambda message: shape.separator.join([read(message) for read in readers]) + end


def _readers(shape: LineShape) -> list[Callable[[Message], bytes]]:
    chosen: list[tuple[bool, Callable[[Message], bytes]]] = [
        (shape.partition, lambda message: str(message.partition).encode()),
        (shape.offset, lambda message: b"%d" % message.offset),
        (shape.timestamp, lambda message: b"null" if message.timestamp_ms is None else b"%d" % message.timestamp_ms),
        (shape.key, lambda message: shape.null if message.key is None else message.key),
        (True, lambda message: shape.null if message.value is None else message.value),
    ]
    return [read for wanted, read in chosen if wanted]


def json_line(message: Message) -> bytes:
    """Return one JSON object: topic, partition, offset, key, value, timestamp_ms, and headers if there are any.

    For a message of Kafka 0.7 `partition` is null, `partition_node` its name, and `entry_index` counts the messages of
    one compressed entry, which share an offset.

    Key and value are text when they are UTF-8. Otherwise they are base64, and `key_encoding` or `value_encoding` is
    `base64`. `headers` is a list of objects with `key` and `value`, to which the same applies.
    """
    entry: dict[str, Any] = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    _put(entry, "key", message.key)
    _put(entry, "value", message.value)
    entry["timestamp_ms"] = message.timestamp_ms
    if message.headers:
        entry["headers"] = [_put({"key": name}, "value", value) for name, value in message.headers]
    if isinstance(message.partition, str):
        entry |= {"partition": None, "partition_node": message.partition, "entry_index": message.index}
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"


def _put(entry: dict[str, Any], name: str, data: bytes | None) -> dict[str, Any]:
    """Add bytes to an object, and return it."""
    try:
        entry[name] = None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        assert data is not None
        entry[name] = base64.b64encode(data).decode("ascii")
        entry[f"{name}_encoding"] = "base64"
    return entry
