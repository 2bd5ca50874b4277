"""Which members may join a group, and which assignor all of them know. Pure.

Source: kafka.coordinator.group.GroupCoordinator.handleJoinGroup, GroupMetadata.supportsProtocols (2.8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from zkconsumer.testing.embedded.groups.values import GroupRules, GroupState, Join, Member, Sync
from zkconsumer_error import ErrorCode


def join_refusal(
    rules: GroupRules, asked: Join, state: GroupState, protocol_type: str, members: Mapping[str, Member]
) -> int:
    """Return why a request to join is refused, whoever it is from; 0 if it is not.

    Args:
        state: Of the group.
        protocol_type: Of its members.
    """
    if not rules.min_session_s <= asked.session_s <= rules.max_session_s:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if state is GroupState.DEAD and rules.keeps_empty_groups:
        return rules.dead_code
    if rules.max_size is not None and len(members) >= rules.max_size and asked.member_id not in members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not asked.protocols:
        return rules.no_protocols_code
    if not members:
        return 0 if asked.protocol_type or rules.takes_no_protocol_type else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # What the member itself has said before counts, too.
    common = set(asked.protocols).intersection(*(each.protocols for each in members.values()))
    return 0 if common and asked.protocol_type == protocol_type else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def is_of_other_protocol(asked: Sync, protocol_type: str, protocol: str) -> bool:
    """Return whether a member that asks for its assignment takes its group for another one."""
    kinds = (asked.protocol_type, protocol_type), (asked.protocol, protocol)
    return any(known is not None and known != true for known, true in kinds)


def chosen_protocol(members: Iterable[Member]) -> str:
    """Return the assignor that most members prefer among those that all of them know."""
    listed = list(members)
    common = set(listed[0].protocols).intersection(*(each.protocols for each in listed))
    votes = Counter(next(name for name in each.protocols if name in common) for each in listed)
    return votes.most_common(1)[0][0]
