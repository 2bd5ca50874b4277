"""Looks up partition leaders in the metadata of the brokers alone.

A broker that has just denied leading a partition is taken for its leader only if a second broker names it, too: the
metadata of one broker may be old (KAFKA-1367). Where no second broker answers, the word of the first one counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from simpleconsumer.types import Broker, ClusterMetadata, TopicPartition
from zkconsumer.cluster.leaders import leader_epochs, usable_leaders
from zkconsumer.cluster.metadata_reader import BrokersSilent, MetadataReader

__all__ = ["MetadataDirectory"]


class MetadataDirectory:
    """Finds the leaders of partitions; see `zkconsumer.cluster.leaders.LeaderDirectory`.

    Args:
        reader: Asks the brokers.

    Threads: One at a time.
    """

    def __init__(self, reader: MetadataReader) -> None:
        self._reader = reader
        self.reported: dict[TopicPartition, Broker] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.brokers: Mapping[int, Broker] = {}

    def leaders(self, wanted: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
        """Return the leaders that could be found, by one request, or two where a broker has denied leading.

        Raises:
            BrokersSilent: No broker answers.
        """
        self.reported, self.epochs = {}, {}
        if not wanted:
            return {}
        metadata, asked = self._reader.metadata({name.topic for name in wanted})
        self.epochs, self.brokers = leader_epochs(metadata), metadata.brokers
        self.reported = {
            name: broker for name, broker in _leaders_in(metadata).items()
            if not self._reader.is_pinned_away(name.topic)
        }  # fmt: skip
        denied = {name for name, denied_by in wanted.items()
                  if name in self.reported and self.reported[name].id == denied_by}  # fmt: skip
        confirmed = self._of_another_broker(denied, asked) if denied else {}
        return {
            name: confirmed.get(name, self.reported[name]) for name in wanted
            if name in self.reported and (name not in denied or name in confirmed)
        }  # fmt: skip

    def _of_another_broker(self, names: set[TopicPartition], asked: int) -> dict[TopicPartition, Broker]:
        """Return the leaders as another broker names them; as the first one did if there is no other one."""
        try:
            metadata, _ = self._reader.metadata({name.topic for name in names}, besides=[asked])
        except BrokersSilent:
            return {name: self.reported[name] for name in names}
        found = _leaders_in(metadata)
        self.epochs |= {name: epoch for name, epoch in leader_epochs(metadata).items() if name in names}
        return {name: found[name] for name in names if name in found}


def _leaders_in(metadata: ClusterMetadata) -> dict[TopicPartition, Broker]:
    return {
        name: metadata.brokers[leader] for name, leader in usable_leaders(metadata).items()
        if leader in metadata.brokers
    }  # fmt: skip
