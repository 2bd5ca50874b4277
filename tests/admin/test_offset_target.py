"""`--to`: the begin, the end, an offset or a time, and what the log must have of it."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from simpleconsumer.consumer import EARLIEST, LATEST
from zkconsumer.admin import BrokerAdmin
from zkconsumer.admin.offsets.offset_plans import parse_target
from zkconsumer.testing import EmbeddedCluster


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("2014-03-01T12:00:00Z", 1393675200000),
        ("2014-03-01T12:00:00", 1393675200000),
        ("2014-03-01T13:00:00.250+01:00", 1393675200250),
        ("2014-03-01", 1393632000000),
        ("1970-01-01", 0),
        ("beginning", EARLIEST),
        ("smallest", EARLIEST),
        ("end", LATEST),
        ("largest", LATEST),
        ("@1393675200000", 1393675200000),
    ],
)
def test_a_time_is_utc_unless_it_names_a_zone(text: str, time_ms: int) -> None:
    assert parse_target(text) == (text, None, time_ms)


def test_a_time_is_utc_wherever_the_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_target("2014-03-01").time_ms == 1393632000000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "-1",
        "1.5",
        "9223372036854775808",
        "9" * 5000,
        "0" * 20 + "9" * 20,
        "1969-12-31",
        "@",
        "@x",
        "@" + "9" * 30,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not earliest, latest|larger than the largest|before 1970"):
        parse_target(text)


def test_the_highest_offset_can_be_named() -> None:
    assert parse_target(str(2**63 - 1)) == (str(2**63 - 1), 2**63 - 1, None)


@pytest.mark.parametrize(("text", "offset"), [("0", 0), ("007", 7), ("0" * 5000, 0)])
def test_an_offset_may_have_zeros_before_it(text: str, offset: int) -> None:
    assert parse_target(text) == (text, offset, None)


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


def test_a_time_is_set_within_the_log_and_to_its_end_where_no_message_is_that_recent() -> None:
    """Brokers that search by segment name 0 where no segment is that old."""
    target = parse_target("2001-01-01")
    assert [target.resolve((5, 9, found), force=False) for found in (None, 0, 7, 9, 10)] == [9, 5, 7, 9, 9]


@pytest.mark.parametrize("text", ["earliest", "2014-03-01", "7"])
@pytest.mark.parametrize(
    ("found", "why"),
    [
        ("NotLeaderForPartition", "NotLeaderForPartition"),
        ((None, 9, None), "the leader reports no offsets"),
        ((5, None, None), "the leader reports no offsets"),
    ],
)
def test_nothing_is_guessed_about_a_log_that_is_not_known(
    text: str, found: str | tuple[int | None, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=rf"^its log could not be read \({why}\)$"):
        parse_target(text).resolve(found, force=False)


@pytest.mark.parametrize("generation", ["0.10", "3.9", "4.3"])
def test_a_time_is_the_first_message_at_or_after_it_where_brokers_and_messages_have_times(
    generation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And not the start of the segment file that was written then: a group would read it again from there on."""
    base_ms = 1_700_000_000_000
    with EmbeddedCluster(1, generation=generation, zookeeper=False) as cluster:
        cluster.create_topic("clicks", 1, config={"retention.ms": "-1"})
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.broker_list})
        for number in range(10):
            producer.produce("clicks", b"%d" % number, timestamp=base_ms + number * 1000)
        assert producer.flush(30) == 0
        admin = BrokerAdmin(cluster.broker_list)
        found = {
            after_ms: admin.set_offsets("billing", "clicks", f"@{base_ms + after_ms}", dry_run=True).changes[0].new
            for after_ms in (-1, 0, 4999, 5000, 5001, 9000, 9001)
        }
    assert found == {-1: 0, 0: 0, 4999: 5, 5000: 5, 5001: 6, 9000: 9, 9001: 10}
    assert "segments" not in caplog.text
