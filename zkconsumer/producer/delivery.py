"""Delivery: takes encoded messages to the leaders of their partitions, and reports what became of each.

Threads: one for each broker sends requests, one at a time, and one looks up leaders. The accumulator belongs to whoever
holds the lock, which nobody does during I/O, encoding or a callback. Outcomes are set, and callbacks run, in the
threads of the brokers; callbacks of messages that found no leader run in a thread of their own, since they may send
to topics that have to be looked up.
"""

from __future__ import annotations

import codecs
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError, ConnectionFailed, SimpleConsumerError
from simpleconsumer.types import Broker, ProducedPartition, TopicPartition
from zkconsumer.producer.accumulator import Accumulator, Effect, FailedSearches, Finished, Limits
from zkconsumer.producer.acknowledgement_07 import wait_until_read
from zkconsumer.producer.batch import Batch, Pair
from zkconsumer.producer.counters import Counters
from zkconsumer.producer.errors import MessageNotSent, ProducerClosed, QueueFull
from zkconsumer.producer.null_values import takes_null_values
from zkconsumer.producer.outcome import BatchOutcome, call_each, running
from zkconsumer.producer.statistics import ProducerStatistics
from zkconsumer.producer.topic_lookup import FoundTopic

__all__ = ["ANY_PARTITION", "Delivery", "Lookup", "RequestSettings"]

log = logging.getLogger(__name__)

codecs.lookup("idna")  # the first look-up of a host would import it, and a child forked meanwhile would wait for ever

ANY_PARTITION: Final = "any"
"""In place of the number of a partition of Kafka 0.7: the broker chooses one."""

_LONGEST_SLEEP_S: Final = 60.0
_CLOSED: Final = "the producer was closed"


