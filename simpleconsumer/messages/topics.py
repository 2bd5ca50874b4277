"""The APIs of brokers and topics: served versions, leaders, ends of logs, and how topics are changed.

Kafka 4 serves no Produce before 3, Fetch before 4, ListOffsets 0, OffsetForLeaderEpoch 0 and 1 (KIP-896).

Source: clients/src/main/resources/common/message (Kafka 4.3).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.messages.api import Api

PRODUCE: Final = Api(0, "Produce", (2, 3, 5, 7, 8), 9, throttled_from=1, throttle_at=-4)
FETCH: Final = Api(1, "Fetch", (2, 3, 4, 5, 7, 9, 10, 11), 12, throttled_from=1)

LIST_OFFSETS: Final = Api(
    2, "ListOffsets", (0, 1, 2, 4, 5), 6, throttled_from=2,
    request="""
        replica_id: int32 = -1
        isolation_level: int8 2+
        topics: []
            name: string
            partitions: []
                partition_index: int32
                current_leader_epoch: int32 4+ = -1
                timestamp: int64
                max_num_offsets: int32 0-0
    """,
    response="""
        throttle_time_ms: int32 2+ = 0
        topics: []
            name: string
            partitions: []
                partition_index: int32
                error_code: int16
                old_style_offsets: []int64 0-0
                timestamp: int64 1+
                offset: int64 1+
                leader_epoch: int32 4+
    """,
)  # fmt: skip

METADATA: Final = Api(
    3, "Metadata", (1, 2, 4, 5, 7, 10, 11, 12), 9, throttled_from=3,
    request="""
        topics: []?1
            topic_id: uuid 10+ = null
            name: string?10
        allow_auto_topic_creation: bool 4+
        include_cluster_authorized_operations: bool 8-10 = false
        include_topic_authorized_operations: bool 8+ = false
    """,
    response="""
        throttle_time_ms: int32 3+ = 0
        brokers: []
            node_id: int32
            host: string
            port: int32
            rack: string? 1+ = null
        cluster_id: string? 2+
        controller_id: int32 1+
        topics: []
            error_code: int16
            name: string?12
            topic_id: uuid 10+
            is_internal: bool 1+
            partitions: []
                error_code: int16
                partition_index: int32
                leader_id: int32
                leader_epoch: int32 7+
                replica_nodes: []int32
                isr_nodes: []int32
                offline_replicas: []int32 5+
            topic_authorized_operations: int32 8+
        cluster_authorized_operations: int32 8-10
    """,
)  # fmt: skip

API_VERSIONS: Final = Api(
    18, "ApiVersions", (0,), 3,  # a broker is sure to answer version 0 alone, and its answer has the old header
    request="""
        client_software_name: string 3+
        client_software_version: string 3+
    """,
    response="""
        error_code: int16
        api_keys: []
            api_key: int16
            min_version: int16
            max_version: int16
        throttle_time_ms: int32 1+ = 0
    """,
)  # fmt: skip

OFFSET_FOR_LEADER_EPOCH: Final = Api(
    23, "OffsetForLeaderEpoch", (0, 1, 2, 3), 4, throttled_from=2,
    request="""
        replica_id: int32 3+ = -1
        topics: []
            name: string
            partitions: []
                partition_index: int32
                current_leader_epoch: int32 2+
                leader_epoch: int32
    """,
    response="""
        throttle_time_ms: int32 2+ = 0
        topics: []
            name: string
            partitions: []
                error_code: int16
                partition_index: int32
                leader_epoch: int32 1+
                end_offset: int64
    """,
)  # fmt: skip

DESCRIBE_CONFIGS: Final = Api(
    32, "DescribeConfigs", (0, 1), 4, throttled_from=0,
    request="""
        resources: []
            resource_type: int8
            resource_name: string
            configuration_keys: []string?
        include_synonyms: bool 1+ = false
        include_documentation: bool 3+ = false
    """,
    response="""
        throttle_time_ms: int32 = 0
        results: []
            error_code: int16
            error_message: string?
            resource_type: int8
            resource_name: string
            configs: []
                name: string
                value: string?
                read_only: bool
                is_default: bool 0-0
                config_source: int8 1+
                is_sensitive: bool
                synonyms: [] 1+
                    name: string
                    value: string?
                    source: int8
                config_type: int8 3+
                documentation: string? 3+
    """,
)  # fmt: skip

CREATE_TOPICS: Final = Api(
    19, "CreateTopics", (0, 1, 4), 5, throttled_from=2,
    request="""
        topics: []
            name: string
            num_partitions: int32
            replication_factor: int16
            assignments: []
                partition_index: int32
                broker_ids: []int32
            configs: []
                name: string
                value: string?
        timeout_ms: int32
        validate_only: bool 1+
    """,
    response="""
        throttle_time_ms: int32 2+ = 0
        topics: []
            name: string
            topic_id: uuid 7+
            error_code: int16
            error_message: string? 1+
            num_partitions: int32 5+ = -1
            replication_factor: int16 5+ = -1
            configs: []?5 5+ = null
                name: string
                value: string?
                read_only: bool
                config_source: int8
                is_sensitive: bool
    """,
)  # fmt: skip

DELETE_TOPICS: Final = Api(
    20, "DeleteTopics", (0, 1, 3, 5), 4, throttled_from=1,
    request="""
        topics: [] 6+
            name: string?
            topic_id: uuid
        topic_names: []string 0-5
        timeout_ms: int32
    """,
    response="""
        throttle_time_ms: int32 1+ = 0
        responses: []
            name: string?6
            topic_id: uuid 6+
            error_code: int16
            error_message: string? 5+ = null
    """,
)  # fmt: skip

DELETE_RECORDS: Final = Api(
    21, "DeleteRecords", (0,), 2, throttled_from=0,
    request="""
        topics: []
            name: string
            partitions: []
                partition_index: int32
                offset: int64
        timeout_ms: int32
    """,
    response="""
        throttle_time_ms: int32 = 0
        topics: []
            name: string
            partitions: []
                partition_index: int32
                low_watermark: int64
                error_code: int16
    """,
)  # fmt: skip

_CHANGED_CONFIGS: Final = """
    throttle_time_ms: int32 = 0
    responses: []
        error_code: int16
        error_message: string?
        resource_type: int8
        resource_name: string
