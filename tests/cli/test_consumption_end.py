"""When `zkconsumer consume --timeout-ms` ends: so long after the last message of any stream, and not later."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from simpleconsumer.types import Message
from zkconsumer.cli.messages import consumption, line_output
from zkconsumer.cli.messages.consumption import Consumption
from zkconsumer.cli.messages.line_output import LineOutput
from zkconsumer.cli.messages.message_lines import LineShape, line_formatter
from zkconsumer.cli.terminal import LeaveSignals
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.streams.stream import KafkaStream

TIMEOUT_S = 8.0
MESSAGE = Message("t", 0, 0, 1, None, b"value")


class Clock:
    """Stands for the module `time`: goes on only when it is told to."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Script:
    """A stream on which nothing comes but what happens, one after the other, in the middle of its silences."""

    def __init__(self, clock: Clock, *happenings: Callable[[], object]) -> None:
        self.clock = clock
        self.happenings = list(happenings)
        self.timeouts = 0

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        self.clock.now_s += TIMEOUT_S / 2
        if self.happenings:
            self.happenings.pop(0)()
        self.clock.now_s += TIMEOUT_S / 2
        self.timeouts += 1
        raise ConsumerTimeout(int(TIMEOUT_S * 1000))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(consumption, "time", made)
    monkeypatch.setattr(line_output, "time", made)
    return made


@pytest.fixture
def output(clock: Clock) -> Iterator[LineOutput]:
    fd = os.open(os.devnull, os.O_WRONLY)
    yield LineOutput(fd, line_formatter(LineShape()), None, lambda: None)
    os.close(fd)


@pytest.fixture
def timeouts(clock: Clock, output: LineOutput) -> Iterator[Callable[..., int]]:
    """How many time-outs of a stream it takes until the command is over."""
    with LeaveSignals() as signals:
        config = ConsumerConfig("localhost:1", "g", consumer_timeout_ms=int(TIMEOUT_S * 1000))

        def count(*happenings: Callable[[], object]) -> int:
            stream = Script(clock, *happenings)
            Consumption(config, None, lambda _: [], signals, output, 1)._print(cast("KafkaStream", stream))
            return stream.timeouts

        yield count


def test_no_message_at_all_ends_it_at_the_first_time_out(timeouts: Callable[..., int]) -> None:
    assert timeouts() == 1


def test_a_message_long_before_does_not_put_the_end_off(timeouts: Callable[..., int], output: LineOutput) -> None:
    output.put(MESSAGE)
    assert timeouts() == 1


def test_a_message_on_another_stream_puts_the_end_off(timeouts: Callable[..., int], output: LineOutput) -> None:
    assert timeouts(lambda: output.put(MESSAGE)) == 2
    assert timeouts(lambda: output.put(MESSAGE), lambda: output.put(MESSAGE)) == 3
