"""Carries out the actions of the partitions' machines: claims, takeovers, drains, commits and releases, in order.

Order of a handover. The old owner stops fetching, lets the application finish the message in hand, notifies the
listener, commits and releases. The new owner claims, reads the offset, notifies the listener and fetches. Every wait
in between carries a turn number: an answer that comes after the partition was assigned otherwise is dropped. Rule:
nothing here blocks.

Source: docs/REBALANCE.md, "Step by step".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from rebalance import partition as steps
from rebalance.known_topics import KnownTopics, TopicsSeen
from rebalance.loop import Loop
from rebalance.ports import Claims, Member, MemberParts, is_same_session
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.subscription import Assignment, Partition
from rebalance.takeover import MemberPartition, Takeover, by_reason

log = logging.getLogger(__name__)

_COMMIT_AGAIN_S = 0.1
_WAITING = (steps.PartitionState.FREE, steps.PartitionState.BLOCKED, steps.PartitionState.CLAIMING)
_RELEASING = (steps.PartitionState.DRAINING, steps.PartitionState.RELEASING, steps.PartitionState.UNKNOWN)
_LISTENER_LEAST_S = 0.5
"""The time that the listener always gets for its commits, even after a drain that used up all the time."""


class PartitionsFollower(Protocol):
    """The side of the group, as far as the partitions need it."""

    def recheck(self, cause: str) -> None:
        """The members have to be read again before anything is claimed."""

    def fenced(self) -> None:
        """A write was refused because the registration is not the one under which it was asked."""

    def partitions_moved(self) -> None:
        """A partition may have changed its state."""


class MemberPartitions:
    """All partitions of one member.

    Args:
        member: whose they are.
        loop: the queue and timers.
        claims: makes partitions this member's own; its fence names the membership.
        parts: delivery, offsets and listener.
        statistics: counts what is claimed, released and lost.
        follower: is asked and notified about the group.

    Attributes:
        all: the partitions.
        drain_timeout_s: longest wait for the message in hand, and for the listener.

    Threads: the coordinator's alone, but for the watch callback, which only posts.
    """

    def __init__(
        self,
        member: Member,
        loop: Loop,
        claims: Claims,
        parts: MemberParts,
        statistics: RebalanceStatistics,
        follower: PartitionsFollower,
    ) -> None:
        self.member = member
        self.drain_timeout_s = member.drain_timeout_s
        self.all: dict[Partition, MemberPartition] = {}
        self._loop = loop
        self._claims = claims
        self._delivery = parts.delivery
        self._offsets = parts.offsets
        self._listener = parts.listener
        self._follower = follower
        self._statistics = statistics
        self._topics = KnownTopics(member.reset_policy, resets_later_ones=member.resets_later_ones)
        self._revoked: dict[Partition, int] = {}
        self._lost: list[Partition] = []
        self._expired: dict[Partition, str] = {}
        self._unsettled: list[Partition] = []
        self._turns = 0
        self._closed = False
        self._takeover = Takeover(member, loop, parts, self.all, follower.partitions_moved)

    # -- actions of the group's machine ------------------------------------------------------------------------------

    def set_assignment(self, assignment: Assignment, snapshot: TopicsSeen) -> None:
        """Take `assignment` as what should be held; releases start at once."""
        self.note_topics(snapshot)
        for partition, entry in list(self.all.items()):
            if assignment.frozen is not None or partition[0] in assignment.frozen_topics:
                # Keep the held partitions, claim nothing.
                is_unwanted = entry.machine.state in _WAITING
            else:
                is_unwanted = partition not in assignment.mine
            if is_unwanted:
                self.handle(partition, steps.Want(None))
        for partition, thread_id in assignment.mine.items():
            if partition not in self.all:
                self.all[partition] = MemberPartition(steps.PartitionMachine(), self._loop.clock())
            self.handle(partition, steps.Want(thread_id))

    def note_topics(self, snapshot: TopicsSeen) -> None:
        """Start topics anew that were deleted and created again."""
        for topic in self._topics.update(snapshot):
            self._restart(topic, snapshot.topics[topic].partitions)

    def _restart(self, topic: str, partitions: Collection[int | str]) -> None:
        """Start a topic that was created anew without its stored offsets: those of the old one would skip messages."""
        log.warning("topic %s was deleted and created again; its earlier positions and offsets no longer count", topic)
        self._offsets.forget_topic(topic, self._topics.incarnation(topic), partitions)
        for partition, entry in self.all.items():
            if partition[0] != topic:
                continue
            if entry.machine.state is steps.PartitionState.OWNED:
                self._delivery.abandon(partition)
                self._lost.append(partition)
                self._loop.after_step(self._notify_lost)
                self._take(partition, entry)
            elif entry.drain_timer is not None:
                # The message in hand is of the old incarnation: its position must not be committed for the new one.
                self._delivery.abandon(partition)
                self._drained(partition, entry, None)
            entry.position = None

    def handle_all(self, event: steps.Event) -> None:
        """Pass one event to the machine of every partition."""
        for partition in list(self.all):
            self.handle(partition, event)

    def close(self) -> None:
        """Do nothing more."""
        self._closed = True

    # -- the machines of the partitions ----------------------------------------------------------------------------

    def handle(self, partition: Partition, event: steps.Event) -> None:
        entry = self.all.get(partition)
        if entry is None or self._closed:
            return
        before = entry.machine.state
        actions = entry.machine.handle(event)
        if entry.machine.state is not before:
            # Answers to earlier requests no longer count. None is to a write: who waits for one keeps its state.
            entry.asked += 1
            entry.since = self._loop.clock()
            entry.is_blocked_reported = False
            entry.uncommitted &= entry.machine.state in _RELEASING
            log.debug(
                "%s %s-%s: %s -> %s after %s",
                self.member.consumer_id,
                *partition,
                before.value,
                entry.machine.state.value,
                type(event).__name__,
            )
            if before in (steps.PartitionState.OWNED, steps.PartitionState.DRAINING):
                entry.turn = 0
        if isinstance(event, steps.Fenced):
            self._follower.fenced()
        for action in actions:
            self._do_partition(partition, entry, action)
        if entry.machine.is_idle and self.all.get(partition) is entry:
            del self.all[partition]
            self._offsets.released(partition)
        self._follower.partitions_moved()

    def _do_partition(self, partition: Partition, entry: MemberPartition, action: steps.Action) -> None:
        match action:
            case steps.Claim(thread_id, is_vacant):
                self._claims.claim(partition, thread_id, self._answer_handler(partition, entry), is_vacant=is_vacant)
            case steps.AwaitEnd():
                report = self._answer_handler(partition, entry)
                number = entry.asked
                self._claims.await_end(partition, report, self._owner_changed, lambda: entry.asked == number)
            case steps.Inspect(watch):
                report = self._answer_handler(partition, entry)
                if watch:
                    self._claims.inspect(partition, report, self._owner_changed, after_event=True)
                else:
                    self._claims.find_out(partition, report)
            case steps.Start():
                self._statistics.taken()
                self._take(partition, entry)
            case steps.Drain():
                self._drain(partition, entry)
            case steps.MoveToThread(thread_id, version):
                self._claims.move_to_thread(partition, thread_id, version, self._answer_handler(partition, entry))
            case steps.Release():
                self._statistics.released()
                # Before the owner node is gone: a commit that still waits would set back the next owner's offset.
                self._offsets.released(partition)
                self._release(partition, entry, self._offsets.release_tries)
            case steps.Stop():
                self._stop(partition, entry)
            case steps.Recheck():
                self._follower.recheck(f"owner of {partition[0]}-{partition[1]}")

    def _answer_handler(self, partition: Partition, entry: MemberPartition) -> Callable[[steps.Event], None]:
        """A function that passes the answer to a new request to the partition's machine.

        Answers of an ended session do not count: its nodes are gone. Of two open requests only the later one counts:
        it sees what the earlier one did, and the answer to the earlier one would describe an outdated state.
        """
        fence = self._claims.fence
        entry.asked += 1
        number = entry.asked

        def report(event: steps.Event) -> None:
            # Requests stay valid when the same session registers again.
            if not is_same_session(fence, self._claims.fence) or self.all.get(partition) is not entry:
                return
            if entry.asked != number:
                return
            self.handle(partition, event)
            if isinstance(event, steps.Fenced) and fence != self._claims.fence:
                # It was asked under the previous registration, and the new one was already reported.
                self.handle(partition, steps.Reconnected())

        return report

    def read_owner(self, partition: Partition) -> None:
        """Read the owner node of a partition, with a watch, and report it to the machine.

        A node that may not be read is no reason for a change: no watch has reported that it is another one.
        """
        entry = self.all.get(partition)
        if entry is None or self._claims.fence is None:
            return
        entry.looked_at = self._loop.clock()
        report = self._answer_handler(partition, entry)
        self._claims.inspect(partition, report, self._owner_changed, after_event=False)

    def _owner_changed(self, partition: Partition) -> None:
        """Take note that another member may own a partition. Threads: any."""
        self._loop.post(self.handle, partition, steps.OwnerChanged())

    # -- takeover --------------------------------------------------------------------------------------------------

    def _take(self, partition: Partition, entry: MemberPartition) -> None:
        """Start delivery: this session owns the owner node."""
        self._turns += 1
        entry.turn = self._turns
        self._takeover.take(partition, entry, self._topics.policy(partition), self._claims.fence)

    # -- release ---------------------------------------------------------------------------------------------------

    def _drain(self, partition: Partition, entry: MemberPartition) -> None:
        """Stop fetching and let the message in hand finish, for the drain time-out at most."""
        if not entry.started:
            self._delivery.abandon(partition)
            self._loop.post(self._drained, partition, entry, entry.position)
            return
        entry.started = False
        # The start position must not be taken for the end position, and committed.
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
                if not self._expired:
                    self._loop.after_step(self._log_expired)
                self._expired[partition] = (f"the message in hand took longer than {self.drain_timeout_s:.1f} s; "
                                            "the next owner may get it again")  # fmt: skip
                entry.turn = 0
                self._drained(partition, entry, self._delivery.expire_drain(partition))

        entry.drain_timer = self._loop.call_later(self.drain_timeout_s, expired)
        self._delivery.drain(partition, done)

    def _log_expired(self) -> None:
        expired, self._expired = self._expired, {}
        for names, reason in by_reason(expired):
            log.warning("%s: %s", names, reason)

    def _drained(self, partition: Partition, entry: MemberPartition, position: int | None) -> None:
        if entry.drain_timer is not None:
            entry.drain_timer.cancel()
            entry.drain_timer = None
        if self.all.get(partition) is not entry or entry.machine.state is not steps.PartitionState.DRAINING:
            return
        if position is not None and position < 0:
            position = None  # `NO_START`: there is nothing to commit
        entry.position = position
        if position is not None and self.member.auto_commit:
            # Without auto-commit the next claim goes on from the last commit, as any other member would: the
            # application may have thrown away later messages with the partition.
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
        outcomes: list[bool] = []
        # Drain and listener share one time-out: a Java member that waits for the partition gives up after four seconds.
        left_s = min(self.all[partition].since for partition in live) + self.drain_timeout_s - self._loop.clock()
        wait_s = max(_LISTENER_LEAST_S, left_s)

        def done(in_time: bool) -> None:
            if outcomes:
                return
            outcomes.append(in_time)
            if not in_time:
                log.warning("on_partitions_revoked did not return within %.1f s; releasing anyway", wait_s)
            self._commit_drained(live)

        self._loop.call_later(wait_s, done, False)
        self._listener.revoked(list(live), lambda: self._loop.post(done, True))

    def _commit_drained(self, turns: Mapping[Partition, int]) -> None:
        live = [
            partition for partition, turn in turns.items() if partition in self.all and self.all[partition].turn == turn
        ]
        positions = {
            partition: position
            for partition in live
            if self.member.auto_commit and (position := self.all[partition].position) is not None
        }

        def committed(failed: Mapping[Partition, str]) -> None:
            for names, reason in by_reason(failed):
                log.warning("offset of %s is not committed: %s", names, reason)
            for partition in live:
                entry = self.all.get(partition)
                if entry is not None and entry.turn == turns[partition]:
                    entry.uncommitted = partition in failed
                    self.handle(partition, steps.Drained())

        # Without any position, too: the release waits for all commits that are still unanswered.
        self._offsets.commit(self._claims.fence, positions, committed)

    def _release(self, partition: Partition, entry: MemberPartition, tries: int) -> None:
        """Delete the owner node; a commit that has failed before is tried again first, a few times.

        A registration that an operator has deleted is made again within a moment; until then every write is refused.
        """
        if not entry.uncommitted or entry.position is None or tries < 1:
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

        self._offsets.commit(self._claims.fence, {partition: entry.position}, committed)

    def _stop(self, partition: Partition, entry: MemberPartition) -> None:
        """Deliver nothing more, at once: ownership ended without a release.

        With auto-commit on, the done position is remembered for the next claim. Without it only the application knows
        which of its work is safe: it may throw away uncommitted work in `on_partitions_lost`, and must get it
        again.
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
        # Called after each of thousands of steps: each partition is therefore looked at once, not each time.
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
        return all(entry.machine.state is steps.PartitionState.FREE for entry in self.all.values())