"""
"""The answer to both requests that change settings."""

ALTER_CONFIGS: Final = Api(
    33, "AlterConfigs", (0,), 2, throttled_from=0,
    request="""
        resources: []
            resource_type: int8
            resource_name: string
            configs: []
                name: string
                value: string?
        validate_only: bool
    """,
    response=_CHANGED_CONFIGS,
)  # fmt: skip

CREATE_PARTITIONS: Final = Api(
    37, "CreatePartitions", (0,), 2, throttled_from=0,
    request="""
        topics: []
            name: string
            count: int32
            assignments: []?
                broker_ids: []int32
        timeout_ms: int32
        validate_only: bool
    """,
    response="""
        throttle_time_ms: int32 = 0
        results: []
            name: string
            error_code: int16
            error_message: string? = null
    """,
)  # fmt: skip

INCREMENTAL_ALTER_CONFIGS: Final = Api(
    44, "IncrementalAlterConfigs", (0,), 1, throttled_from=0,
    request="""
        resources: []
            resource_type: int8
            resource_name: string
            configs: []
                name: string
                config_operation: int8
                value: string?
        validate_only: bool
    """,
    response=_CHANGED_CONFIGS,
)  # fmt: skip

DESCRIBE_PRODUCERS: Final = Api(
    61, "DescribeProducers", (0,), 0, throttled_from=0,
    request="""
        topics: []
            name: string
            partition_indexes: []int32
    """,
    response="""
        throttle_time_ms: int32 = 0
        topics: []
            name: string
            partitions: []
                partition_index: int32
                error_code: int16
                error_message: string?
                active_producers: []
                    producer_id: int64
                    producer_epoch: int32
                    last_sequence: int32
                    last_timestamp: int64
                    coordinator_epoch: int32
                    current_txn_start_offset: int64
    """,
)  # fmt: skip
