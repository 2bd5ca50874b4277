"""Lanes on real brokers: what is in the log is there once and in order, and what shows that it would not be stops them.

The rules of brokers on which lanes stand are tests, too: what real brokers of each version do with batches of one id.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from lane_writing import SOURCE, WAIT_S, Wire, counted, lane, now_ms, source_batch, write

from simpleconsumer import codecs
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, BatchNotWhole, BatchProducer, Obstacle, head_with, restamped
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import TopicPartition
from zkconsumer.mirror.errors import AnotherWriter, BelowRun, LaneStuck, Misplaced, NumberRefused
from zkconsumer.mirror.lanes.lane_events import Run
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

SLOW = pytest.mark.slow
DAY_MS = 86_400_000
VERSIONS = [*(pytest.param(each, marks=SLOW) for each in ("0.11.0.3", "1.1.1", "2.8.2", "4.3.1")), "3.9.2"]


@pytest.fixture(params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def name(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> TopicPartition:
    topic = fresh_topic()
    cluster.create_topic(topic, config={"retention.ms": -1})
    return TopicPartition(topic, 0)


def test_a_lane_writes_every_record_once_and_the_next_one_goes_on_at_the_end(
    cluster: KafkaCluster, name: TopicPartition
) -> None:
    run = Run(Wire(cluster, name).new_id(), 0)
    with lane(cluster, name, run) as first:
        assert write(first, 2_000) == 2_000
    with lane(cluster, name, run) as second:
        assert second.position(WAIT_S) == 2_000
        assert write(second, 3_000, rng=random.Random(2)) == 3_000
    assert counted(cluster, name.topic) == 3_000


def test_a_foreign_batch_stops_the_lane_under_way_by_its_offset_and_the_next_one_by_the_end_of_the_log(
    cluster: KafkaCluster, name: TopicPartition
) -> None:
    """The number of the lane's next batch is right all the same, so brokers store it: behind its own offset."""
    wire = Wire(cluster, name)
    run = Run(wire.new_id(), 0)
    with lane(cluster, name, run) as sender:
        write(sender, 100)
        assert wire.put_foreign(100)[:2] == (0, 100)
        with pytest.raises(Misplaced, match=f"{name.topic}/0: .*20 records expected at 100, found at 101; 40 records"):
            write(sender, 200)
        assert sender.stored == 100
    with lane(cluster, name, run) as second:
        with pytest.raises(AnotherWriter) as caught:
            second.position(WAIT_S)
        end = wire.end()
        assert f"ends at offset {end - 1} with sequence {end - 1}" in caught.value.expected
        assert f"ends at offset {end - 1} with sequence {end - 2}" in caught.value.found


# -- whole batches -----------------------------------------------------------------------------------------------------


def batch_at(wire: Wire, offset: int) -> bytes:
    """The batch with an offset, as it is stored."""
    [fetched] = wire.client.multifetch([(*wire.name, offset, 1)], 0, 1)
    assert not fetched.error_code
    return bytes(fetched.message_set)


def test_compressed_batches_are_stored_whole_with_the_bytes_of_their_records(
    cluster: KafkaCluster, name: TopicPartition, fresh_topic: Callable[[], str]
) -> None:
    """Fetched from one topic, in which the broker sets the times, into another one, in which the producer does."""
    source = TopicPartition(fresh_topic(), 0)
    cluster.create_topic(source.topic, config={"retention.ms": -1, "message.timestamp.type": "LogAppendTime"})
    reading, wire = Wire(cluster, source), Wire(cluster, name)
    has_zstd = version_tuple(cluster.version) >= (2, 1)
    names = [each for each in codecs.BATCH_CODECS if has_zstd or each != "zstd"]
    for index, codec in enumerate(names):
        assert reading.put_foreign(index * 100, 100, codec)[:2] == (0, index * 100)
    run = Run(wire.new_id(), 0)
    with lane(cluster, name, run) as sender:
        for index in range(len(names)):
            position = sender.position(WAIT_S)
            assert sender.send(batch_at(reading, index * 100), source, position, WAIT_S)
        assert sender.flush(WAIT_S) == 100 * len(names)
        if not has_zstd:
            with pytest.raises(BatchNotWhole) as caught:
                sender.send(source_batch(400, 1, "zstd"), SOURCE, sender.position(WAIT_S), WAIT_S)
            assert caught.value.obstacle is Obstacle.ZSTD
    for index, codec in enumerate(names):
        before, after = batch_at(reading, index * 100), batch_at(wire, index * 100)
        assert after[61:] == before[61:], codec
        head = head_with(after, index * 100)
        assert head is not None
        assert (head.attributes, head.producer_id) == (codecs.BATCH_CODECS[codec], run.producer.producer_id)
        assert (head.base_sequence, head.base_offset, head.records) == (index * 100, index * 100, 100)
        assert head.max_timestamp_ms == head.base_timestamp_ms, "the broker has found the times of the records"
    assert counted(cluster, name.topic) == 100 * len(names)


