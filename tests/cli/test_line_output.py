"""Lines leave one by one or in blocks, and count as printed only when they have left."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from simpleconsumer.types import Message, TopicPartition
from zkconsumer.cli.messages.line_output import BLOCK_BYTES, LineOutput
from zkconsumer.cli.messages.message_lines import LineShape, line_formatter

LINE = line_formatter(LineShape())
PLACE = TopicPartition("t", 0)


class Pipe:
    """A pipe, and an output that writes into it."""

    def __init__(self, max_messages: int | None = None) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self.notified = threading.Event()
        self.output = LineOutput(self.write_fd, LINE, max_messages, self.notified.set)

    def put(self, offset: int, value: bytes = b"v") -> bool:
        return self.output.put(Message("t", 0, offset, offset + 1, None, value))

    def read(self) -> bytes:
        os.set_blocking(self.read_fd, False)
        try:
            return os.read(self.read_fd, 1 << 20)
        except BlockingIOError:
            return b""

    def close_reader(self) -> None:
        os.close(self.read_fd)
        self.read_fd = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for fd in (made.read_fd, made.write_fd):
        if fd >= 0:
            os.close(fd)


def test_a_line_after_a_pause_leaves_at_once(pipe: Pipe) -> None:
    pipe.put(0, b"first")
    assert pipe.read() == b"first\n"
    assert pipe.output.printed() == {PLACE: 1}


def test_a_line_right_behind_another_waits_and_is_not_printed_yet(pipe: Pipe) -> None:
    pipe.put(0, b"first")
    pipe.read()
    pipe.output._last_flush = float("inf")  # no pause is long enough from now on
    pipe.put(1, b"second")
    assert pipe.read() == b""
    assert pipe.output.printed() == {PLACE: 1}
    assert pipe.notified.is_set()
    assert pipe.output.flush(timeout_s=1)
    assert pipe.read() == b"second\n"
    assert pipe.output.printed() == {PLACE: 2}
    assert pipe.output.count == 2


def test_a_full_block_leaves_by_itself(pipe: Pipe) -> None:
    pipe.put(0)
    pipe.read()
    pipe.output._last_flush = float("inf")
    reader = threading.Thread(target=pipe.put, args=(1, b"x" * BLOCK_BYTES))
    reader.start()
    os.set_blocking(pipe.read_fd, True)
    left = BLOCK_BYTES + 1
    while left:
        left -= len(os.read(pipe.read_fd, left))
    reader.join(10)
    assert pipe.output.printed() == {PLACE: 2}


def test_a_reader_that_went_away_ends_it_and_what_it_missed_is_not_printed(pipe: Pipe) -> None:
    pipe.put(0)
    pipe.close_reader()
    pipe.put(1)
    pipe.output.flush(timeout_s=1)
    assert pipe.output.reader_gone
    assert pipe.output.failure is None
    assert pipe.output.printed() == {PLACE: 1}
    assert not pipe.put(2)


def test_after_the_last_message_wanted_no_more_is_taken() -> None:
    pipe = Pipe(max_messages=2)
    assert pipe.put(0)
    assert pipe.put(1)
    assert not pipe.put(2)
    assert pipe.read() == b"v\nv\n"
    assert pipe.output.printed() == {PLACE: 2}
    pipe.close_reader()
    os.close(pipe.write_fd)


def test_a_stuck_reader_holds_up_a_flush_no_longer_than_asked(pipe: Pipe) -> None:
    pipe.put(0)
    with pipe.output._lock:  # as a thread that is inside a write to a full pipe
        assert not pipe.output.flush(timeout_s=0.01, close=True)
    assert not pipe.put(1)


def test_a_full_disk_is_reported() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        output = LineOutput(fd, LINE, None, lambda: None)
        output.put(Message("t", 0, 0, 1, None, b"v"))
        assert output.failure is not None
        assert "No space left" in str(output.failure)
        assert output.printed() == {}
    finally:
        os.close(fd)
