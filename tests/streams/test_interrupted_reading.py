"""A reader that is interrupted again and again advances, and nothing is lost or repeated.

The interrupt is raised before a line of the consumer that is chosen by its number, or sent by a timer or a thread.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import simpleconsumer
import zkconsumer
from simpleconsumer import kernel
from simpleconsumer.dialect import KAFKA08
from simpleconsumer.errors import CrcMismatch
from simpleconsumer.kafka08.message_encode import encode_message_set
from tests.fetching.feeding import Drained, Feed, chunk, message_set, with_bad_crc
from zkconsumer import ConsumerTimeout
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.streams.batches import StreamBatches
from zkconsumer.testing.waiting import Deadline, wait_until

DEADLINE_S = 60.0
CODE = tuple(str(Path(package.__file__ or "").parent) for package in (zkconsumer, simpleconsumer))
MESSAGES = 3000


def many_sizes(codec: str = "none", most_bytes: int = 60) -> Chunk:
    """Messages of many sizes in one chunk: to find where each starts takes a step for each."""
    dice = random.Random(1)
    pairs = [(None, dice.randbytes(dice.randrange(most_bytes))) for _ in range(MESSAGES)]
    return Chunk(bytes(encode_message_set(pairs, codec)), MESSAGES, KAFKA08)


def reading_of(feed: Feed, way: str) -> Iterator[Any]:
    return feed.stream.batches(max_bytes=20_000) if way == "batches" else feed.stream


class Interrupted(BaseException):
    """The exception that interrupts the reader."""


@contextmanager
def interrupted_at(is_time: Callable[[str], bool]) -> Iterator[None]:
    """Raise `Interrupted` before each line of the consumer on this thread for which `is_time` returns True."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line" and is_time(f"{frame.f_code.co_qualname}:{frame.f_lineno}"):
            raise Interrupted
        return trace

    before = sys.gettrace()
    gc.disable()  # it would end connectors that other tests have dropped, here and under the trace
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        gc.enable()


def note(found: Any, seen: list[object]) -> None:
    """Add what was handed over to what was seen, once."""
    if isinstance(found, CrcMismatch):
        news: list[object] = [("bad", found.offset)]
    elif hasattr(found, "record_batch"):
        news = found.record_batch.column("offset").to_pylist()
    else:
        news = [] if found is None or seen[-1:] == [("bad", found.offset)] else [found.offset]
    if seen[-len(news) :] != news:
        seen += news


def read_all(feed: Feed, reading: Iterator[Any], seen: list[object], calls: int = 1000) -> int:
    """Note offsets and errors until the time-out; return how many calls were interrupted.

    What an interrupt discarded while `next()` returned is in `handed`; an error, in the context of the interrupt.
    """
    interrupted = 0
    for _ in range(calls):
        try:
            note(next(reading), seen)
        except ConsumerTimeout:
            return interrupted
        except CrcMismatch as error:
            note(error, seen)
        except Interrupted as interrupt:
            interrupted += 1
            note(interrupt.__context__ if isinstance(interrupt.__context__, CrcMismatch) else feed.stream.handed, seen)
    raise AssertionError(f"{calls} calls, and the end was not reached: {seen[-1:]}")


# By the number of the line


class InterruptedEachTime:
    """A reader that is interrupted in each call after so many lines."""

    def __init__(self, reading: Iterator[Any], lines: int) -> None:
        self._reading = reading
        self._lines = lines

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        number = count(1)
        with interrupted_at(lambda _: next(number) == self._lines):
            return next(self._reading)


@pytest.mark.parametrize(("path", "lines"), [("kernel", 90), ("kernel", 120), ("plain", 150), ("plain", 400)])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batches_advance_when_each_call_is_interrupted_after_so_many_lines(
    monkeypatch: pytest.MonkeyPatch, codec: str, path: str, lines: int
) -> None:
    if path == "plain":
        monkeypatch.setattr(kernel, "compiled", None)
    feed = Feed()
    queue = feed.queue()
    queue.push(many_sizes(codec))
    seen: list[object] = []
    interrupted = read_all(feed, InterruptedEachTime(reading_of(feed, "batches"), lines), seen)
    assert seen == list(range(MESSAGES))
    assert interrupted >= 3
    assert queue.done_position() == MESSAGES
    assert feed.budget.charged_bytes() == 0


