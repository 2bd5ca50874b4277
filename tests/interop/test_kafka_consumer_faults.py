"""KafkaConsumer where something fails: brokers that are away, forks, logs whose start is gone, aborted transactions."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from polling import PATIENCE_S, address_of, consumer_of, offsets, poll_until, stored, threads_of

from simpleconsumer.types import TopicPartition
from zkconsumer import KafkaConsumer, OffsetAndMetadata, OffsetAndTimestamp
from zkconsumer.polling.errors import OffsetOutOfRange, PollTimeout
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[KafkaCluster]:
    """A cluster whose broker may be stopped."""
    with KafkaCluster("4.3.1") as made:
        yield made


@pytest.fixture
def modern(kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters("4.3.1", 1)


def test_a_broker_that_goes_away_and_comes_back_costs_nothing(
    own_cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    at = TopicPartition(topic, 0)
    own_cluster.create_topic(topic, 1)
    load(own_cluster, topic, 5)
    with consumer_of(own_cluster, fresh_group, topic, session_timeout_ms=30_000) as consumer:
        assert offsets(poll_until(consumer, 5)) == [0, 1, 2, 3, 4]
        consumer.commit_sync()
        port = own_cluster.port(0)
        own_cluster.stop(0)
        for _ in range(5):
            assert not consumer.poll(200)
        consumer.seek_to_beginning(at)
        assert not consumer.poll(200)
        with pytest.raises(PollTimeout):
            consumer.end_offsets([at], timeout_ms=300)
        with pytest.raises(PollTimeout):
            consumer.committed([at], timeout_ms=300)
        own_cluster.start(0, port=port)
        assert offsets(poll_until(consumer, 5)) == [0, 1, 2, 3, 4]
        load(own_cluster, topic, 5, first=5)
        assert offsets(poll_until(consumer, 5)) == [5, 6, 7, 8, 9]
        consumer.commit_sync()
    assert stored(own_cluster, fresh_group, at) == {at: 10}


def test_brokers_that_are_not_up_yet_are_waited_for(
    own_cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    own_cluster.create_topic(topic, 1)
    load(own_cluster, topic, 5)
    port = own_cluster.port(0)
    own_cluster.stop(0)
    with (
        consumer_of(own_cluster, fresh_group, topic) as member,
        consumer_of(own_cluster, None) as alone,
    ):
        alone.assign([(topic, 0)])  # type: ignore[list-item]
        for consumer in (member, alone):
            assert not consumer.poll(500)
            assert not consumer.poll(0)
        own_cluster.start(0, port=port)
        assert offsets(poll_until(member, 5)) == [0, 1, 2, 3, 4]
        assert offsets(poll_until(alone, 5)) == [0, 1, 2, 3, 4]
    assert not threads_of()


def test_a_poll_has_its_time_although_a_broker_does_not_answer(
    own_cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    at = TopicPartition(topic, 0)
    own_cluster.create_topic(topic, 1)
    load(own_cluster, topic, 5)
    with consumer_of(own_cluster, None) as consumer:
        consumer.assign([at])
        assert len(poll_until(consumer, 5)) == 5
        own_cluster.pause(0)
        try:
            consumer.seek_to_beginning()
            started = time.monotonic()
            assert not consumer.poll(200)
            assert not consumer.poll(200)
            assert time.monotonic() - started < 5
        finally:
            own_cluster.resume(0)
        assert len(poll_until(consumer, 5)) == 5


def test_a_consumer_of_brokers_that_never_answer_closes_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        consumer = KafkaConsumer("clicks", bootstrap_servers=f"127.0.0.1:{port}", group_id="g")
        assert not consumer.poll(200)
        done = threading.Thread(target=consumer.close, args=(1000,))
        done.start()
        done.join(15)
        assert not done.is_alive()


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_records_that_are_deleted_before_they_are_read(
    modern: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, policy: str
) -> None:
    topic = fresh_topic()
    at = TopicPartition(topic, 0)
    modern.create_topic(topic, 1)
    load(modern, topic, 10)
    with consumer_of(modern, fresh_group, max_poll_records=2) as consumer:
        consumer.subscribe([topic])
        assert offsets(poll_until(consumer, 2)) == [0, 1]
    delete_records(modern, topic, 6)
    with consumer_of(modern, fresh_group, topic, auto_offset_reset=policy) as consumer:
        if policy == "none":
            with pytest.raises(OffsetOutOfRange) as caught:
                poll_until(consumer, 1)
            assert (caught.value.offset, caught.value.log_start, caught.value.log_end) == (2, 6, 10)
            consumer.seek_to_beginning()
            assert offsets(poll_until(consumer, 4)) == [6, 7, 8, 9]
        elif policy == "earliest":
            assert offsets(poll_until(consumer, 4)) == [6, 7, 8, 9]
        else:
            wait_until(lambda: [consumer.poll(50), consumer.assignment()][1], PATIENCE_S, "the assignment")
            wait_until(lambda: [consumer.poll(50), consumer.position(at) == 10][1], PATIENCE_S, "the end of the log")
            load(modern, topic, 1, first=10)
            assert offsets(poll_until(consumer, 1)) == [10]
        assert consumer.beginning_offsets([at]) == {at: 6}


def delete_records(cluster: KafkaCluster, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address_of(cluster)})
    for answer in admin.delete_records([Place(topic, 0, before)]).values():
        answer.result(30)


def test_readers_of_committed_records_see_no_aborted_and_no_open_ones(
    modern: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    at = TopicPartition(topic, 0)
    modern.create_topic(topic, 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": address_of(modern), "transactional.id": fresh_group})
    producer.init_transactions(PATIENCE_S)
    opened_ms = int(time.time() * 1000) + 60_000  # after the marks of the broker, which it finds, too
    times_ms = {"commit": opened_ms - 2000, "abort": opened_ms - 1000, "open": opened_ms}
    for ends in ("commit", "abort", "commit", "open"):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{ends} {number}".encode(), partition=0, timestamp=times_ms[ends])
        assert producer.flush(PATIENCE_S) == 0
        if ends != "open":
            getattr(producer, f"{ends}_transaction")(PATIENCE_S)
    expected = [(offset, f"commit {number}".encode()) for offset, number in
                [(0, 0), (1, 1), (2, 2), (8, 0), (9, 1), (10, 2)]]  # fmt: skip
    with consumer_of(modern, fresh_group, topic, isolation_level="read_committed") as consumer:
        assert [(each.offset, each.value) for each in poll_until(consumer, 6)] == expected
        assert not consumer.poll(300)
        assert consumer.end_offsets([at]) == {at: 12}
        assert consumer.position(at) == 12
        assert consumer.offsets_for_times({at: opened_ms}) == {at: None}, "a record that is not decided"
    with consumer_of(modern, f"{fresh_group}-all", topic) as consumer:
        assert len(poll_until(consumer, 12)) == 12
        assert consumer.end_offsets([at]) == {at: 15}
        assert consumer.offsets_for_times({at: opened_ms}) == {at: OffsetAndTimestamp(12, opened_ms, 0)}
    producer.abort_transaction(PATIENCE_S)
    assert stored(modern, fresh_group, at) == {at: 12}


def test_offsets_are_found_by_time(modern: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    at = TopicPartition(topic, 0)
    modern.create_topic(topic, 1)
    load(modern, topic, 5)
    with consumer_of(modern, None) as consumer:
        consumer.assign([at])
        records = poll_until(consumer, 5)
        first = records[0].timestamp
        assert first is not None
        found = consumer.offsets_for_times({at: first})[at]
        assert found is not None
        assert (found.offset, found.timestamp, found.leader_epoch) == (0, first, 0)
        assert consumer.offsets_for_times({at: first + 10**9}) == {at: None}
        with pytest.raises(ValueError, match="-1"):
            consumer.offsets_for_times({at: -1})
        assert consumer.current_lag(at) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
def test_a_forked_child_is_refused_and_the_parent_goes_on(
    modern: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    modern.create_topic(topic, 1)
    load(modern, topic, 10)
    program = textwrap.dedent("""
        import os, sys
        from zkconsumer import KafkaConsumer, OffsetAndMetadata
        from zkconsumer.polling.errors import ForkedConsumer

        def refused(call):
            try:
                call()
            except ForkedConsumer as error:
                return str(os.getpid()) in str(error) and str(os.getppid()) in str(error)
            return False

        server, topic, group = sys.argv[1:]
        with KafkaConsumer(topic, bootstrap_servers=server, group_id=group, auto_offset_reset="earliest",
                           max_poll_records=4) as consumer:
            found = []
            while not found:
                found += [record.offset for record in consumer.poll(200)]
            pid = os.fork()
            if pid == 0:
                calls = [lambda: consumer.poll(0), consumer.commit_sync, consumer.assignment, lambda: next(consumer)]
                good = all([refused(call) for call in calls])
                consumer.close()
                os._exit(0 if good else 1)
            print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            while len(found) < 10:
                found += [record.offset for record in consumer.poll(200)]
            print(*found)
    """)
    command = [sys.executable, "-c", program, address_of(modern), topic, fresh_group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.splitlines() == ["child 0", "0 1 2 3 4 5 6 7 8 9"], done.stderr
    at = TopicPartition(topic, 0)
    assert stored(modern, fresh_group, at) == {at: 10}


def test_a_consumer_of_a_secured_cluster_has_its_credentials_in_its_settings(
    secured_clusters: Callable[[str], KafkaCluster], fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    cluster = secured_clusters("2.8.2")
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    load(cluster, topic, 5)
    settings = {
        "bootstrap_servers": cluster.addresses("SASL_SSL"), "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": "secret-of-alice",
        "ssl_truststore_location": str(cluster.certificates.authority.certificate), "ssl_truststore_type": "PEM",
    }  # fmt: skip
    with KafkaConsumer(topic, group_id=fresh_group, auto_offset_reset="earliest", **settings) as consumer:  # type: ignore[arg-type]
        assert offsets(poll_until(consumer, 5)) == [0, 1, 2, 3, 4]
        consumer.commit_sync()
        at = TopicPartition(topic, 0)
        assert consumer.committed([at]) == {at: OffsetAndMetadata(5, leader_epoch=0)}