class Lookup(Protocol):
    """Finds partitions and leaders."""

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics; it has a deadline, and raises nothing."""


@dataclass(frozen=True)
class RequestSettings:
    """How requests are made.

    Attributes:
        acks: -1, 0 or 1.
        timeout_ms: Longest wait of a leader for its replicas; the answer may take as long again.
        connect_timeout_s: Longest wait for a connection.
        send_buffer_bytes: Send buffer of a connection; 0 leaves it to the system.
        client_id: The name under which brokers log and count the requests.
        codec_of: Topic -> codec.
        refresh_s: Time between two look-ups of all topics; None: only after a failure.
    """

    acks: int
    timeout_ms: int
    connect_timeout_s: float
    send_buffer_bytes: int
    client_id: str
    codec_of: Callable[[str], str]
    refresh_s: float | None

    def connection(self, broker: Broker) -> SimpleConsumer:
        """Return a new connection to a broker."""
        timeout_s = self.timeout_ms / 500  # twice what the leader may wait for its replicas
        return SimpleConsumer(
            broker.host, broker.port, timeout_s, self.client_id, dialect=dialect_of(broker),
            send_buffer_bytes=self.send_buffer_bytes, connect_timeout_s=self.connect_timeout_s,
        )  # fmt: skip


class Delivery:
    """Sends the messages of one producer.

    Args:
        lookup: Finds partitions and leaders.
        limits: How messages are gathered and how often they are tried.
        settings: How requests are made.

    Attributes:
        owner: Marks the threads of the producer; see `outcome.running`.

    Threads: any, for all methods.
    """

    def __init__(
        self, lookup: Lookup, limits: Limits, settings: RequestSettings, rng: random.Random | None = None
    ) -> None:
        self.owner = object()
        self._lookup = lookup
        self._settings = settings
        self._limits = limits
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._layouts = threading.Condition(self._lock)
        self._accumulator = Accumulator(limits, rng)
        self._counters = Counters()
        self._takes_null_values: bool | None = None
        self._started_at = time.monotonic()
        self._brokers: dict[int, _BrokerThread] = {}
        self._open: dict[BatchOutcome, None] = {}
        self._is_closed = False
        self._has_ended = False
        self._wake_lookup = threading.Condition(self._lock)
        self._refresh_at = None if settings.refresh_s is None else time.monotonic() + settings.refresh_s
        self._has_sent = False
        self._lookup_thread = threading.Thread(target=self._look_up, name="zkconsumer-producer-lookup", daemon=True)
        self._lookup_thread.start()

    # -- for the producer ----------------------------------------------------------------------------------------------

    def partitions(self, topic: str, wait_s: float | None = None) -> Mapping[int | str, int | None] | str:
        """Return the partitions of a topic with their leaders; or, as text, why they are not known.

        It waits until a look-up has found them, as often as a batch is tried.

        Args:
            wait_s: Longest wait; None for no other limit.
        """
        known = self._accumulator.partitions(topic)
        if known:
            return known
        deadline = None if wait_s is None else time.monotonic() + wait_s
        with self._lock:
            earlier = self._accumulator.searches.get(topic, FailedSearches()).failures
            while not (known := self._accumulator.partitions(topic)):
                self._check_open()
                failed = self._accumulator.searches.get(topic, FailedSearches())
                tried = failed.failures - earlier
                if tried and (failed.is_final or tried > self._limits.retries):
                    return failed.reason
                self._accumulator.want(topic, time.monotonic() + (self._limits.backoff_s if tried else 0.0))
                self._wake_lookup.notify()
                left_s = _LONGEST_SLEEP_S if deadline is None else deadline - time.monotonic()
                if left_s <= 0.0:
                    return failed.reason or f"no broker has answered about it within {wait_s:g} s"
                self._layouts.wait(min(left_s, _LONGEST_SLEEP_S))
            return known

    def look_up_again(self) -> None:
        """Have the partitions of all topics looked up: something has changed. Waits for nothing but the lock."""
        with self._lock:
            for topic in self._accumulator.known_topics():
                self._accumulator.want(topic, time.monotonic())
            self._wake_lookup.notify()

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
            return self._accumulator.sticky_partition(topic)

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
        with self._lock:
            self._wait_for_room(name.topic, 1, size, wait_s)
            batch = self._accumulator.add(name, pair, size, is_movable, time.monotonic())
            count = len(batch.pairs)
            if batch.outcome is None:
                batch.outcome = BatchOutcome(*name, self.owner)
                self._open[batch.outcome] = None
            if count == 1 or batch.is_closed:
                self._wake(name)
            return batch.outcome, count - 1

    def add_batch(
        self, name: TopicPartition, pairs: list[Pair], size: int, is_movable: bool, wait_s: float | None
    ) -> BatchOutcome:
        """Take messages that make a batch of their own; otherwise as `add`."""
        with self._lock:
            self._wait_for_room(name.topic, len(pairs), size, wait_s)
            batch = self._accumulator.add_batch(name, pairs, size, is_movable, time.monotonic())
            outcome = batch.outcome = BatchOutcome(*name, self.owner)
            self._open[outcome] = None
            self._wake(name)
            return outcome

    def close_batches(self) -> None:
        """Have everything that waits sent now."""
        with self._lock:
            self._accumulator.close_batches()
            self._wake_all()

    def flush(self, timeout_s: float | None) -> bool:
        """Return whether everything that was taken before has its outcome within the time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.close_batches()
        with self._lock:
            open_ones = list(self._open)
        return all(each.wait(None if deadline is None else max(deadline - time.monotonic(), 0.0)) for each in open_ones)

    def close(self, timeout_s: float | None) -> int:
        """Send what waits, for so long; fail the rest, and return how many messages that are.

        A callback does not wait, since what waits is not sent before it returns.
        """
        with self._lock:
            self._is_closed = True
            self._room.notify_all()
            self._layouts.notify_all()
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
            brokers = list(self._brokers.values())
            self._wake_all()
        callbacks = self._finish(effects)
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
        """Return what waits, and what was counted so far."""
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
            )

    def count_refused(self, topic: str) -> None:
        """Count a message that failed before it was taken."""
        with self._lock:
            self._counters.refused(topic)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosed("the producer is closed")

    def _wait_for_room(self, topic: str, messages: int, size: int, wait_s: float | None) -> None:
        self._check_open()
        if self._accumulator.fullness(messages, size) is None:
            return
        if running.owner is self.owner:
            wait_s = 0.0  # a callback, before whose return nothing is sent
        deadline = None if wait_s is None else time.monotonic() + wait_s
        self._accumulator.close_batches()  # what fills the queue is to go now
        self._wake_all()
        while (full := self._accumulator.fullness(messages, size)) is not None:
            left_s = _LONGEST_SLEEP_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0.0:
                raise QueueFull(topic, full)
            self._room.wait(left_s)
            self._check_open()

    # -- for the threads -----------------------------------------------------------------------------------------------

    def _wake(self, name: TopicPartition) -> None:
        leader = self._accumulator.leader(name)
        thread = None if leader is None else self._brokers.get(leader)
        if thread is not None:
            thread.wake.notify()
        else:
            self._accumulator.want(name.topic, time.monotonic())
            self._wake_lookup.notify()

    def _wake_all(self) -> None:
        for thread in self._brokers.values():
            thread.wake.notify()
        self._wake_lookup.notify()

    def next_batches(self, thread: _BrokerThread) -> list[Batch] | None:
        """Wait until there is something to send to a broker; None when the delivery has ended."""
        with self._lock:
            while True:
                if batches := self._accumulator.take(thread.broker.id, time.monotonic()):
                    return batches
                if self._has_ended:
                    return None
                due_at = self._accumulator.due_at(thread.broker.id)
                thread.wake.wait(_LONGEST_SLEEP_S if due_at is None else max(due_at - time.monotonic(), 0.0))

    def answered(
        self, batches: Sequence[Batch], broker: int, results: Mapping[TopicPartition, ProducedPartition], seconds: float
    ) -> None:
        """Take over an answer, and how long it took."""
        with self._lock:
            self._has_sent = True
            self._counters.answered(broker, seconds)
            effects = self._accumulator.answered(batches, results, time.monotonic())
            if self._has_ended:
                effects += self._accumulator.abandon(_CLOSED)
            self._go_on(effects)
        self._report(effects)

    def request_failed(
        self, batches: Sequence[Batch], broker: int, reason: str | Exception, may_be_stored: bool
    ) -> None:
        """Take over that a request was lost."""
        with self._lock:
            self._counters.request_failed(broker)
            effects = self._accumulator.request_failed(batches, broker, reason, may_be_stored, time.monotonic())
            if self._has_ended:
                effects += self._accumulator.abandon(_CLOSED)
            self._go_on(effects)
            self._wake_all()
        self._report(effects)

    def _go_on(self, effects: Sequence[Effect]) -> None:
        """Count what is finished, make outcomes for halves, and wake who waits for room or for leaders."""
        for effect in effects:
            if isinstance(effect, Finished):
                self._counters.finished(effect.batch, effect.error is None)
            else:
                self._counters.split_batches += 1
                for half in effect.halves:
                    half.outcome = BatchOutcome(*half.name, self.owner)
                    self._open[half.outcome] = None
                self._open.pop(effect.batch.outcome, None)
        self._room.notify_all()
        if self._accumulator.stale:
            self._wake_lookup.notify()

    def _report(self, effects: Sequence[Effect]) -> None:
        """Set outcomes, and then run their callbacks."""
        call_each(self._finish(effects))

    def _finish(self, effects: Sequence[Effect]) -> list[Callable[[], None]]:
        """Set outcomes; return the callbacks to run."""
        callbacks: list[Callable[[], None]] = []
        for effect in effects:
            outcome = effect.batch.outcome
            if outcome is None:
                continue  # an interrupt ended the call that added its only message, and nobody has a future of it
            if isinstance(effect, Finished):
                self._explain(effect)
                callbacks += outcome.finish(effect.batch.name.partition, effect.offset, effect.error)
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
        if effect.error is not None and is_unknown and self._settings.codec_of(effect.batch.name.topic) == "lz4":
            effect.error.remedy = "brokers before Kafka 0.8.2 have no lz4: set compression.codec to gzip or snappy"

    # -- leaders -------------------------------------------------------------------------------------------------------

    def _look_up(self) -> None:
        """Run the thread that looks up leaders."""
        while (topics := self._topics_to_look_up()) is not None:
            try:
                found = self._lookup.look_up(topics)
            except Exception as error:
                log.exception("a fault of the look-up of topics")
                found = dict.fromkeys(topics, FoundTopic({}, f"a fault of the look-up: {error!r}"))
            with self._lock:
                effects: list[Effect] = []
                for topic, each in found.items():
                    effects += self._take_over(topic, each, time.monotonic())
                self._go_on(effects)
                self._layouts.notify_all()
                self._wake_all()
            callbacks = self._finish(effects)
            if callbacks:
                _call_in_thread(callbacks)

    def _topics_to_look_up(self) -> list[str] | None:
        """Wait until leaders have to be looked up; None when the delivery has ended."""
        with self._lock:
            while not self._has_ended:
                now = time.monotonic()
                if self._refresh_at is not None and now >= self._refresh_at and self._has_sent:
                    self._has_sent = False
                    self._refresh_at = now + (self._settings.refresh_s or 0.0)
                    return self._accumulator.known_topics()
                at = self._accumulator.lookup_at()
                if at is not None and at <= now:
                    return sorted(self._accumulator.stale)
                waits = [each for each in (at, self._refresh_at if self._has_sent else None) if each is not None]
                self._wake_lookup.wait(min(waits, default=now + _LONGEST_SLEEP_S) - now)
        return None

    def _take_over(self, topic: str, found: FoundTopic, now: float) -> list[Effect]:
        """Take over what a look-up found, and start the threads of new brokers."""
        if not found.leaders:
            return self._accumulator.topic_not_found(topic, found.reason, found.is_final, now)
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
            thread = _BrokerThread(broker, self, self._settings, self._lock)
            thread.start()
            self._brokers[broker.id] = thread
        elif thread.broker != broker:
            thread.broker = broker


