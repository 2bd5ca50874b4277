"""Filters mean in Python what they mean in Java, or are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.errors import UnsupportedFilter
from rebalance.java_regex import java_regex

GOLDEN = Path(__file__).parents[1] / "golden" / "java_regex"
NAMES = (GOLDEN / "names.txt").read_text().splitlines()
JAVA = dict(line.split("\t") for line in (GOLDEN / "matches.tsv").read_text().splitlines())
TRANSLATED = (GOLDEN / "translated.txt").read_text().splitlines()


def refusal(filter_text: str) -> UnsupportedFilter | None:
    try:
        java_regex(filter_text)
    except UnsupportedFilter as refused:
        return refused
    return None


def matched(filter_text: str) -> str:
    pattern = java_regex(filter_text)
    return " ".join(str(index) for index, name in enumerate(NAMES) if pattern.fullmatch(name))


@pytest.mark.catalogue("N3")
@pytest.mark.parametrize("filter_text", TRANSLATED)
def test_the_documented_subset_matches_the_names_that_java_matches(filter_text: str) -> None:
    assert matched(filter_text) == JAVA[filter_text]


@pytest.mark.catalogue("N3")
@pytest.mark.parametrize("filter_text", [text for text in JAVA if text not in TRANSLATED])
def test_other_filters_are_refused_or_match_the_names_that_java_matches(filter_text: str) -> None:
    assert refusal(filter_text) is not None or matched(filter_text) == JAVA[filter_text]


def test_what_java_refuses_is_refused() -> None:
    refused_by_java = [text for text, names in JAVA.items() if names == "refused"]
    assert len(refused_by_java) > 100
    for text in refused_by_java:
        with pytest.raises(UnsupportedFilter):
            java_regex(text)


@pytest.mark.parametrize(
    ("filter_text", "position", "named"),
    [
        ("x[a&&b]", 3, "&&"),
        ("x[a[b]]", 3, "union"),
        ("[]a]", 1, "']'"),
        ("[ab", 0, "not closed"),
        ("[b-a]", 2, "range"),
        (r"[a-\d]", 2, "range"),
        (r"a\v", 1, r"\v"),
        (r"a\R", 1, r"\R"),
        (r"a\X", 1, r"\X"),
        (r"a\G", 1, r"\G"),
        (r"a\cA", 1, r"\c"),
        (r"a\E", 1, r"\E"),
        (r"a\y", 1, r"\y"),
        (r"[\Qa\E]", 1, r"\Q"),
        (r"[\1]", 1, r"\1"),
        (r"\p{L}", 0, r"\p"),
        (r"\pL", 0, r"\p"),
        (r"\p{IsAlphabetic}", 0, r"\p"),
        (r"(?i)\p{Lower}", 4, r"\p{Lower}"),
        (r"\x6", 0, "number"),
        (r"\u12", 0, "number"),
        (r"\ud800", 0, "U+D800"),
        (r"\x{110000}", 0, "U+110000"),
        (r"(?i)[\p{Lower}]", 5, r"\p{Lower}"),
        (r"(?i:\p{Lower})", 4, r"\p{Lower}"),
        (r"(a)\12", 3, "two digits"),
        (r"(a)\12b", 3, "two digits"),
        (r"\1(a)", 0, "group 1"),
        (r"(a\1)", 2, "group 1"),
        (r"\k<n>(?<n>a)", 0, r"\k"),
        ("(?<n>a)(?<n>b)", 7, "second group"),
        ("(?P<n>a)", 0, "(?P"),
        ("(?#c)", 0, "(?#"),
        ("(?x)a", 0, "'x'"),
        ("(?u)a", 0, "'u'"),
        ("(?d)a", 0, "'d'"),
        ("(?U:a)", 0, "'U'"),
        ("(?X)a", 0, "'X'"),
        ("a(b", 1, "not closed"),
        ("a(b(c", 3, "not closed"),
        ("a)b", 1, "')'"),
        ("*a", 0, "repetition"),
        ("a**", 2, "repetition"),
        ("a{2}{3}", 4, "repetition"),
        ("^*", 1, "repetition"),
        ("a|*", 2, "repetition"),
        ("(*a)", 1, "repetition"),
        (r"\Q\E*", 4, "repetition"),
        (r"\b+", 2, "repetition"),
        ("(?=a)*", 5, "repetition"),
        ("(?i)*", 4, "repetition"),
        ("{abc}", 0, "'{'"),
        ("a{,3}", 1, "'{'"),
        ("a{3,2}", 1, "out of range"),
        ("a{2147483648}", 1, "out of range"),
        ("(?<=a+)b", 5, "look-behind"),
        ("(?<!a+)b", 5, "look-behind"),
        ("a\\", 1, "backslash"),
        ("(" * 200, 100, "groups inside each other"),
    ],
)
def test_a_refusal_names_the_construct_and_its_position(filter_text: str, position: int, named: str) -> None:
    with pytest.raises(UnsupportedFilter) as refused:
        java_regex(filter_text)
    assert refused.value.position == position
    assert named in refused.value.reason
    assert filter_text in str(refused.value).replace("\\\\", "\\")


@pytest.mark.parametrize(
    ("filter_text", "reason"),
    [
        ("(a", "this group is not closed"),
        ("a)", "')' without '('"),
        (r"(a)\12", "a back-reference of two digits depends on the number of groups"),
        (r"\k<n>", r"\k needs the name of a group that is closed here"),
        ("(?P<n>a)", "'(?P' does not open a group that Java knows"),
        ("{a", r"'{' does not begin a repetition; write \{ for the character"),
        ("*", "a repetition of nothing, of an assertion, or of another repetition"),
        ("(?<=a+)b", "a repetition inside a look-behind is not translated"),
        ("a{3,2}", "the repetition {3,2} is out of range"),
    ],
)
def test_a_refusal_is_one_clause(filter_text: str, reason: str) -> None:
    with pytest.raises(UnsupportedFilter) as refused:
        java_regex(filter_text)
    assert refused.value.reason == reason


def test_what_python_cannot_compile_is_refused_in_its_words_and_without_a_position() -> None:
    with pytest.raises(UnsupportedFilter) as refused:
        java_regex("(?<=a|bb)c")
    assert (refused.value.text, refused.value.position) == ("(?<=a|bb)c", None)
    assert refused.value.reason == "Python cannot compile it: look-behind requires fixed-width pattern"


@pytest.mark.parametrize(
    ("filter_text", "name"),
    [
        ("X", "X"),
        ("aX+", "aXX"),
        (r"[\p{Lower}]", "a"),
        ("(a<n>b)", "a<n>b"),
        (r"x(?<n>a)\k<n>b", "xaab"),
        ("(?>a)+", "aa"),
        (r"(x)(y)\2\1", "xyyx"),
        (r"(?<a>x)(y)\2\1", "xyyx"),
        (r"(x)(?<b>y)\2\1", "xyyx"),
        ("a{0,2147483647}", "aa"),
        ("(?i)(?s)a|b", "B"),
        ("(?is)a", "A"),
        ("(?i)(?-ms)a", "A"),
    ],
)
def test_what_lies_beside_a_refusal_is_taken_as_in_java(filter_text: str, name: str) -> None:
    assert java_regex(filter_text).fullmatch(name)


def test_classes_are_ascii_as_in_java() -> None:
    assert not java_regex(r"\w").fullmatch("é")
    assert not java_regex(r"\d").fullmatch("٣")
    assert not java_regex("(?i)k").fullmatch("\u212a")
    assert java_regex(r"\W").fullmatch("é")
    assert java_regex(r"\h").fullmatch("\u3000")


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_quoted_text_matches_itself_alone(text: str) -> None:
    if r"\E" not in text:
        pattern = java_regex(rf"\Q{text}\E")
        assert pattern.fullmatch(text)
        assert not pattern.fullmatch(text + "x")


@given(st.text(st.sampled_from("ab.|()[]{}*+?\\^$-&,:<>=!PdwpQEk1i~# "), max_size=24))
def test_any_text_is_translated_or_refused_and_nothing_else(text: str) -> None:
    refused = refusal(text)
    if refused is not None:
        assert refused.text == text
        assert refused.position is None or 0 <= refused.position <= len(text)
