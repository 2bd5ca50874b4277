"""Deletes groups that brokers coordinate.

Rules, and which failure each prevents:
- A group with members is never deleted. The coordinator refuses that, too, so nobody can join in between.
- All groups are checked before the first one is deleted.
- Brokers before Kafka 1.1 have no request for it. There -1 is stored for each offset, which every member takes for
  none; it expires as any offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.errors import BrokerError
from zkconsumer.admin.errors import GroupHasMembers, GroupNotDeleted
from zkconsumer.admin.groups.broker_group_report import BrokerGroupState
from zkconsumer.admin.groups.coordinated_groups import CoordinatedGroup, shown_members
from zkconsumer.admin.groups.group_coordinators import NOT_AUTHORIZED, GroupCoordinators, check_code
from zkconsumer.admin.groups.group_deletion import DeletedGroup, DeletedGroups
from zkconsumer.admin.phrases import count_of
from zkconsumer_error import ErrorCode

__all__ = ["check_without_members", "delete_broker_groups"]



def check_without_members(group: CoordinatedGroup, what: str) -> None:
    """Raise if a group has members, or may have some.

    Args:
        what: What is not done then, such as `group 'billing' is not deleted`.

    Raises:
        GroupHasMembers: Names them.
    """
    if group.members:
        verb = "is" if len(group.members) == 1 else "are"
        raise GroupHasMembers(
            f"{what}: {count_of(len(group.members), 'member')} {verb} in it ({shown_members(group.members)}), and its "
            f"state is {group.state}", "stop them first; the broker does not delete a group that has members"
        )  # fmt: skip


def delete_broker_groups(
    coordinators: GroupCoordinators, states: Sequence[BrokerGroupState], *, dry_run: bool
) -> DeletedGroups:
    """Delete groups that have no members.

    Raises:
        GroupHasMembers: Members are in one of them.
        GroupNotDeleted: A coordinator has not deleted one; says which are deleted.
    """
    for state in states:
        check_without_members(state.group, f"group {state.group.group!r} is not deleted")
    rows: list[DeletedGroup] = []
    for state in states:
        expires = False
        if not dry_run:
            expires = _delete(coordinators, state, [row.group for row in rows])
        rows.append(DeletedGroup(state.group.group, 0, 0, len(state.offsets), expires))
    return DeletedGroups(tuple(rows), not dry_run)


def _delete(coordinators: GroupCoordinators, state: BrokerGroupState, done: Sequence[str]) -> bool:
    """Delete one group; return whether its offsets stay until they expire."""
    group = state.group.group
    before = f"; deleted before: {', '.join(done)}" if done else ""
    code = coordinators.delete_group(group)
    if code is None:
        _, codes = coordinators.delete_offsets(group, list(state.offsets))
        code = next((each for each in codes.values() if each), 0)
        if not code:
            return True
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
        raise GroupHasMembers(f"group {group!r} is not deleted: a member has joined it in the meantime{before}",
                              "stop its members first")  # fmt: skip
    if code not in (
        0,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ):  # it was there a moment ago: an answer was lost, or somebody else has deleted it
        if code in NOT_AUTHORIZED:
            check_code(code, group)
        raise GroupNotDeleted(f"group {group!r} is not deleted: {BrokerError(code, None, None)}{before}")
    return False
