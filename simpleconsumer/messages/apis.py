"""The APIs that the package speaks, by name and by number.

A client speaks the versions that bring it something new.

Source: clients/src/main/resources/common/message (Kafka 0.10.0 to 4.3).
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
from simpleconsumer.messages.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from simpleconsumer.messages.topics import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from simpleconsumer.messages.transactions import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID

__all__ = [
    "ADD_PARTITIONS_TO_TXN", "APIS", "API_VERSIONS", "CONSUMER_GROUP_DESCRIBE", "DELETE_GROUPS",
    "DESCRIBE_CONFIGS", "DESCRIBE_GROUPS", "END_TXN", "FETCH", "FIND_COORDINATOR", "HEARTBEAT",
    "INIT_PRODUCER_ID", "JOIN_GROUP", "LEAVE_GROUP", "LIST_GROUPS", "LIST_OFFSETS", "METADATA", "OFFSET_COMMIT",
    "OFFSET_DELETE", "OFFSET_FETCH", "OFFSET_FOR_LEADER_EPOCH", "PRODUCE", "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE", "SYNC_GROUP",
]  # fmt: skip

APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT,
        LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS,
        INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_CONFIGS,
        SASL_AUTHENTICATE, DELETE_GROUPS, OFFSET_DELETE, CONSUMER_GROUP_DESCRIBE,
    )
}  # fmt: skip
"""By key."""
