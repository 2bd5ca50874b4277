"""Transactions on three real brokers that die, stop and stand still, in which one message in fifty is too large.

The application looks at no error of a message, and commits: a transaction is read as a whole or not at all.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from zkconsumer import read_topic
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import Producer, ProducerError, ProducerFenced, TransactionFailed
from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.producer.transactions import TransactionState
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [pytest.mark.real, pytest.mark.slow]

CHAOS_S: Final = float(os.environ.get("ZKCONSUMER_CHAOS_SECONDS", "90"))
WAIT_S: Final = 120.0
TOPIC: Final = "chaos"
PARTITIONS: Final = 3
ONE_IN: Final = 50
LARGEST_HERE, LARGEST_THERE = 20_000, 10_000
BROKERS = {
    "min.insync.replicas": 2, "unclean.leader.election.enable": False, "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3, "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 6, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}  # fmt: skip


def send_each(made: Producer, values: list[bytes], rng: random.Random) -> None:
    for value in values:
        made.send(TOPIC, value, partition=rng.randrange(PARTITIONS))


def send_together(made: Producer, values: list[bytes], rng: random.Random) -> None:
    made.send_all([(b"%d" % rng.randrange(9), value) for value in values], TOPIC)


def send_read_on_the_way(made: Producer, values: list[bytes], rng: random.Random) -> None:
    made.send_all(iter(values), TOPIC)


def send_as_batch(made: Producer, values: list[bytes], rng: random.Random) -> None:
    made.send_batch(TOPIC, [(None, value) for value in values], rng.randrange(PARTITIONS))


def send_in_columns(made: Producer, values: list[bytes], rng: random.Random) -> None:
    columns = made.columns()
    columns.add(MessageColumns(TOPIC, values, None, [rng.randrange(PARTITIONS) for _ in values]))
    columns.finish()


WAYS: Final[tuple[Callable[[Producer, list[bytes], random.Random], None], ...]] = (
    send_each, send_together, send_read_on_the_way, send_as_batch, send_in_columns,
)  # fmt: skip


class Writer:
    """Writes transactions from `start()` until `over` is set, and knows what became of each.

    Attributes:
        outcomes: Number of a transaction -> committed, aborted, or unknown where another epoch has settled it.
        sizes: Number of a transaction -> how many messages it has.
        spoiled: Those with a message that is too large.
        remade: How often the producer was made anew.
    """

    def __init__(self, brokers: str, name: str, over: threading.Event) -> None:
        self.name = name
        self.outcomes: dict[int, str] = {}
        self.sizes: dict[int, int] = {}
        self.spoiled: set[int] = set()
        self.remade = 0
        self.fault: BaseException | None = None
        self._rng = random.Random(name)
        self._brokers = brokers
        self._over = over
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            number = 0
            while not self._over.is_set():
                with self._producer() as made:
                    while not self._over.is_set():
                        self.outcomes[number] = self._transact(made, number)
                        number += 1
                        if made._transactional()[0].state in (TransactionState.FENCED, TransactionState.SPENT):
                            break
            with self._producer():
                pass  # ends what the last one has left open
        except BaseException as error:  # noqa: BLE001 - top of the thread: `join` raises it
            self.fault = error

    def _producer(self) -> Producer:
        self.remade += 1
        made = Producer(ProducerConfig(
            metadata_broker_list=self._brokers, transactional_id=self.name, producer_type="async",
            queue_buffering_max_ms=2, request_timeout_ms=3000, retry_backoff_ms=50, message_send_max_retries=20,
            message_max_bytes=LARGEST_HERE,
        ))  # fmt: skip
        made.init_transactions(WAIT_S)
        return made

    def _transact(self, made: Producer, number: int) -> str:
        values = self._values(number)
        made.begin_transaction()
        try:
            self._rng.choice(WAYS)(made, values, self._rng)
        except ProducerError:
            pass  # as an application that looks at none
        is_unsure = False
        until = time.monotonic() + WAIT_S
        while True:
            try:
                made.commit_transaction(10.0)
            except ProducerFenced:
                return "unknown" if is_unsure else "aborted"
            except TransactionFailed as error:
                if not error.outcome_is_unknown:
                    break
                is_unsure = True
                if time.monotonic() > until:
                    raise
            else:
                return "committed"
        self._abort(made, until)
        return "aborted"

    def _abort(self, made: Producer, until: float) -> None:
        while True:
            try:
                made.abort_transaction(10.0)
            except ProducerFenced:
                return
            except TransactionFailed:
                if made._transactional()[0].state is TransactionState.SPENT:
                    return
                if time.monotonic() > until:
                    raise
            else:
                return

    def _values(self, number: int) -> list[bytes]:
        count = self.sizes[number] = self._rng.randrange(1, 12)
        values = []
        for index in range(count):
            value = f"{self.name} {number} {index} ".encode()
            if not self._rng.randrange(ONE_IN):
                self.spoiled.add(number)
                value += b"x" * self._rng.choice([LARGEST_THERE + 1, LARGEST_HERE + 1])
            values.append(value)
        return values


def harm(cluster: KafkaCluster, over: threading.Event) -> Counter[str]:
    """Have one broker after the other fail until the time is over; return how often each thing was done."""
    done: Counter[str] = Counter()
    rng = random.Random(7)
    until = time.monotonic() + CHAOS_S
    while time.monotonic() < until and not over.is_set():
        broker = rng.randrange(3)
        kind = rng.choice(["kill", "kill", "stop", "stand still"])
        done[kind] += 1
        if kind == "stand still":
            cluster.pause(broker)
            over.wait(rng.choice([1.0, 4.0, 8.0]))
            cluster.resume(broker)
        else:
            (cluster.kill if kind == "kill" else cluster.stop)(broker)
            over.wait(rng.choice([0.5, 3.0]))
            cluster.start(broker)
        over.wait(rng.choice([1.0, 4.0]))
    return done


def values_of(rows: list[bytes | None]) -> Counter[tuple[str, int]]:
    """Writer and number of a transaction -> how many different messages of it are there."""
    keys = [tuple((row or b"").split(b" ")[:3]) for row in rows]
    assert len(keys) == len(set(keys)), "a message is there twice"
    return Counter((key[0].decode(), int(key[1])) for key in keys)


def read_by_confluent(brokers: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": brokers, "group.id": "none", "enable.partition.eof": True, "enable.auto.commit": False,
        "isolation.level": "read_committed", "auto.offset.reset": "earliest",
    })  # fmt: skip
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        found, ended = [], set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is None:
                found.append(message.value())
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


def read(brokers: str) -> list[bytes | None]:
    properties: dict[str, Any] = {"bootstrap.servers": brokers, "isolation.level": "read_committed"}
    return [message.value for message in read_topic(None, TOPIC, properties=properties)]


@pytest.fixture(params=["4.3.1", "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, 3, settings=BROKERS) as made:
        yield made


def test_no_transaction_is_read_in_part(cluster: KafkaCluster) -> None:
    cluster.create_topic(TOPIC, PARTITIONS, replication=3, config={"max.message.bytes": LARGEST_THERE})
    brokers = ",".join(f"127.0.0.1:{cluster.port(each)}" for each in cluster.brokers)
    over = threading.Event()
    writers = [Writer(brokers, f"writer-{number}", over) for number in range(3)]
    for each in writers:
        each.start()
    try:
        done = harm(cluster, over)
    finally:
        over.set()
    for each in writers:
        each.join()
    committed = sum(list(each.outcomes.values()).count("committed") for each in writers)
    expected = sum(each.sizes[number] for each in writers
                   for number, outcome in each.outcomes.items() if outcome == "committed")  # fmt: skip
    rows = wait_until(lambda: found if len(found := read_by_confluent(brokers)) >= expected else None, WAIT_S,
                      f"{expected} messages")  # fmt: skip
    assert sorted(read(brokers)) == sorted(rows)  # type: ignore[type-var]
    counts = values_of(rows)
    half = {(each.name, number): (counts[each.name, number], each.sizes[number]) for each in writers
            for number in each.outcomes if counts[each.name, number] not in (0, each.sizes[number])}  # fmt: skip
    assert half == {}
    for each in writers:
        for number, outcome in each.outcomes.items():
            wanted = {"committed": {each.sizes[number]}, "aborted": {0}}.get(outcome, {0, each.sizes[number]})
            assert counts[each.name, number] in wanted, (each.name, number, outcome)
            if number in each.spoiled:
                assert not counts[each.name, number], (each.name, number)
    spoiled = sum(len(each.spoiled) for each in writers)
    unknown = sum(list(each.outcomes.values()).count("unknown") for each in writers)
    print(f"{cluster.version}: {sum(len(each.outcomes) for each in writers)} transactions, {committed} committed, "
          f"{spoiled} with a message that is too large, {unknown} unknown, {len(rows)} messages read, "
          f"{sum(each.remade for each in writers)} producers; {dict(done)}")  # fmt: skip
    assert committed > 20
    assert spoiled > 5
