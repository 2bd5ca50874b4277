"""What became of messages: one outcome for each batch, shared by the futures of its messages.

`OpenOutcomes` has the outcomes of one producer that have not come yet, and sets them.

Threads: any. The lock is the delivery's. Callbacks of the application run without it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from simpleconsumer.errors import BrokerError
from simpleconsumer.types import TopicPartition
from zkconsumer.producer.batching.batch_queues import Effect, Finished
from zkconsumer.producer.batching.counters import Counters
from zkconsumer.producer.errors import MessageNotSent, ProducerError, without_frames
from zkconsumer.producer.transactions import Transactions

log = logging.getLogger(__name__)

_lock = threading.RLock()
"""Held for a few assignments; a lock for each batch would cost more than the waits for this one. A signal handler and a
finalizer may run in a thread that holds it."""


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # if another thread of the parent held it, it is never released here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Running(threading.local):
    """Whose thread this is.

    Attributes:
        owner: The owner of the outcomes that the thread brings; None in threads of applications.
    """

    owner: object = None


running: Final = _Running()
"""Of the thread that looks at it: a callback must not wait for an outcome that only its own thread can bring."""


class SentMessage(NamedTuple):
    """Where a message is.

    Attributes:
        topic: Its topic.
        partition: Its partition; in Kafka 0.7 `broker-partition`.
        offset: Its offset; None where brokers name none: with `request.required.acks=0`, and in Kafka 0.7.
        append_time_ms: Its time in ms since 1970, if the broker has set it (`message.timestamp.type=LogAppendTime`);
            else None: it has the time with which it was sent. Also None where that is not known: after the repeat of an
            idempotent batch, and where no broker answers.
    """

    topic: str
    partition: int | str
    offset: int | None
    append_time_ms: int | None = None


class BatchOutcome:
    """The outcome of a batch, which may have been split on its way.

    Attributes:
        topic: The topic of the batch.
        partition: Its partition, once it is done.
        offset: Offset of its first message; -1 where brokers name none.
        append_time_ms: Time of its messages, if the broker has set it; else -1.
        error: Why it failed; None if it was acknowledged.
        halves: The outcomes of the two halves, and the number of messages in the first one, if it was split.
        owner: Whose threads bring it, as in `running`; None: nobody's.
    """

    __slots__ = (
        "_callbacks", "_event", "_is_done", "append_time_ms", "error", "halves", "offset", "owner", "partition",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int | str, owner: object = None) -> None:
        self.owner = owner
        self.topic = topic
        self.partition = partition
        self.offset = self.append_time_ms = -1
        self.error: ProducerError | None = None
        self.halves: tuple[int, BatchOutcome, BatchOutcome] | None = None
        self._is_done = False
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], None]] | None = None

    @property
    def is_done(self) -> bool:
        """True when every message of it has its outcome."""
        return self._is_done

    def finish(
        self, partition: int | str, offset: int, error: ProducerError | None, append_time_ms: int = -1
    ) -> list[Callable[[], None]]:
        """Set the outcome if there is none yet, wake who waits, and return the callbacks to run."""
        with _lock:
            if self._is_done:
                return []
            self.partition, self.offset, self.error = partition, offset, error
            self.append_time_ms = append_time_ms
            return self._ended()

    def split(self, first_messages: int, first: BatchOutcome, second: BatchOutcome) -> None:
        """Go on as two; it is done when both are. One that is done stays as it is."""
        with _lock:
            if self._is_done:
                return
            self.halves = first_messages, first, second
        first.when_done(self._half_done)
        second.when_done(self._half_done)

    def _half_done(self) -> None:
        assert self.halves is not None
        if self.halves[1].is_done and self.halves[2].is_done:
            with _lock:
                callbacks = [] if self._is_done else self._ended()
            call_each(callbacks)

    def _ended(self) -> list[Callable[[], None]]:
        """Wake who waits, and return the callbacks to run. The lock is held."""
        self._is_done = True
        event, callbacks = self._event, self._callbacks
        self._event = self._callbacks = None
        if event is not None:
            event.set()
        return callbacks or []

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call this when it is done, in the thread that learns of it; at once if it is done."""
        with _lock:
            if not self._is_done:
                self._callbacks = self._callbacks or []
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it is done within the time.

        Raises:
            RuntimeError: Without a time, in a thread that has to bring it.
        """
        event = self._event_to_wait_for()
        if event is not None and timeout_s is None and self.owner is not None and running.owner is self.owner:
            raise RuntimeError(
                f"a callback of the producer waits for a message for {self.topic}, which is only sent after the "
                "callback has returned; in callbacks, call send with producer.type=async, and add_done_callback"
            )
        return event is None or event.wait(timeout_s)

    def _event_to_wait_for(self) -> threading.Event | None:
        """Return the event that its end sets; None if it is done."""
        event = threading.Event()  # not under the lock: it may start a collection, whose finalizers wait, too
        with _lock:
            if self._is_done:
                return None
            if self._event is None:
                self._event = event
            return self._event

    def of_message(self, index: int) -> SentMessage | ProducerError:
        """Return the outcome of one message; only when it is done."""
        if self.halves is not None:
            count, first, second = self.halves
            return first.of_message(index) if index < count else second.of_message(index - count)
        if self.error is not None:
            return self.error
        offset = self.offset + index if self.offset >= 0 else None
        return SentMessage(self.topic, self.partition, offset, self.time_of_broker)

    @property
    def time_of_broker(self) -> int | None:
        """The time of all its messages, if the broker has set it."""
        return self.append_time_ms if self.append_time_ms >= 0 else None


class SendFuture:
    """The outcome of one message, when there is one.

    It has the methods of `concurrent.futures.Future` that make sense for it; it cannot be cancelled.
    """

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: BatchOutcome, index: int) -> None:
        self._outcome = outcome
        self._index = index

    def done(self) -> bool:
        """Return whether there is an outcome."""
        return self._outcome.is_done

    def result(self, timeout: float | None = None) -> SentMessage:
        """Return where the message is, once it is acknowledged.

        Args:
            timeout: Longest wait in seconds; None waits until there is an outcome, which there always is in the end.

        Raises:
            TimeoutError: There is no outcome yet.
            MessageNotSent: It was not acknowledged.
        """
        found = self._found(timeout)
        if isinstance(found, ProducerError):
            raise _copied(found) from found.__cause__
        return found

    def exception(self, timeout: float | None = None) -> ProducerError | None:
        """Return why the message was not acknowledged, None if it was; otherwise as `result`."""
        found = self._found(timeout)
        return found if isinstance(found, ProducerError) else None

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call this with the future when there is an outcome: in a thread of the producer, or at once.

        What it raises is logged.
        """

        def call() -> None:
            callback(self)

        self._outcome.when_done(lambda: call_each([call]))

    def _found(self, timeout: float | None) -> SentMessage | ProducerError:
        if not self._outcome.wait(timeout):
            raise TimeoutError(f"a message for {self._outcome.topic} got no outcome within {timeout:g} s")
        return self._outcome.of_message(self._index)


