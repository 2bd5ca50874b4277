"""The requests about groups: membership, stored offsets, and which broker coordinates a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from simpleconsumer.dialect_types import VersionedRequest, numbered
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.calls import call, serves
from simpleconsumer.messages import groups as apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import results_of, topics_of
from simpleconsumer.types import (
    CONSUMER_PROTOCOL,
    Broker,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    GenerationMember,
    JoinedGroup,
    JoinedMember,
    JoiningMember,
    LeavingMember,
    ListedGroup,
    OffsetAndMetadata,
    TopicPartition,
)

_NO_GENERATION: Final = -1
_NOTHING: Final = OffsetAndMetadata(-1)
_FIRST_WITH_STATES: Final = 4
_IS_CLASSIC: Final = {0: True, 1: False}

Committed = tuple[int, OffsetAndMetadata]


class _OfGroup(Protocol):
    @property
    def group(self) -> str: ...


D = TypeVar("D", bound=_OfGroup)


class GroupRequests:
    """The part of a dialect that makes the requests about groups.

    The oldest version of each request of a member is that of Kafka 0.9, which does not list its versions.
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
        values = {
            "group_id": member.group, "session_timeout_ms": session_timeout_ms,
            "rebalance_timeout_ms": rebalance_timeout_ms, "member_id": member.member_id,
            "group_instance_id": member.instance_id, "protocol_type": CONSUMER_PROTOCOL,
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
        }  # fmt: skip
        # Without an instance id in the request a static member would be a dynamic one.
        versions = apis.JOIN_GROUP.versions
        return call(apis.JOIN_GROUP, values, _joined, versions if member.instance_id is None else versions[-1:])

    def sync_group(
        self, member: GenerationMember, assignments: Mapping[str, bytes]
    ) -> VersionedRequest[tuple[int, bytes]]:
        """Return the request for error code and assignment of a member; the leader hands over those of all."""
        rows = [{"member_id": member_id, "assignment": data} for member_id, data in assignments.items()]
        return call(
            apis.SYNC_GROUP, _of_member(member) | {"assignments": rows},
            lambda answer: (answer["error_code"], answer["assignment"]),
        )  # fmt: skip

    def heartbeat(self, member: GenerationMember) -> VersionedRequest[int]:
        """Return a heartbeat; the answer is an error code."""
        return call(apis.HEARTBEAT, _of_member(member), _error_code, can_resend=True)

    def leave_group(self, group: str, member: LeavingMember) -> VersionedRequest[int]:
        """Return the request that removes a member from its group; the answer is an error code."""
        row = {"member_id": member.member_id, "group_instance_id": member.instance_id}
        values = {"group_id": group, "member_id": member.member_id, "members": [row]}

        def code(answer: Values) -> int:
            codes = [answer["error_code"], *(left["error_code"] for left in answer.get("members", ()))]
            return next((each for each in codes if each), 0)

        return call(apis.LEAVE_GROUP, values, code, can_resend=True)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], version: int = 2, timestamp_ms: int = -1
    ) -> VersionedRequest[list[int]]:
        """Return the request that stores offsets of a group in Kafka; the answer is one error code for each.

        Args:
            timestamp_ms: Not looked at: Kafka 0.10.0 and later take the time of the request.
        """
        return self.commit_offsets_as(GenerationMember(group, _NO_GENERATION, ""), offsets)

    def commit_offsets_as(
        self, member: GenerationMember, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> VersionedRequest[list[int]]:
        """Return the request with which a member stores offsets; one of a generation that is over is refused."""
        wanted = {numbered(partition): offset for partition, offset in offsets.items()}
        rows = [
            (topic, {"partition_index": number, "committed_offset": offset.offset,
                     "committed_leader_epoch": offset.leader_epoch, "committed_metadata": offset.metadata})
            for (topic, number), offset in wanted.items()
        ]  # fmt: skip
        return call(
            apis.OFFSET_COMMIT, _of_member(member) | {"topics": topics_of(rows)},
            lambda answer: results_of("offset commit", answer["topics"], list(wanted), _error_code),
        )  # fmt: skip

    def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition], version: int = 1
    ) -> VersionedRequest[list[Committed]]:
        """Return the request for the offsets that a group has in Kafka; none is offset -1, without error."""
        wanted = [numbered(partition) for partition in partitions]
        values = {"group_id": group, "topics": topics_of(wanted), "require_stable": True}

        def result(answer: Values) -> list[Committed]:
            code = answer.get("error_code", 0)
            if code:  # of the group
                return [(code, _NOTHING)] * len(wanted)
            return results_of("offset fetch", answer["topics"], wanted, _committed)

        return call(apis.OFFSET_FETCH, values, result, can_resend=True)

    def fetch_all_offsets(self, group: str) -> VersionedRequest[tuple[int, dict[TopicPartition, Committed]]]:
        """Return the request for all offsets that a group has in Kafka, after its error code: 0.10.2 and later.

        They come as they are now, stable or not.
        """

        def result(answer: Values) -> tuple[int, dict[TopicPartition, Committed]]:
            return answer["error_code"], {
                TopicPartition(topic["name"], row["partition_index"]): _committed(row)
                for topic in answer["topics"] for row in topic["partitions"]
            }  # fmt: skip

        values = {"group_id": group, "topics": None, "require_stable": False}
        return call(apis.OFFSET_FETCH, values, result, apis.OFFSET_FETCH.versions[1:], can_resend=True)

    def serves_fetch_all_offsets(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `fetch_all_offsets`."""
        return serves(served, apis.OFFSET_FETCH, apis.OFFSET_FETCH.versions[1:])

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> VersionedRequest[list[int]]:
        """Return the request that deletes offsets of a group: Kafka 2.4; the answer is one error code for each."""
        wanted = [numbered(partition) for partition in partitions]

        def codes(answer: Values) -> list[int]:
            code = answer["error_code"]  # of the group
            return [code] * len(wanted) if code else results_of("offset delete", answer["topics"], wanted, _error_code)

        return call(apis.OFFSET_DELETE, {"group_id": group, "topics": topics_of(wanted)}, codes)

    def serves_delete_offsets(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `delete_offsets`."""
        return serves(served, apis.OFFSET_DELETE)

    # -- groups --------------------------------------------------------------------------------------------------------

    def list_groups(self, states: Sequence[str] = ()) -> VersionedRequest[tuple[int, list[ListedGroup]]]:
        """Return the request for error code and the groups that a broker coordinates.

        Args:
            states: Only groups in one of these states: Kafka 2.6 and later. All groups without any.
        """
        versions = apis.LIST_GROUPS.versions
        if states:
            versions = tuple(version for version in versions if version >= _FIRST_WITH_STATES)
        return call(
            apis.LIST_GROUPS, {"states_filter": list(states), "types_filter": []},
            lambda answer: (answer["error_code"], [_listed(row) for row in answer["groups"]]), versions,
            can_resend=True,
        )  # fmt: skip

    def serves_list_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `list_groups`."""
        return serves(served, apis.LIST_GROUPS)

    def describe_groups(self, groups: Sequence[str]) -> VersionedRequest[list[DescribedGroup]]:
        """Return the request for states and members of groups of the classic protocol."""
        return call(
            apis.DESCRIBE_GROUPS, {"groups": groups},
            lambda answer: _of_groups("describe groups", answer, groups, _described), can_resend=True,
        )  # fmt: skip

    def describe_consumer_groups(self, groups: Sequence[str]) -> VersionedRequest[list[DescribedConsumerGroup]]:
        """Return the request for states and members of groups of the protocol of KIP-848: Kafka 4.0."""
        return call(
            apis.CONSUMER_GROUP_DESCRIBE, {"group_ids": groups},
            lambda answer: _of_groups("consumer group describe", answer, groups, _described_consumers), can_resend=True,
        )  # fmt: skip

    def serves_describe_consumer_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `describe_consumer_groups`."""
        return serves(served, apis.CONSUMER_GROUP_DESCRIBE)

    def serves_delete_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `delete_group`."""
        return serves(served, apis.DELETE_GROUPS)

    def delete_group(self, group: str) -> VersionedRequest[int]:
        """Return the request that deletes a group and its offsets in Kafka; the answer is an error code."""

        def code(answer: Values) -> int:
            codes: dict[str, int] = {row["group_id"]: row["error_code"] for row in answer["results"]}
            if group not in codes:
                raise DecodeError(f"delete groups response: group {group!r} is missing")
            return codes[group]

        return call(apis.DELETE_GROUPS, {"groups_names": [group]}, code)

    def coordinator(self, group: str, *, of_transactions: bool = False) -> VersionedRequest[tuple[int, Broker]]:
        """Return the request for error code and the broker that coordinates a group (id and port -1 with an error).

        Args:
            group: Its name, or a transactional id.
            of_transactions: Whether it is a transactional id: Kafka 0.11 and later.
        """
        versions = apis.FIND_COORDINATOR.versions
        return call(
            apis.FIND_COORDINATOR, {"key": group, "key_type": int(of_transactions)}, _coordinator,
            versions[1:] if of_transactions else versions, can_resend=True,
        )  # fmt: skip


# -- values of requests, and results of answers ------------------------------------------------------------------------


def _of_member(member: GenerationMember) -> Values:
    return {
        "group_id": member.group, "generation_id": member.generation, "member_id": member.member_id,
        "group_instance_id": member.instance_id,
    }  # fmt: skip


def _error_code(values: Values) -> int:
    code: int = values["error_code"]
    return code


def _joined(answer: Values) -> JoinedGroup:
    members = tuple(
        JoinedMember(row["member_id"], row["metadata"], row.get("group_instance_id")) for row in answer["members"]
    )
    return JoinedGroup(
        answer["error_code"], answer["generation_id"], answer["protocol_name"], answer["leader"], answer["member_id"],
        members,
    )  # fmt: skip


def _committed(row: Values) -> Committed:
    """Return error code and offset of a partition."""
    epoch = row.get("committed_leader_epoch", -1)
    return row["error_code"], OffsetAndMetadata(row["committed_offset"], row["metadata"] or "", epoch)


def _coordinator(answer: Values) -> tuple[int, Broker]:
    # Fetch and commit versions are what every broker serves that lists its versions.
    return answer["error_code"], Broker(answer["node_id"], answer["host"], answer["port"], 2, "kafka011", 2)


def _listed(row: Values) -> ListedGroup:
    group_type: str | None = row.get("group_type")
    return ListedGroup(row["group_id"], row["protocol_type"], row.get("group_state"), group_type and group_type.lower())


def _of_groups(what: str, answer: Values, groups: Sequence[str], describe: Callable[[Values], D]) -> list[D]:
    """Return the result of each group in an answer, in the order asked."""
    rows = [describe(row) for row in answer["groups"]]
    by_group = {row.group: row for row in rows}
    if len(rows) != len(groups) or by_group.keys() != set(groups):
        raise DecodeError(f"{what} response: {len(rows)} results, not one for each of the {len(groups)} groups")
    return [by_group[group] for group in groups]


def _described(row: Values) -> DescribedGroup:
    members = tuple(
        DescribedMember(
            member["member_id"], member.get("group_instance_id"), member["client_id"], member["client_host"],
            member["member_metadata"], member["member_assignment"],
        )
        for member in row["members"]
    )  # fmt: skip
    return DescribedGroup(
        row["error_code"], row["group_id"], row["group_state"], row["protocol_type"], row["protocol_data"], members,
        row.get("error_message"),
    )  # fmt: skip


def _described_consumers(row: Values) -> DescribedConsumerGroup:
    members = tuple(
        DescribedConsumer(
            member["member_id"], member["instance_id"], member["rack_id"], member["member_epoch"], member["client_id"],
            member["client_host"], tuple(member["subscribed_topic_names"]), member["subscribed_topic_regex"],
            _assigned(member["assignment"]), _assigned(member["target_assignment"]),
            _IS_CLASSIC.get(member.get("member_type", -1)),
        )
        for member in row["members"]
    )  # fmt: skip
    return DescribedConsumerGroup(
        row["error_code"], row["group_id"], row["group_state"], row["group_epoch"], row["assignment_epoch"],
        row["assignor_name"], members, row["error_message"],
    )  # fmt: skip


def _assigned(assignment: Values) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic["topic_name"], number)
        for topic in assignment["topic_partitions"] for number in topic["partitions"]
    )  # fmt: skip
