"""Texts of others that are nested without end, or are no UTF-8: an error of ours says so, none of Python's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from simpleconsumer.messages.schema import encode_compact_string
from simpleconsumer.primitives import encode_string
from simpleconsumer.security.sasl import Sasl, SaslRefused, conversation
from zkconsumer.cli.messages.message_lines import json_parser
from zkconsumer.cli.option_types import NameFilter
from zkconsumer.polling.arguments import pattern_of
from zkconsumer.producer.keyed_message import as_headers
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.manifest import parse_manifest
from zkconsumer.spark.streaming.stream_offsets import parse_stream_offsets

DEEP = "[" * 100_000 + "]" * 100_000
NOT_UTF8 = "x\udcff"


@pytest.fixture(autouse=True)
def limit_of_python() -> Iterator[None]:
    """What other tests of the process have set, as some libraries do, would be deep enough."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def nested_dictionaries(depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(depth):
        found = {"0": found}
    return found


def test_the_refusal_of_a_token_may_be_nested() -> None:
    talk = conversation(Sasl("OAUTHBEARER", token=lambda: "token"))
    next(talk)
    with pytest.raises(SaslRefused, match="it gives no reason"):
        talk.send(b'{"status": ' + DEEP.encode() + b"}")


@pytest.mark.parametrize("line", ['{"value": %s}', '{"value": "v", "headers": %s}', "%s"])
def test_lines_of_json_may_be_nested(line: str) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        json_parser(has_keys=True)((line % DEEP).encode())


@pytest.mark.parametrize("depth", [900, 950, 985])
def test_so_may_be_what_json_can_still_read(depth: int) -> None:
    text = '{"value": "v", "headers": {"a": %s}}' % ("[" * depth + "]" * depth)
    with pytest.raises(ValueError, match=r"nested too deep|a list is needed"):
        json_parser(has_keys=True)(text.encode())


@pytest.mark.parametrize("value", ['{"t": %s}' % DEEP, {"t": nested_dictionaries(5000)}, nested_dictionaries(5000)])  # noqa: UP031
def test_offsets_of_streams_may_be_nested(value: object) -> None:
    with pytest.raises(ValueError, match=r"offsets of a stream cannot be read: .*nested too deep"):
        parse_stream_offsets(value)


def test_manifests_may_be_nested() -> None:
    with pytest.raises(LoadRefused, match="RecursionError"):
        parse_manifest("_load/1.json", DEEP, "a load", (1,), lambda found: found, "look at it")


@pytest.mark.parametrize("text", ["(" * 5000 + ")" * 5000, "a{99999999999999999999}"])
def test_patterns_may_be_nested(text: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        pattern_of("subscribe", text)
    with pytest.raises(click.BadParameter, match="not a regular expression"):
        NameFilter().convert(text, None, None)
    assert pattern_of("subscribe", re.compile("a")).fullmatch("a")


@pytest.mark.parametrize("encode", [encode_string, encode_compact_string, lambda text: as_headers([(text, b"")])])
def test_texts_that_are_no_utf_8_are_named(encode: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="cannot be encoded as UTF-8") as caught:
        encode(NOT_UTF8)
    assert type(caught.value) is ValueError
