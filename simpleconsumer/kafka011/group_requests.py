"""The requests about groups: membership, stored offsets, and which broker coordinates a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from simpleconsumer.described_groups import DescribedConsumerGroup, DescribedGroup, ListedGroup
from simpleconsumer.dialect_types import Request, VersionedRequest
from simpleconsumer.errors import DecodeError
from simpleconsumer.group_types import GenerationMember, JoinedGroup, JoiningMember, LeavingMember
from simpleconsumer.kafka011 import (
    apis,
    consumer_group_describe,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from simpleconsumer.kafka011.versioned_requests import request_of, serves, versioned
from simpleconsumer.kafka08 import requests as requests_08
from simpleconsumer.numbered_offsets import numbered
from simpleconsumer.types import Broker, Buffer, OffsetAndMetadata, TopicPartition

__all__ = ["GroupRequests"]

_NO_GENERATION = -1
_NOTHING = OffsetAndMetadata(-1)


class GroupRequests:
    """The part of a dialect that makes the requests about groups.

    The oldest version of each request of a member is the one of Kafka 0.9, which does not say what it serves.
    """

    # -- members -------------------------------------------------------------------------------------------------------

    def join_group(
        self,
        member: JoiningMember,
        protocols: Sequence[tuple[str, bytes]],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> VersionedRequest[JoinedGroup]:
        """Return the request to join a group, which is answered when all its members have joined.

        Args:
            protocols: Name and metadata of each assignor, the one that is wanted first.
            session_timeout_ms: After which a member without heartbeats is out of the group.
            rebalance_timeout_ms: Longest wait for members when the group rebalances: Kafka 0.10.1 and later; before, it
                is the session time-out.
        """

        def at(version: int) -> Request[JoinedGroup]:
            body = join_group.encode_join_group(member, protocols, session_timeout_ms, rebalance_timeout_ms, version)
            return request_of(
                apis.JOIN_GROUP, version, body, lambda answer: join_group.decode_join_group(answer, version)
            )

        # Without an instance id in the request a static member would be a dynamic one.
        versions = apis.JOIN_GROUP.versions
        return versioned(apis.JOIN_GROUP, at, versions if member.instance_id is None else versions[-1:])

    def sync_group(
        self, member: GenerationMember, assignments: Mapping[str, bytes]
    ) -> VersionedRequest[tuple[int, bytes]]:
        """Return the request for error code and assignment of a member; the leader hands over those of all."""

        def at(version: int) -> Request[tuple[int, bytes]]:
            body = sync_group.encode_sync_group(member, assignments, version)
            return request_of(
                apis.SYNC_GROUP, version, body, lambda answer: sync_group.decode_sync_group(answer, version)
            )

        return versioned(apis.SYNC_GROUP, at)

    def heartbeat(self, member: GenerationMember) -> VersionedRequest[int]:
        """Return a heartbeat; the answer is an error code."""

        def at(version: int) -> Request[int]:
            body = heartbeat.encode_heartbeat(member, version)
            return request_of(
                apis.HEARTBEAT, version, body, lambda answer: heartbeat.decode_heartbeat(answer, version), True
            )

        return versioned(apis.HEARTBEAT, at, can_resend=True)

    def leave_group(self, group: str, member: LeavingMember) -> VersionedRequest[int]:
        """Return the request that removes a member from its group; the answer is an error code."""

        def at(version: int) -> Request[int]:
            body = leave_group.encode_leave_group(group, member, version)
            return request_of(
                apis.LEAVE_GROUP, version, body, lambda answer: leave_group.decode_leave_group(answer, version), True
            )

        return versioned(apis.LEAVE_GROUP, at, can_resend=True)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], version: int = 2, timestamp_ms: int = -1
    ) -> VersionedRequest[list[int]]:
        """Return the request that stores offsets of a group in Kafka; the answer is one error code for each.

        Args:
            timestamp_ms: Not looked at: Kafka 0.10.0 and later take the time of the request.
        """
        return self.commit_as(GenerationMember(group, _NO_GENERATION, ""), offsets)

    def commit_as(
        self, member: GenerationMember, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> VersionedRequest[list[int]]:
        """Return the request with which a member stores offsets; one of a generation that is over is refused."""
        wanted = {numbered(partition): offset for partition, offset in offsets.items()}

        def at(version: int) -> Request[list[int]]:
            body = offset_commit.encode_offset_commit(member, wanted, version)
            return request_of(
                apis.OFFSET_COMMIT, version, body,
                lambda answer: offset_commit.decode_offset_commit(answer, list(wanted), version),
            )  # fmt: skip

        return versioned(apis.OFFSET_COMMIT, at)

    def committed(
        self, group: str, partitions: Sequence[TopicPartition], version: int = 1
    ) -> VersionedRequest[list[tuple[int, OffsetAndMetadata]]]:
        """Return the request for the offsets that a group has in Kafka; none is offset -1, without error."""
        wanted = [numbered(partition) for partition in partitions]

        def at(version: int) -> Request[list[tuple[int, OffsetAndMetadata]]]:
            def decode(answer: Buffer) -> list[tuple[int, OffsetAndMetadata]]:
                code, found = offset_fetch.decode_offset_fetch(answer, wanted, version)
                return [(code, _NOTHING)] * len(wanted) if code else found

            body = offset_fetch.encode_offset_fetch(group, wanted, version)
            return request_of(apis.OFFSET_FETCH, version, body, decode, True)

        return versioned(apis.OFFSET_FETCH, at, can_resend=True)

    def all_committed(
        self, group: str
    ) -> VersionedRequest[tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata]]]]:
        """Return the request for all offsets that a group has in Kafka, behind its error code: 0.10.2 and later."""

        def at(version: int) -> Request[tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata]]]]:
            def decode(answer: Buffer) -> tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata]]]:
                code, found = offset_fetch.decode_all_offsets(answer, version)
                return code, {TopicPartition(*partition): each for partition, each in found.items()}

            body = offset_fetch.encode_offset_fetch(group, None, version)
            return request_of(apis.OFFSET_FETCH, version, body, decode, True)

        return versioned(apis.OFFSET_FETCH, at, apis.OFFSET_FETCH.versions[1:], can_resend=True)

    def serves_all_committed(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `all_committed`."""
        return serves(served, apis.OFFSET_FETCH, apis.OFFSET_FETCH.versions[1:])

    def delete_committed(self, group: str, partitions: Sequence[TopicPartition]) -> VersionedRequest[list[int]]:
        """Return the request that deletes offsets of a group: Kafka 2.4; the answer is one error code for each."""
        wanted = [numbered(partition) for partition in partitions]
        body = offset_delete.encode_offset_delete(group, wanted)
        return versioned(
            apis.OFFSET_DELETE,
            partial(
                request_of, apis.OFFSET_DELETE, body=body,
                decode=lambda answer: offset_delete.decode_offset_delete(answer, wanted),
            ),
        )  # fmt: skip

    def serves_delete_committed(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `delete_committed`."""
        return serves(served, apis.OFFSET_DELETE)

    # -- groups --------------------------------------------------------------------------------------------------------

    def list_groups(self, states: Sequence[str] = ()) -> VersionedRequest[tuple[int, list[ListedGroup]]]:
        """Return the request for error code and the groups that a broker coordinates.

        Args:
            states: Only groups in one of these states: Kafka 2.6 and later. All groups without any.
        """

        def at(version: int) -> Request[tuple[int, list[ListedGroup]]]:
            body = list_groups.encode_list_groups(states, version)
            return request_of(
                apis.LIST_GROUPS, version, body, lambda answer: list_groups.decode_list_groups(answer, version), True
            )

        versions = apis.LIST_GROUPS.versions
        if states:
            versions = tuple(version for version in versions if version >= list_groups.FIRST_WITH_STATES)
        return versioned(apis.LIST_GROUPS, at, versions, can_resend=True)

    def serves_list_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `list_groups`."""
        return serves(served, apis.LIST_GROUPS)

    def describe_groups(self, groups: Sequence[str]) -> VersionedRequest[list[DescribedGroup]]:
        """Return the request for states and members of groups of the classic protocol."""

        def at(version: int) -> Request[list[DescribedGroup]]:
            body = describe_groups.encode_describe_groups(groups, version)
            return request_of(
                apis.DESCRIBE_GROUPS, version, body,
                lambda answer: describe_groups.decode_describe_groups(answer, groups, version), True,
            )  # fmt: skip

        return versioned(apis.DESCRIBE_GROUPS, at, can_resend=True)

    def describe_consumer_groups(self, groups: Sequence[str]) -> VersionedRequest[list[DescribedConsumerGroup]]:
        """Return the request for states and members of groups of the protocol of KIP-848: Kafka 4.0."""

        def at(version: int) -> Request[list[DescribedConsumerGroup]]:
            body = consumer_group_describe.encode_consumer_group_describe(groups)
            return request_of(
                apis.CONSUMER_GROUP_DESCRIBE, version, body,
                lambda answer: consumer_group_describe.decode_consumer_group_describe(answer, groups, version), True,
            )  # fmt: skip

        return versioned(apis.CONSUMER_GROUP_DESCRIBE, at, can_resend=True)

    def serves_describe_consumer_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `describe_consumer_groups`."""
        return serves(served, apis.CONSUMER_GROUP_DESCRIBE)

    def serves_delete_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `delete_group`."""
        return serves(served, apis.DELETE_GROUPS)

    def delete_group(self, group: str) -> VersionedRequest[int]:
        """Return the request that deletes a group and its offsets in Kafka; the answer is an error code."""

        def decode(answer: Buffer) -> int:
            codes = requests_08.decode_delete_groups(answer)
            if group not in codes:
                raise DecodeError(f"delete groups response: group {group!r} is missing")
            return codes[group]

        body = requests_08.encode_delete_groups([group])
        return versioned(apis.DELETE_GROUPS, partial(request_of, apis.DELETE_GROUPS, body=body, decode=decode))

    def coordinator(self, group: str, *, of_transactions: bool = False) -> VersionedRequest[tuple[int, Broker]]:
        """Return the request for error code and the broker that coordinates a group.

        Args:
            group: Its name, or a transactional id.
            of_transactions: Whether it is a transactional id: Kafka 0.11 and later.
        """

        def at(version: int) -> Request[tuple[int, Broker]]:
            body = find_coordinator.encode_find_coordinator(group, version, of_transactions=of_transactions)
            return request_of(
                apis.FIND_COORDINATOR, version, body,
                lambda answer: find_coordinator.decode_find_coordinator(answer, version), True,
            )  # fmt: skip

        versions = apis.FIND_COORDINATOR.versions
        return versioned(apis.FIND_COORDINATOR, at, versions[1:] if of_transactions else versions, can_resend=True)
