"""One group as its coordinator sees it: five states, members with sessions, requests that wait for others. Pure.

It takes requests and the time, and returns the answers that follow, also to requests that have waited. Rules:
- A rebalance waits for every member that is known, no longer than the longest of their rebalance time-outs.
- The members of a rebalance that is over get one generation, and the leader the metadata of all of them.
- A request of a member that waits keeps its session; otherwise a session ends when nothing was heard for its time-out.
- What ends or leaves while others wait lets them go on: nobody waits for a member that is gone.

Source: kafka.coordinator.group.GroupCoordinator, GroupMetadata (2.8); `groups` of the reference for other versions.

Which members may join a group, and which assignor all of them know.

Source: kafka.coordinator.group.GroupCoordinator.handleJoinGroup, GroupMetadata.supportsProtocols (2.8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from zkconsumer.testing.embedded.group_values import (
    GroupRules,
    GroupState,
    Join,
    Joined,
    JoinedMember,
    Member,
    Reply,
    Sync,
    Synced,
    Who,
)
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
    # The member's own earlier protocols count, too.
    common = set(asked.protocols).intersection(*(each.protocols for each in members.values()))
    return 0 if common and asked.protocol_type == protocol_type else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def is_of_other_protocol(asked: Sync, protocol_type: str, protocol: str) -> bool:
    """Return whether a member that asks for its assignment takes its group for another one."""
    kinds = (asked.protocol_type, protocol_type), (asked.protocol, protocol)
    return any(known is not None and known != true for known, true in kinds)


def chosen_protocol(members: Iterable[Member]) -> str:
    """Return the assignor that most members prefer among the ones that all of them know."""
    listed = list(members)
    common = set(listed[0].protocols).intersection(*(each.protocols for each in listed))
    votes = Counter(next(name for name in each.protocols if name in common) for each in listed)
    return votes.most_common(1)[0][0]


class Group:
    """One group.

    Args:
        rules: How the broker coordinates.
        new_id: Returns a part of a member id that no other member has.

    Attributes:
        state: Where it is.
        generation: The last one; 0 before the first.
        protocol: The assignor that was chosen; empty before.
        leader: Member id of the leader; empty without one.
        members: By id, in the order in which they came.
        protocol_type: Of which kind its members are; empty before the first.
        is_changed: Whether its record is to be written, before anything is answered; whoever writes it sets it back.
    """

    def __init__(self, rules: GroupRules, new_id: Callable[[], str]) -> None:
        self._rules = rules
        self._new_id = new_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.protocol_type = ""
        self.is_changed = False
        self._static: dict[str, str] = {}
        self._pending: dict[str, float] = {}
        self._join_until: float | None = None
        self._delayed_until: float | None = None
        self._sync_until: float | None = None
        self._now = 0.0

    def restore(self, generation: int, protocol: str, leader: str, members: Iterable[Member], now: float) -> None:
        """Be as a record says: stable with fresh sessions, or empty without members."""
        self._now = now
        self.generation, self.protocol, self.leader = generation, protocol, leader
        self.members = {each.member_id: each for each in members}
        self._static = {each.instance_id: name for name, each in self.members.items() if each.instance_id is not None}
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        for each in self.members.values():
            self._renew(each)

    def close(self, code: int) -> list[Reply]:
        """Be dead: all who wait are answered with a code."""
        self.state, waiting = GroupState.DEAD, list(self.members.values())
        self.members, self._static, self._pending = {}, {}, {}
        self._join_until = self._delayed_until = self._sync_until = None
        return [reply for each in waiting for reply in each.refuse(code)]

    def not_stored(self, now: float) -> list[Reply]:
        """Begin another rebalance: the assignments could not be written."""
        self._now = now
        return self._prepare()

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(self, asked: Join, request: object, now: float) -> list[Reply]:
        """Take a JoinGroup request; its answer may come with a later call.

        Args:
            request: Comes back with the answer.
        """
        self._now = now
        code = join_refusal(self._rules, asked, self.state, self.protocol_type, self.members)
        if code:
            return [Reply(request, Joined(code, member_id=asked.member_id))]
        if asked.instance_id is not None and asked.instance_id in self._static:
            return self._join_static(asked, request)
        if not asked.member_id:
            return self._join_new(asked, request)
        if asked.member_id in self._pending:
            del self._pending[asked.member_id]
            return self._add(asked, asked.member_id, request)
        member = self.members.get(asked.member_id)
        if member is None:
            return [Reply(request, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member_id=asked.member_id))]
        return self._join_again(member, asked, request)

    def sync(self, asked: Sync, request: object, now: float) -> list[Reply]:
        """Take a SyncGroup request; its answer may come with a later call."""
        self._now = now
        code = self._why_not(asked.who)
        if not code and is_of_other_protocol(asked, self.protocol_type, self.protocol):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not code and self.state is GroupState.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            return [Reply(request, Synced(code))]
        member = self.members[asked.who.member_id]
        self._renew(member)
        if self.state is GroupState.STABLE:
            return [Reply(request, self._synced(member))]
        replaced = self._take_sync(member)
        member.sync = request
        if member.member_id != self.leader:
            return replaced
        for each in self.members.values():
            each.assignment = asked.assignments.get(each.member_id, b"")
        self.state, self._sync_until, self.is_changed = GroupState.STABLE, None, True
        return [*replaced, *self._answer_syncs(0)]

    def heartbeat(self, who: Who, now: float) -> int:
        """Return the error code of a heartbeat."""
        self._now = now
        code = self._why_not(who)
        if code:
            is_moving = self.state in (GroupState.PREPARING, GroupState.COMPLETING)
            return ErrorCode.REBALANCE_IN_PROGRESS if is_moving and self._rules.beats_look_at_state_first else code
        if self.state is GroupState.COMPLETING and not self._rules.renews_while_completing:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._renew(self.members[who.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else 0

    def leave(self, member_id: str, instance_id: str | None, now: float) -> tuple[int, list[Reply]]:
        """Return the error code of a LeaveGroup, and the replies to the others."""
        self._now = now
        if member_id in self._pending:
            del self._pending[member_id]
            return 0, self._complete_if_all_are_there()
        if instance_id is not None:
            known = self._static.get(instance_id, "")
            if known and member_id not in ("", known):
                return ErrorCode.FENCED_INSTANCE_ID, []
            member_id = known
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        return 0, self._remove([member_id])

    def may_commit(self, who: Who, now: float) -> int:
        """Return the error code of an OffsetCommit; 0: its offsets are to be stored."""
        self._now = now
        if who.generation < 0 and not who.member_id:
            if self.state is GroupState.EMPTY:
                return 0
            is_too_early = self.state is GroupState.COMPLETING and self._rules.looks_at_state_first
            return ErrorCode.REBALANCE_IN_PROGRESS if is_too_early else ErrorCode.UNKNOWN_MEMBER_ID
        code = self._why_not(who)
        if code and not (self.state is GroupState.COMPLETING and self._rules.looks_at_state_first):
            return code
        if self.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._renew(self.members[who.member_id])
        return 0

    # -- time ----------------------------------------------------------------------------------------------------------

    def due_at(self) -> float | None:
        """Return when `tick` should be called next; None for never."""
        ends = [member.ends_at for member in self.members.values() if not member.waits]
        waits = [at for at in (self._join_until, self._delayed_until, self._sync_until) if at is not None]
        return min([*ends, *waits, *self._pending.values()], default=None)

    def tick(self, now: float) -> list[Reply]:
        """Return what follows from the time: sessions that end, and waits that are over."""
        self._now = now
        self._pending = {name: until for name, until in self._pending.items() if until > now}
        ended = [each.member_id for each in self.members.values() if not each.waits and each.ends_at <= now]
        replies = self._remove(ended) if ended else []
        if self._delayed_until is not None and self._delayed_until <= now:
            self._delayed_until = None
        if self.state is GroupState.PREPARING:
            if self._join_until is not None and self._join_until <= now:
                replies += self._complete()
            else:
                replies += self._complete_if_all_are_there()
        if self._sync_until is not None and self._sync_until <= now and self.state is GroupState.COMPLETING:
            late = [each.member_id for each in self.members.values() if each.sync is None]
            self._sync_until = None
            replies += self._remove(late)
        return replies

    # -- joining -------------------------------------------------------------------------------------------------------

    def _join_new(self, asked: Join, request: object) -> list[Reply]:
        member_id = f"{asked.instance_id or asked.client_id}-{self._new_id()}"
        if asked.names_members_first and asked.instance_id is None:
            self._pending[member_id] = self._now + asked.session_s
            return [Reply(request, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))]
        return self._add(asked, member_id, request)

    def _join_static(self, asked: Join, request: object) -> list[Reply]:
        """A static member is back: under a new id, and without a rebalance while the group is stable."""
        assert asked.instance_id is not None
        old_id = self._static[asked.instance_id]
        member = self.members[old_id]
        if asked.member_id and asked.member_id != old_id:
            return [Reply(request, Joined(ErrorCode.FENCED_INSTANCE_ID, member_id=asked.member_id))]
        if asked.member_id:
            return self._join_again(member, asked, request)
        fenced = member.refuse(ErrorCode.FENCED_INSTANCE_ID)
        member.member_id = f"{asked.instance_id}-{self._new_id()}"
        self.members = {each.member_id: each for each in self.members.values()}
        self._static[asked.instance_id] = member.member_id
        was_leader = self.leader == old_id
        if was_leader:
            self.leader = member.member_id
        is_equal = asked.protocols.get(self.protocol) == member.protocols.get(self.protocol)
        self._update(member, asked)
        if self.state is GroupState.STABLE and is_equal:
            self.is_changed = True
            answer = Joined(0, self.generation, self.protocol, self.leader, member.member_id)
            if was_leader and asked.leads_again:
                answer = self._joined(member)._replace(skips_assignment=True)
            elif was_leader:
                # Up to version 8 the leader of old comes back, and no list: nobody leads then.
                answer = answer._replace(leader=old_id)
            return [*fenced, Reply(request, answer)]
        member.join = request
        is_waited_for = self.state is GroupState.PREPARING
        return [*fenced, *(self._complete_if_all_are_there() if is_waited_for else self._prepare())]

    def _add(self, asked: Join, member_id: str, request: object) -> list[Reply]:
        was_empty = self.state is GroupState.EMPTY
        if not self.members:
            self.protocol_type = asked.protocol_type
        member = Member(member_id, asked.instance_id, asked.protocols, asked.session_s, asked.rebalance_s,
                        self._now + asked.session_s, join=request, client_id=asked.client_id,
                        host=asked.host)  # fmt: skip
        self.members[member_id] = member
        if asked.instance_id is not None:
            self._static[asked.instance_id] = member_id
        if not self.leader:
            self.leader = member_id
        if self.state is not GroupState.PREPARING:
            return self._prepare(is_first=was_empty)
        if self._delayed_until is not None:
            self._delayed_until = self._now + self._rules.initial_delay_s
        return self._complete_if_all_are_there()

    def _join_again(self, member: Member, asked: Join, request: object) -> list[Reply]:
        is_equal = dict(member.protocols) == dict(asked.protocols)
        self._update(member, asked)
        if self.state is GroupState.PREPARING:
            member.join = request  # an older one that waits is never answered: its connection is gone
            return self._complete_if_all_are_there()
        is_leader = member.member_id == self.leader
        if self.state is GroupState.COMPLETING and is_equal:
            return [Reply(request, self._joined(member))]
        if self.state is GroupState.STABLE and is_equal and not is_leader:
            return [Reply(request, self._joined(member)._replace(members=()))]
        member.join = request
        return self._prepare()

    def _update(self, member: Member, asked: Join) -> None:
        member.protocols, member.session_s, member.rebalance_s = asked.protocols, asked.session_s, asked.rebalance_s
        self._renew(member)

    # -- a rebalance ---------------------------------------------------------------------------------------------------

    def _prepare(self, *, is_first: bool = False) -> list[Reply]:
        """Begin a rebalance; those who wait for the leader's assignment have to join again."""
        replies = self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS) if self.state is GroupState.COMPLETING else []
        self.state, self._sync_until = GroupState.PREPARING, None
        longest_s = max((member.rebalance_s for member in self.members.values()), default=0.0)
        self._join_until = self._now + longest_s
        if is_first and self._rules.initial_delay_s > 0:
            self._delayed_until = self._now + min(self._rules.initial_delay_s, longest_s)
        return [*replies, *self._complete_if_all_are_there()]

    def _complete_if_all_are_there(self) -> list[Reply]:
        if self.state is not GroupState.PREPARING or self._pending or self._delayed_until is not None:
            return []
        if any(member.join is None for member in self.members.values()):
            return []
        return self._complete()

    def _complete(self) -> list[Reply]:
        """End a rebalance with those who are there; static members are kept until their sessions end."""
        absent = [each for each in self.members.values() if each.join is None and each.instance_id is None]
        for member in absent:
            del self.members[member.member_id]
        self._join_until = self._delayed_until = None
        self.generation += 1
        joined = [each for each in self.members.values() if each.join is not None]
        if not joined:
            if self.members:  # static ones alone: wait once more
                self._join_until = self._now + max(each.rebalance_s for each in self.members.values())
                self.generation -= 1
                return []
            self._become_empty()
            return []
        if self.leader not in {each.member_id for each in joined}:
            self.leader = joined[0].member_id
        self.protocol = chosen_protocol(self.members.values())
        self.state = GroupState.COMPLETING
        if self._rules.ends_without_sync:
            self._sync_until = self._now + max(each.rebalance_s for each in self.members.values())
        replies = []
        for member in joined:
            request, member.join = member.join, None
            self._renew(member)
            replies.append(Reply(request, self._joined(member)))
        return replies

    def _joined(self, member: Member) -> Joined:
        listed: tuple[JoinedMember, ...] = ()
        if member.member_id == self.leader:
            listed = tuple(
                JoinedMember(each.member_id, each.instance_id, each.protocols[self.protocol])
                for each in self.members.values()
            )
        return Joined(0, self.generation, self.protocol, self.leader, member.member_id, listed)

    def _answer_syncs(self, code: int) -> list[Reply]:
        replies = []
        for member in self.members.values():
            if member.sync is not None:
                request, member.sync = member.sync, None
                self._renew(member)
                replies.append(Reply(request, Synced(code) if code else self._synced(member)))
        return replies

    def _synced(self, member: Member) -> Synced:
        return Synced(0, member.assignment, self.protocol_type, self.protocol)

    def _take_sync(self, member: Member) -> list[Reply]:
        """A repeated request replaces the one that waits."""
        if member.sync is None:
            return []
        request, member.sync = member.sync, None
        return [Reply(request, Synced(ErrorCode.REBALANCE_IN_PROGRESS))]

    # -- members -------------------------------------------------------------------------------------------------------

    def _remove(self, member_ids: Iterable[str]) -> list[Reply]:
        replies: list[Reply] = []
        for member_id in member_ids:
            member = self.members.pop(member_id)
            if member.instance_id is not None:
                self._static.pop(member.instance_id, None)
            replies += member.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            if self.leader == member_id:
                self.leader = next(iter(self.members), "")
        if self.state is GroupState.PREPARING:
            return [*replies, *self._complete_if_all_are_there()]
        return [*replies, *self._prepare()]

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY if self._rules.keeps_empty_groups else GroupState.DEAD
        self.protocol = self.leader = ""
        self.is_changed = True

    def _renew(self, member: Member) -> None:
        member.ends_at = self._now + member.session_s

    def _why_not(self, who: Who) -> int:
        """Return why a member may not do something; 0 if it may."""
        if who.instance_id is not None:
            known = self._static.get(who.instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != who.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if who.member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if who.generation == self.generation else ErrorCode.ILLEGAL_GENERATION
