"""Errors that are kept name what failed, and do not keep it in memory."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from simpleconsumer.types import Broker
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.errors import MessageNotSent, MessagesNotSent, without_frames
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.sending import FoundCluster
from zkconsumer.producer.sending.topic_lookup import FoundTopic

MESSAGES, MESSAGE_BYTES, QUEUE_BYTES = 300, 50_000, 1_000_000
MOST_BYTES = 4 * QUEUE_BYTES + 2_000_000
"""The queue, a request as pieces and as a whole, and the stack of the program; the messages have 15 MB."""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A broker that takes connections and reads nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


class Lookup:
    """Knows one topic of one partition."""

    def __init__(self, port: int) -> None:
        self.port = port

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        return dict.fromkeys(topics, FoundTopic({0: Broker(0, "127.0.0.1", self.port)}))


def producer(port: int, **settings: Any) -> Producer:
    few = {
        "request_timeout_ms": 25, "message_send_max_retries": 0, "retry_backoff_ms": 1, "producer_type": "async",
        "queue_buffering_max_bytes": QUEUE_BYTES, "batch_max_bytes": 200_000, "request_max_bytes": 400_000,
        "queue_buffering_max_ms": 1,
    }  # fmt: skip
    config = ProducerConfig(metadata_broker_list="127.0.0.1:1", **{**few, **settings})
    return Producer(config, cluster=FoundCluster(Lookup(port), True, lambda: None))


def value(number: int) -> bytes:
    return b"%d" % number + b"x" * MESSAGE_BYTES


def _send_all(made: Producer) -> list[Exception]:
    with pytest.raises(MessagesNotSent) as caught:
        made.send_all((value(number) for number in range(MESSAGES)), "t")
    assert caught.value.failed == MESSAGES
    return [error for _, error in caught.value.failures]


def _futures(made: Producer) -> list[Exception]:
    futures = [made.send("t", value(number)) for number in range(MESSAGES)]
    assert made.flush(60)
    errors = [each.exception(0) for each in futures]
    assert all(isinstance(each, MessageNotSent) for each in errors)
    return [each for each in errors if each is not None]


@pytest.mark.parametrize(("send", "wait_ms"), [(_send_all, -1), (_send_all, 1), (_futures, -1)])
def test_memory_stays_within_its_bound_while_a_broker_stalls(
    silent_port: int, send: Callable[[Producer], list[Exception]], wait_ms: int
) -> None:
    made = producer(silent_port, queue_enqueue_timeout_ms=wait_ms)
    tracemalloc.start()
    try:
        kept = send(made)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        made.close(0)
    assert peak < MOST_BYTES
    assert kept


def test_an_error_keeps_its_causes_and_loses_the_frames_of_all() -> None:
    try:
        try:
            raise OSError("the first")
        except OSError as error:
            raise ValueError("the second") from error
    except ValueError as error:
        caught = error
    assert caught.__traceback__
    assert caught.__cause__
    assert caught.__cause__.__traceback__
    without_frames(caught)
    assert caught.__traceback__ is caught.__cause__.__traceback__ is None
    assert str(caught.__cause__) == "the first"
