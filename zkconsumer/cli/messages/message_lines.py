r"""Messages as lines: formats what `consume` prints, and parses what `produce` reads.

Formats messages as lines: the bytes as they are, with further fields, or JSON. Source of the plain form:
kafka.consumer.DefaultMessageFormatter (0.8.2.2), `null` for null included.

Pure.

Formats messages by a format string, as kcat has it: `%t %p %o %k %v\n`. Source: format.c of kcat 1.7. The differences:
`%v` is `%s`, and an unknown field or escape is an error.

Makes key, value and headers of a line: fields between separators, or JSON.

Source: LineMessageReader of kafka.tools.ConsoleProducer (0.8.2.2), with headers of org.apache.kafka.tools (3.9). What
differs: bytes are taken as they are, separators are texts and not patterns, and where the field of headers is empty
there are none.

Splits input into lines. A line ends with LF; the last one may lack it. CR is kept: it belongs to the user's bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple

from simpleconsumer.types import MAX_INT64, Headers, Message

Formatter = Callable[[Message], bytes]
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make one for each message


@dataclass(frozen=True)
class LineShape:
    """The fields of a line, in the order partition, offset, timestamp, key, value.

    Attributes:
        separator: Between the fields.
        terminator: After the line.
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
    return _encode(entry).encode() + b"\n"


def _put(entry: dict[str, Any], name: str, data: bytes | None) -> dict[str, Any]:
    """Add bytes to an object, and return it."""
    try:
        entry[name] = None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        assert data is not None
        entry[name] = base64.b64encode(data).decode("ascii")
        entry[f"{name}_encoding"] = "base64"
    return entry


FIELDS_HELP: Final = (
    r"%t topic, %p partition, %o offset, %k key, %v or %s value, %K and %S their lengths (-1: null), %R the length of "
    r"the value as 4 bytes, %T time in ms (-1: none), %h headers (name=value,name=value), %%, and \n \r \t \\ \0 \xHH"
)
_ESCAPES: Final[Mapping[str, bytes]] = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_HEX: Final = re.compile("[0-9a-fA-F]{1,2}")
_INT32 = Struct(">i")
_FIELDS: Final[Mapping[str, Callable[[Message, bytes], bytes]]] = {
    "t": lambda message, null: message.topic.encode(),
    "p": lambda message, null: str(message.partition).encode(),
    "o": lambda message, null: b"%d" % message.offset,
    "k": lambda message, null: null if message.key is None else message.key,
    "v": lambda message, null: null if message.value is None else message.value,
    "s": lambda message, null: null if message.value is None else message.value,
    "K": lambda message, null: b"%d" % _length(message.key),
    "S": lambda message, null: b"%d" % _length(message.value),
    "R": lambda message, null: _INT32.pack(_length(message.value)),
    "T": lambda message, null: b"%d" % (-1 if message.timestamp_ms is None else message.timestamp_ms),
    "h": lambda message, null: b",".join(
        [name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in message.headers]
    ),
}
_QUICK: Final[Mapping[str, tuple[bytes, str]]] = {
    "p": (b"%d", "partition"), "o": (b"%d", "offset"), "k": (b"%b", "key"), "v": (b"%b", "value"),
    "s": (b"%b", "value"), "T": (b"%d", "timestamp_ms"),
}  # fmt: skip
"""Fields that one `bytes % tuple` formats, with the attribute that each is."""


def message_format(text: str, null: bytes = b"") -> Callable[[Message], bytes]:
    """Return the function that formats a message.

    Args:
        text: The format.
        null: Stands for a null key or value.

    Raises:
        ValueError: The format has a field or an escape that is not known; the text names it and its place.
    """
    pieces = _pieces_of(text)

    def by_piece(message: Message) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else _FIELDS[piece](message, null) for piece in pieces])

    if not all(isinstance(piece, bytes) or piece == "t" or piece in _QUICK for piece in pieces):
        return by_piece
    templates: dict[object, tuple[bytes, Callable[[Message], Any]]] = {}

    def quickly(message: Message) -> bytes:
        shape = (message.topic, message.key is None, message.value is None, message.timestamp_ms is None)
        found = templates.get(shape)
        if found is None:
            found = templates[shape] = _template(pieces, message, null)
        template, values = found
        line: bytes = template % values(message)
        return line

    return quickly


