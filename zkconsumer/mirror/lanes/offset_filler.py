"""Moves the end of a partition of the target on to an offset, by offsets that hold nothing for readers.

An empty transaction takes one offset, which no reader gets. An aborted transaction of n - 1 records without key and
value takes n offsets, with its marker; readers of committed messages get none of them. So records of the target can
have the offsets that they have in the source, also after holes. A hundred offsets are filled by empty transactions.

Rules, and which failure each prevents:
- What is left to be filled is computed from the end of the log, after the coordinator has ended what was begun before
  under the same id. So it does not matter where a process was killed.
- Who comes later gets a later epoch, and fences who was there before.

Threads: one at a time; `close` from any.

Source: KIP-98; kafka.coordinator.transaction.TransactionCoordinator (3.9).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final, TypeVar

from simpleconsumer.closing import Closing
from simpleconsumer.consumer import LATEST
from simpleconsumer.dialect import KAFKA011, BatchProducer, encode_producer_batch, restamped
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError
from simpleconsumer.types import ProducerId, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.errors import AnotherWriter, LaneStuck
from zkconsumer.producer.errors import TransactionFailed
from zkconsumer.producer.transactions import Coordinator
from zkconsumer_error import ErrorCode

T = TypeVar("T")
_ALL_REPLICAS: Final = -1
_TRANSACTION_MS: Final = 60_000
_ASK_S: Final = 30.0
_MARKER_S: Final = 30.0
_RECORDS: Final = 100_000
"""Of one batch: compressed it has some hundred bytes."""
_MOST_OFFSETS: Final = 10_000_000
"""Of one transaction, so that it ends long before the coordinator gives it up."""
EMPTY_TRANSACTIONS: Final = 100
"""So many offsets are filled one by one: brokers take some hundred such transactions a second."""
_BACKOFF: Final = Backoff(0.01, 0.5)


class OffsetFiller(Closing):
    """Fills offsets of one partition.

    Args:
        name: The partition of the target.
        transactional_id: Names the producer.
        target: The cluster.
    """

    def __init__(self, name: TopicPartition, transactional_id: str, target: Side) -> None:
        self._name = name
        self._id = transactional_id
        self._target = target
        self._coordinator = Coordinator(transactional_id, target.cluster.brokers, target.connect)

    def close(self) -> None:
        """End a question that is under way, and close the connection."""
        self._coordinator.close()

    def fill(self, to_offset: int, is_stopping: Callable[[], bool]) -> bool:
        """Have the log end at an offset; return whether it does, False if it is to stop before.

        Raises:
            AnotherWriter: The log ends after it.
            LaneStuck, SimpleConsumerError: It does not now, and can be asked again.
        """
        producer = self._producer()
        while not is_stopping():
            end = self._end()
            if end > to_offset:
                raise AnotherWriter(self._name, f"the end of the log at {to_offset} or before", f"it at {end}")
            if end == to_offset:
                return True
            left = to_offset - end
            if left <= EMPTY_TRANSACTIONS:
                self._take(producer, end, 1)
            else:
                self._take(producer, end, min(left, _MOST_OFFSETS))
                producer = self._producer()  # whose numbers start anew
        return False

    def _take(self, producer: ProducerId, end: int, count: int) -> None:
        """Take so many offsets from the end of the log on."""
        [code] = self._ask(KAFKA011.add_to_transaction(self._id, producer, [self._name]), lambda codes: codes[0])
        self._check(code)
        leader = self._target.cluster.leaders([self._name]).get(self._name)
        if leader is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, *self._name)
        with self._target.connect(leader) as client:
            for first in range(0, count - 1, _RECORDS):
                size = min(_RECORDS, count - 1 - first)
                whole = restamped(_nothing(size), self._name, BatchProducer(*producer, first, True), takes_zstd=False)
                [answer] = client.produce_sets(
                    {self._name: whole.data}, acks=_ALL_REPLICAS, transactional_id=self._id
                )  # fmt: skip
                self._check(answer.error_code)
                if answer.base_offset != end + first:
                    found = f"it at {answer.base_offset}"
                    raise AnotherWriter(self._name, f"the end of the log at {end + first}", found)
        self._check(self._ask(KAFKA011.end_transaction(self._id, producer, commit=False), lambda code: code))
        self._wait(end + count)

    def _producer(self) -> ProducerId:
        """Return a new epoch, after what was begun before was aborted and has its marker."""
        code, producer = self._ask(KAFKA011.producer_id(self._id, _TRANSACTION_MS), lambda answer: answer[0])
        self._check(code)
        return producer

    def _ask(self, request: AnyRequest[T], code_of: Callable[[T], int]) -> T:
        try:
            return self._coordinator.ask(request, code_of, time.monotonic() + _ASK_S).answer
        except TransactionFailed as error:
            raise LaneStuck(self._name, _ASK_S, str(error)) from error

    def _check(self, code: int) -> None:
        if code:
            raise BrokerError(code, *self._name)

    def _wait(self, offset: int) -> None:
        """Wait for the marker, which is written after the coordinator has answered."""
        deadline = time.monotonic() + _MARKER_S
        for failures in itertools.count():
            if self._end() >= offset:
                return
            if time.monotonic() > deadline:
                raise LaneStuck(self._name, _MARKER_S, f"the marker at offset {offset - 1} was not written")
            time.sleep(_BACKOFF.wait_s(failures))

    def _end(self) -> int:
        found = self._target.cluster.log_ends([self._name], [LATEST])[self._name]
        if isinstance(found, str):
            raise LaneStuck(self._name, 0.0, found)
        return int(found[0] or 0)


def _nothing(records: int) -> bytes:
    """Return a batch of records without key and value."""
    now_ms = int(time.time() * 1000)
    return encode_producer_batch([([(None, None, (), now_ms)] * records, (0.0,))], "gzip", 0.0)