@pytest.mark.parametrize("way", ["batches", "messages"])
def test_a_second_interrupt_at_any_line_loses_and_repeats_nothing(way: str) -> None:
    data = with_bad_crc(message_set(0, 5), 2) if way == "batches" else message_set(0, 5)
    expected = [0, 1, ("bad", 2), 3, 4, *range(5, 12)] if way == "batches" else list(range(12))
    for number in count(1):
        feed, seen, interrupted = Feed(), [], []
        queue = feed.queue()
        queue.push(Chunk(data, 5, KAFKA08))
        queue.push(chunk(5, 12, "gzip"))
        reading = reading_of(feed, way)
        with interrupted_at(lambda line: "decode" in line), pytest.raises(Interrupted):
            next(reading)
        lines = count(1)

        def is_time(
            line: str, lines: Iterator[int] = lines, number: int = number, interrupted: list[str] = interrupted
        ) -> bool:
            if next(lines) == number:
                interrupted.append(line)
                return True
            return False

        with interrupted_at(is_time):
            read_all(feed, reading, seen)
        assert seen == expected, f"interrupted at {interrupted}"
        assert queue.done_position() == 12
        assert feed.budget.charged_bytes() == 0, f"interrupted at {interrupted}"
        if not interrupted:
            break
    assert number > 150


# By a clock, or by another thread


class Interrupts:
    """Interrupts this thread every other millisecond while it is ready, and never twice without its notice.

    Attributes:
        is_ready: set by the reader; cleared by each interrupt.
        count: interrupts so far.
    """

    def __init__(self) -> None:
        self.is_ready = False
        self.count = 0
        self.lock = threading.Lock()

    def end(self) -> None:
        """Interrupt no more; an interrupt that was already sent is raised in here."""
        with self.lock:
            self.is_ready = False
        for _ in range(100):
            threading.get_ident()

    def is_due(self) -> bool:
        if not self.is_ready:
            return False
        self.is_ready = False
        self.count += 1
        return True


@contextmanager
def interrupted_by_a_clock() -> Iterator[Interrupts]:
    interrupts = Interrupts()

    def interrupt(number: int, frame: object) -> None:
        if interrupts.is_due():
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        yield interrupts
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def interrupted_by_a_thread() -> Iterator[Interrupts]:
    interrupts, over = Interrupts(), threading.Event()
    reader = ctypes.c_ulong(threading.get_ident())
    start = _thread.start_new_thread

    def start_uninterrupted(call: Callable[[], None], arguments: tuple[()]) -> int:
        # Up to Python 3.11 a new thread has the number of the one that starts it until it runs, and is hit instead.
        runs = threading.Event()
        with interrupts.lock:
            number = start(lambda: (runs.set(), call()), arguments)
            assert runs.wait(DEADLINE_S)
        return number

    def interrupt() -> None:
        while not over.wait(0.002):
            with interrupts.lock:
                if interrupts.is_due():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(reader, ctypes.py_object(Interrupted))

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("zkconsumer.streams.cursor._thread.start_new_thread", start_uninterrupted)
            yield interrupts
    finally:
        over.set()
        thread.join()


