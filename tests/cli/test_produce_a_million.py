"""A million lines reach Kafka 0.8.2.2 while each of its brokers is killed and started again: docs/COMMAND_LINE.md."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import command, run
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

LINES = 1_000_000
WAIT_S = 300.0
# Without these a broker that comes back too early may lead, and cut off what the other one had acknowledged.
SETTINGS = {"min.insync.replicas": 2, "unclean.leader.election.enable": False}


def partitions(cluster: KafkaCluster) -> list[dict[str, Any]]:
    """What `zkconsumer topics` says about each partition; nothing while it cannot."""
    found = run("topics", "million", "--zookeeper", cluster.zookeeper_connect, "--json")
    rows: list[dict[str, Any]] = json.loads(found.stdout)["partitions"] if found.returncode == 0 else []
    return rows


def arrived(cluster: KafkaCluster) -> int:
    """How many messages the leaders have."""
    return sum(row["latest"] or 0 for row in partitions(cluster))


def is_in_sync(cluster: KafkaCluster) -> bool:
    """Whether both brokers have every partition."""
    rows = partitions(cluster)
    return bool(rows) and all(len(row["isr"]) == 2 for row in rows)


@pytest.mark.parametrize("options", [["--zookeeper"], ["--brokers", "--codec", "snappy"]], ids=["zookeeper", "brokers"])
def test_every_line_of_a_million_arrives(options: list[str], tmp_path: Path) -> None:
    lines = tmp_path / "million.txt"
    lines.write_bytes(b"".join(b"message-%07d\n" % number for number in range(LINES)))
    with KafkaCluster("0.8.2.2", brokers=2, settings=SETTINGS) as cluster:
        made = run("topics", "create", "million", "--zookeeper", cluster.zookeeper_connect, "--partitions", "4",
                   "--replication-factor", "2")  # fmt: skip
        assert made.returncode == 0, made.stderr
        where = cluster.zookeeper_connect if options[0] == "--zookeeper" else cluster.broker_list
        arguments = ["produce", options[0], where, *options[1:], "--topic", "million", "--acks", "-1"]
        with (
            lines.open("rb") as file,
            subprocess.Popen(command(arguments), stdin=file, stderr=subprocess.PIPE) as producer,
        ):
            for number, broker in enumerate((0, 1), 1):
                wanted = number * LINES // 5
                wait_until(lambda wanted=wanted: arrived(cluster) > wanted or producer.poll() is not None, WAIT_S,
                           "the next part of the lines")  # fmt: skip
                assert producer.poll() is None, "the lines were sent before a broker was killed"
                cluster.kill(broker)
                cluster.start(broker)
                wait_until(lambda: is_in_sync(cluster), WAIT_S, "both replicas in sync")
            assert producer.stderr is not None
            said = producer.stderr.read().decode()
            assert producer.wait(WAIT_S) == 0, said
        assert said.startswith(f"Produced {LINES} messages"), said
        got = subprocess.run(
            command(["consume", "--zookeeper", cluster.zookeeper_connect, "--topic", "million", "--until-end"]),
            capture_output=True, timeout=WAIT_S, check=True,
        )  # fmt: skip
    found = got.stdout.split()
    assert len(set(found)) == LINES
    assert set(found) == set(lines.read_bytes().split())
