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
from rebalance.episodes import Episodes
from rebalance.holding import Holding
from rebalance.loop import Loop
from rebalance.ports import Delivery, Listener, Member, Offsets
from rebalance.requests import WatchEvent
from rebalance.snapshot import Assignment, GroupSnapshot
from rebalance.taking import Taking
from rebalance.vacancies import Vacancies

__all__ = ["Holdings"]

log = logging.getLogger(__name__)

_COMMIT_AGAIN_S = 0.1
_WAITING = (p.PartitionState.FREE, p.PartitionState.BLOCKED, p.PartitionState.CLAIMING)
_LETTING_GO = (p.PartitionState.DRAINING, p.PartitionState.RELEASING, p.PartitionState.UNKNOWN)
_LISTENER_LEAST_S = 0.5
"""What the listener always gets to commit in, also after a drain that took all the time there is."""


class Holdings:
    """All partitions of one member.

    Args:
        member: what it is.
        loop: the queue and timers.
        claims: writes the owner nodes; its fence names the session and the registration.
        delivery, offsets, listener: the rest of the member.
        recheck: called with a reason when the members have to be read again before anything is claimed.
        fenced: called when a write was refused because the registration is not the one it was made under.
        moved: called after every step.
        episodes: hears what is taken, released and lost.
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
        episodes: Episodes,
        may_claim: Callable[[], bool],
    ) -> None:
        self.member = member
        self.all: dict[Partition, Holding] = {}
        self._loop = loop
        self._claims = claims
        self._delivery = delivery
        self._offsets = offsets
        self._listener = listener
        self._recheck = recheck
        self._fenced = fenced
        self._moved = moved
        self._episodes = episodes
        self._known_at_start: set[Partition] | None = None
        self._unread_at_start: set[str] = set()
        self._lives: dict[str, int] = {}
        self._born: dict[str, int] = {}
        self._revoked: dict[Partition, int] = {}
        self._lost: list[Partition] = []
        self._unsettled: list[Partition] = []
        self._turns = 0
        self._closed = False
        self._vacancies = Vacancies(claims, loop, may_claim)
        self._taking = Taking(member, loop, delivery, offsets, listener, self.all, moved)

    # -- what the group's machine asks for ---------------------------------------------------------------------------

    def retarget(self, assignment: Assignment, snapshot: GroupSnapshot) -> None:
        """Make `assignment` what should be held; what goes begins to go at once."""
        self._notice_start(snapshot)
        self._notice_new_lives(snapshot)
        for partition, holding in list(self.all.items()):
            if assignment.frozen is not None or partition[0] in assignment.frozen_topics:
                # Keep what is held, claim nothing.
                is_given_up = holding.machine.state in _WAITING
            else:
                is_given_up = partition not in assignment.mine
            if is_given_up:
                self.handle(partition, p.Want(None))
        for partition, thread_id in assignment.mine.items():
            if partition not in self.all:
                self.all[partition] = Holding(p.PartitionMachine(), self._loop.clock())
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

    def _notice_new_lives(self, snapshot: GroupSnapshot) -> None:
        """A topic that was deleted and created again begins at its start: offsets of its earlier life would skip it."""
        for topic, node in snapshot.topics.items():
            if self._lives.setdefault(topic, node.czxid) == node.czxid:
                continue
            log.warning("topic %s was deleted and created again; beginning at its start", topic)
            self._lives[topic] = self._born[topic] = node.czxid
            self._offsets.forget_topic(topic)
            for partition, holding in self.all.items():
                if partition[0] != topic:
                    continue
                if holding.machine.state is p.PartitionState.OWNED:
                    self._delivery.abandon(partition)
                    self._lost.append(partition)
                    self._loop.after_step(self._tell_lost)
                    self._take(partition, holding)
                elif holding.drain_timer is not None:
                    # The message in hand is of the earlier life, too: its position, committed now, would count.
                    self._delivery.abandon(partition)
                    self._drained(partition, holding, None)
                holding.position = None

    def tell_all(self, event: p.Event) -> None:
        """Give every partition's machine the same event."""
        for partition in list(self.all):
            self.handle(partition, event)

    def close(self) -> None:
        """Do nothing more."""
        self._closed = True

    # -- the machines of the partitions ----------------------------------------------------------------------------

    def handle(self, partition: Partition, event: p.Event) -> None:
        holding = self.all.get(partition)
        if holding is None or self._closed:
            return
        before = holding.machine.state
        actions = holding.machine.handle(event)
        if holding.machine.state is not before:
            # What was asked before says nothing any more. No write is among it: who waits for one stays where he is.
            holding.asked += 1
            holding.since = self._loop.clock()
            holding.blocked_told = False
            holding.uncommitted &= holding.machine.state in _LETTING_GO
            log.debug("%s %s-%s: %s -> %s after %s", self.member.consumer_id, *partition, before.value,
                      holding.machine.state.value, type(event).__name__)
            if before in (p.PartitionState.OWNED, p.PartitionState.DRAINING):
                holding.turn = 0
        if isinstance(event, p.Fenced):
            self._fenced()
        for action in actions:
            self._do_partition(partition, holding, action)
        if holding.machine.is_idle and self.all.get(partition) is holding:
            del self.all[partition]
        self._moved()

    def _do_partition(self, partition: Partition, holding: Holding, action: p.Action) -> None:
        match action:
            case p.Claim(thread_id, is_vacant):
                claim = self._claims.claim if is_vacant else self._vacancies.claim
                claim(partition, thread_id, self._teller(partition, holding))
            case p.AwaitEnd():
                told = self._teller(partition, holding)
                number = holding.asked
                self._vacancies.await_end(partition, told, self._owner_changed, lambda: holding.asked == number)
            case p.Inspect(watch):
                if watch:
                    # It is looked at because something happened to it: one that may not be read is not mine any more.
                    self._claims.inspect(partition, self._teller(partition, holding), self._owner_changed,
                                         unread=UNREAD_OWNER)
                else:
                    self._claims.inspect(partition, self._teller(partition, holding), sync=True)
            case p.Start():
                self._episodes.taken()
                self._take(partition, holding)
            case p.Drain():
                self._drain(partition, holding)
            case p.Rethread(thread_id, version):
                self._claims.rethread(partition, thread_id, version, self._teller(partition, holding))
            case p.Release():
                self._episodes.released()
                self._release(partition, holding)
            case p.Stop():
                self._stop(partition, holding)
            case p.Recheck():
                self._recheck(f"owner of {partition[0]}-{partition[1]}")

    def _teller(self, partition: Partition, holding: Holding) -> Callable[[p.Event], None]:
        """Takes the answer to a new question to the partition's machine.

        Answers of an ended session died with its nodes. Of two open questions only the later counts: it reads what
        the earlier one did, and a result of the earlier one after it would be news of a state long left.
        """
        fence = self._claims.fence
        holding.asked += 1
        number = holding.asked

        def told(event: p.Event) -> None:
            # Registering anew under the same session leaves what is under way in force.
            if not is_same_session(fence, self._claims.fence) or self.all.get(partition) is not holding:
                return
            if holding.asked != number:
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
        holding = self.all.get(partition)
        if holding is None or self._claims.fence is None:
            return
        holding.looked_at = self._loop.clock()
        self._claims.inspect(partition, self._teller(partition, holding), self._owner_changed)

    def _owner_changed(self, event: WatchEvent) -> None:
        """Watch callback: any thread."""
        topic, name = event.path.rsplit("/", 2)[-2:]
        self._loop.post(self.handle, (topic, int(name) if name.isdigit() else name), p.OwnerChanged())

    # -- taking ----------------------------------------------------------------------------------------------------

    def _take(self, partition: Partition, holding: Holding) -> None:
        """The owner node is mine: have delivery begin."""
        self._turns += 1
        holding.turn = self._turns
        self._taking.take(partition, holding, self._policy(partition), self._born.get(partition[0], 0))

    def _policy(self, partition: Partition) -> str:
        known = self._known_at_start is None or partition in self._known_at_start
        known = known and partition[0] not in self._born
        return self.member.reset_policy if known else "smallest"

    # -- letting go ------------------------------------------------------------------------------------------------

    def _drain(self, partition: Partition, holding: Holding) -> None:
        """Stop, let the message in hand finish, and see to it that this ends."""
        if not holding.started:
            self._delivery.abandon(partition)
            self._loop.post(self._drained, partition, holding, holding.position)
            return
        holding.started = False
        # Where it began must not be taken, and committed, for where it ended.
        holding.position = None
        self._turns += 1
        turn = holding.turn = self._turns

        def done(position: int) -> None:
            self._loop.post(finished, position)

        def finished(position: int) -> None:
            if holding.turn == turn:
                holding.turn = 0
                self._drained(partition, holding, position)

        def expired() -> None:
            if holding.turn == turn:
                log.warning("%s-%s: the message in hand took longer than %.1f s; released without it, it may come "
                            "again elsewhere", *partition, self.member.drain_timeout_s)
                holding.turn = 0
                self._drained(partition, holding, self._delivery.expire_drain(partition))

        holding.drain_timer = self._loop.call_later(self.member.drain_timeout_s, expired)
        self._delivery.drain(partition, done)

    def _drained(self, partition: Partition, holding: Holding, position: int | None) -> None:
        if holding.drain_timer is not None:
            holding.drain_timer.cancel()
            holding.drain_timer = None
        if self.all.get(partition) is not holding or holding.machine.state is not p.PartitionState.DRAINING:
            return
        holding.position = position
        if position is not None and self.member.auto_commit:
            # Who commits by hand goes on from the last commit, as any other member would: what was read since may
            # have been thrown away with the partition.
            self._offsets.remember(partition, position)
        self._turns += 1
        holding.turn = self._turns
        self._revoked[partition] = holding.turn
        self._loop.after_step(self._tell_revoked)

    def _tell_revoked(self) -> None:
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
                holding = self.all.get(partition)
                if holding is not None and holding.turn == turns[partition]:
                    holding.uncommitted = partition in failed
                    self.handle(partition, p.Drained())

        # Also without anything to commit: the release waits for whatever is still on its way.
        self._offsets.commit(positions, committed)

    def _release(self, partition: Partition, holding: Holding, tries: int = 5) -> None:
        """Delete the owner node; what could not be committed before is committed first, if it can be soon.

        A registration that a hand has deleted is made again within a moment; until then every write is refused.
        """
        if not holding.uncommitted or holding.position is None:
            self._claims.release(partition, self._teller(partition, holding))
            return
        holding.asked += 1
        number = holding.asked

        def committed(failed: Mapping[Partition, str]) -> None:
            if self.all.get(partition) is holding and holding.asked == number:
                holding.uncommitted = partition in failed
                if holding.uncommitted and tries > 1:
                    self._loop.call_later(_COMMIT_AGAIN_S, again)
                else:
                    self._claims.release(partition, self._teller(partition, holding))

        def again() -> None:
            if self.all.get(partition) is holding and holding.asked == number:
                self._release(partition, holding, tries - 1)

        self._offsets.commit({partition: holding.position}, committed)

    def _commit_reported(self, failed: Mapping[Partition, str]) -> None:
        for partition, reason in failed.items():
            log.warning("offset of %s-%s is not committed: %s", *partition, reason)

    def _stop(self, partition: Partition, holding: Holding) -> None:
        """Ownership ended without a release: at once nothing more is delivered.

        With auto-commit on, what was done is remembered for the next claim. Without it only the application knows what
        of it is safe: it may throw away in `on_partitions_lost` what it had not committed, and must get it again.
        """
        if holding.drain_timer is not None:
            holding.drain_timer.cancel()
            holding.drain_timer = None
        holding.turn = 0
        holding.started = False
        position = self._delivery.abandon(partition)
        if position is not None and self.member.auto_commit:
            self._offsets.remember(partition, position)
        self._episodes.lost()
        self._lost.append(partition)
        self._loop.after_step(self._tell_lost)

    def _tell_lost(self) -> None:
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
            holding = self.all.get(self._unsettled[-1])
            if holding is not None and not holding.is_settled:
                return False
            self._unsettled.pop()
        self._unsettled = [partition for partition, holding in self.all.items() if not holding.is_settled]
        return not self._unsettled

    @property
    def empty(self) -> bool:
        """Whether nothing is held or under way."""
        return all(holding.machine.state is p.PartitionState.FREE for holding in self.all.values())