def _pieces_of(text: str) -> list[bytes | str]:
    """Return the literal bytes and the letters of the fields, in their order."""
    pieces: list[bytes | str] = []
    at = 0
    while at < len(text):
        letter, following = text[at], text[at + 1 : at + 2]
        if letter not in "%\\":
            pieces.append(letter.encode("utf-8", "surrogateescape"))
            at += 1
        elif letter == "%":
            pieces.append(b"%" if following == "%" else _field(following, at))
            at += 2
        elif following == "x" and (digits := _HEX.match(text, at + 2)):
            pieces.append(bytes([int(digits[0], 16)]))
            at = digits.end()
        elif following in _ESCAPES:
            pieces.append(_ESCAPES[following])
            at += 2
        else:
            raise ValueError(f"'{text[at : at + 2]}' at character {at + 1} is not an escape; known: {FIELDS_HELP}")
    return pieces


def _field(letter: str, at: int) -> str:
    if letter not in _FIELDS or letter not in string.ascii_letters:
        raise ValueError(f"'%{letter}' at character {at + 1} is not a field; known: {FIELDS_HELP}")
    return letter


def _template(pieces: list[bytes | str], message: Message, null: bytes) -> tuple[bytes, Callable[[Message], Any]]:
    """Return the template of all messages with the topic and the nulls of this one, and what reads its values."""
    parts: list[bytes] = []
    attributes: list[str] = []
    for piece in pieces:
        is_constant = isinstance(piece, bytes) or piece == "t" or getattr(message, _QUICK[piece][1]) is None
        if isinstance(piece, bytes) or is_constant:
            constant = piece if isinstance(piece, bytes) else _FIELDS[piece](message, null)
            parts.append(constant.replace(b"%", b"%%"))
        else:
            form, attribute = _QUICK[piece]
            parts.append(b"%b" if attribute == "partition" and isinstance(message.partition, str) else form)
            attributes.append(attribute)
    if not attributes:
        return b"".join(parts), lambda message: ()
    if "partition" in attributes and isinstance(message.partition, str):
        return b"".join(parts), _with_names(attributes)
    return b"".join(parts), attrgetter(*attributes)


def _with_names(attributes: list[str]) -> Callable[[Message], Any]:
    """Return what reads the values of a message of Kafka 0.7, whose partition is a name."""

    def values(message: Message) -> tuple[Any, ...]:
        found = (getattr(message, attribute) for attribute in attributes)
        return tuple(each.encode() if isinstance(each, str) else each for each in found)

    return values


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


