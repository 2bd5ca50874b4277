"""Streams of logs with transactions: with `read_committed` they stop at the first open one, and go on behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from transactions import PATIENCE_S, Log

from zkconsumer.spark.options.options import stream_options
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

Clusters = Callable[[str, int], KafkaCluster]
COMMITTED = {"kafka.isolation.level": "read_committed"}
SOON_S = 8.0
"""A batch takes less. A task that misses messages doubts the log for ten seconds before it reports them as lost."""


@pytest.fixture(params=["3.9.2", "4.3.1", pytest.param("2.8.2", marks=pytest.mark.slow)])
def log(request: pytest.FixtureRequest, kafka_clusters: Clusters, fresh_topic: Callable[[], str]) -> Log:
    return Log(kafka_clusters(request.param, 1), fresh_topic())


class Stream:
    """A stream as Spark drives it, with a checkpoint of its own.

    Attributes:
        position: Where the next batch starts.
        values: What its batches have brought.
    """

    def __init__(self, log: Log, **given: str) -> None:
        self._options = stream_options(
            {**log.place, "subscribe": log.topic, "startingOffsets": "earliest", "kafkaConsumer.pollTimeoutMs": "30000",
             **COMMITTED, **given}
        )  # fmt: skip
        self._log = log
        self.values: list[bytes] = []
        self.ends: list[int] = []
        self.driver = StreamDriver(self._options)
        self.position = self.stored(self.driver.initial_offsets())
        self.driver.plan(self.position, self.position)

    def stored(self, offsets: StreamOffsets) -> StreamOffsets:
        """What a checkpoint brings back."""
        return parse_stream_offsets(offsets.to_json())

    def end(self, most: int | None = None) -> StreamOffsets:
        return self.stored(self.driver.next_offsets(self.position, most))

    def read(self, end: StreamOffsets) -> list[bytes]:
        """The values of a batch from the position up to an end."""
        started_s = time.monotonic()
        ranges = self.driver.plan(self.position, end)
        batches = [batch for each in ranges for batch in read_range(each, ("value", "offset"), self._options)]
        found = [row["value"] for batch in batches for row in batch.to_pylist()]
        assert time.monotonic() - started_s < SOON_S, f"{self.position} to {end}"
        return found

    def batch(self, most: int | None = None) -> list[bytes]:
        """Run one batch, empty if there is nothing to read."""
        end = self.end(most)
        found = self.read(end)
        self.values += found
        self.position = end
        self.ends.append(self.at)
        return found

    @property
    def at(self) -> int:
        return next(iter(self.position.offsets.values()))

    def batch_with(self, *values: bytes) -> None:
        """Run batches until there are messages, which must be these: the ends of a log are known for a moment."""
        found: list[bytes] = []

        def has_all() -> bool:
            found.extend(self.batch())
            return len(found) >= len(values)

        wait_until(has_all, PATIENCE_S, f"{values}", state=lambda: found)
        assert found == [*values]

    def restart(self) -> None:
        """Continue from the checkpoint in another process, as it were; Spark plans the last batch again first."""
        self.driver.close()
        self.driver = StreamDriver(self._options)

    def close(self) -> None:
        self.driver.close()


@pytest.fixture
def streams(log: Log) -> Iterator[Callable[..., Stream]]:
    made: list[Stream] = []

    def make(**given: str) -> Stream:
        made.append(Stream(log, **given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_stream_stops_at_an_open_transaction_and_goes_on_when_it_is_committed(
    log: Log, streams: Callable[..., Stream]
) -> None:
    stream, of_all = streams(), streams(**{"kafka.isolation.level": "read_uncommitted"})
    log.plain(b"before")
    writer = log.opened(b"open 0", b"open 1")
    log.plain(b"between")
    stream.batch_with(b"before")
    of_all.batch_with(b"before", b"open 0", b"open 1", b"between")
    assert (stream.batch(), stream.at) == ([], 1), "the open transaction is the end"
    writer.commit_transaction(PATIENCE_S)
    stream.batch_with(b"open 0", b"open 1", b"between")
    assert stream.batch() == []
    assert stream.at == 5, "behind the mark of the commit"


def test_aborted_messages_are_never_delivered_and_are_no_loss(log: Log, streams: Callable[..., Stream]) -> None:
    stream = streams()
    log.aborted(b"aborted 0", b"aborted 1")
    wait_until(lambda: stream.batch() == [] and stream.at == 3, PATIENCE_S, "the aborted transaction to be passed")
    writer = log.opened(b"open")
    log.plain(b"after")
    log.aborted(b"aborted 2")
    assert (stream.batch(), stream.at) == ([], 3)
    writer.abort_transaction(PATIENCE_S)
    stream.batch_with(b"after")
    assert (stream.batch(), stream.at) == ([], 8), "messages and marks at the end are passed over"


def test_limited_batches_pass_over_gaps_of_any_length(log: Log, streams: Callable[..., Stream]) -> None:
    for number in range(4):
        log.aborted(b"a %d" % number, b"b %d" % number)
        log.kept(b"kept %d" % number)
    log.plain(b"last")
    for most in (1, 2, 3, 5, 1000):
        stream = streams()
        stream.driver.fix_target()  # as `availableNow`
        while stream.end(most) != stream.position:
            before = stream.at
            stream.batch(most)
            assert before < stream.at <= before + most
        assert (stream.values, stream.at) == (log.committed, 21), most


def test_available_now_reads_up_to_the_open_transaction_and_no_further(
    log: Log, streams: Callable[..., Stream]
) -> None:
    log.plain(b"before")
    writer = log.opened(b"open")
    stream = streams()
    stream.driver.fix_target()
    writer.commit_transaction(PATIENCE_S)
    wait_until(lambda: stream.batch() == [] and stream.at == 1, PATIENCE_S, "all that was there")
    assert stream.values == [b"before"]
    stream.restart()
    stream.driver.fix_target()
    stream.driver.plan(stream.position, stream.position)
    stream.batch_with(b"open")
    assert stream.batch() == []


def test_a_batch_that_ends_within_a_transaction_is_the_same_after_a_restart(
    log: Log, streams: Callable[..., Stream]
) -> None:
    """The transaction ends in a later batch: what was planned before that has to be read as it was."""
    stream = streams()
    log.kept(b"kept 0", b"kept 1", b"kept 2")
    log.aborted(b"aborted 0", b"aborted 1", b"aborted 2")
    log.plain(b"last")
    for most in (2, 3, 1):  # within the committed one, within the aborted one
        end = stream.end(most)
        found = stream.read(end)
        stream.restart()
        assert stream.read(end) == found, "the batch of before is planned again first"
        stream.values += found
        stream.position = end
    stream.restart()
    stream.driver.plan(stream.position, stream.position)
    wait_until(lambda: stream.batch() == [] and stream.at == 9, PATIENCE_S, "the end")
    assert stream.values == [b"kept 0", b"kept 1", b"kept 2", b"last"]


def test_many_small_tasks_of_one_batch_bring_each_message_once(log: Log, streams: Callable[..., Stream]) -> None:
    log.aborted(*[b"aborted %d" % number for number in range(10)])
    log.kept(*[b"kept %d" % number for number in range(10)])
    log.aborted(*[b"aborted too %d" % number for number in range(10)])
    for more in ({"minPartitions": "100"}, {"maxRecordsPerPartition": "4"}, {"fetch.message.max.bytes": "100"}):
        stream = streams(**more)
        stream.driver.fix_target()
        stream.batch()
        assert (stream.values, stream.at) == (log.committed, 33), more


def test_a_position_behind_an_open_transaction_waits_for_its_end(
    log: Log, streams: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    """As that of a checkpoint from before the query asked for committed messages alone."""
    of_all, stream = streams(**{"kafka.isolation.level": "read_uncommitted"}), streams()
    log.plain(b"before")
    writer = log.opened(b"open 0")
    of_all.batch_with(b"before", b"open 0")
    stream.position = of_all.position
    assert (stream.batch(), stream.at) == ([], 2)
    assert "waits for its replicas, or for an open transaction: its log ends at 2, but readers get it only up to 1" in (
        caplog.text
    )
    log.send(writer, [b"open 1"])
    writer.commit_transaction(PATIENCE_S)
    stream.batch_with(b"open 1")
