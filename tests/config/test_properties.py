"""Properties files are read as java.util.Properties reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.config.properties import last_values, parse_properties, read_property_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Truth = Beauty", {"Truth": "Beauty"}),
        ("  Truth:Beauty", {"Truth": "Beauty"}),
        ("Truth                    :Beauty", {"Truth": "Beauty"}),
        ("Truth Beauty", {"Truth": "Beauty"}),
        ("fruits                           apple, banana, pear, \\\n   cantaloupe, watermelon, \\\n   kiwi, mango",
         {"fruits": "apple, banana, pear, cantaloupe, watermelon, kiwi, mango"}),
        ("cheeses", {"cheeses": ""}),
        ("", {}),
        ("\n \t\f\n", {}),
        ("# a = b\n  ! c = d\n\t#x", {}),
        ("# ends in \\\na=b", {"a": "b"}),
        ("a=b # c", {"a": "b # c"}),
        ("a==b", {"a": "=b"}),
        ("a= = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("=b", {"": "b"}),
        (r"a\=b\:c\ d=e", {"a=b:c d": "e"}),
        (r"a=\t\n\r\f\\\z\"", {"a": "\t\n\r\f\\z\""}),
        (r"a=\u00fc\uD83D\uDE00", {"a": "ü\U0001f600"}),
        ("a=b  ", {"a": "b  "}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
        ("a=\\\n\n c=d", {"a": "", "c": "d"}),
        ("a=\\\n # b", {"a": "# b"}),
        ("a=1\ra=2\r\nb=3", {"a": "2", "b": "3"}),
        ("zookeeper.connect=zk1:2181,zk2:2181/kafka", {"zookeeper.connect": "zk1:2181,zk2:2181/kafka"}),
    ],
)  # fmt: skip
def test_the_syntax_of_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u", r"\uxyzw=1", r"a=\u00g0"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties(text)


@pytest.mark.parametrize(
    "data",
    ["a=grüße".encode(), "a=grüße".encode("latin-1"), b"\xef\xbb\xbf" + "a=grüße".encode(), b"a=gr\\u00fc\\u00dfe"],
    ids=["UTF-8", "ISO 8859-1", "UTF-8 with mark", "ASCII"],
)
def test_encodings(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(data)
    assert last_values(read_property_lines(tmp_path / "p")) == {"a": "grüße"}


def stored(entries: dict[str, str]) -> str:
    """Properties text as `java.util.Properties.store` writes it."""
    lines = []
    for key, value in entries.items():
        blanks = len(value) - len(value.lstrip(" "))
        lines.append(f"{escaped(key, ' ')}={escaped(value[:blanks], ' ')}{escaped(value[blanks:], '')}\n")
    return "".join(lines)


def escaped(text: str, blanks: str) -> str:
    return "".join(escaped_char(char, blanks) for char in text)


def escaped_char(char: str, blanks: str) -> str:
    letters = {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}
    if char in letters or char in "\\=:#!" or char in blanks:
        return "\\" + letters.get(char, char)
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{high << 8 | low:04x}" for high, low in zip(units[::2], units[1::2], strict=True))


text = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(text, text, max_size=6))
def test_what_java_writes_reads_back_the_same(entries: dict[str, str]) -> None:
    written = stored(entries)
    assert written.isascii()
    assert parse_properties(written) == entries
