"""What is hidden by an access list is shown as unknown: null, `?` or no sample, never as 0 or as nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry
from secured import PATIENCE_S

from zkconsumer.cli.program import program
from zkconsumer.lag_exporter import ExporterSettings, LagCollector, LagExporter
from zkconsumer.testing import ClosedNodes, EmbeddedCluster, load
from zkconsumer.testing.waiting import wait_until

MEMBER = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A group with one member, as a Java one would be registered, that owns two partitions of three."""
    with EmbeddedCluster(1) as running:
        running.create_topic("clicks", 3)
        load(running, "clicks", 10)
        client = KazooClient(running.zookeeper_connect)
        client.start(PATIENCE_S)
        client.create("/consumers/live/ids/live_a", MEMBER, ephemeral=True, makepath=True)
        for partition in (0, 1):
            path = f"/consumers/live/owners/clicks/{partition}"
            client.create(path, b"live_a-0", ephemeral=True, makepath=True)
            client.create(f"/consumers/live/offsets/clicks/{partition}", b"4", makepath=True)
        yield running
        client.stop()
        client.close()


@pytest.fixture
def closed(cluster: EmbeddedCluster) -> Iterator[ClosedNodes]:
    with ClosedNodes(cluster.zookeeper_connect) as made:
        yield made


def run(cluster: EmbeddedCluster, *arguments: str) -> Result:
    call = [*arguments, "--zookeeper", cluster.zookeeper_connect]
    return CliRunner().invoke(program, call, prog_name="zkconsumer")


def found(cluster: EmbeddedCluster, *arguments: str) -> Any:
    return json.loads(run(cluster, *arguments, "--json").stdout)


def samples(cluster: EmbeddedCluster) -> dict[str, float]:
    """Return name -> sum of the samples of the exporter's first round."""
    registry = CollectorRegistry()
    with LagExporter(cluster.zookeeper_connect, settings=ExporterSettings(interval_s=60)) as exporter:
        wait_until(lambda: exporter.state().is_up, PATIENCE_S, "the first round")
        registry.register(LagCollector(exporter))
        each = [sample for family in registry.collect() for sample in family.samples]
    sums: dict[str, float] = {}
    for sample in each:
        sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def test_members_that_may_not_be_read_are_unknown(cluster: EmbeddedCluster, closed: ClosedNodes) -> None:
    assert found(cluster, "groups")["groups"][0]["member_count"] == 1
    assert samples(cluster)["zkconsumer_group_unowned_partitions"] == 1

    closed.close("/consumers/live/ids")
    listed = run(cluster, "groups", "--active")
    assert listed.stdout.splitlines()[2:] == [
        "GROUP  MEMBERS  OWNED  TOPICS",
        "live         ?      2  clicks",
    ]
    assert found(cluster, "groups", "--active")["groups"][0]["member_count"] is None

    described = run(cluster, "describe", "live")
    assert described.stdout.startswith("Group live: an unknown number of members, 3 partitions of 1 topic\n")
    assert "is not a thread of a registered member" not in described.stdout
    assert found(cluster, "describe", "live")["members"] is None
    assert [row["problems"] for row in found(cluster, "describe", "live")["partitions"]] == [[], [], []]

    verified = run(cluster, "verify", "live", "--patience", "0")
    assert verified.stdout.startswith("Group live: an unknown number of members, an unknown number of partitions sub")
    counts = found(cluster, "verify", "live", "--patience", "0")
    assert (counts["member_count"], counts["partition_count"]) == (None, None)
    assert {finding["kind"] for finding in counts["findings"]} == {"refused-node"}

    [lag] = found(cluster, "lag", "live")["groups"]
    assert (lag["member_count"], lag["owned"], lag["unowned"]) == (None, 2, None)
    assert lag["topics_lag"][0]["unowned"] is None
    assert [problem for problem in lag["problems"] if "is not a thread of" in problem] == []
    row = run(cluster, "lag", "live", "--by", "group").stdout.splitlines()[3].split()
    assert row == ["live", "?", "2", "?", "12", "1"]

    figures = samples(cluster)
    assert "zkconsumer_group_registered_members" not in figures
    assert "zkconsumer_group_unowned_partitions" not in figures
    assert figures["zkconsumer_group_owned_partitions"] == 2
    assert figures["zkconsumer_group_problems"] == 1


@pytest.mark.parametrize("path", ["/consumers/live/owners", "/consumers/live/owners/clicks"])
def test_owners_that_may_not_be_read_are_unknown(cluster: EmbeddedCluster, closed: ClosedNodes, path: str) -> None:
    closed.close(path)
    assert found(cluster, "groups")["groups"][0]["owned"] is None
    [lag] = found(cluster, "lag", "live")["groups"]
    assert (lag["member_count"], lag["owned"], lag["unowned"], lag["topics_lag"][0]["unowned"]) == (1, None, None, None)
    described = run(cluster, "describe", "live").stdout
    assert "none" not in described
    assert described.count("? !") == 3  # of 3 partitions
    assert "orphaned" not in described
    figures = samples(cluster)
    for name in ("owned_partitions", "unowned_partitions", "partition_owned"):
        assert f"zkconsumer_group_{name}" not in figures
    assert figures["zkconsumer_group_registered_members"] == 1


def test_one_owner_that_may_not_be_read_is_an_owner(cluster: EmbeddedCluster, closed: ClosedNodes) -> None:
    closed.close("/consumers/live/owners/clicks/0")
    [lag] = found(cluster, "lag", "live")["groups"]
    assert (lag["owned"], lag["unowned"]) == (None, 1)
    assert [row["owner"] for row in lag["partitions"]] == [None, "live_a-0", None]
    assert samples(cluster)["zkconsumer_group_partition_owned"] == 1  # of the second partition


@pytest.mark.parametrize("path", ["", "/clicks", "/clicks/1"])
def test_offsets_that_may_not_be_read_end_with_status_1(
    cluster: EmbeddedCluster, closed: ClosedNodes, path: str
) -> None:
    assert run(cluster, "offsets", "get", "live").exit_code == 0
    closed.close(f"/consumers/live/offsets{path}")
    shown = run(cluster, "offsets", "get", "live")
    assert shown.exit_code == 1
    assert f"ZooKeeper does not let this client read /consumers/live/offsets{path} (NoAuth)" in shown.stderr
    assert "clicks-1: its offset in ZooKeeper is not known" in shown.stdout
    as_json = run(cluster, "offsets", "get", "live", "--json")
    assert as_json.exit_code == 1
    rows = {row["partition"]: row for row in json.loads(as_json.stdout)["partitions"]}
    assert (rows[1]["offset"], rows[1]["lag"]) == (None, None)
    assert rows[1]["problems"] == ["its offset in ZooKeeper is not known: ZooKeeper does not let this client read it"]
    if path == "/clicks/1":
        assert (rows[0]["offset"], rows[0]["problems"]) == (4, [])
