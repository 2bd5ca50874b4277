"""The APIs of brokers and topics: what a broker serves, leaders, ends of logs, and settings of topics.

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
    """,
)  # fmt: skip
