"""The APIs that embedded brokers of Kafka 0.9 and later serve. Another one is a file and a line here."""

from __future__ import annotations

from typing import Final

from zkconsumer.testing.embedded.kafka011 import (
    add_partitions_to_txn,
    api_versions,
    delete_groups,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from zkconsumer.testing.embedded.kafka011.api import AnyApi

__all__ = ["SERVED"]

SERVED: Final[dict[int, AnyApi]] = {
    each.api.key: each
    for each in (
        produce.API,
        fetch.API,
        list_offsets.API,
        metadata.API,
        offset_commit.API,
        offset_fetch.API,
        find_coordinator.API,
        join_group.API,
        heartbeat.API,
        leave_group.API,
        sync_group.API,
        describe_groups.API,
        list_groups.API,
        delete_groups.API,
        api_versions.API,
        init_producer_id.API,
        offset_for_leader_epoch.API,
        add_partitions_to_txn.API,
        end_txn.API,
    )
}
"""By key."""
