"""A simulated application: takes a message of a stream, works on it, asks for the next one; slow or stuck at times.

The stream is the production code's, asked without waiting (`consumer.timeout.ms` is 0); when there is nothing the
application looks again as soon as the stream wakes it, as a thread does that sleeps in `next()`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rebalance.lease import Lease
from simpleconsumer.errors import MessageError
from simpleconsumer.types import Message
from tests.simulator.actor import Record
from tests.simulator.process import Process
from tests.simulator.stepping import lateness_s
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.streams.stream import KafkaStream, StreamParts
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.limits import NS

__all__ = ["Application", "Pace", "SteppedStream", "offset_of", "place_of"]

_LEASE_POLL_S: Final = 0.05


def place_of(message: Message) -> Place:
    """The partition's name in a history; a message names it in its value (`Brokers.produce`)."""
    assert message.value is not None
    return bytes(message.value).decode().split("/", 1)[0], message.partition


def offset_of(message: Message) -> int:
    """The offset of a message in a history: in Kafka 0.7 with its number in its entry."""
    return message.offset + message.index


class SteppedStream(KafkaStream):
    """A stream that calls `woken` instead of ending the sleep of a thread."""

    def __init__(self, thread_id: str, config: ConsumerConfig, lease: Lease, clock: Callable[[], float]) -> None:
        super().__init__(StreamParts(thread_id, config, lease, clock))
        self.woken: Callable[[], None] = lambda: None

    def _wake(self) -> None:
        """Have the application look."""
        self.woken()

    def _end(self) -> None:
        """End the iteration."""
        super()._end()
        self.woken()

    def _fail(self, error: Exception) -> None:
        """Raise this from now on."""
        super()._fail(error)
        self.woken()


class Pace:
    """How long an application takes for a message: up to `work_s`, or for a while what `slow_down` sets."""

    def __init__(self, rng: random.Random, work_s: float) -> None:
        self._rng = rng
        self._work_s = work_s
        self._slow_s = 0.0
        self._slow_until = 0.0

    def slow_down(self, work_s: float, until_s: float) -> None:
        """Take `work_s` for each message that is started before a moment."""
        self._slow_s, self._slow_until = work_s, until_s

    def draw_s(self, now: float) -> float:
        """What the next message takes."""
        return self._slow_s if now < self._slow_until else self._work_s * self._rng.random()


class Application:
    """The reader of one stream.

    Args:
        process, rng: where it runs.
        reader: number of its thread: each stream has one of its own.
        stream: what it reads.
        pace: how fast it is.
        record: receives `deliver` and `done`. What a stream raises about a message counts as that message.
        damaged: messages that cannot be read (`Brokers.damaged`).
        commit: `commit_offsets()` on this thread, calls back when it has returned; None with auto-commit.
        commit_every: after so many messages.
    """

    def __init__(
        self,
        process: Process,
        rng: random.Random,
        reader: int,
        stream: SteppedStream,
        pace: Pace,
        record: Record,
        damaged: Mapping[tuple[str, int, int], str],
        commit: Callable[[Callable[[], None]], None] | None,
        commit_every: int,
    ) -> None:
        self._process = process
        self._rng = rng
        self.reader = reader
        self._stream = stream
        self._pace = pace
        self._record = record
        self._damaged = damaged
        self._commit = commit
        self._commit_every = commit_every
        self._taken = 0
        self._is_busy = False
        self._is_looking = False
        self._has_ended = False
        stream.woken = self._woken

    def _woken(self) -> None:
        if not self._is_busy and not self._is_looking and not self._has_ended:
            self._is_looking = True
            self._process.after(lateness_s(self._rng), self._look)

    def _look(self) -> None:
        self._is_looking = False
        if self._is_busy or self._has_ended:
            return
        stream = self._stream
        try:
            try:
                messages = self._take(stream)
            except MessageError as error:
                messages = [self._unread(error)]
        except ConsumerTimeout:
            if stream._ready and not self._is_looking:
                # There is something to deliver but no lease, and no callback reports its renewal.
                self._is_looking = True
                self._process.after(_LEASE_POLL_S, self._look)
            return
        except Exception:  # noqa: BLE001 - the end of the stream, or what the member has failed with
            self._has_ended = True
            return
        stream._reader = self.reader
        self._is_busy = True
        for message in messages:
            self._record("deliver", place_of(message), offset_of(message), str(message.value or b"", "ascii"))
        now = self._process.schedule.now
        self._process.after(self._pace.draw_s(now), self._finish, messages, str(int(now * NS)))

    def _take(self, stream: SteppedStream) -> Sequence[Message]:
        """Take what the application works on at a time: here one message."""
        return [next(stream)]

    def _unread(self, error: MessageError) -> Message:
        """What stands for a message that was raised about; an error if there is nothing wrong with that one."""
        name = self._damaged[error.topic, int(error.partition), error.offset]
        return Message(error.topic, error.partition, error.offset, error.next_offset, None, name.encode())

    def _finish(self, messages: Sequence[Message], delivered: str) -> None:
        for message in messages:
            self._record("done", place_of(message), offset_of(message), delivered)
        before, self._taken = self._taken, self._taken + len(messages)
        if self._commit is not None and self._taken // self._commit_every > before // self._commit_every:
            self._commit(self._next)
        else:
            self._next()

    def _next(self) -> None:
        self._is_busy = False
        self._look()
