"""Finds loops by the ids of clusters: topics of the source whose records come from the target, whatever their names.

Each mirror announces in its state topic out of which clusters the records of a topic come, before it makes the topic
and before it copies a record. These are its source, and what is announced there for the topic that it copies. So they
are known over any number of clusters in a circle.

Rules, and which failure each prevents:
- An announcement is stored before the first record, and the source is looked at again after that: of two mirrors to and
  fro that start at the same time, at least one sees the other.
- The announcements of the source are read again at each look: a mirror that is added later closes a circle, too.
- The runs of the source count as announcements: mirrors of earlier versions have no others.

Threads: one at a time.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from rebalance.errors import RebalanceError
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.errors import PartitionStopped, ReadFailed
from zkconsumer.mirror.errors import LaneStuck
from zkconsumer.mirror.lane_runs import decoded
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.state_log import store_state
from zkconsumer.topic_reader.topic_reader import read_topic

log = logging.getLogger(__name__)

_FORMAT: Final = 1
_SLOT: Final = 0
"""The partition of the state topic that has the announcements."""
_STORE_S: Final = 5.0
_LEADERS_S: Final = 5.0
_RETRY_S: Final = 0.5


class TopicOrigins:
    """Out of which clusters the records of topics come.

    Args:
        both: The clusters of this mirror.
        settings: Of this mirror.
    """

    def __init__(self, both: Both, settings: MirrorSettings) -> None:
        self._both = both
        self._settings = settings
        self._next: dict[TopicPartition, int] = {}
        self._of: dict[str, set[str]] = defaultdict(set)
        self._announced: dict[str, frozenset[str]] = {}
        self._told: set[str] = set()
        self._has_looked = False

    def look(self, topics: Collection[str]) -> set[str]:
        """Read what mirrors have announced at the source since the last look, and return its topics that are copies.

        Args:
            topics: All topics of the source.

        Raises:
            ReadFailed, PartitionStopped: The first look fails; a later one goes on with what is known.
            StateUnreadable: A record is not of a mirror, or of a later version.
        """
        names = [name for name in topics if name.startswith(MirrorSettings.STATE_PREFIX)]
        try:
            self._read(names)
        except (ReadFailed, PartitionStopped, ClusterSilent, SimpleConsumerError, RebalanceError) as error:
            if not self._has_looked:
                raise
            log.warning("mirror: what other mirrors have announced cannot be read now: %s", error)
        self._has_looked = True
        copies = {name for name in topics if self._both.target_id in self._of.get(name, ())}
        for name in sorted(copies - self._told):
            log.info("mirror: topic %s is not copied: %s", name, self.reason(name))
        self._told |= copies
        return copies

    def reason(self, topic: str) -> str:
        """Return why a topic of the source that is a copy is not copied, a clause."""
        others = sorted(self._of[topic] - {self._both.target_id})
        over = f" by way of {', '.join(others)}" if others else ""
        came = f"its records come from cluster {self._both.target_id}{over}"
        return f"{came}, which is the target: they would go round for ever"

    def announce(self, names: Mapping[str, str]) -> None:
        """Store out of which clusters the records of topics will come, as far as that is new.

        Args:
            names: Topic of the source -> topic of the target.

        Raises:
            LaneStuck: It was not stored in time.
        """
        wanted = {target: self.origins(topic) for topic, target in names.items()}
        new = {target: clusters for target, clusters in wanted.items() if self._announced.get(target) != clusters}
        if new:
            self._store([_encoded(target, self._both.source_id, clusters) for target, clusters in sorted(new.items())])
            self._announced.update(new)

    def origins(self, topic: str) -> frozenset[str]:
        """Return the clusters out of which the copies of a topic of the source come."""
        return frozenset({self._both.source_id, *self._of.get(topic, ())})

    # -- the state topics of the source --------------------------------------------------------------------------------

    def _read(self, names: Iterable[str]) -> None:
        cluster = self._both.source.cluster
        partitions = [
            TopicPartition(name, number)
            for name, numbers in cluster.partitions(list(names)).items() for number in numbers
        ]  # fmt: skip
        for name, (start, end) in self._bounds(partitions).items():
            position = max(start, self._next.get(name, start))
            if position > end:  # it was deleted and created again
                position = start
            if end > position:
                self._read_partition(name, position)
            self._next[name] = end

    def _bounds(self, names: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return where logs start and end; waits for the leaders of topics that were just made."""
        deadline = time.monotonic() + _LEADERS_S
        bounds: dict[TopicPartition, tuple[int, int]] = {}
        while True:
            missing = [name for name in names if name not in bounds]
            reasons: dict[TopicPartition, str] = {}
            for name, found in self._both.source.cluster.log_ends(missing, [EARLIEST, LATEST]).items():
                if isinstance(found, str):
                    reasons[name] = found
                else:
                    bounds[name] = int(found[0] or 0), int(found[1] or 0)
            if not reasons:
                return bounds
            if time.monotonic() > deadline:
                name, reason = min(reasons.items())
                raise ReadFailed(f"{name.topic}/{name.partition} cannot be read: {reason}")
            time.sleep(_RETRY_S)

    def _read_partition(self, name: TopicPartition, position: int) -> None:
        given = {**self._settings.source, "isolation.level": "read_uncommitted"}
        with read_topic(
            self._settings.source_zookeeper, name.topic, [name.partition], start={name.partition: position},
            properties=given,
        ) as reader:  # fmt: skip
            for message in reader:
                self._take(message)

    def _take(self, message: Message) -> None:
        run = decoded(f"{message.topic}/{message.partition} at {message.offset}", message.key, message.value)
        if run is not None:
            self._of[run.lane.target.topic].add(run.lane.cluster)
            return
        announced = _decoded(message)
        if announced is not None:
            self._of[announced[0]] |= announced[1]

    # -- the state topic of this mirror --------------------------------------------------------------------------------

    def _store(self, rows: list[tuple[bytes, bytes]]) -> None:
        name = TopicPartition(self._settings.state_topic, _SLOT)
        deadline = time.monotonic() + _STORE_S
        while True:
            try:
                store_state(self._both.target, name, rows)
                return
            except (SimpleConsumerError, ClusterSilent) as error:
                if time.monotonic() > deadline:
                    reason = f"the origins of topics could not be stored: {error}"
                    raise LaneStuck(name, _STORE_S, reason) from error
                time.sleep(_RETRY_S)


def _encoded(topic: str, cluster: str, clusters: Collection[str]) -> tuple[bytes, bytes]:
    """Return key and value of an announcement; readers of runs pass over it, as it has no run."""
    key = {"format": _FORMAT, "origins_of": topic, "cluster": cluster}
    return json.dumps(key, sort_keys=True).encode(), json.dumps({"origins": sorted(clusters)}).encode()


def _decoded(message: Message) -> tuple[str, set[str]] | None:
    """Return topic and clusters of an announcement; None for a record of another kind."""
    try:
        key: Any = json.loads(message.key or b"")
        if not isinstance(key, dict) or "origins_of" not in key or message.value is None:
            return None
        return str(key["origins_of"]), {str(key["cluster"]), *map(str, json.loads(message.value)["origins"])}
    except (ValueError, KeyError, TypeError):
        return None
