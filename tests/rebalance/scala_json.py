"""A JSON parser as strict and as lax as the one of Kafka 0.8: what it accepts, every Java member can read.

It follows the lexer and parser of scala.util.parsing.json token by token, with Kafka's number conversion
(`String.toInt`), and shares no code with what it checks.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}|[^"\n\x1a])*")
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![A-Za-z])
      | (?P<word>true|false|null)(?![A-Za-z])
      | (?P<mark>[{}\[\]:,])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class ScalaJsonError(Exception):
    """What makes a Java member fail."""


def parse_full(data: bytes) -> object:
    """Return the value, or raise what stops a Java member."""
    text = data.decode("utf-8")
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise ScalaJsonError(f"no token at {at}: {text[at : at + 20]!r}")
        tokens.append((str(found.lastgroup), str(found[found.lastgroup])))  # type: ignore[index]
        at = found.end()
    value, rest = _value(tokens)
    if rest or not isinstance(value, dict | list):
        raise ScalaJsonError("the root is one object or array")
    return value


def _value(tokens: list[tuple[str, str]]) -> tuple[object, list[tuple[str, str]]]:
    if not tokens:
        raise ScalaJsonError("the text ends")
    (kind, text), rest = tokens[0], tokens[1:]
    if kind == "string":
        return _unescape(text[1:-1]), rest
    if kind == "number":
        return _to_int(text), rest
    if kind == "word":
        return {"true": True, "false": False, "null": None}[text], rest
    if text == "{":
        return _object(rest)
    if text == "[":
        return _array(rest)
    raise ScalaJsonError(f"unexpected {text}")


def _object(tokens: list[tuple[str, str]]) -> tuple[object, list[tuple[str, str]]]:
    members: dict[str, object] = {}
    while tokens[:1] != [("mark", "}")]:
        if len(tokens) < 3 or tokens[0][0] != "string" or tokens[1] != ("mark", ":"):
            raise ScalaJsonError("a member is a string, a colon and a value")
        name = _unescape(tokens[0][1][1:-1])
        members[name], tokens = _value(tokens[2:])
        tokens = _after_comma(tokens, "}")
    return members, tokens[1:]


def _array(tokens: list[tuple[str, str]]) -> tuple[object, list[tuple[str, str]]]:
    items = []
    while tokens[:1] != [("mark", "]")]:
        item, tokens = _value(tokens)
        items.append(item)
        tokens = _after_comma(tokens, "]")
    return items, tokens[1:]


def _after_comma(tokens: list[tuple[str, str]], end: str) -> list[tuple[str, str]]:
    if tokens[:1] == [("mark", ",")] and tokens[1:2] != [("mark", end)]:
        return tokens[1:]
    if tokens[:1] != [("mark", end)]:
        raise ScalaJsonError(f"neither a comma nor {end}")
    return tokens


def _to_int(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]+", text) or not -(2**31) <= int(text) < 2**31:
        raise ScalaJsonError(f"NumberFormatException: {text}")
    return int(text)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[2], 16)) if found[2] else _CONTROLS.get(found[1], found[1]), text)
