"""Group tests of kafka-python and franz-go, made anew with our consumer.

Source: kafka-python test/test_consumer_group.py; franz-go pkg/kgo/group_test.go, TestGroupETL.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from polling import PATIENCE_S, VERSIONS, address_of, consumer_of, offsets, poll_until, threads_of

from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerRecord, KafkaConsumer
from zkconsumer.producer import Producer, ProducerConfig
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

PARTITIONS = 8
RECORDS = 4000
VALUE = b"a small body"


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def of_brokers(cluster: KafkaCluster) -> KafkaCluster:
    if cluster.version == "0.8.2.2":
        pytest.skip("these groups are in ZooKeeper")
    return cluster


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_four_consumers_have_one_of_four_partitions_each_in_one_generation(
    of_brokers: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, stack: ExitStack
) -> None:
    """kafka-python's test_group."""
    topic = fresh_topic()
    of_brokers.create_topic(topic, 4)
    consumers = [stack.enter_context(consumer_of(of_brokers, fresh_group, topic)) for _ in range(4)]
    found: dict[int, frozenset[TopicPartition]] = {}

    def is_shared() -> bool:
        for number, consumer in enumerate(consumers):
            consumer.poll(50)
            found[number] = consumer.assignment()
        generations = {consumer.group_metadata().generation_id for consumer in consumers}
        return len(generations) == 1 and all(len(each) == 1 for each in found.values())

    wait_until(is_shared, 35.0, "one partition each", interval_s=0.0, state=lambda: found)
    assert frozenset().union(*found.values()) == {TopicPartition(topic, number) for number in range(4)}


def test_a_partition_that_is_paused_before_the_first_poll_returns_nothing(
    cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 2)
    load(cluster, topic, 20)
    with consumer_of(cluster, None) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        consumer.pause(TopicPartition(topic, 0))
        assert {record.partition for record in poll_until(consumer, 20)} == {1}
        assert not consumer.poll(500)
        consumer.resume(TopicPartition(topic, 0))
        assert offsets(poll_until(consumer, 20)) == list(range(20))


def test_pauses_of_assigned_partitions_end_with_the_assignment(
    cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    """kafka-python's test_paused."""
    name = TopicPartition(fresh_topic(), 1)
    with consumer_of(cluster, None) as consumer:
        consumer.assign([name])
        assert (consumer.assignment(), consumer.paused()) == ({name}, frozenset())
        consumer.pause(name)
        assert consumer.paused() == {name}
        consumer.resume(name)
        assert consumer.paused() == frozenset()
        consumer.pause(name)
        consumer.unsubscribe()
        assert consumer.paused() == frozenset()


class Quit(Exception):  # noqa: N818 - it ends a block, and is no error
    """The member leaves without having done what its last poll returned."""


class Stage:
    """A group that moves records from one topic to the next, with members that come and go.

    Args:
        make: Makes a member.
        producer: Sends to the next topic.
        target: The next topic.
    """

    def __init__(self, make: Callable[[], KafkaConsumer], producer: Producer, target: str) -> None:
        self._make = make
        self._producer = producer
        self._target = target
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.keys: dict[int | str, list[tuple[int, int]]] = defaultdict(list)
        self.seen: set[tuple[int | str, int]] = set()
        self.problems: list[str] = []
        self.is_over = threading.Event()

    def add(self, polls_before_quit: int | None = None) -> None:
        """Start a member, which leaves for good when it has moved the records of so many polls."""
        self._threads.append(threading.Thread(target=self._run, args=(polls_before_quit,), daemon=True))
        self._threads[-1].start()

    def _run(self, polls_before_quit: int | None) -> None:
        try:
            with self._make() as consumer:
                polls = 0
                while not self.is_over.is_set():
                    records = consumer.poll(100)
                    if not records:
                        continue
                    if polls == polls_before_quit:
                        raise Quit
                    polls += 1
                    for record in records:
                        self._move(record)
                    self._producer.flush(PATIENCE_S)
        except Quit:
            pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.problems.append(repr(error))

    def _move(self, record: ConsumerRecord[Any, Any]) -> None:
        at = record.partition, record.offset
        with self._lock:
            if at in self.seen:
                self.problems.append(f"offset {record.offset} of partition {record.partition} came twice")
            if record.value != VALUE:
                self.problems.append(f"value {record.value!r} at offset {record.offset} of {record.partition}")
            self.seen.add(at)
            self.keys[record.partition].append((record.offset, int(record.key)))
        self._producer.send(self._target, record.value, key=record.key)

    def join(self) -> None:
        """End all members."""
        self.is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("strategy", ["cooperative-sticky", *(
    pytest.param(each, marks=pytest.mark.slow) for each in ("range", "roundrobin", "sticky")
)])  # fmt: skip
def test_a_chain_of_groups_whose_members_come_and_go_moves_each_record_once_and_in_order(
    of_brokers: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, strategy: str
) -> None:
    """franz-go's TestGroupETL."""
    topics = [fresh_topic() for _ in range(4)]
    for topic in topics:
        of_brokers.create_topic(topic, PARTITIONS)
    with Producer(ProducerConfig(metadata_broker_list=address_of(of_brokers))) as producer:

        def stage(number: int) -> Stage:
            def make() -> KafkaConsumer:
                return consumer_of(of_brokers, f"{fresh_group}-{number}", topics[number], max_poll_records=100,
                                   partition_assignment_strategy=strategy)  # fmt: skip

            return Stage(make, producer, topics[number + 1])

        stages = [stage(number) for number in range(3)]
        for each in stages:
            for polls in (None, 0, 2, 3, None):
                each.add(polls)
        for number in range(RECORDS):
            producer.send(topics[0], VALUE, key=str(number).encode())
        try:
            wait_until(lambda: all(len(each.seen) >= RECORDS for each in stages) or any(e.problems for e in stages),
                       3 * PATIENCE_S, "all records", state=lambda: [len(each.seen) for each in stages])  # fmt: skip
        finally:
            for each in stages:
                each.join()
    for each in stages:
        assert not each.problems
        assert sorted(key for pairs in each.keys.values() for _, key in pairs) == list(range(RECORDS))
        for pairs in each.keys.values():
            assert pairs == sorted(pairs)  # in the order of the log
    for pairs in stages[0].keys.values():
        assert [key for _, key in pairs] == sorted(key for _, key in pairs)  # which is that of the producer
    wait_until(lambda: not threads_of(), PATIENCE_S, "the end of all threads", state=threads_of)
