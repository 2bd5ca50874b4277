"""The threads of brokers: one that leads nothing any more loses its thread, and no message with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.producer.stored_pairs import stored
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending import delivery
from zkconsumer.producer.sending.layout import Layout
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

WAIT_S = 20.0


def producer(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    config = ProducerConfig(
        metadata_broker_list=f"127.0.0.1:{cluster.port(0)}", client_id="threads", retry_backoff_ms=20,
        topic_metadata_refresh_interval_ms=50, **settings,
    )  # fmt: skip
    return Producer(config)


def of_broker(broker: int, beside: set[threading.Thread]) -> list[threading.Thread]:
    name = f"zkconsumer-producer-{broker}"
    return [each for each in threading.enumerate() if each.name == name and each not in beside]


def test_a_broker_leads_as_long_as_the_last_look_up_of_a_topic_says_so() -> None:
    layout = Layout()
    layout.found("a", {0: 1, 1: None})
    layout.found("b", {0: 1, 1: 2})
    assert [broker for broker in range(4) if layout.has_leader(broker)] == [1, 2]
    layout.found("a", {0: 3, 1: None})
    layout.found("b", {0: 2, 1: 2})
    assert [broker for broker in range(4) if layout.has_leader(broker)] == [2, 3]


@pytest.mark.parametrize("acks", [1, 0])
def test_a_broker_that_leads_nothing_loses_its_thread_and_gets_another_one_later(
    embedded: EmbeddedCluster, fresh_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    monkeypatch.setattr(delivery, "IDLE_BROKER_S", 0.2)
    topic = fresh_topic()
    embedded.create_topic(topic, assignment={0: [0, 1], 1: [1, 0]})
    before = set(threading.enumerate())
    sent = 0

    def send_to_both() -> None:
        nonlocal sent
        sent += 1
        for partition in (0, 1):
            made.send(topic, b"%d" % sent, partition=partition)

    with producer(embedded, request_required_acks=acks) as made:
        for _ in range(2):
            send_to_both()
            wait_until(lambda: of_broker(1, before) != [], WAIT_S, "the thread of broker 1")
            embedded.move_leader(topic, 1, 0)

            def has_ended() -> bool:
                send_to_both()
                return of_broker(1, before) == []

            wait_until(has_ended, WAIT_S, "the end of the thread of broker 1")
            assert len(of_broker(0, before)) == 1
            embedded.move_leader(topic, 1, 1)

            def has_returned() -> bool:
                send_to_both()
                return len(of_broker(1, before)) == 1

            wait_until(has_returned, WAIT_S, "another thread of broker 1")
    wait_until(lambda: of_broker(0, before) == of_broker(1, before) == [], WAIT_S, "the end of all threads")
    if acks:
        for partition in (0, 1):
            assert [value for _, value in stored(embedded, topic, partition)] == [b"%d" % n for n in range(1, sent + 1)]


def test_a_broker_that_is_idle_and_leads_keeps_its_thread(
    embedded: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "IDLE_BROKER_S", 0.01)
    before = set(threading.enumerate())
    with producer(embedded) as made:
        made.send(topic, b"v", partition=1)
        thread = of_broker(1, before)
        other_partition = 0
        for _ in range(20):
            made.send(topic, b"v", partition=other_partition)
        assert of_broker(1, before) == thread != []
