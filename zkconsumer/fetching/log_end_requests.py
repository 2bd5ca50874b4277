"""Asks the leader of partitions for the ends of their logs: start offsets, and checks after a change or an error.

A fetcher asks between its fetches, on its thread and over its connection. Rules, and which failure each prevents:
- Many partitions are asked for in one request: at the first start of a group thousands need their start offset.
- A position moves only to an end that the leader itself states: "out of range" alone moves nothing.
- Where the epoch ends in which the last message was read shows whether the log was cut off below the position. Its end
  does not: it may have grown beyond the position meanwhile.
- A broker of Kafka 0.7 closes the connection on a request for the offsets of a partition that it does not have. It
  answers a fetch, so it is asked for one byte of each partition first: a node that names too many partitions would end
  the connection, and the fetches of all other partitions with it, again and again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from rebalance.rebalance_statistics import Counters
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.errors import BrokerError, VersionNotServed
from simpleconsumer.types import MAX_INT64, Broker, FetchRequest, TopicPartition
from zkconsumer.fetching.fetch_state import (
    MOST_SEGMENTS,
    LogTruncated,
    Need,
    OutOfLog,
    OutOfRange,
    check_range,
    start_of_recent,
    truncated_at,
)
from zkconsumer.fetching.partition_queue import Chunk, FetchTask, PartitionQueue
from zkconsumer_error import ErrorCode

log = logging.getLogger(__name__)

_MOST_PARTITIONS: Final = 500
_MAY_NOT_ASK: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""Codes of brokers that do not let this user ask for epochs."""
_CHECKS: Final = frozenset((Need.END_CHECK, Need.RANGE_CHECK))
_SHORTEST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.1


