"""Inspects and changes consumer groups, topics and access lists; described in docs/ADMIN.md."""

from simpleconsumer.access_lists import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from zkconsumer.admin.acl_plans import AclChange, AclPlan, AclReport, AclsUnfinished, FilteredAcls
from zkconsumer.admin.admin import Admin, GroupOffsets
from zkconsumer.admin.broker_groups import BrokerAdmin, BrokerGroups
from zkconsumer.admin.groups.broker_group_report import BrokerGroupReport, BrokerMemberRow, BrokerPartitionRow
from zkconsumer.admin.groups.group_deletion import DeletedGroup, DeletedGroups
from zkconsumer.admin.groups.group_report import STRATEGIES, GroupReport, MemberRow, PartitionRow
from zkconsumer.admin.lag_administration import LagReader
from zkconsumer.admin.lag_monitor import LagMonitor
from zkconsumer.admin.lag_report import GroupLag, LagChoice, LagReport, TopicLag
from zkconsumer.admin.offsets.broker_group_offsets import BrokerOffsets
from zkconsumer.admin.offsets.offset_changes import OffsetChange, OffsetChanges
from zkconsumer.admin.offsets.stored_offsets import ExportedOffsets
from zkconsumer.admin.topics.record_deletion import CutPartition, TopicCut
from zkconsumer.admin.topics.setting_changes import SettingChange, TopicSettings
from zkconsumer.admin.topics.topic_changes import AssignedPartition, TopicChange
from zkconsumer.admin.topics.topic_producers import ProducerRow, TopicProducers
from zkconsumer.admin.topics.topic_report import TopicPartitionRow, TopicReport
from zkconsumer.admin.values import (
    AclsNotAuthorized,
    AclsRefused,
    AdminError,
    ClaimNotReleased,
    ControllerUnavailable,
    CoordinatorUnavailable,
    GroupHasMembers,
    GroupList,
    GroupNotAuthorized,
    GroupNotDeleted,
    GroupRow,
    NotFound,
    OffsetsNotSet,
    RebalanceNotTriggered,
    Released,
    TopicNotAuthorized,
    TopicRefused,
    TopicUnfinished,
)
from zkconsumer.admin.verify.findings import Finding, Verification

__all__ = [
    "STRATEGIES",
    "Acl",
    "AclChange",
    "AclFilter",
    "AclReport",
    "AclOperation",
    "AclPermission",
    "AclPlan",
    "AclsNotAuthorized",
    "AclsRefused",
    "AclsUnfinished",
    "Admin",
    "AdminError",
    "AssignedPartition",
    "BrokerAdmin",
    "BrokerGroupReport",
    "BrokerGroups",
    "BrokerMemberRow",
    "BrokerOffsets",
    "BrokerPartitionRow",
    "ClaimNotReleased",
    "ControllerUnavailable",
    "CoordinatorUnavailable",
    "CutPartition",
    "DeletedGroup",
    "DeletedGroups",
    "ExportedOffsets",
    "FilteredAcls",
    "Finding",
    "GroupHasMembers",
    "GroupLag",
    "GroupList",
    "GroupNotAuthorized",
    "GroupNotDeleted",
    "GroupOffsets",
    "GroupReport",
    "GroupRow",
    "LagChoice",
    "LagMonitor",
    "LagReader",
    "LagReport",
    "MemberRow",
    "NotFound",
    "OffsetChange",
    "OffsetChanges",
    "OffsetsNotSet",
    "PartitionRow",
    "PatternType",
    "ProducerRow",
    "RebalanceNotTriggered",
    "Released",
    "ResourceType",
    "SettingChange",
    "TopicChange",
    "TopicCut",
    "TopicLag",
    "TopicNotAuthorized",
    "TopicPartitionRow",
    "TopicRefused",
    "TopicProducers",
    "TopicReport",
    "TopicSettings",
    "TopicUnfinished",
    "Verification",
]
