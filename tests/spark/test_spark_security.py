"""Queries at real brokers with TLS and SASL, by the options that Spark's own source has, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_peers import confluent_produce

from simpleconsumer import AuthenticationFailed
from simpleconsumer.security import Security
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.options import SourceOptions, batch_options, check_secrets
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.settings_files import security_here, with_settings_files
from zkconsumer.spark.writing.sink_options import find_sink_option
from zkconsumer.testing import KafkaCluster

PASSWORD = "secret-of-alice"


def options_of(
    cluster: KafkaCluster, topic: str, folder: Path, password: str = PASSWORD, protocol: str = "SASL_SSL"
) -> SourceOptions:
    """Options of a query whose password stands in a file."""
    file = folder / "secured.properties"
    file.touch(0o600)
    file.write_text(f"sasl.username=alice\nsasl.password={password}\n")
    given = {
        "zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "config": str(file),
        "kafka.security.protocol": protocol, "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "Kafka.ssl.ca.location": str(cluster.certificates.authority.certificate),
    }  # fmt: skip
    check_secrets(given)
    return batch_options(with_settings_files(given))


def read(options: SourceOptions) -> list[bytes]:
    return [value for each in plan_batch(options) for batch in read_range(each, ("value",), options)
            for value in batch.column(0).to_pylist()]  # fmt: skip


@pytest.mark.real
def test_a_batch_is_planned_and_read_by_the_listener_of_its_protocol(
    secured_clusters: Callable[[str], KafkaCluster], fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    cluster, topic = secured_clusters("2.8.2"), fresh_topic()
    cluster.create_topic(topic, 2)
    values = [b"%d" % n for n in range(30)]
    cluster.produce(topic, values)
    options = options_of(cluster, topic, tmp_path)
    assert sorted(read(options)) == sorted(values)
    assert PASSWORD not in repr(options)
    started = time.monotonic()
    with pytest.raises(AuthenticationFailed) as refused:
        read(options_of(cluster, topic, tmp_path, "wrong"))
    assert time.monotonic() - started < options.patience_ms / 1000  # nobody tries again until the patience is over
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["kafka.sasl.password", "sasl.jaas.config", "kafka.sasl.jaas.config", "KAFKA.SSL.KEY.PASSWORD",
             "ssl.truststore.password", "ssl.keystore.key"],
)  # fmt: skip
def test_a_secret_is_no_option(name: str) -> None:
    with pytest.raises(OptionRefused, match="it holds a secret") as refused:
        check_secrets({name: PASSWORD})
    assert PASSWORD not in str(refused.value)


def test_the_sink_takes_the_same_names() -> None:
    for name in ("kafka.security.protocol", "security.protocol", "kafka.ssl.ca.location", "kafka.sasl.mechanism"):
        option = find_sink_option(name)
        assert option is not None
        assert option.name in ("security.protocol", "ssl.truststore.location", "sasl.mechanism")


def test_files_that_spark_has_brought_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkconsumer.spark.settings_files._distributed", lambda: (str(tmp_path),))
    (tmp_path / "ca.pem").write_text("")
    options = batch_options({"zookeeper.connect": "zk", "subscribe": "t", "kafka.security.protocol": "SSL",
                             "kafka.ssl.truststore.location": "ca.pem"})  # fmt: skip
    found = security_here(options.config)
    assert found == Security.of({"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")})


@pytest.mark.real
def test_a_batch_of_kafka_4_is_read_by_the_addresses_of_its_brokers(
    secured_clusters: Callable[[str], KafkaCluster], fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    cluster, topic = secured_clusters("4.3.1"), fresh_topic()
    cluster.create_topic(topic)
    values = [b"%d" % n for n in range(30)]
    codec = {"compression.type": "zstd"}
    confluent_produce(cluster.addresses(), topic, values, settings=codec)
    file = tmp_path / "secured.properties"
    file.touch(0o600)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(f'sasl.jaas.config={login} required username="alice" password="{PASSWORD}";\n')
    options = batch_options(with_settings_files({
        "kafka.bootstrap.servers": cluster.addresses("SASL_SSL"), "subscribe": topic, "config": str(file),
        "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN",
        "kafka.ssl.truststore.location": str(cluster.certificates.truststore), "kafka.ssl.truststore.type": "JKS",
    }))  # fmt: skip
    assert read(options) == values
