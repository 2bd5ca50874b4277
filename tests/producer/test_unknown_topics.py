"""Topics that brokers do not know: their messages fail early, and those of a topic that is being created do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from simpleconsumer.types import Broker
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.producer.errors import MessageNotSent, MessagesNotSent
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.layout import Layout
from zkconsumer.producer.sending.sending import FoundCluster
from zkconsumer.producer.sending.topic_lookup import FoundTopic
from zkconsumer.testing import Cluster, EmbeddedCluster, Fault
from zkconsumer.testing.kafka import KafkaCluster

WAIT_S = 30.0
NO_CREATION = {"auto.create.topics.enable": False}
ABSENT = FoundTopic({}, "UnknownTopicOrPartition (code 3)", is_absent=True)
PATIENT = {"message_send_max_retries": 100_000, "retry_backoff_ms": 20}
"""The settings of a producer that outlives the failure of every broker, as those of the Spark sink."""


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedCluster]:
    """A broker that creates no topic on its own."""
    with EmbeddedCluster(1, zookeeper=False, settings=NO_CREATION) as made:
        yield made


def producer(cluster: Cluster, *, lookup: Any = None, **settings: Any) -> Producer:
    config = ProducerConfig(metadata_broker_list=f"127.0.0.1:{cluster.port(0)}", **{**PATIENT, **settings})
    return Producer(config, cluster=None if lookup is None else FoundCluster(lookup, True, lambda: None))


class Lookup:
    """Answers with what a function returns for the number of the look-up, from 0."""

    def __init__(self, answer: Callable[[int], FoundTopic]) -> None:
        self.answer = answer
        self.count = 0

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        self.count += 1
        return dict.fromkeys(topics, self.answer(self.count - 1))


# -- without a thread --------------------------------------------------------------------------------------------------


def searched(*looked_up_at: float, absence_s: float = 10.0) -> Layout:
    layout = Layout(absence_s=absence_s)
    for at in looked_up_at:
        layout.not_found("t", "there is none", False, True, at)
    return layout


def test_a_topic_is_missing_when_brokers_have_not_known_it_for_so_long() -> None:
    assert not searched(100.0).is_absent("t")
    assert not searched(100.0, 105.0, 109.9).is_absent("t")
    assert searched(100.0, 105.0, 110.0).is_absent("t")
    assert searched(100.0, absence_s=0.0).is_absent("t")
    assert not Layout().is_absent("t")


def test_a_look_up_without_an_answer_says_nothing_about_a_topic() -> None:
    layout = searched(100.0, 105.0)
    layout.not_found("t", "no broker answers", False, False, 109.0)
    layout.not_found("t", "there is none", False, True, 111.0)
    assert not layout.is_absent("t")
    layout.not_found("t", "there is none", False, True, 121.0)
    assert layout.is_absent("t")


def test_a_topic_that_nobody_asked_for_since_may_be_about_to_be_created_again() -> None:
    layout = searched(100.0, 110.0)
    assert layout.was_just_absent("t", 110.05, 0.1)
    assert not layout.was_just_absent("t", 110.1, 0.1)
    layout.not_found("t", "there is none", False, True, 500.0)
    assert not layout.is_absent("t")


def test_a_topic_that_was_found_is_missing_no_more() -> None:
    layout = searched(100.0, 110.0)
    layout.found("t", {0: 1})
    assert not layout.is_absent("t")


# -- with a broker -----------------------------------------------------------------------------------------------------


def test_a_message_for_a_topic_that_nobody_creates_fails_long_before_its_retries(strict: EmbeddedCluster) -> None:
    denied = pytest.raises(MessageNotSent, match=r"UnknownTopicOrPartition \(code 3\)")
    with producer(strict, unknown_topic_timeout_ms=200) as made, denied as caught:
        made.send("nobody-creates-it", b"v")
    assert not caught.value.may_be_stored


def test_the_messages_behind_do_not_wait_as_long_each(strict: EmbeddedCluster) -> None:
    """One message after the other would wait for minutes."""
    lookup = Lookup(lambda number: ABSENT)
    made = producer(strict, lookup=lookup, unknown_topic_timeout_ms=200, retry_backoff_ms=100)
    with made, pytest.raises(MessagesNotSent) as caught:
        made.send_all([b"%d" % number for number in range(2000)], "missing")
    assert (caught.value.sent, caught.value.failed) == (0, 2000)
    assert lookup.count < 200


@pytest.mark.parametrize("columns", [False, True])
def test_every_way_to_send_ends(strict: EmbeddedCluster, columns: bool) -> None:
    with producer(strict, unknown_topic_timeout_ms=100) as made:
        if columns:
            sending = made.columns(WAIT_S)
            sending.add(MessageColumns("no-such-columns", [b"a", b"b"]))
            with pytest.raises(MessagesNotSent, match="code 3"):
                sending.finish()
        else:
            with pytest.raises(MessageNotSent, match="code 3"):
                made.send_batch("no-such-batch", [(None, b"v")], 0)


def test_a_broker_that_starts_and_counts_no_broker_alive_is_asked_again(strict: EmbeddedCluster) -> None:
    """It does not know the topic yet either, and says that it cannot make it: there were too few brokers for that."""
    strict.create_topic("known", 1)
    with producer(strict, message_send_max_retries=3) as made:
        assert made.send("known", b"before").result(WAIT_S).offset == 0
        starting = strict.faults.add(Fault.error(38, "metadata", "known"), times=2)
        strict.faults.add(Fault.error(6, "produce", "known"), times=1)
        assert made.send("known", b"behind").result(WAIT_S).offset == 1
        assert strict.faults.used(starting) == 2


def test_a_topic_that_needs_more_brokers_than_there_are_fails_after_its_retries(strict: EmbeddedCluster) -> None:
    strict.faults.add(Fault.error(38, "metadata", "too-many-replicas"), times=None)
    with producer(strict, message_send_max_retries=3) as made, pytest.raises(MessageNotSent, match="code 38"):
        made.send("too-many-replicas", b"v")
    strict.faults.clear()


def test_a_topic_that_is_being_created_is_waited_for_beyond_the_retries(strict: EmbeddedCluster) -> None:
    """Its creation takes longer than the retries of a message: brokers deny it, then elect, then know its leader."""
    strict.create_topic("being-created", 1)
    led = FoundTopic({0: Broker(0, "127.0.0.1", strict.port(0))})
    lookup = Lookup(lambda number: ABSENT if number < 12 else led)
    with producer(strict, lookup=lookup, message_send_max_retries=0, unknown_topic_timeout_ms=20_000) as made:
        assert made.send("being-created", b"v").result(WAIT_S).offset == 0
    assert lookup.count >= 13


def test_brokers_that_do_not_answer_are_tried_as_often_as_a_message(strict: EmbeddedCluster) -> None:
    lookup = Lookup(lambda number: FoundTopic({}, "no broker answers a request about it"))
    made = producer(strict, lookup=lookup, message_send_max_retries=3, unknown_topic_timeout_ms=0)
    with made, pytest.raises(MessageNotSent, match="no broker answers"):
        made.send("t", b"v")
    assert lookup.count == 4


@pytest.mark.real
@pytest.mark.parametrize("version", [
    "0.8.2.2", *(pytest.param(each, marks=pytest.mark.slow) for each in ("0.8.0", "1.1.1", "2.8.2", "3.9.2"))
])  # fmt: skip
def test_on_real_brokers_that_create_no_topics(version: str) -> None:
    with KafkaCluster(version, brokers=1, settings=NO_CREATION) as cluster:
        with producer(cluster, unknown_topic_timeout_ms=1000) as made, pytest.raises(MessageNotSent, match="code 3"):
            made.send("typo", b"v")

        def create() -> None:
            time.sleep(1.0)
            cluster.create_topic("late", 1)

        creating = threading.Thread(target=create)
        with producer(cluster, unknown_topic_timeout_ms=60_000, message_send_max_retries=0) as made:
            creating.start()
            assert made.send("late", b"v").result(WAIT_S).offset == 0
        creating.join()
