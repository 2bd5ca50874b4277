"""Bugs to plant in the production code, one method each, to see whether the simulation finds them.

Each is one that was made, or could be made: the comments of the code and docs/REBALANCE.md say what prevents it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rebalance import partition as p
from rebalance.known_topics import KnownTopics
from rebalance.lease import LEASE_FRACTION, Lease
from rebalance.member_partitions import MemberPartition, MemberPartitions
from rebalance.subscription import Partition
from rebalance.zookeeper import events as e
from rebalance.zookeeper import group_reader, roundrobin_order, znodes
from rebalance.zookeeper import machine as m
from rebalance.zookeeper.claims import Claims, Fence
from rebalance.zookeeper.coordinator import Coordinator
from rebalance.zookeeper.group_reader import GroupReader
from rebalance.zookeeper.pending_claims import PendingClaims
from rebalance.zookeeper.port.requests import Check, Delete, GetChildren, Multi, Reply, SetData
from rebalance.zookeeper.refused_nodes import RefusedNodes
from rebalance.zookeeper.roundrobin_order import RoundrobinOrder
from rebalance.zookeeper.session import SessionKeeper
from rebalance.zookeeper.snapshot import GroupSnapshot
from simpleconsumer.kafka08 import message_set
from simpleconsumer.types import TopicPartition
from tests.simulator import member as member_module
from zkconsumer.fetching.partition_queue import PartitionQueue
from zkconsumer.member.leaving import LeaveTimes
from zkconsumer.member.listening import ListenerThread
from zkconsumer.offsets import commit_batch, two_stores
from zkconsumer.offsets.commits import Commits
from zkconsumer.offsets.kafka_offsets import KafkaOffsets
from zkconsumer.offsets.member_offsets import KnownOffsets
from zkconsumer.offsets.offset_manager import OffsetAnswer
from zkconsumer.offsets.offset_records import OffsetRecord, WriteDecision, decide_write
from zkconsumer.offsets.two_stores import Intent, TwoStores


@dataclass(frozen=True)
class Bug:
    """One bug.

    Attributes:
        owner, name: what is replaced.
        make: from the right thing to the wrong one.
        profile, members, generation: the plans that find it soon.
    """

    owner: Any
    name: str
    make: Callable[[Any], Any]
    profile: str = "everything"
    members: str = "ours"
    generation: str = "0.8"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """With the bug in the code."""
        right = self.owner.__dict__[self.name]
        setattr(self.owner, self.name, self.make(right))
        try:
            yield
        finally:
            setattr(self.owner, self.name, right)


# -- claiming and taking ---------------------------------------------------------------------------------------------


class _Read:
    """An offset store that knows only what was read before."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def load(self, fence: Fence | None, partition: Partition, done: Callable[[int | None], None]) -> None:
        done(self._offset)

    def commit(self, fence: Fence | None, positions: Mapping[Partition, int], done: Callable[[Any], None]) -> None:
        done({})


def offset_before_claim(right: Any) -> Any:
    """Java's order: the old owner can still commit between the two."""

    def wrong(self: MemberPartitions, partition: Partition, entry: MemberPartition, action: p.Action) -> None:
        early = self.__dict__.setdefault("early", {})
        if isinstance(action, p.Claim) and partition not in early:

            def read(offset: int | None) -> None:
                early[partition] = offset
                right(self, partition, entry, action)

            self._offsets.load(self._claims.fence, partition, read)
        elif isinstance(action, p.Start) and early.get(partition) is not None:
            store = self._takeover._offsets
            self._takeover._offsets = _Read(early.pop(partition))
            try:
                right(self, partition, entry, action)
            finally:
                self._takeover._offsets = store
        else:
            right(self, partition, entry, action)

    return wrong


def any_node_is_mine(right: Any) -> Any:
    """An owner node that is there counts as claimed."""

    def wrong(self: PendingClaims, partition: Partition, thread_id: str, told: Callable[[p.Event], None]) -> None:
        right(
            self,
            partition,
            thread_id,
            lambda event: told(p.Claimed(thread_id) if isinstance(event, p.ClaimRefused) else event),
        )

    return wrong


