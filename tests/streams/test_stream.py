"""Streams as the application reads them, and what the coordinator relies on."""

from __future__ import annotations

import gc
import signal
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from rebalance.lease import lease_clock
from simpleconsumer.dialect import KAFKA08
from simpleconsumer.errors import CrcMismatch, DamagedOffset, MessageTooLarge
from simpleconsumer.kafka08.message_encode import encode_message
from simpleconsumer.kafka08.message_set import encode_message_set
from simpleconsumer.types import Message, TopicPartition
from tests.fetching.feeding import (
    MIB,
    Drained,
    Feed,
    HeldLease,
    chunk,
    config_of,
    message_set,
    offsets,
    take,
    with_bad_crc,
)
from zkconsumer.errors import ConcurrentStreamUse, ConsumerTimeout, DecoderFailed, PartitionStopped
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.partition_queue import Chunk, PartitionQueue
from zkconsumer.streams.stream import KafkaStream, StreamParts
from zkconsumer.testing.waiting import wait_until

DEADLINE_S = 10.0


# -- order and positions -----------------------------------------------------------------------------------------------


def test_messages_come_in_order_with_everything_they_carry() -> None:
    feed = Feed()
    feed.queue().push(chunk(0, 3))
    first, *_ = messages = take(feed.stream, 3)
    assert (first.topic, first.partition, first.offset, first.next_offset) == ("t", 0, 0, 1)
    assert [message.value for message in messages] == [b"value 0", b"value 1", b"value 2"]


def test_messages_below_the_position_are_passed_over_in_a_compressed_set() -> None:
    feed = Feed()
    queue = feed.queue(position=5)
    queue.push(chunk(0, 10, "gzip"))
    assert offsets(take(feed.stream, 5)) == [5, 6, 7, 8, 9]
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert not feed.stream._ready


def test_a_message_is_done_when_the_next_one_is_asked_for() -> None:
    feed = Feed()
    queue = feed.queue(position=7)
    assert queue.done_position() == 7
    queue.push(chunk(7, 9))
    next(feed.stream)
    assert queue.done_position() == 7
    next(feed.stream)
    assert queue.done_position() == 8
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert queue.done_position() == 9


def test_chunks_of_several_partitions_take_turns() -> None:
    feed = Feed()
    hot, cold = feed.queue(0), feed.queue(1)
    hot.push(chunk(0, 2))
    cold.push(chunk(50, 52))
    hot.push(chunk(2, 4))
    assert offsets(take(feed.stream, 6)) == [0, 1, 50, 51, 2, 3]


def test_a_read_chunk_gives_its_bytes_back_and_wakes_the_fetcher() -> None:
    feed = Feed()
    queue = feed.queue()
    room = []
    queue.on_room(lambda: room.append(feed.budget.charged_bytes()))
    queue.push(chunk(0, 2))
    assert feed.budget.charged_bytes() == len(message_set(0, 2))
    take(feed.stream, 2)
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert room == [0]


def test_a_reset_moves_the_position_once_the_reader_gets_there() -> None:
    feed = Feed()
    queue = feed.queue(position=100)
    queue.push(chunk(100, 101))
    queue.push(Chunk(b"", 3, None, reset_to=3))
    queue.push(chunk(3, 5))
    assert next(feed.stream).offset == 100
    assert queue.done_position() == 100
    assert offsets(take(feed.stream, 2)) == [3, 4]
    assert queue.done_position() == 4


def test_a_reset_without_messages_behind_it_moves_the_position_too() -> None:
    feed = Feed()
    queue = feed.queue(position=100)
    queue.push(Chunk(b"", 900, None, reset_to=900))
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert queue.done_position() == 900


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_what_was_committed_before_a_reset_does_not_make_the_messages_behind_it_done() -> None:
    feed = Feed()
    queue = feed.queue(position=900)
    queue.committed = 900  # `commit_offsets()` stored the position as it was
    queue.push(Chunk(b"", 3, None, reset_to=3))
    queue.push(chunk(3, 5))
    assert next(feed.stream).offset == 3
    assert queue.done_position() == 3, "in hand, and not done"
    queue.committed = 900  # the answer to another such call, late
    assert queue.done_position() == 3
    queue.committed = 4
    assert queue.done_position() == 4


