"""Coordinator: asks the broker that coordinates the transactions of a producer, wherever it is.

Each request has a connection of its own: there are few, and any thread may make one. A coordinator that moves, starts,
or still ends the transaction before is asked again until the deadline. That does no harm: a new id replaces the last
one, and partitions that were added, or a transaction that was ended, are acknowledged once more.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker
from zkconsumer.producer.errors import TransactionFailed, without_frames

__all__ = ["Coordinator"]

T = TypeVar("T")

_MOVED: Final = (14, 15, 16)
_CONCURRENT: Final = 51
"""The transaction before is still being ended."""
_UNKNOWN_TOPIC: Final = 3
_AGAIN: Final = (*_MOVED, _CONCURRENT, _UNKNOWN_TOPIC)
_BACKOFF_S: Final = 0.05


class Coordinator:
    """The coordinator of one transactional id.

    Args:
        transactional_id: Names the producer.
        brokers: Returns some brokers of the cluster.
        connect: Returns a new connection to a broker.

    Threads: any.
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
        self._found: Broker | None = None

    def ask(self, request: AnyRequest[T], code_of: Callable[[T], int], deadline: float) -> T:
        """Return the answer to a request, which may have an error code that another try would not change.

        Args:
            request: Of the dialect of Kafka 0.11 and later.
            code_of: Returns the error code of an answer.
            deadline: In seconds of the monotonic clock.

        Raises:
            TransactionFailed: No coordinator has answered in time; what was asked may have happened.
        """
        while True:
            reason: SimpleConsumerError
            try:
                with self._connect(self._coordinator()) as connection:
                    answer = connection.ask(request)
                code = code_of(answer)
                if code not in _AGAIN:
                    return answer
                reason = BrokerError(code, None, None)
                if code in _MOVED:
                    self._found = None
            except SimpleConsumerError as error:
                without_frames(error)
                reason = error
                self._found = None
            if time.monotonic() + _BACKOFF_S > deadline:
                raise TransactionFailed(self._id, f"its coordinator does not answer in time: {reason}") from reason
            time.sleep(_BACKOFF_S)

    def _coordinator(self) -> Broker:
        found = self._found
        if found is None:
            found = self._found = self._look_up()
        return found

    def _look_up(self) -> Broker:
        """Ask the brokers one after the other, and return what the first one says that knows the coordinator."""
        reason: SimpleConsumerError = BrokerError(_MOVED[1], None, None)
        for broker in self._brokers():
            try:
                with self._connect(broker) as connection:
                    code, found = connection.ask(KAFKA011.coordinator(self._id, of_transactions=True))
            except SimpleConsumerError as error:
                reason = error
                continue
            if not code:
                return found
            reason = BrokerError(code, None, None)
        raise reason
