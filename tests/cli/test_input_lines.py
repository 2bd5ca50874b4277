"""Pieces of input become lines, and lines key and value."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.cli.failures import CliError
from zkconsumer.cli.messages.input_lines import KeyedLines, LineSplitter


@given(text=st.binary(max_size=60).map(lambda data: data.replace(b"\x01", b"\n")), cuts=st.lists(st.integers(0, 60)))
def test_lines_do_not_depend_on_where_the_pieces_are_cut(text: bytes, cuts: list[int]) -> None:
    splitter = LineSplitter()
    places = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    lines = [line for start, end in pairwise(places) for line in splitter.feed(text[start:end])]
    lines += splitter.finish()
    whole = text.split(b"\n")
    assert lines == (whole if whole[-1] else whole[:-1])


def test_an_empty_line_is_a_message() -> None:
    assert LineSplitter().feed(b"a\n\nb\n") == [b"a", b"", b"b"]


def test_a_carriage_return_stays() -> None:
    assert LineSplitter().feed(b"a\r\n") == [b"a\r"]


def test_a_line_without_end_is_refused_at_the_bound_and_named() -> None:
    splitter = LineSplitter(max_line_bytes=10)
    splitter.feed(b"short\n12345")
    with pytest.raises(CliError, match="line 2 of the input is longer than 10 bytes"):
        splitter.feed(b"678901")


def test_the_first_separator_counts() -> None:
    assert KeyedLines(b"::").split(b"key::a::b") == (b"key", b"a::b")


def test_without_a_separator_there_are_no_keys() -> None:
    assert KeyedLines(None).split(b"key:value") == (None, b"key:value")


def test_a_line_that_lacks_its_key_is_named() -> None:
    lines = KeyedLines(b":")
    lines.split(b"a:1")
    with pytest.raises(CliError, match="line 2 of the input has no key separator ':': 'nothing'"):
        lines.split(b"nothing")
