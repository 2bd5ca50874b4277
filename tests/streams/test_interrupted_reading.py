"""A reader that is interrupted again and again gets on all the same, and still nothing is lost or repeated.

What strikes is raised before a line of the consumer that is chosen by its number, or sent by a clock or a thread.
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
    """Messages of many sizes in one chunk: to find where each begins takes a step for each."""
    dice = random.Random(1)
    pairs = [(None, dice.randbytes(dice.randrange(most_bytes))) for _ in range(MESSAGES)]
    return Chunk(bytes(encode_message_set(pairs, codec)), MESSAGES, KAFKA08)


def reading_of(feed: Feed, way: str) -> Iterator[Any]:
    return feed.stream.batches(max_bytes=20_000) if way == "batches" else feed.stream


class Struck(BaseException):
    """What strikes the reader."""


@contextmanager
def struck_at(is_time: Callable[[str], bool]) -> Iterator[None]:
    """Have `Struck` raised before each line of the consumer that this thread comes to and `is_time` says yes to."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line" and is_time(f"{frame.f_code.co_qualname}:{frame.f_lineno}"):
            raise Struck
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


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
    """Note offsets and errors until the time-out; return how many calls were struck.

    What a strike threw away on its way out of `next()` stands in `handed`; an error, in the context of the strike.
    """
    struck = 0
    for _ in range(calls):
        try:
            note(next(reading), seen)
        except ConsumerTimeout:
            return struck
        except CrcMismatch as error:
            note(error, seen)
        except Struck as strike:
            struck += 1
            note(strike.__context__ if isinstance(strike.__context__, CrcMismatch) else feed.stream.handed, seen)
    raise AssertionError(f"{calls} calls, and the end was not reached: {seen[-1:]}")


# By the number of the line


class StruckEachTime:
    """Reads, and is struck in each call after so many lines."""

    def __init__(self, reading: Iterator[Any], lines: int) -> None:
        self._reading = reading
        self._lines = lines

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        number = count(1)
        with struck_at(lambda _: next(number) == self._lines):
            return next(self._reading)


@pytest.mark.parametrize("lines", [150, 250, 400])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batches_get_on_where_each_call_is_struck_after_so_many_lines(codec: str, lines: int) -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(many_sizes(codec))
    seen: list[object] = []
    struck = read_all(feed, StruckEachTime(reading_of(feed, "batches"), lines), seen)
    assert seen == list(range(MESSAGES))
    assert struck >= 3
    assert queue.done_position() == MESSAGES
    assert feed.budget.charged_bytes() == 0


@pytest.mark.parametrize("way", ["batches", "messages"])
def test_a_second_strike_at_any_line_loses_and_repeats_nothing(way: str) -> None:
    data = with_bad_crc(message_set(0, 5), 2) if way == "batches" else message_set(0, 5)
    expected = [0, 1, ("bad", 2), 3, 4, *range(5, 12)] if way == "batches" else list(range(12))
    for number in count(1):
        feed, seen, struck = Feed(), [], []
        queue = feed.queue()
        queue.push(Chunk(data, 5, KAFKA08))
        queue.push(chunk(5, 12, "gzip"))
        reading = reading_of(feed, way)
        with struck_at(lambda line: "decode" in line), pytest.raises(Struck):
            next(reading)
        lines = count(1)

        def is_time(line: str, lines: Iterator[int] = lines, number: int = number, struck: list[str] = struck) -> bool:
            if next(lines) == number:
                struck.append(line)
                return True
            return False

        with struck_at(is_time):
            read_all(feed, reading, seen)
        assert seen == expected, f"struck at {struck}"
        assert queue.done_position() == 12
        assert feed.budget.charged_bytes() == 0, f"struck at {struck}"
        if not struck:
            break
    assert number > 150


# By a clock, or by another thread