def late_create_dropped(right: Any) -> Any:
    """A claim that is no longer wanted is forgotten before its answer comes."""

    def wrong(self: p.PartitionMachine, event: p.Event) -> list[p.Action]:
        if self.state is p.PartitionState.CLAIMING and event == p.Want(None):
            self.wanted = None
            self.state = p.PartitionState.FREE
            return []
        return list(right(self, event))

    return wrong


def claims_while_a_change_is_pending(right: Any) -> Any:
    """What comes is claimed as soon as it was read, not when the group has settled, and although it has changed since.

    In a burst of joins all members claim, learn of the next change, and release again.
    """

    def wrong(self: Coordinator, action: e.Action) -> None:
        self._partitions._claims._pending._may_claim = lambda: True
        right(self, action)
        if isinstance(action, e.SetAssignment):
            self._partitions.handle_all(p.ClaimsAllowed())

    return wrong


def claims_at_once_what_was_let_go_of(right: Any) -> Any:
    """The members are not read again before a partition that became free is claimed.

    With the owner's session its registration ends, too, and the partition may be another one's from that moment on:
    he is robbed of it, and a Java member in his place loses a try of its four, and all else that it had, meanwhile.
    """

    def wrong(self: MemberPartitions, partition: Partition, entry: MemberPartition, action: p.Action) -> None:
        if isinstance(action, p.Recheck):
            self._loop.post(self.handle, partition, p.ClaimsAllowed())
        else:
            right(self, partition, entry, action)

    return wrong


def blocked_claim_not_watched(right: Any) -> Any:
    """Only the rounds of the self-audit find out that a partition became free."""

    def wrong(self: MemberPartitions, partition: Partition, entry: MemberPartition, action: p.Action) -> None:
        is_blocked = entry.machine.state is p.PartitionState.BLOCKED and isinstance(action, p.Inspect | p.AwaitEnd)
        right(self, partition, entry, p.Inspect(watch=False) if is_blocked else action)

    return wrong


def largest_for_new_partitions(right: Any) -> Any:
    """`auto.offset.reset` counts for what came after the start, too."""
    return lambda self, partition: self._reset_policy


# -- letting go ------------------------------------------------------------------------------------------------------


def drain_ignores_the_message_in_hand(right: Any) -> Any:
    """A drain is over as soon as it starts."""

    def wrong(self: PartitionQueue) -> None:
        if not self.is_live:
            self.settle(self.done_position())

    return wrong


def hand_counts_as_done(right: Any) -> Any:
    """What was handed out is committed, as Java does."""
    return lambda self: self.position if self.in_hand is None else self.in_hand.next_offset


def commit_after_release(right: Any) -> Any:
    """The owner node goes first."""

    def wrong(self: MemberPartitions, turns: Mapping[Partition, int]) -> None:
        live = [each for each in turns if each in self.all and self.all[each].turn == turns[each]]
        positions = {each: at for each in live if (at := self.all[each].position) is not None}
        for each in live:
            self.handle(each, p.Drained())
        if self.member.auto_commit:
            self._loop.call_later(0.05, self._offsets.commit, self._claims.fence, positions, lambda failed: None)

    return wrong


def commit_result_not_waited_for(right: Any) -> Any:
    """A commit whose answer was lost is tried again, but the release does not wait for it: the next owner is early."""

    def wrong(self: Any, partitions: list[Partition], reply: Reply) -> None:
        if reply.fault is not None and reply.fault.is_unknown:
            callers, self._callers = self._callers, []
            for _, done in callers:
                done({})
        right(self, partitions, reply)

    return wrong


def commit_tried_again_after_release(right: Any) -> Any:
    """A commit whose answer was lost is sent once more, whichever member owns the partition by then."""

    def wrong(self: Any, partitions: list[Partition], reply: Reply) -> None:
        if reply.fault is None or not reply.fault.is_unknown or self._over:
            right(self, partitions, reply)
            return
        nodes, fence = self._nodes, self._fence
        sets = [
            SetData(nodes.path(each), znodes.format_offset(self._left[each]), -1)
            for each in partitions
            if each in self._left
        ]
        self._left = {}
        self._finish()
        if fence is not None:
            self._loop.call_later(1.0, nodes.ask, Multi((fence.check(), *sets)), lambda late: None)

    return wrong