class BatchFuture:
    """The outcome of the messages of one batch, when there is one."""

    __slots__ = ("_count", "_outcome")

    def __init__(self, outcome: BatchOutcome, count: int) -> None:
        self._outcome = outcome
        self._count = count

    def done(self) -> bool:
        """Return whether there is an outcome."""
        return self._outcome.is_done

    def result(self, timeout: float | None = None) -> list[SentMessage]:
        """Return where the messages are, in their order, once all of them are acknowledged.

        Args:
            timeout: Longest wait in seconds; None waits until there is an outcome, which there always is in the end.

        Raises:
            TimeoutError: There is no outcome yet.
            MessageNotSent: One of them was not acknowledged; the error of the first such one.
        """
        outcome = self._outcome
        if not outcome.wait(timeout):
            raise TimeoutError(f"{self._count} messages for {outcome.topic} got no outcome within {timeout:g} s")
        if outcome.error is None and outcome.halves is None and outcome.offset >= 0:
            offsets = range(outcome.offset, outcome.offset + self._count)
            times = repeat(outcome.time_of_broker)
            return list(map(SentMessage, repeat(outcome.topic), repeat(outcome.partition), offsets, times))
        places: list[SentMessage] = []
        for index in range(self._count):
            found = outcome.of_message(index)
            if isinstance(found, ProducerError):
                raise _copied(found) from found.__cause__
            places.append(found)
        return places