class Strikes:
    """Strikes this thread every other millisecond while it is ready to be struck, and never twice unseen.

    Attributes:
        is_ready: set by the reader; cleared by each strike.
        count: strikes so far.
    """

    def __init__(self) -> None:
        self.is_ready = False
        self.count = 0
        self.lock = threading.Lock()

    def end(self) -> None:
        """Strike no more; one that is on its way strikes in here."""
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
def struck_by_a_clock() -> Iterator[Strikes]:
    strikes = Strikes()

    def strike(number: int, frame: object) -> None:
        if strikes.is_due():
            raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        yield strikes
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def struck_by_a_thread() -> Iterator[Strikes]:
    strikes, over = Strikes(), threading.Event()
    reader = ctypes.c_ulong(threading.get_ident())
    start = _thread.start_new_thread

    def start_unstruck(call: Callable[[], None], arguments: tuple[()]) -> int:
        # Up to Python 3.11 a new thread has the number of the one that starts it until it runs, and is struck instead.
        runs = threading.Event()
        with strikes.lock:
            number = start(lambda: (runs.set(), call()), arguments)
            assert runs.wait(DEADLINE_S)
        return number

    def strike() -> None:
        while not over.wait(0.002):
            with strikes.lock:
                if strikes.is_due():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(reader, ctypes.py_object(Struck))

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("zkconsumer.streams.uninterrupted._thread.start_new_thread", start_unstruck)
            yield strikes
    finally:
        over.set()
        thread.join()


def read_under_strikes(feed: Feed, reading: Iterator[Any], strikes: Strikes, seen: list[object]) -> None:
    """Note what is handed over until the time-out; each step may be struck, and is then done again."""
    deadline = Deadline(DEADLINE_S)
    is_over = False

    def read() -> bool:
        strikes.is_ready = True
        try:
            while True:
                note(feed.stream.handed, seen)
                next(reading)
        except ConsumerTimeout:
            strikes.end()
            return True

    while not is_over:
        assert not deadline.expired, f"{strikes.count} strikes, and the end was not reached: {seen[-1:]}"
        with suppress(Struck):
            is_over = read()


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    """A strike in a callback of the collector, of which hypothesis has one, would be swallowed and warned of."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("struck", [struck_by_a_clock, struck_by_a_thread])
@pytest.mark.parametrize("way", ["batches", "messages"])
def test_a_reader_gets_on_under_strikes_every_other_millisecond(
    struck: Callable[[], AbstractContextManager[Strikes]], way: str, without_garbage_collection: None
) -> None:
    feed = Feed()
    queue = feed.queue()
    queue.push(many_sizes("gzip", most_bytes=5000))  # to inflate it takes longer than the time between two strikes
    seen: list[object] = []
    reading = feed.stream.batches() if way == "batches" else feed.stream
    with struck() as strikes:
        read_under_strikes(feed, reading, strikes, seen)
    assert strikes.count > 0
    assert seen == list(range(MESSAGES))
    assert queue.done_position() == MESSAGES
    assert feed.budget.charged_bytes() == 0


# While it is decoded elsewhere


class Gated:
    """A stream whose first call was struck in decoding, which from then on waits for a gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
        self.feed = Feed(**settings)
        self.queue = self.feed.queue()
        self.queue.push(chunk(0, 3))
        self.batches = self.feed.stream.batches()
        self.is_under_way, self.gate = threading.Event(), threading.Event()
        with struck_at(lambda line: "decode" in line), pytest.raises(Struck):
            next(self.batches)
        decode = StreamBatches.decode

        def gated(*arguments: Any, **named: Any) -> Iterator[Any]:
            self.is_under_way.set()
            assert self.gate.wait(DEADLINE_S)
            yield from decode(*arguments, **named)

        monkeypatch.setattr(StreamBatches, "decode", gated)

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
    thread = gated.when_under_way(gated.feed.stream.end)
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

    def strike(*_: object) -> None:
        raise Struck

    with monkeypatch.context() as patched:
        patched.setattr("zkconsumer.wakeup.Wakeup.wait", strike)
        with pytest.raises(Struck):
            next(gated.batches)
    assert gated.is_under_way.wait(DEADLINE_S)
    assert [next(gated.feed.stream).offset for _ in range(3)] == [0, 1, 2]
    gated.gate.set()
    with pytest.raises(ConsumerTimeout):
        next(gated.batches)


def test_a_thread_that_died_before_it_began_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_error_without_a_place_is_raised_once_and_decoding_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(monkeypatch)
    gated.gate.set()
    decode, errors = StreamBatches.decode, [MemoryError("no room")]

    def failing(*arguments: Any, **named: Any) -> Iterator[Any]:
        if errors:
            raise errors.pop()
        yield from decode(*arguments, **named)

    monkeypatch.setattr(StreamBatches, "decode", failing)
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
