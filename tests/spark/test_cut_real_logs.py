"""Logs of real brokers that an unclean election cuts off between two micro-batches, or after a table was planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.interop.cut_log import KEPT, LOST, NEW, SETTINGS, WAIT_S, CutLog, numbered
from zkconsumer.spark.errors import DataLoss, MessagesLost
from zkconsumer.spark.options.options import SourceOptions, batch_options, stream_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.bounds import PlannedRange
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=[pytest.param("2.8.2", marks=pytest.mark.slow), "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, brokers=2, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def log(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> Iterator[CutLog]:
    made = CutLog(cluster, fresh_topic())
    yield made
    made.restore()


def read(ranges: list[PlannedRange], options: SourceOptions) -> list[bytes]:
    return [row["value"] for each in ranges for batch in read_range(each, ("value",), options)
            for row in batch.to_pylist()]  # fmt: skip


class Stream:
    """A stream with a checkpoint, which begins at the start of the log."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = stream_options(given)
        self.driver = StreamDriver(self.options)
        self.position = self.driver.initial_offsets()
        self.driver.plan(self.position, self.position)

    def next(self) -> StreamOffsets:
        return parse_stream_offsets(self.driver.next_offsets(self.position, None).to_json())

    def take(self, count: int) -> list[bytes]:
        """Run batches until they have brought so many messages."""
        found: list[bytes] = []

        def has_all() -> bool:
            end = self.next()
            found.extend(read(self.driver.plan(self.position, end), self.options))
            self.position = end
            return len(found) >= count

        wait_until(has_all, WAIT_S, f"{count} messages", state=lambda: found)
        return found


@pytest.mark.catalogue("F10")
def test_what_was_read_and_is_lost_is_named_and_what_is_new_is_read(log: CutLog) -> None:
    common = {"subscribe": log.topic, "startingOffsets": "earliest", "kafkaConsumer.pollTimeoutMs": "60000"}
    by_zookeeper = {**common, "zookeeper.connect": log.cluster.zookeeper_connect}
    brokers = ",".join(f"127.0.0.1:{log.cluster.port(broker_id)}" for broker_id in (0, 1))
    by_brokers = {**common, "kafka.bootstrap.servers": brokers}
    strict = [Stream(given) for given in (by_zookeeper, by_brokers)]
    lenient = [Stream({**given, "failOnDataLoss": "false"}) for given in (by_zookeeper, by_brokers)]
    before = numbered("kept", KEPT) + numbered("lost", LOST)
    assert [each.take(KEPT + LOST) for each in (*strict, *lenient)] == [before] * 4
    tables = [batch_options(given) for given in (by_zookeeper, by_brokers)]
    planned = [plan_batch(each) for each in tables]
    log.cut()
    lost = f"{log.topic}-0 from offset {KEPT} to {KEPT + LOST}: its log was truncated there when its leader changed"
    for stream in strict:
        with pytest.raises(MessagesLost, match=lost):
            wait_until(lambda: stream.next() != stream.position, WAIT_S, "the loss")  # noqa: B023
    for stream in lenient:
        assert stream.take(NEW) == numbered("new", NEW)
        assert set(stream.position.offsets.values()) == {KEPT + NEW}
    for options, ranges in zip(tables, planned, strict=True):
        with pytest.raises(
            DataLoss,
            match=rf"{LOST} offsets from {KEPT} to {KEPT + LOST - 1} are not in the log: "
            r"the log",
        ):
            read(ranges, options)
        assert read(plan_batch(options), options) == numbered("kept", KEPT) + numbered("new", NEW)
    for stream in (*strict, *lenient):
        stream.driver.close()
