"""Pieces of input become lines, and lines key and value."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import MAX_INT64, HeaderMessage
from zkconsumer.cli.messages.message_lines import (
    HeaderForm,
    LineForm,
    LineSplitter,
    LongLine,
    ParsedLine,
    json_line,
    json_parser,
    line_parser,
)

MIB = 1024 * 1024


@given(text=st.binary(max_size=60).map(lambda data: data.replace(b"\x01", b"\n")), cuts=st.lists(st.integers(0, 60)),
       limit=st.integers(1, 20))  # fmt: skip
def test_lines_do_not_depend_on_where_the_pieces_are_cut(text: bytes, cuts: list[int], limit: int) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    whole = text.split(b"\n")
    wanted = whole if whole[-1] else whole[:-1]
    splitter, bounded = LineSplitter(MIB), LineSplitter(limit)
    found = [line for start, end in pairwise(places) for line in splitter.feed(text[start:end])] + splitter.finish()
    assert found == wanted
    found = [line for start, end in pairwise(places) for line in bounded.feed(text[start:end])] + bounded.finish()
    # A line within one piece is whole: it was in memory before it was a line.
    assert [line.size if isinstance(line, LongLine) else len(line) for line in found] == list(map(len, wanted))
    assert all(line == whole for line, whole in zip(found, wanted, strict=True) if not isinstance(line, LongLine))
    assert all(line.size > limit for line in found if isinstance(line, LongLine))


def test_an_empty_line_is_a_message() -> None:
    assert LineSplitter(MIB).feed(b"a\n\nb\n") == [b"a", b"", b"b"]


def test_a_carriage_return_stays() -> None:
    assert LineSplitter(MIB).feed(b"a\r\n") == [b"a\r"]


def test_of_a_line_above_the_bound_the_size_is_kept_alone() -> None:
    splitter = LineSplitter(max_line_bytes=10)
    assert splitter.feed(b"short\n12345") == [b"short"]
    assert splitter.feed(b"678901") == []
    assert splitter.has_rest
    assert splitter.feed(b"23\nnext\n1234567890") == [LongLine(13), b"next"]
    assert splitter.finish() == [b"1234567890"]
    assert not splitter.has_rest
    assert splitter.finish() == []


def test_the_first_separator_counts() -> None:
    assert line_parser(LineForm(b"::"))(b"key::a::b") == ParsedLine(b"key", b"a::b")


def test_a_line_that_lacks_its_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"it has no key separator ':': 'noth\\x00ing'"):
        line_parser(LineForm(b":"))(b"noth\x00ing")


def test_a_text_may_stand_for_null() -> None:
    parse = line_parser(LineForm(b":", b"null"))
    assert parse(b"null:null") == ParsedLine(None, None)
    assert parse(b"nul:null ") == ParsedLine(b"nul", b"null ")
    assert line_parser(LineForm(None, b"-"))(b"-") == ParsedLine(None, None)
    assert line_parser(LineForm(None, b"-"))(b"--") == ParsedLine(None, b"--")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"h0:v0,h1:v1\tkey\tvalue", (b"key", b"value", (("h0", b"v0"), ("h1", b"v1")))),
        (b"h:a:b\tk\tv\tw", (b"k", b"v\tw", (("h", b"a:b"),))),
        (b":\t\t", (b"", b"", (("", b""),))),
        (b"NIL\tNIL\tNIL", (None, None, ())),
        (b"h0:NIL,h0:NILx\tk\t", (b"k", b"", (("h0", None), ("h0", b"NILx")))),
        ("größe:\t\t".encode(), (b"", b"", (("größe", b""),))),
        (b"\tk\tv", (b"k", b"v", ())),
        (b"h:\xff\tk\tv", (b"k", b"v", (("h", b"\xff"),))),
    ],
)
def test_headers_stand_before_the_key_as_in_kafkas_console_producer(
    line: bytes, expected: tuple[Any, Any, Any]
) -> None:
    assert line_parser(LineForm(b"\t", b"NIL", HeaderForm()))(line) == ParsedLine(*expected)


def test_separators_of_headers_are_texts_of_any_length() -> None:
    form = LineForm(b"##", None, HeaderForm(b"!!", b"|", b"=="))
    assert line_parser(form)(b"a==1|b==!!k##v") == ParsedLine(b"k", b"v", (("a", b"1"), ("b", b"")))
    assert line_parser(form._replace(key_separator=None))(b"a==1!!k##v") == ParsedLine(None, b"k##v", (("a", b"1"),))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"h:v", "it has no headers delimiter '!': 'h:v'"),
        (b"h:v!k", r"it has no key separator '\\t': 'h:v!k'"),
        (b"a:1,hv!k\tv", "its header 'hv' has no ':' between name and value"),
        (b"NIL:v!k\tv", "the name of its header 'NIL:v' is null, but a name cannot be null"),
        (b"\xff:v!k\tv", "the name of its header '\ufffd' is not UTF-8, as names have to be"),
    ],
)
def test_a_line_whose_headers_cannot_be_read_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        line_parser(LineForm(b"\t", b"NIL", HeaderForm(b"!")))(line)


BYTES = st.none() | st.binary(max_size=9)
HEADERS = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), BYTES), max_size=4)


@given(key=BYTES, value=BYTES, headers=HEADERS, time_ms=st.none() | st.integers(0, MAX_INT64))
def test_what_consume_prints_as_json_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], time_ms: int | None
) -> None:
    line = json_line(HeaderMessage("t", 0, 7, 8, key, value, time_ms, headers=tuple(headers)))
    assert json_parser(True)(line.removesuffix(b"\n")) == ParsedLine(key, value, tuple(headers), time_ms)
    assert ("headers" in json.loads(line)) == bool(headers)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{", "it is not JSON: "),
        ([1], 'it is not a JSON object with a "value"'),
        ({"key": "k"}, 'it is not a JSON object with a "value"'),
        ({"value": 1}, "\"value\" is '1'; it must be text or null"),
        ({"value": "x", "value_encoding": "base65"}, "\"value_encoding\" is 'base65'; it must be base64"),
        ({"value": "x", "value_encoding": "base64"}, '"value" is not base64'),
        ({"value": "x", "key": "\ud800"}, "surrogates not allowed"),
        ({"value": "x", "headers": {"h": "v"}}, "\"headers\" is \"{'h': 'v'}\"; it must be a list"),
        ({"value": "x", "headers": [{"key": None, "value": ""}]}, "is not an object with a text"),
        ({"value": "x", "headers": [{"key": "h"}]}, "is not an object with a text"),
        ({"value": "x", "headers": [{"key": "\ud800", "value": ""}]}, "surrogates not allowed"),
        ({"value": "x", "headers": [{"key": "h", "value": "x", "value_encoding": "base64"}]}, "is not base64"),
    ],
)
def test_json_that_is_no_message_is_refused(entry: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        json_parser(True)(entry.encode() if isinstance(entry, str) else json.dumps(entry).encode())


@pytest.mark.parametrize(
    "shown", ["-5", "-1", "true", '"17"', "1.5", "9223372036854775808", '{"a": [1]}', f'"{"x" * 90}"']
)
def test_a_time_that_cannot_be_sent_is_refused_with_its_limit_and_the_option_that_sends_the_line(shown: str) -> None:
    line = f'{{"value": "v", "timestamp_ms": {shown}}}'.encode()
    limit = f"it must be a whole number from 0 to {MAX_INT64}, or null: --times now sends the line without it"
    with pytest.raises(ValueError, match=re.escape(f'"timestamp_ms" is {shown[:60]}; {limit}')):
        json_parser(True)(line)
    assert json_parser(True, keeps_times=False)(line) == ParsedLine(None, b"v")


def test_keys_headers_and_times_are_refused_where_none_is_stored() -> None:
    assert json_parser(False)(b'{"value": "v", "key": null}') == ParsedLine(None, b"v")
    with pytest.raises(ValueError, match=r"it has a key, but Kafka 0\.7 stores no keys"):
        json_parser(False)(b'{"value": "v", "key": "k"}')
    with pytest.raises(ValueError, match=r"it has the time 5, but Kafka 0\.7 stores no times"):
        json_parser(False)(b'{"value": "v", "timestamp_ms": 5}')
    with pytest.raises(ValueError, match=r"it has headers, but Kafka 0\.7 stores no headers"):
        json_parser(False)(b'{"value": "v", "headers": [{"key": "k", "value": null}]}')
