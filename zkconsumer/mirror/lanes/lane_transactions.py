"""The transactions of one lane: they keep leaders from forgetting its producer, whatever the times of its records.

While a transaction is open the leader knows its producer, and the marker at its end has the time of now. So the numbers
of a lane of old records, or of records without times, guard it as well as those of others. All processes of the mirror
use one id and epoch: only what was aborted needs a new one.

Threads: one at a time; `close` from any.

Source: docs/MIRROR.md; KIP-98.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final, TypeVar

from simpleconsumer.closing import Closing
from simpleconsumer.consumer import LATEST
from simpleconsumer.dialect import KAFKA011, BatchHead, dialect_of, head_with
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError
from simpleconsumer.types import FetchRequest, ProducerId, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.errors import LaneStuck, TransactionLost
from zkconsumer.producer.errors import TransactionFailed
from zkconsumer.producer.transactions import Coordinator
from zkconsumer_error import ErrorCode

T = TypeVar("T")
COMMIT_S: Final = 5.0
COMMIT_BYTES: Final = 64 << 20
_TIMEOUTS_MS: Final = (600_000, 60_000)
"""After which the coordinator aborts: a lane whose processes are all away for so long copies its transaction again."""
_ASK_S: Final = 30.0
_MARKER_S: Final = 30.0
_FETCH_BYTES: Final = 4 << 20
_HEAD_OVERHEAD: Final = 12
_BACKOFF: Final = Backoff(0.005, 0.5)
LOST_CODES: Final = frozenset((
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
))  # fmt: skip
"""What is said of a transaction that is over, and of a producer that has a later epoch or is forgotten."""


class LaneTransactions(Closing):
    """The transactions of one lane.

    Args:
        name: The partition of the target.
        transactional_id: Of the lane.
        target: The cluster.

    Attributes:
        id: The transactional id.
        is_open: Whether this process has added the partition to a transaction that it has not ended.
    """

    def __init__(self, name: TopicPartition, transactional_id: str, target: Side) -> None:
        self._name = name
        self.id = transactional_id
        self._target = target
        self._coordinator = Coordinator(transactional_id, target.cluster.brokers, target.connect)
        self.is_open = False
        self._opened_at = 0.0
        self._size_bytes = 0

    def close(self) -> None:
        """End a question that is under way, and close the connection."""
        self._coordinator.close()

    @property
    def is_due(self) -> bool:
        """Whether what was sent is to be committed now."""
        is_old = time.monotonic() - self._opened_at >= COMMIT_S
        return self.is_open and (is_old or self._size_bytes >= COMMIT_BYTES)

    def count(self, size_bytes: int) -> None:
        """Take note that so many bytes were sent."""
        self._size_bytes += size_bytes

    def new_producer(self) -> ProducerId:
        """Return a new epoch, after what was open was ended and has its marker."""
        self.is_open = False
        for timeout_ms in _TIMEOUTS_MS:
            request = KAFKA011.producer_id(self.id, timeout_ms)
            code, producer = self._ask(request, lambda answer: answer[0])
            if code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                break
        if code:
            raise BrokerError(code, *self._name)
        return producer

    def open(self, producer: ProducerId) -> None:
        """Open a transaction, or go on with the one that is open.

        Raises:
            TransactionLost: The coordinator has a later epoch.
        """
        if self.is_open:
            return
        [code] = self._ask(KAFKA011.add_to_transaction(self.id, producer, [self._name]), lambda codes: codes[0])
        self._check(code)
        self.is_open, self._opened_at, self._size_bytes = True, time.monotonic(), 0

    def commit(self, producer: ProducerId, end: int) -> None:
        """Commit what was sent, and wait for the marker at the end of the log.

        Raises:
            TransactionLost: It was ended otherwise.
        """
        self.is_open = False
        self._check(self._ask(KAFKA011.end_transaction(self.id, producer, commit=True), lambda code: code))
        deadline = time.monotonic() + _MARKER_S
        for failures in itertools.count():
            if self.end() > end:
                return
            if time.monotonic() > deadline:
                raise LaneStuck(self._name, _MARKER_S, f"the marker at offset {end} was not written")
            time.sleep(_BACKOFF.wait_s(failures))

    def end(self) -> int:
        """Return where the log ends, whatever belongs to a transaction."""
        found = self._target.cluster.log_ends([self._name], [LATEST])[self._name]
        if isinstance(found, str):
            raise LaneStuck(self._name, 0.0, found)
        return int(found[0] or 0)

    def heads(self, first: int, end: int) -> list[BatchHead]:
        """Return the heads of the batches at these offsets, as far as they are there."""
        found: list[BatchHead] = []
        leader = self._target.cluster.leaders([self._name]).get(self._name)
        if leader is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, *self._name)
        with self._target.connect(leader) as client:
            while first < end:
                asked = FetchRequest(self._name.topic, int(self._name.partition), first, _FETCH_BYTES)
                [fetched] = client.multifetch([asked], 0, 1)
                if fetched.error_code:
                    raise BrokerError(fetched.error_code, *self._name)
                before, data = first, memoryview(fetched.message_set)
                while data:
                    head = head_with(data, int.from_bytes(data[:8], "big", signed=True))
                    if head is None or len(data) < _HEAD_OVERHEAD + head.size:
                        break
                    if first <= head.last_offset < end:
                        found.append(head)
                        first = head.last_offset + 1
                    data = data[_HEAD_OVERHEAD + head.size :]
                if first == before:
                    raise LaneStuck(
                        self._name, 0.0, f"the broker has no batch at offset {first}, and the log ends at {end}"
                    )
        return found

    def is_committed(self, first: int, marker: int) -> bool:
        """Return whether readers of committed messages get the record at an offset, which has a marker after it."""
        leader = self._target.cluster.leaders([self._name]).get(self._name)
        if leader is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, *self._name)
        asked = FetchRequest(self._name.topic, int(self._name.partition), first, _FETCH_BYTES)
        with self._target.connect(leader, read_committed=True) as client:
            [fetched] = client.multifetch([asked], 0, 1)
        if fetched.error_code:
            raise BrokerError(fetched.error_code, *self._name)
        messages = dialect_of(leader).decode_messages(
            fetched.message_set, *self._name, first, aborted=fetched.aborted
        )  # fmt: skip
        return next((message.offset for message in messages), marker) == first

    def _ask(self, request: AnyRequest[T], code_of: Callable[[T], int]) -> T:
        try:
            return self._coordinator.ask(request, code_of, time.monotonic() + _ASK_S).answer
        except TransactionFailed as error:
            raise LaneStuck(self._name, _ASK_S, str(error)) from error

    def _check(self, code: int) -> None:
        if code in LOST_CODES:
            raise TransactionLost(self._name, code)
        if code:
            raise BrokerError(code, *self._name)