def _copied(error: ProducerError) -> ProducerError:
    """Return an error to raise: several threads may raise one, each with a traceback of its own."""
    made = type(error)(*error.args)
    made.remedy = error.remedy
    return made


def failed_future(error: MessageNotSent) -> SendFuture:
    """Return the future of a message that was not sent."""
    without_frames(error)
    outcome = BatchOutcome(error.topic, -1 if error.partition is None else error.partition)
    outcome.finish(outcome.partition, -1, error)
    return SendFuture(outcome, 0)


def call_each(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call what the application gave; what it raises is logged, and stops nothing.

    That includes SystemExit, which would end the thread of a broker in silence. An interrupt from the keyboard is
    raised when all were called.
    """
    interrupt: KeyboardInterrupt | None = None
    for callback in callbacks:
        try:
            callback()
        except BaseException as error:
            log.exception("a callback of the producer raised")
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                interrupt = error
    if interrupt is not None:
        raise interrupt


def call_in_thread(callbacks: Sequence[Callable[[], None]]) -> None:
    """Do as `call_each` in a thread of its own: callbacks may wait for the one that has them to call."""
    thread = threading.Thread(target=call_each, args=(callbacks,), name="zkconsumer-producer-callbacks", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there are too many threads, or the program ends
        call_each(callbacks)


class OpenOutcomes:
    """What a producer owes its callers.

    Args:
        owner: Marks the threads that bring the outcomes; see `outcome.running`.
        lock: Guards it.
        counters: Count what is finished.
        codec_of: Topic -> codec.
        transactions: Those that messages belong to; None for none.
    """

    def __init__(
        self,
        owner: object,
        lock: threading.Lock,
        counters: Counters,
        codec_of: Callable[[str], str],
        transactions: Transactions | None,
    ) -> None:
        self._owner = owner
        self._lock = lock
        self._counters = counters
        self._codec_of = codec_of
        self._transactions = transactions
        self._open: dict[BatchOutcome, None] = {}

    def new(self, name: TopicPartition) -> BatchOutcome:
        """Return the outcome of a new batch. The lock is held."""
        outcome = BatchOutcome(*name, self._owner)
        self._open[outcome] = None
        return outcome

    def all(self) -> list[BatchOutcome]:
        """Return those that have not come."""
        with self._lock:
            return list(self._open)

    def count(self, effects: Sequence[Effect]) -> None:
        """Count what is finished, and make outcomes for halves. The lock is held."""
        for effect in effects:
            if isinstance(effect, Finished):
                self._counters.finished(effect.batch, effect.error is None)
                if effect.error is not None and self._transactions is not None:
                    self._transactions.message_failed(effect.error)
            else:
                self._counters.split_batches += 1
                for half in effect.halves:
                    half.outcome = self.new(half.name)
                self._open.pop(effect.batch.outcome, None)

    def finish(self, effects: Sequence[Effect]) -> list[Callable[[], None]]:
        """Set the outcomes of effects that were counted; return the callbacks to run."""
        callbacks: list[Callable[[], None]] = []
        for effect in effects:
            outcome = effect.batch.outcome
            if outcome is None:
                continue  # an interrupt ended the call that added its only message, and nobody has a future of it
            if isinstance(effect, Finished):
                self._explain(effect)
                callbacks += outcome.finish(
                    effect.batch.name.partition, effect.offset, effect.error, effect.append_time_ms
                )
                with self._lock:
                    self._open.pop(outcome, None)
            else:
                first, second = effect.halves
                outcome.split(len(first.pairs), first.outcome, second.outcome)
        return callbacks

    def _explain(self, effect: Finished) -> None:
        """Say what to do about an error that brokers have no code for."""
        cause = None if effect.error is None else effect.error.__cause__
        is_unknown = isinstance(cause, BrokerError) and cause.code == -1
        if effect.error is not None and is_unknown and self._codec_of(effect.batch.name.topic) == "lz4":
            effect.error.remedy = "Kafka 0.8.0 and 0.8.1 do not support lz4: set compression.codec to gzip or snappy"
