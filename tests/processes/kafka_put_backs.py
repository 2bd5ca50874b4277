"""Finds the offsets in Kafka that Java members have put back, in the log of `__consumer_offsets`.

A Java member whose session is over commits what it has delivered until it learns of that. In ZooKeeper a watcher sees
the offset fall, and the link of the member shows who wrote it. In Kafka the log of the offsets keeps every commit, with
its time and without its writer: a value that a Java member has come to is taken for one of Java's.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from simpleconsumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.types import Message
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.kafka import KafkaCluster

OFFSETS_TOPIC = "__consumer_offsets"
_CLOCKS_NS = 50_000_000
"""How far the time of a commit may be from that of a delivery: a broker counts milliseconds."""


class Commit(NamedTuple):
    """A stored offset, in the order of the log."""

    time_ns: int
    place: Place
    offset: int


def put_backs(commits: Iterable[Commit], events: Iterable[Event], java: Collection[str]) -> list[Event]:
    """Two events `offset_node` for each offset that a Java member has put back: the highest one before, and its own.

    Args:
        commits: All commits of the group in Kafka, in the order of the log.
        events: What the members wrote down.
        java: Names of the Java members.
    """
    came_to: dict[tuple[Place, int], Event] = {}
    for event in events:
        if event.kind == "deliver" and event.member in java:
            came_to.setdefault((event.place, event.offset + 1), event)
    highest: dict[Place, int] = defaultdict(lambda: -1)
    found: list[Event] = []
    for time_ns, place, offset in commits:
        reached = came_to.get((place, offset))
        if 0 <= offset < highest[place] and reached is not None and reached.time_ns <= time_ns + _CLOCKS_NS:
            # The pair has one writer, as other values between them would be compared with these.
            found += [
                Event(time_ns - 1, "offset_node", reached.member, *place, highest[place]),
                Event(time_ns, "offset_node", reached.member, *place, offset),
            ]
        highest[place] = max(highest[place], offset)
    return found


def commits_in_kafka(cluster: KafkaCluster, group: str) -> list[Commit]:
    """All commits of a group that brokers of 0.8.2 have in their log, with times of this host's monotonic clock."""
    shift_ns = time.monotonic_ns() - time.time_ns()
    leaders = cluster.wait_leaders(OFFSETS_TOPIC, cluster.partitions(OFFSETS_TOPIC))
    return [
        Commit(milliseconds * 1_000_000 + shift_ns, place, offset)
        for partition, leader in leaders.items()
        for message in _messages(cluster.port(leader), int(partition))
        if message.key is not None and message.value is not None
        for committed_by, place in [_key(message.key)]
        for offset, milliseconds in [_value(message.value)]
        if committed_by == group
    ]


def _messages(port: int, partition: int) -> Iterator[Message]:
    with SimpleConsumer("127.0.0.1", port, 10.0) as broker:
        [at] = broker.get_offsets_before(OFFSETS_TOPIC, partition, EARLIEST)
        [end] = broker.get_offsets_before(OFFSETS_TOPIC, partition, LATEST)
        while at < end:
            found = broker.fetch(OFFSETS_TOPIC, partition, at, 1024 * 1024)
            assert found, f"nothing comes from {at} of {end}"
            yield from found
            at = found[-1].next_offset


def _key(data: bytes) -> tuple[str, Place]:
    group, at = _text(data, 2)
    topic, at = _text(data, at)
    return group, (topic, struct.unpack_from(">i", data, at)[0])


def _value(data: bytes) -> tuple[int, int]:
    (offset,) = struct.unpack_from(">q", data, 2)
    _, at = _text(data, 10)
    return offset, struct.unpack_from(">q", data, at)[0]


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size
