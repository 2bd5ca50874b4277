"""A broker stores batches and answers with an error: what is acknowledged is in the log, and nothing is there twice."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import MessageNotSent, Producer, TransactionFailed
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.proxy.kafka_frames import Exchange

PRODUCE = 0
STORAGE_ERROR, NOT_LEADER, TIMED_OUT = 56, 6, 7


class Denier:
    """Changes the error code in the next answers to Produce, which the broker has served."""

    def __init__(self) -> None:
        self.code, self.left = 0, 0

    def __call__(self, exchange: Exchange) -> bytes | None:
        if exchange.api != PRODUCE or not self.left:
            return None
        self.left -= 1
        answer = bytearray(exchange.response)
        name_bytes = struct.unpack_from(">h", answer, 8)[0]
        code_at = 4 + 4 + 2 + name_bytes + 4 + 4
        assert struct.unpack_from(">h", answer, code_at) == (0,), "it was stored"
        struct.pack_into(">hq", answer, code_at, self.code, -1)
        return bytes(answer)


class Place:
    """A broker behind a proxy."""

    def __init__(self, cluster: EmbeddedCluster, address: str, denier: Denier) -> None:
        self.cluster, self.address, self.denier = cluster, address, denier

    def producer(self, **settings: Any) -> Producer:
        given = {"message_send_max_retries": 2, "retry_backoff_ms": 1, "producer_type": "async",
                 "queue_buffering_max_ms": 1, **settings}  # fmt: skip
        return Producer(ProducerConfig(metadata_broker_list=self.address, **given))

    def deny(self, code: int, times: int) -> None:
        self.denier.code, self.denier.left = code, times

    def stored(self, topic: str, *, read_committed: bool = False) -> list[bytes | None]:
        port = self.cluster.port(0)
        with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011, read_committed=read_committed) as consumer:
            return [message.value for message in consumer.fetch(topic, 0, 0)]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        cluster = EmbeddedCluster(generation="3.9", zookeeper=False)
        denier = Denier()
        proxy = stack.enter_context(TcpProxy(("127.0.0.1", cluster.port(0)), rewrite=denier))
        cluster.advertise(0, proxy.port)
        stack.enter_context(cluster)
        yield Place(cluster, proxy.address, denier)


@pytest.fixture
def topic(place: Place, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    place.cluster.create_topic(name, 1)
    return name


@pytest.mark.parametrize("code", [STORAGE_ERROR, NOT_LEADER, TIMED_OUT, -1])
def test_the_batch_after_one_that_was_stored_and_denied_is_stored(place: Place, topic: str, code: int) -> None:
    with place.producer(enable_idempotence=True) as made:
        made.send(topic, b"a", partition=0).result()
        place.deny(code, times=3)
        with pytest.raises(MessageNotSent) as failed:
            made.send(topic, b"denied", partition=0).result()
        assert failed.value.may_be_stored
        place.deny(code, times=0)
        sent = made.send(topic, b"b", partition=0).result()
    assert place.stored(topic) == [b"a", b"denied", b"b"]
    assert sent.offset == 2


@pytest.mark.parametrize("code", [STORAGE_ERROR, NOT_LEADER, TIMED_OUT])
def test_a_batch_that_was_stored_and_denied_is_stored_once(place: Place, topic: str, code: int) -> None:
    with place.producer(enable_idempotence=True) as made:
        place.deny(code, times=2)
        made.send(topic, b"a", partition=0).result()
        made.send(topic, b"b", partition=0).result()
        assert made.repeated == 2
    assert place.stored(topic) == [b"a", b"b"]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_may_be_stored_is_not_repeated_if_that_is_not_wanted(place: Place, topic: str, acks: int) -> None:
    with place.producer(retry_unanswered_batches=False, request_required_acks=acks) as made:
        place.deny(STORAGE_ERROR, times=1)
        with pytest.raises(MessageNotSent) as failed:
            made.send(topic, b"a", partition=0).result()
        assert failed.value.may_be_stored
        assert made.repeated == 0
    assert place.stored(topic) == [b"a"]


def test_a_transaction_with_a_batch_that_was_stored_and_denied_is_aborted_as_a_whole(place: Place, topic: str) -> None:
    with place.producer(transactional_id="denied") as made:
        made.init_transactions()
        made.begin_transaction()
        place.deny(STORAGE_ERROR, times=3)
        with pytest.raises(MessageNotSent):
            made.send(topic, b"denied", partition=0).result()
        with pytest.raises(TransactionFailed):
            made.commit_transaction()
        made.abort_transaction()
        with made.transaction():
            made.send(topic, b"a", partition=0)
    assert place.stored(topic, read_committed=True) == [b"a"]
