"""confluent-kafka as a peer in tests: it writes and reads messages of real brokers."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from zkconsumer.testing.errors import WaitTimeout
from zkconsumer.testing.waiting import Deadline

TIMEOUT_S = 30.0


def confluent_produce(
    brokers: str, topic: str, values: Iterable[bytes], *, partition: int = 0, settings: Mapping[str, Any] | None = None
) -> None:
    """Write messages to a partition; returns when all its replicas in sync have them.

    Raises:
        KafkaException: one of them was refused.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": brokers, "acks": "all", **(settings or {})})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    left = producer.flush(TIMEOUT_S)
    if failed:
        raise KafkaException(failed[0])
    if left:
        raise WaitTimeout(f"{left} messages were not answered within {TIMEOUT_S:g} s")


def confluent_consume(
    brokers: str, topic: str, count: int, *, partition: int = 0, settings: Mapping[str, Any] | None = None
) -> list[bytes | None]:
    """The values of the first `count` messages of a partition."""
    options = {"bootstrap.servers": brokers, "group.id": "none", "enable.auto.commit": False, **(settings or {})}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return [message.value() for message in next_messages(consumer, count)]
    finally:
        consumer.close()


def next_messages(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages of a consumer; WaitTimeout if they do not come in time."""
    deadline, found = Deadline(TIMEOUT_S), []
    while len(found) < count:
        if deadline.expired:
            raise WaitTimeout(f"{len(found)} of {count} messages came within {TIMEOUT_S:g} s")
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def unsigned_token(user: str, lifetime_s: float = 300.0) -> tuple[str, float]:
    """A token of OAUTHBEARER that nobody has signed, which test brokers take, and when it ends."""

    def part(fields: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()

    now = time.time()
    # Whole seconds: a broker refuses what was issued later in the millisecond that its clock shows.
    claims = {"sub": user, "iat": int(now), "exp": now + lifetime_s}
    return f"{part({'alg': 'none'})}.{part(claims)}.", now + lifetime_s
