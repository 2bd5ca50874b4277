"""What a producer does with its messages, on embedded brokers and on real ones of Kafka 0.8.2.2."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from stored_pairs import stored

from simpleconsumer.errors import ConnectionFailed
from simpleconsumer.types import TopicPartition
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.outcome import SendFuture, SentMessage
from zkconsumer.producer.errors import (
    MessageNotSent,
    MessagesNotSent,
    OversizedMessage,
    ProducerClosed,
    QueueFull,
)
from zkconsumer.producer.keyed_message import KeyedMessage, ProducerData
from zkconsumer.producer.partitioners import partition_082
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.delivery import Delivery
from zkconsumer.testing import Cluster, EmbeddedCluster, Fault
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
WAIT_S = 30.0


@pytest.fixture(params=["embedded", "0.8.2.2"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue("embedded" if request.param == "embedded" else "kafka_0822")
    return found


def producer(cluster: Cluster, **settings: Any) -> Producer:
    brokers = ",".join(f"127.0.0.1:{cluster.port(broker)}" for broker in range(2))
    quick = {"queue_buffering_max_ms": 5, "retry_backoff_ms": 50, **settings}
    return Producer(ProducerConfig(metadata_broker_list=brokers, **quick))


def everything(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [value for name in cluster.partitions(topic) for _, value in stored(cluster, topic, int(name))]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_messages_are_where_their_futures_say(cluster: Cluster, fresh_topic: Callable[[], str], codec: str) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 3)
    with producer(cluster, producer_type="async", compression_codec=codec, batch_num_messages=7) as made:
        futures = [made.send(topic, b"value %d" % n, b"key %d" % (n % 5)) for n in range(50)]
        assert made.flush(WAIT_S)
        places = [future.result(0) for future in futures]
    logs = {number: stored(cluster, topic, number) for number in range(3)}
    for n, place in enumerate(places):
        assert place.partition == partition_082(b"key %d" % (n % 5), 3)
        assert place.offset is not None
        assert logs[int(place.partition)][place.offset] == (b"key %d" % (n % 5), b"value %d" % n)
    assert sum(map(len, logs.values())) == 50


def test_sync_returns_with_the_outcome_and_raises_the_error(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 2)
    with producer(cluster) as made:
        assert made.send(topic, b"a", partition=1).result(0) == SentMessage(topic, 1, 0)
        assert made.send(topic, None, b"k", partition=1).result(0).offset == 1
        with pytest.raises(OversizedMessage, match=r"it has 1000001 bytes, more than message\.max\.bytes = 1000000"):
            made.send(topic, b"x" * 1_000_001)
        with pytest.raises(ValueError, match=rf"topic '{topic}' has no partition 7; it has 0, 1"):
            made.send(topic, b"a", partition=7)
        with pytest.raises(TypeError, match=r"DefaultEncoder needs bytes: encode it, or set serializer\.class"):
            made.send(topic, "text")
    assert stored(cluster, topic, 1) == [(None, b"a"), (b"k", None)]


def test_many_messages_with_one_outcome_for_each_batch(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic, other = fresh_topic(), fresh_topic()
    for each in (topic, other):
        cluster.create_topic(each, 2)
    values = [b"%d" % n for n in range(5000)]
    with producer(cluster, producer_type="async") as made:
        assert made.send_all(values, topic) == (5000, 0, ())
        assert sorted(everything(cluster, topic), key=repr) == sorted(values, key=repr)
        assert made.send_all(iter(values), topic).sent == 5000
        assert made.send_all(((b"k%d" % (n % 3), value) for n, value in enumerate(values)), other).sent == 5000
        assert made.send_all([KeyedMessage(other, b"k", b"v"), ProducerData(other, "k", [b"v1", b"v2"])]).sent == 3
    for number in range(2):
        by_key: dict[bytes | None, list[int]] = {}
        for key, value in stored(cluster, other, number):
            if value is not None and value.isdigit():
                by_key.setdefault(key, []).append(int(value))
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_list_of_large_values_becomes_batches_within_the_limit(
    cluster: Cluster, fresh_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    values = [b"%d," % number * (number % 50 + 1) for number in range(1000)] + [b"x" * 50_000, b"end"]
    sizes: list[tuple[int, int]] = []
    add_batch = Delivery.add_batch

    def noted(delivery: Delivery, name: TopicPartition, pairs: Any, size: int, *rest: Any) -> Any:
        sizes.append((len(pairs), size))
        return add_batch(delivery, name, pairs, size, *rest)

    monkeypatch.setattr(Delivery, "add_batch", noted)
    with producer(cluster, producer_type="async", batch_num_messages=200, batch_max_bytes=10_000) as made:
        assert made.send_all(values, topic) == (1002, 0, ())
    assert everything(cluster, topic) == values
    assert sum(count for count, _ in sizes) == 1002
    assert [size for count, size in sizes if count > 1 and size > 10_000] == []
    assert len(sizes) < 50  # and they are filled, although not all of them


def test_what_cannot_be_sent_is_named_and_the_rest_is_sent(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    with producer(cluster, producer_type="async") as made, pytest.raises(MessagesNotSent) as caught:
        made.send_all([b"a", "text", b"b", b"x" * 1_000_001, (b"k",), b"c"], topic)
    error = caught.value
    assert (error.sent, error.failed, [number for number, _ in error.failures]) == (3, 3, [1, 3, 4])
    assert str(error).startswith("3 of 6 messages were not sent; the first one is number 1: 'text' is of type str; ")
    assert everything(cluster, topic) == [b"a", b"b", b"c"]


def test_messages_of_many_threads_arrive_once_and_in_order(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 2)
    with producer(cluster, producer_type="async") as made:

        def send(thread: int) -> list[SendFuture]:
            return [made.send(topic, b"%d %d" % (thread, n), b"%d" % thread) for n in range(300)]

        with ThreadPoolExecutor(4) as threads:
            futures = [future for found in threads.map(send, range(4)) for future in found]
        assert made.flush(WAIT_S)
        assert all(future.exception(0) is None for future in futures)
    values = [value for value in everything(cluster, topic) if value is not None]
    assert len(values) == len(set(values)) == 1200
    for thread in range(4):
        numbers = [int(value.split()[1]) for value in values if value.startswith(b"%d " % thread)]
        assert numbers == list(range(300))


def test_a_topic_that_brokers_make_is_there_after_a_moment(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    with producer(kafka_0822, message_send_max_retries=50) as made:
        assert made.send(topic, b"first").result(0).offset == 0
    assert everything(kafka_0822, topic) == [b"first"]


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_partition_whose_leader_moves_keeps_its_order(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.faults.add(Fault.error(6, api="produce", topic=topic, partition=0), times=2)
    with producer(embedded, producer_type="async", batch_num_messages=10) as made:
        futures = [made.send(topic, b"%d" % n, partition=0) for n in range(100)]
        assert made.flush(WAIT_S)
        assert [future.result(0).offset for future in futures] == list(range(100))
    assert everything(embedded, topic) == [b"%d" % n for n in range(100)]


def test_a_message_whose_retries_are_used_up_is_named(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.faults.add(Fault.error(6, api="produce", topic=topic, partition=1), times=None)
    wanted = rf"{topic}/1 was not acknowledged in 3 attempts: .*NotLeader"
    with producer(embedded, message_send_max_retries=2) as made, pytest.raises(MessageNotSent, match=wanted) as caught:
        made.send(topic, b"lost", partition=1)
    assert (caught.value.topic, caught.value.partition, caught.value.tries) == (topic, 1, 3)
    assert not caught.value.may_be_stored


def test_an_acknowledgement_that_is_lost_may_repeat_a_message_and_loses_none(
    embedded: EmbeddedCluster, topic: str
) -> None:
    embedded.faults.add(Fault.wrong_correlation_id(api="produce", topic=topic), times=1)
    with producer(embedded) as made:
        assert made.send(topic, b"once or twice", partition=0).result(0)
    assert set(everything(embedded, topic)) == {b"once or twice"}


def test_a_broker_that_never_answers_ends_in_an_error_in_time(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.faults.add(Fault.delay(60.0, api="produce", topic=topic), times=None)
    wanted = r"in 2 attempts: .*no answer within 0\.4 s; it may be stored"
    settings = {"request_timeout_ms": 200, "message_send_max_retries": 1}
    with producer(embedded, **settings) as made, pytest.raises(MessageNotSent, match=wanted):
        made.send(topic, b"v", partition=0)


def test_one_message_that_the_broker_finds_too_large_fails_no_other(fresh_topic: Callable[[], str]) -> None:
    with EmbeddedCluster(2, settings={"message.max.bytes": 1000}, zookeeper=False) as small:
        topic = fresh_topic()
        small.create_topic(topic, 1)
        with producer(small, producer_type="async", queue_buffering_max_ms=100) as made:
            futures = [made.send(topic, b"%d" % n if n != 37 else b"x" * 2000) for n in range(100)]
            assert made.flush(WAIT_S)
            errors = [future.exception(0) for future in futures]
        assert [number for number, error in enumerate(errors) if error is not None] == [37]
        assert isinstance(errors[37], OversizedMessage)
        assert everything(small, topic) == [b"%d" % n for n in range(100) if n != 37]


def test_a_topic_that_no_broker_can_have_is_refused(kafka_0822: KafkaCluster) -> None:
    with producer(kafka_0822, message_send_max_retries=1) as made, pytest.raises(ValueError, match="no/such"):
        made.send("no/such", b"v")


@pytest.mark.parametrize("wait_ms", [0, 200])
def test_a_full_queue_says_so_and_keeps_what_it_has(embedded: EmbeddedCluster, topic: str, wait_ms: int) -> None:
    embedded.faults.add(Fault.delay(1.0, api="produce", topic=topic), times=1)
    settings = {"queue_buffering_max_messages": 10, "batch_num_messages": 5, "queue_enqueue_timeout_ms": wait_ms}
    with producer(embedded, producer_type="async", **settings) as made:
        made.send(topic, b"0", partition=0)
        for n in range(1, 10):
            made.send(topic, b"%d" % n, partition=0)
        with pytest.raises(QueueFull, match=r"it has 10 messages \(queue\.buffering\.max\.messages\)"):
            made.send(topic, b"one more", partition=0)
        assert made.flush(WAIT_S)
    assert everything(embedded, topic) == [b"%d" % n for n in range(10)]


def test_a_full_queue_makes_the_sender_wait(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.faults.add(Fault.delay(0.5, api="produce", topic=topic), times=1)
    with producer(embedded, producer_type="async", queue_buffering_max_messages=10, batch_num_messages=5) as made:
        futures = [made.send(topic, b"%d" % n, partition=0) for n in range(40)]
    assert [future.result(0).offset for future in futures] == list(range(40))


def test_close_within_a_time_names_what_it_could_not_send(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.faults.add(Fault.delay(60.0, api="produce", topic=topic), times=None)
    made = producer(embedded, producer_type="async", message_send_max_retries=0)
    futures = [made.send(topic, b"%d" % n, partition=0) for n in range(4)]
    assert made.close(0.3) == 4
    assert all(isinstance(each.exception(WAIT_S), MessageNotSent) for each in futures)
    with pytest.raises(ProducerClosed):
        made.send(topic, b"late")
    assert made.close() == 0


def test_callbacks_run_once_and_one_that_raises_stops_nothing(embedded: EmbeddedCluster, topic: str) -> None:
    called: list[SentMessage] = []

    def note(future: SendFuture) -> None:
        called.append(future.result(0))
        raise RuntimeError("a callback of the test")

    with producer(embedded, producer_type="async") as made:
        for n in range(20):
            made.send(topic, b"%d" % n, partition=0).add_done_callback(note)
        assert made.flush(WAIT_S)
        wait_until(lambda: len(called) == 20, WAIT_S, "the callbacks")
    assert [each.offset for each in called] == list(range(20))


def test_no_thread_is_left(embedded: EmbeddedCluster, topic: str) -> None:
    before = set(threading.enumerate())
    with producer(embedded) as made:
        made.send(topic, b"v")
    left = lambda: [thread for thread in set(threading.enumerate()) - before if "producer" in thread.name]  # noqa: E731
    wait_until(lambda: not left(), WAIT_S, "the end of the threads", state=left)


# -- Kafka 0.7, whose brokers and partitions are watched -------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster_07() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, generation="0.7") as made:
        yield made


def test_an_error_that_is_kept_keeps_nothing_of_the_request(embedded: EmbeddedCluster, topic: str) -> None:
    """Frames of its tracebacks would keep what was sent, several times."""
    embedded.faults.add(Fault.close(api="produce", topic=topic))
    with producer(embedded, producer_type="async", message_send_max_retries=0) as made:
        error = made.send(topic, b"x" * 1000, partition=0).exception(WAIT_S)
    assert isinstance(error, MessageNotSent)
    cause: BaseException | None = error.__cause__
    assert isinstance(cause, ConnectionFailed)
    while cause is not None:
        assert cause.__traceback__ is None
        cause = cause.__cause__ or cause.__context__


@pytest.mark.parametrize(("failures", "lines"), [(4, 0), (9, 1)])
def test_many_failures_in_a_row_are_one_line_of_the_log_and_few_are_none(
    embedded: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture, failures: int, lines: int
) -> None:
    embedded.faults.add(Fault.close(api="produce", topic=topic), times=failures)
    with producer(embedded, message_send_max_retries=100, retry_backoff_ms=1) as made:
        made.send(topic, b"x", partition=0)
    said = [line for line in caplog.messages if "in a row" in line]
    assert len(said) == lines
    assert all("requests of a producer to broker " in line and "fail, 5 in a row: " in line for line in said)


def producer_07(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(ProducerConfig(zookeeper_connect=cluster.zookeeper_connect, retry_backoff_ms=50, **settings))


def test_batches_without_keys_take_turns_in_the_partitions_of_07(cluster_07: EmbeddedCluster) -> None:
    cluster_07.create_topic("turns", 2)
    with producer_07(cluster_07) as made:
        places = {made.send("turns", b"%d" % number).result(WAIT_S).partition for number in range(60)}
    assert places == {"0-0", "0-1", "1-0", "1-1"}


def test_a_broker_of_07_that_returns_gets_messages_again_at_once(cluster_07: EmbeddedCluster) -> None:
    cluster_07.create_topic("returns", 2)
    with producer_07(cluster_07) as made:
        assert made.send("returns", b"a", partition="1-0").result(WAIT_S).partition == "1-0"
        cluster_07.stop(1)
        wait_until(lambda: _refuses(made, "1-0"), WAIT_S, "the partition to be gone", interval_s=0.1)
        cluster_07.start(1)
        wait_until(lambda: not _refuses(made, "1-0"), WAIT_S, "the partition to be back", interval_s=0.1)


def _refuses(made: Producer, partition: str) -> bool:
    """Whether the topic has no such partition, as far as the producer knows without a failed request."""
    try:
        made.send("returns", b"x", partition=partition)
    except ValueError:
        return True
    except MessageNotSent:
        return False
    return False
