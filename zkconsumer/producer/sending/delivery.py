"""Delivery: takes encoded messages to the leaders of their partitions, and reports what became of each.

Threads: one for each broker sends requests, one at a time, and one looks up leaders. The accumulator belongs to whoever
holds the lock, which nobody does during I/O, encoding or a callback. Outcomes are set, and callbacks run, in the
threads of the brokers; callbacks of messages that found no leader run in a thread of their own, since they may send
to topics that have to be looked up.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from simpleconsumer import kernel
from simpleconsumer.dialect import ProducerId
from simpleconsumer.throttling import Throttle
from simpleconsumer.types import Broker, ProducedPartition, TopicPartition
from zkconsumer.producer.batching.accumulator import Accumulator
from zkconsumer.producer.batching.batch_queues import MESSAGE_OVERHEAD_BYTES, Batch, Effect, Limits, Numbering, Pair
from zkconsumer.producer.batching.counters import Counters, ProducerStatistics
from zkconsumer.producer.batching.message_sets import takes_null_values
from zkconsumer.producer.batching.outcome import (
    BatchOutcome,
    OpenOutcomes,
    SendFuture,
    call_each,
    call_in_thread,
    running,
)
from zkconsumer.producer.batching.queue_room import QueueRoom
from zkconsumer.producer.errors import MessageNotSent, ProducerClosed, QueueFull, TransactionFailed
from zkconsumer.producer.sending.broker_thread import BrokerThread, RequestSettings
from zkconsumer.producer.sending.topic_lookup import FoundTopic, Lookup, LookupThread
from zkconsumer.producer.transactions import Transactions, TransactionState

_LONGEST_SLEEP_S: Final = 60.0
IDLE_BROKER_S: Final = 60.0
"""How long the thread of a broker stays that leads no partition: one that restarts leads again soon."""
_CLOSED: Final = "the producer was closed"


class Delivery:
    """Sends the messages of one producer.

    Args:
        lookup: Finds partitions and leaders.
        limits: How messages are gathered and how often they are tried.
        settings: How requests are made.
        transactions: The transactions that messages belong to; None for none.

    Attributes:
        owner: Marks the threads of the producer; see `outcome.running`.

    Threads: any, for all methods.
    """

    def __init__(
        self,
        lookup: Lookup,
        limits: Limits,
        settings: RequestSettings,
        rng: random.Random | None = None,
        transactions: Transactions | None = None,
    ) -> None:
        self.owner = object()
        self._settings = settings
        self._limits = limits
        self._lock = threading.Lock()
        self._transactions = transactions
        self._numbering = Numbering(transactions is not None) if settings.is_idempotent else None
        self._accumulator = Accumulator(limits, rng, self._numbering)
        self._room = QueueRoom(self._lock, self._accumulator.fullness, self._send_what_waits)
        self._counters = Counters()
        self._outcomes = OpenOutcomes(self.owner, self._lock, self._counters, settings.codec_of, transactions)
        self._takes_null_values: bool | None = None
        self._started_at = time.monotonic()
        self._brokers: dict[int, BrokerThread] = {}
        self._is_closed = False
        self._has_ended = False
        self._lookups = LookupThread(
            lookup, self._lock, self._accumulator.layout, limits, settings.refresh_s, self._looked_up
        )
        self.look_up_again = self._lookups.again
        self._lookups.start()

    # -- for the producer ----------------------------------------------------------------------------------------------

    def partitions(self, topic: str, wait_s: float | None = None) -> Mapping[int | str, int | None] | str:
        """Return the partitions of a topic with their leaders; or, as text, why they are not known.

        Raises:
            ProducerClosed: The producer is closed.
        """
        known = self._accumulator.layout.partitions(topic)
        return known or self._lookups.partitions(topic, wait_s, self._check_open)

    def partitions_by_now(self, topic: str, missing: int | str) -> Mapping[int | str, int | None] | str:
        """Return the partitions of a topic that is known, looked up once more for one that was missing."""
        reason = self._lookups.look_for(topic, missing, self._check_open)
        return reason or self.partitions(topic)

    def takes_null_values(self, topic: str) -> bool | str:
        """Return whether the brokers are of Kafka 0.8.1 or later; or, as text, why that is not known."""
        if self._takes_null_values is None:
            known = self.partitions(topic)
            if isinstance(known, str):
                return known
            with self._lock:
                brokers = [thread.broker for thread in self._brokers.values()]
            found = takes_null_values(map(self._settings.connection, brokers), topic)
            if isinstance(found, str):
                return found
            self._takes_null_values = found
        return self._takes_null_values

    def sticky_partition(self, topic: str) -> int | str:
        """Return where messages of a topic that is known go if they have no key."""
        with self._lock:
            return self._accumulator.layout.sticky_partition(topic)

    def add(
        self, name: TopicPartition, pair: Pair, size: int, is_movable: bool, wait_s: float | None
    ) -> tuple[BatchOutcome, int]:
        """Take a message; return the outcome of its batch, and its number in it.

        Args:
            wait_s: Longest wait for room; None waits for ever.

        Raises:
            QueueFull: There is no room in time.
            ProducerClosed: The producer is closed.
        """
        self._enlist(name)
        with self._lock:
            self._wait_for_room(name.topic, 1, size, wait_s)
            batch = self._accumulator.add(name, pair, size, is_movable, time.monotonic())
            count = len(batch.pairs)
            if batch.outcome is None:
                batch.outcome = self._outcomes.new(name)
            if count == 1 or batch.is_closed:
                self._wake(name)
            return batch.outcome, count - 1

    def appender(self, value_bytes: int) -> Callable[[Any, Any], SendFuture | None] | None:
        """Return what adds a message to a batch that is open for it; None without the compiled kernel.

        It takes a topic and the value of a message without a key, and returns None if there is more to do for it, or if
        anything is wrong with it. The message goes the way through `add` then, which all go without the kernel.

        Args:
            value_bytes: Most bytes of a value.
        """
        if kernel.compiled is None or self._transactions is not None:
            return None
        add: Callable[[Any, Any], SendFuture | None] = kernel.compiled.Appender(
            self._accumulator, self._room.turns, self._lock, time.monotonic, self._limits, value_bytes,
            MESSAGE_OVERHEAD_BYTES, Batch, SendFuture,
        ).add  # fmt: skip
        return add

    def add_batch(
        self, name: TopicPartition, pairs: list[Pair], size: int, is_movable: bool, wait_s: float | None
    ) -> BatchOutcome:
        """Take messages that make a batch of their own; otherwise as `add`."""
        self._enlist(name)
        with self._lock:
            self._wait_for_room(name.topic, len(pairs), size, wait_s)
            batch = self._accumulator.add_batch(name, pairs, size, is_movable, time.monotonic())
            outcome = batch.outcome = self._outcomes.new(name)
            self._wake(name)
            return outcome

    def _enlist(self, name: TopicPartition) -> None:
        """Add a partition to the transaction, if there are transactions."""
        if self._transactions is not None:
            self._transactions.enlist(name, self._settings.timeout_ms / 500)

    def abandon(self, reason: str) -> None:
        """Fail everything that waits, and that is not in flight."""
        with self._lock:
            effects = self._accumulator.abandon(reason)
            self._go_on(effects)
        self._report(effects)

    def start_numbers(self, producer: ProducerId) -> None:
        """Number all batches from 0 under the id of a transactional producer."""
        assert self._numbering is not None
        with self._lock:
            self._numbering.start(producer)

    def has_lost_numbers(self) -> bool:
        """Return whether a transactional producer needs a new epoch, since a batch failed that may be stored."""
        assert self._numbering is not None
        with self._lock:
            return self._numbering.producer is None

    def close_batches(self) -> None:
        """Have everything that waits sent now."""
        with self._lock:
            self._send_what_waits()

    def flush(self, timeout_s: float | None) -> bool:
        """Return whether everything that was taken before has its outcome within the time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.close_batches()
        open_ones = self._outcomes.all()
        return all(each.wait(None if deadline is None else max(deadline - time.monotonic(), 0.0)) for each in open_ones)

    def close(self, timeout_s: float | None) -> int:
        """Send what waits, for so long; fail the rest, and return how many messages that are.

        A callback does not wait, since what waits is not sent before it returns.
        """
        with self._lock:
            self._is_closed = True
            self._accumulator.open.clear()
            self._room.look_all()
            self._lookups.layouts.notify_all()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        is_flushed = False
        left = 0
        try:
            is_flushed = self.flush(0.0 if running.owner is self.owner else timeout_s)
        finally:  # an interrupt ends the wait, and leaves no thread and no message without an outcome
            left = self._end(is_flushed and running.owner is not self.owner, deadline)
        return left

    def _end(self, is_flushed: bool, deadline: float | None) -> int:
        """Fail what has no outcome, and end the threads; return how many messages that are."""
        with self._lock:
            left = self._accumulator.messages
            effects = self._accumulator.abandon(_CLOSED)
            self._go_on(effects)
            in_flight = self._accumulator.in_flight()
            self._has_ended = True
            self._lookups.end()
            brokers = list(self._brokers.values())
            self._wake_all()
        callbacks = self._outcomes.finish(effects)
        for batch in in_flight:
            error = MessageNotSent(*batch.name, _CLOSED, batch.tries + 1, may_be_stored=True)
            callbacks += batch.outcome.finish(batch.name.partition, -1, error)
        for each in brokers:
            if is_flushed and self._settings.acks == 0:
                each.join(deadline)
            each.end()
        call_each(callbacks)
        return left

    @property
    def repeated(self) -> int:
        """How many messages were sent again after a lost connection, and may be stored twice."""
        return self._accumulator.repeated

    def statistics(self) -> ProducerStatistics:
        """Return the waiting messages, and the counts so far."""
        with self._lock:
            return ProducerStatistics(
                client_id=self._settings.client_id,
                uptime_s=time.monotonic() - self._started_at,
                waiting_messages=self._accumulator.messages,
                waiting_bytes=self._accumulator.size,
                topics=self._counters.topics(),
                batch_messages=self._counters.batch_messages(),
                retried_batches=self._accumulator.retries,
                repeated_messages=self._accumulator.repeated,
                split_batches=self._counters.split_batches,
                failed_requests=self._counters.failed_requests(),
                request_seconds=self._counters.request_seconds(),
                throttled=self._counters.throttles(),
                throttle_ms=self._counters.throttle_ms(),
            )

    def refused(self, error: BaseException) -> None:
        """Take over that a message was not taken: it is counted, and the open transaction is not whole without it.

        Every way in calls this for whatever ends it, interrupts included.
        """
        if isinstance(error, MessageNotSent):
            with self._lock:
                self._counters.refused(error.topic)
        if self._transactions is not None and not isinstance(error, TransactionFailed):
            self._transactions.message_refused(error)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosed("the producer is closed")

    def _wait_for_room(self, topic: str, messages: int, size: int, wait_s: float | None) -> None:
        self._check_open()
        if running.owner is self.owner:
            wait_s = 0.0  # a callback, before whose return nothing is sent
        full = self._room.wait(messages, size, wait_s, self._check_open)
        if full is not None:
            raise QueueFull(topic, full)
        if self._transactions is not None:  # of which the commit waits for the lock
            self._transactions.check_open()

    def _send_what_waits(self) -> None:
        self._accumulator.close_batches()
        self._wake_all()

    # -- for the threads -----------------------------------------------------------------------------------------------

    def _wake(self, name: TopicPartition) -> None:
        leader = self._accumulator.layout.leader(name)
        thread = None if leader is None else self._brokers.get(leader)
        if thread is not None:
            thread.wake.notify()
        else:
            self._accumulator.layout.want(name.topic, time.monotonic())
            self._lookups.wake.notify()

    def _wake_all(self) -> None:
        for thread in self._brokers.values():
            thread.wake.notify()
        self._lookups.wake.notify()

    def next_batches(self, thread: BrokerThread) -> list[Batch] | None:
        """Wait until there is something to send to a broker; None when nothing follows.

        That is when the delivery has ended, or when the broker has led nothing for some time: it may be gone for good.
        Another thread is started if it leads again. Nothing is sent while the broker throttles the producer.
        """
        idle_since: float | None = None
        broker = thread.broker.id
        with self._lock:
            while True:
                is_throttled = time.monotonic() < thread.throttled_until
                if not is_throttled and (batches := self._accumulator.take(broker, time.monotonic())):
                    return batches
                if self._has_ended:
                    return None
                due_at, now = self._accumulator.due_at(broker), time.monotonic()
                if due_at is not None or self._accumulator.layout.has_leader(broker):
                    idle_since = None
                    due_at = due_at and max(due_at, thread.throttled_until)
                    thread.wake.wait(_LONGEST_SLEEP_S if due_at is None else max(due_at - now, 0.0))
                    continue
                idle_since = now if idle_since is None else idle_since
                if now - idle_since >= IDLE_BROKER_S:
                    self._brokers.pop(broker, None)
                    return None
                thread.wake.wait(idle_since + IDLE_BROKER_S - now)

    def upcoming(self, thread: BrokerThread) -> list[Batch]:
        """Return batches that the next request to a broker may have, and to which nothing is added."""
        with self._lock:
            return self._accumulator.upcoming(thread.broker.id)

    def number(self, batches: Sequence[Batch], new_id: Callable[[], ProducerId]) -> None:
        """Give numbers to batches that are about to be sent; see `Numbering`.

        Raises:
            SimpleConsumerError: No broker gives a producer id.
            TransactionFailed: A message of the transaction failed before these.
        """
        numbering = self._numbering
        assert numbering is not None
        with self._lock:
            needs_id = any(map(numbering.needs_id, batches))
        if needs_id and self._transactions is not None:
            raise TransactionFailed(self._transactions.id, TransactionState.FAILED.value)
        found = new_id() if needs_id else None
        with self._lock:
            if found is not None and numbering.producer is None:
                numbering.start(found)
            for batch in batches:
                numbering.number(batch)

    def answered(
        self,
        batches: Sequence[Batch],
        broker: int,
        results: Mapping[TopicPartition, ProducedPartition],
        seconds: float | None,
    ) -> None:
        """Take over an answer, and how long it took; None for batches that were not sent."""
        with self._lock:
            self._lookups.sent()
            if seconds is not None:
                self._counters.answered(broker, seconds)
            effects = self._accumulator.answered(batches, results, time.monotonic())
            if self._has_ended:
                effects += self._accumulator.abandon(_CLOSED)
            self._go_on(effects)
        self._report(effects)

    def request_failed(
        self, batches: Sequence[Batch], broker: int, reason: str | Exception, may_be_stored: bool,
        *, is_final: bool = False,
    ) -> None:  # fmt: skip
        """Take over that a request was lost, finally if another one would be, too."""
        with self._lock:
            self._counters.request_failed(broker)
            effects = self._accumulator.request_failed(batches, broker, reason, may_be_stored, time.monotonic(),
                                                       is_final)  # fmt: skip
            if self._has_ended:
                effects += self._accumulator.abandon(_CLOSED)
            self._go_on(effects)
            self._wake_all()
        self._report(effects)

    def postponed(self, batches: Sequence[Batch]) -> None:
        """Take batches back that were not sent, since their broker throttles the producer."""
        with self._lock:
            self._accumulator.postponed(batches)
            effects = self._accumulator.abandon(_CLOSED) if self._has_ended else []
            self._go_on(effects)
        self._report(effects)

    def throttled(self, throttle: Throttle) -> None:
        """Count an answer that says that a broker throttles the producer; called without the lock."""
        if throttle.is_answered:
            with self._lock:
                self._counters.throttled(throttle.api, throttle.throttle_ms)

    def _go_on(self, effects: Sequence[Effect]) -> None:
        """Count what is finished, and wake who waits for room or for leaders."""
        self._outcomes.count(effects)
        self._room.look()
        if self._accumulator.layout.stale:
            self._lookups.wake.notify()

    def _report(self, effects: Sequence[Effect]) -> None:
        """Set outcomes, and then run their callbacks."""
        call_each(self._outcomes.finish(effects))

    # -- leaders -------------------------------------------------------------------------------------------------------

    def _looked_up(self, found: Mapping[str, FoundTopic]) -> None:
        """Take over what a look-up found, and run the callbacks of what it fails."""
        with self._lock:
            effects: list[Effect] = []
            for topic, each in found.items():
                effects += self._take_over(topic, each, time.monotonic())
            self._go_on(effects)
            self._lookups.layouts.notify_all()
            self._wake_all()
        callbacks = self._outcomes.finish(effects)
        if callbacks:
            call_in_thread(callbacks)

    def _take_over(self, topic: str, found: FoundTopic, now: float) -> list[Effect]:
        """Take over what a look-up found, and start the threads of new brokers."""
        if not found.leaders:
            return self._accumulator.topic_not_found(topic, found.reason, found.is_final, now, found.is_absent)
        try:
            for broker in found.leaders.values():
                if broker is not None:
                    self._meet(broker)
        except RuntimeError as error:  # there are too many threads, or the program ends
            return self._accumulator.topic_not_found(topic, f"no thread for broker {broker}: {error}", False, now)
        leaders = {number: None if each is None else each.id for number, each in found.leaders.items()}
        return self._accumulator.set_partitions(topic, leaders, now)

    def _meet(self, broker: Broker) -> None:
        """Start the thread of a broker, or report its new address."""
        thread = self._brokers.get(broker.id)
        if thread is None:
            thread = BrokerThread(broker, self, self._settings, self._lock)
            thread.start()
            self._brokers[broker.id] = thread
        elif thread.broker != broker:
            thread.broker = broker
