"""Calls that a user gets wrong: each is refused with what to write instead, and nothing of it is sent."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.producer.stored_pairs import stored
from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.errors import ConfigError
from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.producer.errors import MessageNotSent, ProducerClosed
from zkconsumer.producer.handlers import CallbackHandler
from zkconsumer.producer.keyed_message import KeyedMessage, ProducerData
from zkconsumer.producer.producer import Producer
from zkconsumer.testing import EmbeddedCluster, Fault

NOWHERE = "127.0.0.1:1"


def producer(embedded: EmbeddedCluster, **given: Any) -> Producer:
    return Producer(ProducerConfig(metadata_broker_list=f"127.0.0.1:{embedded.port(0)}"), **given)


@pytest.mark.parametrize(
    ("messages", "instead"),
    [
        ("text", "send_all accepts a series of messages, and then the topic"),
        (b"bytes", "send_all accepts a series of messages"),
        (memoryview(b"bytes"), "send_all accepts a series of messages"),
        ({"ann": "1"}, "give its items()"),
        (KeyedMessage("t", "a"), "give it to send, or give send_all a list"),
        (ProducerData("t", ["a"]), "give it to send, or give send_all a list"),
    ],
)
def test_the_pieces_of_something_else_are_not_sent_as_messages(
    embedded: EmbeddedCluster, topic: str, messages: Any, instead: str
) -> None:
    with (
        producer(embedded, value_encoder=lambda value: str(value).encode()) as made,
        pytest.raises(TypeError, match=re.escape(instead)),
    ):
        made.send_all(messages, topic)
    assert stored(embedded, topic, 0) == stored(embedded, topic, 1) == []


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda made, topic: made.send([KeyedMessage(topic, b"a")]), "send accepts one message, and send_all several"),
        (lambda made, topic: made.send(KeyedMessage(topic, b"a"), KeyedMessage(topic, b"b")), "which has its own"),
        (lambda made, topic: made.send(KeyedMessage(topic, b"a"), timestamp_ms=5), "timestamp_ms given with KeyedMes"),
        (lambda made, topic: made.send(KeyedMessage(topic, b"a"), headers=()), "headers given with KeyedMessage("),
        (lambda made, topic: made.send(ProducerData(topic, b"a"), key=b"k", partition=0), "key and partition given wi"),
        (lambda made, topic: made.send(KeyedMessage(topic, b"a"), part_key=0), "give KeyedMessage everything that"),
        (lambda made, topic: made.send(topic, "text"), "set serializer.class (for keys: key.serializer.class)"),
        (lambda made, topic: made.send(topic, ["a"]), "is of type list; DefaultEncoder needs bytes"),
    ],
)
def test_what_is_no_message_is_refused(
    embedded: EmbeddedCluster, topic: str, call: Callable[[Producer, str], object], instead: str
) -> None:
    with producer(embedded) as made, pytest.raises(TypeError, match=re.escape(instead)):
        call(made, topic)
    assert stored(embedded, topic, 0) == stored(embedded, topic, 1) == []


def test_send_all_says_that_the_producer_is_closed_and_reads_nothing(embedded: EmbeddedCluster, topic: str) -> None:
    with producer(embedded) as made:
        pass
    messages = iter([b"a", b"b"])
    with pytest.raises(ProducerClosed, match="the producer is closed"):
        made.send_all(messages, topic)
    with pytest.raises(ProducerClosed, match="the producer is closed"):
        made.send_all([b"a"], topic)
    assert list(messages) == [b"a", b"b"]


@pytest.mark.parametrize("chosen", [None, "0", 1.0, b"0"])
def test_a_partitioner_that_returns_no_number_is_named(embedded: EmbeddedCluster, topic: str, chosen: object) -> None:
    with producer(embedded, partitioner=lambda key, partitions: chosen) as made:
        with pytest.raises(TypeError, match=re.escape(f"the partitioner chose {chosen!r} for the key b'k'")):
            made.send(topic, b"a", key=b"k")
        assert made.send(topic, b"b", partition=1).result().offset == 0


def test_what_a_partitioner_raises_fails_the_message_that_it_was_asked_for(
    embedded: EmbeddedCluster, topic: str
) -> None:
    with producer(embedded, partitioner=lambda key, partitions: {b"known": 0}[key]) as made:
        bulk = made.bulk()
        for number, key in enumerate([b"known", b"unknown", b"known"]):
            bulk.add(number, topic, b"a", key)
        summary = bulk.finish()
    assert (summary.sent, summary.failed) == (2, 1)
    assert stored(embedded, topic, 0) == [(b"known", b"a")] * 2


@pytest.mark.parametrize("config", [NOWHERE, {"metadata.broker.list": NOWHERE}, ConsumerConfig("zk:2181", "g")])
def test_a_producer_needs_the_settings_of_one(config: Any) -> None:
    with pytest.raises(TypeError, match="is not a ProducerConfig"):
        Producer(config)


@pytest.mark.parametrize(
    ("handler", "instead"),
    [(CallbackHandler, "is a class: give an instance, CallbackHandler()"), ("x", "none of the methods before_enqueue")],
)
def test_a_callback_handler_has_methods(handler: object, instead: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(TypeError, match=re.escape(instead)):
        Producer(ProducerConfig(metadata_broker_list=NOWHERE), callback_handler=handler)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"partitioner_class": "murmur"}, "0.8.2, murmur2, "),
        ({"serializer_class": "StringEncodr"}, "DefaultEncoder, StringEncoder, NullEncoder, or module:name"),
        ({"callback_handler": "Upper"}, "it must be module:name"),
    ],
)
def test_an_error_about_a_class_says_which_names_there_are(settings: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(names)):
        Producer(ProducerConfig(metadata_broker_list=NOWHERE, **settings))


@pytest.mark.parametrize(
    "setting",
    ["serializer.class", "key.serializer.class", "partitioner.class", "callback.handler", "event.handler"],
)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (":x", "':x' is not module:name"),
        (".a:b", "'.a:b' is not module:name"),
        ("a.:b", "'a.:b' is not module:name"),
        ("a..b:c", "'a..b:c' is not module:name"),
        ("json:", "'json:' is not module:name"),
        ("a b:c", "'a b:c' is not module:name"),
        ("json:a:b", "'json:a:b' is not module:name"),
        ("json:nothing", "module 'json' has no 'nothing'"),
        ("no.such.module:x", "module 'no' does not exist"),
        ("json.no_such:x", "module 'json.no_such' does not exist"),
        ("tests.producer.modules_that_break.raising:x", "cannot be imported: ZeroDivisionError"),
        ("tests.producer.modules_that_break:NeedsArguments", "NeedsArguments() raised TypeError: "),
        ("tests.producer.modules_that_break:Raises", "Raises() raised ZeroDivisionError: "),
        ("math:pi", "3.14159"),
    ],
)
def test_a_name_of_a_class_that_is_of_no_use_is_an_error_of_its_setting(setting: str, name: str, said: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        Producer(ProducerConfig.from_properties({"metadata.broker.list": NOWHERE, setting: name}))
    assert (refused.value.key, refused.value.value) == (setting, name)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("given", [5, object(), type("Needs", (), {"__init__": lambda self, a: None})])
def test_a_partitioner_that_is_none_is_an_error_of_its_setting(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"partitioner\.class"):
        Producer(ProducerConfig(metadata_broker_list=NOWHERE), partitioner=given)


def test_a_partition_that_came_since_the_last_look_up_is_found(
    embedded: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    embedded.create_topic(name, 1)
    config = ProducerConfig(metadata_broker_list=f"127.0.0.1:{embedded.port(0)}", retry_backoff_ms=10)
    with Producer(config) as made:
        made.send(name, b"a", partition=0)
        embedded.add_partitions(name, 2)
        assert made.send(name, b"b", partition=1).result().partition == 1
        embedded.add_partitions(name, 3)
        assert made.send_batch(name, [(None, b"c")], 2).result()[0].partition == 2
        embedded.add_partitions(name, 4)
        columns = made.columns()
        columns.add(MessageColumns(name, [b"d"], None, [3]))
        assert columns.finish().sent == 1


def test_a_partition_that_is_not_there_is_looked_up_no_more_often_than_other_things(
    embedded: EmbeddedCluster, topic: str
) -> None:
    config = ProducerConfig(metadata_broker_list=f"127.0.0.1:{embedded.port(0)}", retry_backoff_ms=60_000)
    with Producer(config) as made:
        made.send(topic, b"a", partition=0)
        fault = Fault.delay(0.0, api="metadata", topic=topic)
        embedded.faults.add(fault, times=None)
        for _ in range(20):
            with pytest.raises(ValueError, match="has no partition 7; it has 0, 1"):
                made.send(topic, b"a", partition=7)
        asked = embedded.faults.used(fault)
        embedded.faults.clear()
    assert asked == 1


def test_a_partition_that_nobody_can_be_asked_about_says_so() -> None:
    with EmbeddedCluster(generation="2.8", zookeeper=False) as cluster:
        cluster.create_topic("t", 1)
        config = ProducerConfig(metadata_broker_list=f"127.0.0.1:{cluster.port(0)}", connect_timeout_ms=200)
        with Producer(config) as made:
            made.send("t", b"a", partition=0)
            cluster.kill(0)
            with pytest.raises(MessageNotSent, match="whether the topic has this partition is not known: no broker"):
                made.send("t", b"a", partition=1)


@pytest.mark.parametrize("generation", ["0.8", "0.9", "2.8", "4.3"])
def test_a_broker_with_an_id_that_is_not_of_kafka_07_gets_a_hint(generation: str) -> None:
    with EmbeddedCluster(generation=generation, zookeeper=False) as cluster:
        address = f"127.0.0.1:{cluster.port(0)}"
        for given in ({"metadata_broker_list": f"0:{address}"},
                      {"metadata_broker_list": address, "kafka_generation": "0.7"}):  # fmt: skip
            config = ProducerConfig(message_send_max_retries=0, request_timeout_ms=250, **given)
            with Producer(config) as made, pytest.raises(MessageNotSent, match="leave out the ids and"):
                made.send("t", b"v")


def test_a_broker_of_kafka_07_without_an_id_gets_a_hint() -> None:
    with EmbeddedCluster(generation="0.7", zookeeper=False) as cluster:
        config = ProducerConfig(
            metadata_broker_list=f"127.0.0.1:{cluster.port(0)}", message_send_max_retries=0, connect_timeout_ms=500
        )
        with Producer(config) as made, pytest.raises(MessageNotSent, match="as id:host:port, or set"):
            made.send("t", b"v")


def test_a_broker_of_kafka_07_that_has_answered_before_gets_no_hint() -> None:
    with EmbeddedCluster(generation="0.7", zookeeper=False) as cluster:
        config = ProducerConfig(
            metadata_broker_list=f"0:127.0.0.1:{cluster.port(0)}", message_send_max_retries=0, request_timeout_ms=250
        )
        with Producer(config) as made:
            made.send("t", b"v")
            cluster.pause(0)
            with pytest.raises(MessageNotSent) as failed:
                made.send("t", b"v")
            cluster.resume(0)
    assert "leave out the ids" not in str(failed.value)
