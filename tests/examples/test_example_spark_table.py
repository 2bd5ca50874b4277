"""`examples/spark_table.py`: a topic of Kafka 0.8.2 as a table, by the command that is shown.

On secured brokers of Kafka 4 it is run by `tests/spark/test_spark_of_every_age.py`.
"""

from __future__ import annotations

import json
import shlex
import sys
import uuid
from pathlib import Path

import pytest

from tests.examples.example_process import FOLDER, shown_command
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.requirements import check_java
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.errors import JavaMissing
from zkconsumer.testing.processes import ChildProcess

NAME = "spark_table.py"


def run(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    output, errors = folder / "output.txt", folder / "errors.txt"
    command = [sys.executable, str(FOLDER / NAME), *arguments]
    process = ChildProcess(NAME, command, errors, output_path=output, directory=folder)
    try:
        return process.wait(300), output.read_text(), errors.read_text()
    finally:
        process.kill_group()


def test_the_messages_are_printed_with_their_places(small_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    try:
        check_java()
    except RequirementMissing as error:
        raise JavaMissing(str(error)) from error
    topic = f"topic-{uuid.uuid4().hex[:12]}"
    small_cluster.create_topic(topic, 2)
    small_cluster.produce(topic, [b"a", b"\xc3\xa4"], partition=0)
    small_cluster.produce(topic, [b"b"], partition=1)
    shown = shlex.split(shown_command(NAME))[2:]
    assert [word.partition("=")[0] for word in shown] == ["zookeeper.connect", "subscribe"]
    given = [f"zookeeper.connect={small_cluster.zookeeper_connect}", f"subscribe={topic}"]
    status, output, errors = run(given, tmp_path)
    assert status == 0, errors[-2000:]
    assert [json.loads(line) for line in output.splitlines()] == [
        {"topic": topic, "partition": partition, "offset": offset, "value": value}
        for partition, offset, value in ((0, 0, "a"), (0, 1, "ä"), (1, 0, "b"))
    ]


@pytest.mark.parametrize("arguments", [[], ["clicks"], ["subscribe=clicks"]])
def test_without_options_it_says_what_it_needs(arguments: list[str], tmp_path: Path) -> None:
    status, _, errors = run(arguments, tmp_path)
    assert status == 1
    assert "usage: spark_table.py NAME=VALUE" in errors
