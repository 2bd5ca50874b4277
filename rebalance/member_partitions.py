"""The partitions that a member wants, holds or lets go of: each machine's actions, done in the right order.

Order of a handover: stop fetching, let the message in hand finish, tell the listener, commit, release; and on the
other side claim, read the offset, tell the listener, fetch. Every wait in it carries a turn number, so that an
answer which comes after the partition went another way is dropped. Rule: nothing here blocks.

Source: docs/REBALANCE.md, "Step by step".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rebalance import partition as p
from rebalance.assignment import Partition
from rebalance.claims import UNREAD_OWNER, Claims, is_same_session
from rebalance.loop import Loop
from rebalance.member_partition import MemberPartition
from rebalance.pending_claims import PendingClaims
from rebalance.ports import Delivery, Listener, Member, Offsets
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.requests import WatchEvent
from rebalance.snapshot import Assignment, GroupSnapshot
from rebalance.takeover import Takeover

__all__ = ["MemberPartitions"]

log = logging.getLogger(__name__)

_COMMIT_AGAIN_S = 0.1
_WAITING = (p.PartitionState.FREE, p.PartitionState.BLOCKED, p.PartitionState.CLAIMING)
_LETTING_GO = (p.PartitionState.DRAINING, p.PartitionState.RELEASING, p.PartitionState.UNKNOWN)
_LISTENER_LEAST_S = 0.5
"""What the listener always gets to commit in, also after a drain that took all the time there is."""


class MemberPartitions:
    """All partitions of one member.

    Args:
        member: what it is.
        loop: the queue and timers.
        claims: writes the owner nodes; its fence names the session and the registration.
        delivery, offsets, listener: the rest of the member.
        recheck: called with a reason when the members have to be read again before anything is claimed.
        fenced: called when a write was refused because the registration is not the one it was made under.
        moved: called after every step.
        statistics: hears what is taken, released and lost.
        may_claim: whether no change of the group is pending.

    Threads: the coordinator's alone, but for the watch callback, which only posts.
    """

    def __init__(
        self,
        member: Member,
        loop: Loop,
        claims: Claims,
        delivery: Delivery,
        offsets: Offsets,
        listener: Listener,
        recheck: Callable[[str], None],
        fenced: Callable[[], None],
        moved: Callable[[], None],
        statistics: RebalanceStatistics,
        may_claim: Callable[[], bool],
    ) -> None:
        self.member = member
        self.all: dict[Partition, MemberPartition] = {}
        self._loop = loop
        self._claims = claims
        self._delivery = delivery
        self._offsets = offsets
        self._listener = listener
        self._recheck = recheck
        self._fenced = fenced
        self._moved = moved
        self._statistics = statistics
        self._known_at_start: set[Partition] | None = None
        self._unread_at_start: set[str] = set()
        self._incarnations: dict[str, int] = {}
        self._recreated: dict[str, int] = {}
        self._revoked: dict[Partition, int] = {}
        self._lost: list[Partition] = []
        self._unsettled: list[Partition] = []
        self._turns = 0
        self._closed = False
        self._pending_claims = PendingClaims(claims, loop, may_claim)
        self._takeover = Takeover(member, loop, delivery, offsets, listener, self.all, moved)

    # -- what the group's machine asks for ---------------------------------------------------------------------------

    def set_assignment(self, assignment: Assignment, snapshot: GroupSnapshot) -> None:
        """Make `assignment` what should be held; what goes begins to go at once."""
        self._notice_start(snapshot)
        self._notice_new_incarnations(snapshot)
        for partition, entry in list(self.all.items()):
            if assignment.frozen is not None or partition[0] in assignment.frozen_topics:
                # Keep what is held, claim nothing.
                is_given_up = entry.machine.state in _WAITING
            else:
                is_given_up = partition not in assignment.mine
            if is_given_up:
                self.handle(partition, p.Want(None))
        for partition, thread_id in assignment.mine.items():
            if partition not in self.all:
                self.all[partition] = MemberPartition(p.PartitionMachine(), self._loop.clock())
            self.handle(partition, p.Want(thread_id))

    def _notice_start(self, snapshot: GroupSnapshot) -> None:
        """Remember what was there at the start: whatever appears later begins at its smallest offset.

        A topic that could not be read then counts as it is when it can be.
        """
        topics = snapshot.topics
        if self._known_at_start is None:
            if snapshot.refused_topics_list is not None:
                return
            self._known_at_start = set()
            self._unread_at_start = {*topics, *snapshot.refused_topics}
        self._unread_at_start &= {*topics, *snapshot.refused_topics}
        for topic in self._unread_at_start & topics.keys():
            self._unread_at_start.discard(topic)
            self._known_at_start.update((topic, part) for part in topics[topic].partitions)

    def _notice_new_incarnations(self, snapshot: GroupSnapshot) -> None:
        """A topic that was deleted and created again begins at its start: offsets of its earlier life would skip it."""
        for topic, node in snapshot.topics.items():
            if self._incarnations.setdefault(topic, node.czxid) == node.czxid:
                continue
            log.warning("topic %s was deleted and created again; beginning at its start", topic)
            self._incarnations[topic] = self._recreated[topic] = node.czxid
            self._offsets.forget_topic(topic)
            for partition, entry in self.all.items():
                if partition[0] != topic:
                    continue
                if entry.machine.state is p.PartitionState.OWNED:
                    self._delivery.abandon(partition)
                    self._lost.append(partition)
                    self._loop.after_step(self._notify_lost)
                    self._take(partition, entry)
                elif entry.drain_timer is not None:
                    # The message in hand is of the earlier life, too: its position, committed now, would count.
                    self._delivery.abandon(partition)
                    self._drained(partition, entry, None)
                entry.position = None

    def handle_all(self, event: p.Event) -> None:
        """Give every partition's machine the same event."""
        for partition in list(self.all):
            self.handle(partition, event)

    def close(self) -> None:
        """Do nothing more."""
        self._closed = True

    # -- the machines of the partitions ----------------------------------------------------------------------------

    def handle(self, partition: Partition, event: p.Event) -> None:
        entry = self.all.get(partition)
        if entry is None or self._closed:
            return
        before = entry.machine.state
        actions = entry.machine.handle(event)
        if entry.machine.state is not before:
            # What was asked before says nothing any more. No write is among it: who waits for one stays where he is.
            entry.asked += 1
            entry.since = self._loop.clock()
            entry.is_blocked_reported = False
            entry.uncommitted &= entry.machine.state in _LETTING_GO
            log.debug("%s %s-%s: %s -> %s after %s", self.member.consumer_id, *partition, before.value,
                      entry.machine.state.value, type(event).__name__)
            if before in (p.PartitionState.OWNED, p.PartitionState.DRAINING):
                entry.turn = 0
        if isinstance(event, p.Fenced):
            self._fenced()
        for action in actions:
            self._do_partition(partition, entry, action)
        if entry.machine.is_idle and self.all.get(partition) is entry:
            del self.all[partition]
        self._moved()

    def _do_partition(self, partition: Partition, entry: MemberPartition, action: p.Action) -> None:
        match action:
            case p.Claim(thread_id, is_vacant):
                claim = self._claims.claim if is_vacant else self._pending_claims.claim
                claim(partition, thread_id, self._answer_handler(partition, entry))
            case p.AwaitEnd():
                told = self._answer_handler(partition, entry)
                number = entry.asked
                self._pending_claims.await_end(partition, told, self._owner_changed, lambda: entry.asked == number)
            case p.Inspect(watch):
                if watch:
                    # It is looked at because something happened to it: one that may not be read is not mine any more.
                    self._claims.inspect(partition, self._answer_handler(partition, entry), self._owner_changed,
                                         unread=UNREAD_OWNER)
                else:
                    self._claims.inspect(partition, self._answer_handler(partition, entry), sync=True)
            case p.Start():
                self._statistics.taken()
                self._take(partition, entry)
            case p.Drain():
                self._drain(partition, entry)
            case p.MoveToThread(thread_id, version):
                self._claims.move_to_thread(partition, thread_id, version, self._answer_handler(partition, entry))
            case p.Release():
                self._statistics.released()
                self._release(partition, entry)
            case p.Stop():
                self._stop(partition, entry)
            case p.Recheck():
                self._recheck(f"owner of {partition[0]}-{partition[1]}")

    def _answer_handler(self, partition: Partition, entry: MemberPartition) -> Callable[[p.Event], None]:
        """Takes the answer to a new question to the partition's machine.

        Answers of an ended session died with its nodes. Of two open questions only the later counts: it reads what
        the earlier one did, and a result of the earlier one after it would be news of a state long left.
        """
        fence = self._claims.fence
        entry.asked += 1
        number = entry.asked

        def told(event: p.Event) -> None:
            # Registering anew under the same session leaves what is under way in force.
            if not is_same_session(fence, self._claims.fence) or self.all.get(partition) is not entry:
                return
            if entry.asked != number:
                return
            self.handle(partition, event)
            if isinstance(event, p.Fenced) and fence != self._claims.fence:
                # It was asked under the registration before, and that the new one stands was told already.
                self.handle(partition, p.Reconnected())

        return told

    def look(self, partition: Partition) -> None:
        """Read the owner node of a partition, with a watch; its machine hears what is there, if it may be read.

        Of a node that may not be read nothing is concluded: no watch has told that it is another one.
        """
        entry = self.all.get(partition)
        if entry is None or self._claims.fence is None:
            return
        entry.looked_at = self._loop.clock()
        self._claims.inspect(partition, self._answer_handler(partition, entry), self._owner_changed)

    def _owner_changed(self, event: WatchEvent) -> None:
        """Watch callback: any thread."""
        topic, name = event.path.rsplit("/", 2)[-2:]
        self._loop.post(self.handle, (topic, int(name) if name.isdigit() else name), p.OwnerChanged())

    # -- taking ----------------------------------------------------------------------------------------------------

    def _take(self, partition: Partition, entry: MemberPartition) -> None:
        """The owner node is mine: have delivery begin."""
        self._turns += 1
        entry.turn = self._turns
        self._takeover.take(partition, entry, self._policy(partition), self._recreated.get(partition[0], 0))

    def _policy(self, partition: Partition) -> str:
        known = self._known_at_start is None or partition in self._known_at_start
        known = known and partition[0] not in self._recreated
        return self.member.reset_policy if known else "smallest"

    # -- letting go ------------------------------------------------------------------------------------------------

    def _drain(self, partition: Partition, entry: MemberPartition) -> None:
        """Stop, let the message in hand finish, and see to it that this ends."""
        if not entry.started:
            self._delivery.abandon(partition)
            self._loop.post(self._drained, partition, entry, entry.position)
            return
        entry.started = False
        # Where it began must not be taken, and committed, for where it ended.
        entry.position = None
        self._turns += 1
        turn = entry.turn = self._turns

        def done(position: int) -> None:
            self._loop.post(finished, position)

        def finished(position: int) -> None:
            if entry.turn == turn:
                entry.turn = 0
                self._drained(partition, entry, position)

        def expired() -> None:
            if entry.turn == turn:
                log.warning("%s-%s: the message in hand took longer than %.1f s; released without it, it may come "
                            "again elsewhere", *partition, self.member.drain_timeout_s)
                entry.turn = 0
                self._drained(partition, entry, self._delivery.expire_drain(partition))

        entry.drain_timer = self._loop.call_later(self.member.drain_timeout_s, expired)
        self._delivery.drain(partition, done)

    def _drained(self, partition: Partition, entry: MemberPartition, position: int | None) -> None:
        if entry.drain_timer is not None:
            entry.drain_timer.cancel()
            entry.drain_timer = None
        if self.all.get(partition) is not entry or entry.machine.state is not p.PartitionState.DRAINING:
            return
        entry.position = position
        if position is not None and self.member.auto_commit:
            # Who commits by hand goes on from the last commit, as any other member would: what was read since may
            # have been thrown away with the partition.
            self._offsets.remember(partition, position)
        self._turns += 1
        entry.turn = self._turns
        self._revoked[partition] = entry.turn
        self._loop.after_step(self._notify_revoked)

    def _notify_revoked(self) -> None:
        batch, self._revoked = self._revoked, {}
        live = {
            partition: turn
            for partition, turn in batch.items()
            if partition in self.all and self.all[partition].turn == turn
        }
        if not live:
            return
        told: list[bool] = []
        # Drain and listener share one time: a Java member that waits for the partition has four seconds' patience.
        left_s = min(self.all[partition].since for partition in live) + self.member.drain_timeout_s - self._loop.clock()
        wait_s = max(_LISTENER_LEAST_S, left_s)

        def done(in_time: bool) -> None:
            if told:
                return
            told.append(in_time)
            if not in_time:
                log.warning("on_partitions_revoked did not return within %.1f s; releasing all the same", wait_s)
            self._commit_drained(live)

        self._loop.call_later(wait_s, done, False)
        self._listener.revoked(list(live), lambda: self._loop.post(done, True))

    def _commit_drained(self, turns: Mapping[Partition, int]) -> None:
        live = [
            partition
            for partition, turn in turns.items()
            if partition in self.all and self.all[partition].turn == turn
        ]
        positions = {
            partition: position
            for partition in live
            if self.member.auto_commit and (position := self.all[partition].position) is not None
        }

        def committed(failed: Mapping[Partition, str]) -> None:
            self._commit_reported(failed)
            for partition in live:
                entry = self.all.get(partition)
                if entry is not None and entry.turn == turns[partition]:
                    entry.uncommitted = partition in failed
                    self.handle(partition, p.Drained())

        # Also without anything to commit: the release waits for whatever is still on its way.
        self._offsets.commit(positions, committed)

    def _release(self, partition: Partition, entry: MemberPartition, tries: int = 5) -> None:
        """Delete the owner node; what could not be committed before is committed first, if it can be soon.

        A registration that a hand has deleted is made again within a moment; until then every write is refused.
        """
        if not entry.uncommitted or entry.position is None:
            self._claims.release(partition, self._answer_handler(partition, entry))
            return
        entry.asked += 1
        number = entry.asked

        def committed(failed: Mapping[Partition, str]) -> None:
            if self.all.get(partition) is entry and entry.asked == number:
                entry.uncommitted = partition in failed
                if entry.uncommitted and tries > 1:
                    self._loop.call_later(_COMMIT_AGAIN_S, again)
                else:
                    self._claims.release(partition, self._answer_handler(partition, entry))

        def again() -> None:
            if self.all.get(partition) is entry and entry.asked == number:
                self._release(partition, entry, tries - 1)

        self._offsets.commit({partition: entry.position}, committed)

    def _commit_reported(self, failed: Mapping[Partition, str]) -> None:
        for partition, reason in failed.items():
            log.warning("offset of %s-%s is not committed: %s", *partition, reason)

    def _stop(self, partition: Partition, entry: MemberPartition) -> None:
        """Ownership ended without a release: at once nothing more is delivered.

        With auto-commit on, what was done is remembered for the next claim. Without it only the application knows what
        of it is safe: it may throw away in `on_partitions_lost` what it had not committed, and must get it again.
        """
        if entry.drain_timer is not None:
            entry.drain_timer.cancel()
            entry.drain_timer = None
        entry.turn = 0
        entry.started = False
        position = self._delivery.abandon(partition)
        if position is not None and self.member.auto_commit:
            self._offsets.remember(partition, position)
        self._statistics.lost()
        self._lost.append(partition)
        self._loop.after_step(self._notify_lost)

    def _notify_lost(self) -> None:
        lost, self._lost = self._lost, []
        if lost:
            names = ", ".join(f"{topic}-{name}" for topic, name in sorted(lost, key=str))
            log.warning("%s lost %s", self.member.consumer_id, names)
            self._listener.lost(lost)

    @property
    def settled(self) -> bool:
        """Whether each assigned partition is being delivered or is blocked."""
        # Asked after each of thousands of steps: so each partition is looked at once, not each time.
        while self._unsettled:
            entry = self.all.get(self._unsettled[-1])
            if entry is not None and not entry.is_settled:
                return False
            self._unsettled.pop()
        self._unsettled = [partition for partition, entry in self.all.items() if not entry.is_settled]
        return not self._unsettled

    @property
    def empty(self) -> bool:
        """Whether nothing is held or under way."""
        return all(entry.machine.state is p.PartitionState.FREE for entry in self.all.values())
