"""Schemas of Kafka's messages: which fields each version of a request or an answer has, and how they are encoded.

A schema is a text with one field a line, close to Kafka's own JSON definitions:

    group_id: string
    rebalance_timeout_ms: int32 1+
    group_instance_id: string? 5+
    protocols: []
        name: string
        metadata: bytes
    states_filter: []string 4+
    leader_epoch: int32 6-9 = -1

A line has the name of a field, its type, and the versions that have the field; without versions all have it. `?` lets
the value be null, and `?7` from version 7 on. `[]` is an array and `{}` a struct; their fields follow, indented. The
encoder takes the value after `=` for a field that its caller leaves out.

Values are dicts by field name.

Source: clients/src/main/resources/common/message (Kafka 4.3).

Reads and writes the flexible encoding of Kafka's messages: compact lengths and tagged fields.

Lengths and counts are unsigned varints, one more than the value, 0 for null. Each struct ends with tagged fields, which
a reader skips if it does not know them. `primitives` has the classic encoding.

Source: org.apache.kafka.common.protocol.ByteBufferAccessor, MessageUtil (2.4); KIP-482.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from struct import Struct as Layout
from typing import Any, Final, NamedTuple, TypeVar

from simpleconsumer.errors import BufferUnderflow, DecodeError
from simpleconsumer.primitives import (
    encode_array,
    encode_bytes,
    encode_nullable_string,
    encode_text,
    read_array,
    read_bytes,
    read_int8,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    require_end,
)
from simpleconsumer.types import Buffer

T = TypeVar("T")
Reader = Callable[[Buffer, int], tuple[T, int]]
_MOST_VARINT_BYTES = 5


def read_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the unsigned varint at offset, of 32 bits at most, and the offset after it."""
    value = 0
    for index in range(_MOST_VARINT_BYTES):
        if offset + index >= len(buffer):
            raise BufferUnderflow(f"varint at byte {offset} ends after the buffer")
        byte = buffer[offset + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >> 32:
                break
            return value, offset + index + 1
    raise DecodeError(f"varint at byte {offset} has more than 32 bits")


def read_nullable_compact_string(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """Return the compact string at offset, None for null, and the offset after it."""
    length, start = read_uvarint(buffer, offset)
    if not length:
        return None, start
    end = start + length - 1
    if end > len(buffer):
        raise BufferUnderflow(
            f"compact string at byte {offset} needs {length - 1} bytes, {len(buffer) - start} are left"
        )
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"compact string at byte {offset} is not UTF-8: {error.reason}") from error


def read_nullable_compact_bytes(buffer: Buffer, offset: int) -> tuple[bytes | None, int]:
    """Return a copy of the compact bytes at offset, None for null, and the offset after them."""
    length, start = read_uvarint(buffer, offset)
    if not length:
        return None, start
    end = start + length - 1
    if end > len(buffer):
        raise BufferUnderflow(f"compact bytes at byte {offset} need {length - 1} bytes, {len(buffer) - start} are left")
    return bytes(buffer[start:end]), end


def read_compact_array(buffer: Buffer, offset: int, read: Reader[T], smallest_item: int) -> tuple[list[T], int]:
    """Return the items at offset and the offset after them; arguments are those of `primitives.read_array`."""
    count, start = read_uvarint(buffer, offset)
    left = len(buffer) - start
    if not count or (count - 1) * smallest_item > left:
        raise DecodeError(f"compact array at byte {offset} says {count - 1} items, but {left} bytes are left")
    items: list[T] = []
    for _ in range(count - 1):
        item, start = read(buffer, start)
        items.append(item)
    return items, start


def read_uuid(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """Return the 16 bytes at offset as 32 hex digits, None if all are zero, and the offset after them."""
    if len(buffer) - offset < 16:
        raise BufferUnderflow(f"uuid at byte {offset} needs 16 bytes, {len(buffer) - offset} are left")
    uuid = bytes(buffer[offset : offset + 16])
    return uuid.hex() if any(uuid) else None, offset + 16


def skip_tagged_fields(buffer: Buffer, offset: int) -> int:
    """Return the offset after the tagged fields at offset; none of them matters to this package."""
    count, offset = read_uvarint(buffer, offset)
    if 2 * count > len(buffer) - offset:
        raise DecodeError(f"{count} tagged fields before byte {offset}, but {len(buffer) - offset} bytes are left")
    for _ in range(count):
        _, offset = read_uvarint(buffer, offset)
        size, offset = read_uvarint(buffer, offset)
        if size > len(buffer) - offset:
            raise BufferUnderflow(f"tagged field at byte {offset} needs {size} bytes, {len(buffer) - offset} are left")
        offset += size
    return offset


def encode_uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def encode_compact_string(text: str | None) -> bytes:
    """Return the compact encoding of a string, or of null."""
    if text is None:
        return b"\0"
    data = encode_text(text)
    return encode_uvarint(len(data) + 1) + data


def encode_compact_bytes(data: bytes | None) -> bytes:
    """Return the compact encoding of bytes, or of null."""
    return b"\0" if data is None else encode_uvarint(len(data) + 1) + data


def encode_uuid(uuid: str | None) -> bytes:
    """Return the 16 bytes of 32 hex digits; all are zero for None."""
    return bytes(16) if uuid is None else bytes.fromhex(uuid)


def encode_compact_array(items: Iterable[bytes]) -> bytes:
    """Return the compact count and the encoded items, each with its tagged fields."""
    listed = list(items)
    return encode_uvarint(len(listed) + 1) + b"".join(listed)


def read_bool(buffer: Buffer, offset: int) -> tuple[bool, int]:
    """Return the boolean at offset and the offset after it."""
    if offset >= len(buffer):
        raise BufferUnderflow(f"boolean at byte {offset} needs 1 byte, 0 are left")
    return buffer[offset] != 0, offset + 1


def read_nullable_array(buffer: Buffer, offset: int, read: Reader[T], smallest_item: int) -> tuple[list[T], int]:
    """Return the items of a classic array, none for null, and the offset after them; else as `read_array`."""
    count, start = read_int32(buffer, offset)
    return ([], start) if count == -1 else read_array(buffer, offset, read, smallest_item)


NEVER: Final = 0x7FFF
"""A version that no API has."""
Values = dict[str, Any]
_Read = Callable[[Buffer, int], tuple[Any, int]]
_Write = Callable[[Any], bytes]
_LINE: Final = re.compile(
    r"(?P<name>\w+): (?P<type>(\[\])?\w*|\{\})(?P<null>\?\d*)?( (?P<first>\d+)(?P<range>[+-])(?P<last>\d+)?)?"
    r"( = (?P<default>\S+))?"
)
_DEFAULTS: Final[dict[str, object]] = {"null": None, "false": False, "true": True, "''": ""}


class Field(NamedTuple):
    """One field.

    Attributes:
        name: Its name.
        type: `int8` to `int64`, `bool`, `string`, `bytes`, `uuid`, or empty for a struct.
        is_array: Whether it is an array of that type.
        first, last: The versions that have it.
        null_from: From which version on it may be null.
        default: The value that an encoder takes if the caller leaves it out; `...` if the caller must give it.
        fields: Of the struct.
    """

    name: str
    type: str
    is_array: bool
    first: int
    last: int
    null_from: int
    default: object
    fields: tuple[Field, ...]


def parse(text: str) -> tuple[Field, ...]:
    """Return the fields of a schema.

    Raises:
        ValueError: A line is no field; with the line.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    fields, rest = _parse_block(lines, _indent(lines[0]) if lines else 0)
    if rest:
        raise ValueError(f"a schema has a line of another indentation: {rest[0]!r}")
    return fields


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parse_block(lines: Sequence[str], indent: int) -> tuple[tuple[Field, ...], Sequence[str]]:
    """Return the fields at one indentation, and the lines after them."""
    fields: list[Field] = []
    while lines and _indent(lines[0]) == indent:
        line, lines = lines[0], lines[1:]
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"a schema has a line that is no field: {line!r}")
        inner: tuple[Field, ...] = ()
        if lines and _indent(lines[0]) > indent:
            inner, lines = _parse_block(lines, _indent(lines[0]))
        first = int(found["first"] or 0)
        last = int(found["last"]) if found["last"] else NEVER
        null = found["null"]
        kind = found["type"]
        fields.append(Field(
            found["name"], kind.removeprefix("[]").removeprefix("{}"), kind.startswith("[]"), first, last,
            NEVER if null is None else int(null[1:] or 0), _default(found["default"]), inner,
        ))  # fmt: skip
    return tuple(fields), lines


def _default(text: str | None) -> object:
    if text is None:
        return ...
    return _DEFAULTS[text] if text in _DEFAULTS else int(text)


class Schema:
    """The fields of one message in all its versions.

    Args:
        what: The name of the message in errors, such as `JoinGroup response`.
        text: The schema.
        flexible_from: The first version with the flexible encoding.
    """

    def __init__(self, what: str, text: str, flexible_from: int) -> None:
        self.what = what
        self._text = text
        self._flexible_from = flexible_from
        self._codecs: dict[int, _StructCodec] = {}

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields of all versions."""
        return parse(self._text)

    def encode(self, version: int, values: Values) -> bytes:
        """Return the body of a message.

        Raises:
            ValueError: A value is missing, has a name that the schema does not have, or cannot be encoded.
        """
        try:
            return self._codec(version).write(values)
        except ValueError as error:
            error.add_note(f"in {self.what} {version}")
            raise

    def decode(self, version: int, data: Buffer, offset: int = 0) -> Values:
        """Return the values of a message that ends with the buffer.

        Raises:
            DecodeError: The bytes do not fit the schema.
        """
        values, end = self._codec(version).read(data, offset)
        require_end(data, end, self.what)
        return values

    def _codec(self, version: int) -> _StructCodec:
        codec = self._codecs.get(version)
        if codec is None:
            codec = self._codecs[version] = _StructCodec(self.fields, version, version >= self._flexible_from)
        return codec


class _StructCodec:
    """Encodes and decodes a struct in one version.

    Attributes:
        smallest_bytes: How many bytes the shortest possible struct has.
    """

    def __init__(self, fields: Sequence[Field], version: int, is_flexible: bool) -> None:
        self._is_flexible = is_flexible
        self._names = {field.name for field in fields}
        self._readers: list[tuple[str, _Read]] = []
        self._writers: list[tuple[str, _Write, object]] = []
        self.smallest_bytes = int(is_flexible)
        for field in fields:
            if field.first <= version <= field.last:
                read, write, smallest_bytes = _codec_of(field, version, is_flexible)
                self._readers.append((field.name, read))
                self._writers.append((field.name, write, field.default))
                self.smallest_bytes += smallest_bytes

    def read(self, data: Buffer, offset: int) -> tuple[Values, int]:
        """Return the values of the struct at an offset, and the offset after it."""
        values: Values = {}
        for name, read in self._readers:
            values[name], offset = read(data, offset)
        return values, skip_tagged_fields(data, offset) if self._is_flexible else offset

    def write(self, values: Values) -> bytes:
        """Return the bytes of a struct; fields that the version does not have are left out."""
        if not values.keys() <= self._names:
            raise ValueError(f"no field is called {', '.join(sorted(values.keys() - self._names))}")
        parts: list[bytes] = []
        for name, write, default in self._writers:
            value = values.get(name, default)
            if value is ...:
                raise ValueError(f"the field {name} has no value")
            parts.append(write(value))
        if self._is_flexible:
            parts.append(b"\0")  # no tagged fields
        return b"".join(parts)


def _codec_of(field: Field, version: int, is_flexible: bool) -> tuple[_Read, _Write, int]:
    """Return reader and writer of a field, and how many bytes it has at least."""
    can_be_null = version >= field.null_from
    if not field.fields and field.type:
        read, write, smallest_bytes = _scalar(field, is_flexible, can_be_null and not field.is_array)
    else:
        struct = _StructCodec(field.fields, version, is_flexible)
        read, write, smallest_bytes = struct.read, struct.write, struct.smallest_bytes
    if not field.is_array:
        return read, write, smallest_bytes
    return _array(field.name, read, write, smallest_bytes, is_flexible, can_be_null)


def _array(
    name: str, read: _Read, write: _Write, item_bytes: int, is_flexible: bool, can_be_null: bool
) -> tuple[_Read, _Write, int]:
    read_count: _Read = read_uvarint if is_flexible else read_int32
    read_items = read_compact_array if is_flexible else read_array
    null, null_bytes = (0, b"\0") if is_flexible else (-1, b"\xff\xff\xff\xff")

    def read_all(data: Buffer, offset: int) -> tuple[Any, int]:
        if can_be_null:
            count, end = read_count(data, offset)
            if count == null:
                return None, end
        return read_items(data, offset, read, item_bytes)

    def write_all(items: Any) -> bytes:
        if items is None:
            if not can_be_null:
                raise ValueError(f"{name} is null, and must be an array")
            return null_bytes
        encoded = [write(item) for item in items]
        return encode_compact_array(encoded) if is_flexible else encode_array(encoded)

    return read_all, write_all, len(null_bytes)


def _scalar(field: Field, is_flexible: bool, can_be_null: bool) -> tuple[_Read, _Write, int]:
    if field.type in _NUMBERS:
        return _NUMBERS[field.type]
    read, write, smallest_bytes = _OF_LENGTH[field.type, is_flexible]
    if can_be_null:
        return read, write, smallest_bytes

    def read_value(data: Buffer, offset: int) -> tuple[Any, int]:
        value, end = read(data, offset)
        if value is None:
            raise DecodeError(f"the {field.type} {field.name} at byte {offset} is null")
        return value, end

    def write_value(value: Any) -> bytes:
        if value is None:
            raise ValueError(f"{field.name} is null, and must be of type {field.type}")
        return write(value)

    return read_value, write_value, smallest_bytes


def _read_nullable_bytes(data: Buffer, offset: int) -> tuple[bytes | None, int]:
    if read_int32(data, offset)[0] == -1:
        return None, offset + 4
    view, end = read_bytes(data, offset)
    return bytes(view), end


_NUMBERS: Final[dict[str, tuple[_Read, _Write, int]]] = {
    "bool": (read_bool, Layout(">?").pack, 1),
    "int8": (read_int8, Layout(">b").pack, 1),
    "int16": (read_int16, Layout(">h").pack, 2),
    "int32": (read_int32, Layout(">i").pack, 4),
    "int64": (read_int64, Layout(">q").pack, 8),
    "uuid": (read_uuid, encode_uuid, 16),
}
_OF_LENGTH: Final[dict[tuple[str, bool], tuple[_Read, _Write, int]]] = {
    ("string", False): (read_nullable_string, encode_nullable_string, 2),
    ("string", True): (read_nullable_compact_string, encode_compact_string, 1),
    ("bytes", False): (_read_nullable_bytes, encode_bytes, 4),
    ("bytes", True): (read_nullable_compact_bytes, encode_compact_bytes, 1),
}