class ParsedLine(NamedTuple):
    """A message of a line."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


LineParser = Callable[[bytes], ParsedLine]
"""Returns the message of a line, and raises ValueError if it has none."""


class UnstoredTimeError(ValueError):
    """A line has a time, and no broker of the cluster stores one."""


class HeaderForm(NamedTuple):
    """How headers stand at the start of a line.

    Attributes:
        delimiter: After the last one.
        separator: Between two of them.
        key_separator: Between the name of a header and its value.
    """

    delimiter: bytes = b"\t"
    separator: bytes = b","
    key_separator: bytes = b":"


class LineForm(NamedTuple):
    """The fields of a line: headers, key and value, in this order.

    Attributes:
        key_separator: Between key and value; None: no keys.
        null: A key, a value, a header's value, or all headers together, that are this text, are null; None: none is.
        headers: How headers stand; None: no headers.
    """

    key_separator: bytes | None = None
    null: bytes | None = None
    headers: HeaderForm | None = None


def line_parser(form: LineForm) -> LineParser:
    """Return the function that parses lines of a form; of a separator that comes twice the first one counts."""
    separator, null, header_form = form

    def parse(line: bytes) -> ParsedLine:
        rest, key = line, None
        headers: Headers = ()
        if header_form is not None:
            text, rest = _parted(line, rest, header_form.delimiter, "headers delimiter")
            headers = () if not text or text == null else _headers(text, header_form, null)
        if separator is not None:
            key, rest = _parted(line, rest, separator, "key separator")
        return ParsedLine(None if key == null else key, None if rest == null else rest, headers)

    return parse


def _parted(line: bytes, rest: bytes, separator: bytes, name: str) -> tuple[bytes, bytes]:
    first, found, after = rest.partition(separator)
    if not found:
        raise ValueError(f"it has no {name} {_shown(separator)}: {_shown(line)}")
    return first, after


def _headers(text: bytes, form: HeaderForm, null: bytes | None) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for pair in text.split(form.separator):
        name, found, value = pair.partition(form.key_separator)
        if not found:
            raise ValueError(f"its header {_shown(pair)} has no {_shown(form.key_separator)} between name and value")
        if name == null:
            raise ValueError(f"the name of its header {_shown(pair)} is null, but a name cannot be null")
        headers.append((_name(name), None if value == null else value))
    return tuple(headers)


def _name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the name of its header {_shown(name)} is not UTF-8, as names have to be") from None


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))


def json_parser(has_keys: bool, keeps_times: bool = True) -> LineParser:
    """Return the function that parses lines of `zkconsumer consume --json`.

    Topic, partition and offset are not read.

    Args:
        has_keys: Brokers store keys; those of Kafka 0.7 store neither keys nor headers nor times.
        keeps_times: Messages have the times of their lines; else that at which they are sent.
    """

    def parse(line: bytes) -> ParsedLine:
        try:
            return _parse(line)
        except RecursionError:
            raise ValueError("its JSON is nested too deep") from None

    def _parse(line: bytes) -> ParsedLine:
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from None
        if not isinstance(entry, dict) or "value" not in entry:
            raise ValueError('it is not a JSON object with a "value"')
        key, value = _bytes(entry, "key"), _bytes(entry, "value")
        if key is not None and not has_keys:
            raise ValueError("it has a key, but Kafka 0.7 stores no keys")
        headers = _json_headers(entry.get("headers"))
        if headers and not has_keys:
            raise ValueError("it has headers, but Kafka 0.7 stores no headers")
        time_ms = _time_ms(entry.get("timestamp_ms")) if keeps_times else None
        if time_ms is not None and not has_keys:
            raise UnstoredTimeError(f"it has the time {time_ms}, but Kafka 0.7 stores no times")
        return ParsedLine(key, value, headers, time_ms)

    return parse


def _time_ms(found: Any) -> int | None:
    if found is None:
        return None
    if type(found) is not int or not 0 <= found <= MAX_INT64:
        raise ValueError(f'"timestamp_ms" is {json.dumps(found):.60}; it must be a whole number from 0 to {MAX_INT64}, '
                         "or null: --times now sends the line without it")  # fmt: skip
    return found


def _json_headers(entries: Any) -> Headers:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise ValueError(f'"headers" is {str(entries)[:60]!r}; it must be a list')
    headers: list[tuple[str, bytes | None]] = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str) or "value" not in entry:
            raise ValueError(f'the header {str(entry)[:60]!r} is not an object with a text "key" and a "value"')
        entry["key"].encode()  # halves of characters, which no name can have, are a ValueError
        headers.append((entry["key"], _bytes(entry, "value")))
    return tuple(headers)


def _bytes(entry: dict[str, object], name: str) -> bytes | None:
    text, encoding = entry.get(name), entry.get(f"{name}_encoding")
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f'"{name}" is {str(text)[:60]!r}; it must be text or null')
    if encoding is None:
        return text.encode()
    if encoding != "base64":
        raise ValueError(f'"{name}_encoding" is {str(encoding)[:60]!r}; it must be base64')
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f'"{name}" is not base64: {error}') from None


class LongLine(NamedTuple):
    """A line that is longer than the limit, and was not kept.

    Attributes:
        size: Its bytes.
    """

    size: int


class LineSplitter:
    """Cuts pieces of input into lines, across the pieces.

    Args:
        max_line_bytes: Most bytes that are kept of an unfinished line.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    @property
    def has_rest(self) -> bool:
        """Whether a line has begun that has no end yet."""
        return self._rest_bytes > 0

    def feed(self, piece: bytes) -> list[bytes | LongLine]:
        """Return the lines that are complete with this piece."""
        first, *others = piece.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [self._take(), *others[:-1]]
        self._keep(others[-1])
        return lines

    def finish(self) -> list[bytes | LongLine]:
        """Return the last line, if it lacks its LF."""
        return [self._take()] if self.has_rest else []

    def _keep(self, part: bytes) -> None:
        self._rest_bytes += len(part)
        if self._rest_bytes > self._max_line_bytes:
            self._rest.clear()
        else:
            self._rest.append(part)

    def _take(self) -> bytes | LongLine:
        size, rest = self._rest_bytes, self._rest
        self._rest, self._rest_bytes = [], 0
        return b"".join(rest) if size <= self._max_line_bytes else LongLine(size)
