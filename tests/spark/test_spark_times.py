"""Where batches, streams and loads begin and end by time: exactly, and by the segments of logs that have no times."""

from __future__ import annotations

import json
import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.zookeeper import znodes
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.time_search import AtTime, segment_end, segment_start, written_by_ms
from zkconsumer.spark.errors import NoMessageAtTime, OptionRefused, PlanningFailed
from zkconsumer.spark.options.option_table import OffsetSpec
from zkconsumer.spark.options.options import batch_options, stream_options
from zkconsumer.spark.reading import connections
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.bounds import LogEnds, check_named, check_times, offsets_at_times, spec_at_times
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.testing import EmbeddedCluster, Fault, load
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

Topic = Callable[[], str]
P0, P1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
HOUR_MS = 3_600_000
NOW_MS = int(time.time() * 1000)


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    yield
    connections.close_all()


def planned(cluster: Cluster, topic: str, **given: Any) -> dict[int, tuple[int, int]]:
    """What a batch reads: partition -> first offset, and the one after the last."""
    place = {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "maxBytesPerPartition": "off",
             "kafkaConsumer.pollTimeoutMs": "20000"}  # fmt: skip
    options = batch_options({**place, **{name: str(value) for name, value in given.items()}})
    return {each.partition: (each.start, each.end) for each in plan_batch(options)}


# -- by segment, in theory ---------------------------------------------------------------------------------------------


def asked_by_time(segments: list[tuple[int, int]], end: int, now_ms: int, time_ms: int | None) -> list[int]:
    """What a broker before 0.10.1 answers: the last segment that was written by then, or the end of the log."""
    known = [*segments, (end, now_ms)]
    return [begin for begin, written_ms in known if time_ms is not None and written_ms <= time_ms][-1:]


