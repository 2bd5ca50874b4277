"""CoordinatorClient: the requests of a member to the broker that coordinates its group.

`GroupsClient` asks a broker about the groups that it coordinates, and changes them without being a member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.calls.offset_calls import GroupOffsetCalls
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest, VersionedRequest
from simpleconsumer.errors import VersionNotServed
from simpleconsumer.messages import apis
from simpleconsumer.types import (
    Broker,
    DescribedConsumerGroup,
    DescribedGroup,
    GenerationMember,
    JoinedGroup,
    JoiningMember,
    LeavingMember,
    ListedGroup,
    OffsetAndMetadata,
    TopicPartition,
)

T = TypeVar("T")

_NEWEST_OF_09: Final = {apis.OFFSET_COMMIT.key: 2, apis.OFFSET_FETCH.key: 1}
"""Of brokers that do not list their versions: the newest one where it is not 0."""


class CoordinatorClient(BrokerClient):
    """Joins a group, stays in it and leaves it, at the broker that coordinates it: Kafka 0.9 and later.

    Error codes are results: the meaning of each depends on the member's state. Arguments are those of `BrokerClient`,
    with the dialect of the broker. A connection answers in order: a JoinGroup that waits for other members holds up
    every later request, so heartbeats take a client of their own.

    Threads: One at a time.
    """

    def join_group(
        self,
        member: JoiningMember,
        protocols: Sequence[tuple[str, bytes]],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> JoinedGroup:
        """Join the next generation of a group, and wait until its members have joined.

        The client's `timeout_s` must be longer than the rebalance time-out.

        Args:
            protocols: Name and metadata of each assignor, the one that is wanted first.
            session_timeout_ms: After which a member without heartbeats is out of the group.
            rebalance_timeout_ms: Longest wait for members when the group rebalances. Before Kafka 0.10.1 it is the
                session time-out.

        Raises:
            ConnectionFailed: Nobody answered. Where the broker had given no member id, it may count a member that
                nobody knows until its session ends (before Kafka 2.2).
            VersionNotServed: A static member needs Kafka 2.3.
        """
        return self._ask(KAFKA011.join_group(member, protocols, session_timeout_ms, rebalance_timeout_ms))

    def sync_group(self, member: GenerationMember, assignments: Mapping[str, bytes]) -> tuple[int, bytes]:
        """Return error code and assignment, once the leader has handed over the assignments.

        Args:
            assignments: Member id -> its assignment, of the leader; empty of others.
        """
        return self._ask(KAFKA011.sync_group(member, assignments))

    def heartbeat(self, member: GenerationMember) -> int:
        """Return the error code of a heartbeat."""
        return self._ask(KAFKA011.heartbeat(member))

    def leave_group(self, group: str, member: LeavingMember) -> int:
        """Return the error code of a leave."""
        return self._ask(KAFKA011.leave_group(group, member))

    def commit_offsets_as(
        self, member: GenerationMember, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        """Return the error code of each partition whose offset a member stores."""
        if not offsets:
            return {}
        codes = self._ask(KAFKA011.commit_offsets_as(member, offsets))
        return dict(zip(offsets, codes, strict=True))

    def _ask(self, asked: AnyRequest[T]) -> T:
        """Return the answer; brokers of 0.9, which list no versions, have the oldest version of each request."""
        if isinstance(asked, VersionedRequest) and not self.dialect.chooses_versions:
            newest = _NEWEST_OF_09.get(asked.api_key, 0)
            if asked.versions[0] > newest:
                raise VersionNotServed(self.host, self.port, asked.api, tuple(asked.versions), (0, newest))
            asked = asked.at(asked.versions[0])
        return self.ask(asked)


class GroupOffsetClient(GroupOffsetCalls, CoordinatorClient):
    """Stores and reads the offsets of groups of both kinds: groups in ZooKeeper, and groups that brokers coordinate.

    Threads: One at a time.
    """


_NO_GENERATION = -1


class GroupsClient(CoordinatorClient):
    """Lists, describes and deletes groups, and reads, stores and deletes their offsets: Kafka 0.9 and later.

    Error codes are results, as in `CoordinatorClient`, which has the arguments.

    Threads: One at a time.
    """

    def serves_list_groups(self) -> bool:
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

    def serves_describe_consumer_groups(self) -> bool:
        """Return whether the broker describes groups of the protocol of KIP-848, which it does from Kafka 4.0 on."""
        return KAFKA011.serves_describe_consumer_groups(self.served_versions())

    def describe_consumer_groups(self, groups: Sequence[str]) -> list[DescribedConsumerGroup]:
        """Return states and members of groups of the protocol of KIP-848, in the order asked.

        Raises:
            VersionNotServed: The broker is older than Kafka 4.0.
        """
        return self._ask(KAFKA011.describe_consumer_groups(groups)) if groups else []

    def serves_delete_groups(self) -> bool:
        """Return whether the broker deletes groups, which it does from Kafka 1.1 on."""
        return KAFKA011.serves_delete_groups(self.served_versions())

    def delete_group(self, group: str) -> int:
        """Return the error code of a deletion of a group with its offsets; 68 while it has members.

        Raises:
            VersionNotServed: The broker is older than Kafka 1.1.
        """
        return self._ask(KAFKA011.delete_group(group))

    def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, OffsetAndMetadata]]:
        """Return error code and stored offset of each partition, -1 for none."""
        if not partitions:
            return {}
        found = self._ask(KAFKA011.fetch_offsets(group, partitions))
        return dict(zip(partitions, found, strict=True))

    def serves_fetch_all_offsets(self) -> bool:
        """Return whether the broker names all partitions of which a group has offsets: from Kafka 0.10.2 on."""
        return KAFKA011.serves_fetch_all_offsets(self.served_versions())

    def fetch_all_offsets(self, group: str) -> tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata]]]:
        """Return the error code of a group, and error code and offset of each partition of which it has one.

        Raises:
            VersionNotServed: The broker is older than Kafka 0.10.2.
        """
        return self._ask(KAFKA011.fetch_all_offsets(group))

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        """Return the error code of each partition whose offset is stored for a group without members; else 25."""
        return self.commit_offsets_as(GenerationMember(group, _NO_GENERATION, ""), offsets)

    def serves_delete_offsets(self) -> bool:
        """Return whether the broker deletes single offsets, which it does from Kafka 2.4 on."""
        return KAFKA011.serves_delete_offsets(self.served_versions())

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the error code of each partition whose offset is deleted; 86 where a member subscribes to the topic.

        Raises:
            VersionNotServed: The broker is older than Kafka 2.4.
        """
        if not partitions:
            return {}
        codes = self._ask(KAFKA011.delete_offsets(group, partitions))
        return dict(zip(partitions, codes, strict=True))
