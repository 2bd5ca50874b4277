"""Keeps the positions of the subscription state and those of the membership the same.

- A queue that has started is compared with the state: its position is taken, or it is set to that of the state.
- Positions that are to be reset are asked for on another thread, and set when a poll sees the answer.

Asks for the ends of logs to which positions are reset, on a thread of its own: a poll has its time, whoever answers.

A broker that does not answer would else hold up the poll, and with it the records of all other partitions.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from rebalance.lease import lease_clock
from simpleconsumer.types import TopicPartition
from zkconsumer.errors import PauseFailed, ZkConsumerError
from zkconsumer.fetching.partition_queue import PartitionQueue
from zkconsumer.member.membership import Membership
from zkconsumer.polling.cluster_questions import ClusterQuestions
from zkconsumer.polling.errors import NoOffsetForPartition
from zkconsumer.polling.joined_member import JoinedMember
from zkconsumer.polling.partition_position import OffsetReset, PositionState, ResetRequest
from zkconsumer.polling.poll_reader import Taken
from zkconsumer.polling.subscription_state import SubscriptionState

log = logging.getLogger(__name__)
_ANSWER_S: Final = 30.0
_CLOSE_S: Final = 1.0
"""Nobody needs the answer any more: a broker that does not answer must not use up the time of a close."""


class ResetAnswer(NamedTuple):
    """The ends of some logs.

    Attributes:
        wanted: The partitions that were asked for.
        found: Partition -> offset, for known offsets alone.
    """

    wanted: Mapping[TopicPartition, ResetRequest]
    found: Mapping[TopicPartition, int]


class ResetThread:
    """The resets of one consumer.

    Args:
        questions: Asks the cluster; closed by this thread alone.
        wake: Called, on the thread, when there is an answer.
        answer_s: Longest wait for one answer, in seconds.

    Threads: `ask`, `answers` and `close` that of the application which polls.
    """

    def __init__(self, questions: ClusterQuestions, wake: Callable[[], None], answer_s: float = _ANSWER_S) -> None:
        self._questions = questions
        self._wake = wake
        self._answer_s = answer_s
        self._asked: queue.SimpleQueue[tuple[bool, Mapping[TopicPartition, ResetRequest]] | None]
        self._asked = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[ResetAnswer] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def ask(self, wanted: Mapping[TopicPartition, ResetRequest], *, first: bool) -> None:
        """Ask where these logs start, or end."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="zkconsumer-resets", daemon=True)
            self._thread.start()
        self._asked.put((first, wanted))

    def answers(self) -> list[ResetAnswer]:
        """Return the answers that were not taken yet."""
        found: list[ResetAnswer] = []
        while True:
            try:
                found.append(self._answers.get_nowait())
            except queue.Empty:
                return found

    def close(self, timeout_s: float) -> None:
        """End the thread; a request that is under way ends by itself, and is waited for a second at most."""
        self._is_closed = True
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(max(min(timeout_s, _CLOSE_S), 0.0))
            if self._thread.is_alive():
                log.info("thread %s still waits for a broker, and ends within %g s", self._thread.name,
                         self._answer_s)  # fmt: skip

    def _run(self) -> None:
        try:
            while (asked := self._asked.get()) is not None and not self._is_closed:
                first, wanted = asked
                try:
                    found, _ = self._questions.known_ends(list(wanted), self._answer_s, first=first)
                except ZkConsumerError:  # it is asked again
                    found = {}
                self._answers.put(ResetAnswer(wanted, found))
                self._wake()
        finally:
            self._questions.close()


_RESET_AGAIN_S: Final = 0.2
_TOGETHER_S: Final = 1.0
"""How long partitions without an offset are not named while those of others are not known."""


