"""The Prometheus endpoint: its figures agree with the statistics, have the right names, and are documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from consuming import COUNT, PATIENCE_S, member, read, wait_stored
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from zkconsumer import ConsumerConnector
from zkconsumer.lag_exporter import LagCollector, LagExporter
from zkconsumer.prometheus import ConnectorCollector, serve
from zkconsumer.testing import EmbeddedCluster

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "OPERATIONS.md"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return parsed(answer.read().decode())


def metrics(connector: ConsumerConnector) -> str:
    registry = CollectorRegistry()
    registry.register(ConnectorCollector(connector))
    return generate_latest(registry).decode()


def test_the_endpoint_tells_what_the_statistics_tell(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    settings = {"consumer_id": "a", "auto_commit_interval_ms": 20}
    with member(embedded_cluster, fresh_group, **settings) as consumer, serve(consumer, port=0) as server:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        for _ in range(2 * COUNT):
            read(stream, 1)
        consumer.commit_offsets()
        for partition in (0, 1):
            wait_stored(embedded_cluster, fresh_group, topic, partition, COUNT)
        found = scraped(server.port)
        status = consumer.status()
    of_member = {("group", fresh_group), ("consumer", f"{fresh_group}_a")}

    def value(name: str, **labels: str) -> float:
        return found[f"zkconsumer_{name}", frozenset(of_member | set(labels.items()))]

    for partition in ("0", "1"):
        of_partition = {"topic": topic, "partition": partition}
        assert value("committed_offset", **of_partition) == COUNT
        assert value("log_end_offset", **of_partition) == COUNT
        assert value("fetched_messages_total", **of_partition) == COUNT
        assert value("partition_paused", **of_partition) == 0
    assert sum(value("lag_messages", topic=topic, partition=number) for number in ("0", "1")) <= 1  # one is in hand
    assert value("state", state=status.state) == 1
    assert value("rebalances_total") == 1
    assert value("partitions_taken_total") == 2
    assert value("owned_partitions") == 2
    assert value("session_timeout_seconds") == status.session_timeout_s
    assert value("zookeeper_requests_total", kind="multi") >= 3
    assert value("broker_requests_total", kind="fetch") >= 1


def test_two_connectors_share_an_endpoint_and_one_that_is_shut_down_says_so(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    one, other = (member(embedded_cluster, fresh_group, name) for name in ("a", "b"))
    with one, other, serve(one, other, port=0) as server:
        one.create_message_streams({topic: 1})
        other.shutdown()
        states = {dict(labels)["consumer"]: dict(labels)["state"] for name, labels in scraped(server.port)
                  if name == "zkconsumer_state"}  # fmt: skip
    assert states == {f"{fresh_group}_a": "stable", f"{fresh_group}_b": "closed"}


def test_names_carry_units_and_each_is_documented(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    with member(embedded_cluster, fresh_group) as consumer:
        consumer.create_message_streams({topic: 1})
        text = metrics(consumer)
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert len(names) > 25
    assert all(re.fullmatch(r"zkconsumer_[a-z_]+", name) for name in names)
    exported = {metric.name for metric in LagCollector(LagExporter("localhost:1")).describe()}
    exported |= {f"{name}_total" for name in exported}
    page = OPERATIONS.read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(zkconsumer_(?!producer_|mirror_)\w+)", page, re.MULTILINE))
    assert names == documented - exported


def test_a_port_that_is_taken_is_named(embedded_cluster: EmbeddedCluster) -> None:
    consumer = member(embedded_cluster, "group")
    with serve(consumer, port=0) as server, pytest.raises(OSError, match=f"served at 127.0.0.1:{server.port}: "):
        serve(consumer, port=server.port)


def test_what_is_no_connector_is_refused() -> None:
    with pytest.raises(TypeError, match="7 is not a ConsumerConnector"):
        serve(7, port=0)  # type: ignore[arg-type]


def test_without_the_package_the_module_says_what_to_install_and_the_rest_works() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None; import zkconsumer; import zkconsumer.prometheus"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(OPERATIONS.parents[1])},
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ImportError: zkconsumer.prometheus needs the package prometheus_client: pip install 'zkconsumer[prometheus]'"
    )


def test_a_closed_endpoint_gives_its_port_back(embedded_cluster: EmbeddedCluster) -> None:
    consumer = member(embedded_cluster, "group")
    with serve(consumer, port=0) as server:
        port = server.port
    server.close()
    with serve(consumer, port=port):
        pass