def test_the_time_out_leaves_the_stream_usable() -> None:
    feed = Feed(consumer_timeout_ms=20)
    with pytest.raises(ConsumerTimeout, match=r"consumer\.timeout\.ms = 20"):
        next(feed.stream)
    feed.queue().push(chunk(0, 1))
    assert next(feed.stream).offset == 0


def test_a_waiting_reader_wakes_for_a_message() -> None:
    feed = Feed(consumer_timeout_ms=-1)
    with Reading(lambda: next(feed.stream)) as reader:
        feed.queue().push(chunk(4, 5))
    assert reader.result.offset == 4


@pytest.mark.catalogue("I2")
def test_a_waiting_reader_wakes_for_the_end_and_the_end_lasts() -> None:
    feed = Feed(consumer_timeout_ms=-1)
    with Reading(lambda: list(feed.stream)) as reader:
        feed.stream._end()
    assert reader.result == []
    assert list(feed.stream) == []


def test_a_failure_is_raised_every_time() -> None:
    feed = Feed(consumer_timeout_ms=-1)
    failure = RuntimeError("group refused")
    with Reading(lambda: next(feed.stream)) as reader:
        feed.stream._fail(failure)
    assert reader.error is failure
    with pytest.raises(RuntimeError, match="group refused"):
        next(feed.stream)


def test_a_signal_interrupts_a_reader_that_waits_without_end(interrupt_after: Callable[[float], None]) -> None:
    feed = Feed(consumer_timeout_ms=-1)
    interrupt_after(0.05)
    with pytest.raises(KeyboardInterrupt):
        next(feed.stream)
    feed.queue().push(chunk(0, 1))
    assert next(feed.stream).offset == 0


def test_shutdown_from_a_signal_handler_ends_a_waiting_reader() -> None:
    feed = Feed(consumer_timeout_ms=-1)
    before = signal.signal(signal.SIGALRM, lambda *_: feed.stream._end())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert list(feed.stream) == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupt_at_any_moment_loses_and_repeats_nothing(interrupt_after: Callable[[float], None]) -> None:
    # What next() returned and what the loop body got to see can differ by the message that the interrupt threw away
    # between the two; the stream itself says with `handed` which that was.
    feed = Feed()
    total, interrupts = 6000, 0
    seen: list[int] = []
    queue = feed.queue()
    for first in range(0, total, 500):
        queue.push(chunk(first, first + 500, "gzip" if first % 1000 else "none"))
    step_s = 0.00003
    with suppress(KeyboardInterrupt):  # the last one may come when all is read
        while queue.done_position() < total:
            step_s = step_s * 1.1 if step_s < 0.004 else 0.00003
            try:
                interrupt_after(step_s)
                for message in feed.stream:
                    seen.append(message.offset)
            except KeyboardInterrupt:
                interrupts += 1
                handed = feed.stream.handed
                if handed is not None and (not seen or handed.offset != seen[-1]):
                    seen.append(handed.offset)
            except ConsumerTimeout:
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert interrupts > 10
    assert seen == list(range(total))


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_without_a_lease_nothing_is_handed_over() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(chunk(0, 3))
    assert next(feed.stream).offset == 0
    feed.lease.until = lease_clock() - 1
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert queue.done_position() == 1
    assert queue.in_hand is None
    feed.lease.until = float("inf")
    assert offsets(take(feed.stream, 2)) == [1, 2]


def test_the_lease_is_looked_at_for_each_message_not_for_each_chunk() -> None:
    feed = Feed()
    ticks = iter(range(1000))
    feed.stream._clock = lambda: float(next(ticks))
    feed.lease.until = 6.0
    feed.queue().push(chunk(0, 100))
    taken: list[int] = []
    with pytest.raises(ConsumerTimeout):
        taken.extend(message.offset for message in feed.stream)
    assert 0 < len(taken) < 6
    assert taken == list(range(len(taken)))


