"""`examples/asyncio_service.py`: both tasks read, and the end at a signal commits everything."""

from __future__ import annotations

from collections.abc import Callable

from tests.examples.example_process import Example, members, stored
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.loads import load


def test_two_tasks_read_everything_and_the_end_commits_it(
    small_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str, start: Callable[..., Example]
) -> None:
    topic = fresh_topic()
    small_cluster.create_topic(topic, 2)
    sent = load(small_cluster, topic, 20)
    example = start("asyncio_service.py", zookeeper=small_cluster.zookeeper_connect, group=fresh_group, topic=topic)
    example.wait_lines(len(sent))
    assert example.end() == 0
    lines = [line.split() for line in example.lines()]
    assert {line[0] for line in lines} == {"0", "1"}
    assert sorted(" ".join(line[1:]) for line in lines) == sorted(
        f"{each.partition} {each.offset} {each.id}" for each in sent
    )
    assert stored(small_cluster, fresh_group, topic) == {0: 20, 1: 20}
    assert members(small_cluster, fresh_group) == []