@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=40).map(sorted), st.sets(st.integers(1, 39), max_size=8),
    st.integers(0, 25_000), st.sampled_from([1, 1000]), st.integers(0, 10),
)  # fmt: skip
def test_whatever_the_segments_are_a_start_by_time_misses_nothing_behind_it_and_an_end_nothing_before_it(
    written_ms: list[int], rolls: set[int], time_ms: int, file_times_ms: int, lag_ms: int
) -> None:
    """Message n was written at `written_ms[n]`; file times are whole seconds at times, and lag behind a little."""
    begins = [0, *sorted(roll for roll in rolls if roll < len(written_ms))]
    lasts = [*(begin - 1 for begin in begins[1:]), len(written_ms) - 1]
    files = [max(0, written_ms[last] - lag_ms) // file_times_ms * file_times_ms for last in lasts]
    segments, end, now_ms = list(zip(begins, files, strict=True)), len(written_ms), max(written_ms[-1], 21_000)

    start = segment_start(asked_by_time(segments, end, now_ms, written_by_ms(time_ms, is_end=False)), end)
    assert (end if start is None else start) <= bisect_left(written_ms, time_ms)
    finish = segment_end(asked_by_time(segments, end, now_ms, written_by_ms(time_ms, is_end=True)), [*begins, end])
    assert (end if finish is None else finish) >= bisect_left(written_ms, time_ms)
    assert (end if start is None else start) <= (end if finish is None else finish)
    if start is not None and start:  # no more than the segment that was last written before, and that of the time
        assert start >= begins[max(0, bisect_right(begins, bisect_left(written_ms, time_ms - 2000)) - 2)]


def test_a_time_in_the_future_is_behind_all_messages_and_an_empty_log_has_none() -> None:
    assert segment_start([30], 30) is None
    assert segment_start([31], 30) is None  # one more message has come meanwhile
    assert segment_start([0], 0) is None
    assert segment_start([], 30) == 0


def test_no_question_is_for_the_ends_of_the_log() -> None:
    """They are -1 and -2 as times."""
    asked = [written_by_ms(time_ms, is_end) for time_ms in (0, 1, 1999, 2000) for is_end in (True, False)]
    assert asked == [None, None, 0, None, 1998, None, 1999, 0]


# -- what becomes of the answers ---------------------------------------------------------------------------------------

ENDS = {name: LogEnds(5, 30, Broker(0, "b", 9092)) for name in (P0, P1)}
STRICT = OffsetSpec("time", "startingTimestamp", time_ms=1000, on_no_match="error")


def test_offsets_by_time_stay_within_the_log() -> None:
    """Retention may delete what was found, and a cut may take it; neither was asked for by its number."""
    found = spec_at_times(STRICT, {P0: AtTime(3, 30), P1: AtTime(31, 31)}, ENDS)
    assert (found.kind, found.each) == ("found", {P0: 5, P1: 30})


def test_where_no_message_is_that_young_reading_begins_at_the_end_before_the_question() -> None:
    lenient = OffsetSpec("time", "startingTimestamp", time_ms=1000, on_no_match="latest")
    found = spec_at_times(lenient, {P0: AtTime(None, 20), P1: AtTime(7, 20)}, ENDS)
    assert found.each == {P0: 20, P1: 7}  # what has come since, up to 30, may be as young


def test_a_start_that_no_message_reaches_names_partition_and_time() -> None:
    with pytest.raises(NoMessageAtTime) as caught:
        offsets_at_times(STRICT, {P0: AtTime(3, 30), P1: AtTime(None, 30)})
    assert str(caught.value) == (
        "option startingTimestamp: no message is that recent in clicks/1 (1000, 1970-01-01T00:00:01Z); with "
        "startingOffsetsByTimestampStrategy=latest such a partition starts at its end"
    )
    unshown = OffsetSpec("time", "startingTimestamp", time_ms=2**63 - 1, on_no_match="error")
    with pytest.raises(NoMessageAtTime, match=r"clicks/1 \(9223372036854775807\)"):
        offsets_at_times(unshown, {P1: AtTime(None, 30)})


def test_times_by_json_name_just_the_partitions_to_read_and_end_after_they_begin() -> None:
    begin = OffsetSpec("time", "startingOffsetsByTimestamp", {P0: 1000, P1: 3000})
    with pytest.raises(OptionRefused, match=r"startingOffsetsByTimestamp: it omits clicks/2$"):
        check_named(begin, [P0, P1, TopicPartition("clicks", 2)])
    with pytest.raises(OptionRefused, match="it names clicks/1, not among the partitions to read"):
        check_named(begin, [P0])
    check_named(STRICT, [P0])
    end = OffsetSpec("time", "endingTimestamp", time_ms=2000)
    check_times(begin, end, [P0])
    with pytest.raises(OptionRefused, match="endingTimestamp: clicks/1 ends at 2000, before it starts at 3000"):
        check_times(begin, end, [P0, P1])


# -- by segment --------------------------------------------------------------------------------------------------------


def set_file_times(folder: Path, topic: str, hours_ago: list[int]) -> list[int]:
    """Have the segments of partition 0 last written so many hours ago; return where they begin."""
    files = sorted(folder.rglob(f"{topic}-0/*.log"))
    assert len(files) == len(hours_ago)
    for path, hours in zip(files, hours_ago, strict=True):
        at_ns = ago(hours) * 1_000_000
        os.utime(path, ns=(at_ns, at_ns))
    return [int(path.stem) for path in files]


def ago(hours: float) -> int:
    return NOW_MS - int(hours * HOUR_MS)


@pytest.fixture
def segmented(embedded_cluster: EmbeddedCluster, fresh_topic: Topic) -> str:
    """Four segments of ten messages, last written 40, 30, 20 and 10 hours ago; and an empty partition."""
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    for n in range(4):
        load(embedded_cluster, topic, 10, first=10 * n)
        if n < 3:
            embedded_cluster.log(topic, 0).roll()
    assert set_file_times(embedded_cluster.folder, topic, [40, 30, 20, 10]) == [0, 10, 20, 30]
    return topic


@pytest.mark.parametrize(
    ("begin", "end", "read"),
    [
        (400_000, 400_000, (0, 10)),  # in the last century
        (50, None, (0, 40)),
        (35, None, (0, 40)),  # the segment of 40 hours ago is the last that was written before
        (25, None, (10, 40)),
        (10.0001, None, (20, 40)),  # file times may be whole seconds
        (5, None, (30, 40)),
        (None, 50, (0, 10)),  # the first segment may have older messages
        (None, 35, (0, 20)),
        (None, 30, (0, 20)),
        (None, 15, (0, 40)),
        (None, 0, (0, 40)),
        (25, 25, (10, 30)),
    ],
)
def test_a_batch_by_segments_has_all_that_was_asked_for(
    embedded_cluster: EmbeddedCluster, segmented: str, begin: float | None, end: float | None, read: tuple[int, int]
) -> None:
    given = {"startingTimestamp": begin, "endingTimestamp": end}
    wanted = {name: ago(hours) for name, hours in given.items() if hours is not None}
    assert planned(embedded_cluster, segmented, **wanted) == {0: read}


def test_a_start_in_the_future_is_an_error_or_the_end(embedded_cluster: EmbeddedCluster, segmented: str) -> None:
    future = ago(-24)
    with pytest.raises(NoMessageAtTime, match=rf"startingTimestamp: no message is that recent in {segmented}/0 \("):
        planned(embedded_cluster, segmented, startingTimestamp=future)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert planned(embedded_cluster, segmented, startingTimestamp=future, **strategy) == {}
    assert planned(embedded_cluster, segmented, endingTimestamp=future) == {0: (0, 40)}


def test_each_partition_may_have_a_time_of_its_own(
    embedded_cluster: EmbeddedCluster, segmented: str, caplog: pytest.LogCaptureFixture
) -> None:
    embedded_cluster.add_partitions(segmented, 2)
    load(embedded_cluster, segmented, 5, partitions=[1])
    times = json.dumps({segmented: {"0": ago(25), "1": ago(25)}})
    with caplog.at_level(logging.WARNING):
        found = planned(embedded_cluster, segmented, startingOffsetsByTimestamp=times)
    assert found == {0: (10, 40), 1: (0, 5)}
    assert f"{segmented}/0 and 1 more partition: searched by segments" in caplog.text
    with pytest.raises(OptionRefused, match=f"it omits {segmented}/1"):
        planned(embedded_cluster, segmented, startingOffsetsByTimestamp=json.dumps({segmented: {"0": 1}}))
    unknown = json.dumps({segmented: {"0": 1, "1": 1, "2": 1}})
    with pytest.raises(OptionRefused, match=f"it names {segmented}/2, not among"):
        planned(embedded_cluster, segmented, endingOffsetsByTimestamp=unknown)


def test_a_stream_begins_by_time_and_reads_a_new_partition_from_its_beginning(
    embedded_cluster: EmbeddedCluster, segmented: str
) -> None:
    options = stream_options({"zookeeper.connect": embedded_cluster.zookeeper_connect, "subscribe": segmented,
                              "startingTimestamp": str(ago(15))})  # fmt: skip
    with closing(StreamDriver(options)) as driver:
        start = driver.initial_offsets()
        assert start.offsets == {TopicPartition(segmented, 0): 20}
        driver.plan(start, driver.next_offsets(start, None))
        embedded_cluster.add_partitions(segmented, 2)
        load(embedded_cluster, segmented, 3, partitions=[1])
        new = TopicPartition(segmented, 1)
        news = wait_until(lambda: [*filter(lambda end: new in end.offsets, [driver.next_offsets(start, None)])], 30,
                          "the new partition")  # fmt: skip
        assert news[0].offsets[new] == 0


def test_a_broker_that_registers_as_of_0_10_and_does_not_say_what_it_serves_is_named(
    embedded_cluster: EmbeddedCluster, segmented: str
) -> None:
    """It closes the connection on questions that 0.8 does not know, as no broker of 0.10 does."""
    path = znodes.broker_path(embedded_cluster.leader(segmented, 0))
    before = embedded_cluster.client.get(path)[0]
    given: dict[str, Any] = {"startingTimestamp": ago(25), "kafkaConsumer.pollTimeoutMs": 1500}
    try:
        embedded_cluster.client.set(path, json.dumps({**json.loads(before), "version": 4}).encode())
        with pytest.raises(PlanningFailed, match=rf"{segmented}/0 \(broker .*closed by the broker"):
            planned(embedded_cluster, segmented, **given)
    finally:
        embedded_cluster.client.set(path, before)


def test_a_leader_that_does_not_answer_is_asked_again_and_named_in_the_end(
    embedded_cluster: EmbeddedCluster, segmented: str
) -> None:
    given: dict[str, Any] = {"startingTimestamp": ago(25), "kafkaConsumer.pollTimeoutMs": 1500}
    closed = embedded_cluster.faults.add(Fault.close(api="offsets", topic=segmented), times=2)
    assert planned(embedded_cluster, segmented, **given) == {0: (10, 40)}
    assert embedded_cluster.faults.used(closed) == 2
    embedded_cluster.faults.add(Fault.error(6, "offsets", segmented), times=None)
    with pytest.raises(PlanningFailed, match=f"{segmented}/0 .*NotLeaderForPartition"):
        planned(embedded_cluster, segmented, **given)


def test_a_real_broker_of_082_is_asked_by_segments(kafka_0822: KafkaCluster, fresh_topic: Topic) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, config={"segment.bytes": 300})
    load(kafka_0822, topic, 24, batch=1)  # segments as small as the broker makes them
    leader = kafka_0822.leader(topic, 0)
    folder = kafka_0822.folder / f"broker-{leader}"
    count = len(list(folder.rglob(f"{topic}-0/*.log")))
    assert count >= 3
    begins = set_file_times(folder, topic, [10 * (count - n) for n in range(count)])
    for n in range(count - 1):  # a time between the last writes to segments n and n + 1
        hours = 10 * (count - n) - 5
        assert planned(kafka_0822, topic, startingTimestamp=ago(hours)) == {0: (begins[n], 24)}
        finish = [*begins, 24][n + 2]
        assert planned(kafka_0822, topic, endingTimestamp=ago(hours)) == {0: (0, finish)}


