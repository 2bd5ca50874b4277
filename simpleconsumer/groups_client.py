"""GroupsClient: asks a broker about the groups that it coordinates, and changes them without being a member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simpleconsumer.coordinator_client import CoordinatorClient
from simpleconsumer.described_groups import DescribedConsumerGroup, DescribedGroup, ListedGroup
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.group_types import GenerationMember
from simpleconsumer.types import Broker, OffsetAndMetadata, TopicPartition

__all__ = ["GroupsClient"]

_NO_GENERATION = -1


class GroupsClient(CoordinatorClient):
    """Lists, describes and deletes groups, and reads, stores and deletes their offsets: Kafka 0.9 and later.

    Error codes are results, as in `CoordinatorClient`, which has the arguments.

    Threads: One at a time.
    """

    def lists_groups(self) -> bool:
        """Return whether the broker lists groups, which it does from Kafka 0.9 on."""
        if self.dialect.chooses_versions:
            return KAFKA011.serves_list_groups(self.served_versions())
        return True

    def coordinator(self, group: str) -> tuple[int, Broker]:
        """Return error code and the broker that coordinates a group."""
        return self._ask(KAFKA011.coordinator(group))

    def list_groups(self) -> tuple[int, list[ListedGroup]]:
        """Return error code and the groups that the broker coordinates, of every state."""
        return self._ask(KAFKA011.list_groups())

    def describe_groups(self, groups: Sequence[str]) -> list[DescribedGroup]:
        """Return states and members of groups of the classic protocol, in the order asked."""
        return self._ask(KAFKA011.describe_groups(groups)) if groups else []

    def describes_consumer_groups(self) -> bool:
        """Return whether the broker describes groups of the protocol of KIP-848, which it does from Kafka 4.0 on."""
        return KAFKA011.serves_describe_consumer_groups(self.served_versions())

    def describe_consumer_groups(self, groups: Sequence[str]) -> list[DescribedConsumerGroup]:
        """Return states and members of groups of the protocol of KIP-848, in the order asked.

        Raises:
            VersionNotServed: The broker is older than Kafka 4.0.
        """
        return self._ask(KAFKA011.describe_consumer_groups(groups)) if groups else []

    def deletes_groups(self) -> bool:
        """Return whether the broker deletes groups, which it does from Kafka 1.1 on."""
        return KAFKA011.serves_delete_groups(self.served_versions())

    def delete(self, group: str) -> int:
        """Return the error code of a deletion of a group with its offsets; 68 while it has members.

        Raises:
            VersionNotServed: The broker is older than Kafka 1.1.
        """
        return self._ask(KAFKA011.delete_group(group))

    def lists_offsets(self) -> bool:
        """Return whether the broker names all partitions of which a group has offsets: from Kafka 0.10.2 on."""
        return KAFKA011.serves_all_committed(self.served_versions())

    def all_committed(self, group: str) -> tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata]]]:
        """Return the error code of a group, and error code and offset of each partition of which it has one.

        Raises:
            VersionNotServed: The broker is older than Kafka 0.10.2.
        """
        return self._ask(KAFKA011.all_committed(group))

    def store(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        """Return the error code of each partition whose offset is stored for a group without members; else 25."""
        return self.commit(GenerationMember(group, _NO_GENERATION, ""), offsets)

    def deletes_offsets(self) -> bool:
        """Return whether the broker deletes single offsets, which it does from Kafka 2.4 on."""
        return KAFKA011.serves_delete_committed(self.served_versions())

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the error code of each partition whose offset is deleted; 86 where a member subscribes to the topic.

        Raises:
            VersionNotServed: The broker is older than Kafka 2.4.
        """
        if not partitions:
            return {}
        codes = self._ask(KAFKA011.delete_committed(group, partitions))
        return dict(zip(partitions, codes, strict=True))
