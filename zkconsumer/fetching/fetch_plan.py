"""Plans what a fetcher asks for next: partitions with room, within the byte budget.

Most partitions get no messages most of the time. Planning a fetch of thousands of them takes milliseconds, so a fetcher
repeats its last fetch without a new plan as long as nothing changes (`QuietRound`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import FetchedPartition, FetchRequest
from zkconsumer.config import ConsumerConfig
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.byte_shares import Candidate
from zkconsumer.fetching.fetch_answers import AskedPartition
from zkconsumer.fetching.fetch_state import FETCHED, Need, poll_wait_ms
from zkconsumer.fetching.partition_queue import FetchTask


class PlannedFetch(NamedTuple):
    """The partitions and sizes that a fetcher asks for.

    Attributes:
        asked: The partitions of the request.
        requests: The same partitions as the request names them.
        wait_ms: How long the broker may wait for data.
        tasks: All tasks of the fetcher.
        candidates: The partitions for which the fetcher asked the byte budget.
        sizes: How many bytes the budget granted to each candidate; 0 leaves it out of the request.
        changes: How many tasks the fetcher had received when it made the plan.
    """

    asked: list[AskedPartition]
    requests: list[FetchRequest]
    wait_ms: int
    tasks: list[FetchTask]
    candidates: list[Candidate]
    sizes: list[int]
    changes: int


class FetchPlans:
    """Plans the fetches of one fetcher.

    Args:
        asker: Who asks the budget: the fetcher.
        consumer: Its connection.
        count_fetchers: Returns how many fetchers share the byte budget now.
        wake: Called, on any thread, when there may be room for partitions that were left out.
        most_bytes: Most bytes of one request.

    Attributes:
        is_refused: Whether the last fetch left out a partition because the budget had no room.

    Threads: That of the fetcher.
    """

    def __init__(
        self,
        asker: object,
        config: ConsumerConfig,
        budget: ByteBudget,
        clock: Callable[[], float],
        consumer: SimpleConsumer,
        count_fetchers: Callable[[], int],
        wake: Callable[[], None],
        most_bytes: int,
    ) -> None:
        self.is_refused = False
        self._asker = asker
        self._budget = budget
        self._clock = clock
        self._consumer = consumer
        self._count_fetchers = count_fetchers
        self._wake = wake
        self._most_bytes = most_bytes
        self._most_chunks = config.queued_max_message_chunks
        # Kafka allows both times to be equal; every empty answer would then come after the deadline.
        self._longest_poll_ms = min(config.fetch_wait_max_ms, config.socket_timeout_ms - 1)

    def plan(self, tasks: list[FetchTask], changes: int) -> PlannedFetch:
        """Return what to ask for now, and reserve the bytes of it.

        Args:
            changes: As in `PlannedFetch`.
        """
        now = self._clock()
        ready: list[FetchTask] = []
        left_out_s: list[float] = []
        for task in tasks:
            state, queue = task.state, task.queue
            if queue is None or state.need not in FETCHED or state.retry_at > now:
                continue
            # One more than the setting allows, as the chunk that is being read counts, too.
            if len(queue.chunks) <= self._most_chunks:
                ready.append(task)
            else:
                left_out_s.append(state.waits_for_room(now))
        # The partition that has waited longest comes first, so that none is left out for ever: neither of a request,
        # nor of the answers, of which the first batch alone comes whole if it is larger than was asked for.
        ready.sort(key=lambda task: (task.state.asked_at, task.state.fed_at))
        candidates = self._candidates(ready)
        sizes = self._reserve(candidates)
        asked: list[AskedPartition] = []
        for task, size in zip(ready, sizes, strict=True):
            if size:
                task.state.asked(now)
                asked.append(AskedPartition(task, task.state.asked_offset, size))
            else:
                left_out_s.append(task.state.waits_for_room(now))
        self.is_refused = len(asked) < len(ready)
        requests = [
            FetchRequest(*one.task.state.partition, one.offset, one.size_bytes, one.task.state.leader_epoch)
            for one in asked
        ]
        wait_ms = poll_wait_ms(self._longest_poll_ms, min(left_out_s, default=None))
        return PlannedFetch(asked, requests, wait_ms, tasks, candidates, sizes, changes)

    def has_room_for(self, planned: PlannedFetch) -> bool:
        """Reserve the bytes of a fetch again; return whether the budget still grants all of them."""
        return self._reserve(planned.candidates) == planned.sizes

    def _candidates(self, ready: list[FetchTask]) -> list[Candidate]:
        most_bytes = self._consumer.pace.most_bytes
        if most_bytes is not None:  # a limit of whole answers is part of the request
            most_bytes = None if self._consumer.limits_answers else max(most_bytes // max(len(ready), 1), 1)
        return [task.state.candidate(task.queue.stream, most_bytes) for task in ready if task.queue is not None]

    def _reserve(self, candidates: list[Candidate]) -> list[int]:
        return self._budget.ask(self._asker, candidates, self._count_fetchers(), self._most_bytes, self._wake)


class QuietRound(NamedTuple):
    """A fetch of all partitions of a fetcher whose answer changed nothing: it had neither messages nor errors.

    If the same answer comes again, only the time of the last answer changes. Only the fetcher changes the state of its
    partitions, so a round stays valid until the fetcher receives or loses a task.
    """

    planned: PlannedFetch
    answers: list[FetchedPartition]

    @classmethod
    def after(cls, planned: PlannedFetch, answers: list[FetchedPartition]) -> QuietRound | None:
        """Return the round; None if the fetch left out a partition, or if a partition is not at rest."""
        if len(planned.asked) < len(planned.tasks):
            return None
        for task in planned.tasks:
            state = task.state
            is_at_rest = (
                state.need is Need.FETCH and state.error is None and state.doubted_at is None and state.empty == 0
                and state.follows_until is None and task.is_placed
            )  # fmt: skip
            if not is_at_rest:
                return None
        return cls(planned, answers)

    def is_of(self, tasks: list[FetchTask], changes: int) -> bool:
        """Return whether the fetcher still has the same tasks and has not received one of them again."""
        return changes == self.planned.changes and tasks == self.planned.tasks

    def is_answered_again(self, answers: list[FetchedPartition], now: float) -> bool:
        """Return whether the same answers came again; if so, record when."""
        if answers is not self.answers:
            return False
        for task in self.planned.tasks:
            task.state.answered_at = now
            task.state.throttled_until = 0.0
        return True
