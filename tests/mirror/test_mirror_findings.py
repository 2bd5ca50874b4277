"""What a mirror tells an operator, without any broker: plans, ages, metrics, and records that are refused."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from simpleconsumer.dialect import BatchHead, encode_producer_batch, head_with
from simpleconsumer.types import TopicPartition
from zkconsumer.admin import TopicRefused
from zkconsumer.mirror.errors import BatchRefused
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.lane_settings import lag_in_ms
from zkconsumer.mirror.mirror_metrics import MirrorCollector
from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.mirror.refused_records import refused_record
from zkconsumer.mirror.sides import MirrorSettings
from zkconsumer.mirror.topics.plan_findings import Sample, guard_notes, keyless_findings, notes_of, way_of
from zkconsumer.mirror.topics.topic_settings import accepted_settings

OPERATIONS = Path(__file__).parents[2] / "docs" / "OPERATIONS.md"
CLICKS = TopicPartition("clicks", 0)
LANE = Lane("old", CLICKS, TopicPartition("copy", 0))


def batch(*sizes: int, codec: str = "none", key: bytes | None = b"k") -> bytes:
    rows = [(key, random.Random(size).randbytes(size), (), 1_000) for size in sizes]
    return encode_producer_batch([(rows, (0.0,))], codec, 0.0)


def head(*sizes: int, codec: str = "none") -> BatchHead:
    found = head_with(batch(*sizes, codec=codec), 0)
    assert found is not None
    return found


def sample(*heads: BatchHead, records: int = 1, keyless: int | None = None, partition: int = 0) -> Sample:
    return Sample(TopicPartition("clicks", partition), heads, records, keyless)


# -- ages --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lag", "oldest_ms", "age_ms"),
    [
        (0, 1_000, 0),  # nothing is to be copied, however old the last record is
        (0, -1, 0),
        (None, 1_000, None),
        (5, -1, None),  # records without times
        (5, 1_000, 9_000),
        (5, 99_000, 1),  # the clock of the source is ahead: not 0, as something is to be copied
    ],
)
def test_an_age_is_0_only_without_a_lag_and_unknown_is_not_0(
    lag: int | None, oldest_ms: int, age_ms: int | None
) -> None:
    assert lag_in_ms(lag, oldest_ms, 10.0) == age_ms


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "name", "reason"),
    [
        ((head(65_536), head(65_536)), "whole", "64 KiB on average"),
        ((head(2_000), head(2_000)), "decoded", "batches of 2 KiB are merged"),
        ((head(40_000), head(40_000), head(100)), "whole", "26 KiB on average; 1 of 3 smaller ones are merged"),
        ((head(40_000), head(100), head(100)), "decoded", "13 KiB on average; 2 of 3 smaller ones are merged"),
        ((head(40_000, codec="zstd"),), "decoded", "zstd, which the target does not take"),
    ],
)
def test_the_way_follows_from_the_sizes_and_codecs_of_batches(
    heads: tuple[BatchHead, ...], name: str, reason: str
) -> None:
    found = way_of([sample(*heads)], sets_times=False, takes_zstd=False)
    assert (found.name, found.reason) == (name, reason)


def test_the_way_of_topics_without_batches() -> None:
    assert way_of([], sets_times=False, takes_zstd=True).name == "unknown"
    assert way_of([sample()], sets_times=False, takes_zstd=True).reason == "messages of Kafka 0.8 to 0.10"
    assert way_of([sample(head(65_536))], sets_times=True, takes_zstd=True).reason == "--timestamps target"


def test_only_compacted_topics_need_keys_and_the_first_record_without_one_is_named() -> None:
    found = [sample(keyless=70, partition=2), sample(keyless=9, partition=1), sample(partition=0)]
    assert keyless_findings("copy", {"cleanup.policy": "delete"}, found) == []
    assert keyless_findings("copy", {"cleanup.policy": "compact"}, [sample()]) == []
    [said] = keyless_findings("copy", {"cleanup.policy": "compact,delete"}, found)
    assert said.startswith(
        "clicks/1 has a record without a key at offset 9, and so has 1 other partition, and topic copy"
    )


def test_notes_name_both_sides_and_nothing_is_noted_of_what_is_not_known() -> None:
    small, large = {"max.message.bytes": "1000"}, {"max.message.bytes": "2000"}

    def notes(source: dict[str, str], target: dict[str, str], *heads: BatchHead, sets_times: bool = False) -> list[str]:
        return notes_of("clicks", "copy", source, target, [sample(*heads)], sets_times=sets_times)

    assert notes({}, small) == notes(small, small) == notes(small, large) == notes(large, {}) == []
    [said] = notes(large, small)
    assert "takes 1000 bytes" in said
    assert "--topic-config max.message.bytes=2000" in said
    times = {"message.timestamp.type": "LogAppendTime"}
    assert len(notes({}, times)) == 1
    assert notes({}, times, sets_times=True) == []
    assert notes({}, {"compression.type": "gzip"}, head(10, codec="gzip")) == []
    assert notes({}, {"compression.type": "uncompressed"}, head(10)) == []
    assert len(notes({}, {"compression.type": "gzip"}, head(10))) == 1


def test_first_records_that_brokers_forget_are_told_with_the_number_of_partitions() -> None:
    def sample(partition: int, oldest_ms: int | None) -> Sample:
        return Sample(TopicPartition("clicks", partition), (), 1, None, oldest_ms)

    assert guard_notes("clicks", [], 1_000) == []
    assert guard_notes("clicks", [sample(0, None), sample(1, 1_000)], 1_000) == []
    [old] = guard_notes("clicks", [sample(0, None), sample(1, 999), sample(2, 1_000)], 1_000)
    assert "topic clicks are older than brokers keep producers (in 1 of 2 partitions" in old
    [without] = guard_notes("clicks", [sample(0, -1)], 1_000)
    assert "topic clicks have no times (in 1 of 1 partition" in without


def test_only_copied_settings_that_are_refused_are_left_out() -> None:
    def check_with(*bad: str):  # type: ignore[no-untyped-def]
        def check(settings: dict[str, str]) -> None:
            wrong = sorted(set(bad) & set(settings))
            if wrong:
                raise TopicRefused(f"unknown {wrong[0]}")

        return check

    copied, given = {"new": "1", "old": "2"}, {"mine": "3"}
    assert accepted_settings(check_with(), copied, given) == ({**copied, **given}, [], "")
    assert accepted_settings(check_with("new"), copied, given) == ({"old": "2", "mine": "3"}, ["new"], "")
    assert accepted_settings(check_with("mine", "new"), copied, given)[2] == "unknown mine"
    assert accepted_settings(check_with("new"), copied, {"new": "9"})[2] == "unknown new"


# -- records that are refused ------------------------------------------------------------------------------------------


def test_the_record_without_a_key_is_named_by_its_offset_in_the_source() -> None:
    rows = [(b"k", b"1", (), 1), (None, b"2", (), 1)]
    data = encode_producer_batch([(rows, (0.0,))], "none", 0.0)
    found = refused_record(LANE, 700, BatchRefused(LANE.target, 87, 30), data, {})
    assert (found.offset, found.code) == (701, 87)
    assert str(found).startswith("clicks/0 at offset 701: topic copy of the target refuses it: the record has no key")
    old = BatchRefused(LANE.target, 2, 30)  # as brokers before Kafka 2.4 answer; otherwise it means damage
    assert refused_record(LANE, 700, old, data, {"cleanup.policy": "compact"}).offset == 701
    assert refused_record(LANE, 700, old, data, {"cleanup.policy": "delete"}).offset == 700


def test_the_largest_record_of_a_batch_that_is_too_large_is_named_with_the_limit() -> None:
    data = batch(10, 5_000, 20)
    found = refused_record(LANE, 700, BatchRefused(LANE.target, 10, 30), data, {"max.message.bytes": "1000"})
    assert found.offset == 701
    assert f"has {len(data)} bytes, and it takes 1000 bytes (max.message.bytes)" in str(found)
    assert f"max.message.bytes={len(data)}" in found.remedy


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_every_metric_of_a_mirror_is_documented() -> None:
    mirror = Mirror(MirrorSettings("m", {"bootstrap.servers": "localhost:1"}, {"bootstrap.servers": "localhost:1"}))
    metrics = list(MirrorCollector(mirror).describe())
    named = {f"{each.name}_total" if each.type == "counter" else each.name for each in metrics}
    documented = set(re.findall(r"^\| `(zkconsumer_mirror_\w+)`", OPERATIONS.read_text(), re.MULTILINE))
    assert documented == named
