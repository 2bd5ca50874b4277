"""Gives each partition of a topic of Kafka 0.7 a number on the target, once and for ever.

A partition of Kafka 0.7 is named by its broker and a number there, `1-0`. A broker that is away takes its partitions
off the list, and one that is new adds some. So the numbers cannot follow from the list of a moment: they are stored in
the first partition of the mirror's state topic, before a lane begins.

Rule: lists of one topic are numbered, and the first one with a number counts. Of two processes that both add
partitions, one has to follow the other.

Threads: one at a time.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Final

from rebalance.zookeeper.znodes_07 import broker_and_number
from simpleconsumer.types import TopicPartition
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.errors import LaneStuck, StateUnreadable
from zkconsumer.mirror.state_log import read_state, store_state

_FORMAT: Final = 1


class PartitionNumbers:
    """The numbers of the partitions of one source's topics.

    Args:
        cluster: The id of the source's cluster.
        state_topic: The mirror's topic on the target.
        target: The cluster that has it.
        properties: Of a consumer of the target.
    """

    def __init__(self, cluster: str, state_topic: str, target: Side, properties: dict[str, object]) -> None:
        self._cluster = cluster
        self._name = TopicPartition(state_topic, 0)
        self._target = target
        self._properties = properties
        self._next = 0
        self._lists: dict[str, list[str]] = {}
        self._count: dict[str, int] = {}

    def refresh(self) -> None:
        """Read what was stored since.

        Raises:
            StateUnreadable: A record is not of a mirror.
            ReadFailed, PartitionStopped: The state topic cannot be read now.
        """
        for message in read_state(self._name, self._next, self._properties):
            self._next = message.offset + 1
            self._take(f"{message.topic}/{message.partition} at {message.offset}", message.key, message.value)

    def known(self, topic: str, found: Sequence[str]) -> list[str]:
        """Return the partitions of a topic by their numbers; those that have none yet come last, in order."""
        listed = self._lists.get(topic, [])
        return listed + sorted(set(found) - set(listed), key=broker_and_number)

    def assigned(self, topic: str, found: Sequence[str], timeout_s: float) -> list[str]:
        """Return the partitions of a topic by their numbers, after new ones were stored.

        Raises:
            SimpleConsumerError, ClusterSilent: The new ones cannot be stored now.
            What `refresh` raises.
        """
        deadline = time.monotonic() + timeout_s
        self.refresh()
        while not set(found) <= set(self._lists.get(topic, ())):
            if time.monotonic() > deadline:
                raise LaneStuck(self._name, timeout_s, f"others number the partitions of {topic}")
            new = self.known(topic, found)[len(self._lists.get(topic, ())) :]
            key = {"format": _FORMAT, "topic": [self._cluster, topic], "list": self._count.get(topic, 0) + 1,
                   "writer": uuid.uuid4().hex[:12]}  # fmt: skip
            store_state(self._target, self._name, [(_json(key), _json({"partitions": new}))])
            self.refresh()
        return list(self._lists[topic])

    def _take(self, place: str, key: bytes | None, value: bytes | None) -> None:
        try:
            names = json.loads(key or b"")
            if value is None or "list" not in names or names["topic"][0] != self._cluster:
                return
            topic, number = str(names["topic"][1]), int(names["list"])
            added = [str(each) for each in json.loads(value)["partitions"]]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise StateUnreadable(place, f"{type(error).__name__}: {error}") from None
        if number == self._count.get(topic, 0) + 1:
            self._count[topic] = number
            listed = self._lists.setdefault(topic, [])
            listed.extend(each for each in added if each not in listed)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
