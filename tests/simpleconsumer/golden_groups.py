"""The recorded frames of tests/golden/apis that are about members of groups: how they are asked for again."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.messages import apis
from simpleconsumer.types import GenerationMember, JoiningMember, LeavingMember, OffsetAndMetadata, TopicPartition

SUBSCRIPTION = bytes.fromhex("0000 00000001 0006") + b"g-apis" + bytes.fromhex("ffffffff")
ASSIGNMENT = SUBSCRIPTION[:-4] + bytes.fromhex("00000002 00000000 00000001 ffffffff")
ZERO, ONE, MISSING = (TopicPartition("g-apis", number) for number in (0, 1, 7))
APIS = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit-member", "OffsetFetch-member", "OffsetFetch-all",
    "ListGroups", "DescribeGroups", "OffsetDelete", "ConsumerGroupDescribe",
)  # fmt: skip
_OF_GROUPS: Mapping[str, AnyRequest[Any]] = {
    "ListGroups": KAFKA011.list_groups(),
    "ListGroups-stable": KAFKA011.list_groups(["Stable"]),
    "ListGroups-types": KAFKA011.list_groups(),
    "DescribeGroups": KAFKA011.describe_groups(["g-described", "g-deleted"]),
    "DescribeGroups-unknown": KAFKA011.describe_groups(["g-none"]),
    "DescribeGroups-consumer": KAFKA011.describe_groups(["g-consumers"]),
    "OffsetDelete": KAFKA011.delete_offsets("g-deleted", [ZERO, ONE]),
    "OffsetDelete-subscribed": KAFKA011.delete_offsets("g-described", [ZERO]),
    "OffsetDelete-unknown": KAFKA011.delete_offsets("g-none", [ZERO]),
    "ConsumerGroupDescribe": KAFKA011.describe_consumer_groups(["g-consumers"]),
    "ConsumerGroupDescribe-unknown": KAFKA011.describe_consumer_groups(["g-none", "g-described"]),
}


def question(stem: str, version: int, body: bytes) -> AnyRequest[Any]:
    """Return what was asked; ids and generations, which differ from recording to recording, are read from it."""
    if stem in _OF_GROUPS:
        return _OF_GROUPS[stem]
    if stem.startswith("OffsetFetch") and version >= apis.OFFSET_FETCH.flexible_from:
        group, at = body[1 : body[0]].decode(), 0
    else:
        group, at = _string(body, 0)
    if stem.startswith("JoinGroup"):
        member_id, at = _string(body, at + (8 if version >= 1 else 4))
        instance_id = _string(body, at)[0] if version >= 5 else None
        protocols = [("range", SUBSCRIPTION), ("roundrobin", SUBSCRIPTION)]
        return KAFKA011.join_group(JoiningMember(group or "", member_id or "", instance_id), protocols, 10_000, 60_000)
    if stem.startswith("LeaveGroup"):
        return KAFKA011.leave_group(group or "", LeavingMember(_string(body, at + (4 if version >= 3 else 0))[0] or ""))
    if stem == "OffsetFetch-member":
        return KAFKA011.fetch_offsets(group or "", [ZERO, ONE])
    if stem == "OffsetFetch-all":
        return KAFKA011.fetch_all_offsets(group or "")
    (generation,) = struct.unpack_from(">i", body, at)
    member_id, at = _string(body, at + 4)
    member = GenerationMember(group or "", generation, member_id or "")
    if stem.startswith("Heartbeat"):
        return KAFKA011.heartbeat(member)
    if stem.startswith("SyncGroup"):
        return KAFKA011.sync_group(member, {} if stem.endswith("follower") else {member.member_id: ASSIGNMENT})
    epoch = 3 if version >= 6 else -1
    offsets = {ZERO: OffsetAndMetadata(1, "m", epoch), MISSING: OffsetAndMetadata(8, "m", epoch)}
    return KAFKA011.commit_offsets_as(member, offsets)


def _string(body: bytes, at: int) -> tuple[str | None, int]:
    (length,) = struct.unpack_from(">h", body, at)
    return (None, at + 2) if length < 0 else (body[at + 2 : at + 2 + length].decode(), at + 2 + length)
