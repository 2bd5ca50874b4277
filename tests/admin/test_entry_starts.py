"""Positions of Kafka 0.7 are moved to the starts of entries, or refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_07 import entry

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import TopicPartition
from tests.admin.broker_07 import FETCH, Broker07
from zkconsumer.admin import Admin
from zkconsumer.admin.values import OffsetsNotSet
from zkconsumer.admin.verify.entry_faults import entry_starts
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection

NAME = TopicPartition("clicks", "3-0")
PLAIN = entry(b"first") + entry(b"second") + entry(b"third")
PACKED = bytes(KAFKA07.encode_messages([b"a", b"b", b"c"], "gzip", None, None))


@pytest.fixture(scope="module")
def running(fresh_chroot: str) -> Iterator[Broker07]:
    with Broker07(fresh_chroot, 3, {"clicks": 2}) as broker:
        yield broker


@pytest.fixture
def broker(running: Broker07) -> Broker07:
    running.logs["clicks", 0][:] = PLAIN + PACKED
    running.segments.clear()
    running.requests.clear()
    return running


@pytest.fixture(scope="module")
def cluster(running: Broker07, fresh_chroot: str) -> Iterator[Cluster]:
    with zookeeper_connection(fresh_chroot) as port:
        yield Cluster(port, "test", 5.0, security=None)


STARTS = {0: 0, 1: 0, 14: 0, 15: 15, 30: 15, 31: 31, 45: 31, 46: 46, 47: 46, 46 + len(PACKED): 46 + len(PACKED)}


@pytest.mark.parametrize("position", STARTS)
def test_the_start_of_the_entry_around_a_position(cluster: Cluster, broker: Broker07, position: int) -> None:
    assert entry_starts(cluster, {NAME: position}) == {NAME: STARTS[position]}


def test_every_byte_of_a_log_is_in_one_entry(cluster: Cluster, broker: Broker07) -> None:
    found = [entry_starts(cluster, {NAME: position})[NAME] for position in range(len(PLAIN) + 1)]
    assert found == [0] * 15 + [15] * 16 + [31] * 15 + [46]


def test_the_walk_starts_at_the_segment_of_the_position(cluster: Cluster, broker: Broker07) -> None:
    broker.logs["clicks", 0][:15] = b"\0" * 15  # no entry: a walk from there would fail
    broker.segments["clicks", 0] = [0, 15]
    assert entry_starts(cluster, {NAME: 32}) == {NAME: 31}
    assert entry_starts(cluster, {NAME: 15}) == {NAME: 15}
    assert broker.requests[FETCH] == 1  # the start of a segment needs none


def test_a_large_entry_is_not_read_whole(cluster: Cluster, broker: Broker07) -> None:
    broker.logs["clicks", 0][:] = entry(b"x" * 20_000_000) + entry(b"y")
    assert entry_starts(cluster, {NAME: 20_000_005}) == {NAME: 0}
    assert entry_starts(cluster, {NAME: 20_000_011}) == {NAME: 20_000_010}


@pytest.mark.parametrize(
    ("log", "position", "reason"),
    [
        (PLAIN[:15] + b"\0\0\0\1" + PLAIN, 40,
         "the start of its entry is not known (in the log from position 0 on: entry at byte 15"),
        (PLAIN[:18], 18, None), (PLAIN, 47, "the log ends at 46, before position 47"),
    ],
)  # fmt: skip
def test_what_cannot_be_found_is_said(
    cluster: Cluster, broker: Broker07, log: bytes, position: int, reason: str | None
) -> None:
    broker.logs["clicks", 0][:] = log
    found = entry_starts(cluster, {NAME: position})[NAME]
    assert str(found).startswith(str(position) if reason is None else reason), found


def test_a_broker_that_is_gone_and_a_deadline_are_said(cluster: Cluster, broker: Broker07) -> None:
    gone = TopicPartition("clicks", "7-0")
    assert entry_starts(cluster, {gone: 5, NAME: 20}) == {gone: "broker 7 is not registered", NAME: 15}
    late = entry_starts(cluster, {NAME: 20}, deadline_s=-1)[NAME]
    assert late == "there was no time left to search for the start of its entry"


def test_partitions_of_08_are_left_alone(cluster: Cluster, broker: Broker07) -> None:
    assert entry_starts(cluster, {TopicPartition("t", 0): 5}) == {TopicPartition("t", 0): 5}
    assert not broker.requests


def test_admin_stores_what_was_found_and_nothing_that_was_not(
    fresh_chroot: str, broker: Broker07, fresh_group: str
) -> None:
    with Admin(fresh_chroot) as admin:
        found = admin.set_offsets(fresh_group, "clicks", 20, ["3-0"])
        assert [(each.old, each.new) for each in found.changes] == [(None, 15)]
        assert found.notes == ("clicks-3-0: position 20 is inside an entry; set to the entry's start, 15",)
        broker.logs["clicks", 0][15:19] = b"\0\0\0\1"
        with pytest.raises(OffsetsNotSet, match="in the log from position 0 on: entry at byte 15"):
            admin.shift_offsets(fresh_group, "clicks", 10, ["3-0"])
        assert [row.offset for row in admin.offsets(fresh_group).partitions] == [15, None]
        text = f"/consumers/{fresh_group}/offsets/clicks/3-0:33\n"
        with pytest.raises(OffsetsNotSet, match=r"1 offset cannot be set: clicks-3-0 to 33: the start of its entry"):
            admin.import_offsets(text)
        assert admin.import_offsets(text, force=True).notes == ()
        assert [row.offset for row in admin.offsets(fresh_group).partitions] == [33, None]
