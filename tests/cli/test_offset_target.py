"""`--to`: the begin, the end, an offset or a time, and what the log must have of it."""

from __future__ import annotations

import pytest

from simpleconsumer.consumer import EARLIEST, LATEST
from zkconsumer.cli.offset_target import parse_target


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("2014-03-01T12:00:00Z", 1393675200000),
        ("2014-03-01T12:00:00", 1393675200000),
        ("2014-03-01T13:00:00.250+01:00", 1393675200250),
        ("2014-03-01", 1393632000000),
    ],
)
def test_a_time_is_utc_unless_it_names_a_zone(text: str, time_ms: int) -> None:
    assert parse_target(text).time_ms == time_ms
    assert parse_target(text).offset is None


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1.5", "9223372036854775808", "9" * 5000, "1969-12-31"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not earliest, latest|larger than any offset|before 1970"):
        parse_target(text)


@pytest.mark.parametrize(("offset", "allowed"), [(4, False), (5, True), (9, True), (10, False)])
def test_an_offset_must_be_in_the_log_or_at_its_end(offset: int, allowed: bool) -> None:
    target = parse_target(str(offset))
    assert target.times_ms == [EARLIEST, LATEST]
    if allowed:
        assert target.resolve((5, 9), force=False) == offset
    else:
        with pytest.raises(ValueError, match="its log has 5 to 9"):
            target.resolve((5, 9), force=False)
    assert target.resolve((5, 9), force=True) == offset


def test_a_time_before_the_oldest_segment_is_the_begin_of_the_log() -> None:
    target = parse_target("2001-01-01")
    assert target.resolve((5, 9, None), force=False) == 5
    assert target.resolve((5, 9, 7), force=False) == 7


@pytest.mark.parametrize("text", ["earliest", "2014-03-01", "7"])
@pytest.mark.parametrize("found", ["NotLeaderForPartition", (None, None, None)])
def test_nothing_is_guessed_about_a_log_that_is_not_known(text: str, found: str | tuple[None, ...]) -> None:
    with pytest.raises(ValueError, match="its log is not known"):
        parse_target(text).resolve(found, force=False)
