"""The errors of the Spark source and the load when ZooKeeper cannot be used, and TLS with both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from certificates import Certificates
from secured import SecureServer, sasl

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.errors import ConfigError, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.spark.options.options import batch_options, stream_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer


def given(hosts: str, topic: str = "topic", **settings: object) -> dict[str, str]:
    return {"zookeeper.connect": hosts, "subscribe": topic, "zookeeper.connection.timeout.ms": "3000",
            **{name.replace("_", "."): str(value) for name, value in settings.items()}}  # fmt: skip


def both(options: dict[str, str]) -> list[Callable[[], object]]:
    """The planning of a batch, and the opening of a stream."""
    return [lambda: plan_batch(batch_options(options)), lambda: StreamDriver(stream_options(options)).open()]


def test_a_batch_is_planned_over_tls(
    strict_server: SecureServer, certificates: Certificates, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(zookeeper=strict_server, chroot=f"/{topic}") as cluster:
        cluster.create_topic(topic, partitions=2)
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            broker.produce(topic, 1, [b"x"] * 10)
        ranges = plan_batch(batch_options(given(
            f"{strict_server.secure}/{topic}", topic, zookeeper_use_ssl="true",
            zookeeper_ssl_cafile=certificates.authority, zookeeper_ssl_certfile=certificates.client_both,
        )))  # fmt: skip
    assert [(each.name.partition, each.start, each.end) for each in ranges] == [(1, 0, 10)]


def test_a_missing_file() -> None:
    for call in both(given("127.0.0.1:1", zookeeper_use_ssl="true", zookeeper_ssl_cafile="/no/such/ca.pem")):
        with pytest.raises(ConfigError, match=r"^zookeeper.ssl.cafile is '/no/such/ca.pem'; it must be a file that"):
            call()


def test_an_authority_that_is_not_trusted(open_server: SecureServer, certificates: Certificates) -> None:
    for call in both(given(open_server.secure, zookeeper_use_ssl="true", zookeeper_ssl_cafile=certificates.untrusted)):
        with pytest.raises(ZooKeeperUnavailable, match=r"that this client does not trust .*; set zookeeper.ssl.cafile"):
            call()


def test_plain_to_a_tls_port(open_server: SecureServer) -> None:
    for call in both(given(open_server.secure)):
        with pytest.raises(ZooKeeperUnavailable, match=r"speaks TLS at this port; set zookeeper.use.ssl=true"):
            call()


def test_credentials_that_are_refused(with_sasl: ZooKeeperServer) -> None:
    for call in both(given(with_sasl.connect, **sasl(password="wrong-secret"))):
        with pytest.raises(ZooKeeperRefused, match=r"refused the SASL credentials; check zookeeper.sasl") as raised:
            call()
        assert "wrong-secret" not in str(raised.value)
