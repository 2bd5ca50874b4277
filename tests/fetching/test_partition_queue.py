"""The queue of one partition and wake-ups, without fetcher and stream."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from simpleconsumer.dialect import KAFKA08
from simpleconsumer.errors import DamagedOffset
from simpleconsumer.kafka08.message_encode import encode_message
from simpleconsumer.types import TopicPartition
from tests.fetching.feeding import Drained, Feed, chunk, message_set
from zkconsumer.fetching.byte_budget import ByteBudget, Charge
from zkconsumer.fetching.partition_queue import Chunk, InHand, PartitionQueue
from zkconsumer.wakeup import Wakeup

DEADLINE_S = 10.0


def within_deadline(call: Callable[[], Any]) -> Any:
    """What a call returns, on a thread of its own so that one without end fails the test only."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert results, f"it has not returned within {DEADLINE_S} s"
    return results[0]


# -- sleeping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [None, 0.0, 0.1, DEADLINE_S])
def test_a_thread_that_was_woken_before_does_not_wait(timeout_s: float | None) -> None:
    wakeup = Wakeup()
    wakeup.wake()
    wakeup.wake()
    assert within_deadline(lambda: wakeup.wait(timeout_s)) is True
    assert wakeup.wait(0.0) is False, "waking twice ends one sleep"


@pytest.mark.parametrize("timeout_s", [0.05, 0.5, 1.3])
def test_a_sleep_ends_at_its_time_out_shorter_or_longer_than_a_slice(timeout_s: float) -> None:
    before = time.monotonic()
    assert within_deadline(lambda: Wakeup().wait(timeout_s)) is False
    assert time.monotonic() - before >= timeout_s


def test_a_look_without_time_does_not_sleep() -> None:
    wakeup = Wakeup()
    assert not any(within_deadline(lambda: [wakeup.wait(time_s) for time_s in (0.0, -1.0) * 10]))


# -- a queue -----------------------------------------------------------------------------------------------------------


def test_a_new_queue_is_live_with_nothing_in_hand_and_nothing_committed() -> None:
    queue = Feed().queue(position=7)
    assert (queue.is_live, queue.is_settled, queue.in_hand, queue.failure) == (True, False, None, None)
    assert (queue.position, queue.committed) == (7, -1)


def test_a_chunk_is_charged_to_the_stream_that_it_is_for() -> None:
    feed = Feed()
    one = chunk(0, 2)
    feed.queue().push(one)
    assert (one.charge.stream, one.charge.size_bytes) == (feed.stream, len(message_set(0, 2)))


def test_the_high_watermark_of_its_answer_shows_which_offsets_of_a_chunk_are_damaged() -> None:
    feed = Feed()
    data = b"".join(encode_message(offset, None, b"value", 0) for offset in (0, 1, 20))
    feed.queue().push(Chunk(data, 21, KAFKA08, high_watermark=20))
    assert [next(feed.stream).offset for _ in range(2)] == [0, 1]
    with pytest.raises(DamagedOffset, match="t/0 at 2: offset 20 is not below 20, where the log ends"):
        next(feed.stream)


def test_after_a_reset_nothing_is_committed() -> None:
    queue = Feed().queue(position=9)
    queue.committed = 9
    queue.reset(3)
    assert (queue.position, queue.committed) == (3, -1)


@pytest.mark.parametrize("end", ["cancel", "drain", "drain with one in hand", "pause"])
def test_who_ends_before_the_reader_gets_to_a_reset_ends_where_it_leads(end: str) -> None:
    """The position is outside the log: it would be skipped up to there once it has grown past it."""
    feed = Feed()
    queue, done = feed.queue(position=90), Drained()
    queue.push(chunk(90, 92))
    queue.push_reset(10, range(31, 93))
    queue.push(chunk(10, 12))
    match end:
        case "cancel":
            assert queue.cancel() == 10
            return
        case "drain":
            queue.end(done)
        case "drain with one in hand":
            next(feed.stream)
            queue.end(done)
            assert done.positions == []
            queue.finish_hand(91)
        case "pause":
            queue.end()
            queue.when_hand_empty(done)
    assert done.positions == [10]


def test_a_position_that_the_log_has_stays_the_final_one_before_a_reset() -> None:
    queue = Feed().queue(position=25)
    queue.push(chunk(25, 40))
    queue.push_reset(30, range(31, 41))
    assert queue.cancel() == 25


