"""SyncGroup: the leader hands over the assignments of all members, and each of them gets its own.

Source: kafka.server.KafkaApis.handleSyncGroupRequest, SyncGroupRequest.json, SyncGroupResponse.json (0.9, 2.8, 4.3).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.groups.codes import COORDINATOR_LOADING, REBALANCING
from zkconsumer.testing.embedded.groups.values import Sync, Synced
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.member_requests import FIRST_WITH_INSTANCE, read_who, refuse_all, throttled
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_FIRST_WITH_TYPE: Final = 5


class SyncGroup(NamedTuple):
    """Group, and what a member has and wants."""

    group: str
    sync: Sync


def _read(reader: Reader, version: int) -> SyncGroup:
    def assignment() -> tuple[str, bytes]:
        found = reader.string(), bytes(reader.sized())
        reader.end()
        return found

    group, who = read_who(reader, has_instance=version >= FIRST_WITH_INSTANCE)
    has_type = version >= _FIRST_WITH_TYPE
    protocol_type, protocol = (reader.nullable_string(), reader.nullable_string()) if has_type else (None, None)
    assignments = dict(reader.nullable_array(assignment) or ())
    reader.end()
    return SyncGroup(group, Sync(who, assignments, protocol_type, protocol))


def _answer(asked: Asked[SyncGroup]) -> list[Part]:
    group, sync = asked.body
    try:
        refuse_all(asked)
        synced = asked.host.groups.sync(group, sync)
    except Refusal as refusal:
        is_loading = refusal.code == COORDINATOR_LOADING and not asked.host.habits.is_before_2
        synced = Synced(REBALANCING if is_loading else refusal.code)
    encoding = asked.encoding(apis.SYNC_GROUP)
    head = throttled(asked) + pack(">h", synced.code)
    if asked.version >= _FIRST_WITH_TYPE:
        head += encoding.string(synced.protocol_type) + encoding.string(synced.protocol)
    return [head + encoding.sized(synced.assignment) + encoding.end]


API: Final = ServedApi(apis.SYNC_GROUP, "sync_group", range(6), _read, _answer)