def test_a_reader_that_waits_for_the_lease_goes_on_when_it_is_renewed() -> None:
    lease = HeldLease()
    lease.until = 0.0
    feed = Feed(lease, consumer_timeout_ms=-1)
    feed.queue().push(chunk(0, 1))
    with Reading(lambda: next(feed.stream)) as reader:
        lease.until = float("inf")
    assert reader.result.offset == 0


@pytest.mark.catalogue("L3")
def test_no_lease_while_waiting_for_data_still_times_out() -> None:
    feed = Feed(consumer_timeout_ms=30)
    feed.lease.until = 0.0
    feed.queue().push(chunk(0, 1))
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)


# -- revocation --------------------------------------------------------------------------------------------------------


def test_a_drain_with_nothing_in_hand_is_over_at_once() -> None:
    feed = Feed()
    queue, done = feed.queue(position=3), Drained()
    queue.push(chunk(3, 5))
    queue.end(done)
    assert done.positions == [3]
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert feed.budget.charged_bytes() == 0


def test_a_drain_waits_for_the_message_in_hand_and_reports_once() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 5))
    take(feed.stream, 2)
    queue.end(done)
    assert done.positions == []
    assert queue.done_position() == 1
    for _ in range(2):
        with pytest.raises(ConsumerTimeout):
            next(feed.stream)
    assert done.positions == [2]


def test_a_drain_that_expired_does_not_count_the_message_in_hand() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 5))
    take(feed.stream, 2)
    queue.end(done)
    assert queue.cancel() == 1
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert done.positions == []


def test_other_partitions_go_on_after_a_revocation_in_the_middle_of_a_chunk() -> None:
    feed = Feed()
    going, staying = feed.queue(0), feed.queue(1)
    going.push(chunk(0, 5))
    staying.push(chunk(70, 72))
    next(feed.stream)
    going.end(Drained())
    assert [(message.partition, message.offset) for message in take(feed.stream, 2)] == [(1, 70), (1, 71)]


@pytest.mark.catalogue("E1")
def test_a_partition_that_comes_back_starts_where_its_drain_ended() -> None:
    feed = Feed()
    old, done = feed.queue(), Drained()
    old.push(chunk(0, 10))
    take(feed.stream, 4)
    old.end(done)
    new = feed.queue(position=4)
    new.push(chunk(4, 10))
    assert offsets(take(feed.stream, 6)) == [4, 5, 6, 7, 8, 9]
    assert done.positions == [4]


@pytest.mark.catalogue("E1")
def test_a_chunk_that_arrives_for_a_revoked_partition_is_dropped() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.end(Drained())
    queue.push(chunk(0, 5))
    assert not feed.stream._ready
    assert feed.budget.charged_bytes() == 0


def test_what_was_committed_is_done_for_the_drain() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(chunk(0, 5))
    take(feed.stream, 2)
    queue.committed = 2
    queue.end(done)
    assert done.positions == [2]


