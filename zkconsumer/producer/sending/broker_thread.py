"""BrokerThread: sends the requests of a producer to one broker, and reports the answers.

Threads: one runs `_run`; the delivery starts and ends it. No lock is held during I/O or encoding.

What stands for an acknowledgement of a broker of Kafka 0.7, which answers no produce request.
"""

from __future__ import annotations

import codecs
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA011, ProducerId, coordinates_groups, dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, ConnectionFailed, SimpleConsumerError, Throttled
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import HELD_S, Throttle
from simpleconsumer.types import Broker, ProducedPartition, TopicPartition
from zkconsumer.producer.batching.batch_queues import Batch, by_partition
from zkconsumer.producer.batching.message_sets import MessageSets
from zkconsumer.producer.batching.outcome import running
from zkconsumer.producer.errors import TransactionFailed, may_have_been_sent, without_frames
from zkconsumer_error import shown


def wait_until_read(connection: SimpleConsumer, name: TopicPartition) -> None:
    """Return when a broker of Kafka 0.7 has read what was sent before on the same connection.

    It serves the requests of a connection in order, and closes the connection at a produce request that it refuses. So
    its answer to another request, on the same connection, comes behind the messages.

    Args:
        connection: The connection on which the messages were sent.
        name: A partition of theirs; -1 if the broker chose it.

    Raises:
        ConnectionFailed: The connection was closed before, or no answer came.
    """
    opened = connection.connects
    connection.get_offsets_before(name.topic, 0 if name.partition == -1 else name.partition, LATEST)
    if connection.connects != opened:
        raise ConnectionFailed(connection.host, connection.port, "closed behind the messages")


log = logging.getLogger(__name__)

codecs.lookup("idna")  # the first look-up of a host would import it, and a child forked meanwhile would wait for ever

