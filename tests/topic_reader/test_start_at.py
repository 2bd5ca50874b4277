"""Where reading starts: what a command line and a program may name, and which offset that is."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer import ReadFailed
from zkconsumer.topic_reader.start_at import StartAt, check_start, is_exact, parse_start, start_offset, time_of

P3 = TopicPartition("clicks", 3)
NOON = datetime(2014, 3, 1, 12, tzinfo=UTC)
NOON_MS = 1_393_675_200_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"), ("beginning", "earliest"), ("smallest", "earliest"),
        ("latest", "latest"), ("end", "latest"), ("largest", "latest"), ("-0", "latest"),
        ("0", 0), ("42", 42), ("-5", -5), (str(MAX_INT64), MAX_INT64),
    ],
)  # fmt: skip
def test_words_and_numbers(text: str, start: StartAt) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["@2014-03-01T12:00:00Z", "@2014-03-01T13:00:00+01:00", f"@{NOON_MS}"])
def test_times(text: str) -> None:
    start = parse_start(text)
    assert start == NOON
    assert time_of(start) == NOON_MS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not earliest, latest, an offset"), ("newest", "'newest' is not earliest"),
        ("-", "'-' is not earliest"),
        ("5x", "'5x' is not"), ("--5", "'--5' is not"), ("٣", "is not earliest"), ("1.5", "'1.5' is not"),
        (str(MAX_INT64 + 1), "the largest offset is 9223372036854775807"),
        ("@", "'@' is not @ and a time"), ("@noon", "'@noon' is not @ and a time"),
        ("@2014-03-01", "has no time zone; append Z"), ("@2014-03-01T12:00:00", "has no time zone; append Z"),
        ("@1960-01-01T00:00:00Z", "is before 1970"), ("@" + "9" * 30, "is not @ and a time"),
        ("@2014-13-01T12:00:00Z", "is not @ and a time"),
        ("@1393675200", "@1393675200 is 1970-01-17T03:07:55+00:00, because it counts milliseconds; for seconds since "
                        "1970"),
        ("@99999999999", "append three zeros: @99999999999000"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_start(text)


@pytest.mark.parametrize(
    ("start", "offset"),
    [("earliest", 10), ("latest", 20), (10, 10), (15, 15), (20, 20), (-1, 19), (-10, 10), (-99, 10), ({3: 12}, 12)],
)
def test_each_start_is_an_offset_of_the_log(start: StartAt, offset: int) -> None:
    assert start_offset(check_start(start), P3, 10, 20, None) == offset


@pytest.mark.parametrize(("at_time", "offset"), [(None, 20), (3, 10), (12, 12), (25, 20)])
def test_a_time_is_kept_within_the_log(at_time: int | None, offset: int) -> None:
    assert start_offset(NOON, P3, 10, 20, at_time) == offset


@pytest.mark.parametrize("start", [9, 21, 0, {3: 9}, {3: 21}])
def test_a_named_offset_is_never_replaced(start: StartAt) -> None:
    with pytest.raises(ReadFailed, match=r"clicks/3: offset \d+ is not in the log, which has 10 to 20") as caught:
        start_offset(start, P3, 10, 20, None)
    assert caught.value.remedy == "start at earliest, at latest, or at an offset from 10 to 20"


def test_an_offset_behind_what_is_committed_is_not_said_to_be_behind_the_log() -> None:
    with pytest.raises(ReadFailed, match=r"10 to 20 up to its first open transaction, where read_committed ends"):
        start_offset(21, P3, 10, 20, None, read_committed=True)


def test_named_offsets_are_told_from_places_that_move_with_the_log() -> None:
    assert [is_exact(start) for start in (5, 0, {0: 5})] == [True] * 3
    assert [is_exact(start) for start in (-5, "earliest", "latest", NOON)] == [False] * 4


@pytest.mark.parametrize(
    "start",
    ["begin", MAX_INT64 + 1, datetime(2014, 3, 1), datetime(1960, 1, 1, tzinfo=UTC), {0: -1}, {-1: 0}, {0: True},
     {"0": 5}],
)  # fmt: skip
def test_impossible_values_are_refused(start: object) -> None:
    with pytest.raises(ValueError, match=r"^start "):
        check_start(start)


@pytest.mark.parametrize("start", [None, True, 1.5, b"earliest", [0]])
def test_other_types_are_refused(start: object) -> None:
    with pytest.raises(TypeError, match=r"^start is .* must be 'earliest', 'latest', an offset"):
        check_start(start)


def test_a_time_of_any_zone_counts() -> None:
    assert time_of(check_start(datetime(2014, 3, 1, 14, tzinfo=timezone(timedelta(hours=2))))) == NOON_MS
    assert time_of(5) is None