class TellingLease(HeldLease):
    """A lease that makes a call whenever it is checked."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    @property
    def until(self) -> float:  # type: ignore[override]
        self._tell()
        return float("inf")


@pytest.mark.parametrize("in_chunk", [0, 2], ids=["first of its chunk", "in the middle of its chunk"])
@pytest.mark.parametrize("moment", ["decoder", "clock", "lease"])
def test_a_revocation_inside_next_sees_the_message_in_hand_or_prevents_it(moment: str, in_chunk: int) -> None:
    # The revocation comes from within next(), at each point where it calls something that is not its own.
    revoked: list[int] = []
    done, due = Drained(), threading.Event()

    def at(name: str) -> None:
        if due.is_set() and name == moment and not revoked:
            queue.end(done)
            revoked.append(queue.done_position())

    def clock() -> float:
        at("clock")
        return lease_clock()

    def decode(value: bytes) -> bytes:
        at("decoder")
        return value

    lease = TellingLease(lambda: at("lease"))
    stream = KafkaStream(StreamParts("thread-0", config_of(consumer_timeout_ms=0), lease, clock, value_decoder=decode))
    queue = PartitionQueue(TopicPartition("t", 0), 0, stream, ByteBudget(MIB))
    queue.push(chunk(0, 5))
    taken = take(stream, in_chunk)
    due.set()
    try:
        taken.append(next(stream))
        assert done.positions == [], "told as final while a message was handed over"
        assert revoked == [in_chunk]
    except ConsumerTimeout:
        pass
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert revoked
    assert done.positions == [len(taken)]


# -- what is wrong with one message ------------------------------------------------------------------------------------


def damaged() -> Chunk:
    return Chunk(with_bad_crc(message_set(0, 5), 2), 5, KAFKA08)


@pytest.mark.catalogue("G3")
def test_a_bad_message_is_raised_once_and_the_next_call_continues_behind_it() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(damaged())
    take(feed.stream, 2)
    with pytest.raises(CrcMismatch, match="t/0 at 2"):
        next(feed.stream)
    assert queue.done_position() == 2
    assert next(feed.stream).offset == 3
    assert queue.done_position() == 3
    assert next(feed.stream).offset == 4


def test_a_bad_message_in_hand_holds_up_a_drain_until_the_next_one_is_asked_for() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(damaged())
    take(feed.stream, 2)
    with pytest.raises(CrcMismatch):
        next(feed.stream)
    queue.end(done)
    assert done.positions == []
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert done.positions == [3]


def test_skip_passes_over_bad_messages(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(on_message_error="skip")
    feed.queue().push(damaged())
    assert offsets(take(feed.stream, 4)) == [0, 1, 3, 4]
    assert "t/0 at 2" in caplog.text


def test_stop_ends_that_partition_alone() -> None:
    feed = Feed(on_message_error="stop")
    bad, good = feed.queue(0), feed.queue(1)
    bad.push(damaged())
    good.push(chunk(0, 2))
    taken = [(message.partition, message.offset) for message in take(feed.stream, 4)]
    assert taken == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert bad.failure is not None
    assert "t/0 at 2" in bad.failure
    assert bad.done_position() == 2
    bad.push(chunk(5, 6))
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)


def test_a_bad_message_inside_a_compressed_set_costs_that_message_alone() -> None:
    # The inner set is damaged before it is wrapped, so the checksum of the wrapper is right.
    inner = zlib.compress(with_bad_crc(message_set(0, 5), 2), wbits=31)
    body = struct.pack(">bbii", 0, 1, -1, len(inner)) + inner
    message = struct.pack(">I", zlib.crc32(body)) + body
    feed = Feed()
    feed.queue().push(Chunk(struct.pack(">qi", 4, len(message)) + message, 5, KAFKA08))
    take(feed.stream, 2)
    with pytest.raises(CrcMismatch, match="t/0 at 2"):
        next(feed.stream)
    assert offsets(take(feed.stream, 2)) == [3, 4]


def test_the_fetchers_error_comes_in_its_place_between_the_messages() -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(chunk(0, 1))
    queue.push(Chunk(b"", 2, None, error=MessageTooLarge("t", 0, 1, 2, "it takes 99 bytes, and the limit is 9")))
    queue.push(chunk(2, 3))
    assert next(feed.stream).offset == 0
    with pytest.raises(MessageTooLarge, match="t/0 at 1: it takes 99 bytes"):
        next(feed.stream)
    assert queue.done_position() == 1
    assert next(feed.stream).offset == 2
    assert queue.done_position() == 2


def test_broken_framing_ends_the_partition_behind_its_last_good_message() -> None:
    feed = Feed()
    bad, good = feed.queue(0), feed.queue(1)
    bad.push(Chunk(message_set(0, 2) + b"\0" * 8 + b"\xff\xff\xff\xff" + b"rest of it", 2**63 - 1, KAFKA08))
    good.push(chunk(0, 1))
    assert offsets(take(feed.stream, 2)) == [0, 1]
    with pytest.raises(PartitionStopped, match="t/0 at 2"):
        next(feed.stream)
    message = next(feed.stream)
    assert (message.partition, message.offset) == (1, 0)
    assert bad.done_position() == 2
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)


def test_a_bad_message_of_a_revoked_partition_is_not_raised() -> None:
    feed = Feed()
    queue, done = feed.queue(), Drained()
    queue.push(damaged())
    take(feed.stream, 2)
    queue.end(done)
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert done.positions == [2]


# -- decoders ----------------------------------------------------------------------------------------------------------


def test_decoders_make_key_and_value() -> None:
    feed = Feed(value_decoder=lambda data: data.decode().upper())
    feed.queue().push(chunk(0, 1))
    message = next(feed.stream)
    assert (message.key, message.value) == (None, "VALUE 0")


def test_a_decoder_that_raises_costs_its_message_and_no_other() -> None:
    def decode(data: bytes) -> int:
        number = int(data.split()[1])
        if number % 2:
            raise ValueError(f"odd {number}")
        return number

    feed = Feed(value_decoder=decode)
    queue = feed.queue()
    queue.push(chunk(0, 4))
    queue.push(chunk(4, 6))
    got: list[object] = []
    for _ in range(6):
        try:
            got.append(next(feed.stream).value)
        except DecoderFailed as error:
            got.append((error.topic, error.partition, error.offset, str(error.__cause__)))
    assert got == [0, ("t", 0, 1, "odd 1"), 2, ("t", 0, 3, "odd 3"), 4, ("t", 0, 5, "odd 5")]
    assert queue.done_position() == 5


def test_a_decoder_that_always_raises_passes_each_message_once() -> None:
    feed = Feed(value_decoder=lambda data: 1 // 0)
    queue = feed.queue(position=5)
    queue.push(chunk(0, 10, "gzip"))
    for offset in range(5, 10):
        with pytest.raises(DecoderFailed, match=f"t/0 at {offset}: the decoder failed: ZeroDivisionError"):
            next(feed.stream)
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert queue.done_position() == 10


def test_what_a_decoder_refused_is_kept_as_it_came_even_if_the_other_decoder_was_done() -> None:
    feed = Feed(key_decoder=int, value_decoder=int)
    feed.queue().push(Chunk(bytes(encode_message_set([(b"7", b"no number")], offsets=[0])), 1, KAFKA08))
    with pytest.raises(DecoderFailed) as caught:
        next(feed.stream)
    assert (caught.value.key, caught.value.value) == (b"7", b"no number")


def test_skip_passes_over_messages_that_their_decoder_refuses() -> None:
    feed = Feed(value_decoder=lambda data: 1 // (int(data.split()[1]) % 3), on_message_error="skip")
    feed.queue().push(chunk(0, 6))
    assert offsets(take(feed.stream, 4)) == [1, 2, 4, 5]


# -- threads -----------------------------------------------------------------------------------------------------------


def test_a_second_thread_is_refused_while_the_first_waits() -> None:
    feed = Feed(consumer_timeout_ms=-1)
    with Reading(lambda: next(feed.stream)):
        wait_until(lambda: feed.stream._inside, DEADLINE_S, "the reader to wait")
        with pytest.raises(ConcurrentStreamUse, match="thread-0"):
            next(feed.stream)
        feed.queue().push(chunk(0, 1))


def is_in(thread: Reading, function: str) -> bool:
    """Whether a thread is running a function, or one that it has called."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


