"""Sends messages through a callback handler, and to an event handler if there is one.

Messages wait in a queue of their own, as in Kafka 0.7, before they are encoded. One thread takes them out, gathers
batches by number and time, and calls the handlers. Without an event handler the batches then go the usual way.

Threads: any, for all methods. No lock is held while a handler runs.

Source: kafka.producer.async.AsyncProducer, ProducerSendThread (0.7.2).

Where batches go behind a callback handler: to the brokers, or to an event handler of the application.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.producer.batching.batch_queues import Limits
from zkconsumer.producer.batching.bulk import Counts, SendSummary
from zkconsumer.producer.batching.counters import Counters, ProducerStatistics
from zkconsumer.producer.batching.outcome import (
    BatchOutcome,
    SendFuture,
    SentMessage,
    call_each,
    failed_future,
    running,
)
from zkconsumer.producer.errors import MessageNotSent, ProducerClosed, ProducerError, QueueFull
from zkconsumer.producer.handlers import EventHandler, QueueItem, as_event_handler, hooks_of
from zkconsumer.producer.keyed_message import GivenHeaders, as_keyed_messages
from zkconsumer.producer.placing import Placer
from zkconsumer.producer.sending.delivery import Delivery
from zkconsumer_error import shown

Report = Callable[[QueueItem, SentMessage | ProducerError], None]
"""Is called with the outcome of a message, sooner or later, in any thread."""


class BrokerDispatch:
    """Encodes messages, chooses their partitions, and gives them to the delivery, which sends them at once.

    Args:
        placer: Encodes and chooses partitions.
        delivery: Takes the messages.

    Attributes:
        owner: Marks the threads of the producer; see `outcome.running`.
    """

    def __init__(self, placer: Placer, delivery: Delivery) -> None:
        self.owner = delivery.owner
        self._placer = placer
        self._delivery = delivery

    def dispatch(self, items: Sequence[QueueItem], report: Report) -> None:
        """Take a batch; the brokers' answers are its outcomes."""
        for item in items:
            try:
                placed = self._placer.place(
                    item.topic, item.data, item.key, item.partition, item.part_key, item.headers,
                    item.timestamp_ms,
                )  # fmt: skip
                outcome, index = self._delivery.add(*placed, wait_s=None)
            except MessageNotSent as error:
                self._delivery.refused(error)
                report(item, error)
            except ProducerClosed as error:
                report(item, MessageNotSent(item.topic, item.partition, str(error)))
            except BaseException as error:  # noqa: BLE001  (an encoder or partitioner of the application raised it)
                report(item, MessageNotSent(item.topic, item.partition, f"it cannot be sent: {shown(error)}"))
            else:
                outcome.when_done(partial(_report, report, item, outcome, index))
        self._delivery.close_batches()

    def statistics(self) -> ProducerStatistics:
        """Return what was counted so far."""
        return self._delivery.statistics()

    def close(self, timeout_s: float | None) -> None:
        """Send what waits, for so long; what is left has failed."""
        self._delivery.close(timeout_s)


def _report(report: Report, item: QueueItem, outcome: BatchOutcome, index: int) -> None:
    report(item, outcome.of_message(index))


class EventDispatch:
    """Gives batches to an event handler.

    Args:
        handler: The event handler.
        client_id: For the statistics.
    """

    def __init__(self, handler: EventHandler, client_id: str) -> None:
        self.owner = object()
        self._handler = as_event_handler(handler)
        self._client_id = client_id
        self._started_at = time.monotonic()
        self._counters = Counters()

    def dispatch(self, items: Sequence[QueueItem], report: Report) -> None:
        """Take a batch; what the handler raises is the outcome of all its messages."""
        try:
            self._handler.handle([item.message() for item in items])
        except BaseException:
            for item in items:
                self._counters.refused(item.topic)
            raise
        for item in items:
            self._counters.taken(item.topic)
            report(item, SentMessage(item.topic, -1 if item.partition is None else item.partition, None))

    def statistics(self) -> ProducerStatistics:
        """Return what was counted so far; sizes are not known."""
        uptime_s = time.monotonic() - self._started_at
        return ProducerStatistics(self._client_id, uptime_s, 0, 0, self._counters.topics())

    def close(self, timeout_s: float | None) -> None:
        """Close the handler."""
        if hasattr(self._handler, "close"):
            self._handler.close()


log = logging.getLogger(__name__)
_LONGEST_SLEEP_S: Final = 60.0
_CLOSED: Final = "the producer was closed"


class _Next(NamedTuple):
    """What the thread does next.

    Attributes:
        item: The next message; None if a batch is to be sent: its time is over, or a flush or the end came.
        flushes: How many flushes were asked for.
        is_over: Nothing follows.
    """

    item: QueueItem | None
    flushes: int
    is_over: bool


