"""The APIs that embedded brokers of Kafka 0.9 and later serve. Another one is a `ServedApi` and a line here."""

from __future__ import annotations

from typing import Final

from zkconsumer.testing.embedded.kafka011 import (
    access_list_requests,
    config_requests,
    controller_requests,
    fetch,
    member_requests,
    offset_requests,
    produce,
    topic_requests,
)
from zkconsumer.testing.embedded.kafka011.api import AnyApi

SERVED: Final[dict[int, AnyApi]] = {
    each.api.key: each
    for each in (
        produce.API,
        fetch.API,
        topic_requests.LIST_OFFSETS,
        topic_requests.METADATA,
        offset_requests.OFFSET_COMMIT,
        offset_requests.OFFSET_FETCH,
        member_requests.FIND_COORDINATOR,
        member_requests.JOIN_GROUP,
        member_requests.HEARTBEAT,
        member_requests.LEAVE_GROUP,
        member_requests.SYNC_GROUP,
        member_requests.DESCRIBE_GROUPS,
        member_requests.LIST_GROUPS,
        member_requests.DELETE_GROUPS,
        topic_requests.API_VERSIONS,
        controller_requests.CREATE_TOPICS,
        controller_requests.DELETE_TOPICS,
        topic_requests.DELETE_RECORDS,
        produce.INIT_PRODUCER_ID,
        topic_requests.OFFSET_FOR_LEADER_EPOCH,
        produce.ADD_PARTITIONS_TO_TXN,
        produce.END_TXN,
        access_list_requests.DESCRIBE_ACLS,
        access_list_requests.CREATE_ACLS,
        access_list_requests.DELETE_ACLS,
        config_requests.DESCRIBE_CONFIGS,
        config_requests.ALTER_CONFIGS,
        controller_requests.CREATE_PARTITIONS,
        config_requests.INCREMENTAL_ALTER_CONFIGS,
        topic_requests.DESCRIBE_PRODUCERS,
    )
}
"""By key."""
