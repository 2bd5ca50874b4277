"""A transaction one of whose messages was refused on our side commits nothing, whichever call found it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.errors import ConfigError
from zkconsumer.producer import (
    CallbackHandler,
    KeyedMessage,
    MessagesNotSent,
    OversizedMessage,
    Producer,
    ProducerData,
    QueueFull,
    TransactionFailed,
)
from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.testing import EmbeddedCluster

LARGEST = 100
LARGE = b"x" * (LARGEST + 1)
NAMES = (f"refused-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedCluster]:
    settings = {"auto.create.topics.enable": False}
    with EmbeddedCluster(generation="3.9", zookeeper=False, settings=settings) as cluster:
        yield cluster


def text(value: object) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode("ascii")


def first_of_many(key: object, partitions: int) -> int:
    return partitions if key == b"nowhere" else 0


def producer(brokers: EmbeddedCluster, producer_type: str = "async", **settings: Any) -> Producer:
    given = {"transactional_id": next(NAMES), "producer_type": producer_type, "queue_buffering_max_ms": 1,
             "message_max_bytes": LARGEST, "unknown_topic_timeout_ms": 50, **settings}  # fmt: skip
    made = Producer(
        ProducerConfig(metadata_broker_list=f"127.0.0.1:{brokers.port(0)}", **given),
        value_encoder=text, partitioner=first_of_many,
    )  # fmt: skip
    made.init_transactions()
    return made


def read(brokers: EmbeddedCluster, topic: str) -> list[bytes | None]:
    with SimpleConsumer("127.0.0.1", brokers.port(0), dialect=KAFKA011, read_committed=True) as consumer:
        return [message.value for number in (0, 1) for message in consumer.fetch(topic, number, 0)]


def many(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield LARGE if number == count // 2 else b"%d" % number


def send_columns(made: Producer, topic: str, *columns: Any, **named: Any) -> None:
    sending = made.columns()
    sending.add(MessageColumns(topic, *columns, **named))
    sending.finish()


def send_in_steps(made: Producer, topic: str, **given: Any) -> None:
    steps = made.bulk()
    steps.add(0, topic, given.pop("value", b"v"), **given)
    steps.finish().checked()


Send = Callable[[Producer, str], Any]
REFUSED: dict[str, Send] = {
    "send, too large": lambda made, topic: made.send(topic, LARGE).result(),
    "send, too large, and the outcome is not looked at": lambda made, topic: made.send(topic, LARGE),
    "send, an unknown topic": lambda made, topic: made.send("unknown", b"v").result(),
    "send, no topic name": lambda made, topic: made.send("no/topic", b"v"),
    "send, not encodable": lambda made, topic: made.send(topic, "ö"),
    "send, a key of no bytes": lambda made, topic: made.send(topic, b"v", key=1.5),
    "send, no such partition": lambda made, topic: made.send(topic, b"v", partition=7),
    "send, a partition that is no number": lambda made, topic: made.send(topic, b"v", partition=1.5),  # type: ignore[call-overload]
    "send, the partitioner chooses none": lambda made, topic: made.send(topic, b"v", key=b"nowhere"),
    "send, a wrong header": lambda made, topic: made.send(topic, b"v", headers=[("name", 1)]),  # type: ignore[list-item]
    "send, a pair": lambda made, topic: made.send((b"key", b"v")),  # type: ignore[call-overload]
    "send, no value": lambda made, topic: made.send(topic),  # type: ignore[call-overload]
    "send, a keyed message": lambda made, topic: made.send(KeyedMessage(topic, LARGE)).result(),
    "send, several values of a key": lambda made, topic: made.send(ProducerData(topic, [b"v", LARGE])),
    "send_all, too large": lambda made, topic: made.send_all([b"v", LARGE, b"w"], topic),
    "send_all, plain values": lambda made, topic: made.send_all(list(many(500)), topic),
    "send_all, an iterator": lambda made, topic: made.send_all(many(500), topic),
    "send_all, keyed messages": lambda made, topic: made.send_all([KeyedMessage(topic, LARGE)]),
    "send_all, not encodable": lambda made, topic: made.send_all([(b"k", "ö")], topic),
    "send_all, an unknown topic": lambda made, topic: made.send_all([b"v"], "unknown"),
    "send_all, no message": lambda made, topic: made.send_all([b"without a topic"]),
    "send_all, a mapping": lambda made, topic: made.send_all({"k": "v"}, topic),
    "send_batch, too large": lambda made, topic: made.send_batch(topic, [(None, b"v"), (None, LARGE)], 0),
    "send_batch, no such partition": lambda made, topic: made.send_batch(topic, [(None, b"v")], 7),
    "send_batch, an unknown topic": lambda made, topic: made.send_batch("unknown", [(None, b"v")], 0),
    "in steps, too large": lambda made, topic: send_in_steps(made, topic, value=LARGE),
    "in steps, no such partition": lambda made, topic: send_in_steps(made, topic, partition=7),
    "columns, too large": lambda made, topic: send_columns(made, topic, [b"v", LARGE]),
    "columns, no such partition": lambda made, topic: send_columns(made, topic, [b"v"], None, [7]),
    "columns, an unknown topic": lambda made, topic: send_columns(made, "unknown", [b"v"]),
    "columns, no topic name": lambda made, topic: send_columns(made, "no/topic", [b"v"]),
    "columns of different length": lambda made, topic: send_columns(made, topic, [b"v"], [b"k", b"l"]),
}  # fmt: skip
NAMED = pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)


def swallowed(refused: Send, made: Producer, topic: str) -> None:
    """Do as an application that goes on after the error."""
    try:
        refused(made, topic)
    except TransactionFailed:
        raise
    except Exception:  # noqa: BLE001 - whatever it is
        pass


@NAMED
@pytest.mark.parametrize("producer_type", ["sync", "async"])
def test_nothing_is_committed_and_the_next_calls_say_why(
    brokers: EmbeddedCluster, fresh_topic: Callable[[], str], refused: Send, producer_type: str
) -> None:
    topic = fresh_topic()
    brokers.create_topic(topic, 2)
    with producer(brokers, producer_type) as made:
        made.begin_transaction()
        made.send(topic, b"before", partition=0)
        swallowed(refused, made, topic)
        with pytest.raises(TransactionFailed, match="abort it") as failed:
            made.send(topic, b"after", partition=0)
        assert failed.value.__cause__ is not None, "what failed"
        assert str(failed.value.__cause__) in str(failed.value)
        with pytest.raises(TransactionFailed, match="abort it"):
            made.commit_transaction()
        made.abort_transaction()
        with made.transaction():
            made.send(topic, b"next", partition=0)
    assert read(brokers, topic) == [b"next"]


@NAMED
def test_a_block_is_aborted(brokers: EmbeddedCluster, fresh_topic: Callable[[], str], refused: Send) -> None:
    topic = fresh_topic()
    brokers.create_topic(topic, 2)
    with producer(brokers) as made:

        def send_and_go_on() -> None:
            made.send(topic, b"before", partition=0)
            swallowed(refused, made, topic)

        with pytest.raises(TransactionFailed, match="abort it"), made.transaction():
            send_and_go_on()
        with made.transaction():
            made.send(topic, b"next", partition=0)
    assert read(brokers, topic) == [b"next"]


def test_a_message_for_which_there_was_no_room_counts(brokers: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    brokers.create_topic(topic, 2)
    settings = {"batch_num_messages": 2, "queue_buffering_max_messages": 2, "queue_enqueue_timeout_ms": 0,
                "queue_buffering_max_ms": 60_000}  # fmt: skip
    with producer(brokers, **settings) as made:
        made.begin_transaction()
        made.send(topic, b"a", partition=0)
        with pytest.raises(QueueFull):
            made.send_batch(topic, [(None, b"b"), (None, b"c")], 0)
        with pytest.raises(TransactionFailed, match="no room"):
            made.commit_transaction()
        made.abort_transaction()
    assert read(brokers, topic) == []


def test_a_message_whose_call_was_interrupted_counts(brokers: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    """A signal handler that raises may have ended the call before the message was taken."""
    topic = fresh_topic()
    brokers.create_topic(topic, 2)

    def interrupted(value: object) -> bytes:
        raise KeyboardInterrupt

    with producer(brokers) as made:
        made.begin_transaction()
        made.send(topic, b"a", partition=0)
        made._sending._placer._encode_value = interrupted  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            made.send(topic, b"b", partition=0)
        with pytest.raises(TransactionFailed, match="abort it"):
            made.commit_transaction()


def test_a_message_outside_of_a_transaction_fails_none(
    brokers: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    brokers.create_topic(topic, 2)
    with producer(brokers) as made:
        with pytest.raises(TransactionFailed, match="no transaction is open"):
            made.send(topic, LARGE)
        with made.transaction():
            made.send(topic, b"in", partition=0)
        with pytest.raises(TransactionFailed, match="no transaction is open"):
            made.send(topic, b"out", partition=0)
        with made.transaction():
            made.send(topic, b"in", partition=0)
    assert read(brokers, topic) == [b"in", b"in"]


def test_what_was_added_in_steps_fails_its_own_transaction_alone(
    brokers: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    brokers.create_topic(topic, 2)
    with producer(brokers) as made:
        steps = made.bulk()
        made.begin_transaction()
        steps.add(0, topic, b"a", partition=0)
        steps.flush()
        steps.add(1, topic, LARGE)
        made.abort_transaction()
        made.begin_transaction()
        made.send(topic, b"next", partition=0)
        with pytest.raises(MessagesNotSent):
            steps.finish().checked()
        made.commit_transaction()
    assert read(brokers, topic) == [b"next"]


def test_the_first_failure_is_the_one_that_is_named(brokers: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    brokers.create_topic(topic, 2)
    with producer(brokers) as made:
        made.begin_transaction()
        made.send(topic, LARGE, partition=1)
        with pytest.raises(TransactionFailed) as failed:
            made.commit_transaction()
        assert isinstance(failed.value.__cause__, OversizedMessage)
        assert f"{topic}/1" in str(failed.value)
        made.abort_transaction()


@pytest.mark.parametrize("given", [{"callback_handler": CallbackHandler()}, {"event_handler": CallbackHandler()}])
def test_handlers_have_no_transactions_and_nothing_is_left_running(given: dict[str, Any]) -> None:
    config = ProducerConfig(metadata_broker_list="127.0.0.1:1", transactional_id="t")
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        Producer(config, **given)


def test_refused_messages_are_counted_by_every_way_in(brokers: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    brokers.create_topic(topic, 2)
    config = ProducerConfig(metadata_broker_list=f"127.0.0.1:{brokers.port(0)}", message_max_bytes=LARGEST)
    with Producer(config) as made:
        for send in ("send, too large", "send_all, too large", "in steps, too large", "columns, too large"):
            swallowed(REFUSED[send], made, topic)
        assert made.statistics().topics[topic].failed_messages == 4
