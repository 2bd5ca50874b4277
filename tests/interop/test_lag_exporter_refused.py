"""The lag exporter whose brokers refuse it: tried again ever more seldom, said each time, and healed by itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from scrapes import scraped, value, wait_up

from zkconsumer import lag_exporter
from zkconsumer.admin import LagChoice
from zkconsumer.backoff import Backoff
from zkconsumer.lag_exporter import REFUSED, ExporterSettings, LagExporter
from zkconsumer.testing import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

DEADLINE_S = 60.0
PASSWORD = "secret-of-alice"

Secured = Callable[[str], KafkaCluster]


@pytest.fixture
def cluster(secured_clusters: Secured) -> KafkaCluster:
    return secured_clusters("2.8.2")


@pytest.fixture
def group(cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str) -> str:
    """A group with an offset, whose lag can be known from brokers alone."""
    topic = fresh_topic()
    cluster.create_topic(topic)
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    client.create(f"/consumers/{fresh_group}/offsets/{topic}/0", b"0", makepath=True)
    client.stop()
    client.close()
    return fresh_group


def exporter(cluster: KafkaCluster, group: str, properties: dict[str, str]) -> LagExporter:
    choice = LagChoice(groups=(group,))
    settings = ExporterSettings(interval_s=1.0)
    return LagExporter(cluster.zookeeper_connect, properties=properties, choice=choice, settings=settings)


def test_a_refused_exporter_waits_a_minute_then_twice_as_long_up_to_ten_minutes() -> None:
    assert [REFUSED.wait_s(refusals) for refusals in range(6)] == [60, 120, 240, 480, 600, 600]


def test_wrong_credentials_are_tried_less_often_than_at_each_interval(
    cluster: KafkaCluster, group: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag_exporter, "REFUSED", Backoff(3.0, 60.0))
    wrong = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice",
             "sasl.password": PASSWORD + "-not"}  # fmt: skip
    started_at = time.monotonic()
    with exporter(cluster, group, wrong) as running, running.serve(0) as server:
        wait_until(lambda: running.state().reads == 2, DEADLINE_S, "a second try")
        assert time.monotonic() - started_at >= 3.0, "an interval is one second"
        found = scraped(server.port)
    assert value(found, "exporter_up") == 0
    assert value(found, "exporter_read_errors_total", kind="AuthenticationFailed") == 2
    lines = [each for each in caplog.messages if each.startswith("a broker rejects the exporter: 127.0.0.1:")]
    assert "SaslAuthenticationFailed (code 58)" in lines[0]
    assert [line.partition("the next attempt is in ")[2].partition(",")[0] for line in lines] == ["3 s", "6 s"]
    assert PASSWORD not in caplog.text


def test_an_exporter_reads_on_when_the_certificates_were_put_right(
    cluster: KafkaCluster, group: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag_exporter, "REFUSED", Backoff(1.0, 1.0))
    file = tmp_path / "ca.pem"
    shutil.copy(cluster.certificates.untrusted.certificate, file)
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(file)}
    with exporter(cluster, group, given) as running, running.serve(0) as server:
        wait_until(lambda: running.state().errors.get("AuthenticationFailed"), DEADLINE_S, "a refusal")
        shutil.copy(cluster.certificates.authority.certificate, file)
        found = wait_up(server.port)
    assert value(found, "group_unknown_lag_partitions", group=group) == 0
    assert "the lag of the groups is read again" in caplog.messages
