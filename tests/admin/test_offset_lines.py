"""Stored offsets as lines: what Kafka's tools write is read, and nothing that cannot be used is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.admin.offsets.offset_lines import (
    OffsetLine,
    fault_of,
    fault_of_group,
    format_line,
    format_lines,
    parse_lines,
    parse_store,
)

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
LINES = st.builds(OffsetLine, NAMES, NAMES, st.integers(0, 999_999_999).map(str), st.integers(0, 2**63 - 1),
                  store=st.just("zookeeper"))  # fmt: skip


@given(st.lists(LINES, unique_by=lambda line: line[:3]))
def test_what_is_written_is_read(lines: list[OffsetLine]) -> None:
    text = "".join(f"{format_line(line)}\n" for line in lines)
    assert parse_lines(text) == (lines, [])


def test_a_partition_of_kafka_07_and_a_file_of_another_system_are_read() -> None:
    text = "/consumers/g/offsets/t/1-0:7\r\n\r\n/consumers/g:x/offsets/t/0:8"
    assert parse_lines(text) == ([OffsetLine("g", "t", "1-0", 7), OffsetLine("g:x", "t", "0", 8)], [])


def test_the_highest_offset_is_one() -> None:
    highest = OffsetLine("g", "t", "0", 2**63 - 1)
    assert parse_lines(format_line(highest)) == ([highest], [])


@pytest.mark.parametrize(
    "bad",
    [
        "nonsense",
        "/consumers/g/offsets/t/0",
        "/consumers/g/offsets/t/0:",
        "/consumers/g/offsets/t/0:null",
        "/consumers/g/offsets/t/0:-1",
        "/consumers/g/offsets/t/0:1.5",
        "/consumers/g/offsets/t/0:9223372036854775808",
        "/consumers/g/offsets/t/zero:1",
        "/consumers/g/offsets/t/0:1:2",
        "/consumers/g/owners/t/0:1",
        "/consumers/../offsets/t/0:1",
        "/consumers/g/offsets/./0:1",
        "/consumers/g/h/offsets/t/0:1",
        "/consumers/g\x00/offsets/t/0:1",
        "/chroot/consumers/g/offsets/t/0:1",
    ],
)
def test_a_bad_line_is_named_by_its_number(bad: str) -> None:
    lines, problems = parse_lines(f"/consumers/g/offsets/t/0:1\n\n{bad}\n/consumers/g/offsets/t/1:2\n")
    assert lines == [OffsetLine("g", "t", "0", 1), OffsetLine("g", "t", "1", 2)]
    [problem] = problems
    assert problem.startswith(f"line 3: {bad!r}: ")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        *[
            (
                f"{name}:1",
                f"the partition {name!r} is neither a number from 0 to 999999999 without leading zeros, nor "
                "a name of Kafka 0.7 such as 0-3",
            )
            for name in ("99999999999", "00", "x", "01-1", "1-", "12345678901-0")
        ],
        ("0:-1", "the offset '-1' is not a number from 0 to 9223372036854775807"),
        ("0", "it does not have the form of an offset"),
    ],
)
def test_the_fault_of_a_bad_line_is_named(bad: str, reason: str) -> None:
    assert fault_of(f"/consumers/g/offsets/t/{bad}") == reason


def test_an_id_of_a_broker_of_07_may_have_ten_digits() -> None:
    assert fault_of("/consumers/g/offsets/t/2147483647-0:1") is None


def test_the_byte_order_mark_of_an_editor_is_skipped() -> None:
    assert parse_lines("\ufeff/consumers/g/offsets/t/0:1\n") == ([OffsetLine("g", "t", "0", 1)], [])
    assert parse_store("\ufeff# store kafka\n") == "kafka"


def test_comments_carry_what_each_store_has() -> None:
    same, differs, zookeeper, kafka = (OffsetLine("g", "t", str(number), number) for number in range(4))
    lines = [same, differs, differs._replace(offset=9, store="kafka"), zookeeper, kafka._replace(store="kafka")]
    text = format_lines(lines, None, {same[:3]})
    found, problems = parse_lines(text)
    assert problems == []
    assert set(found) == {*lines, same._replace(store="kafka")}


def test_a_comment_about_an_offset_that_no_line_has_is_a_problem() -> None:
    comment = "# kafka only /consumers/g/offsets/t/0"
    assert parse_lines(f"/consumers/g/offsets/t/1:1\n\n{comment}\n")[1] == [
        "line 3: no line has an offset for '/consumers/g/offsets/t/0'"
    ]


def test_a_partition_that_comes_twice_is_named_with_both_lines() -> None:
    root = "/consumers/g/offsets/t"
    lines, problems = parse_lines(f"{root}/0:1\n{root}/1:1\n{root}/0:2\n{root}/2:3\n")
    assert [line.offset for line in lines] == [1, 1, 3]
    assert problems == ["line 3: the same partition as line 1"]


def test_names_of_groups_may_have_blanks_inside_and_none_at_their_ends() -> None:
    assert parse_lines("/consumers/my group/offsets/t/0:1\n") == ([OffsetLine("my group", "t", "0", 1)], [])
    for name in (" g", "g ", "a\tb", "a\u2028b", "a/b", "..", ""):
        assert fault_of_group(name) == f"the group {name!r} has characters that are not allowed in a name"
