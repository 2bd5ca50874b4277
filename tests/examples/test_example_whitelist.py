"""`examples/whitelist.py`: what the filter lets through is read, also when it is created later."""

from __future__ import annotations

from collections.abc import Callable

from tests.examples.example_process import Example, members, stored
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.loads import load


def test_a_topic_that_is_created_later_is_read_from_its_beginning(
    small_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str, start: Callable[..., Example]
) -> None:
    clicks, logs = fresh_topic(), fresh_topic()
    small_cluster.create_topic(clicks, 2)
    small_cluster.create_topic(f"other-{logs}-old")
    sent = load(small_cluster, clicks, 5)
    load(small_cluster, f"other-{logs}-old", 5)
    example = start(
        "whitelist.py", zookeeper=small_cluster.zookeeper_connect, group=fresh_group, topic=f"{clicks}, {logs}-.*"
    )
    example.wait_lines(len(sent))
    small_cluster.create_topic(f"{logs}-new", 2)
    sent += load(small_cluster, f"{logs}-new", 5)
    example.wait_for(
        lambda: all(stored(small_cluster, fresh_group, topic) == {0: 5, 1: 5} for topic in (clicks, f"{logs}-new")),
        "all to be committed",
    )
    assert example.end() == 0
    assert sorted(example.lines()) == sorted(f"{each.topic} {each.partition} {each.offset} {each.id}" for each in sent)
    assert members(small_cluster, fresh_group) == []