_LOGGED_FAILURE: Final = 5
ANY_PARTITION: Final = "any"
"""In place of the number of a partition of Kafka 0.7: the broker chooses one."""


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
        security: TLS and SASL; None for neither.
        is_idempotent: Brokers store each batch once.
        transactional_id: Of a transactional producer; None for none.
        hint: What to do about a broker that takes connections and has answered nothing yet; a clause.
    """

    acks: int
    timeout_ms: int
    connect_timeout_s: float
    send_buffer_bytes: int
    client_id: str
    codec_of: Callable[[str], str]
    refresh_s: float | None
    security: Security | None = None
    is_idempotent: bool = False
    transactional_id: str | None = None
    hint: str = ""

    def connection(self, broker: Broker) -> SimpleConsumer:
        """Return a new connection to a broker."""
        timeout_s = self.timeout_ms / 500  # twice what the leader may wait for its replicas
        return SimpleConsumer(
            broker.host, broker.port, timeout_s, self.client_id, dialect=dialect_of(broker),
            send_buffer_bytes=self.send_buffer_bytes, connect_timeout_s=self.connect_timeout_s,
            security=self.security,
            held_s=HELD_S if coordinates_groups(broker) else 0.0,  # brokers before 0.9 have no quotas
        )  # fmt: skip


class Batches(Protocol):
    """Where the batches come from, and where their answers go; `Delivery`.

    Attributes:
        owner: Marks the threads of the producer; see `outcome.running`.
    """

    @property
    def owner(self) -> object: ...

    def next_batches(self, thread: BrokerThread) -> list[Batch] | None:
        """Wait until there is something to send to a broker; None when nothing follows."""

    def upcoming(self, thread: BrokerThread) -> list[Batch]:
        """Return batches that the next request to a broker may have, and to which nothing is added."""

    def answered(
        self,
        batches: Sequence[Batch],
        broker: int,
        results: Mapping[TopicPartition, ProducedPartition],
        seconds: float | None,
    ) -> None:
        """Take over an answer, and how long it took; None for batches that were not sent."""

    def number(self, batches: Sequence[Batch], new_id: Callable[[], ProducerId]) -> None:
        """Give numbers to batches of an idempotent producer that are about to be sent.

        Raises:
            SimpleConsumerError: No broker gives a producer id.
        """

    def request_failed(
        self, batches: Sequence[Batch], broker: int, reason: str | Exception, may_be_stored: bool,
        *, is_final: bool = False,
    ) -> None:  # fmt: skip
        """Take over that a request was lost, finally if another one would be, too."""

    def postponed(self, batches: Sequence[Batch]) -> None:
        """Take batches back that were not sent, since the broker throttles this producer."""

    def throttled(self, throttle: Throttle) -> None:
        """Count an answer that says so."""


class BrokerThread:
    """Sends the requests to one broker, one at a time.

    A broker that throttles the producer is sent nothing until the time is over: it would read nothing, or hold back the
    answer. What waits meanwhile gathers in batches, and no try is counted.

    Attributes:
        throttled_until: Nothing is sent before then, in seconds of the monotonic clock.
        broker: The broker; another address takes effect with the next request.
        wake: Notified when there may be something to send.
    """

    def __init__(self, broker: Broker, delivery: Batches, settings: RequestSettings, lock: threading.Lock) -> None:
        self.broker = broker
        self.wake = threading.Condition(lock)
        self.throttled_until = 0.0
        self._delivery = delivery
        self._settings = settings
        self._connected_to: Broker | None = None
        self._connection: SimpleConsumer | None = None
        self._latest: TopicPartition | None = None
        self._failures = 0
        self._has_answered = False
        self._sets = MessageSets(settings.codec_of)
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
                log.exception("broker %s: a bug in the producer", self.broker.id)
                self._delivery.request_failed(batches, self.broker.id, f"a bug in the producer: {shown(error)}", True)
            if self._connection is not None and (throttled_s := self._connection.throttled_s):
                self.throttled_until = time.monotonic() + throttled_s
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
        except (SimpleConsumerError, AuthenticationFailed) as error:
            log.warning("broker %s may not have received the last messages, which it does not acknowledge: %s",
                        self.broker.id, error)  # fmt: skip

    def _exchange(self, batches: Sequence[Batch]) -> None:
        connection = self._connected()
        try:
            self._sets.look(connection)
        except (SimpleConsumerError, AuthenticationFailed) as error:
            self._not_sent(batches, error)
            return
        of_partition = self._without_refused(by_partition(batches))
        batches = [batch for mine in of_partition.values() for batch in mine]
        if not batches:
            return
        if self._settings.is_idempotent:
            try:
                self._delivery.number(batches, lambda: new_producer_id(connection))
            except (SimpleConsumerError, AuthenticationFailed, TransactionFailed) as error:
                self._not_sent(batches, error)
                return
        if connection.throttled_s:  # by the answer with the id
            self._delivery.postponed(batches)
            return
        self._request(of_partition, connection)

    def _not_sent(self, batches: Sequence[Batch], error: Exception) -> None:
        without_frames(error)
        if isinstance(error, Throttled):
            self._delivery.postponed(batches)
            return
        is_final = isinstance(error, AuthenticationFailed)
        self._say_failed(error)
        self._delivery.request_failed(batches, self.broker.id, error, False, is_final=is_final)

    def _say_failed(self, error: Exception) -> None:
        """Log once in a row of failures: messages may be sent again for a long time before one fails.

        With the usual number of tries they fail first, and say it themselves.
        """
        self._failures += 1
        if self._failures == _LOGGED_FAILURE:
            log.warning("requests of a producer to broker %s fail, %d in a row: %s", self.broker.id, self._failures,
                        error)  # fmt: skip

    def _without_refused(self, of_partition: dict[TopicPartition, list[Batch]]) -> dict[TopicPartition, list[Batch]]:
        """Return what the broker can store; report the other partitions."""
        for name, mine in list(of_partition.items()):
            code = max(self._sets.refusal(batch, self._settings.is_idempotent) for batch in mine)
            if code:
                del of_partition[name]
                self._delivery.answered(mine, self.broker.id, {name: ProducedPartition(code, -1)}, None)
        return of_partition

    def _request(self, of_partition: Mapping[TopicPartition, list[Batch]], connection: SimpleConsumer) -> None:
        is_sent = False
        batches = [batch for mine in of_partition.values() for batch in mine]
        self._latest = name_on_wire(batches[-1].name)
        sets = {name: self._sets.encoded(mine, connection) for name, mine in of_partition.items()}
        started = time.monotonic()
        try:
            on_wire = {name_on_wire(name): data for name, data in sets.items()}
            results = connection.produce_sets(
                on_wire, acks=self._settings.acks, timeout_ms=self._settings.timeout_ms,
                meanwhile=lambda: self._encode_ahead(connection), transactional_id=self._settings.transactional_id,
            )  # fmt: skip
            is_sent = True
            if self._settings.acks and not connection.dialect.has_metadata:
                wait_until_read(connection, name_on_wire(batches[0].name))
        except (SimpleConsumerError, AuthenticationFailed) as error:
            without_frames(error)  # the messages' errors keep it
            self._say_failed(error)
            is_final = isinstance(error, AuthenticationFailed)
            is_sent = is_sent or may_have_been_sent(error)
            if not self._has_answered and isinstance(error, ConnectionFailed) and error.is_sent:
                error.remedy = self._settings.hint
            self._delivery.request_failed(batches, self.broker.id, error, is_sent, is_final=is_final)
        else:
            self._failures = 0
            self._has_answered = True
            seconds = time.monotonic() - started
            self._delivery.answered(batches, self.broker.id, dict(zip(sets, results, strict=True)), seconds)

    def _encode_ahead(self, connection: SimpleConsumer) -> None:
        """Encode what the next request may have, while the broker works on this one."""
        for mine in by_partition(self._delivery.upcoming(self)).values():
            try:
                self._sets.encode_ahead(mine, connection)
            except Exception:  # noqa: BLE001  (its own request reports it)
                return

    def _connected(self) -> SimpleConsumer:
        broker = self.broker
        if self._connection is None or self._connected_to != broker:
            self.end()
            self._connection = self._settings.connection(broker)
            self._connection.report_throttles(self._delivery.throttled)
            self._connected_to = broker
        return self._connection


def new_producer_id(connection: SimpleConsumer) -> ProducerId:
    """Return a new id for an idempotent producer, which any broker gives.

    Raises:
        BrokerError: It gives none now.
        VersionNotServed: It is older than Kafka 0.11.
    """
    code, found = connection.ask(KAFKA011.producer_id(None, 0))
    if code:
        raise BrokerError(code, None, None)
    return found


def name_on_wire(name: TopicPartition) -> TopicPartition:
    """Return a partition as requests name it: -1 lets the broker choose one."""
    is_any = isinstance(name.partition, str) and name.partition.endswith(f"-{ANY_PARTITION}")
    return TopicPartition(name.topic, -1) if is_any else name
