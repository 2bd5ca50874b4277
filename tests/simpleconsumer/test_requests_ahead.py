"""Requests that are sent ahead of the answers to earlier ones, over one connection that stands."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_broker import DEADLINE_S, Peer, ScriptedBroker, answer

from simpleconsumer.connection import UNDER_WAY, Connection
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, encode_producer_batch
from simpleconsumer.errors import ConnectionFailed
from simpleconsumer.security import Security
from simpleconsumer.throttling import Patience
from simpleconsumer.types import TopicPartition
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.certificates import Authority
from zkconsumer.testing.embedded.faults import Fault


@pytest.fixture
def embedded(embedded_clusters: Callable[[int, str], EmbeddedCluster]) -> EmbeddedCluster:
    return embedded_clusters(1, "4.3")


@pytest.fixture
def name(embedded: EmbeddedCluster, fresh_topic: Callable[[], str]) -> TopicPartition:
    topic = fresh_topic()
    embedded.create_topic(topic)
    return TopicPartition(topic, 0)


@pytest.fixture
def client(embedded: EmbeddedCluster) -> SimpleConsumer:
    return SimpleConsumer("127.0.0.1", embedded.port(0), 2.0, dialect=KAFKA011)


def batch(number: int) -> bytes:
    return encode_producer_batch([([(None, b"%d" % number)], (1.0,))], "none", 0.0)


def test_answers_come_in_the_order_of_the_requests(client: SimpleConsumer, name: TopicPartition) -> None:
    client.served_versions()
    for number in range(5):
        client.send_sets({name: batch(number)})
    assert client.ahead == UNDER_WAY.at((client.host, client.port)) == 5
    answers = [answered for _ in range(5) for answered in client.next_produced()]
    assert [(answered.error_code, answered.base_offset) for answered in answers] == [(0, number) for number in range(5)]
    assert client.ahead == UNDER_WAY.at((client.host, client.port)) == 0
    assert client.connects == 1


def test_nothing_is_sent_ahead_without_a_connection_that_stands(
    client: SimpleConsumer, name: TopicPartition, embedded: EmbeddedCluster
) -> None:
    with pytest.raises(ConnectionFailed, match="the connection was closed") as caught:
        client.send_sets({name: batch(0)})
    assert not caught.value.is_sent
    client.served_versions()
    embedded.kill(0)
    embedded.start(0)
    with pytest.raises(ConnectionFailed):
        client.send_sets({name: batch(0)})
    assert client.log_ends([name])[0].offset == 0, "a call makes a new connection, and nothing was stored"


def test_other_calls_wait_until_no_answer_is_awaited(client: SimpleConsumer, name: TopicPartition) -> None:
    client.served_versions()
    client.send_sets({name: batch(0)})
    with pytest.raises(RuntimeError, match="while 1 requests that were sent ahead wait for their answers"):
        client.log_ends([name])
    assert client.next_produced()[0][:2] == (0, 0)
    assert client.log_ends([name])[0].offset == 1


def test_a_lost_connection_ends_all_requests_and_the_next_answer_is_none_of_theirs(
    client: SimpleConsumer, name: TopicPartition, embedded: EmbeddedCluster
) -> None:
    client.served_versions()
    embedded.faults.add(Fault("close", api="produce"))
    client.send_sets({name: batch(0)})
    with pytest.raises(ConnectionFailed) as caught:
        client.next_produced()
    assert caught.value.is_sent
    assert client.ahead == UNDER_WAY.at((client.host, client.port)) == 0
    with pytest.raises(ConnectionFailed, match="the connection was closed"):
        client.next_produced()
    client.served_versions()
    client.send_sets({name: batch(1)})
    assert client.next_produced()[0].error_code == 0


def test_answers_that_never_come_end_in_time(
    client: SimpleConsumer, name: TopicPartition, embedded: EmbeddedCluster
) -> None:
    client.served_versions()
    client.limit_calls(0.3)
    embedded.pause(0)
    client.send_sets({name: batch(0)})
    with pytest.raises(ConnectionFailed, match=r"no answer within 0\.3 s"):
        client.next_produced()
    embedded.resume(0)


def test_acks_0_brings_no_answer_and_is_refused(client: SimpleConsumer, name: TopicPartition) -> None:
    with pytest.raises(ValueError, match="acks is 0"):
        client.send_sets({name: batch(0)}, acks=0)


def test_answers_that_come_in_one_record_of_tls_are_none_of_them_late(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("broker").both)
    security = Security.of({"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)})
    asked: list[float] = []

    def is_held(waited_s: float) -> bool:
        asked.append(waited_s)
        return False

    def serve(plain: Peer) -> None:
        peer = plain.secured(context)
        for _ in range(3):
            peer.request()
        peer.send(b"".join(answer(number, b"answer %d" % number) for number in range(3)))
        peer.wait_until_closed()

    with ScriptedBroker(serve) as broker:
        connection = Connection(broker.host, broker.port, 2.0, security=security)
        connection.call(b"", has_answer=False)
        for _ in range(3):
            connection.send_ahead(lambda: [b"\x00\x00\x00\x02hi"])
        patience = Patience(DEADLINE_S, 0.0, 0.0, is_held)
        assert [bytes(connection.receive_next(number, patience)) for number in range(3)] == [
            b"answer 0", b"answer 1", b"answer 2"
        ]  # fmt: skip
        assert not asked, "whether the broker holds an answer back"
        connection.close()
