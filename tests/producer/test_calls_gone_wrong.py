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
from zkconsumer.producer.errors import ProducerClosed
from zkconsumer.producer.handlers import CallbackHandler
from zkconsumer.producer.keyed_message import KeyedMessage, ProducerData
from zkconsumer.producer.producer import Producer
from zkconsumer.testing import EmbeddedCluster

NOWHERE = "127.0.0.1:1"


def producer(embedded: EmbeddedCluster, **given: Any) -> Producer:
    return Producer(ProducerConfig(metadata_broker_list=f"127.0.0.1:{embedded.port(0)}"), **given)


@pytest.mark.parametrize(
    ("messages", "instead"),
    [
        ("text", "send_all takes a series of messages, and then the topic"),
        (b"bytes", "send_all takes a series of messages"),
        (memoryview(b"bytes"), "send_all takes a series of messages"),
        ({"ann": "1"}, "give its items()"),
        (KeyedMessage("t", "a"), "send takes it, and send_all a list"),
        (ProducerData("t", ["a"]), "send takes it, and send_all a list"),
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
        (lambda made, topic: made.send([KeyedMessage(topic, b"a")]), "send takes one, and send_all takes several"),
        (lambda made, topic: made.send(KeyedMessage(topic, b"a"), KeyedMessage(topic, b"b")), "which has its own"),
        (lambda made, topic: made.send(topic, "text"), "set serializer.class (for keys: key.serializer.class)"),
        (lambda made, topic: made.send(topic, ["a"]), "is of type list, and DefaultEncoder takes bytes"),
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
    with pytest.raises(TypeError, match="is no ProducerConfig"):
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
