"""The APIs that the package speaks, by name and by number.

A client speaks the versions that bring it something new.

Source: clients/src/main/resources/common/message (Kafka 0.10.0 to 4.3).

The APIs of authentication. After SaslHandshake 0 tokens follow in frames of their own, after 1 in SaslAuthenticate.

Source: clients/src/main/resources/common/message (Kafka 4.3).

The APIs of producers with an id, and of their transactions.

Source: clients/src/main/resources/common/message (Kafka 4.3).

The APIs of access lists: 0 has literal names alone, 1 has prefixes, 3 has rules about users.

Source: clients/src/main/resources/common/message (Kafka 4.3).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.messages.api import Api
from simpleconsumer.messages.groups import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from simpleconsumer.messages.topics import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)

__all__ = [
    "ADD_PARTITIONS_TO_TXN", "ALTER_CONFIGS", "APIS", "API_VERSIONS", "CONSUMER_GROUP_DESCRIBE", "CREATE_ACLS",
    "CREATE_PARTITIONS", "CREATE_TOPICS", "DELETE_ACLS", "DELETE_GROUPS", "DELETE_RECORDS", "DELETE_TOPICS",
    "DESCRIBE_ACLS", "DESCRIBE_CONFIGS", "DESCRIBE_GROUPS", "DESCRIBE_PRODUCERS", "END_TXN", "FETCH",
    "FIND_COORDINATOR", "HEARTBEAT", "INCREMENTAL_ALTER_CONFIGS", "INIT_PRODUCER_ID", "JOIN_GROUP", "LEAVE_GROUP",
    "LIST_GROUPS", "LIST_OFFSETS", "METADATA", "OFFSET_COMMIT", "OFFSET_DELETE", "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH", "PRODUCE", "SASL_AUTHENTICATE", "SASL_HANDSHAKE", "SYNC_GROUP",
]  # fmt: skip

SASL_HANDSHAKE: Final = Api(
    17, "SaslHandshake", (0, 1),
    request="""
        mechanism: string
    """,
    response="""
        error_code: int16
        mechanisms: []string
    """,
)  # fmt: skip
SASL_AUTHENTICATE: Final = Api(
    36, "SaslAuthenticate", (0, 1), 2,
    request="""
        auth_bytes: bytes
    """,
    response="""
        error_code: int16
        error_message: string?
        auth_bytes: bytes?
        session_lifetime_ms: int64 1+
    """,
)  # fmt: skip


INIT_PRODUCER_ID: Final = Api(
    22, "InitProducerId", (0, 1, 3, 4), 2, throttled_from=0,
    request="""
        transactional_id: string?
        transaction_timeout_ms: int32
        producer_id: int64 3+
        producer_epoch: int16 3+
    """,
    response="""
        throttle_time_ms: int32 = 0
        error_code: int16
        producer_id: int64
        producer_epoch: int16
    """,
)  # fmt: skip
ADD_PARTITIONS_TO_TXN: Final = Api(
    24, "AddPartitionsToTxn", (0, 1), 3, throttled_from=0,
    request="""
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        topics: []
            name: string
            partitions: []int32
    """,
    response="""
        throttle_time_ms: int32 = 0
        topics: []
            name: string
            partitions: []
                partition_index: int32
                error_code: int16
    """,
)  # fmt: skip
END_TXN: Final = Api(
    26, "EndTxn", (0, 1), 3, throttled_from=0,
    request="""
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        committed: bool
    """,
    response="""
        throttle_time_ms: int32 = 0
        error_code: int16
    """,
)  # fmt: skip

DESCRIBE_ACLS: Final = Api(
    29, "DescribeAcls", (0, 1, 2, 3), 2, throttled_from=0,
    request="""
        resource_type_filter: int8
        resource_name_filter: string?
        pattern_type_filter: int8 1+
        principal_filter: string?
        host_filter: string?
        operation: int8
        permission_type: int8
    """,
    response="""
        throttle_time_ms: int32 = 0
        error_code: int16
        error_message: string?
        resources: []
            resource_type: int8
            resource_name: string
            pattern_type: int8 1+
            acls: []
                principal: string
                host: string
                operation: int8
                permission_type: int8
    """,
)  # fmt: skip
CREATE_ACLS: Final = Api(
    30, "CreateAcls", (0, 1, 2, 3), 2, throttled_from=0,
    request="""
        creations: []
            resource_type: int8
            resource_name: string
            resource_pattern_type: int8 1+
            principal: string
            host: string
            operation: int8
            permission_type: int8
    """,
    response="""
        throttle_time_ms: int32 = 0
        results: []
            error_code: int16
            error_message: string?
    """,
)  # fmt: skip
DELETE_ACLS: Final = Api(
    31, "DeleteAcls", (0, 1, 2, 3), 2, throttled_from=0,
    request="""
        filters: []
            resource_type_filter: int8
            resource_name_filter: string?
            pattern_type_filter: int8 1+
            principal_filter: string?
            host_filter: string?
            operation: int8
            permission_type: int8
    """,
    response="""
        throttle_time_ms: int32 = 0
        filter_results: []
            error_code: int16
            error_message: string?
            matching_acls: []
                error_code: int16
                error_message: string?
                resource_type: int8
                resource_name: string
                pattern_type: int8 1+
                principal: string
                host: string
                operation: int8
                permission_type: int8
    """,
)  # fmt: skip


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT,
        LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS,
        DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, ADD_PARTITIONS_TO_TXN, END_TXN,
        DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS, ALTER_CONFIGS, SASL_AUTHENTICATE,
        CREATE_PARTITIONS, DELETE_GROUPS,
        INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE, DESCRIBE_PRODUCERS, CONSUMER_GROUP_DESCRIBE,
    )
}  # fmt: skip
"""By key."""