class _BrokerThread:
    """Sends the requests to one broker, one at a time.

    Attributes:
        broker: The broker; another address takes effect with the next request.
        wake: Notified when there may be something to send.
    """

    def __init__(self, broker: Broker, delivery: Delivery, settings: RequestSettings, lock: threading.Lock) -> None:
        self.broker = broker
        self.wake = threading.Condition(lock)
        self._delivery = delivery
        self._settings = settings
        self._connected_to: Broker | None = None
        self._connection: SimpleConsumer | None = None
        self._latest: TopicPartition | None = None
        self._thread = threading.Thread(target=self._run, name=f"zkconsumer-producer-{broker.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End a request that waits for an answer."""
        if self._connection is not None:
            self._connection.close()

    def join(self, deadline: float | None) -> None:
        """Wait until the thread has ended, which takes one request at most; no longer than to the deadline."""
        longest_s = self._settings.connect_timeout_s + self._settings.timeout_ms / 500
        self._thread.join(longest_s if deadline is None else min(max(deadline - time.monotonic(), 0.0), longest_s))

    def _run(self) -> None:
        running.owner = self._delivery.owner
        while (batches := self._delivery.next_batches(self)) is not None:
            try:
                self._exchange(batches)
            except Exception as error:
                log.exception("broker %s: a fault of the producer", self.broker.id)
                self._delivery.request_failed(batches, self.broker.id, f"a fault of the producer: {error!r}", True)
        if self._settings.acks == 0:
            self._wait_until_read()
        self.end()

    def _wait_until_read(self) -> None:
        """Wait until the broker has read what it does not answer: those of 0.9 drop it when the connection ends."""
        connection, name = self._connection, self._latest
        if connection is None or name is None:
            return
        try:
            if connection.dialect.has_metadata:
                connection.topic_metadata([name.topic])
            else:
                wait_until_read(connection, name)
        except SimpleConsumerError as error:
            log.warning("broker %s may not have read the last messages, which it does not acknowledge: %s",
                        self.broker.id, error)  # fmt: skip

    def _exchange(self, batches: Sequence[Batch]) -> None:
        connection = self._connected()
        sets = self._encoded(batches, connection)
        is_sent = False
        self._latest = _name_on_wire(batches[-1].name)
        started = time.monotonic()
        try:
            on_wire = {_name_on_wire(name): data for name, data in sets.items()}
            results = connection.produce_sets(on_wire, acks=self._settings.acks, timeout_ms=self._settings.timeout_ms)
            is_sent = True
            if self._settings.acks and not connection.dialect.has_metadata:
                wait_until_read(connection, _name_on_wire(batches[0].name))
        except SimpleConsumerError as error:
            never_sent = not is_sent and isinstance(error, ConnectionFailed) and not error.is_sent
            self._delivery.request_failed(batches, self.broker.id, error, not never_sent)
        else:
            seconds = time.monotonic() - started
            self._delivery.answered(batches, self.broker.id, dict(zip(sets, results, strict=True)), seconds)

    def _encoded(self, batches: Sequence[Batch], connection: SimpleConsumer) -> dict[TopicPartition, bytes]:
        pieces: dict[TopicPartition, list[bytes]] = {}
        for batch in batches:
            codec = self._settings.codec_of(batch.name.topic)
            encoded = connection.dialect.encode_messages(batch.pairs, codec, None, None)
            pieces.setdefault(batch.name, []).append(encoded)
        return {name: b"".join(each) for name, each in pieces.items()}

    def _connected(self) -> SimpleConsumer:
        broker = self.broker
        if self._connection is None or self._connected_to != broker:
            self.end()
            self._connection = self._settings.connection(broker)
            self._connected_to = broker
        return self._connection


def _call_in_thread(callbacks: Sequence[Callable[[], None]]) -> None:
    thread = threading.Thread(target=call_each, args=(callbacks,), name="zkconsumer-producer-callbacks", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there are too many threads, or the program ends
        call_each(callbacks)


def _name_on_wire(name: TopicPartition) -> TopicPartition:
    is_any = isinstance(name.partition, str) and name.partition.endswith(f"-{ANY_PARTITION}")
    return TopicPartition(name.topic, -1) if is_any else name
