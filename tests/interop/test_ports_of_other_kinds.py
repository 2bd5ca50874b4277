"""A `security.protocol` that is not that of the port: every pair ends at once, and names the port and the setting."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from itertools import product

import pytest

from simpleconsumer import AuthenticationFailed, ConnectionFailed, SimpleConsumer
from simpleconsumer.dialect import KAFKA011, KAFKA08
from simpleconsumer.security import Security
from zkconsumer import read_topic
from zkconsumer.cluster.metadata_reader import BrokersSilent
from zkconsumer.producer import MessageNotSent, Producer, ProducerClosed, ProducerConfig
from zkconsumer.testing import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

PASSWORD = "secret-of-alice"
DEADLINE_S = 10.0
SLOW = pytest.mark.slow
pytestmark = pytest.mark.real

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PAIRS = [(chosen, port) for chosen, port in product(PROTOCOLS, PROTOCOLS) if chosen != port]
VERSIONS = ["4.3.1", *(pytest.param(each, marks=SLOW) for each in ("0.10.2.2", "2.8.2", "3.9.2"))]

Secured = Callable[[str], KafkaCluster]


def settings(cluster: KafkaCluster, protocol: str) -> dict[str, str]:
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl.ca.location"] = str(cluster.certificates.authority.certificate)
    if protocol.startswith("SASL"):
        found |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD}
    return found


def said(chosen: str, port: str) -> tuple[type[Exception], str]:
    """The error of a pair, and a part of its text."""
    has_tls = port.endswith("SSL")
    if has_tls and not chosen.endswith("SSL"):
        return AuthenticationFailed, "an alert of TLS; set security.protocol to SSL or SASL_SSL"
    if not has_tls and chosen.endswith("SSL"):
        return ConnectionFailed, "closed during the TLS handshake; does this port speak TLS? (security.protocol)"
    if chosen.startswith("SASL"):
        return AuthenticationFailed, "the broker does not accept SASL on this port (security.protocol)"
    return AuthenticationFailed, f"set security.protocol to {port} (it is {chosen})"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_connection_of_another_kind_ends_with_what_to_set(version: str, secured_clusters: Secured) -> None:
    cluster = secured_clusters(version)
    for chosen, port in PAIRS:
        kind, words = said(chosen, port)
        host, _, number = cluster.addresses(port).rpartition(":")
        security = Security.of(settings(cluster, chosen))
        started_at = time.monotonic()
        with (
            SimpleConsumer(host, int(number), DEADLINE_S, dialect=KAFKA011, security=security) as consumer,
            pytest.raises(kind) as failed,
        ):
            consumer.all_topic_metadata()
        assert time.monotonic() - started_at < DEADLINE_S
        assert str(failed.value).startswith(f"{host}:{number}: "), (chosen, port)
        assert words in str(failed.value), (chosen, port)
        if words.startswith("set "):
            assert "this port demands SASL (" in str(failed.value)
            assert "SCRAM-SHA-256" in str(failed.value), "the mechanisms are named"


@pytest.mark.parametrize("version", VERSIONS)
def test_readers_and_producers_of_another_kind_fail_with_the_same_words(
    version: str, secured_clusters: Secured, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = secured_clusters(version), fresh_topic()
    cluster.create_topic(topic)
    for chosen, port in PAIRS:
        kind, words = said(chosen, port)
        given = {**settings(cluster, chosen), "bootstrap.servers": cluster.addresses(port)}
        reading = BrokersSilent if kind is ConnectionFailed else kind
        with pytest.raises(reading) as unread, read_topic(None, topic, properties=given) as reader:
            next(iter(reader))
        with (
            Producer(ProducerConfig.from_properties(given)) as producer,
            pytest.raises(MessageNotSent) as unsent,
        ):
            producer.send(topic, b"x")
        for failed in (unread, unsent):
            assert words in str(failed.value), (chosen, port)
            assert cluster.addresses(port) in str(failed.value)
            assert PASSWORD not in str(failed.value)


def test_who_does_not_ask_for_versions_is_told_what_a_close_may_mean(secured_clusters: Secured) -> None:
    host, _, number = secured_clusters("4.3.1").addresses("SASL_PLAINTEXT").rpartition(":")
    with (
        SimpleConsumer(host, int(number), DEADLINE_S, dialect=KAFKA08) as consumer,
        pytest.raises(ConnectionFailed, match=r"closed by the broker .* on ports with SASL \(security\.protocol\)"),
    ):
        consumer.all_topic_metadata()


def test_a_producer_that_tries_for_ever_says_why_once(
    secured_clusters: Secured, fresh_topic: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, topic = secured_clusters("4.3.1"), fresh_topic()
    with TcpProxy(cluster.addresses()) as proxy:
        producer = Producer(ProducerConfig.from_properties({
            **settings(cluster, "SSL"), "bootstrap.servers": proxy.address, "message.send.max.retries": "1000000",
            "retry.backoff.ms": "1", "producer.type": "async",
        }))  # fmt: skip

        def send() -> None:
            with contextlib.suppress(ProducerClosed):
                producer.send(topic, b"x")

        sending = threading.Thread(target=send)
        sending.start()
        wait_until(lambda: proxy.accepted >= 5, DEADLINE_S, "some tries")
        producer.close(0)
        sending.join(DEADLINE_S)
    assert caplog.messages == [
        f"{proxy.address} does not answer a metadata request of a producer: {proxy.address}: closed during the TLS "
        "handshake; does this port speak TLS? (security.protocol)"
    ]
