"""Coordinator: asks the broker that coordinates the transactions of a producer, wherever it is.

One connection is kept for all requests, and closed when it fails or the coordinator moves. A coordinator that moves,
starts, or still ends the transaction before is asked again until the deadline. That does no harm: a new id replaces the
last one, and partitions that were added, or a transaction that was ended, are acknowledged once more.

Threads: one asks at a time; any may close.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError, ConnectionFailed, SimpleConsumerError, Throttled, VersionNotServed
from simpleconsumer.throttling import Throttle
from simpleconsumer.types import Broker
from zkconsumer.backoff import Backoff
from zkconsumer.producer.errors import TransactionFailed, without_frames
from zkconsumer.producer.sending.produce_codes import FENCED
from zkconsumer_error import ErrorCode

__all__ = ["Asked", "Coordinator", "FencedFirst"]

T = TypeVar("T")

_MOVED: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_AGAIN: Final = (*_MOVED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_BACKOFF: Final = Backoff(0.05, 1.0)
_SHORTEST_TRY_S: Final = 0.05


class Asked(NamedTuple, Generic[T]):
    """What a coordinator has answered.

    Attributes:
        answer: The answer.
        was_lost: An earlier try may have been done, too: its answer was lost.
    """

    answer: T
    was_lost: bool


class _Tried(NamedTuple, Generic[T]):
    """What has come of one try.

    Attributes:
        answers: The answer, or nothing.
        reason: Why there is none; None if there is one.
        throttled_s: How long the coordinator throttles the producer.
        may_be_done: What was asked may have been done: its answer was lost.
    """

    answers: tuple[T, ...]
    reason: SimpleConsumerError | None
    throttled_s: float = 0.0
    may_be_done: bool = False


class Coordinator:
    """The coordinator of one transactional id.

    Args:
        transactional_id: Names the producer.
        brokers: Returns some brokers of the cluster.
        connect: Returns a new connection to a broker.

    Attributes:
        on_throttle: Called with each answer that says that a broker throttles the producer.
    """

    def __init__(
        self,
        transactional_id: str,
        brokers: Callable[[], Sequence[Broker]],
        connect: Callable[[Broker], SimpleConsumer],
    ) -> None:
        self._id = transactional_id
        self._brokers = brokers
        self._connect = connect
        self.on_throttle: Callable[[Throttle], None] = lambda throttle: None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connection: SimpleConsumer | None = None
        self._looking: SimpleConsumer | None = None

    def ask(
        self,
        request: AnyRequest[T],
        code_of: Callable[[T], int],
        deadline: float,
        first: AnyRequest[int] | None = None,
        *,
        throttle_s: float = 0.0,
    ) -> Asked[T]:
        """Return the answer to a request, which may have an error code that another try would not change.

        Args:
            request: Of the dialect of Kafka 0.11 and later.
            code_of: Returns the error code of an answer.
            deadline: In seconds of the monotonic clock.
            first: Is asked right before each try, as long as no try may have been done.
            throttle_s: How much later than the deadline it may be when the coordinator throttles the producer.

        Raises:
            TransactionFailed: No coordinator has answered in time. With `outcome_is_unknown` a request was sent, and
                what was asked may have happened. Its cause is VersionNotServed if the coordinator is too old for it.
            FencedFirst: The answer to `first` says that another producer has the transactional id.
            AuthenticationFailed: A broker or the client refuse each other.
        """
        was_lost, failures = False, 0
        while True:
            try:
                tried = self._try(request, code_of, deadline, None if was_lost else first)
            except VersionNotServed as error:
                without_frames(error)
                raise TransactionFailed(self._id, str(error), was_lost) from error
            if tried.reason is None:
                return Asked(tried.answers[0], was_lost)
            was_lost |= tried.may_be_done
            extra_s = min(tried.throttled_s, throttle_s)
            deadline, throttle_s = deadline + extra_s, throttle_s - extra_s
            pause_s = tried.throttled_s or _BACKOFF.wait_s(failures)
            failures += not tried.throttled_s
            if time.monotonic() + pause_s > deadline or self._closed.wait(pause_s):
                said = f"its coordinator does not answer in time: {tried.reason}"
                if self._closed.is_set():
                    said = "the producer is closed"
                raise TransactionFailed(self._id, said, was_lost) from tried.reason

    def _try(
        self, request: AnyRequest[T], code_of: Callable[[T], int], deadline: float, first: AnyRequest[int] | None
    ) -> _Tried[T]:
        """Ask once."""
        is_tried = False
        try:
            connection = self._connected(deadline)
            code = 0 if first is None else connection.ask(first)
            if code in FENCED:
                raise FencedFirst(code)
            if code not in _AGAIN:
                is_tried = True
                answer = connection.ask(request)
                code = code_of(answer)
                if code not in _AGAIN:
                    return _Tried((answer,), None)
        except _NotFound as error:
            return _Tried((), error.reason)
        except Throttled as error:  # nothing was sent, and another connection would be throttled, too
            return _Tried((), error, connection.throttled_s)
        except VersionNotServed:
            raise
        except SimpleConsumerError as error:
            without_frames(error)
            self._forget()
            is_sent = not isinstance(error, ConnectionFailed) or error.is_sent
            return _Tried((), error, may_be_done=is_tried and is_sent)
        if code in _MOVED:
            self._forget()
        return _Tried((), BrokerError(code, None, None))

    def close(self) -> None:
        """Close the connection, and end a request that is under way."""
        self._closed.set()
        with self._lock:
            for each in (self._connection, self._looking):
                if each is not None:
                    each.close()

    def _connected(self, deadline: float) -> SimpleConsumer:
        """Return the connection to the coordinator, which waits no longer than the deadline.

        Raises:
            _NotFound: No broker says which one it is.
        """
        connection = self._connection
        if connection is None:
            connection = self._opened(self._look_up(deadline))
            with self._lock:
                self._connection = connection
        self._limit(connection, deadline)
        return connection

    def _forget(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _look_up(self, deadline: float) -> Broker:
        """Ask the brokers one after the other, and return what the first one says that knows the coordinator."""
        reason: SimpleConsumerError = BrokerError(_MOVED[1], None, None)
        for broker in self._brokers():
            if time.monotonic() > deadline or self._closed.is_set():
                break
            connection = self._opened(broker)
            try:
                with self._lock:
                    self._looking = connection
                self._limit(connection, deadline)
                code, found = connection.ask(KAFKA011.coordinator(self._id, of_transactions=True))
            except SimpleConsumerError as error:
                without_frames(error)
                reason = error
                continue
            finally:
                with self._lock:
                    self._looking = None
                connection.close()
            if not code:
                return found
            reason = BrokerError(code, None, None)
        raise _NotFound(reason)

    def _opened(self, broker: Broker) -> SimpleConsumer:
        connection = self._connect(broker)
        connection.report_throttles(self.on_throttle)
        if self._closed.is_set():
            connection.close()
        return connection

    @staticmethod
    def _limit(connection: SimpleConsumer, deadline: float) -> None:
        left_s = max(deadline - time.monotonic(), _SHORTEST_TRY_S)
        connection.limit_calls(left_s)


class FencedFirst(Exception):  # noqa: N818 - says what happened
    """Another producer has the transactional id; nothing was asked but that.

    Attributes:
        code: The answer.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _NotFound(Exception):  # noqa: N818 - says what happened
    """No broker names the coordinator; nothing was asked of it."""

    def __init__(self, reason: SimpleConsumerError) -> None:
        super().__init__(reason)
        self.reason = reason