def release_by_path(right: Any) -> Any:
    """Whichever member owns the node by now."""

    def wrong(self: Claims, partition: Partition, told: Callable[[p.Event], None]) -> None:
        path = znodes.owner_path(self._group, *partition)
        self._write(self.fence, Delete(path), lambda fault: told(p.Released()), told)

    return wrong


def leaves_without_the_last_commit(right: Any) -> Any:
    """`shutdown()` ends the session, and with it what was done since the last auto-commit."""
    return lambda self, positions, done: done({})


def an_unanswered_commit_counts_as_stored(right: Any) -> Any:
    """`shutdown()` does not report what ZooKeeper did not answer."""
    return lambda self, positions, reason: {}


def leaves_in_the_time_of_a_session(right: Any) -> Any:
    """The last commit is waited for as long as the session lasts."""

    def wrong(now: float, wait_s: float) -> LeaveTimes:
        times = right.__func__(now, wait_s)
        return dataclasses.replace(times, commit_until=times.commit_until + 4.0, close_until=times.close_until + 4.0)

    return staticmethod(wrong)


def session_outlives_its_coordinator(right: Any) -> Any:
    """A coordinator that has failed leaves its session, and the owner nodes with it, to the end of the process."""

    class Open:
        def close(self, timeout_s: float) -> None:
            pass

    def wrong(error: BaseException, coordinator: Any, delivery: Any, listening: Any, port: Any) -> Any:
        return right(error, coordinator, delivery, listening, Open())

    return wrong


# -- session, lease and fence ----------------------------------------------------------------------------------------


def lease_from_receipt(right: Any) -> Any:
    """An answer that lay in the socket for long extends the lease from now on, and nothing has to confirm it."""

    def wrong(self: SessionKeeper, fence: Fence, asked_at: float, reply: Reply) -> None:
        now = self._loop.clock()
        right(self, fence, asked_at, reply._replace(sent_at=now))
        if self.lease.renewed_at == now:
            self.lease.until = now + self.timeout_s * LEASE_FRACTION

    return wrong


def late_proof_not_confirmed(right: Any) -> Any:
    """An answer to a request without a lease counts at once; its server may not have reported to the leader yet."""

    def wrong(self: Lease, session_id: int, sent_at: float) -> bool:
        renewed = bool(right(self, session_id, sent_at))
        if renewed:
            self._late_since = None
            self.until = self.renewed_at + self._timeout_s * LEASE_FRACTION
        return renewed

    return wrong


def lease_as_long_as_the_session(right: Any) -> Any:
    """No share of the session is left for drift and ticks, and some is added."""

    def wrong(self: Lease, session_id: int, sent_at: float) -> bool:
        renewed = bool(right(self, session_id, sent_at))
        if renewed:
            self.until = self.renewed_at + 1.5 * self._timeout_s
        return renewed

    return wrong


def no_fence(right: Any) -> Any:
    """Writes check nothing.

    What a coordinator does before it learns that its session is over is sent under the next one, and done: it
    commits what others own by now, creates owner nodes that no member knows of, and deletes those of others.
    """
    return lambda self: Check("/", -1)


def answers_of_an_ended_session_count(right: Any) -> Any:
    """A late answer about an owner node that went with its session is taken for news of today."""

    def wrong(self: MemberPartitions, partition: Partition, entry: MemberPartition) -> Callable[[p.Event], None]:
        return lambda event: self.handle(partition, event)

    return wrong


def outlives_its_session(right: Any) -> Any:
    """What was held is kept when the session ends, for the next one."""
    return lambda self, action: None if isinstance(action, e.DropClaims) else right(self, action)


# -- the listener ----------------------------------------------------------------------------------------------------


def listener_called_twice(right: Any) -> Any:
    """What was revoked is reported again as lost, and so is what was never assigned."""
    return lambda self, partitions: [TopicPartition(*each) for each in sorted(partitions, key=str)]


