"""Transactions of other clients, read with each `isolation.level`: by topic, by request, by command line, by Spark.

Groups that read them are in `test_record_batches_live`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import FetchRequest, TopicPartition
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, KafkaConsumer, ReadFailed, read_topic
from zkconsumer.cli.program import program
from zkconsumer.spark.options.options import SourceOptions, batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.real

Clusters = Callable[[str, int], KafkaCluster]
SLOW = pytest.mark.slow
VERSIONS = [*(pytest.param(each, marks=SLOW) for each in ("0.11.0.3", "1.1.1", "2.8.2")), "3.9.2", "4.3.1"]
WITH_ZOOKEEPER = VERSIONS[:-1]
PATIENCE_S = 60
COMMITTED = {"isolation.level": "read_committed"}


class Log:
    """A topic of one partition, what is written to it, and who writes it.

    Attributes:
        everything, committed: The values that readers of each level get.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, **config: object) -> None:
        self.cluster, self.topic = cluster, topic
        self.brokers = f"127.0.0.1:{cluster.port(0)}"
        self.everything: list[bytes] = []
        self.committed: list[bytes] = []
        cluster.create_topic(topic, config=config)
        self._plain = confluent_kafka.Producer({"bootstrap.servers": self.brokers})
        self._count = 0

    def plain(self, *values: bytes) -> None:
        """Write messages outside of any transaction."""
        self._send(self._plain, values)
        self.committed += values

    def _send(self, producer: Any, values: tuple[bytes, ...]) -> None:
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        self.everything += values

    def opened(self, *values: bytes) -> Any:
        """Write messages in a transaction that stays open; return its producer."""
        self._count += 1
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.brokers, "transactional.id": f"{self.topic}-{self._count}"}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        self._send(producer, values)
        return producer

    def aborted(self, *values: bytes) -> None:
        """Write messages in a transaction, and abort it."""
        self.opened(*values).abort_transaction(PATIENCE_S)

    def kept(self, *values: bytes) -> None:
        """Write messages in a transaction, and commit it."""
        self.opened(*values).commit_transaction(PATIENCE_S)
        self.committed += values

    def read(self, **named: Any) -> list[bytes | None]:
        """Return what a reader of the topic delivers up to its end, as it is at the start."""
        with read_topic(None, self.topic, **{"properties": {}, **named, **self._place(named)}) as reader:
            return [message.value for message in reader]

    def _place(self, named: dict[str, Any]) -> dict[str, Any]:
        return {"properties": {"bootstrap.servers": self.brokers, **named.get("properties", {})}}

    @contextmanager
    def broker(self, *, read_committed: bool) -> Iterator[SimpleConsumer]:
        """A connection to the broker."""
        with SimpleConsumer(
            "127.0.0.1", self.cluster.port(0), dialect=KAFKA011, read_committed=read_committed
        ) as consumer:
            yield consumer

    def end(self, *, read_committed: bool) -> int:
        """The end of the log."""
        with self.broker(read_committed=read_committed) as broker:
            return broker.get_offsets_before(self.topic, 0, LATEST)[0]

    def printed_by_java(self, level: str) -> list[bytes]:
        """What the version's own console consumer prints of the topic; the jars of 4.x are without tools."""
        version = "3.9.2" if self.cluster.is_kraft else self.cluster.version
        main = "kafka.tools.ConsoleConsumer"
        if version_tuple(version) >= (3, 9):
            main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        command = find_java().command(maven.jars(version), main)
        arguments = ["--bootstrap-server", self.brokers, "--topic", self.topic, "--from-beginning",
                     "--isolation-level", level, "--timeout-ms", "8000"]  # fmt: skip
        ran = subprocess.run([*command, *arguments], capture_output=True, timeout=PATIENCE_S, check=False)
        assert b"Processed a total of" in ran.stderr, ran.stderr[-2000:]
        return ran.stdout.split(b"\n")[:-1]


