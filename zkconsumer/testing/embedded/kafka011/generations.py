"""How the generations of embedded brokers from 0.9 on differ: the versions that they list. Pure.

Source: the answers to ApiVersions of brokers of Kafka 0.10.2.2, 0.11.0.3, 1.1.1, 2.8.2, 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from simpleconsumer.kafka011.batch_head import MAGIC
from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.group_values import GroupRules
from zkconsumer.testing.embedded.kafka011.api import Habits
from zkconsumer.testing.embedded.kafka011.apis import SERVED
from zkconsumer_error import ErrorCode


class Generation(NamedTuple):
    """Brokers of one version of Kafka.

    Attributes:
        version: of Kafka.
        node_version: of their nodes in ZooKeeper; 0: there is no ZooKeeper.
        listed: the versions of each API, by its key.
        habits: how else they differ.
    """

    version: str
    node_version: int
    listed: Mapping[int, range]
    habits: Habits = Habits()

    @property
    def served(self) -> dict[int, range]:
        """The versions that an embedded broker lists: those of its version of Kafka that are served here."""
        common = {
            key: range(max(each.start, SERVED[key].versions.start), min(each.stop, SERVED[key].versions.stop))
            for key, each in self.listed.items()
            if key in SERVED
        }
        return {key: each for key, each in common.items() if each}


_NONE: Final = -1
_LATER: Final = (_NONE,) * 4
"""What brokers before 0.11 do not have: producer ids, leader epochs, transactions."""


def _up_to(*newest: int) -> dict[int, range]:
    keys = (
        apis.PRODUCE, apis.FETCH, apis.LIST_OFFSETS, apis.METADATA, apis.OFFSET_COMMIT, apis.OFFSET_FETCH,
        apis.FIND_COORDINATOR, apis.API_VERSIONS, apis.INIT_PRODUCER_ID, apis.OFFSET_FOR_LEADER_EPOCH,
        apis.ADD_PARTITIONS_TO_TXN, apis.END_TXN, apis.DESCRIBE_GROUPS,
    )  # fmt: skip
    return {api.key: range(last + 1) for api, last in zip(keys, newest, strict=True) if last != _NONE}


def _of_members(*newest: int) -> dict[int, range]:
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DeleteGroups."""
    keys = apis.JOIN_GROUP, apis.SYNC_GROUP, apis.HEARTBEAT, apis.LEAVE_GROUP, apis.LIST_GROUPS, apis.DELETE_GROUPS
    return {api.key: range(last + 1) for api, last in zip(keys, newest, strict=True) if last != _NONE}


def _of_topics(*newest: int) -> dict[int, range]:
    keys = (
        apis.CREATE_TOPICS, apis.DELETE_TOPICS, apis.DELETE_RECORDS, apis.ALTER_CONFIGS, apis.CREATE_PARTITIONS,
        apis.INCREMENTAL_ALTER_CONFIGS, apis.DESCRIBE_PRODUCERS, apis.DESCRIBE_CONFIGS,
    )  # fmt: skip
    return {api.key: range(last + 1) for api, last in zip(keys, newest, strict=True) if last != _NONE}


def _of_acls(newest: int, oldest: int = 0) -> dict[int, range]:
    return {api.key: range(oldest, newest + 1) for api in (apis.DESCRIBE_ACLS, apis.CREATE_ACLS, apis.DELETE_ACLS)}


_NEWEST_OF_TOPICS: Final = _of_topics(7, 6, 2, 2, 3, 1, 0, 4)
_KAFKA_4: Final = (
    _up_to(13, 18, 11, 13, 10, 10, 6, 4, 5, 4, 5, 5, 6)
    | _of_members(9, 5, 4, 5, 5, 2)
    | _of_acls(3, 1)
    | {
        **_NEWEST_OF_TOPICS,
        apis.CREATE_TOPICS.key: range(2, 8),
        apis.DESCRIBE_CONFIGS.key: range(1, 5),
        apis.DELETE_TOPICS.key: range(1, 7),
        apis.PRODUCE.key: range(3, 14),
        apis.FETCH.key: range(4, 19),
        apis.LIST_OFFSETS.key: range(1, 12),
        apis.OFFSET_COMMIT.key: range(2, 11),
        apis.OFFSET_FETCH.key: range(1, 11),
        apis.OFFSET_FOR_LEADER_EPOCH.key: range(2, 5),
    }
)