def read_under_interrupts(feed: Feed, reading: Iterator[Any], interrupts: Interrupts, seen: list[object]) -> None:
    """Note what is handed over until the time-out; each step may be interrupted, and is then done again."""
    deadline = Deadline(DEADLINE_S)
    is_over = False

    def read() -> bool:
        interrupts.is_ready = True
        try:
            while True:
                note(feed.stream.handed, seen)
                next(reading)
        except ConsumerTimeout:
            interrupts.end()
            return True

    while not is_over:
        assert not deadline.expired, f"{interrupts.count} interrupts, and the end was not reached: {seen[-1:]}"
        with suppress(Interrupted):
            is_over = read()


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    """An interrupt in a callback of the collector (hypothesis has one) would be swallowed, with a warning."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("interrupted", [interrupted_by_a_clock, interrupted_by_a_thread])
@pytest.mark.parametrize("way", ["batches", "messages"])
def test_a_reader_advances_under_interrupts_every_other_millisecond(
    interrupted: Callable[[], AbstractContextManager[Interrupts]], way: str, without_garbage_collection: None
) -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(many_sizes("gzip", most_bytes=5000))  # slower to decompress than the time between two interrupts
    seen: list[object] = []
    reading = feed.stream.batches() if way == "batches" else feed.stream
    with interrupted() as interrupts:
        read_under_interrupts(feed, reading, interrupts, seen)
    assert interrupts.count > 0
    assert seen == list(range(MESSAGES))
    assert queue.done_position() == MESSAGES
    assert feed.budget.charged_bytes() == 0


# While it is decoded elsewhere


class Gated:
    """A stream whose first call was interrupted in decoding, which from then on waits for a gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
        self.feed = Feed(**settings)
        self.queue = self.feed.queue()
        self.queue.push(chunk(0, 3))
        self.batches = self.feed.stream.batches()
        self.is_under_way, self.gate = threading.Event(), threading.Event()
        with interrupted_at(lambda line: "decode" in line), pytest.raises(Interrupted):
            next(self.batches)
        decode = StreamBatches._decode

        def gated(*arguments: Any, **named: Any) -> Iterator[Any]:
            self.is_under_way.set()
            assert self.gate.wait(DEADLINE_S)
            yield from decode(*arguments, **named)

        monkeypatch.setattr(StreamBatches, "_decode", gated)

    def when_under_way(self, call: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            assert self.is_under_way.wait(DEADLINE_S)
            call()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def test_the_time_out_is_not_for_what_is_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(monkeypatch, consumer_timeout_ms=0)
    thread = gated.when_under_way(gated.gate.set)
    assert len(next(gated.batches)) == 3
    thread.join()


def test_the_end_does_not_wait_for_what_is_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(monkeypatch, consumer_timeout_ms=-1)
    thread = gated.when_under_way(gated.feed.stream._end)
    assert list(gated.batches) == []
    thread.join()
    gated.gate.set()


def test_what_was_revoked_while_it_was_decoded_is_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    gated, drained = Gated(monkeypatch, consumer_timeout_ms=0), Drained()

    def revoke() -> None:
        gated.queue.end(drained)
        gated.gate.set()

    thread = gated.when_under_way(revoke)
    with pytest.raises(ConsumerTimeout):
        next(gated.batches)
    thread.join()
    assert drained.positions == [0]
    assert gated.feed.budget.charged_bytes() == 0


def test_what_is_being_decoded_as_a_batch_is_read_by_messages_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(monkeypatch)

    def interrupt(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr("zkconsumer.wakeup.Wakeup.wait", interrupt)
        with pytest.raises(Interrupted):
            next(gated.batches)
    assert gated.is_under_way.wait(DEADLINE_S)
    assert [next(gated.feed.stream).offset for _ in range(3)] == [0, 1, 2]
    gated.gate.set()
    with pytest.raises(ConsumerTimeout):
        next(gated.batches)


def test_a_thread_that_died_before_it_started_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    gated, start, dead = Gated(monkeypatch), _thread.start_new_thread, [1, 2]
    gated.gate.set()

    def start_at_the_third_try(call: Callable[[], None], arguments: tuple[()]) -> int:
        return dead.pop() if dead else start(call, arguments)

    monkeypatch.setattr(_thread, "start_new_thread", start_at_the_third_try)
    assert len(next(gated.batches)) == 3


def test_where_the_system_gives_no_thread_it_is_decoded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    gated = Gated(monkeypatch)
    gated.gate.set()
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert len(next(gated.batches)) == 3


def test_an_error_without_a_place_is_raised_once_and_decoding_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(monkeypatch)
    gated.gate.set()
    decode, errors = StreamBatches._decode, [MemoryError("no room")]

    def failing(*arguments: Any, **named: Any) -> Iterator[Any]:
        if errors:
            raise errors.pop()
        yield from decode(*arguments, **named)

    monkeypatch.setattr(StreamBatches, "_decode", failing)
    with pytest.raises(MemoryError, match="no room"):
        next(gated.batches)
    assert len(next(gated.batches)) == 3
    with pytest.raises(ConsumerTimeout):
        next(gated.batches)


def test_the_thread_is_gone_when_it_has_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _thread._count()
    gated = Gated(monkeypatch)
    gated.gate.set()
    assert len(next(gated.batches)) == 3
    wait_until(lambda: _thread._count() <= before, DEADLINE_S, "the thread to end")
