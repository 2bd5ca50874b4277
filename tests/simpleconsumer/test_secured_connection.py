"""Connections with TLS and SASL to real brokers: every way in, and what is refused, once and with the reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from kafka_peers import unsigned_token

from simpleconsumer import AuthenticationFailed, ConnectionFailed, SimpleConsumer
from simpleconsumer.dialect import KAFKA011, KAFKA08
from simpleconsumer.security import Security
from zkconsumer.testing import BrokerSecurity, KafkaCluster
from zkconsumer.testing.kafka.security import mechanisms_of, protocols_of
from zkconsumer.testing.proxy import TcpProxy

PASSWORD = "secret-of-alice"
TIMEOUT_S = 20.0
SLOW = pytest.mark.slow
pytestmark = pytest.mark.real

Secured = Callable[[str], KafkaCluster]


def token() -> str:
    return unsigned_token("alice")[0]


def ways_in(version: str) -> list[tuple[str, str | None]]:
    """Protocol and mechanism of each way into brokers of a version."""
    with_sasl = [each for each in protocols_of(version) if each.startswith("SASL")]
    return [("SSL", None), *product(with_sasl, mechanisms_of(version))]


def settings(cluster: KafkaCluster, protocol: str, mechanism: str | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"security.protocol": protocol, "sasl.mechanism": mechanism}
    if protocol.endswith("SSL"):
        found["ssl.ca.location"] = str(cluster.certificates.authority.certificate)
    if mechanism == "OAUTHBEARER":
        found["sasl.oauthbearer.token.callback"] = token
    elif mechanism is not None:
        found |= {"sasl.username": "alice", "sasl.password": PASSWORD}
    return found | {name.replace("_", "."): value for name, value in more.items()}


def connect(
    cluster: KafkaCluster, protocol: str, given: dict[str, Any] | None = None, host: str = "127.0.0.1"
) -> SimpleConsumer:
    """A connection to the listener of a protocol, with the settings of another one if some are given."""
    port = int(cluster.addresses(protocol).rpartition(":")[2])
    security = Security.of(settings(cluster, protocol) if given is None else given)
    dialect = KAFKA08 if cluster.version.startswith("0.9") else KAFKA011
    return SimpleConsumer(host, port, TIMEOUT_S, "tests", dialect=dialect, security=security)


def refusal(consumer: SimpleConsumer) -> str:
    """What one request is refused with."""
    with consumer, pytest.raises(AuthenticationFailed) as refused:
        consumer.topic_metadata(["t"])
    assert PASSWORD not in str(refused.value)
    return refused.value.reason


OTHERS = ["0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2", "4.0.2"]


@pytest.mark.parametrize("version", ["4.3.1", *(pytest.param(each, marks=SLOW) for each in OTHERS)])
def test_every_way_in_leads_to_the_same_messages(
    version: str, secured_clusters: Secured, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = secured_clusters(version), fresh_topic()
    cluster.create_topic(topic)
    values = []
    for protocol, mechanism in ways_in(version):
        values.append(f"{protocol} {mechanism}".encode() + b"." * 100_000)  # more than a record of TLS
        with connect(cluster, protocol, settings(cluster, protocol, mechanism)) as consumer:
            consumer.produce(topic, 0, [values[-1]])
            fetched = [message.value for at in range(len(values)) for message in consumer.fetch(topic, 0, at)[:1]]
        assert fetched == values
        assert consumer._connection.connects == 1


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_in_the_brokers_words(
    protocol: str, mechanism: str, secured_clusters: Secured
) -> None:
    cluster = secured_clusters("4.3.1")
    for wrong in ({"sasl_password": "wrong"}, {"sasl_username": "nobody"}):
        consumer = connect(cluster, protocol, settings(cluster, protocol, mechanism, **wrong))
        said = refusal(consumer)
        assert said.startswith("SaslAuthenticationFailed (code 58): the credentials were refused: Authentication")
        assert consumer._connection.connects == 1  # nothing tries again


@SLOW
@pytest.mark.parametrize(
    ("version", "said"),
    [("0.10.2.2", "the broker closed the connection during the authentication"),
     ("1.1.1", "SaslAuthenticationFailed (code 58)"), ("2.8.2", "SaslAuthenticationFailed (code 58)")],
)  # fmt: skip
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_refused_by_every_version(
    version: str, said: str, mechanism: str, secured_clusters: Secured
) -> None:
    cluster = secured_clusters(version)
    wrong = settings(cluster, "SASL_PLAINTEXT", mechanism, sasl_password="wrong")
    assert refusal(connect(cluster, "SASL_PLAINTEXT", wrong)).startswith(said)


def test_a_mechanism_that_the_broker_has_not_and_a_token_that_it_does_not_take(secured_clusters: Secured) -> None:
    cluster = secured_clusters("4.3.1")
    bad = settings(cluster, "SASL_PLAINTEXT", "OAUTHBEARER") | {"sasl.oauthbearer.token.callback": lambda: "no.token.x"}
    assert refusal(connect(cluster, "SASL_PLAINTEXT", bad)) == "the broker rejects the token: invalid_token"


@SLOW
def test_a_mechanism_that_a_version_has_not_is_refused_with_those_that_it_has(secured_clusters: Secured) -> None:
    cluster = secured_clusters("0.10.2.2")
    bearer = settings(cluster, "SASL_PLAINTEXT", "OAUTHBEARER")
    said = refusal(connect(cluster, "SASL_PLAINTEXT", bearer))
    assert said.startswith("the broker does not offer OAUTHBEARER; it offers ")
    assert "SCRAM-SHA-256" in said


@pytest.mark.parametrize("version", ["4.3.1", *(pytest.param(each, marks=SLOW) for each in ("0.9.0.1", "0.10.2.2"))])
def test_a_port_of_another_kind_is_named(version: str, secured_clusters: Secured) -> None:
    cluster = secured_clusters(version)
    assert "an alert of TLS; set security.protocol to SSL" in refusal(connect(cluster, "SSL", {}))
    with connect(cluster, "PLAINTEXT", settings(cluster, "SSL")) as consumer, pytest.raises(ConnectionFailed) as lost:
        consumer.topic_metadata(["t"])
    assert lost.value.reason == "closed during the TLS handshake; does this port speak TLS? (security.protocol)"


def test_sasl_on_a_port_without_it_is_named(secured_clusters: Secured) -> None:
    cluster = secured_clusters("4.3.1")
    given = settings(cluster, "SASL_PLAINTEXT", "PLAIN")
    said = refusal(connect(cluster, "PLAINTEXT", given))
    assert said == "the broker does not accept SASL on this port (security.protocol)"


def test_the_certificate_of_a_broker_is_checked(secured_clusters: Secured) -> None:
    cluster = secured_clusters("4.3.1")
    stranger = {"security.protocol": "SSL", "ssl.ca.location": str(cluster.certificates.untrusted.certificate)}
    assert "its certificate is rejected: unable to get local issuer" in refusal(connect(cluster, "SSL", stranger))
    assert "its certificate is rejected" in refusal(connect(cluster, "SSL", {"security.protocol": "SSL"}))
    missing = {"security.protocol": "SSL", "ssl.ca.location": "/no/such"}
    assert refusal(connect(cluster, "SSL", missing)).startswith("ssl.truststore.location: /no/such cannot be read")
    with connect(cluster, "SSL", host="localhost") as consumer:
        assert consumer.all_topic_metadata()


@SLOW
def test_another_host_and_a_client_that_nobody_knows_are_refused() -> None:
    security = BrokerSecurity(protocols=["SSL"], certificate="elsewhere", client_auth="required")
    for version in ("1.1.1", "2.8.2"):  # the one speaks TLS 1.2, the other 1.3, which refuses behind the handshake
        with KafkaCluster(version, security=security) as cluster:
            files = cluster.certificates
            shown = {"ssl.keystore.location": str(files.client.both)}
            unchecked = {**settings(cluster, "SSL"), "ssl.endpoint.identification.algorithm": ""}
            said = refusal(connect(cluster, "SSL", {**settings(cluster, "SSL"), **shown}))
            assert "its certificate is rejected: IP address mismatch, certificate is not valid for '127.0.0.1'" in said
            with connect(cluster, "SSL", {**unchecked, **shown}) as consumer:
                assert consumer.all_topic_metadata()
            for strange in ({}, {"ssl.keystore.location": str(files.stranger.both)}):
                assert "TLS connection: " in refusal(connect(cluster, "SSL", {**unchecked, **strange}))


@SLOW
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_session_is_renewed_before_the_broker_ends_it(mechanism: str, reauthenticating: KafkaCluster) -> None:
    cluster = reauthenticating
    with connect(cluster, "SASL_SSL", settings(cluster, "SASL_SSL", mechanism)) as consumer:
        consumer.all_topic_metadata()
        renewed = 0
        session = consumer._connection._session
        assert session is not None
        for _ in range(12):
            threading.Event().wait(0.4)  # the connection is used now and then, as a consumer's is
            before = session._renew_at
            consumer.all_topic_metadata()
            renewed += session._renew_at != before
        assert consumer._connection.connects == 1
        assert renewed >= 2


@pytest.fixture(scope="module")
def reauthenticating() -> Any:
    with KafkaCluster("4.3.1", security=BrokerSecurity(protocols=["SASL_SSL"], max_reauth_ms=2000)) as running:
        yield running


@pytest.mark.parametrize(("protocol", "mechanism"), [("SSL", None), ("SASL_SSL", "SCRAM-SHA-256")])
def test_a_broker_that_goes_silent_in_the_middle_is_waited_for_until_the_deadline(
    protocol: str, mechanism: str | None, secured_clusters: Secured
) -> None:
    cluster = secured_clusters("4.3.1")
    port = int(cluster.addresses(protocol).rpartition(":")[2])
    with TcpProxy(("127.0.0.1", port)) as proxy:
        proxy.stall()
        security = Security.of(settings(cluster, protocol, mechanism))
        with (
            SimpleConsumer("127.0.0.1", proxy.port, 0.3, dialect=KAFKA011, security=security) as consumer,
            pytest.raises(ConnectionFailed, match=r"no answer within 0\.3 s"),
        ):
            consumer.topic_metadata(["t"])


def test_close_ends_a_handshake_that_waits(secured_clusters: Secured) -> None:
    cluster = secured_clusters("4.3.1")
    port = int(cluster.addresses("SSL").rpartition(":")[2])
    with TcpProxy(("127.0.0.1", port)) as proxy:
        proxy.stall()
        consumer = SimpleConsumer("127.0.0.1", proxy.port, 60, security=Security.of(settings(cluster, "SSL")))
        closer = threading.Timer(0.3, consumer.close)
        closer.start()
        with pytest.raises(ConnectionFailed, match="closed"):
            consumer.topic_metadata(["t"])
        closer.join()


def test_an_idle_connection_that_was_closed_is_made_anew(secured_clusters: Secured) -> None:
    cluster = secured_clusters("4.3.1")
    port = int(cluster.addresses("SASL_SSL").rpartition(":")[2])
    with TcpProxy(("127.0.0.1", port)) as proxy:
        security = Security.of(settings(cluster, "SASL_SSL", "PLAIN"))
        with SimpleConsumer("127.0.0.1", proxy.port, TIMEOUT_S, dialect=KAFKA011, security=security) as consumer:
            consumer.all_topic_metadata()
            proxy.drop()
            consumer.all_topic_metadata()
            consumer.all_topic_metadata()
            assert consumer._connection.connects == 2
