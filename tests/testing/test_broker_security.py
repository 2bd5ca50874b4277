"""BrokerSecurity: listeners of real brokers with TLS and SASL, used by confluent-kafka and by Python's own TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from itertools import product

import pytest
from kafka_peers import confluent_consume, confluent_produce, unsigned_token

from zkconsumer.testing import BrokerSecurity, KafkaCluster, KitError, NotSupported
from zkconsumer.testing.certificates import Certificate
from zkconsumer.testing.kafka.probe import API_METADATA, ask_on, header
from zkconsumer.testing.kafka.security import BrokerCertificates, mechanisms_of, protocols_of

PASSWORD = "secret-of-alice"
real = pytest.mark.real
SLOW = pytest.mark.slow

Secured = Callable[[str], KafkaCluster]


def ways_in(version: str) -> list[tuple[str, str | None]]:
    """Protocol and mechanism of each way into brokers of a version."""
    secured = protocols_of(version)
    with_sasl = [each for each in secured if each.startswith("SASL")]
    return [("SSL", None), *product(with_sasl, mechanisms_of(version))]


def settings(cluster: KafkaCluster, protocol: str, mechanism: str | None) -> dict[str, object]:
    found: dict[str, object] = {
        "security.protocol": protocol, "ssl.ca.location": str(cluster.certificates.authority.certificate)
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        return found | {"sasl.mechanism": mechanism, "oauth_cb": lambda _: unsigned_token("alice")}
    if mechanism is not None:
        found |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": PASSWORD}
    return found


OTHERS = ["0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2", "4.0.2"]


@real
@pytest.mark.parametrize("version", ["4.3.1", *(pytest.param(each, marks=SLOW) for each in OTHERS)])
def test_every_way_in_leads_to_the_same_messages(
    version: str, secured_clusters: Secured, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = secured_clusters(version), fresh_topic()
    cluster.create_topic(topic)
    values = []
    for protocol, mechanism in ways_in(version):
        value = f"{protocol} {mechanism}".encode()
        confluent_produce(cluster.addresses(protocol), topic, [value], settings=settings(cluster, protocol, mechanism))
        values.append(value)
    assert len(values) >= 7
    assert confluent_consume(cluster.addresses(), topic, len(values)) == values


def ask_by_tls(port: int, context: ssl.SSLContext, host: str = "localhost") -> bytes:
    """A broker's answer to a request for metadata of no topic, over TLS."""
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        return ask_on(secured, header(API_METADATA) + b"\0\0\0\0")


def port_of(cluster: KafkaCluster) -> int:
    return int(cluster.addresses("SSL").rpartition(":")[2])


@real
@pytest.mark.parametrize("version", ["4.3.1", *(pytest.param(each, marks=SLOW) for each in ("0.9.0.1", "0.10.2.2"))])
def test_the_certificate_is_that_of_this_machine(version: str, secured_clusters: Secured) -> None:
    cluster = secured_clusters(version)
    context = ssl.create_default_context(cafile=cluster.certificates.authority.certificate)
    for host in ("localhost", "127.0.0.1"):
        assert ask_by_tls(port_of(cluster), context, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        ask_by_tls(port_of(cluster), context, "kafka.example.org")
    stranger = ssl.create_default_context(cafile=cluster.certificates.untrusted.certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get local issuer"):
        ask_by_tls(port_of(cluster), stranger)


@real
@SLOW
def test_brokers_of_another_host_demand_certificates_of_their_authority() -> None:
    security = BrokerSecurity(protocols=["SSL"], certificate="elsewhere", client_auth="required")
    with KafkaCluster("2.8.2", security=security) as cluster:
        files = cluster.certificates
        for shown in (None, files.stranger):
            # The broker's alert for a missing one is of the wrong key, and so cannot be read.
            with pytest.raises(ssl.SSLError, match=r"alert|bad record mac"):
                ask_by_tls(port_of(cluster), as_client(files, shown), "kafka.example.org")
        assert ask_by_tls(port_of(cluster), as_client(files, files.client), "kafka.example.org")


def as_client(files: BrokerCertificates, shown: Certificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.authority.certificate)
    if shown is not None:
        context.load_cert_chain(shown.both)
    return context


@pytest.mark.parametrize(
    ("version", "security", "said"),
    [
        ("0.8.2.2", BrokerSecurity(), r"TLS needs Kafka 0\.9 or newer, this is 0\.8\.2\.2"),
        ("0.9.0.1", BrokerSecurity(protocols=["SASL_SSL"]), r"protocol SASL_SSL needs Kafka 0\.10 or newer"),
        ("1.1.1", BrokerSecurity(mechanisms=["OAUTHBEARER"]), r"mechanism OAUTHBEARER needs Kafka 2\.0 or newer"),
        ("1.1.1", BrokerSecurity(max_reauth_ms=1000), r"connections\.max\.reauth\.ms needs Kafka 2\.2 or newer"),
        ("4.3.1", BrokerSecurity(mechanisms=["GSSAPI"]), "mechanism 'GSSAPI': known are PLAIN, SCRAM-SHA-256,"),
        ("4.3.1", BrokerSecurity(protocols=["TLS"]), "protocol 'TLS': known are SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_listeners_that_a_version_does_not_have_are_refused(version: str, security: BrokerSecurity, said: str) -> None:
    with pytest.raises((NotSupported, ValueError), match=said):
        KafkaCluster(version, security=security)


def test_a_cluster_without_listeners_of_a_protocol_says_so() -> None:
    assert PASSWORD not in repr(BrokerSecurity())
    cluster = KafkaCluster("4.3.1")
    try:
        with pytest.raises(KitError, match="no listeners with TLS"):
            _ = cluster.certificates
    finally:
        cluster.close()


@real
def test_addresses_are_those_of_a_listener(secured_clusters: Secured) -> None:
    cluster = secured_clusters("4.3.1")
    assert cluster.addresses() == cluster.addresses("PLAINTEXT") == cluster.broker_list
    assert len({cluster.addresses(each) for each in ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")}) == 4
    with pytest.raises(KitError, match="no listener of KERBEROS"):
        cluster.addresses("KERBEROS")