_BEFORE_2: Final = GroupRules(
    renews_while_completing=False, ends_without_sync=False, looks_at_state_first=True, dead_code=25
)
_BEFORE_1: Final = replace(_BEFORE_2, takes_no_protocol_type=True, no_protocols_code=-1)
_AWAITING: Final = "AwaitingSync"

GENERATIONS: Final = {
    "0.9": Generation(
        "0.9.0.1", 2, _up_to(1, 1, 0, 0, 2, 1, 0, _NONE, *_LATER, 0) | _of_members(0, 0, 0, 0, 0, _NONE),
        Habits(log_magic=0, is_before_2=True, is_silent=True, offset_record=1, group_record=0,
               groups=replace(_BEFORE_1, keeps_empty_groups=False, beats_look_at_state_first=True),
               completing=_AWAITING),
    ),
    "0.10": Generation(
        "0.10.2.2", 4, _up_to(2, 3, 1, 2, 2, 2, 0, 0, *_LATER, 0) | _of_members(1, 0, 0, 0, 0, _NONE)
        | _of_topics(1, 0, *_LATER, _NONE, _NONE),
        Habits(log_magic=1, is_before_2=True, offset_record=1, group_record=1, groups=_BEFORE_1,
               completing=_AWAITING),
    ),
    "0.11": Generation(
        "0.11.0.3", 4, _up_to(3, 5, 2, 4, 3, 3, 1, 1, 0, 0, 0, 0, 1) | _of_members(2, 1, 1, 1, 1, _NONE)
        | _of_topics(2, 1, 0, 0, *_LATER[1:], 0) | _of_acls(0),
        Habits(is_before_2=True, drops_headers=False, offset_record=1, group_record=1, groups=_BEFORE_1,
               completing=_AWAITING, remembered_batches=1,
               unknown_producer_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ),
    "1.1": Generation(
        "1.1.1", 4, _up_to(5, 7, 2, 5, 3, 3, 1, 1, 0, 0, 0, 0, 1) | _of_members(2, 1, 1, 1, 1, 0)
        | _of_topics(2, 1, 0, 0, 0, _NONE, _NONE, 1) | _of_acls(0),
        Habits(is_before_2=True, checks_added_partitions=False, offset_record=1, group_record=1, groups=_BEFORE_2,
               unknown_producer_code=ErrorCode.UNKNOWN_PRODUCER_ID),
    ),
    "2.8": Generation(
        "2.8.2", 5, _up_to(9, 12, 6, 11, 8, 7, 3, 3, 4, 4, 3, 3, 5) | _of_members(7, 5, 4, 4, 4, 2)
        | _NEWEST_OF_TOPICS | _of_acls(2),
    ),
    "3.9": Generation(
        "3.9.2", 5, _up_to(11, 17, 9, 12, 9, 9, 6, 4, 5, 4, 5, 4, 5) | _of_members(9, 5, 4, 5, 5, 2)
        | _NEWEST_OF_TOPICS | _of_acls(3),
        Habits(is_since_3=True),
    ),
    "4.3": Generation(
        "4.3.1", 0, _KAFKA_4,
        Habits(is_since_3=True, forwards_changes=True, offset_record=4, groups=GroupRules(stores_new_groups=True)),
    ),
}  # fmt: skip
"""By the name under which a cluster is told its generation."""

WITH_RECORD_BATCHES: Final = tuple(name for name, each in GENERATIONS.items() if each.habits.log_magic == MAGIC)