def test_a_second_thread_is_refused_while_the_first_inflates() -> None:
    large = encode_message_set([Message("t", 0, 1, 2, None, bytes(60 * MIB))], "gzip", offsets=[1])
    feed = Feed(decoded_max_bytes=64 * MIB)
    feed.queue().push(Chunk(message_set(0, 1) + bytes(large), 2, KAFKA08))
    next(feed.stream)
    with Reading(lambda: next(feed.stream)) as reader:
        wait_until(lambda: is_in(reader, "decompress"), DEADLINE_S, "the reader to inflate", interval_s=0.0001)
        with pytest.raises(ConcurrentStreamUse):
            next(feed.stream)
    assert reader.result.offset == 1


def test_a_stream_may_go_from_thread_to_thread() -> None:
    feed = Feed()
    feed.queue().push(chunk(0, 2))
    with Reading(lambda: next(feed.stream)) as reader:
        pass
    assert reader.result.offset == 0
    assert feed.stream._reader == reader.ident
    assert next(feed.stream).offset == 1
    assert feed.stream._reader == threading.get_ident()


def test_messages_leave_no_garbage_for_the_collector() -> None:
    feed = Feed()
    feed.queue().push(chunk(0, 500))
    next(feed.stream)
    gc.collect()
    gc.disable()
    try:
        take(feed.stream, 499)
        assert gc.collect() == 0
    finally:
        gc.enable()