def test_a_batch_that_cannot_be_copied_whole_leaves_the_lane_as_it_was(
    cluster: KafkaCluster, name: TopicPartition
) -> None:
    with lane(cluster, name, Run(Wire(cluster, name).new_id(), 0)) as sender:
        write(sender, 50)
        holes = encode_record_batch([(b"k", b"a"), (b"k", b"b")], offsets=[7, 9])
        with pytest.raises(BatchNotWhole, match=r"source/0 at 7: .*2 records on 3 offsets"):
            sender.send(holes, SOURCE, sender.position(WAIT_S), WAIT_S)
        write(sender, 100)
    assert counted(cluster, name.topic) == 100


def test_the_next_run_continues_the_number_and_a_log_that_ends_before_a_run_is_named(
    cluster: KafkaCluster, name: TopicPartition
) -> None:
    producer = Wire(cluster, name).new_id()
    with lane(cluster, name, Run(producer, 0)) as first:
        write(first, 50)
    with lane(cluster, name, Run(producer, 50, first_sequence=50)) as second:
        write(second, 100)
    with lane(cluster, name, Run(producer, 200)) as third, pytest.raises(BelowRun, match=r"ends at 100, before .* 200"):
        third.position(WAIT_S)
    assert counted(cluster, name.topic) == 100


# -- what needs brokers of its own -------------------------------------------------------------------------------------


@pytest.fixture(params=VERSIONS)
def pair(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Two brokers of its own, to be frozen and killed."""
    settings = {"min.insync.replicas": 1, "replica.lag.time.max.ms": 60_000, "offsets.topic.replication.factor": 1,
                "offsets.topic.num.partitions": 1}  # fmt: skip
    if version_tuple(request.param) < (4,):
        settings["zookeeper.session.timeout.ms"] = 60_000  # a frozen broker stays registered
    with KafkaCluster(request.param, 2, settings=settings) as found:
        yield found


def test_records_of_forty_days_ago_are_there_once_also_where_the_leader_forgets_the_producer(
    pair: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    """Leaders go by the times of records, at every restart. And what replicas do not have yet is told from the rest."""
    name = TopicPartition(fresh_topic(), 0)
    pair.create_topic(name.topic, assignment={0: [0, 1]}, config={"retention.ms": -1})
    wire = Wire(pair, name, 0)
    run, old = Run(wire.new_id(), 0), {"time_ms": now_ms() - 40 * DAY_MS}
    with lane(pair, name, run) as sender:
        assert write(sender, 300, **old) == 300
        assert not sender.is_guarded

    check_what_replicas_lack(pair, wire, run)

    pair.kill(0, expire=pair.has_zookeeper)
    pair.kill(1, expire=pair.has_zookeeper)
    pair.start(1)
    pair.start(0)
    with lane(pair, name, run) as sender:
        if version_tuple(pair.version) >= (2, 5):
            assert write(sender, 600, **old) == 600
            end = 600
        else:
            with pytest.raises(NumberRefused) as caught:
                write(sender, 600, **old)
            assert caught.value.code == (59 if version_tuple(pair.version) >= (1, 0) else 45)
            end = caught.value.offset
            assert (caught.value.sequence, end) == (310, 310)
            with lane(pair, name, run.next_epoch(end)) as next_one:
                assert write(next_one, 600, **old) == 600
            assert Wire(pair, name).put(run.producer, 0)[0] == 47, "a process with the former epoch is refused"
    assert counted(pair, name.topic) == 600


def check_what_replicas_lack(pair: KafkaCluster, wire: Wire, run: Run) -> None:
    """While a replica is frozen, the log ends before what the leader has; it can be asked for both."""
    pair.pause(1)
    try:
        data = source_batch(300, 10, time_ms=now_ms() - 40 * DAY_MS)
        with SimpleConsumer("127.0.0.1", pair.port(0), dialect=KAFKA011) as other:
            stamp = BatchProducer(*run.producer, 300)
            whole = restamped(data, SOURCE, stamp, takes_zstd=False).data
            other.produce_sets({wire.name: whole}, acks=1)
        assert wire.end() == 300
        [appended] = wire.client.ask(KAFKA011.appended_ends({wire.name: -1}))
        assert (appended.error_code, appended.offset) == (0, 310)
        with lane(pair, wire.name, run) as sender, pytest.raises(LaneStuck):
            sender.position(1.0)
    finally:
        pair.resume(1)
    wait_until(lambda: wire.replicas_in_sync() == {0, 1} and wire.end() == 310, WAIT_S, "the replica to have all")