class HandledSending:
    """The queue of messages that are not encoded yet, and the thread that calls the handlers.

    Args:
        callbacks: A callback handler, or None.
        dispatch: Where batches go.
        limits: Of the queue and of a batch.
        wait_s: Longest wait for room in the queue; None waits for ever.
    """

    def __init__(
        self, callbacks: object, dispatch: BrokerDispatch | EventDispatch, limits: Limits, wait_s: float | None
    ) -> None:
        self.append: Callable[[Any, Any], SendFuture | None] | None = None
        self._hooks = hooks_of(callbacks)
        self._dispatch = dispatch
        self._limits = limits
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._queue: deque[QueueItem] = deque()
        self._open: dict[QueueItem, None] = {}
        self._kept: dict[QueueItem, None] = {}
        self._is_closed = False
        self._has_taken = False
        self._is_called_when_idle = limits.linger_s > 0 and callbacks is not None
        self._flushes = 0
        self._flushed = 0
        self._thread = threading.Thread(target=self._run, name="zkconsumer-producer-handlers", daemon=True)
        self._thread.start()

    # -- for the producer ----------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | str | None,
        part_key: Any,
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Take a message, and return the future of its outcome."""
        given = QueueItem(value, topic, partition, key, part_key, headers, timestamp_ms)
        try:
            item = self._hooks["before_enqueue"](given)
            if not isinstance(item, QueueItem):
                raise TypeError(f"it returned {item!r:.60}, not a QueueItem")
        except Exception as error:  # noqa: BLE001  (the application raised it)
            return failed_future(_raised(given, "before_enqueue", error))
        try:
            self._enqueue(item)
        except QueueFull:
            self._after_enqueue(item, False)
            raise
        self._after_enqueue(item, True)
        return SendFuture(item.outcome, 0)

    def send_all(self, messages: Iterable[Any], topic: str | None) -> SendSummary:
        """Send messages one by one, and return what became of them."""
        counts = Counts()
        waiting: deque[tuple[int, SendFuture]] = deque()
        for number, message in enumerate(messages):
            try:
                for each in as_keyed_messages(message, topic):
                    future = self.send(
                        each.topic, each.message, each.key, each.partition, each.part_key, each.headers,
                        each.timestamp_ms,
                    )  # fmt: skip
                    waiting.append((number, future))
            except (QueueFull, TypeError) as error:
                counts.fail(number, error)
            while waiting and waiting[0][1].done():
                _count(counts, *waiting.popleft())
        self.flush(None)
        for number, future in waiting:
            _count(counts, number, future)
        return counts.summary().checked()

    def refused(self, error: BaseException) -> None:
        """Take over that a call was refused: nothing, since there are no transactions with handlers."""

    def flush(self, timeout_s: float | None) -> bool:
        """Return whether everything that was taken before has its outcome within the time.

        Messages that the callback handler keeps are not waited for.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if running.owner is self._dispatch.owner and timeout_s is None:
            raise RuntimeError(
                "a handler or callback of the producer calls flush, which waits for the handler or callback to return"
            )
        with self._changed:
            before = list(self._open)
            self._flushes += 1
            number = self._flushes
            self._changed.notify_all()
            while self._flushed < number and self._thread.is_alive():
                if not self._wait(deadline):
                    return False
        return all(item in self._kept or item.outcome.wait(_left(deadline)) for item in before)

    def close(self, timeout_s: float | None) -> int:
        """Send what waits, for so long; fail the rest, and return how many messages that are."""
        if running.owner is self._dispatch.owner:
            timeout_s = 0.0  # a handler or callback, before whose return nothing is sent
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(_left(deadline))
        self._dispatch.close(_left(deadline))
        with self._changed:
            left = list(self._open)
        for item in left:
            reason = "the callback handler dropped it" if item in self._kept else _CLOSED
            self._report(item, MessageNotSent(item.topic, item.partition, reason))
        self._close_handler()
        return len(left)

    def _close_handler(self) -> None:
        try:
            self._hooks["close"]()
        except Exception:
            log.exception("close of the callback handler raised")

    def statistics(self) -> ProducerStatistics:
        """Return what waits, apart from what the callback handler keeps, and what was counted so far."""
        with self._changed:
            waiting = len(self._open) - len(self._kept)
        return replace(self._dispatch.statistics(), waiting_messages=waiting)

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _enqueue(self, item: QueueItem) -> None:
        wait_s = 0.0 if running.owner is self._dispatch.owner else self._wait_s
        deadline = None if wait_s is None else time.monotonic() + wait_s
        with self._changed:
            while not self._is_closed and len(self._open) - len(self._kept) >= self._limits.queue_messages:
                if not self._wait(deadline):
                    limit = f"{self._limits.queue_messages} messages (queue.buffering.max.messages)"
                    raise QueueFull(item.topic, limit)
            if self._is_closed:
                raise ProducerClosed("the producer is closed")
            item.outcome.owner = self._dispatch.owner
            self._queue.append(item)
            self._open[item] = None
            self._changed.notify_all()

    def _after_enqueue(self, item: QueueItem, added: bool) -> None:
        try:
            self._hooks["after_enqueue"](item, added)
        except Exception as error:
            with self._changed:
                is_waiting = item in self._queue
                if is_waiting:
                    self._queue.remove(item)
            if is_waiting:
                self._report(item, _raised(item, "after_enqueue", error))
            else:
                log.exception("after_enqueue of the callback handler raised; the message had been sent")

    def _wait(self, deadline: float | None) -> bool:
        """Wait for a change; return whether there is time left. The lock is held."""
        left_s = _LONGEST_SLEEP_S if deadline is None else deadline - time.monotonic()
        if left_s <= 0.0:
            return False
        self._changed.wait(left_s)
        return True

    def _report(self, item: QueueItem, found: SentMessage | ProducerError) -> None:
        """Set the outcome of a message that has none yet."""
        with self._changed:
            self._open.pop(item, None)
            self._kept.pop(item, None)
            self._changed.notify_all()
        if isinstance(found, SentMessage):
            offset, time_ms = (-1 if each is None else each for each in (found.offset, found.append_time_ms))
            callbacks = item.outcome.finish(found.partition, offset, None, time_ms)
        else:
            callbacks = item.outcome.finish(item.outcome.partition, -1, found)
        call_each(callbacks)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        running.owner = self._dispatch.owner
        batch: list[QueueItem] = []
        send_at = time.monotonic() + self._limits.linger_s
        is_over = False
        while not is_over:
            item, flushes, is_over = self._next(send_at)
            if not batch:
                send_at = time.monotonic() + self._limits.linger_s
            batch += self._dequeued(item)
            if is_over:
                batch += self._called("last_batch_before_close", []) or []
            if item is None or len(batch) >= self._limits.batch_messages:
                self._send(batch)
                batch = []
            if item is None:
                self._end_of_batch(flushes)

    def _next(self, send_at: float) -> _Next:
        """Wait for the next message, or for a reason to send a batch."""
        with self._changed:
            while not self._queue:
                now = time.monotonic()
                is_timed = self._has_taken or self._is_called_when_idle
                if self._is_closed or self._flushes > self._flushed or (is_timed and now >= send_at):
                    self._has_taken = False
                    return _Next(None, self._flushes, self._is_closed)
                self._changed.wait(send_at - now if is_timed else _LONGEST_SLEEP_S)
            self._has_taken = True
            return _Next(self._queue.popleft(), self._flushes, False)

    def _dequeued(self, item: QueueItem | None) -> list[QueueItem]:
        """Return what the callback handler makes of the next message, or of the end of the time."""
        found = self._called("after_dequeuing_existing_data", [] if item is None else [item], item)
        if found is None:
            return []
        with self._changed:
            for each in found:
                self._open[each] = None
                self._kept.pop(each, None)
            if item is not None and item not in found and item in self._open:
                self._kept[item] = None
        return found

    def _send(self, batch: list[QueueItem]) -> None:
        """Have a batch sent; report the messages of it that the callback handler leaves out."""
        found = self._called("before_sending_data", batch, batch) if batch else None
        if found is None:
            return
        kept = set(found)
        for item in batch:
            if item not in kept:
                self._report(item, MessageNotSent(item.topic, item.partition, "the callback handler dropped it"))
        if not found:
            return
        with self._changed:
            self._open.update(dict.fromkeys(found))
        try:
            self._dispatch.dispatch(found, self._report)
        except BaseException as error:  # noqa: BLE001  (the application raised it)
            for item in found:
                self._report(item, _raised(item, "handle", error))

    def _called(self, hook: str, concerned: Sequence[QueueItem], *arguments: object) -> list[QueueItem] | None:
        """Return the messages that a method of the callback handler returns; None if it raised.

        Args:
            concerned: The messages that have failed if it raises.
        """
        try:
            found = list(self._hooks[hook](*arguments))
            for each in found:
                if not isinstance(each, QueueItem):
                    raise TypeError(f"it returned {each!r:.60}, not a QueueItem")
        except BaseException as error:
            log.exception("%s of the callback handler raised", hook)
            for item in concerned:
                self._report(item, _raised(item, hook, error))
            return None
        return found

    def _end_of_batch(self, flushes: int) -> None:
        """Wake who flushes; with `producer.type=sync`, a message that the callback handler keeps has failed."""
        if not self._limits.linger_s:
            for item in list(self._kept):
                self._report(item, MessageNotSent(item.topic, item.partition, "the callback handler dropped it"))
        with self._changed:
            self._flushed = flushes
            self._changed.notify_all()


def _raised(item: QueueItem, method: str, error: BaseException) -> MessageNotSent:
    kind = "event" if method == "handle" else "callback"
    return MessageNotSent(item.topic, item.partition, f"{method} of the {kind} handler raised {shown(error)}")


def _count(counts: Counts, number: int, future: SendFuture) -> None:
    """Count the outcome of a message; one that the callback handler keeps has none."""
    if not future.done():
        return
    error = future.exception()
    if error is not None:
        counts.fail(number, error)
    else:
        place = future.result()
        counts.count_sent(TopicPartition(place.topic, place.partition), 1)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)
