"""CoordinatorClient: the requests of a member to the broker that coordinates its group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from simpleconsumer.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest, VersionedRequest
from simpleconsumer.errors import VersionNotServed
from simpleconsumer.group_offset_calls import GroupOffsetCalls
from simpleconsumer.group_types import GenerationMember, JoinedGroup, JoiningMember, LeavingMember
from simpleconsumer.messages import apis
from simpleconsumer.types import OffsetAndMetadata, TopicPartition

__all__ = ["CoordinatorClient", "GroupOffsetClient"]

T = TypeVar("T")

_NEWEST_OF_09: Final = {apis.OFFSET_COMMIT.key: 2, apis.OFFSET_FETCH.key: 1}
"""Of brokers that do not list their versions: the newest one where it is not 0."""


class CoordinatorClient(BrokerClient):
    """Joins a group, stays in it and leaves it, at the broker that coordinates it: Kafka 0.9 and later.

    Error codes are results: what each means depends on the member's state. Arguments are those of `BrokerClient`, with
    the dialect of the broker. A connection answers in order: a JoinGroup that waits for other members holds up whatever
    is asked behind it, so heartbeats take a client of their own.

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

    def commit(
        self, member: GenerationMember, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        """Return the error code of each partition whose offset a member stores."""
        if not offsets:
            return {}
        codes = self._ask(KAFKA011.commit_as(member, offsets))
        return dict(zip(offsets, codes, strict=True))

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, OffsetAndMetadata]]:
        """Return error code and stored offset of each partition, -1 for none."""
        if not partitions:
            return {}
        found = self._ask(KAFKA011.committed(group, partitions))
        return dict(zip(partitions, found, strict=True))

    def _ask(self, asked: AnyRequest[T]) -> T:
        """Return the answer; brokers of 0.9, which list no versions, have the oldest version of each request."""
        if isinstance(asked, VersionedRequest) and not self.dialect.chooses_versions:
            newest = _NEWEST_OF_09.get(asked.api_key, 0)
            if asked.versions[0] > newest:
                raise VersionNotServed(self.host, self.port, asked.api, tuple(asked.versions), (0, newest))
            asked = asked.at(asked.versions[0])
        return self.ask(asked)


class GroupOffsetClient(GroupOffsetCalls, CoordinatorClient):
    """Stores and reads the offsets of groups of both kinds: those in ZooKeeper, and those that brokers coordinate.

    Threads: One at a time.
    """