def test_behind_a_reset_that_was_read_the_final_position_is_the_done_one() -> None:
    feed = Feed()
    queue = feed.queue(position=90)
    queue.push_reset(40, range(31, 91))
    queue.push(chunk(40, 42))
    assert [next(feed.stream).offset for _ in range(2)] == [40, 41]
    assert queue.cancel() == 41


def test_of_two_resets_that_nobody_has_read_the_second_one_counts() -> None:
    queue = Feed().queue(position=90)
    queue.push_reset(64, range(65, 91))
    queue.push_reset(0, range(1, 65))
    assert queue.cancel() == 0


def test_a_queue_that_was_ended_is_settled_when_it_has_reported_its_final_position() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 5))
    next(feed.stream)
    queue.end(done)
    assert (queue.is_live, queue.is_settled, done.positions) == (False, False, [])
    queue.finish_hand(1)
    assert (queue.is_settled, done.positions) == (True, [1])


def test_who_waits_for_the_message_in_hand_alone_leaves_the_queue_unsettled() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 5))
    next(feed.stream)
    queue.end()
    queue.when_hand_empty(done)
    queue.finish_hand(1)
    assert (queue.is_settled, done.positions) == (False, [1])


def test_a_queue_that_was_cancelled_is_settled_at_once_and_calls_no_callback() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 5))
    next(feed.stream)
    queue.end(done)
    assert queue.cancel() == 0
    queue.finish_hand(1)
    assert (queue.is_live, queue.is_settled, done.positions) == (False, True, [])


def test_a_chunk_that_is_taken_out_twice_costs_no_other_its_turn() -> None:
    feed, room = Feed(), []
    queue, first = feed.queue(), chunk(0, 2)
    queue.on_room(lambda: room.append("more"))
    queue.push(first)
    queue.push(chunk(2, 4))
    queue.take_out(first)
    queue.take_out(first)
    assert (len(queue.chunks), list(feed.stream._ready), room) == (1, [queue], ["more"])
    assert next(feed.stream).offset == 2


def test_a_live_queue_that_is_cancelled_delivers_nothing_more_and_gives_back_what_is_queued() -> None:
    feed = Feed()
    queue = feed.queue(position=7)
    queue.push(chunk(7, 9))
    assert queue.cancel() == 7
    assert (queue.is_live, queue.is_settled, list(queue.chunks), feed.budget.charged_bytes()) == (False, True, [], 0)


def test_a_queue_that_is_halted_gives_back_what_is_queued_and_keeps_its_position() -> None:
    feed = Feed()
    queue = feed.queue(position=7)
    queue.push(chunk(7, 9))
    queue.halt("broken framing")
    assert (queue.failure, queue.is_live, queue.position) == ("broken framing", True, 7)
    assert (list(queue.chunks), list(feed.stream._ready), feed.budget.charged_bytes()) == ([], [], 0)


class WokenReader:
    """A stream that counts how often it is woken."""

    def __init__(self) -> None:
        self._ready: deque[PartitionQueue] = deque()
        self._reader: object = None
        self.handed: InHand | None = None
        self.woken = 0

    def _wake(self) -> None:
        self.woken += 1


def test_a_chunk_and_the_end_of_a_queue_each_wake_the_reader() -> None:
    reader = WokenReader()
    queue = PartitionQueue(TopicPartition("t", 0), 0, reader, ByteBudget(1000))
    queue.push(chunk(0, 2))
    assert reader.woken == 1
    queue.end()
    assert reader.woken == 2


class SharedBudget(ByteBudget):
    """A budget at which another thread takes out the same chunk whenever one is given back."""

    queue: PartitionQueue

    def release(self, charge: Charge) -> None:
        super().release(charge)
        for one in [one for one in self.queue.chunks if one.charge is charge][:1]:
            self.queue.chunks.remove(one)


def test_two_threads_that_drop_the_same_chunks_empty_the_queue_and_give_each_back_once() -> None:
    feed, budget = Feed(), SharedBudget(1000)
    budget.queue = queue = PartitionQueue(TopicPartition("t", 0), 0, feed.stream, budget)
    for first in (0, 2, 4):
        queue.push(chunk(first, first + 2))
    queue.end()
    assert (list(queue.chunks), list(feed.stream._ready), budget.charged_bytes()) == ([], [], 0)
