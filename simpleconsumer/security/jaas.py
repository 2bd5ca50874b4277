"""Reads `sasl.jaas.config`, in which Java users have name and password of PLAIN and SCRAM. Pure.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

Source: Kafka 4.3.1, JaasConfig: words, or texts in quotation marks with backslashes, `=`, and a semicolon at the end.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

__all__ = ["JaasEntry", "parse_jaas"]

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


class Sign(Enum):
    """What stands between words."""

    EQUALS = "="
    END = ";"


class JaasEntry(NamedTuple):
    """One login module.

    Attributes:
        module: Name of its class, without the package.
        options: Its options.
    """

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> JaasEntry:
    """Return the login module of a text.

    Raises:
        ValueError: It does not follow the grammar, or has more than one module; says where, without values.
    """
    tokens = _tokens(text)
    words = [each for each in tokens if isinstance(each, str)]
    if len(tokens) < 3 or len(words) < 2 or tokens[:2] != words[:2] or words[1].lower() not in _FLAGS:
        raise ValueError("it must start with the class of a login module and 'required'")
    if tokens[-1] is not Sign.END:
        raise ValueError("it must end with a semicolon")
    if Sign.END in tokens[:-1]:
        raise ValueError("it has more than one login module")
    rest = tokens[2:-1]
    if [each if isinstance(each, Sign) else "" for each in rest] != ["", Sign.EQUALS, ""] * (len(rest) // 3):
        raise ValueError(f"options must follow '{words[1]}', such as username=\"alice\"")
    return JaasEntry(words[0].rpartition(".")[2], dict(zip(words[2::2], words[3::2], strict=True)))


def _tokens(text: str) -> list[str | Sign]:
    found: list[str | Sign] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"character {at + 1} starts neither a word nor a closed text in quotation marks")
        double, single, sign, word = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            found.append(Sign(sign) if sign else word)
        at = match.end()
    return found