# -- tools -------------------------------------------------------------------------------------------------------------


class Reading:
    """Runs a call on another thread; leaving the block waits for it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.ident: int | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.ident = threading.get_ident()
        try:
            self.result = self._call()
        except (RuntimeError, ConcurrentStreamUse, ConsumerTimeout) as error:
            self.error = error

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the reader did not return"


@pytest.fixture
def interrupt_after() -> Iterator[Callable[[float], None]]:
    """Has KeyboardInterrupt raised in this thread after some seconds."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # an interrupt in a callback of the collector, of which hypothesis has one, would be swallowed
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- damaged offsets ---------------------------------------------------------------------------------------------------


def plain(*entries: int) -> bytes:
    return b"".join(encode_message(offset, None, b"v", 0) for offset in entries)


def all_of(feed: Feed, reading: Iterator[Any], most: int = 100) -> list[object]:
    """What a stream hands over and raises, messages by their offsets, until there is no more."""
    seen: list[object] = []
    while len(seen) < most:
        try:
            found = next(reading)
        except ConsumerTimeout:
            break
        except DamagedOffset as error:
            seen.append(("bad", error.offset))
        else:
            seen += [found.offset] if isinstance(found, Message) else found.record_batch.column("offset").to_pylist()
    return seen


@pytest.mark.parametrize("by", ["messages", "batches"])
def test_no_error_of_a_chunk_is_raised_again_when_its_end_is_short_of_its_next_offset(by: str) -> None:
    """Many damaged offsets: the last place is not the one behind which the fetch continues."""
    feed = Feed()
    queue = feed.queue()
    queue.push(Chunk(plain(0, 1, -5, -6), 10, KAFKA08, high_watermark=20))
    reading = feed.stream if by == "messages" else feed.stream.batches()
    assert all_of(feed, reading) == [0, 1, ("bad", 2), ("bad", 3)]
    assert queue.done_position() == 4
    assert not feed.stream._ready


@pytest.mark.catalogue("G2a")
@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("by", ["messages", "batches"])
def test_a_chunk_whose_offsets_go_back_again_and_again_is_read_to_its_end_once(by: str, policy: str) -> None:
    feed = Feed(on_message_error=policy)
    queue = feed.queue(position=30)
    data = plain(40, 53, -9, 60, 52, 31, -1, 33, 32, 45, 68, -2, 44, 61, 41, -3)
    queue.push(Chunk(data, 69, KAFKA08, high_watermark=69))
    reading = feed.stream if by == "messages" else feed.stream.batches()
    seen = all_of(feed, reading)
    assert len(seen) <= 16
    assert not feed.stream._ready
    assert feed.budget.charged_bytes() == 0


def test_a_position_never_goes_back_within_a_chunk() -> None:
    feed = Feed()
    queue = feed.queue(position=30)
    data = plain(40, 53, -9, 60, 52, 31, -1, 33, 32, 45, 68, -2, 44, 61, 41, -3)
    queue.push(Chunk(data, 69, KAFKA08, high_watermark=69))
    positions = [queue.done_position()]
    with suppress(ConsumerTimeout):
        while True:
            with suppress(DamagedOffset):
                next(feed.stream)
            positions.append(queue.position)
    assert positions == sorted(positions)