class LogEndRequests:
    """The requests of one fetcher for the ends of logs.

    Args:
        consumer: The connection of the fetcher.
        failed: Called with a task that must be asked for again later, and the reason.
        not_led: Called with a task that this broker does not lead, and the reason.
        out_of_range: Called with each partition whose position turns out to be outside its log, with the offsets
            after its end that were read (`FetchState.behind_end`), and with where reading goes on.
        found_again: Called with a task whose log, on another leader or after a failure, has its position; in Kafka 0.7
            whether it has it or not, as a shorter log is another one.
        counters: Counts requests and errors.

    Threads: That of the fetcher.
    """

    def __init__(
        self,
        broker: Broker,
        consumer: SimpleConsumer,
        clock: Callable[[], float],
        counters: Counters,
        failed: Callable[[FetchTask, str], None],
        not_led: Callable[[FetchTask, str], None],
        out_of_range: OutOfRange,
        found_again: Callable[[FetchTask], None],
    ) -> None:
        self._broker = broker
        self._found_again = found_again
        self._consumer = consumer
        self._clock = clock
        self._counters = counters
        self._failed = failed
        self._not_led = not_led
        self._out_of_range = out_of_range
        self._paused_at = float("-inf")
        self._pause_s = 0.0

    def pause_for_more(self) -> None:
        """Pause, if all partitions need their start offset, so that more of them are asked for in one request.

        At the first start of a group thousands of partitions come one by one. The first is asked for at once; the pause
        before each further request doubles until no more partitions come. There is no pause while messages are fetched,
        as a fetch takes time in which partitions come, too.
        """
        passed_s = self._clock() - self._paused_at
        if passed_s > 2 * _LONGEST_PAUSE_S:
            self._pause_s = 0.0
        time.sleep(max(0.0, self._pause_s - passed_s))
        self._pause_s = min(max(2 * self._pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        self._paused_at = self._clock()

    def ask(self, tasks: Sequence[FetchTask]) -> None:
        """Ask for starts and ends of logs, of many partitions in one request."""
        now = self._clock()
        waiting = [task for task in tasks if task.state.need is not Need.FETCH and task.state.retry_at <= now]
        due = [task for task in waiting if task.ends_needed]
        for first in range(0, len(due), _MOST_PARTITIONS):
            asked = [task for task in due[first : first + _MOST_PARTITIONS] if task.is_wanted]
            if asked and not self._consumer.dialect.has_correlation_ids:
                asked = self._those_that_exist(asked)
            recent = [task for task in asked if task.since_ms is not None]
            if recent and recent[0].since_ms is not None:  # all have that of the member
                self._ask_recent(recent, recent[0].since_ms)
            asked = self._without_truncated(asked)
            ends: dict[FetchTask, list[int]] = {task: [] for task in asked if task.since_ms is None}
            for time_ms in (EARLIEST, LATEST):
                self._ask_ends(ends, time_ms)
            for task, found in ends.items():
                self._take_ends(task, found)

    def _without_truncated(self, tasks: list[FetchTask]) -> list[FetchTask]:
        """Have partitions go on where their logs were cut off below the position; return the other tasks.

        The end of a log does not show that: it may have grown beyond the position since.
        """
        known = {
            task.state.partition: task for task in tasks if task.state.need in _CHECKS and task.state.read_epoch >= 0
        }
        if not known or not self._consumer.dialect.chooses_versions:
            return tasks
        epochs = {name: (task.state.read_epoch, task.state.leader_epoch) for name, task in known.items()}
        self._counters.add("broker_requests", "epochs")
        try:
            answers = self._consumer.epoch_ends(epochs)
        except VersionNotServed:
            return tasks
        done: set[TopicPartition] = set()
        for (name, task), answer in zip(known.items(), answers, strict=True):
            end = truncated_at(task.state, answer)
            if answer.error_code and answer.error_code not in _MAY_NOT_ASK:
                self._refused(task, answer.error_code)
            elif end is not None and task.queue is not None:
                self._go_back(task, task.queue, end)
            else:
                continue
            done.add(name)
        return [task for task in tasks if task.state.partition not in done]

    def _go_back(self, task: FetchTask, queue: PartitionQueue, end: int) -> None:
        """Read on where a log was cut off; with the policy `stop`, no further."""
        state = task.state
        position, gone = state.offset, state.behind_end(end)
        self._counters.add("errors", "truncated")
        if task.policy == "stop":
            state.need = Need.NOTHING
            queue.push(Chunk(b"", MAX_INT64, None, error=LogTruncated(position, end)))
            return
        state.lost = range(end, position)
        log.warning(
            "%s/%s: its log was truncated at offset %d when its leader changed (broker %d now, epoch %d): messages %d "
            "to %d, read before from epoch %d, are lost, and other messages may have their offsets; continuing at %d",
            *state.partition, end, self._broker.id, state.leader_epoch, end, position - 1, state.read_epoch, end,
        )  # fmt: skip
        state.need = Need.FETCH
        self._out_of_range(state.partition, gone, end)
        queue.push_reset(end, gone)
        state.start_again(end)
        state.answered(self._clock())

    def _those_that_exist(self, tasks: list[FetchTask]) -> list[FetchTask]:
        """Return the tasks whose partitions a broker of Kafka 0.7 has, by one fetch; the others are not led by it."""
        self._counters.add("broker_requests", "fetch")
        one_byte_each = [FetchRequest(*task.state.partition, task.state.offset, 1) for task in tasks]
        answers = self._consumer.multifetch(one_byte_each)
        found: list[FetchTask] = []
        for task, answer in zip(tasks, answers, strict=True):
            if answer.error_code in self._consumer.dialect.not_leader_codes:
                self._counters.add("errors", "leader_moved")
                self._not_led(task, self._consumer.dialect.classify(answer, task.state.offset, 1, 1).reason)
            else:
                found.append(task)
        return found

    def _ask_recent(self, tasks: list[FetchTask], since_ms: int) -> None:
        """Find where logs of Kafka 0.7 start that were written to since a time."""
        found: dict[FetchTask, list[list[int]]] = {task: [] for task in tasks}
        # The list first: a segment that is written in between counts as written then, and is not passed over.
        for time_ms, most in ((LATEST, MOST_SEGMENTS), (since_ms, 1)):
            for task in list(found):
                self._counters.add("broker_requests", "offsets")
                [(code, offsets)] = self._consumer.multi_offsets_before([task.state.partition], time_ms, most)
                if code == 0 and (offsets or time_ms == since_ms):
                    found[task].append(offsets)
                    continue
                del found[task]
                reason = str(BrokerError(code, *task.state.partition)) if code else "the broker reports no offset"
                self._failed(task, reason)
        for task, (segments, before) in found.items():
            start = start_of_recent(segments, before)
            log.info(
                "%s/%s has no stored offset, and is newer than this member; of offsets %d to %d, those written since "
                "then start at %d", *task.state.partition, segments[-1], segments[0], start,
            )  # fmt: skip
            self._take_ends(task, [start])

    def _ask_ends(self, ends: dict[FetchTask, list[int]], time_ms: int) -> None:
        """Add one end of the log for each task that needs it; remove tasks without an answer."""
        wanted = [task for task in ends if time_ms in task.ends_needed]
        if not wanted:
            return
        requests = 1 if self._consumer.dialect.has_correlation_ids else len(wanted)
        self._counters.add("broker_requests", "offsets", requests)
        answers = self._consumer.multi_offsets_before([task.state.partition for task in wanted], time_ms)
        for task, (code, offsets) in zip(wanted, answers, strict=True):
            if code == 0 and offsets and offsets[0] >= 0:
                ends[task].append(offsets[0])
                continue
            del ends[task]
            named = f"offset {offsets[0]}, which is negative" if offsets else "no offset"
            if code:
                self._refused(task, code)
            else:
                self._failed(task, f"the broker reports {named}")

    def _refused(self, task: FetchTask, code: int) -> None:
        reason = str(BrokerError(code, *task.state.partition))
        if code in self._consumer.dialect.not_leader_codes:
            self._counters.add("errors", "leader_moved")
            self._not_led(task, reason)
        else:
            self._failed(task, reason)

    def _take_ends(self, task: FetchTask, ends: list[int]) -> None:
        """Handle the answer about the ends of a log."""
        state = task.state
        if state.need in (Need.RESOLVE, Need.BOUNDS):
            if task.resolved is not None and not task.is_cancelled:
                task.is_cancelled = True
                task.resolved(*ends)
        elif state.need is Need.END_CHECK:
            state.need = Need.FETCH
            if ends[0] >= state.offset or self._consumer.dialect.has_byte_positions:
                self._found_again(task)
            else:
                log.warning(
                    "%s/%s: its log ends at %d on broker %d, its leader now, below the position %d: messages were "
                    "lost with the former leader, unless the new leader is still catching up",
                    *state.partition,
                    ends[0],
                    self._broker.id,
                    state.offset,
                )
        else:
            self._decide_range(task, *ends)

    def _decide_range(self, task: FetchTask, earliest: int, latest: int) -> None:
        state, queue = task.state, task.queue
        state.need = Need.FETCH
        checked = check_range(state.offset, earliest, latest, task.policy)
        if not checked.is_reset or queue is None:
            reason = f"the broker reports offset {state.offset} as out of range, but the log has {earliest} to {latest}"
            self._failed(task, reason)
            return
        if task.policy == "stop":
            if state.offset > latest and state.is_doubtful(self._clock()):
                self._failed(task, f"offset {state.offset} is out of range, and the log ends at {latest}")
                state.doubted()
                return
            state.need = Need.NOTHING
            queue.push(Chunk(b"", MAX_INT64, None, error=OutOfLog(state.offset, earliest, latest)))
            return
        log.warning(
            "%s/%s: offset %d is out of range, the log has %d to %d; continuing at %d, as auto.offset.reset says",
            *state.partition,
            state.offset,
            earliest,
            latest,
            checked.offset,
        )
        self._counters.add("errors", "out_of_range")
        gone = state.behind_end(latest)
        self._out_of_range(state.partition, gone, checked.offset)
        queue.push_reset(checked.offset, gone)
        state.start_again(checked.offset)
        state.answered(self._clock())
