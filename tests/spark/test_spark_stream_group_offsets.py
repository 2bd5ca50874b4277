"""Offsets of a stream in ZooKeeper: never lowered by it, never written beside live members, and how it is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Delete, Exists, GetData, Request, SetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.spark.streaming.group_offsets import GroupHasMembers, GroupOffsets, OffsetsNotStored
from zkconsumer.testing.zookeeper import ZooKeeperServer

CLICKS = TopicPartition("clicks", 0)


@pytest.fixture
def port(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperPort]:
    with zookeeper_connection(zookeeper.connect) as port:
        yield port


def ask(port: ZooKeeperPort, request: Request) -> object:
    reply = call(port, request, 10.0)
    assert reply.fault is None, reply
    return reply.value


def stored(port: ZooKeeperPort, group: str, name: TopicPartition = CLICKS) -> int:
    path = znodes.offset_path(group, *name)
    return znodes.parse_offset(path, ask(port, GetData(path))[0])  # type: ignore[index]


def join(port: ZooKeeperPort, group: str, member: str) -> str:
    """A registration as live members have it."""
    for path in (znodes.CONSUMERS, znodes.group_path(group), znodes.ids_path(group)):
        call(port, Create(path), 10.0)
    path = znodes.registration_path(group, member)
    ask(port, Create(path, b"{}", ephemeral=True))
    return path


def test_a_new_group_gets_its_nodes(port: ZooKeeperPort, fresh_group: str):
    wanted = {TopicPartition(topic, number): number + 1 for topic in ("clicks", "views") for number in range(150)}
    assert GroupOffsets(port, fresh_group).commit(wanted, {}) == 300
    assert all(stored(port, fresh_group, name) == offset for name, offset in wanted.items())


def test_offsets_rise_and_are_not_lowered(port: ZooKeeperPort, fresh_group: str):
    offsets = GroupOffsets(port, fresh_group)
    assert [offsets.commit({CLICKS: at}, {}) for at in (5, 9, 7, 9)] == [1, 1, 0, 0]
    assert stored(port, fresh_group) == 9


def test_what_somebody_else_stored_further_on_is_left(port: ZooKeeperPort, fresh_group: str):
    offsets = GroupOffsets(port, fresh_group)
    offsets.commit({CLICKS: 5}, {})
    ask(port, SetData(znodes.offset_path(fresh_group, *CLICKS), b"100"))
    assert offsets.commit({CLICKS: 50}, {}) == 0
    assert stored(port, fresh_group) == 100


def test_an_offset_of_the_topics_earlier_life_is_written_over(port: ZooKeeperPort, fresh_group: str):
    offsets = GroupOffsets(port, fresh_group)
    name = TopicPartition(fresh_group, 0)  # others may have created a topic "clicks", which has a birth of its own
    offsets.commit({name: 500}, {})
    written_at = ask(port, Exists(znodes.offset_path(fresh_group, *name))).mzxid  # type: ignore[attr-defined]
    assert offsets.commit({name: 3}, {name.topic: written_at}) == 0
    assert offsets.commit({name: 3}, {name.topic: written_at + 1}) == 1
    assert stored(port, fresh_group, name) == 3


def test_an_offset_of_a_topic_that_was_created_anew_since_is_left_out(port: ZooKeeperPort, fresh_group: str):
    topics = [f"{fresh_group}-{name}" for name in ("old", "new")]
    for path in ("/brokers", znodes.TOPICS, *map(znodes.topic_path, topics)):
        call(port, Create(path, b"{}"), 10.0)
    created_zxids = {topic: ask(port, Exists(znodes.topic_path(topic))).czxid for topic in topics}  # type: ignore[attr-defined]
    created_zxids[topics[0]] -= 1
    offsets = {TopicPartition(topic, 0): 500 for topic in topics}
    assert GroupOffsets(port, fresh_group).commit(offsets, created_zxids) == 1
    assert stored(port, fresh_group, TopicPartition(topics[1], 0)) == 500
    assert ask(port, Exists(znodes.offset_path(fresh_group, topics[0], 0))) is None


def test_text_that_is_no_offset_is_written_over(port: ZooKeeperPort, fresh_group: str):
    offsets = GroupOffsets(port, fresh_group)
    offsets.commit({CLICKS: 5}, {})
    ask(port, SetData(znodes.offset_path(fresh_group, *CLICKS), b"five"))
    assert offsets.commit({CLICKS: 2}, {}) == 1


def test_nodes_that_were_deleted_meanwhile_are_made_again(port: ZooKeeperPort, fresh_group: str):
    offsets = GroupOffsets(port, fresh_group)
    offsets.commit({CLICKS: 5}, {})
    ask(port, Delete(znodes.offset_path(fresh_group, *CLICKS)))
    ask(port, Delete(znodes.offsets_path(fresh_group, "clicks")))
    assert offsets.commit({CLICKS: 6}, {}) == 1
    assert stored(port, fresh_group) == 6


def test_a_group_with_members_is_refused_by_their_names(port: ZooKeeperPort, fresh_group: str):
    offsets = GroupOffsets(port, fresh_group)
    offsets.refuse_members()
    node = join(port, fresh_group, "billing_host-1-2-3")
    for attempt in (offsets.refuse_members, lambda: offsets.commit({CLICKS: 5}, {})):
        with pytest.raises(GroupHasMembers, match=r"1 consumer is in it \(billing_host-1-2-3\).*commitToLiveGroup"):
            attempt()
    assert ask(port, Exists(f"{znodes.group_path(fresh_group)}/offsets")) is None
    ask(port, Delete(node))
    assert offsets.commit({CLICKS: 5}, {}) == 1


def test_a_group_with_members_can_be_written_to_when_that_was_asked_for(port: ZooKeeperPort, fresh_group: str):
    join(port, fresh_group, "billing_host-1-2-3")
    offsets = GroupOffsets(port, fresh_group, is_live_allowed=True)
    offsets.refuse_members()
    assert offsets.commit({CLICKS: 5}, {}) == 1


def test_of_many_that_write_at_once_the_highest_offset_stays(zookeeper: ZooKeeperServer, fresh_group: str):
    failures: list[Exception] = []

    def write(first: int) -> None:
        with zookeeper_connection(zookeeper.connect) as port:
            offsets = GroupOffsets(port, fresh_group)
            for at in range(first, 121, 4):
                try:
                    offsets.commit({CLICKS: at}, {})
                except OffsetsNotStored as error:  # others were faster, five times: the next offset is higher
                    failures.append(error)
            offsets.commit({CLICKS: 117 + first}, {})

    writers = [threading.Thread(target=write, args=[first]) for first in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    with zookeeper_connection(zookeeper.connect) as port:
        assert stored(port, fresh_group) == 120, failures


def test_a_node_that_may_not_be_written_is_named(
    zookeeper: ZooKeeperServer, fresh_group: str, fresh_topic: Callable[[], str]
):
    from rebalance.zookeeper.port.kazoo_client import access_list

    name = TopicPartition(fresh_topic(), 3)
    with zookeeper_connection(zookeeper.connect, default_acl=access_list([("world", "anyone", "rc")])) as owner:
        GroupOffsets(owner, fresh_group).commit({name: 5}, {})
        with pytest.raises(OffsetsNotStored, match=f"{name.topic}-3: not authorised"):
            GroupOffsets(owner, fresh_group).commit({name: 6}, {})