# -- reading the group -----------------------------------------------------------------------------------------------


def cache_not_guarded(right: Any) -> Any:
    """A registration that was read once is never read again, whatever `cversion` says."""

    def wrong(self: Any, names: set[str], cversion: int) -> None:
        reader = self._reader
        known = set(reader._members)
        reader._cversion = cversion - len(names - known) - len(known - names)
        right(self, names, cversion)

    return wrong


def watch_after_read(right: Any) -> Any:
    """The members are read, and then a watch is set: a member that joins in between is not seen."""

    def wrong(self: Any) -> None:
        reader = self._reader
        ask = reader._ask

        def without_watch(request: Any, handle: Callable[[Reply], None]) -> None:
            if not isinstance(request, GetChildren) or request.path != reader._ids:
                ask(request, handle)
                return

            def answered(reply: Reply) -> None:
                handle(reply)
                ask(request, lambda late: None)

            ask(dataclasses.replace(request, watch=None), answered)

        reader._ask = without_watch
        try:
            right(self)
        finally:
            reader._ask = ask

    return wrong


def watches_thought_to_survive(right: Any) -> Any:
    """After a reconnection nothing is read again."""

    def wrong(self: GroupReader) -> None:
        if self._read is not None:
            self._read.silent = True

    return wrong


def change_while_reading_is_lost(right: Any) -> Any:
    """A watch that fires during a read is taken for older than the read."""

    def wrong(self: m.RebalanceMachine, event: e.Event, now: float) -> list[e.Action]:
        if self.state is m.GroupState.READING and isinstance(event, e.Changed):
            return []
        return list(right(self, event, now))

    return wrong


def closed_registration_counts_as_none(right: Any) -> Any:
    """Not permitted is taken for malformed: what its owner holds is claimed as soon as it is free."""

    def wrong(snapshot: GroupSnapshot, *others: Any) -> Any:
        return right(dataclasses.replace(snapshot, refused_members={}, refused_members_list=None), *others)

    return wrong


def closed_nodes_never_asked_for_again(right: Any) -> Any:
    """A watch is waited for that no change of an access list fires."""
    return lambda self: None


# -- offsets ---------------------------------------------------------------------------------------------------------


def offsets_go_back(right: Any) -> Any:
    """A stored offset that is higher is written over."""

    def wrong(record: OffsetRecord, value: int, may_lower: bool) -> WriteDecision:
        found = decide_write(record, value, may_lower)
        return WriteDecision.WRITE if found is WriteDecision.HOLD else found

    return wrong


def new_life_not_noticed(right: Any) -> Any:
    """A topic that was deleted and created again goes on at its old offset."""
    return lambda self, topic: None


def own_work_not_remembered(right: Any) -> Any:
    """After the loss of a session a member starts again at the last commit."""
    return lambda self, partition, position: None


def any_version_will_do(right: Any) -> Any:
    """Offsets are set whatever version they are at."""

    def wrong(self: Any) -> dict[Partition, Any]:
        return {
            partition: dataclasses.replace(write, version=-1) if hasattr(write, "version") else write
            for partition, write in right(self).items()
        }

    return wrong


def offsets_are_believed(right: Any) -> Any:
    """The offset field of an entry is always taken for its offset."""
    return lambda *what: None


# -- the order of roundrobin -------------------------------------------------------------------------------------------


def java_order_not_waited_for(right: Any) -> Any:
    """What Java members may want is claimed before their order is known."""
    return lambda self, snapshot, now: False


def order_from_one_look(right: Any) -> Any:
    """Owner nodes count at once, also those of a Java member that is about to rebalance."""
    return lambda self, shown, now: True


def order_from_nodes_before_the_last_join(right: Any) -> Any:
    """Owner nodes count although their owner has not assigned anew since a member joined or left."""

    def wrong(self: RoundrobinOrder, snapshot: GroupSnapshot, tables: Any, now: float) -> None:
        right(self, dataclasses.replace(snapshot, group_version=0), tables, now)

    return wrong