@pytest.fixture
def log(kafka_clusters: Clusters, fresh_topic: Callable[[], str], version: str) -> Log:
    return Log(kafka_clusters(version, 1), fresh_topic())


def write_all_kinds(log: Log) -> None:
    """Write transactions of every outcome, in turn and into one another, the last one aborted."""
    log.plain(b"plain 0")
    log.aborted(b"aborted 0", b"aborted 1")
    log.kept(b"kept 0", b"kept 1")
    first, second = log.opened(b"to be aborted 0"), log.opened(b"to be kept 0")
    log.plain(b"between 0")
    log._send(second, (b"to be kept 1",))
    log._send(first, (b"to be aborted 1",))
    first.abort_transaction(PATIENCE_S)
    log.plain(b"between 1")
    second.commit_transaction(PATIENCE_S)
    log.committed = [value for value in log.everything if b"aborted" not in value]
    log.aborted(*(b"aborted last %d" % number for number in range(50)))


@pytest.mark.parametrize("version", VERSIONS)
def test_both_levels_read_what_javas_consumer_of_the_version_prints(log: Log) -> None:
    write_all_kinds(log)
    assert log.read() == log.everything == log.printed_by_java("read_uncommitted")
    assert log.read(properties=COMMITTED) == log.committed == log.printed_by_java("read_committed")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_ends_at_its_first_open_transaction_for_who_reads_what_is_committed(log: Log) -> None:
    log.plain(b"before")
    log.aborted(b"aborted")
    opened = log.opened(b"open 0")
    log.plain(b"behind")
    end = log.end(read_committed=True)
    assert end < log.end(read_committed=False)
    assert log.read(properties=COMMITTED) == [b"before"], "it does not wait for the transaction to end"
    assert log.read(start=-1, properties=COMMITTED) == [], "one offset before its end is the marker of an abort"
    with pytest.raises(ReadFailed, match=f"offset {end + 1} is not in the log, which has 0 to {end}"):
        log.read(start={0: end + 1}, properties=COMMITTED)
    assert log.read() == log.everything
    opened.commit_transaction(PATIENCE_S)
    assert log.read(properties=COMMITTED) == [b"before", b"open 0", b"behind"]


@pytest.mark.parametrize("version", VERSIONS)
def test_one_fetch_goes_on_behind_what_is_left_out(log: Log) -> None:
    log.aborted(*(b"aborted %d" % number + bytes(1000) for number in range(30)))
    log.kept(b"kept")
    log.aborted(b"aborted")
    with log.broker(read_committed=True) as broker:
        [message] = broker.fetch(log.topic, 0, 0, 500)
        assert message.value == b"kept"
        assert broker.fetch(log.topic, 0, message.next_offset, 500) == []
        [answer] = broker.multifetch([FetchRequest(log.topic, 0, 0, 1_000_000)])
        assert len(answer.aborted) == 2
        assert answer.log_end(read_committed=True) == answer.high_watermark == log.end(read_committed=True)
    pytest.importorskip("pyarrow")
    with log.broker(read_committed=True) as broker:
        batches = broker.fetch_columns(log.topic, 0, 0, 500, columns=["value"])
        assert [value for batch in batches for value in batch.column(0).to_pylist()] == [b"kept"]


