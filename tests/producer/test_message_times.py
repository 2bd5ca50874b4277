"""Messages have the times that they were given, on every broker that stores times; older ones refuse them by name."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import Headers, Message
from tests.cli.command_line import command, run
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import (
    CallbackHandler,
    KeyedMessage,
    MessageNotSent,
    MessagesNotSent,
    Producer,
    QueueItem,
    SyncProducer,
)
from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster

SLOW = pytest.mark.slow
WAIT_S = 60.0
LONG_AGO, LATER = 1_000_000_000_123, 1_500_000_000_456
NOT_STORED = r"timestamp_ms\), but brokers only store times from Kafka 0\.10 on"
Clusters = Callable[[str, int], KafkaCluster]


@pytest.fixture(
    scope="module", params=["0.10.2.2", "4.3.1", *(pytest.param(each, marks=SLOW) for each in ("0.11.0.3", "1.1.1"))]
)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Clusters) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture(params=["0.10", "1.1", "4.3"])
def newer(request: pytest.FixtureRequest, embedded_clusters: Callable[[int, str], EmbeddedCluster]) -> EmbeddedCluster:
    """An embedded broker that stores times."""
    return embedded_clusters(1, request.param)


def address(cluster: KafkaCluster | EmbeddedCluster) -> str:
    return f"127.0.0.1:{cluster.port(min(cluster.brokers))}"


def producer(cluster: KafkaCluster | EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(ProducerConfig(metadata_broker_list=address(cluster), **settings))


def stored(cluster: KafkaCluster | EmbeddedCluster, topic: str) -> list[Message]:
    with SimpleConsumer("127.0.0.1", cluster.port(min(cluster.brokers)), dialect=KAFKA011) as consumer:
        found: list[Message] = []
        while messages := consumer.fetch(topic, 0, len(found), 4_000_000):
            found += messages
    return found


def times(messages: list[Message]) -> list[tuple[bytes | None, int | None]]:
    return [(each.value, each.timestamp_ms) for each in messages]


def read_by_confluent(cluster: KafkaCluster, topic: str, count: int) -> list[tuple[Any, Any]]:
    consumer = Consumer({"bootstrap.servers": address(cluster), "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[Any, Any]] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [(each.value(), each.timestamp()[1]) for each in consumer.consume(count, 1.0)]
        return found
    finally:
        consumer.close()


def send_by_every_call(made: Producer, topic: str, headers: Headers) -> list[tuple[bytes | None, int | None]]:
    """Send messages with times out of order and without, and return their values and times in the order of the log."""
    futures = [
        made.send(topic, b"later", timestamp_ms=LATER), made.send(topic, b"before it", timestamp_ms=LONG_AGO),
        made.send(topic, b"without"), made.send(topic, None, b"k", headers=headers, timestamp_ms=0),
        made.send(KeyedMessage(topic, b"k", b"keyed", headers=headers, timestamp_ms=LATER + 1)),
    ]  # fmt: skip
    assert [each.result(WAIT_S).append_time_ms for each in futures] == [None] * 5
    made.send_all([KeyedMessage(topic, None, b"all", timestamp_ms=5), (None, b"all without")], topic)
    made.send_batch(topic, [(None, b"first"), (b"k", b"second")], 0, [LATER, None]).result(WAIT_S)
    columns = made.columns()
    columns.add(MessageColumns(topic, [b"x", b"y", b"z"], timestamps_ms=[7, None, 6]))
    assert columns.finish().sent == 3
    steps = made.bulk()
    steps.add(0, topic, b"step", timestamp_ms=8)
    assert steps.finish().sent == 1
    return [
        (b"later", LATER), (b"before it", LONG_AGO), (b"without", None), (None, 0), (b"keyed", LATER + 1), (b"all", 5),
        (b"all without", None), (b"first", LATER), (b"second", None), (b"x", 7), (b"y", None), (b"z", 6), (b"step", 8),
    ]  # fmt: skip


def check(found: list[tuple[Any, Any]], expected: list[tuple[bytes | None, int | None]], since_ms: int) -> None:
    """Compare values and times; a message without a time of its own has that at which it was sent."""
    now_ms = int(time.time() * 1000) + 1
    assert [value for value, _ in found] == [value for value, _ in expected]
    for (value, time_ms), (_, given_ms) in zip(found, expected, strict=True):
        assert time_ms == given_ms if given_ms is not None else since_ms <= time_ms <= now_ms, value


@pytest.mark.real
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_times_that_are_sent_are_stored_and_found(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], codec: str
) -> None:
    topic, since_ms = fresh_topic(), int(time.time() * 1000) - 1
    cluster.create_topic(topic, 1, config={"retention.ms": -1})
    headers = () if cluster.version.startswith("0.10") else (("h", b"1"),)
    with producer(cluster, compression_codec=codec, producer_type="async", queue_buffering_max_ms=50) as made:
        expected = send_by_every_call(made, topic, headers)
    messages = stored(cluster, topic)
    check(times(messages), expected, since_ms)
    assert [each.headers for each in messages if each.headers] == [headers] * 2 * bool(headers)
    assert read_by_confluent(cluster, topic, len(expected)) == times(messages)
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as consumer:
        # Only newest times of batches that are right lead a broker there.
        for wanted, where in ((LATER, 0), (LATER + 1, 2), (since_ms, 2), (int(time.time() * 1000) + 60_000, None)):
            found = consumer.offset_for_time(topic, 0, wanted)
            assert (None if found is None else found.offset) == where


@pytest.mark.real
def test_a_topic_with_the_time_of_the_append_has_that_of_the_broker_which_the_outcome_names(
    cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic, since_ms = fresh_topic(), int(time.time() * 1000) - 1
    cluster.create_topic(topic, 1, config={"message.timestamp.type": "LogAppendTime"})
    with producer(cluster) as made, SyncProducer("127.0.0.1", cluster.port(0)) as sync:
        sent = [
            made.send(topic, b"a", timestamp_ms=LONG_AGO).result(), made.send(topic, b"b").result(),
            *made.send_batch(topic, [(None, b"c"), (None, b"d")], 0, [None, 5]).result(),
            sync.send(topic, [(None, b"e", (), 9)], 0),
        ]  # fmt: skip
    found = times(stored(cluster, topic))
    check(found, [(value, None) for value in (b"a", b"b", b"c", b"d", b"e")], since_ms)
    assert [each.append_time_ms for each in sent] == [time_ms for _, time_ms in found]


@pytest.mark.real
def test_exactly_the_messages_fail_whose_times_the_topic_does_not_take(
    cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    limit = "before.max.ms" if version_tuple(cluster.version) >= (4,) else "difference.max.ms"
    cluster.create_topic(topic, 1, config={f"message.timestamp.{limit}": 3_600_000})
    messages = [
        KeyedMessage(topic, None, b"%d" % number, timestamp_ms=LONG_AGO if number % 7 == 3 else None)
        for number in range(30)
    ]
    with producer(cluster) as made, pytest.raises(MessagesNotSent, match="InvalidTimestamp") as raised:
        made.send_all(messages)
    assert [number for number, _ in raised.value.failures] == [3, 10, 17, 24]
    assert f"it has the time {LONG_AGO} (timestamp_ms): see message.timestamp.diff" in str(raised.value.failures[0][1])
    assert [each.value for each in stored(cluster, topic)] == [b"%d" % n for n in range(30) if n % 7 != 3]
    if version_tuple(cluster.version) >= (4,):
        ahead_ms = int(time.time() * 1000) + 2 * 3_600_000
        with producer(cluster) as made, pytest.raises(MessageNotSent, match="InvalidTimestamp"):
            made.send(topic, b"two hours ahead", timestamp_ms=ahead_ms)


@pytest.mark.real
@pytest.mark.parametrize(("version", "brokers"), [("0.8.2.2", 2), pytest.param("0.9.0.1", 1, marks=SLOW)])
def test_brokers_before_0_10_refuse_exactly_the_messages_with_times(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], version: str, brokers: int
) -> None:
    cluster, topic = kafka_clusters(version, brokers), fresh_topic()
    cluster.create_topic(topic, 1)
    messages = [
        KeyedMessage(topic, b"k", b"%d" % number, timestamp_ms=LATER + number if number % 4 == 1 else None)
        for number in range(10)
    ]
    with producer(cluster) as made:
        with pytest.raises(MessagesNotSent) as raised:
            made.send_all(messages)
        with pytest.raises(MessageNotSent, match=rf"for {topic}/0 .* the time {LATER + 1} \({NOT_STORED}") as refused:
            made.send(messages[1])
        assert not refused.value.may_be_stored
    assert [number for number, _ in raised.value.failures] == [1, 5, 9]
    assert all(f"{LATER + number} (timestamp_ms)" in str(error) for number, error in raised.value.failures)
    leader = cluster.leader(topic, 0)
    assert leader is not None
    with SyncProducer("127.0.0.1", cluster.port(leader)) as sync:
        with pytest.raises(MessageNotSent, match=rf"the time 77 \({NOT_STORED}"):
            sync.send(topic, [(b"k", b"v", (), 77)], 0)
        sync.send(topic, [(b"k", b"last")], 0)
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as consumer:
        values = [each.value for each in consumer.fetch(topic, 0, 0)]
    assert values == [*(b"%d" % number for number in range(10) if number % 4 != 1), b"last"]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.real
def test_lines_of_a_log_and_of_a_consumer_are_sent_with_everything_that_a_message_has(
    cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    first, second, third, of_now = (fresh_topic() for _ in range(4))
    for topic in (first, second, third, of_now):
        cluster.create_topic(topic, 1, config={"retention.ms": -1})
    headers = () if cluster.version.startswith("0.10") else (("h", b"\xff"), ("h", None), ("", b""))
    with producer(cluster, compression_codec="gzip") as made:
        made.send_all([
            KeyedMessage(first, b"\xfe", b"", headers=headers, timestamp_ms=LATER),
            KeyedMessage(first, b"", None, timestamp_ms=0), KeyedMessage(first, None, b"v", timestamp_ms=LONG_AGO),
        ])  # fmt: skip
    folder = cluster.brokers[0].folder / "data"
    dumped = run("log", "dump", str(folder), "--topic", first, "--json")
    assert dumped.returncode == 0, dumped.stderr
    assert [json.loads(line)["timestamp_ms"] for line in dumped.stdout.splitlines()] == [LATER, 0, LONG_AGO]
    to_it = ("produce", "--bootstrap-server", address(cluster), "--from-json", "--topic")
    assert run(*to_it, second, "--codec", "snappy", stdin=dumped.stdout).returncode == 0
    read = run("consume", "--bootstrap-server", address(cluster), "--topic", second, "--until-end", "--json")
    assert run(*to_it, third, stdin=read.stdout).returncode == 0
    wanted = [(b"\xfe", b"", headers, LATER), (b"", None, (), 0), (None, b"v", (), LONG_AGO)]
    for topic in (first, second, third):
        assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in stored(cluster, topic)] == wanted
    since_ms = int(time.time() * 1000) - 1
    assert run(*to_it, of_now, "--times", "now", stdin=dumped.stdout).returncode == 0
    check(times(stored(cluster, of_now)), [(b"", None), (None, None), (b"v", None)], since_ms)


LINES = b'{"value": "a", "timestamp_ms": 5}\n{"value": "b", "timestamp_ms": null}\n{"value": "c"}\n'


def test_lines_with_times_for_a_broker_before_0_10_fail_and_the_option_that_sends_them_is_named(
    embedded: EmbeddedCluster, topic: str
) -> None:
    to_it = ("produce", "--bootstrap-server", address(embedded), "--topic", topic, "--partition", "0", "--from-json")
    done = run(*to_it, stdin=LINES)
    assert done.returncode == 1
    assert b"line 1 was not sent: " in done.stderr
    assert b"it has the time 5 (timestamp_ms), but brokers only store times from Kafka 0.10 on" in done.stderr
    assert b"--times now sends the lines without their times" in done.stderr
    assert run(*to_it, "--times", "now", stdin=LINES).returncode == 0
    with SimpleConsumer("127.0.0.1", embedded.port(embedded.leader(topic, 0) or 0)) as consumer:
        assert [each.value for each in consumer.fetch(topic, 0, 0)] == [b"b", b"c", b"a", b"b", b"c"]


@pytest.mark.parametrize("version", ["0.7", "0.8"])
def test_the_command_stops_reading_at_the_first_line_whose_time_older_brokers_do_not_store(
    embedded_clusters: Callable[..., Any], fresh_topic: Callable[[], str], version: str
) -> None:
    """The input stays open: without a stop the command would wait for more."""
    cluster, topic = embedded_clusters(1, version), fresh_topic()
    brokers = f"0:127.0.0.1:{cluster.port(0)}" if version == "0.7" else address(cluster)
    to_it = ("produce", "--brokers", brokers, "--topic", topic, "--from-json")
    untimed = b'{"value": 1}\n' * 150 + b'{"value": "c"}\n'
    with subprocess.Popen(command(to_it), stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(untimed + b'{"value": "a", "timestamp_ms": 5}\n')
            process.stdin.flush()
            status = process.wait(WAIT_S)
        finally:
            process.kill()
        said = process.stderr.read().decode()
    assert status == 1
    assert (
        "line 152 has a time, and brokers only store times from Kafka 0.10 on; the last line that was read is 152"
        in said
    )
    assert "later lines were not sent" in said
    assert "--times now sends the lines without their times" in said
    assert "Produced 1 message\n" in said or "Produced 1 message;" in said


def test_lines_with_impossible_times_fail_alone(
    embedded_clusters: Callable[[int, str], EmbeddedCluster], fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = embedded_clusters(1, "4.3"), fresh_topic()
    cluster.create_topic(topic, 1)
    given = (b"-1", b"true", b'"5"', b"1.5", b"9223372036854775808")
    lines = b"".join(b'{"value": "v", "timestamp_ms": ' + each + b"}\n" for each in (*given, b"9223372036854775807"))
    done = run("produce", "--bootstrap-server", address(cluster), "--topic", topic, "--from-json", stdin=lines)
    assert done.returncode == 1
    for number, said in enumerate(given, 1):
        limit = (
            "it must be a whole number from 0 to 9223372036854775807, or null: --times now sends the line without it"
        )
        assert f'line {number}: "timestamp_ms" is {said.decode()}; {limit}' in done.stderr.decode()
    assert times(stored(cluster, topic)) == [(b"v", 2**63 - 1)]


def test_the_option_about_times_needs_lines_with_times() -> None:
    done = run("produce", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--times", "now")
    assert done.returncode == 2
    assert b"--times has no effect without --from-json" in done.stderr


# -- embedded brokers, and what is refused at once ---------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_embedded_brokers_keep_times_and_honour_the_setting_of_the_topic(
    newer: EmbeddedCluster, fresh_topic: Callable[[], str], codec: str
) -> None:
    sent, appended, since_ms = fresh_topic(), fresh_topic(), int(time.time() * 1000) - 1
    newer.create_topic(sent, 1)
    newer.create_topic(appended, 1, config={"message.timestamp.type": "LogAppendTime"})
    with producer(newer, compression_codec=codec) as made:
        check(times(stored(newer, sent)), [], since_ms)
        expected = send_by_every_call(made, sent, ())
        check(times(stored(newer, sent)), expected, since_ms)
        outcomes = made.send_batch(appended, [(None, b"a"), (None, b"b")], 0, [LONG_AGO, None]).result(WAIT_S)
        outcomes.append(made.send(appended, b"c", timestamp_ms=LATER).result(WAIT_S))
    found = times(stored(newer, appended))
    check(found, [(b"a", None), (b"b", None), (b"c", None)], since_ms)
    assert [each.append_time_ms for each in outcomes] == [time_ms for _, time_ms in found]
    with SimpleConsumer("127.0.0.1", newer.port(0), dialect=KAFKA011) as consumer:
        at = consumer.offset_for_time(appended, 0, since_ms)
        assert at is not None
        assert at.offset == 0


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_repeat_that_the_broker_knows_has_no_time_of_an_append(
    embedded_clusters: Callable[[int, str], EmbeddedCluster], fresh_topic: Callable[[], str], kind: str
) -> None:
    """Its answer has the newest time of the batch, with either setting."""
    cluster, topic = embedded_clusters(1, "4.3"), fresh_topic()
    cluster.create_topic(topic, 1, config={"message.timestamp.type": kind})
    with producer(cluster, enable_idempotence=True, request_required_acks=-1, retry_backoff_ms=1) as made:
        made.send(topic, b"first")
        cluster.faults.add(Fault.close("produce", topic))
        sent = made.send_batch(topic, [(None, b"a"), (None, b"b")], 0, [LATER, LONG_AGO]).result(WAIT_S)
    assert made.repeated == 2
    assert [(each.offset, each.append_time_ms) for each in sent] == [(1, None), (2, None)]
    assert [each.value for each in stored(cluster, topic)] == [b"first", b"a", b"b"]


def test_messages_of_a_transaction_have_their_times(
    embedded_clusters: Callable[[int, str], EmbeddedCluster], fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = embedded_clusters(1, "4.3"), fresh_topic()
    cluster.create_topic(topic, 1)
    with producer(cluster, transactional_id="timed") as made:
        made.init_transactions()
        with made.transaction():
            made.send(topic, b"a", timestamp_ms=LATER)
            made.send_all([KeyedMessage(topic, None, b"b", timestamp_ms=3)])
        with pytest.raises(ValueError, match="is -5"), made.transaction():
            made.send(topic, b"c", timestamp_ms=-5)
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011, read_committed=True) as consumer:
        assert times(list(consumer.fetch(topic, 0, 0))) == [(b"a", LATER), (b"b", 3)]


def test_a_callback_handler_sees_and_sets_times(
    embedded_clusters: Callable[[int, str], EmbeddedCluster], fresh_topic: Callable[[], str]
) -> None:
    class Later(CallbackHandler):
        def before_enqueue(self, item: QueueItem) -> QueueItem:
            item.timestamp_ms = 9 if item.timestamp_ms is None else item.timestamp_ms + 1
            return item

    cluster, topic = embedded_clusters(1, "4.3"), fresh_topic()
    cluster.create_topic(topic, 1)
    config = ProducerConfig(metadata_broker_list=address(cluster))
    with Producer(config, callback_handler=Later()) as made:
        made.send(topic, b"a", timestamp_ms=LATER)
        made.send_all([KeyedMessage(topic, None, b"b"), KeyedMessage(topic, None, b"c", timestamp_ms=3)])
    assert times(stored(cluster, topic)) == [(b"a", LATER + 1), (b"b", 9), (b"c", 4)]


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        (-1, ValueError, r"is -1: a time is a whole number of milliseconds since 1970, from 0 to 9223372036854775807"),
        (2**63, ValueError, r"is 9223372036854775808: .* from 0 to 9223372036854775807, or None for now"),
        (True, TypeError, "is True, a bool: a time is"), (1.0, TypeError, r"is 1\.0, a float: a time is"),
        ("5", TypeError, "is '5', a str: a time is"),
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_at_once_and_nothing_is_sent(
    embedded_clusters: Callable[[int, str], EmbeddedCluster], fresh_topic: Callable[[], str], given: Any,
    kind: type[Exception], said: str,
) -> None:  # fmt: skip
    cluster, topic = embedded_clusters(1, "4.3"), fresh_topic()
    cluster.create_topic(topic, 1)
    with producer(cluster) as made, SyncProducer("127.0.0.1", cluster.port(0)) as sync:
        for send in (
            lambda: made.send(topic, b"v", timestamp_ms=given),
            lambda: made.send(KeyedMessage(topic, b"v", timestamp_ms=given)),
            lambda: made.send_batch(topic, [(None, b"v"), (None, b"w")], 0, [None, given]),
            lambda: sync.send(topic, [(None, b"v", (), given)], 0),
        ):
            with pytest.raises(kind, match=f"timestamp_ms of a message for {topic} {said}"):
                send()
        with pytest.raises(ValueError, match=f"1 times for 2 messages for {topic}"):
            made.send_batch(topic, [(None, b"v"), (None, b"w")], 0, [5])
        columns = made.columns()
        columns.add(MessageColumns(topic, [b"a", b"bad", b"c"], timestamps_ms=[5, given, 2**63 - 1]))
        with pytest.raises(MessagesNotSent) as raised:
            columns.finish()
        [(number, error)] = raised.value.failures
        assert (number, type(error)) == (1, kind)
    assert times(stored(cluster, topic)) == [(b"a", 5), (b"c", 2**63 - 1)]


def test_kafka_07_has_no_times(embedded_clusters: Callable[[int, str], EmbeddedCluster]) -> None:
    cluster: Any = embedded_clusters(1, "0.7")
    listed = f"0:127.0.0.1:{cluster.port(0)}"
    said = r"has the time 5 \(timestamp_ms\): Kafka 0\.7 stores no times, which need Kafka 0\.10 or later"
    with Producer(ProducerConfig(metadata_broker_list=listed)) as made:
        with pytest.raises(TypeError, match=f"a message for timed {said}"):
            made.send("timed", b"v", timestamp_ms=5)
        with pytest.raises(MessagesNotSent, match=said) as raised:
            made.send_all([KeyedMessage("timed", b"v", timestamp_ms=5), KeyedMessage("timed", b"w")])
        assert raised.value.sent == 1
    done = run("produce", "--brokers", listed, "--topic", "timed", "--from-json", stdin=LINES)
    assert done.returncode == 1
    assert b"line 1 was not sent: it has the time 5, but Kafka 0.7 stores no times\n" in done.stderr
    assert b"--times now sends the lines without their times" in done.stderr