def a_drain_shows_an_order(right: Any) -> Any:
    """Owner nodes of members of this client count like those of Java members, also those of partitions that drain."""

    def wrong(self: RoundrobinOrder, snapshot: GroupSnapshot, now: float) -> None:
        self._dissent_s = self._confirm_s
        right(self, snapshot, now)
        if self._dissenters and self._explicit is None:
            self._assumed = "1.0"

    return wrong


def a_drain_is_named_as_another_order(right: Any) -> Any:
    """A member that drains for long is said to assign by another order."""
    return lambda self, shown: shown.since + self._confirm_s


def no_java_order_learned(right: Any) -> Any:
    """The order stays the one of 0.8, whatever Java members own."""
    return lambda self, snapshot, now: None


# -- offsets in Kafka --------------------------------------------------------------------------------------------------


def kafka_commit_after_release(right: Any) -> Any:
    """What waits to be stored is stored although the partition was released meanwhile."""
    return lambda self, partition: None


def nothing(right: Any) -> Any:
    """The precaution is left out."""
    return lambda self, *arguments: None


def unknown_offset_counts_as_none(right: Any) -> Any:
    """An offset manager that does not answer has no offsets."""

    def wrong(self: KafkaOffsets, job: Any, answer: OffsetAnswer) -> None:
        right(self, job, OffsetAnswer({**answer.offsets, **dict.fromkeys(answer.unknown)}, {}))

    return wrong


def only_the_first_store_is_written(right: Any) -> Any:
    """With dual commit the second store stays behind."""

    def wrong(self: TwoStores, *arguments: Any, **named: Any) -> None:
        written, self._written = self._written, self._written[:1]
        right(self, *arguments, **named)
        self._written = written

    return wrong


def the_lower_of_two_offsets(right: Any) -> Any:
    """Where the two stores differ, the group starts from the older offset."""

    def wrong(intent: Intent, kafka: int | None, zookeeper: int | None) -> int | None:
        return min((each for each in (kafka, zookeeper) if each is not None), default=None)

    return wrong


def the_other_store_than_chosen(right: Any) -> Any:
    """Where the two stores differ, the one that `offsets.intent` does not name counts."""
    other = {Intent.ZOOKEEPER: Intent.KAFKA, Intent.KAFKA: Intent.ZOOKEEPER}
    return lambda intent, kafka, zookeeper: right(other.get(intent, intent), kafka, zookeeper)


def refused_offsets_not_read_again(right: Any) -> Any:
    """A partition that is refused because its offsets differ stays so when they agree."""
    return 1e9


