"""Inspects and changes consumer groups: members, owners, stored offsets, claims; described in docs/ADMIN.md."""

from zkconsumer.admin.admin import Admin, GroupOffsets
from zkconsumer.admin.errors import (
    AdminError,
    ClaimNotReleased,
    GroupHasMembers,
    NotFound,
    OffsetsNotSet,
    RebalanceNotTriggered,
)
from zkconsumer.admin.findings import Finding, Verification
from zkconsumer.admin.group_report import GroupReport, MemberRow, PartitionRow
from zkconsumer.admin.offset_changes import OffsetChange, OffsetChanges
from zkconsumer.admin.stored_offsets import ExportedOffsets
from zkconsumer.admin.topic_report import TopicPartitionRow, TopicReport
from zkconsumer.admin.values import GroupList, GroupRow, Released

__all__ = [
    "Admin",
    "AdminError",
    "ClaimNotReleased",
    "ExportedOffsets",
    "Finding",
    "GroupHasMembers",
    "GroupList",
    "GroupOffsets",
    "GroupReport",
    "GroupRow",
    "MemberRow",
    "NotFound",
    "OffsetChange",
    "OffsetChanges",
    "OffsetsNotSet",
    "PartitionRow",
    "RebalanceNotTriggered",
    "Released",
    "TopicPartitionRow",
    "TopicReport",
    "Verification",
]
