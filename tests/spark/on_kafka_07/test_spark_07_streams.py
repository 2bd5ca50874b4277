"""Micro-batches of a stream on Kafka 0.7, planned and read without a Spark session."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_07 import Both, entry, log_files, produce_07, send_set
from reading_07 import compressed

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import MessagesLost, NoEntryFound, PlanningFailed
from zkconsumer.spark.options.options import SourceOptions, stream_options
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.streaming import stream_logs
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def impatience(cluster: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedded brokers need no seconds to report the end of a log, or to be back."""
    if isinstance(cluster, EmbeddedCluster):
        monkeypatch.setattr(stream_logs, "SHRUNK_S", 1.0)
        monkeypatch.setattr(stream_logs, "TOPICS_S", 0.5)


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    made: list[Run] = []
    yield made
    for run in made:
        run.driver.close()


def options_of(cluster: Both, topic: str, **given: object) -> SourceOptions:
    named = {name.replace("_", "."): str(value) for name, value in given.items()}
    return stream_options({
        "zookeeper.connect": cluster.zookeeper_connect, "kafka.generation": "0.7", "subscribe": topic,
        "startingOffsets": "earliest", "kafkaConsumer.pollTimeoutMs": "15000", **named
    })  # fmt: skip


class Run:
    """One run of a query, as Spark calls it."""

    def __init__(self, runs: list[Run], options: SourceOptions, at: StreamOffsets | None = None) -> None:
        runs.append(self)
        self.options = options
        self.driver = StreamDriver(options)
        if at is None:
            at = self.driver.initial_offsets()
            self.driver.plan(at, at)
        self.at = at

    def next(self, most: int | None = None) -> list[Any]:
        """The values of the next batch that has a new end."""
        end = self.at
        for _ in range(5):  # new partitions take a step of their own, and idle ends are kept for a moment
            end = self.driver.next_offsets(self.at, most)
            if end != self.at:
                break
        self.at, start = parse_stream_offsets(end.to_json()), self.at
        ranges = self.driver.plan(start, self.at)
        return [value for each in ranges for batch in read_range(each, ("value",), self.options)
                for value in batch.column("value").to_pylist()]  # fmt: skip

    def all(self, most: int | None = None) -> list[list[Any]]:
        """The values of each batch until there are no more."""
        found = []
        while values := self.next(most):
            found.append(values)
        return found

    def until(self, count: int) -> list[Any]:
        """The values of so many messages, or of more that come with them."""
        found: list[Any] = []
        wait_until(lambda: len(found.extend(self.next()) or found) >= count, 20, f"{count} messages",
                   state=lambda: found)  # fmt: skip
        return found


def replace_log(cluster: Both, topic: str, data: bytes) -> None:
    """Give broker 1 another log of partition 1-0 while it is down."""
    cluster.stop(1)
    [log] = log_files(cluster, 1, f"{topic}-0")
    log.write_bytes(data)
    cluster.start(1)


@pytest.mark.parametrize("most", [1, 20, 60, 10_000])
def test_a_trigger_takes_whole_entries_and_at_least_one(cluster: Both, topic: str, runs: list[Run], most: int) -> None:
    data = [compressed([b"a", b"b"]), entry(b"c"), compressed([b"d"] * 3), entry(b"e"), entry(b"f")]
    send_set(cluster, topic, "0-1", b"".join(data))
    starts = {sum(map(len, data[:count])) for count in range(len(data) + 1)}
    run = Run(runs, options_of(cluster, topic))
    found, positions = [], [run.at.offsets[TopicPartition(topic, "0-1")]]
    while values := run.next(most):
        found += values
        positions.append(run.at.offsets[TopicPartition(topic, "0-1")])
    assert found == [b"a", b"b", b"c", b"d", b"d", b"d", b"e", b"f"]
    assert set(positions) <= starts
    if most == 1:
        assert sorted(starts) == positions


def test_the_checkpoint_names_partitions_and_the_cluster(cluster: Both, topic: str, runs: list[Run]) -> None:
    run = Run(runs, options_of(cluster, topic))
    text = run.at.to_json()
    assert text[topic] == {"0-0": 0, "0-1": 0, "1-0": 0, "1-1": 0}
    assert list(text["@born"]) == ["@cluster"]
    assert parse_stream_offsets(text) == run.at


def test_a_broker_that_is_away_is_waited_for_and_read_on(cluster: Both, topic: str, runs: list[Run]) -> None:
    produce_07(cluster.port(1), topic, 0, [b"before"])
    run = Run(runs, options_of(cluster, topic))
    assert run.all() == [[b"before"]]
    cluster.kill(1, expire=True)
    produce_07(cluster.port(0), topic, 0, [b"meanwhile"])
    again = Run(runs, options_of(cluster, topic), run.at)
    assert again.next() == [b"meanwhile"]
    assert again.at.offsets[TopicPartition(topic, "1-0")] == 16
    cluster.start(1)
    produce_07(cluster.port(1), topic, 0, [b"after"])
    found: list[bytes] = []
    wait_until(lambda: bool(found.extend(again.next()) or found), 20, "the broker")
    assert found == [b"after"]