class FollowedPositions:
    """The positions of one consumer.

    Args:
        state: The subscription and the positions.
        joined: The membership.
        resets: Asks for the ends of logs.

    Threads: That of the application which polls.
    """

    def __init__(self, state: SubscriptionState, joined: JoinedMember, resets: ResetThread) -> None:
        self._state = state
        self._joined = joined
        self._resets = resets
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._pauses_differ = False
        self._refused_since = math.inf

    # -- the membership ------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Take the positions of queues that have started; set the others to the state's.

        Raises:
            NoOffsetForPartition: Partitions have none, and no policy says where to start.
        """
        member, assigned = self._joined.member, self._state.assigned
        if member is None:
            self._queues.clear()
            return
        self._take_resets()
        if self._pauses_differ:
            self._follow_pauses()
        for name in assigned:
            queue = member.delivery.queue_of(name)
            if queue is None or queue.is_settled or self._queues.get(name) is queue:
                continue
            if assigned.state(name) is PositionState.INITIALIZING:
                if _refusal(queue):
                    continue
                assigned.take_committed({name: queue.position})
            position = assigned.position(name)
            if position is None:
                continue
            if position == queue.position and not _refusal(queue):
                self._queues[name] = queue
            else:
                self._set(name, position)
        self._queues = {name: queue for name, queue in self._queues.items() if name in assigned}
        without = self._without_start(member)
        if without:
            raise NoOffsetForPartition(without)

    def _take_resets(self) -> None:
        """Take note of positions that the log did not have, and that were reset."""
        resets = self._joined.reader.resets
        for name, offset in list(resets.items()):
            if name in self._queues and name in self._state.assigned:
                self._state.assigned.seek(name, offset)
            del resets[name]

    def _without_start(self, member: Membership) -> list[TopicPartition]:
        """Return the partitions that have no offset, and for which no policy says where to start: all at once.

        Partitions of the group come with their offsets, and the listener may still seek partitions that it has not
        heard of. Partitions that the application assigns are known one after the other.
        """
        assigned, unreported = self._state.assigned, self._joined.events.unreported
        waiting = [name for name in assigned.initializing() if name not in unreported]
        if not waiting or self._state.is_of_group:
            return waiting
        refused = [name for name in waiting
                   if (queue := member.delivery.queue_of(name)) is not None and _refusal(queue)]  # fmt: skip
        now = lease_clock()
        self._refused_since = min(self._refused_since, now) if refused else math.inf
        is_all = len(refused) == len(waiting) or now >= self._refused_since + _TOGETHER_S
        return refused if is_all else []

    def may_read(self, queue: PartitionQueue) -> bool:
        """Return whether records of a queue may be returned: it is the present one, at the present position."""
        name = queue.partition
        if name in self._joined.events.unreported:
            return False  # the listener may still seek
        return self._queues.get(name) is queue and self._state.assigned.is_fetchable(name)

    def advance(self, taken: Collection[Taken]) -> None:
        """Move positions after the records that were taken."""
        self._take_resets()
        assigned = self._state.assigned
        for each in taken:
            name = each.queue.partition
            if each.next_offset >= 0:
                assigned.advance(name, each.next_offset)

    def note_log_ends(self) -> None:
        """Take note of where logs end, as last fetched, also where nothing came."""
        member, assigned = self._joined.member, self._state.assigned
        if member is not None:
            for name, status in member.delivery.partition_status().items():
                assigned.log_end_known(name, status.high_watermark)

    # -- resets --------------------------------------------------------------------------------------------------------

    def reset_due(self) -> None:
        """Reset positions to the ends of logs that are known by now, and ask for the other ends."""
        assigned = self._state.assigned
        now = lease_clock()
        for answer in self._resets.answers():
            for name, offset in answer.found.items():
                if assigned.reset_answered(name, answer.wanted[name], offset):
                    self._set(name, offset)
            waiting = assigned.awaiting_reset(math.inf)
            unknown = [name for name, request in answer.wanted.items() if waiting.get(name) == request]
            assigned.postpone(unknown, now + _RESET_AGAIN_S)
        due = assigned.awaiting_reset(now)
        for first in (True, False):
            policy = OffsetReset.EARLIEST if first else OffsetReset.LATEST
            wanted = {name: request for name, request in due.items() if request.policy is policy}
            if wanted:
                assigned.postpone(wanted, math.inf)  # until the answer comes
                self._resets.ask(wanted, first=first)

    # -- the application -----------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set a position; fetched messages are kept if it is there already, as after a poll that continued there."""
        if self._is_at(partition, offset):
            self._joined.reader.finish(self._queues[partition])
            return
        self._state.assigned.seek(partition, offset)
        self._set(partition, offset)

    def _is_at(self, name: TopicPartition, offset: int) -> bool:
        """Return whether the records of a queue go on at an offset, and nothing that was fetched was found bad."""
        queue, reader = self._queues.get(name), self._joined.reader
        if queue is None or not queue.is_live or name in reader.resets or not reader.is_sound(queue):
            return False
        position = self._state.assigned.position(name) if name in self._state.assigned else None
        return position is not None and position == offset == reader.next_offset(queue)

    def rewind(self, lost: Mapping[TopicPartition, int]) -> None:
        """Read again what was taken, and did not reach the application."""
        for name, offset in lost.items():
            if name in self._state.assigned:
                self.seek(name, offset)

    def _set(self, name: TopicPartition, offset: int) -> None:
        """Have the membership fetch from another offset; a partition that has not started is set when it has."""
        self._queues.pop(name, None)
        member = self._joined.member
        if member is None:
            return

        self._joined.call(lambda: member.seek((name.topic, name.partition), offset))

    # -- pauses --------------------------------------------------------------------------------------------------------

    def pause(self, names: Collection[TopicPartition]) -> None:
        """Fetch and return nothing of partitions."""
        self._state.assigned.pause(names)
        for name in names:
            self._queues.pop(name, None)
        self._follow_pauses()

    def resume(self, names: Iterable[TopicPartition]) -> None:
        """End a pause; fetching continues after the messages in hand, when they are done."""
        self._state.assigned.resume(names)
        self._follow_pauses()

    def _follow_pauses(self) -> None:
        """Pause and resume in the membership what is paused and resumed here, as soon as it owns the partitions."""
        member, assigned = self._joined.member, self._state.assigned
        self._pauses_differ = False
        if member is None:
            self._pauses_differ = bool(assigned.paused())
            return
        wanted, there = assigned.paused(), member.paused()
        for names, call in (
            (wanted - there, member.pause),
            ({name for name in there - wanted if name in assigned}, member.resume),
        ):
            if not names or self._is_done(call, names):
                continue
            # Some are not owned yet, as those of an assignment that was made just now: a later poll sees to them.
            for name in names:
                if not self._is_done(call, [name]):
                    self._pauses_differ = True

    def _is_done(self, call: Callable[[Collection[TopicPartition]], None], names: Collection[TopicPartition]) -> bool:
        try:
            call(names)
        except PauseFailed:
            return False
        return True


def _refusal(queue: PartitionQueue) -> bool:
    """Return whether a queue only says why its partition does not start."""
    try:
        return isinstance(queue.chunks[0].error, ValueError)
    except IndexError:
        return False
