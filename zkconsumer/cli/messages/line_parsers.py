"""Makes key, value and headers of a line: fields between separators, or JSON. Pure.

Source: LineMessageReader of kafka.tools.ConsoleProducer (0.8.2.2), with headers of org.apache.kafka.tools (3.9). What
differs: bytes are taken as they are, separators are texts and not patterns, and where the field of headers is empty
there are none.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from simpleconsumer.types import Headers

__all__ = ["HeaderForm", "LineForm", "LineParser", "ParsedLine", "json_parser", "line_parser"]


class ParsedLine(NamedTuple):
    """A message of a line."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


LineParser = Callable[[bytes], ParsedLine]
"""Returns the message of a line, and raises ValueError if it has none."""


class HeaderForm(NamedTuple):
    """How headers stand at the start of a line.

    Attributes:
        delimiter: Behind the last one.
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
    first, found, behind = rest.partition(separator)
    if not found:
        raise ValueError(f"it has no {name} {_shown(separator)}: {_shown(line)}")
    return first, behind


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


def json_parser(has_keys: bool) -> LineParser:
    """Return the function that parses lines of `zkconsumer consume --json`.

    Topic, partition, offset and time are not read.

    Args:
        has_keys: Brokers store keys; those of Kafka 0.7 store neither keys nor headers.
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
        return ParsedLine(key, value, headers)

    return parse


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
