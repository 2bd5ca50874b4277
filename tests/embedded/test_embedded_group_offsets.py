"""Offsets of groups on embedded brokers, in the newest versions: epochs of leaders, several groups, ids of topics."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from broker_wire import Wire, request
from group_wire import GroupClient, coordinator_of

from zkconsumer.testing import EmbeddedCluster

COMMIT, FETCH = 8, 9
TOPIC = "clicks"
NOBODY = b"\0"  # a null instance id


@pytest.fixture(scope="module", params=["2.8", "3.9", "4.3"])
def clusters(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster]]:
    with EmbeddedCluster(generation=request.param, zookeeper=False) as running:
        running.create_topic(TOPIC, 2)
        coordinator_of(running)
        yield request.param, running


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def commit(group: str, topic: bytes, offset: int, epoch: int) -> bytes:
    """A flexible OffsetCommit of nobody, behind the header."""
    row = struct.pack(">iqi", 0, offset, epoch) + compact("m") + b"\0"
    return b"\0" + compact(group) + struct.pack(">i", -1) + compact("") + NOBODY + b"\2" + topic + b"\2" + row + b"\0\0"


def test_the_epoch_of_a_leader_is_stored_with_an_offset(clusters: tuple[str, EmbeddedCluster]) -> None:
    _, cluster = clusters
    with Wire(cluster.port(0)) as wire:
        answer = wire.ask(request(COMMIT, commit("epochs", compact(TOPIC), 7, 3), version=8))
        expected = b"\0" + bytes(4) + b"\2" + compact(TOPIC) + b"\2" + bytes(4) + b"\0\0" + b"\0\0\0"
        assert answer[8:].hex() == expected.hex()
        asked = struct.pack(">h", 6) + b"epochs" + b"\xff\xff\xff\xff"
        found = wire.ask(request(FETCH, asked, version=5))[8:]
        assert struct.pack(">iqi", 0, 7, 3) in found


def test_several_groups_are_asked_for_at_once(clusters: tuple[str, EmbeddedCluster]) -> None:
    generation, cluster = clusters
    if generation == "2.8":
        pytest.skip("OffsetFetch names several groups from version 8 on")
    with Wire(cluster.port(0)) as wire:
        wire.ask(request(COMMIT, commit("one", compact(TOPIC), 1, -1), version=8))
        wire.ask(request(COMMIT, commit("two", compact(TOPIC), 2, -1), version=8))
        groups = b"".join(compact(each) + b"\0" + b"\0" for each in ("one", "two", "none"))
        found = wire.ask(request(FETCH, b"\0\4" + groups + b"\0\0", version=8))[8:]

    def of(name: str, offset: int) -> bytes:
        row = struct.pack(">iqi", 0, offset, -1) + compact("m") + b"\0\0\0"
        return compact(name) + b"\2" + compact(TOPIC) + b"\2" + row + b"\0" + b"\0\0\0"

    none = compact("none") + b"\1" + b"\0\0\0"
    assert found.hex() == (b"\0" + bytes(4) + b"\4" + of("one", 1) + of("two", 2) + none + b"\0").hex()


def test_topics_are_named_by_their_ids(clusters: tuple[str, EmbeddedCluster]) -> None:
    generation, cluster = clusters
    if generation != "4.3":
        pytest.skip("offsets of topics by their ids are there from 4.1 on")
    topic_id = cluster.registry.topics()[TOPIC].topic_id
    assert topic_id is not None
    with Wire(cluster.port(0)) as wire:
        for known, code in ((topic_id, 0), (bytes(15) + b"\7", 100)):
            answer = wire.ask(request(COMMIT, commit("ids", known, 5, -1), version=10))[8:]
            row = bytes(4) + struct.pack(">h", code) + b"\0"
            assert answer.hex() == (b"\0" + bytes(4) + b"\2" + known + b"\2" + row + b"\0\0").hex()
        topics = b"\2" + topic_id + b"\2" + bytes(4) + b"\0"
        asked = b"\0\2" + compact("ids") + b"\0" + struct.pack(">i", -1) + topics + b"\0" + b"\0\0"
        found = wire.ask(request(FETCH, asked, version=10))[8:]
        row = struct.pack(">iqi", 0, 5, -1) + compact("m") + b"\0\0\0"
        one = compact("ids") + b"\2" + topic_id + b"\2" + row + b"\0" + b"\0\0\0"
        assert found.hex() == (b"\0" + bytes(4) + b"\2" + one + b"\0").hex()


def test_a_commit_with_a_retention_of_its_own_is_stored_and_read_back(clusters: tuple[str, EmbeddedCluster]) -> None:
    """In versions 2 to 4, as a record with the time of its end."""
    _, cluster = clusters
    body = struct.pack(">h", 4) + b"kept" + struct.pack(">ihq", -1, 0, 60_000) + struct.pack(">i", 1)
    body += struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">iiq", 1, 1, 9) + b"\0\1m"
    with Wire(cluster.port(0)) as wire:
        assert wire.ask(request(COMMIT, body, version=2))[-2:] == b"\0\0"
    cluster.stop(0)
    cluster.start(0)
    with GroupClient(cluster.port(0), "kept") as tool:
        assert tool.committed(TOPIC, 1) == (0, 9)