# -- exactly -----------------------------------------------------------------------------------------------------------

EXACT = ["0.10.2.2", "1.1.1", "2.8.2", "3.9.2"]


def produce_at(cluster: KafkaCluster, topic: str, times_ms: list[int | None], partition: int = 0) -> None:
    """One message a request, at the times, or as a producer before 0.10 does it."""
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        for time_ms in times_ms:
            if time_ms is None:
                broker.produce(topic, partition, [b"no time"])
            else:
                broker.produce(topic, partition, [b"message"], magic=1, version=2, timestamp_ms=time_ms)


@pytest.mark.slow
@pytest.mark.parametrize("version", EXACT)
def test_a_time_is_exact_from_0101_on(
    kafka_clusters: Callable[[str, int], KafkaCluster],
    fresh_topic: Topic,
    version: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic, partitions=2, config={"retention.ms": 10**12})
    times = [ago(10), ago(9), ago(9), ago(8), ago(7)]
    produce_at(cluster, topic, [*times])
    produce_at(cluster, topic, [times[0], times[4]], partition=1)
    with caplog.at_level(logging.WARNING):
        assert planned(cluster, topic, startingTimestamp=times[1]) == {0: (1, 5), 1: (1, 2)}
        assert planned(cluster, topic, startingTimestamp=times[1] + 1) == {0: (3, 5), 1: (1, 2)}
        assert planned(cluster, topic, startingTimestamp=0, endingTimestamp=times[1]) == {0: (0, 1), 1: (0, 1)}
        assert planned(cluster, topic, startingTimestamp=times[1], endingTimestamp=times[3]) == {0: (1, 3)}
        assert planned(cluster, topic, endingTimestamp=times[4] + 1) == {0: (0, 5), 1: (0, 2)}
        each = json.dumps({topic: {"0": times[3], "1": 0}})
        assert planned(cluster, topic, startingOffsetsByTimestamp=each) == {0: (3, 5), 1: (0, 2)}
        with pytest.raises(NoMessageAtTime, match=rf"{topic}/0 .*{topic}/1 "):
            planned(cluster, topic, startingTimestamp=times[4] + 1)
        strategy = {"startingOffsetsByTimestampStrategy": "latest"}
        assert planned(cluster, topic, startingTimestamp=times[4] + 1, **strategy) == {}
    assert "segments" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("version", EXACT)
