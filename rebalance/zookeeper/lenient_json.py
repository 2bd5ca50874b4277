"""Reads JSON as Kafka's Java members do, and finds what such a member could not read. Pure.

Kafka 0.8 and 0.9 parse znodes with Scala's combinator parser. It differs from strict JSON in one way that
matters for reading, a backslash that starts no known escape stays a backslash (0.8.0 and 0.8.1 write the
regex of a whitelist raw), and in one way that matters for writing: every unquoted number goes through
`String.toInt`, so that one number above 2^31-1, or with a fraction or exponent, fails the whole text,
and with it the rebalance of every Java member that reads it. So does a raw newline, or the character U+001A, in a text.

Source: kafka/utils/Json.scala (0.8.0 to 0.9.0.1), scala.util.parsing.json.Lexer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_INT32_MAX = 2**31 - 1
_ESCAPE_OR_BACKSLASH = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})?')

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ENDS_A_TEXT = "\n\x1a"


def parse_lenient(data: bytes) -> object:
    r"""Return the value of JSON text in UTF-8, with unknown escapes kept as they stand.

    `{"foo\.bar":1}` has the key `foo\.bar`. A known escape is decoded although a regex of 0.8.0 may have
    meant it raw (`\b`): Java readers of that text do the same, and all members must agree.

    Raises:
        ValueError: The text is not UTF-8, not JSON, nested too deep, or holds a number of absurd length.
    """
    return _load(data.decode("utf-8"))


def java_refusal(data: bytes) -> str | None:
    """Return why a Java member of 0.8 or 0.9 fails on JSON that we can read; None when it does not fail.

    One such registration stops every Java member of the group, so a member that finds one logs it.
    """
    text = data.decode("utf-8", "replace")
    try:
        _load(text, parse_int=_java_int, parse_float=_java_float)
    except ValueError as error:
        return str(error)
    for quoted in _QUOTED.findall(text):
        for character in _ENDS_A_TEXT:
            if character in quoted:
                return f"the text {quoted[:50]!r} holds U+{ord(character):04X} without a backslash"
    return None


def escape_as_java(text: str) -> str:
    r"""Return text escaped the way Kafka 0.8.2 escapes a regex before it writes it between quotes.

    `"`, `\`, `/`, `\b \f \n \r \t` get a backslash; other control characters and U+007F to U+009F become
    `\uXXXX`, lower case; everything else stays as it is.

    Source: kafka/utils/Utils.scala#JSONEscapeString (0.8.2.2).
    """
    return text.translate(_JAVA_ESCAPES)


def _load(
    text: str,
    parse_int: Callable[[str], int] | None = None,
    parse_float: Callable[[str], float] | None = None,
) -> object:
    kept = _ESCAPE_OR_BACKSLASH.sub(lambda found: r"\\" if found[0] == "\\" else found[0], text)
    try:
        value: object = json.loads(
            kept, strict=False, parse_constant=_refuse_constant, parse_int=parse_int, parse_float=parse_float
        )
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    return value


def _java_int(digits: str) -> int:
    value = int(digits)
    if not -_INT32_MAX - 1 <= value <= _INT32_MAX:
        raise ValueError(f"the unquoted number {digits} does not fit into 32 bits")
    return value


def _java_float(text: str) -> float:
    raise ValueError(f"the unquoted number {text} is not an integer")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_JAVA_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord(char): "\\" + letter for char, letter in zip('"\\/\b\f\n\r\t', '"\\/bfnrt', strict=True)
}
