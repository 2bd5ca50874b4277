r"""Formats messages by a format string, as kcat has it: `%t %p %o %k %v\n`.

Pure. Source: format.c of kcat 1.7. What differs: `%v` is `%s`, and an unknown field or escape is an error.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from operator import attrgetter
from struct import Struct
from typing import Any, Final

from simpleconsumer.types import Message

__all__ = ["FIELDS_HELP", "message_format"]

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
    "h": lambda message, null: b",".join([
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in message.headers
    ]),
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
    pieces = _parse(text)

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


def _parse(text: str) -> list[bytes | str]:
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
