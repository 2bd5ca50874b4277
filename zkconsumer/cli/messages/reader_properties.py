"""The properties of Kafka's own line reader, which `produce --property` takes beside the settings of a producer.

Kafka's reader does not look at a separator of keys or headers that it is not told to parse, and sends whole lines as
values. Here that is refused.

Source: org.apache.kafka.tools.LineMessageReader (3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Final

import click

from zkconsumer.cli.messages.line_parsers import HeaderForm, LineForm

__all__ = ["READER_HELP", "take_line_form"]

_PARSED: Final[Mapping[str, tuple[str, ...]]] = {
    "parse.key": ("key.separator",),
    "parse.headers": ("headers.delimiter", "headers.separator", "headers.key.separator"),
}
"""What is parsed, and the separators for it."""
_DEFAULTS: Final[Mapping[str, str]] = {
    "parse.key": "false", "key.separator": "\t", "parse.headers": "false", "headers.delimiter": "\t",
    "headers.separator": ",", "headers.key.separator": ":",
}  # fmt: skip
_NULL: Final = "null.marker"
READER_HELP: Final = ", ".join([*_DEFAULTS, _NULL])


def take_line_form(
    properties: dict[str, str], key_separator: str | None, null: str | None, is_json: bool
) -> LineForm:
    """Return the form of lines, and remove from the properties what says it.

    Args:
        properties: Those of `--property`.
        key_separator: That of `--key-separator`, which comes before the properties.
        null: That of `--null`, likewise.
        is_json: Lines are JSON, and have no such form.

    Raises:
        click.UsageError: A property has no value that it can have, contradicts another, or has no effect.
    """
    found = {name: properties.pop(name) for name in (*_DEFAULTS, _NULL) if name in properties}
    if is_json and found:
        raise click.UsageError(f"{next(iter(found))} has no effect with --from-json, whose lines have that "
                               "themselves: leave it out.")
    parses = {name: _flag(name, found) for name in _PARSED}
    parses["parse.key"] |= key_separator is not None
    for name, separators in _PARSED.items():
        lost = [each for each in separators if each in found]
        if lost and not parses[name] and name not in found:
            raise _refused(f"{lost[0]} has no effect without {name}=true, so whole lines would be values")
    texts = {**_DEFAULTS, **found}
    if key_separator is not None:
        texts["key.separator"] = key_separator
    if null is not None:
        texts[_NULL] = null
    used = [each for name, separators in _PARSED.items() if parses[name] for each in separators]
    _check(texts, used, null)
    as_bytes = {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}
    return LineForm(
        as_bytes["key.separator"] if parses["parse.key"] else None,
        as_bytes.get(_NULL),
        HeaderForm(*(as_bytes[name] for name in _PARSED["parse.headers"])) if parses["parse.headers"] else None,
    )


def _flag(name: str, found: Mapping[str, str]) -> bool:
    said = found.get(name, _DEFAULTS[name]).strip().lower()
    if said not in ("true", "false"):
        raise _refused(f"{name} is {found[name]!r}; it must be true or false")
    return said == "true"


def _check(texts: Mapping[str, str], used: list[str], null: str | None) -> None:
    """Refuse separators that cannot be told apart, as Kafka's reader does; the key's may be like any other one."""
    for name in used:
        if not texts[name]:
            raise _refused(f"{name} is empty")
        if texts[name] == texts.get(_NULL):
            raise _refused(f"{name} and {'--null' if null is not None else _NULL} are both {texts[name]!r}")
    for first, second in combinations(_PARSED["parse.headers"], 2):
        if second in used and texts[first] == texts[second]:
            raise _refused(f"{first} and {second} are both {texts[first]!r}")


def _refused(reason: str) -> click.UsageError:
    return click.BadParameter(reason, param_hint="--property")