BUGS: Mapping[str, Bug] = {
    "the other store than chosen": Bug(two_stores, "chosen", the_other_store_than_chosen, "stores"),
    "refused offsets not read again": Bug(two_stores, "_READ_AGAIN_S", refused_offsets_not_read_again, "stores"),
    "kafka commit after release": Bug(KafkaOffsets, "released", kafka_commit_after_release, "stores", "mixed"),
    "unanswered commit sets back": Bug(KafkaOffsets, "_keep_unsure", nothing, "stores"),
    "unknown offset counts as none": Bug(KafkaOffsets, "_fetched", unknown_offset_counts_as_none, "stores"),
    "only the first store is written": Bug(TwoStores, "commit", only_the_first_store_is_written, "stores", "mixed"),
    "the lower of two offsets": Bug(two_stores, "chosen", the_lower_of_two_offsets, "stores", "mixed"),
    "java order not waited for": Bug(RoundrobinOrder, "_is_waiting", java_order_not_waited_for, "orders", "mixed"),
    "no java order learned": Bug(RoundrobinOrder, "_learn", no_java_order_learned, "orders", "mixed"),
    "order from nodes before the last join": Bug(
        RoundrobinOrder, "_update_shown", order_from_nodes_before_the_last_join, "orders", "mixed"
    ),
    "a drain shows an order": Bug(RoundrobinOrder, "_find_dissenters", a_drain_shows_an_order, "orders"),
    "a drain is named as another order": Bug(
        RoundrobinOrder, "_end_of_drains", a_drain_is_named_as_another_order, "orders"
    ),
    "order from one look": Bug(RoundrobinOrder, "_is_confirmed", order_from_one_look, "orders", "mixed"),
    "offsets are believed": Bug(message_set, "why_damaged", offsets_are_believed, "damaged"),
    "offset before claim": Bug(MemberPartitions, "_do_partition", offset_before_claim, "membership"),
    "any node is mine": Bug(PendingClaims, "claim", any_node_is_mine, "membership"),
    "late create dropped": Bug(p.PartitionMachine, "handle", late_create_dropped, "membership"),
    "largest for new partitions": Bug(KnownTopics, "policy", largest_for_new_partitions, "topics"),
    "drain ignores the message in hand": Bug(
        PartitionQueue, "settle_if_done", drain_ignores_the_message_in_hand, "membership"
    ),
    "hand counts as done": Bug(PartitionQueue, "done_position", hand_counts_as_done, "membership"),
    "commit after release": Bug(MemberPartitions, "_commit_drained", commit_after_release, "membership"),
    "unanswered commit counts as stored": Bug(Commits, "not_stored", an_unanswered_commit_counts_as_stored, "ends"),
    "leaves in the time of a session": Bug(LeaveTimes, "of", leaves_in_the_time_of_a_session, "ends"),
    "session outlives its coordinator": Bug(member_module, "end_by_fault", session_outlives_its_coordinator, "ends"),
    "leaves without the last commit": Bug(Commits, "commit_last", leaves_without_the_last_commit, "membership"),
    "release by path": Bug(Claims, "release", release_by_path, "hands"),
    "lease from receipt": Bug(SessionKeeper, "_proved", lease_from_receipt, "pauses"),
    "late proof not confirmed": Bug(Lease, "renew", late_proof_not_confirmed, "late proofs"),
    "lease as long as the session": Bug(Lease, "renew", lease_as_long_as_the_session, "sessions"),
    "cache not guarded": Bug(group_reader._Read, "_members_listed", cache_not_guarded, "returns"),
    "watch after read": Bug(group_reader._Read, "_read_members", watch_after_read, "membership"),
    "watches thought to survive": Bug(GroupReader, "forget_watches", watches_thought_to_survive, "topics"),
    "change while reading is lost": Bug(m.RebalanceMachine, "handle", change_while_reading_is_lost, "membership"),
    "offsets go back": Bug(commit_batch, "decide_write", offsets_go_back, "hands"),
    "own work not remembered": Bug(KnownOffsets, "remember", own_work_not_remembered, "sessions"),
    "closed registration counts as none": Bug(roundrobin_order, "assign", closed_registration_counts_as_none, "closed"),
    "closed nodes never asked for again": Bug(RefusedNodes, "_ask_again", closed_nodes_never_asked_for_again, "closed"),
    "any version will do": Bug(commit_batch.CommitBatch, "_decide", any_version_will_do, "hands"),
    "claims while a change is pending": Bug(Coordinator, "_do", claims_while_a_change_is_pending, "membership"),
    "claims at once what was let go of": Bug(
        MemberPartitions, "_do_partition", claims_at_once_what_was_let_go_of, "membership"
    ),
    "commit result not waited for": Bug(
        commit_batch.CommitBatch, "_written", commit_result_not_waited_for, "handovers"
    ),
    "commit tried again after release": Bug(
        commit_batch.CommitBatch, "_written", commit_tried_again_after_release, "handovers"
    ),
    "no fence": Bug(Fence, "check", no_fence, "sessions"),
    "answers of an ended session count": Bug(
        MemberPartitions, "_answer_handler", answers_of_an_ended_session_count, "sessions"
    ),
    "outlives its session": Bug(Coordinator, "_do", outlives_its_session, "sessions"),
    "blocked claim not watched": Bug(MemberPartitions, "_do_partition", blocked_claim_not_watched, "membership"),
    "new life not noticed": Bug(MemberPartitions, "_restart", new_life_not_noticed, "topics"),
    "listener called twice": Bug(ListenerThread, "_forget", listener_called_twice, "sessions"),
}