def test_a_log_that_was_cut_is_a_loss(cluster: Both, topic: str, runs: list[Run]) -> None:
    produce_07(cluster.port(1), topic, 0, [b"one", b"two"])
    run = Run(runs, options_of(cluster, topic))
    assert run.all() == [[b"one", b"two"]]
    replace_log(cluster, topic, entry(b"one"))
    with pytest.raises(
        MessagesLost,
        match=rf"{topic}-1-0 from offset 13 to 26: its log was truncated and now ends "
        r"there",
    ):
        Run(runs, options_of(cluster, topic), run.at).next()
    lenient = Run(runs, options_of(cluster, topic, failOnDataLoss="false"), run.at)
    assert lenient.next() == []
    produce_07(cluster.port(1), topic, 0, [b"new"])
    found: list[bytes] = []
    wait_until(lambda: bool(found.extend(lenient.next()) or found), 20, "the end of the log")
    assert found == [b"new"]


def test_another_log_is_named_and_read_from_its_start(
    cluster: Both, topic: str, runs: list[Run], caplog: pytest.LogCaptureFixture
) -> None:
    produce_07(cluster.port(1), topic, 0, [b"one", b"two"])
    run = Run(runs, options_of(cluster, topic))
    assert run.all() == [[b"one", b"two"]]
    values = [b"another", b"log", b"than before"]
    replace_log(cluster, topic, b"".join(map(entry, values)))
    with pytest.raises(MessagesLost, match="position 26 is inside its entry from 17 to 30"):
        Run(runs, options_of(cluster, topic), run.at).next()
    lenient = Run(runs, options_of(cluster, topic, failOnDataLoss="false"), run.at)
    with caplog.at_level(logging.WARNING):
        assert lenient.all() == []  # one batch that stores the new start
        assert lenient.all() == [values]
    assert "its log was replaced" in caplog.text


def test_another_log_with_an_entry_at_the_same_position_is_named_by_a_run_that_has_read_the_old_one(
    cluster: Both, topic: str, runs: list[Run], caplog: pytest.LogCaptureFixture
) -> None:
    produce_07(cluster.port(1), topic, 0, [b"one", b"two"])
    strict = Run(runs, options_of(cluster, topic))
    lenient = Run(runs, options_of(cluster, topic, failOnDataLoss="false"))
    assert strict.all() == lenient.all() == [[b"one", b"two"]]
    ended_at = strict.at
    produce_07(cluster.port(1), topic, 0, [b"same"])  # nothing is said of a log that is the same
    assert strict.until(1) == lenient.until(1) == [b"same"]
    values = [b"six", b"ten", b"more", b"new"]
    replace_log(cluster, topic, b"".join(map(entry, values)))  # entries start at 13, 26 and 40, as in the old log
    with pytest.raises(
        MessagesLost,
        match=r"the 14 bytes before position 40 are not the bytes with which the last "
        r"batch ended",
    ):
        strict.until(1)
    with caplog.at_level(logging.WARNING):
        assert lenient.until(len(values)) == values
    assert caplog.text.count("its log was replaced") == 1
    # A run that starts at a checkpoint has not read the old log. It goes on at the position, and nothing worse happens.
    restarted = Run(runs, options_of(cluster, topic), ended_at)
    assert restarted.until(2) == values[2:]


def test_a_damaged_size_on_the_way_ends_the_stream_with_its_place(cluster: Both, topic: str, runs: list[Run]) -> None:
    send_set(cluster, topic, "1-0", entry(b"one") + entry(b"two") + entry(b"three"))
    replace_log(cluster, topic, entry(b"one") + b"\xff\xff\xff\xff" + entry(b"two")[4:] + entry(b"three"))
    run = Run(runs, options_of(cluster, topic))
    place = rf"{topic}/1-0 on .*entry at byte 13, after 1 entries, has size -1, counted from position 0"
    with pytest.raises(NoEntryFound, match=place):
        run.next(20)


def test_group_offsets_are_where_the_stream_starts_and_where_it_ended(
    cluster: Both, topic: str, fresh_group: str, runs: list[Run]
) -> None:
    send_set(cluster, topic, "0-0", compressed([b"a", b"b"]) + entry(b"c"))
    path = f"/consumers/{fresh_group}/offsets/{topic}/0-0"
    behind = len(compressed([b"a", b"b"]))
    cluster.client.create(path, b"%d" % behind, makepath=True)
    run = Run(runs, options_of(cluster, topic, startingOffsets="group", group_id=fresh_group))
    assert run.all() == [[b"c"]]
    run.driver.store(run.at)
    assert cluster.client.get(path)[0] == b"%d" % (behind + len(entry(b"c")))


def test_a_checkpoint_of_another_generation_is_refused(cluster: Both, topic: str, runs: list[Run]) -> None:
    there = StreamOffsets({TopicPartition(topic, 0): 5})
    with pytest.raises(PlanningFailed, match=r"the checkpoint has partition 0 of .* another generation of Kafka"):
        Run(runs, options_of(cluster, topic), there).next()