@pytest.mark.parametrize("version", WITH_ZOOKEEPER)
def test_a_group_that_reads_what_is_committed_has_no_lag_in_front_of_an_open_transaction(
    log: Log, fresh_group: str
) -> None:
    write_all_kinds(log)
    opened = log.opened(b"open")
    log.plain(b"behind")
    config = ConsumerConfig(
        log.cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", consumer_timeout_ms=3000,
        isolation_level="read_committed",
    )  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({log.topic: 1})[log.topic]
        found = []
        with pytest.raises(ConsumerTimeout):
            found.extend(message.value for message in stream)
        assert found == log.committed[:-1]
        end = log.end(read_committed=True)
        wait_until(lambda: connector.status().owned[0].position == end, PATIENCE_S, "what is left out to be passed")
        [owned] = connector.status().owned
        assert (owned.log_end, owned.lag) == (end, 0)
        opened.abort_transaction(PATIENCE_S)
        assert next(stream).value == b"behind"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lag_of_a_kafka_consumer_ends_where_it_may_read(log: Log, fresh_group: str) -> None:
    """Also where a fetch has brought nothing."""
    write_all_kinds(log)
    opened = log.opened(b"open")
    log.plain(b"behind")
    at = TopicPartition(log.topic, 0)
    with KafkaConsumer(
        log.topic,
        bootstrap_servers=log.brokers,
        group_id=fresh_group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        found: list[bytes] = []
        end = log.end(read_committed=True)
        wait_until(lambda: found.extend(each.value for each in consumer.poll(100)) or (at in consumer.assignment()
                   and consumer.position(at) == end), PATIENCE_S, "all that is committed")  # fmt: skip
        assert found == log.committed[:-1]
        assert consumer.current_lag(at) == consumer.metrics()["records-lag-max"] == 0
    with KafkaConsumer(
        log.topic, bootstrap_servers=log.brokers, group_id=fresh_group, isolation_level="read_committed"
    ) as consumer:
        wait_until(lambda: consumer.poll(100) or (at in consumer.assignment() and consumer.current_lag(at) == 0),
                   PATIENCE_S, "its lag to be known")  # fmt: skip
        opened.abort_transaction(PATIENCE_S)


def spark_options(log: Log, **more: str) -> SourceOptions:
    return batch_options({"zookeeper.connect": log.cluster.zookeeper_connect, "subscribe": log.topic, **more})


def rows(log: Log, **more: str) -> list[bytes]:
    options = spark_options(log, **more)
    return [value for each in plan_batch(options) for batch in read_range(each, ("value",), options)
            for value in batch.column(0).to_pylist()]  # fmt: skip


@pytest.mark.parametrize("version", WITH_ZOOKEEPER)
@pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.level"])
def test_a_batch_of_spark_ends_at_the_first_open_transaction(log: Log, name: str) -> None:
    write_all_kinds(log)
    opened = log.opened(b"open")
    committed = {name: "read_committed"}
    assert rows(log, **committed) == log.committed
    assert rows(log, **committed, maxRecordsPerPartition="3") == log.committed
    assert rows(log) == log.everything
    [planned] = plan_batch(spark_options(log, **committed))
    assert planned.end == log.end(read_committed=True) < log.end(read_committed=False)
    opened.abort_transaction(PATIENCE_S)
    assert rows(log, **committed) == log.committed


@pytest.mark.parametrize("version", WITH_ZOOKEEPER)
@pytest.mark.parametrize("with_group", [False, True], ids=["topic", "group"])
def test_the_command_line_prints_what_is_committed(log: Log, with_group: bool, fresh_group: str) -> None:
    write_all_kinds(log)
    how = ["--group", fresh_group, "--from-beginning", "--timeout-ms", "5000"] if with_group else ["--until-end"]
    for level, expected in (("read_committed", log.committed), ("read_uncommitted", log.everything)):
        arguments = ["consume", "--zookeeper", log.cluster.zookeeper_connect, "--topic", log.topic, *how]
        command = [sys.executable, "-m", "zkconsumer.cli", *arguments, "--isolation-level", level]
        ran = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
        assert ran.stdout.split(b"\n")[:-1] == expected, ran.stderr
        how = [fresh_group + "-2" if word == fresh_group else word for word in how]
    refused = CliRunner().invoke(program, ["consume", "--isolation-level", "committed"])
    assert refused.exit_code == 2
    assert "'committed' is not one of 'read_uncommitted', 'read_committed'" in refused.output
