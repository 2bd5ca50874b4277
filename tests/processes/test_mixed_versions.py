"""Groups of our members and Java's, of every version from 0.7.2 to 1.1.1, each on its own brokers, go through it all.

Slow; `tests/run -m slow tests/processes/test_mixed_versions.py`. The figures of the same courses, beside those of Java
members alone, are written into docs/COMPATIBILITY.md by `python tests/processes/mixed_versions.py --write`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from fault_servers import servers_of
from mixed_courses import KAFKA_NODE, KAFKA_NODE_ON, Course, courses
from mixed_kafka_node import NodeStage, missing_tools
from mixed_outcome import given_up_for_us, run
from mixed_stage import mixed_cluster, open_mixed_stage
from mixed_versions import VERSIONS

from zkconsumer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
CASES = [pytest.param(version, course, id=f"{version}-{course.name}", marks=servers_of(version).marks)
         for version in VERSIONS for course in courses(version)]  # fmt: skip


@pytest.fixture(scope="module")
def cluster_of() -> Iterator[Callable[[str], KafkaCluster]]:
    """A broker of a version; the one of another version is ended first, for a machine has only so much room."""
    with ExitStack() as stack:
        running: dict[str, KafkaCluster] = {}

        def of(version: str) -> KafkaCluster:
            if version not in running:
                stack.close()
                running.clear()
                running[version] = stack.enter_context(mixed_cluster(version))
            return running[version]

        yield of


@pytest.mark.parametrize(("version", "course"), CASES)
def test_members_of_both_kinds_agree_after_every_change(
    cluster_of: Callable[[str], KafkaCluster], version: str, course: Course
) -> None:
    if course.name == KAFKA_NODE and missing_tools():
        pytest.skip(f"{KAFKA_NODE} needs {', '.join(missing_tools())}")
    cluster = cluster_of(version)
    mixed = run(cluster, course, "mixed")
    print(mixed)
    assert mixed.wrong == ()
    assert mixed.lost == 0
    if mixed.gave_up:  # would it have happened among Java members, too?
        alone = run(cluster, course, "java")
        print(alone)
        assert given_up_for_us(mixed, alone) is None


@pytest.mark.skipif(bool(missing_tools()), reason="kafka-node needs node and npm")
def test_verify_and_describe_take_members_of_kafka_node_for_what_they_are(
    cluster_of: Callable[[str], KafkaCluster],
) -> None:
    """Their owner nodes name the consumer and no thread."""
    cluster = cluster_of(KAFKA_NODE_ON)
    topic = f"n{uuid.uuid4().hex[:8]}"
    with open_mixed_stage(cluster, "mixed", "range", {topic: 5}, {}, NodeStage) as stage:
        for name in ("k1", "a"):
            stage.join(name, {"topics": {topic: 1}})
        where = [stage.group, "--zookeeper", cluster.zookeeper_connect, "--json"]
        program = [sys.executable, "-m", "zkconsumer.cli"]
        verified = subprocess.run([*program, "verify", *where], capture_output=True, timeout=60.0, check=False)
        assert verified.returncode == 0, verified.stdout
        described = subprocess.run([*program, "describe", *where], capture_output=True, timeout=60.0, check=True)
        found = json.loads(described.stdout)
        assert found["problems"] == []
        assert {row["owner"] for row in found["partitions"]} == {stage.named("k1").id, f"{stage.named('a').id}-0"}
