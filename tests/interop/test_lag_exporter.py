"""The exporter of all groups' lag: its figures, their age, outages of servers, limits, and the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.command_line import TIMEOUT_S, Running, run
from zkconsumer.admin import LagChoice
from zkconsumer.errors import ConfigError
from zkconsumer.lag_exporter import ExporterSettings, LagCollector, LagExporter
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "OPERATIONS.md"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("zkconsumer_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers with a group that has a member, as a Java one would be registered, and one without."""
    with EmbeddedCluster(2) as running:
        running.create_topic("clicks", 3)
        load(running, "clicks", 100)
        client = KazooClient(running.zookeeper_connect)
        client.start()
        text = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'
        client.create("/consumers/billing/ids/billing_a", text, ephemeral=True, makepath=True)
        client.create("/consumers/billing/owners/clicks/0", b"billing_a-0", ephemeral=True, makepath=True)
        for group, partition, offset in (("billing", 0, b"40"), ("billing", 1, b"100"), ("old", 0, b"1")):
            client.create(f"/consumers/{group}/offsets/clicks/{partition}", offset, makepath=True)
        yield running
        client.stop()
        client.close()


def exporter(cluster: EmbeddedCluster, *, choice: LagChoice | None = None, **settings: object) -> LagExporter:
    chosen = ExporterSettings(**{"interval_s": 1.0, **settings})  # type: ignore[arg-type]
    return LagExporter(cluster.zookeeper_connect, choice=choice, settings=chosen)


def wait_up(port: int, wanted: float = 1.0) -> Samples:
    found: Samples = {}

    def is_so() -> bool:
        found.clear()
        found.update(scraped(port))
        return value(found, "exporter_up") == wanted

    wait_until(is_so, 4 * TIMEOUT_S, f"up to be {wanted}", state=lambda: found)
    return found


def test_the_figures_of_all_groups(cluster: EmbeddedCluster) -> None:
    with exporter(cluster, with_owners=True) as running, running.serve(0) as server:
        found = wait_up(server.port)
    place = {"group": "billing", "topic": "clicks", "partition": "0"}
    assert value(found, "group_lag_messages", **place) == 60
    assert value(found, "group_lag_messages", **{**place, "partition": "2"}) is None  # it has no offset
    assert value(found, "group_committed_offset", **place, store="zookeeper") == 40
    assert value(found, "group_committed_offset", **place, store="kafka") is None
    assert value(found, "topic_log_end_offset", topic="clicks", partition="0") == 100
    assert value(found, "group_partition_owned", **place) == 1
    assert value(found, "group_partition_owner", **place, owner="billing_a-0") == 1
    assert value(found, "group_topic_lag_messages", group="billing", topic="clicks") == 60
    assert value(found, "group_topic_lag_messages", group="old", topic="clicks") == 99
    figures = {"registered_members": 1, "owned_partitions": 1, "unowned_partitions": 2, "unknown_lag_partitions": 1}
    for name, expected in figures.items():
        assert value(found, f"group_{name}", group="billing") == expected, name
    assert value(found, "group_unowned_partitions", group="old") == 0
    age = value(found, "exporter_figures_age_seconds")
    assert age is not None
    assert 0 <= age < 30
    assert value(found, "exporter_reads_total") == 1
    assert value(found, "exporter_groups") == 2


def test_filters_and_limits(cluster: EmbeddedCluster) -> None:
    choice = LagChoice(keeps_group=lambda name: name == "billing")
    with exporter(cluster, choice=choice, max_partitions=2) as running, running.serve(0) as server:
        found = wait_up(server.port)
    assert {dict(labels)["group"] for name, labels in found if name == "group_registered_members"} == {"billing"}
    owned = [labels for name, labels in found if name == "group_partition_owned"]
    assert len(owned) == 2
    assert value(found, "exporter_dropped_partitions") == 1
    assert value(found, "group_topic_lag_messages", group="billing", topic="clicks") == 60


