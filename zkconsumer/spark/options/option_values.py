"""Parses the values of options: counts, sizes, durations, booleans, words.

Pure. Each parser raises ValueError with a clause that names the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from zkconsumer.spark.options.offset_spec import converted

__all__ = ["boolean", "bytes_or_off", "count", "milliseconds", "one_of", "option_value", "parse_bytes"]

_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_BYTES = re.compile(r"([0-9]{1,15})([bkmg]?)b?", re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9]{1,12}) *(ms|s|m|min|h|d|)", re.IGNORECASE)
_DURATIONS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
T = TypeVar("T")


def option_value(given: Mapping[str, str], name: str, convert: Callable[[str], T], default: T) -> T:
    text = given.get(name.lower())
    return default if text is None else converted(name, convert, text)


def count(largest: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        text = text.strip()
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or not 1 <= int(text) <= largest:
            raise ValueError(f"{text[:40]!r} is not a whole number from 1 to {largest}")
        return int(text)

    return convert


def parse_bytes(text: str) -> int:
    """Return a number of bytes, with or without a unit: `1048576`, `512m`, `128MB`.

    Raises:
        ValueError: The text is no such number.
    """
    found = _BYTES.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"{text[:40]!r} is not a number of bytes such as 1048576 or 512m")
    return int(found[1]) * _UNITS[found[2].lower()]


def milliseconds(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is neither a time such as 90s, 15m or 1h nor a number of milliseconds")
    return int(found[1]) * _DURATIONS_MS[found[2].lower()]


def bytes_or_off(text: str) -> int | None:
    return None if text.strip().lower() == "off" else parse_bytes(text)


def boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text.strip().lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(f"{text[:40]!r} is not one of {', '.join(words)}")
        return text.strip().lower()

    return convert
