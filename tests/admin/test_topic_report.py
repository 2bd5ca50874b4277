"""The report on topics: each thing that can be wrong with a partition is named, and nothing else is."""

from __future__ import annotations

import dataclasses

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.admin.topics.topic_report import TopicNodes, TopicPartitionRow, topic_report

PARTITION = TopicPartition("clicks", 0)
STATE = b'{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":0,"isr":[%s]}'
SOUND = TopicNodes(
    brokers={1, 2},
    topics={"clicks": b'{"version":1,"partitions":{"0":[1,2]}}'},
    states={PARTITION: STATE % (1, b"2,1")},
    log_offsets={PARTITION: (5, 9)},
)


def test_a_sound_partition_has_no_problems() -> None:
    found = topic_report(SOUND)
    assert found.partitions == (TopicPartitionRow("clicks", 0, 1, (1, 2), (2, 1), 5, 9),)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("state", "leader", "problem"),
    [
        (None, None, "leaderless: it has no state yet"),
        (STATE % (-1, b"1"), None, "leaderless: no in-sync replica is alive"),
        (STATE % (3, b"1,2"), None, "leaderless: its leader, broker 3, is not registered"),
        (STATE % (1, b"1"), 1, "under-replicated: 2 of its replicas are not in sync"),
        (b"rubbish", None, "its state cannot be read: /brokers/topics/clicks/partitions/0/state: not JSON"),
    ],
)
def test_what_is_wrong_with_a_partition_is_named(state: bytes | None, leader: int | None, problem: str) -> None:
    found = topic_report(dataclasses.replace(SOUND, states={PARTITION: state}))
    assert found.partitions[0].leader == leader
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"clicks-0: {problem}")


def test_unknown_offsets_are_a_problem_only_when_there_is_a_leader() -> None:
    nodes = dataclasses.replace(SOUND, log_offsets={PARTITION: "broker 1: refused"})
    assert topic_report(nodes).problems == ("clicks-0: offsets unknown: broker 1: refused",)
    nodes = dataclasses.replace(nodes, states={PARTITION: None})
    assert topic_report(nodes).problems == ("clicks-0: leaderless: it has no state yet",)


def test_a_topic_whose_node_cannot_be_read_does_not_hide_the_others() -> None:
    found = topic_report(dataclasses.replace(SOUND, topics={**SOUND.topics, "broken": b"{}"}))
    assert [row.topic for row in found.partitions] == ["clicks"]
    assert found.problems[0].startswith("broken: /brokers/topics/broken: no partitions")