def test_old_figures_are_left_out_and_an_outage_of_zookeeper_is_survived() -> None:
    with EmbeddedCluster(1) as own:
        own.create_topic("clicks")
        client = KazooClient(own.zookeeper_connect)
        client.start()
        client.create("/consumers/g/offsets/clicks/0", b"0", makepath=True)
        client.stop()
        client.close()
        with exporter(own, stale_after_s=4.0) as running, running.serve(0) as server:
            assert value(wait_up(server.port), "group_topic_lag_messages", group="g", topic="clicks") == 0
            own.zookeeper.stop()
            found = wait_up(server.port, 0.0)
            age = value(found, "exporter_figures_age_seconds")
            assert age is not None
            assert age > 4.0
            assert value(found, "group_topic_lag_messages", group="g", topic="clicks") is None
            assert value(found, "exporter_groups") == 0
            assert sum(each for (name, _), each in found.items() if name == "exporter_read_errors_total") >= 1
            own.zookeeper.start()
            found = wait_up(server.port)
            assert value(found, "group_topic_lag_messages", group="g", topic="clicks") == 0


def test_a_dead_broker_leaves_lag_unknown_and_never_zero() -> None:
    with EmbeddedCluster(2) as own:
        own.create_topic("clicks", assignment={0: [0], 1: [1]})
        load(own, "clicks", 10)
        client = KazooClient(own.zookeeper_connect)
        client.start()
        for partition in (0, 1):
            client.create(f"/consumers/g/offsets/clicks/{partition}", b"4", makepath=True)
        client.stop()
        client.close()
        with exporter(own) as running, running.serve(0) as server:
            assert value(wait_up(server.port), "group_topic_lag_messages", group="g", topic="clicks") == 12
            own.kill(1)

            def is_unknown() -> bool:
                found = scraped(server.port)
                assert value(found, "exporter_up") == 1
                return value(found, "group_unknown_lag_partitions", group="g") == 1

            wait_until(is_unknown, 2 * TIMEOUT_S, "the lag to be unknown")
            found = scraped(server.port)
            assert value(found, "group_lag_messages", group="g", topic="clicks", partition="1") is None
            assert value(found, "group_lag_messages", group="g", topic="clicks", partition="0") == 6


def test_it_starts_without_zookeeper_and_says_so() -> None:
    nowhere = LagExporter(f"127.0.0.1:{free_port()}", settings=ExporterSettings(interval_s=1.0),
                          properties={"zookeeper.connection.timeout.ms": "500"})  # fmt: skip
    with nowhere, nowhere.serve(0) as server:
        wait_until(
            lambda: (value(scraped(server.port), "exporter_read_errors_total", kind="ZooKeeperUnavailable") or 0) >= 1,
            TIMEOUT_S, "an error to be counted",
        )  # fmt: skip
        found = scraped(server.port)
        assert value(found, "exporter_up") == 0
        assert value(found, "exporter_figures_age_seconds") is None


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"interval_s is 0\.5; it must be at least 1"):
        ExporterSettings(interval_s=0.5)
    with pytest.raises(ConfigError, match="max_partitions is -1"):
        ExporterSettings(max_partitions=-1)
    with pytest.raises(ConfigError, match=r"zookeeper\.acl"):
        LagExporter("localhost:1", properties={"zookeeper.acl": "nobody"})


def test_each_metric_is_documented() -> None:
    metrics = list(LagCollector(LagExporter("localhost:1")).describe())
    names = {f"{each.name}_total" if each.type == "counter" else each.name for each in metrics}
    assert len(names) > 15
    documented = set(re.findall(r"^\| `(zkconsumer_\w+)", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE))
    named = {name.removesuffix("_total") if name not in documented else name for name in names}
    assert named <= documented


def test_the_command_serves_until_it_is_ended(cluster: EmbeddedCluster) -> None:
    call = ("exporter", "--zookeeper", cluster.zookeeper_connect, "--port", "0", "--group-filter", "b.*")
    with Running(*call) as running:
        [line] = running.wait_lines(1)
        port = int(re.fullmatch(r"the lag of all groups is served at http://127\.0\.0\.1:(\d+)/metrics", line)[1])  # type: ignore[index]
        assert value(wait_up(port), "group_topic_lag_messages", group="billing", topic="clicks") == 60
        taken = run("exporter", "--zookeeper", cluster.zookeeper_connect, "--port", str(port))
        assert taken.returncode == 1
        assert taken.stderr.startswith(b"zkconsumer: metrics cannot be served at 127.0.0.1")
        assert taken.stderr.count(b"\n") == 1
        assert running.end() == 0
        assert running.errors() == ""


def test_without_the_package_the_command_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None;"
        "sys.argv[1:] = ['exporter', '--zookeeper', 'localhost:1'];"
        "from zkconsumer.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "zkconsumer: the exporter needs the package prometheus_client, which is not installed; "
        "pip install 'zkconsumer[prometheus]'\n"
    )
