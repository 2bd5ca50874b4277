"""Tables of Kafka 0.7, planned and read without a Spark session."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from itertools import pairwise

import pytest
from kafka_07 import (
    BOTH_07,
    Both,
    cluster_07,
    damage_second_of_three,
    entry,
    four_segments,
    produce_07,
    send_set,
)
from reading_07 import compressed, options_of, planned, rows_of

from zkconsumer.spark.errors import DataLoss, OptionRefused, PartitionUnreadable, PlanningFailed, TopicMissing
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real


def at(topic: str, **positions: int) -> str:
    """Positions of partitions as JSON; `p0_1` is partition 0-1."""
    return json.dumps({topic: {name[1:].replace("_", "-"): position for name, position in positions.items()}})


def test_a_table_has_every_message_at_its_place(cluster: Both, topic: str) -> None:
    wanted = []
    for broker, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
        values = [f"{broker}-{number}:{n}".encode() for n in range(3)]
        produce_07(cluster.port(broker), topic, number, values)
        wanted += [{"value": value, "topic": topic, "partition": broker * 65536 + number, "offset": 15 * n,
                    "broker": broker, "entry_index": 0} for n, value in enumerate(values)]  # fmt: skip
    assert rows_of(cluster, topic) == wanted


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_messages_of_a_compressed_entry_share_a_position_and_are_told_apart(
    cluster: Both, topic: str, codec: str
) -> None:
    plain, packed = entry(b"plain"), compressed([b"a", b"b", b"c"], codec)
    send_set(cluster, topic, "1-0", plain + packed + packed)
    rows = rows_of(cluster, topic)
    first, second = len(plain), len(plain) + len(packed)
    assert [(row["value"], row["offset"], row["entry_index"]) for row in rows] == [
        (b"plain", 0, 0),
        (b"a", first, 0), (b"b", first, 1), (b"c", first, 2),
        (b"a", second, 0), (b"b", second, 1), (b"c", second, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("parts", [2, 7, 50, 5000])
def test_tasks_start_and_end_at_entries_and_lose_nothing(cluster: Both, topic: str, parts: int) -> None:
    values = [b"%d:" % n + b"x" * (n % 97) for n in range(1000)]
    data = b"".join(
        compressed(values[n : n + 10]) if n % 3 else b"".join(map(entry, values[n : n + 10]))
        for n in range(0, 1000, 10)
    )
    send_set(cluster, topic, "0-0", data)
    ranges = planned(cluster, topic, minPartitions=parts)
    assert 1 < len(ranges) <= parts
    assert (ranges[0].start, ranges[-1].end) == (0, len(data))
    assert all(here.end == after.start for here, after in pairwise(ranges))
    rows = rows_of(cluster, topic, minPartitions=parts)
    assert [row["value"] for row in rows] == values


def test_a_cut_within_an_entry_larger_than_a_fetch_is_moved_to_its_end(cluster: Both, topic: str) -> None:
    large = bytes(900_000)
    produce_07(cluster.port(0), topic, 0, [large, large, large])
    ranges = planned(cluster, topic, maxBytesPerPartition="2m", fetch_message_max_bytes=300_000)
    size = len(large) + 10
    # The wanted cut is in the middle of the second message.
    assert [(each.start, each.end) for each in ranges] == [(0, 2 * size), (2 * size, 3 * size)]


def test_positions_of_options_are_those_of_entries(cluster: Both, topic: str) -> None:
    send_set(cluster, topic, "0-0", b"".join(entry(b"%d" % n) for n in range(5)))
    some = {
        "startingOffsets": at(topic, p0_0=11, p0_1=-2, p1_0=-2, p1_1=-2),
        "endingOffsets": at(topic, p0_0=33, p0_1=-1, p1_0=-1, p1_1=-1),
    }
    assert [row["value"] for row in rows_of(cluster, topic, **some)] == [b"1", b"2"]


@pytest.mark.parametrize("position", [12, 15, 21])
def test_a_position_within_an_entry_is_refused_with_both_ends_of_it(cluster: Both, topic: str, position: int) -> None:
    send_set(cluster, topic, "0-0", b"".join(entry(b"%d" % n) for n in range(5)))
    start = at(topic, p0_0=position, p0_1=-2, p1_0=-2, p1_1=-2)
    with pytest.raises(
        OptionRefused,
        match=f"startingOffsets: {topic}/0-0: position {position} is inside the entry "
        "from 11 to 22; 11 and 22 are possible",
    ):
        planned(cluster, topic, startingOffsets=start)
    end = at(topic, p0_0=position, p0_1=-1, p1_0=-1, p1_1=-1)
    with pytest.raises(OptionRefused, match=r"endingOffsets: .* 11 and 22 are possible"):
        planned(cluster, topic, endingOffsets=end)


def test_offsets_of_a_group_are_used_and_lead_to_the_start_of_an_entry(
    cluster: Both, topic: str, fresh_group: str, caplog: pytest.LogCaptureFixture
) -> None:
    send_set(cluster, topic, "0-0", b"".join(entry(b"%d" % n) for n in range(5)))
    path = f"/consumers/{fresh_group}/offsets/{topic}/0-0"
    cluster.client.create(path, b"33", makepath=True)
    group = {"startingOffsets": "group", "group_id": fresh_group}
    assert [row["value"] for row in rows_of(cluster, topic, **group)] == [b"3", b"4"]
    cluster.client.set(path, b"40")
    with caplog.at_level(logging.WARNING):
        assert [row["value"] for row in rows_of(cluster, topic, **group)] == [b"3", b"4"]
    assert "position 40 is inside the entry from 33 to 44; reading starts at 33" in caplog.text


def test_a_time_starts_at_a_segment(cluster: Both, topic: str) -> None:
    send_set(cluster, topic, "0-0", entry(b"one") + entry(b"two"))
    assert len(rows_of(cluster, topic, startingTimestamp=1000)) == 2
    later = {"startingTimestamp": 4102444800000, "startingOffsetsByTimestampStrategy": "latest"}
    assert rows_of(cluster, topic, **later) == []


@pytest.mark.parametrize("kind", BOTH_07)
def test_a_time_starts_at_the_newest_segment_that_was_written_before(
    kind: str, zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    with cluster_07(kind, 1, zookeeper=zookeeper, chroot=f"/{name}", settings={"log.file.size": 100}) as cluster:
        values, base_s = four_segments(cluster, name)
        for time_s, first in ((900, 0), (1900, 0), (2100, 2), (3500, 4), (4100, 6)):
            rows = rows_of(cluster, name, startingTimestamp=(base_s + time_s) * 1000)
            assert [row["value"] for row in rows] == values[first:], time_s
        again = rows_of(cluster, name, startingTimestamp=(base_s + 3500) * 1000, minPartitions=4)
        assert [row["value"] for row in again] == values[4:]


def test_a_position_behind_the_log_is_lost(cluster: Both, topic: str) -> None:
    send_set(cluster, topic, "0-0", entry(b"one"))
    start = at(topic, p0_0=1000, p0_1=-2, p1_0=-2, p1_1=-2)
    with pytest.raises(DataLoss, match=f"{topic}/0-0: 987 bytes from 13 to 999 are not in the log"):
        planned(cluster, topic, startingOffsets=start)


def test_a_damaged_message_is_named_skipped_or_made_a_row(cluster: Both, topic: str) -> None:
    damage_second_of_three(cluster, topic)
    with pytest.raises(PartitionUnreadable, match=f"{topic}/0-0 at 16 .* CrcMismatch"):
        rows_of(cluster, topic)
    assert [row["value"] for row in rows_of(cluster, topic, onMessageError="skip")] == [b"before", b"behind"]
    rows = rows_of(cluster, topic, onMessageError="row")
    assert [(row["value"], row["offset"], row["broker"], row["entry_index"]) for row in rows] == [
        (b"before", 0, 0, 0), (None, 16, 0, 0), (b"behind", 33, 0, 0),
    ]  # fmt: skip
    assert "CrcMismatch" in rows[1]["error"]


def test_a_message_larger_than_the_largest_fetch_is_named(cluster: Both, topic: str) -> None:
    produce_07(cluster.port(0), topic, 0, [b"small", bytes(900_000), b"behind"])
    limits = {"maxMessageBytes": "500000", "fetch_message_max_bytes": 100_000}
    with pytest.raises(PartitionUnreadable, match=r"at 15 .* it takes 900010 bytes, and the limit is 500000"):
        rows_of(cluster, topic, **limits)
    kept = rows_of(cluster, topic, onMessageError="skip", **limits)
    assert [row["value"] for row in kept] == [b"small", b"behind"]


def test_a_cluster_of_07_is_refused_unless_the_options_name_it(cluster: Both, topic: str) -> None:
    with pytest.raises(PlanningFailed, match=r"are of Kafka 0\.7.*set option kafka.generation to 0.7"):
        plan_batch(options_of(cluster, topic, kafka_generation="auto"))


def test_a_partition_that_does_not_exist_is_named_with_those_that_do(cluster: Both, topic: str) -> None:
    options = options_of(cluster, topic)
    assign = json.dumps({topic: ["3-7"]})
    from zkconsumer.spark.options.options import batch_options

    given = {"zookeeper.connect": options.config.zookeeper_connect, "kafka.generation": "0.7", "assign": assign}
    with pytest.raises(
        TopicMissing, match=r"partition 3-7 of topic .* does not exist in .* has 0-0, 0-1, 1-0, 1-1 on the brokers"
    ):
        plan_batch(batch_options(given))


def test_a_topic_whose_brokers_are_all_away_is_no_empty_table(cluster: Both, fresh_topic: Callable[[], str]) -> None:
    name = fresh_topic()
    cluster.client.create(f"/brokers/topics/{name}", makepath=True)
    with pytest.raises(TopicMissing, match=f"no broker that is registered in ZooKeeper at .* has topic '{name}'"):
        planned(cluster, name)