def test_messages_of_old_producers_are_found_by_segments_although_the_broker_knows_times(
    kafka_clusters: Callable[[str, int], KafkaCluster],
    fresh_topic: Topic,
    version: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic)
    produce_at(cluster, topic, [None, None, None])
    with caplog.at_level(logging.WARNING):
        assert planned(cluster, topic, startingTimestamp=ago(1)) == {0: (0, 3)}
    assert f"{topic}/0: searched by segments" in caplog.text
    assert planned(cluster, topic, endingTimestamp=ago(1)) == {0: (0, 3)}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1", "2.8.2"])
def test_a_topic_that_is_kept_in_an_old_format_is_searched_by_segments(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Topic, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic, config={"message.format.version": "0.9.0"})
    produce_at(cluster, topic, [None, None, None])
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        [(code, _)] = broker.offsets_for_times({TopicPartition(topic, 0): 1000})
    assert code == 43
    assert planned(cluster, topic, startingTimestamp=ago(1)) == {0: (0, 3)}


@pytest.mark.slow
def test_a_broker_before_010_is_not_asked_for_what_it_does_not_know(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Topic
) -> None:
    """Kafka 0.9 would never answer the question what it serves."""
    cluster, topic = kafka_clusters("0.9.0.1", 1), fresh_topic()
    cluster.create_topic(topic)
    load(cluster, topic, 3)
    begun = time.monotonic()
    assert planned(cluster, topic, startingTimestamp=ago(1)) == {0: (0, 3)}
    assert time.monotonic() - begun < 15
