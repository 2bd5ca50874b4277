"""`examples/producer.py`: every line is sent or named, in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.examples.example_process import Example
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.topic_reader.topic_reader import read_topic


def test_every_line_is_sent_or_named(
    small_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], start: Callable[..., Example], tmp_path: Path
) -> None:
    topic, file = fresh_topic(), tmp_path / "lines.txt"
    small_cluster.create_topic(topic, 1)
    lines = [b"line %d" % number for number in range(2000)]
    file.write_bytes(b"\n".join([*lines[:1000], b"x" * 200_000, *lines[1000:]]))
    example = start("producer.py", zookeeper=small_cluster.zookeeper_connect, topic=topic, file=file)
    example.wait_lines(1)
    assert example.process.wait(30) == 1
    assert example.lines() == ["2000 of 2001 lines were sent"]
    assert "line 1001: " in example.errors()
    assert "200000 bytes, more than message.max.bytes = 100000" in example.errors()
    with read_topic(small_cluster.zookeeper_connect, topic, until="end") as messages:
        assert [message.value for message in messages] == lines
