"""The APIs of groups: membership, stored offsets, lists and descriptions of groups, and their coordinators.

From OffsetFetch 7 on (Kafka 2.5) a consumer asks for stable offsets, as Java's does. While a transaction is about to
commit an offset, the answer is error 88: a consumer that continued from the offset before would process again what the
transaction has done. Coordinators of Kafka 4 then answer from their newest state. Otherwise they may answer from an
older one just after their election.

Source: clients/src/main/resources/common/message (Kafka 4.3).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.messages.api import Api

FIND_COORDINATOR: Final = Api(
    10, "FindCoordinator", (0, 1), 3, throttled_from=1,
    request="""
        key: string 0-3
        key_type: int8 1+
        keys: []string 4+
    """,
    response="""
        throttle_time_ms: int32 1+ = 0
        error_code: int16 0-3
        error_message: string? 1-3
        node_id: int32 0-3
        host: string 0-3
        port: int32 0-3
        coordinators: [] 4+
            key: string
            node_id: int32
            host: string
            port: int32
            error_code: int16
            error_message: string?
    """,
)  # fmt: skip

JOIN_GROUP: Final = Api(
    11, "JoinGroup", (0, 1, 2, 4, 5), 6, throttled_from=2,
    request="""
        group_id: string
        session_timeout_ms: int32
        rebalance_timeout_ms: int32 1+
        member_id: string
        group_instance_id: string? 5+
        protocol_type: string
        protocols: []
            name: string
            metadata: bytes
        reason: string? 8+ = null
    """,
    response="""
        throttle_time_ms: int32 2+ = 0
        error_code: int16
        generation_id: int32
        protocol_type: string? 7+
        protocol_name: string?7
        leader: string
        skip_assignment: bool 9+
        member_id: string
        members: []
            member_id: string
            group_instance_id: string? 5+
            metadata: bytes
    """,
)  # fmt: skip

SYNC_GROUP: Final = Api(
    14, "SyncGroup", (0, 1, 3), 4, throttled_from=1,
    request="""
        group_id: string
        generation_id: int32
        member_id: string
        group_instance_id: string? 3+
        protocol_type: string? 5+
        protocol_name: string? 5+
        assignments: []
            member_id: string
            assignment: bytes
    """,
    response="""
        throttle_time_ms: int32 1+ = 0
        error_code: int16
        protocol_type: string? 5+
        protocol_name: string? 5+
        assignment: bytes
    """,
)  # fmt: skip

HEARTBEAT: Final = Api(
    12, "Heartbeat", (0, 1, 3), 4, throttled_from=1,
    request="""
        group_id: string
        generation_id: int32
        member_id: string
        group_instance_id: string? 3+
    """,
    response="""
        throttle_time_ms: int32 1+ = 0
        error_code: int16
    """,
)  # fmt: skip

LEAVE_GROUP: Final = Api(
    13, "LeaveGroup", (0, 1, 3), 4, throttled_from=1,
    request="""
        group_id: string
        member_id: string 0-2
        members: [] 3+
            member_id: string
            group_instance_id: string?
            reason: string? 5+ = null
    """,
    response="""
        throttle_time_ms: int32 1+ = 0
        error_code: int16
        members: [] 3+
            member_id: string
            group_instance_id: string?
            error_code: int16
    """,
)  # fmt: skip

OFFSET_COMMIT: Final = Api(
    8, "OffsetCommit", (2, 3, 5, 6, 7), 8, throttled_from=3,
    request="""
        group_id: string
        generation_id: int32 1+
        member_id: string 1+
        group_instance_id: string? 7+
        retention_time_ms: int64 2-4 = -1
        topics: []
            name: string 0-9
            topic_id: uuid 10+
            partitions: []
                partition_index: int32
                committed_offset: int64
                commit_timestamp: int64 1-1
                committed_leader_epoch: int32 6+
                committed_metadata: string?
    """,
    response="""
        throttle_time_ms: int32 3+ = 0
        topics: []
            name: string 0-9
            topic_id: uuid 10+
            partitions: []
                partition_index: int32
                error_code: int16
    """,
)  # fmt: skip

OFFSET_FETCH: Final = Api(
    9, "OffsetFetch", (1, 2, 3, 5, 7), 6, throttled_from=3,
    request="""
        group_id: string 0-7
        topics: []?2 0-7
            name: string
            partitions: []int32
        groups: [] 8+
            group_id: string
            member_id: string? 9+
            member_epoch: int32 9+
            topics: []?
                name: string 0-9
                topic_id: uuid 10+
                partitions: []int32
        require_stable: bool 7+
    """,
    response="""
        throttle_time_ms: int32 3+ = 0
        topics: [] 0-7
            name: string
            partitions: []
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32 5+
                metadata: string?
                error_code: int16
        error_code: int16 2-7
        groups: [] 8+
            group_id: string
            topics: []
                name: string 0-9
                topic_id: uuid 10+
                partitions: []
                    partition_index: int32
                    committed_offset: int64
                    committed_leader_epoch: int32
                    metadata: string?
                    error_code: int16
            error_code: int16
    """,
)  # fmt: skip

OFFSET_DELETE: Final = Api(
    47, "OffsetDelete", (0,), throttled_from=0, throttle_at=2,
    request="""
        group_id: string
        topics: []
            name: string
            partitions: []int32
    """,
    response="""
        error_code: int16
        throttle_time_ms: int32 = 0
        topics: []
            name: string
            partitions: []
                partition_index: int32
                error_code: int16
    """,
)  # fmt: skip

LIST_GROUPS: Final = Api(
    16, "ListGroups", (0, 1, 4, 5), 3, throttled_from=1,
    request="""
        states_filter: []string 4+
        types_filter: []string 5+
    """,
    response="""
        throttle_time_ms: int32 1+ = 0
        error_code: int16
        groups: []
            group_id: string
            protocol_type: string
            group_state: string 4+
            group_type: string 5+
    """,
)  # fmt: skip

DESCRIBE_GROUPS: Final = Api(
    15, "DescribeGroups", (0, 1, 3, 4, 5, 6), 5, throttled_from=1,
    request="""
        groups: []string
        include_authorized_operations: bool 3+ = false
    """,
    response="""
        throttle_time_ms: int32 1+ = 0
        groups: []
            error_code: int16
            error_message: string? 6+
            group_id: string
            group_state: string
            protocol_type: string
            protocol_data: string
            members: []
                member_id: string
                group_instance_id: string? 4+
                client_id: string
                client_host: string
                member_metadata: bytes
                member_assignment: bytes
            authorized_operations: int32 3+
    """,
)  # fmt: skip

CONSUMER_GROUP_DESCRIBE: Final = Api(
    69, "ConsumerGroupDescribe", (0, 1), 0, throttled_from=0,
    request="""
        group_ids: []string
        include_authorized_operations: bool = false
    """,
    response="""
        throttle_time_ms: int32 = 0
        groups: []
            error_code: int16
            error_message: string?
            group_id: string
            group_state: string
            group_epoch: int32
            assignment_epoch: int32
            assignor_name: string
            members: []
                member_id: string
                instance_id: string?
                rack_id: string?
                member_epoch: int32
                client_id: string
                client_host: string
                subscribed_topic_names: []string
                subscribed_topic_regex: string?
                assignment: {}
                    topic_partitions: []
                        topic_id: uuid
                        topic_name: string
                        partitions: []int32
                target_assignment: {}
                    topic_partitions: []
                        topic_id: uuid
                        topic_name: string
                        partitions: []int32
                member_type: int8 1+
            authorized_operations: int32
    """,
)  # fmt: skip

DELETE_GROUPS: Final = Api(
    42, "DeleteGroups", (0,), 2, throttled_from=0,
    request="""
        groups_names: []string
    """,
    response="""
        throttle_time_ms: int32 = 0
        results: []
            group_id: string
            error_code: int16
    """,
)  # fmt: skip
