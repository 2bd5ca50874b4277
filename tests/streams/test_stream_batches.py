"""Batches keep what the stream promises for messages: nothing lost or repeated, done when the next one is asked for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, cycle
from types import FrameType
from typing import Any

import pytest

from rebalance.lease import lease_clock
from simpleconsumer.dialect import KAFKA08
from simpleconsumer.errors import CrcMismatch, MessageTooLarge
from simpleconsumer.kafka08.message_encode import encode_message_set
from tests.fetching.feeding import Drained, Feed, chunk, message_set, values, with_bad_crc
from zkconsumer import ConcurrentStreamUse, ConsumerTimeout, MessageBatch, PartitionStopped
from zkconsumer.fetching import partition_queue
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.streams import batches, stream
from zkconsumer.testing.waiting import wait_until

DEADLINE_S = 10.0


def offsets_of(batch: MessageBatch) -> list[int]:
    found: list[int] = batch.record_batch.column("offset").to_pylist()
    return found


def until_timeout(batches: Iterator[MessageBatch]) -> list[MessageBatch]:
    found: list[MessageBatch] = []
    with suppress(ConsumerTimeout):
        for batch in batches:
            found.append(batch)  # noqa: PERF402 - what came before the time-out counts
    return found


def damaged() -> Chunk:
    return Chunk(with_bad_crc(message_set(0, 5), 2), 5, KAFKA08)


# What a batch is


def test_a_batch_says_where_it_comes_from_and_carries_columns() -> None:
    feed = Feed()
    data = encode_message_set([(b"k", b"v"), (None, None)], first_offset=5)
    feed.queue(partition=3, position=5).push(Chunk(data, 7, KAFKA08))
    batch = next(feed.stream.batches())
    assert (batch.topic, batch.partition) == ("t", 3)
    assert (batch.offset, batch.last_offset, batch.next_offset, len(batch)) == (5, 6, 7, 2)
    assert batch.record_batch.to_pydict() == {
        "key": [b"k", None], "value": [b"v", None], "offset": [5, 6],
        "timestamp_ms": [None, None], "timestamp_type": [-1, -1],
    }  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_all_messages_come_in_order_with_no_more_than_asked_for_in_a_batch(codec: str) -> None:
    feed = Feed()
    queue = feed.queue(position=10)
    queue.push(chunk(0, 500, codec))
    queue.push(chunk(500, 1000, codec))
    batches = until_timeout(feed.stream.batches(max_messages=64, columns=["value"]))
    assert {tuple(batch.record_batch.schema.names) for batch in batches} == {("value",)}
    assert [value for batch in batches for value in batch.record_batch.column("value").to_pylist()] == values(10, 1000)
    assert [batch.offset for batch in batches[1:]] == [batch.next_offset for batch in batches[:-1]]
    assert max(map(len, batches)) == 64
    assert queue.done_position() == 1000
    assert feed.budget.charged_bytes() == 0


def test_a_limit_of_bytes_makes_small_batches() -> None:
    feed = Feed()
    feed.queue().push(chunk(0, 1000))
    found = [len(batch) for batch in until_timeout(feed.stream.batches(max_bytes=2000))]
    assert sum(found) == 1000
    assert 40 < max(found) < 70  # a message takes 35 bytes


def test_what_cannot_be_asked_for_is_refused_before_anything_is_read() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(chunk(0, 5))
    for arguments, text in (
        ({"max_messages": 0}, "max_messages is 0"),
        ({"max_bytes": 0}, "max_batch_bytes is 0"),
        ({"columns": ["velue"]}, "velue"),
        ({"columns": []}, "columns is"),
    ):
        with pytest.raises(ValueError, match=text):
            feed.stream.batches(**arguments)  # type: ignore[arg-type]
    for name in ("max_messages", "max_bytes"):
        with pytest.raises(TypeError, match=f"{name} is 1000.0; it must be a whole number, or None"):
            feed.stream.batches(**{name: 1000.0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="decoders"):
        Feed(value_decoder=bytes.decode).stream.batches()
    assert queue.done_position() == 0


# Done, revoked, without a lease


def test_a_batch_is_done_when_the_next_one_is_asked_for() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(chunk(0, 10))
    batches = feed.stream.batches(max_messages=4)
    next(batches)
    assert queue.done_position() == 0
    assert feed.stream._reader == threading.get_ident()
    next(batches)
    assert queue.done_position() == 4
    next(batches)
    with pytest.raises(ConsumerTimeout):
        next(batches)
    assert queue.done_position() == 10


def test_what_was_committed_of_a_batch_in_hand_is_done() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 10))
    next(feed.stream.batches())
    queue.committed = 6
    assert queue.done_position() == 6
    queue.end(done)
    assert done.positions == [], "four messages are in hand still"
    queue.committed = 10
    queue.settle_if_done()
    assert done.positions == [10]


def test_a_drain_waits_for_the_batch_in_hand_and_reports_once() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 10))
    batches = feed.stream.batches(max_messages=4)
    next(batches)
    queue.end(done)
    assert done.positions == []
    for _ in range(2):
        with pytest.raises(ConsumerTimeout):
            next(batches)
    assert done.positions == [4]


def test_a_drain_that_expired_does_not_count_the_batch_in_hand() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(chunk(0, 10))
    batches = feed.stream.batches(max_messages=4)
    next(batches)
    next(batches)
    queue.end(Drained())
    assert queue.cancel() == 4


def test_a_revocation_in_the_middle_of_a_chunk_leaves_the_other_partitions_going() -> None:
    feed = Feed()
    going, staying = feed.queue(0), feed.queue(1)
    going.push(chunk(0, 10))
    staying.push(chunk(70, 72))
    batches = feed.stream.batches(max_messages=4)
    assert next(batches).partition == 0
    going.end(Drained())
    batch = next(batches)
    assert (batch.partition, offsets_of(batch)) == (1, [70, 71])


def test_the_lease_is_looked_at_for_each_batch_and_what_it_held_back_comes_later() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(chunk(0, 12))
    batches = feed.stream.batches(max_messages=4)
    assert offsets_of(next(batches)) == [0, 1, 2, 3]
    feed.lease.until = lease_clock() - 1
    for _ in range(2):
        with pytest.raises(ConsumerTimeout):
            next(batches)
    assert (queue.done_position(), queue.in_hand) == (4, None)
    feed.lease.until = float("inf")
    assert [offsets_of(next(batches)) for _ in range(2)] == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_reset_moves_the_position_between_batches() -> None:
    feed = Feed()
    queue = feed.queue(position=100)
    queue.push(chunk(100, 102))
    queue.push(Chunk(b"", 3, None, reset_to=3))
    queue.push(chunk(3, 5))
    batches = feed.stream.batches()
    assert [offsets_of(next(batches)) for _ in range(2)] == [[100, 101], [3, 4]]
    assert queue.done_position() == 3


def test_batches_and_messages_by_turns_lose_and_repeat_nothing() -> None:
    feed = Feed()
    queue = feed.queue()
    for first in range(0, 100, 25):
        queue.push(chunk(first, first + 25, "gzip" if first else "none"))
    by_two, by_five = feed.stream.batches(max_messages=2), feed.stream.batches(max_messages=5)
    seen: list[int] = []
    ways: list[Any] = ["messages", "messages", by_two, by_five, by_five, "messages"]
    for way in cycle(ways):
        if len(seen) == 100:
            break
        seen += [next(feed.stream).offset] if way == "messages" else offsets_of(next(way))
    assert seen == list(range(100))


# What is wrong with one message


def test_a_bad_message_is_raised_between_two_batches() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(damaged())
    batches = feed.stream.batches()
    assert offsets_of(next(batches)) == [0, 1]
    with pytest.raises(CrcMismatch, match="t/0 at 2"):
        next(batches)
    assert queue.done_position() == 2
    assert offsets_of(next(batches)) == [3, 4]
    assert queue.done_position() == 3
    queue.end(done)
    with pytest.raises(ConsumerTimeout):
        next(batches)
    assert done.positions == [5]


def test_a_bad_message_that_batches_raised_about_is_passed_by_messages_and_the_other_way_round() -> None:
    for first, then in (("batches", "messages"), ("messages", "batches")):
        feed = Feed()
        feed.queue().push(damaged())
        ways: dict[str, Any] = {"batches": feed.stream.batches(max_messages=1), "messages": feed.stream}
        assert [next(ways[first]).offset for _ in range(2)] == [0, 1]
        with pytest.raises(CrcMismatch):
            next(ways[first])
        assert [next(ways[then]).offset for _ in range(2)] == [3, 4]
        with pytest.raises(ConsumerTimeout):
            next(ways[then])


def test_skip_passes_over_bad_messages(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(on_message_error="skip")
    feed.queue().push(damaged())
    batches = feed.stream.batches()
    assert [offsets_of(next(batches)) for _ in range(2)] == [[0, 1], [3, 4]]
    assert "t/0 at 2" in caplog.text


def test_stop_ends_that_partition_alone() -> None:
    feed = Feed(on_message_error="stop")
    bad, good = feed.queue(0), feed.queue(1)
    bad.push(damaged())
    good.push(chunk(0, 2))
    batches = feed.stream.batches()
    found = [next(batches), next(batches)]
    assert [(batch.partition, offsets_of(batch)) for batch in found] == [(0, [0, 1]), (1, [0, 1])]
    with pytest.raises(ConsumerTimeout):
        next(batches)
    assert bad.done_position() == 2
    assert "t/0 at 2" in str(bad.failure)


def test_the_fetchers_error_comes_in_its_place() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(chunk(0, 1))
    queue.push(Chunk(b"", 2, None, error=MessageTooLarge("t", 0, 1, 2, "it takes 99 bytes, and the limit is 9")))
    queue.push(chunk(2, 3))
    batches = feed.stream.batches()
    assert offsets_of(next(batches)) == [0]
    with pytest.raises(MessageTooLarge, match="t/0 at 1: it takes 99 bytes"):
        next(batches)
    assert offsets_of(next(batches)) == [2]
    assert queue.done_position() == 2


def test_broken_framing_is_raised_once_and_ends_the_partition_behind_its_last_good_message() -> None:
    feed = Feed()
    bad, good = feed.queue(0), feed.queue(1)
    bad.push(Chunk(message_set(0, 2) + b"\0" * 8 + b"\xff\xff\xff\xff" + b"rest of it", 2**63 - 1, KAFKA08))
    good.push(chunk(0, 1))
    batches = feed.stream.batches()
    assert offsets_of(next(batches)) == [0, 1]
    with pytest.raises(PartitionStopped, match="t/0 at 2"):
        next(batches)
    assert next(batches).partition == 1
    assert bad.done_position() == 2
    with pytest.raises(ConsumerTimeout):
        next(batches)


# Threads, the end, interrupts


def test_a_second_thread_is_refused_while_the_first_waits_and_the_end_ends_both() -> None:
    feed = Feed(consumer_timeout_ms=-1)
    batches, found = feed.stream.batches(), []
    reader = threading.Thread(target=lambda: found.extend(batches), daemon=True)
    reader.start()
    wait_until(lambda: bool(feed.stream._inside), DEADLINE_S, "the reader to wait")
    with pytest.raises(ConcurrentStreamUse, match="thread-0"):
        next(feed.stream.batches())
    feed.queue().push(chunk(0, 3))
    wait_until(lambda: bool(found), DEADLINE_S, "the batch to come")
    feed.stream._end()
    reader.join(DEADLINE_S)
    assert not reader.is_alive()
    assert [offsets_of(batch) for batch in found] == [[0, 1, 2]]
    assert list(batches) == []


def test_a_failure_is_raised_every_time() -> None:
    feed = Feed(consumer_timeout_ms=-1)
    feed.stream._fail(RuntimeError("group refused"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="group refused"):
            next(feed.stream.batches())


@contextmanager
def interrupted_at_line(number: int) -> Iterator[list[str]]:
    """Raise KeyboardInterrupt at the so many-th line that runs in the stream; the list then names the line."""
    places: list[str] = []
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in (stream.__file__, batches.__file__, partition_queue.__file__):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield places
    finally:
        sys.settrace(before)


def read_all(reading: Iterator[MessageBatch], seen: list[object]) -> None:
    """Note offsets and errors; one during whose return an interrupt comes may come again."""
    while True:
        error: BaseException | None
        try:
            seen += offsets_of(next(reading))
            continue
        except ConsumerTimeout:
            return
        except CrcMismatch as mismatch:
            error = mismatch
        except KeyboardInterrupt as interrupt:
            error = interrupt.__context__
        if isinstance(error, CrcMismatch) and seen[-1] != ("bad", error.offset):
            seen.append(("bad", error.offset))


def test_an_interrupt_at_any_line_loses_and_repeats_nothing() -> None:
    expected = [0, 1, ("bad", 2), 3, 4, *range(5, 12)]
    for number in count(1):
        feed = Feed()
        one = feed.queue()
        one.push(damaged())
        one.push(chunk(5, 12, "gzip"))
        reading, seen = feed.stream.batches(max_messages=3), []
        with interrupted_at_line(number) as places:
            read_all(reading, seen)
        assert seen == expected, f"interrupted in {places}"
        assert one.done_position() == 12
        assert feed.budget.charged_bytes() == 0, f"interrupted in {places}"
        if not places:
            break
    assert number > 300
